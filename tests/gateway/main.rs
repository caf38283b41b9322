//! Tests of a whole gateway on loopback: what callers get, and what backends receive.
//!
//! They need the built guests: `cargo xtask plugins`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test helpers panic on failure, as tests do"
)]

mod access;
mod admin;
mod admission;
mod admission_oracle;
mod answers;
mod application_grants;
mod applications;
mod applicationsets;
mod argocd;
mod argocd_cli;
mod argocd_policy;
mod attacks;
mod authorities;
mod behaviours;
mod browsers;
mod bypasses;
mod clusters;
mod cross_site;
mod doors;
mod expiry;
mod extension_objects;
mod grpc;
mod http2;
mod limits;
mod memory;
mod operations;
mod platform;
mod plugins;
mod policy_inputs;
mod projects;
mod proxies;
mod reload;
mod revoked_tokens;
mod stalls;
mod streaming;
mod tasks;
mod terminal;
mod tracing;
mod unread;
mod wire;
mod withdrawal;
