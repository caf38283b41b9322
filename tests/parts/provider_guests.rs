//! What the case tables do not say about the guests that make credentials: chains
//! of requests, signatures, what is remembered, what is revoked.

mod assertions;
mod errors;
mod memory;
mod roles;
mod stage;
