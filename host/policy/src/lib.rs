//! Decisions: data goes in, a decision comes out.
//!
//! Argo CD's RBAC ([`rbac`]), Rego bundles ([`rego`]), CEL expressions ([`cel`]), whom a
//! cluster is told a request is from ([`impersonate`]), and which project, cluster and
//! account govern an Application ([`applications`], [`application_request`]).
//!
//! `tollgate policy test`, benches and fuzz targets need nothing else.

pub mod application_request;
pub mod applications;
pub mod cel;
pub mod impersonate;
pub mod rbac;
pub mod rego;
