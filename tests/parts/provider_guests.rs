//! Tests the shipped credential providers beyond the case tables: chains of requests, signatures,
//! cached logins and revocation.

mod assertions;
mod errors;
mod fixture;
mod memory;
mod roles;
