//! Shortens the messages of errors.

use tollgate_core::diagnostic::shortened;

/// Maximum length of an error's message, in bytes: templates make strings of any length.
const MESSAGE_BYTES: usize = 1_000;

/// An error's message, shortened so that it fits in an answer.
pub(crate) fn truncated(message: &str) -> String {
    shortened(message, MESSAGE_BYTES)
}
