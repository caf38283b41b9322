//! What every front is made of. A front serves the requests below some paths: it finds out what is asked, decides
//! whether the caller may, and answers.
//!
//! Invariant: nothing here knows a front.

pub mod api;
pub mod caller;
pub mod denial;
pub mod grpc;
pub mod kubernetes_status;
pub mod origin;
pub mod path;
pub mod permission;
pub mod rbac;
pub mod status_message;

pub use denial::{Denial, Refusal};
