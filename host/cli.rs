//! The command line.

pub mod plugin;
