//! What is special about each front.

pub mod extensions;
