use serde_json::json;

use super::*;

/// 2026-01-02T03:04:05Z.
const NOW: u64 = 1_767_323_045_000;

/// Finds members of the document and of its member `data`.
fn select<'a>(document: &'a Value) -> impl Fn(&str) -> Option<Value> + 'a {
    |path: &str| {
        let pointer = path
            .replace("['data']", ".data")
            .replace(['$', '\''], "")
            .replace('.', "/");
        document.pointer(&pointer).cloned()
    }
}

fn expiry(path: Option<(&str, Format)>, ttl_ms: Option<u64>, token_path: &str, document: &Value) -> Expiry {
    let path = path.map(|(path, format)| (path.to_owned(), format));
    Lifetime { path, ttl_ms }.expiry(NOW, token_path, &select(document))
}

/// The expiry `milliseconds` from now.
fn at(milliseconds: u64) -> Expiry {
    Expiry::at(NOW + milliseconds, NOW)
}

#[test]
fn expires_in_is_read_next_to_the_token() {
    let nested = json!({"expires_in": 1, "data": {"expires_in": "60"}});
    assert_eq!(expiry(None, None, "$['data']['to.ken']", &nested), at(60_000));
    assert_eq!(expiry(None, None, "$.data.token", &nested), at(60_000));
    assert_eq!(expiry(None, None, "$.token", &nested), at(1_000));
    assert_eq!(expiry(None, None, "$.token", &json!({})), Expiry::unknown());
    let past = expiry(None, None, "$.token", &json!({"expires_in": -5}));
    assert_eq!((past.at, past.cacheable), (Some(NOW), false));
    let garbage = expiry(None, None, "$.token", &json!({"expires_in": "soon"}));
    assert!(
        garbage.at.is_none()
            && garbage
                .warning
                .is_some_and(|text| text.starts_with("expires_in unparseable"))
    );
}

#[test]
fn a_configured_path_is_read_in_its_format_only() {
    for (format, value, expected) in [
        (Format::Seconds, json!("60"), 60_000),
        (Format::Unix, json!(1_767_323_645), 600_000),
        (Format::Unix, json!("1767323645.5"), 600_500),
        (Format::UnixMs, json!(1_767_323_645_000_u64), 600_000),
        (Format::UnixMs, json!("1767323645001"), 600_001),
        (Format::Rfc3339, json!("2026-01-02T04:04:05Z"), 3_600_000),
        (Format::Rfc3339, json!("2026-01-02T05:04:05.250+01:00"), 3_600_250),
    ] {
        let document = json!({"end": value, "expires_in": 5});
        assert_eq!(
            expiry(Some(("$.end", format)), None, "$.token", &document),
            at(expected),
            "{value}"
        );
    }
    for (format, value) in [
        (Format::Rfc3339, json!(1_767_323_645)),
        (Format::Rfc3339, json!("2026-01-02 04:04")),
        (Format::UnixMs, json!(true)),
    ] {
        let found = expiry(Some(("$.end", format)), None, "$.token", &json!({"end": value}));
        assert!(found.at.is_none() && found.warning.is_some(), "{value}");
    }
    let missing = expiry(
        Some(("$.exp", Format::Unix)),
        None,
        "$.token",
        &json!({"expires_in": 60}),
    );
    assert_eq!(missing.at, None);
    assert!(
        missing
            .warning
            .is_some_and(|text| text.starts_with("expiry.path matched nothing at `$.exp`"))
    );
}

#[test]
fn a_ttl_only_shortens() {
    let document = json!({"expires_in": 3600});
    assert_eq!(expiry(None, Some(120_000), "$.token", &document), at(120_000));
    assert_eq!(expiry(None, Some(7_200_000), "$.token", &document), at(3_600_000));
    assert_eq!(expiry(None, Some(120_000), "$.token", &json!({})), at(120_000));
    let past = expiry(None, Some(120_000), "$.token", &json!({"expires_in": -5}));
    assert_eq!((past.at, past.cacheable), (Some(NOW), false));
}

#[test]
fn the_sibling_of_a_path() {
    for (path, expected) in [
        ("$.a", Some("$.expires_in")),
        ("$.a.b", Some("$.a.expires_in")),
        ("$['a.b'][\"c]\"]", Some("$['a.b'].expires_in")),
        ("$['it\\'s.x']", Some("$.expires_in")),
        ("$.a[0]", Some("$.a.expires_in")),
        ("$", None),
    ] {
        assert_eq!(sibling(path).as_deref(), expected, "{path}");
    }
}

#[test]
fn durations_are_written_as_in_go() {
    for (text, expected) in [
        ("90s", Some(90_000)),
        ("2m", Some(120_000)),
        ("1h30m", Some(5_400_000)),
        ("1500ms", Some(1_500)),
        ("", None),
        ("90", None),
        ("s", None),
        ("1d", None),
        ("-1s", None),
        ("1.5h", None),
        ("99999999999999999999h", None),
        ("9999999999999999h", None),
    ] {
        assert_eq!(duration(text), expected, "{text}");
    }
}
