//! Credential providers that mean no good, or are written in other languages.
//!
//! Needs the built guests: `cargo xtask plugins`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail like tests"
)]

mod hostile;
mod world;
