//! A real Kubernetes: that the harness is what it says, and what clusters do.
//!
//! Needs its binaries: `cargo xtask kubernetes`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail like tests"
)]

mod access;
mod browser;
mod control_plane;
mod credentials;
mod gateway;
mod kubelet;
mod lifetime;
#[path = "../oidc/provider.rs"]
mod provider;
mod support;
