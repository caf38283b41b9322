//! Reads the [`BodyName`] of an object that a request creates, from the headers and bytes of its
//! body.

use crate::object_content::{ContentFormat, Unreadable, read_metadata};

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum BodyName {
    Known(String),
    /// The cluster generates the name, or there is none.
    Generated,
    /// The body cannot be read: it has another format, is malformed, or is ambiguous.
    Unreadable,
}

impl BodyName {
    pub(crate) fn known(&self) -> Option<&str> {
        match self {
            Self::Known(name) => Some(name),
            Self::Generated | Self::Unreadable => None,
        }
    }

    /// The name in an object's metadata.
    pub(crate) fn of(name: Option<String>) -> Self {
        name.filter(|name| !name.is_empty())
            .map_or(Self::Generated, Self::Known)
    }
}

/// Reads `metadata.name` of an object.
///
/// - `bytes`: the whole body. The caller must bound its length.
pub(crate) fn name_in_body(format: ContentFormat, bytes: &[u8]) -> BodyName {
    match read_metadata(format, bytes) {
        Ok(metadata) => BodyName::of(metadata.name),
        Err(Unreadable) => BodyName::Unreadable,
    }
}
