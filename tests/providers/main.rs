//! Credential providers in the real host, against an endpoint that answers by script.
//!
//! Needs the built guests: `cargo xtask plugins`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail like tests"
)]

mod generators;
mod hostile;
mod languages;
mod world;
