//! A whole gateway on loopback: what callers are told, and what backends see.
//!
//! Needs the built guests: `cargo xtask plugins`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail like tests"
)]

mod access;
mod admin;
mod attacks;
mod behaviours;
mod clusters;
mod expiry;
mod limits;
mod memory;
mod platform;
mod plugins;
mod reload;
mod streaming;
#[expect(dead_code, reason = "unit tests, case runner and benches use the rest")]
mod support;
mod unread;
mod wire;
