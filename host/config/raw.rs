//! The settings file as it is written.

pub mod plugins;
