//! Tests the store: one suite for SQLite and a real PostgreSQL, and the data of both after a
//! process is killed.
//!
//! Needs PostgreSQL's programs (`cargo xtask setup`).

mod audit;
mod bounds;
mod forget;
mod kill;
mod logins;
mod lost;
mod opening;
mod replicas;
mod revocations;
mod seen;
mod sessions;
mod support;
mod together;
mod tokens;
