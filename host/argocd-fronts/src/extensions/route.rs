//! Paths of extensions: the name, and the raw rest behind it. Refusals get 400.
//!
//! Security: a backend gets the rest, byte for byte, as it was checked.

use http::Uri;

use tollgate_front::path::{Answerer, Captures, Methods, Part, Path, Rest};
use tollgate_proxy::target::{Error, check_backend_path};

/// The documented prefix, and the one Argo CD's own router uses.
const PREFIXES: &[&str] = &["/api/v1/extensions", "/extensions"];

pub(super) const PATHS: &[Path<()>] = &[
    Path::new(
        Methods::Any,
        PREFIXES,
        &[Part::Text("/"), Part::Segment("extension"), Part::Rest("path")],
        (),
    )
    .answered_by(Answerer::Backend),
    // Without a name.
    Path::new(Methods::Any, PREFIXES, &[], ()).answered_by(Answerer::Backend),
];

/// Longest name accepted, in bytes.
const NAME_BYTES: usize = 253;

/// An extension, and what is asked of its backend.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ExtensionPath {
    /// `[A-Za-z0-9_-]+`, at most 253 bytes.
    pub(super) name: String,
    /// What follows the name.
    pub(super) rest: Rest,
}

impl ExtensionPath {
    pub(super) fn read(captures: &Captures<'_>, uri: &Uri) -> Result<Self, Error> {
        check_backend_path(uri.path())?;
        let [name, ..] = captures.segments;
        let valid = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
        if name.is_empty() || name.len() > NAME_BYTES || !name.bytes().all(valid) {
            return Err(Error::ExtensionName);
        }
        // The first segment of a backend's path is no encoded slash.
        if captures.rest.starts_with("/%") {
            check_backend_path(captures.rest)?;
        }
        Ok(Self {
            name: name.to_owned(),
            rest: Rest::of(captures, uri),
        })
    }

    /// Its name, and what follows.
    #[cfg(any(test, feature = "fuzz"))]
    pub(crate) fn parts(&self) -> (&str, &Rest) {
        (&self.name, &self.rest)
    }
}

#[cfg(test)]
mod tests {
    use http::Method;

    use super::Error;
    use crate::extensions::ExtensionsFront;
    use tollgate_front::path::Answerer;

    type Found = Option<(String, String, Option<String>)>;

    fn extension(target: &str) -> Result<Found, Error> {
        let found =
            tollgate_front::find_in_paths::<ExtensionsFront>(&Method::GET, &target.parse().unwrap(), Answerer::ALL)?;
        Ok(found.map(|(path, _)| {
            let (rest, query) = (path.rest.path().to_owned(), path.rest.query().map(str::to_owned));
            (path.name, rest, query)
        }))
    }

    #[test]
    fn extension_paths_are_split_without_decoding() {
        for (target, name, rest, query) in [
            ("/api/v1/extensions/metrics", "metrics", "", None),
            ("/extensions/metrics/", "metrics", "/", None),
            (
                "/extensions/m-1_x/a%2Fb/c?d=%2e%2e&e",
                "m-1_x",
                "/a%2Fb/c",
                Some("d=%2e%2e&e"),
            ),
            ("/api/v1/extensions/m?x", "m", "", Some("x")),
        ] {
            let expected = (name.to_owned(), rest.to_owned(), query.map(str::to_owned));
            assert_eq!(extension(target), Ok(Some(expected)), "{target}");
        }
        for target in [
            "/",
            "/api/v1/extensionsx/m",
            "/extension/m",
            "/API/v1/extensions/m",
            "/healthz",
        ] {
            assert_eq!(extension(target), Ok(None), "{target}");
        }
        for (target, error) in [
            ("/extensions", Error::ExtensionName),
            ("/extensions/", Error::ExtensionName),
            ("/extensions/a.b/c", Error::ExtensionName),
            ("/extensions/%61/c", Error::ExtensionName),
            ("/extensions/a%2Fb", Error::ExtensionName),
            ("/extensions/m/../n", Error::DotSegment),
            ("/extensions//m", Error::EmptySegment),
        ] {
            assert_eq!(extension(target), Err(error), "{target}");
        }
    }
}
