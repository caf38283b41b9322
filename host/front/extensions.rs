//! Argo CD's proxy extensions.

pub mod config;
