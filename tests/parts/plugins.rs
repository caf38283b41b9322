//! Tests plugins with built guests: working and hostile filters, loading, and the commands of
//! `tollgate plugin`.
//!
//! Needs the guests (`cargo xtask plugins`), or their folder in `TOLLGATE_GUESTS`.

mod authors;
mod commands;
mod files;
mod guests;
mod hostile;
mod papers;
mod support;
