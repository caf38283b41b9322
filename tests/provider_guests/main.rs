//! What the case tables do not say about the guests that make credentials: chains
//! of requests, signatures, what is remembered, what is revoked.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::string_slice,
    reason = "helpers of tests fail like tests"
)]

mod assertions;
mod errors;
mod memory;
mod roles;
mod stage;
#[expect(dead_code, reason = "the case tables use the rest")]
#[path = "../providers/world.rs"]
mod world;
