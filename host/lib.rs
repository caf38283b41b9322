//! Tollgate: a policy gateway between people, their GitOps control plane and
//! their Kubernetes clusters. The modules are the path of one request.

pub mod assertion;
pub mod config;
pub mod diagnostic;
pub mod forward;
pub mod front;
pub mod headers;
pub mod route;
pub mod server;
pub mod state;
