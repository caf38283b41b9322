use http::Uri;

use super::*;

#[test]
fn extension_paths_are_split_without_decoding() {
    for (uri, name, rest, query) in [
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
        let uri: Uri = uri.parse().unwrap();
        assert_eq!(extension(&uri), Ok(Some(ExtensionPath { name, rest, query })), "{uri}");
    }
    for uri in [
        "/",
        "/api/v1/extensionsx/m",
        "/extension/m",
        "/API/v1/extensions/m",
        "/healthz",
    ] {
        assert_eq!(extension(&uri.parse().unwrap()), Ok(None), "{uri}");
    }
    for (uri, error) in [
        ("/extensions", Error::ExtensionName),
        ("/extensions/", Error::ExtensionName),
        ("/extensions/a.b/c", Error::ExtensionName),
        ("/extensions/%61/c", Error::ExtensionName),
        ("/extensions/a%2Fb", Error::ExtensionName),
        ("/extensions/m/../n", Error::DotSegment),
        ("/extensions//m", Error::EmptySegment),
    ] {
        assert_eq!(extension(&uri.parse().unwrap()), Err(error), "{uri}");
    }
}
