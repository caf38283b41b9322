//! Tests single parts of the program, against the real systems they read or follow: git
//! repositories, databases, an OpenID provider, guests, and the code of Argo CD and kube-apiserver.
//!
//! Needs `cargo xtask setup`, `cargo xtask plugins` and `cargo xtask argocd`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "helpers of tests panic, as tests do"
)]

mod applicationsets;
mod argocd_api;
mod differential;
mod grace;
mod hostile_policies;
mod image;
mod mistakes;
mod oidc_provider;
mod opa;
mod papers;
mod plugins;
mod policies;
mod policy_growth;
mod provider_guests;
mod providers;
mod rego_conformance;
mod repository;
mod reviews;
mod store;
mod tasks;
