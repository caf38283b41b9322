//! What is specific to each front: which requests there are, and how they are answered. The order
//! of the stages is in [`crate::pipeline`].

pub mod applicationsets;
pub mod clusters;
pub mod extensions;
pub mod kubernetes;
pub mod platform;
pub mod projects;
