//! The vocabulary that all of Tollgate shares: principals and ids, attributes of Kubernetes
//! requests, matching of names and texts, and diagnostics with their positions.
//!
//! Invariant: nothing here opens a file or a socket, waits, or knows a policy.

pub mod access;
pub mod address;
pub mod agent;
pub mod attributes;
pub mod claims;
pub mod diagnostic;
pub mod dns;
pub mod glob;
pub mod header_map;
pub mod header_names;
pub mod json_path;
mod metrics;
pub mod path_pattern;
pub mod plugin;
pub mod principal;
pub mod query_parameters;
pub mod re2;
pub mod session;
pub mod subprotocol;
pub mod upgrade;
pub mod user;
pub mod yaml;
