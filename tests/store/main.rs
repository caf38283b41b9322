//! The store: one suite, run over SQLite and over a real PostgreSQL, and what is
//! left of both when a process is killed.
//!
//! Needs PostgreSQL's programs: `cargo xtask setup`.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "helpers of tests fail like tests"
)]

mod audit;
mod bounds;
mod forget;
mod kill;
mod lost;
mod opening;
mod replicas;
mod revocations;
mod seen;
mod sessions;
mod support;
mod together;
mod tokens;
