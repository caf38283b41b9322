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
mod application_grants;
mod applications;
mod applicationsets;
mod browser;
mod control_plane;
mod credentials;
mod deployment;
mod escalation;
mod kubelet;
mod least_privilege;
mod lifetime;
mod projects;
mod replicas;
mod state;
