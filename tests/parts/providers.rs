//! Credential providers in the real host, against an endpoint that answers by script.
//!
//! Needs the built guests: `cargo xtask plugins`.

mod generators;
mod hostile;
mod languages;
