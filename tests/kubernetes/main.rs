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
#[expect(dead_code, reason = "tests of the gateway use the rest")]
#[path = "../gateway/support/client.rs"]
mod client;
mod control_plane;
mod credentials;
mod deployment;
mod escalation;
mod gateway;
mod kubelet;
mod least_privilege;
mod lifetime;
#[expect(dead_code, reason = "tests of the store use the rest")]
#[path = "../store/support/postgres.rs"]
mod postgres;
mod projects;
#[path = "../oidc/provider.rs"]
mod provider;
#[path = "../store/support/relay.rs"]
mod relay;
mod replicas;
mod support;
