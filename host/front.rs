//! What is special about each front.
//!
//! In: a request's path and fields. Out: what is asked of which front. Never: an
//! order of stages: that is [`crate::pipeline`]'s.

pub mod applicationsets;
pub mod clusters;
pub mod extensions;
pub mod kubernetes;
pub mod platform;
pub mod projects;
