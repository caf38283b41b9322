//! The store: one suite, run over SQLite and over a real PostgreSQL, and what is
//! left of both when a process is killed.
//!
//! Needs PostgreSQL's programs: `cargo xtask setup`.

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
