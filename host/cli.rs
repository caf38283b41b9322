//! The command line.

pub mod rbac;
