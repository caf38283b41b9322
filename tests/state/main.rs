//! Both sources of the objects: what one gives, the other gives too.
//!
//! Needs the programs of a real Kubernetes: `cargo xtask kubernetes`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail like tests"
)]

mod both;
mod cluster;
mod line;
#[expect(dead_code, reason = "other tests use the rest")]
#[path = "../kubernetes/support.rs"]
mod support;
mod world;
