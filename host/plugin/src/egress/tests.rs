//! The rules, one by one, each allow beside its refusal; then a TLS server in
//! memory, whose network is a map, so that every address can be told.

mod addresses;
mod entries;
mod exchange;
mod failures;
mod fake_network;
mod urls;
