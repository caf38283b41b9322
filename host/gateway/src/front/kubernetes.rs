//! What is specific to the Kubernetes front: browsers of other origins call it (CORS), and its
//! refusals are `Status` objects, which kubectl and client-go understand. It does not decide what
//! a caller may do.

pub mod origin;
pub mod status;
