//! Tests credential providers and generators in the real host, against an endpoint with scripted
//! responses.
//!
//! Needs the guests (`cargo xtask plugins`).

mod generators;
mod hostile;
mod languages;
