//! Guests at their worst beside guests at work.
//!
//! Needs the built guests: `cargo xtask plugins`, or their folder in
//! `TOLLGATE_GUESTS`.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail like tests"
)]

mod authors;
mod commands;
mod files;
mod guests;
mod hostile;
mod papers;
mod support;
