//! Tollgate: a policy gateway between people, their GitOps control plane and
//! their Kubernetes clusters. The modules are the path of one request.

pub mod admin;
pub mod assertion;
pub mod authenticate;
pub mod authorize;
pub mod caller;
pub mod claims;
pub mod cli;
pub mod config;
pub mod diagnostic;
pub mod forward;
pub mod front;
pub mod glob;
pub mod headers;
pub mod metrics;
pub mod pipeline;
pub mod plugin;
pub mod record;
pub mod rejection;
pub mod route;
pub mod running;
pub mod server;
pub mod snapshot;
pub mod state;
