//! Tollgate's own API, and sign-in.
//!
//! Invariant: no front here knows another. What they share is in modules beside them.

mod acting;
mod directory;
mod operations;
mod platform;
mod projects;
mod sign_in;

pub use operations::OperationsFront;
pub use platform::PlatformFront;
pub use projects::ProjectsFront;
pub use sign_in::{ConsoleFront, LoginFront, SignInState};
