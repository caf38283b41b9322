//! JSON paths of guests.
//!
//! In: a text. Out: a [`SingularPath`]. Never: the parser on a guest's stack: it
//! measures the stack that is left, and a fiber's is not where it looks.

use crate::json_path::{Error, SingularPath};

/// Reads a path, from within a call of a guest.
///
/// # Errors
/// As [`SingularPath::parse`]; also without a thread to read it on.
pub(super) fn parse(text: &str) -> Result<SingularPath, String> {
    std::thread::scope(|scope| {
        let thread = std::thread::Builder::new()
            .name("json-path".to_owned())
            .spawn_scoped(scope, || SingularPath::parse(text))
            .map_err(|error| format!("the path cannot be read now: {error}"))?;
        match thread.join() {
            Ok(parsed) => parsed.map_err(|error: Error| error.to_string()),
            Err(_) => Err("the path cannot be read".to_owned()),
        }
    })
}
