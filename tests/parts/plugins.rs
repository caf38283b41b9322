//! Guests at their worst beside guests at work.
//!
//! Needs the built guests: `cargo xtask plugins`, or their folder in
//! `TOLLGATE_GUESTS`.

mod authors;
mod commands;
mod files;
mod guests;
mod hostile;
mod papers;
mod support;
