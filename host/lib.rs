//! Tollgate: a policy gateway between people, their GitOps control plane and
//! their Kubernetes clusters. The modules are the path of one request.

pub mod authorize;
pub mod cli;
pub mod config;
pub mod diagnostic;
pub mod glob;
pub mod headers;
pub mod plugin;
pub mod state;
