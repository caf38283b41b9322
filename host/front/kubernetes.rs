//! What is special about the Kubernetes front: browsers of other origins call it,
//! and its refusals are what kubectl and client-go understand.
//!
//! In: head of a request, a refusal. Out: CORS fields, `Status` objects. Never: a
//! decision about what the caller may do.

pub mod origin;
pub mod status;
