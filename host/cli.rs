//! The command line.

pub mod policy;
