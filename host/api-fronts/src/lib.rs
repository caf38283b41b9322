//! Tollgate's own API, and sign-in.
//!
//! Invariant: no front here knows another. What they share is in modules beside them.

mod access;
mod acting;
mod directory;
mod operations;
mod projects;
mod sign_in;

pub use access::AccessFront;
pub use operations::OperationsFront;
pub use projects::ProjectsFront;
pub use sign_in::{ConsoleFront, LoginFront, SignInState};
