//! Tests the gateway with real clusters, kubectl, helm and a browser, and tests the harness itself.
//!
//! Needs the programs of Kubernetes (`cargo xtask kubernetes`).

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests panic, as tests do"
)]

mod access;
mod admission;
mod application_grants;
mod applications;
mod applicationsets;
mod argocd;
mod browser;
mod console;
mod control_plane;
mod credentials;
mod deployment;
mod enrolled;
mod escalation;
mod joined;
mod kubelet;
mod least_privilege;
mod lifetime;
mod projects;
mod replicas;
mod sign_in;
mod state;
