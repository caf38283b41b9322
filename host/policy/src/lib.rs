//! Policy decisions as pure functions: data goes in, a decision comes out. `tollgate policy test`,
//! benches and fuzz targets need no other crate.
//!
//! The modules are Argo CD's RBAC ([`rbac`]), CEL expressions ([`cel`]), impersonation in clusters
//! ([`impersonate`]), the rights that the gateway needs there
//! ([`gateway_rights`]), the project, cluster and account of each Application ([`applications`]), the
//! requests made in an Application's name ([`application_request`]), and when they may change
//! something ([`sync_windows`]).

pub mod account_entries;
pub mod application_request;
pub mod applications;
pub mod cel;
pub mod gateway_rights;
pub mod impersonate;
pub mod rbac;
pub mod sync_windows;
