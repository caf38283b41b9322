//! Argo CD proxy extensions.

pub mod config;
