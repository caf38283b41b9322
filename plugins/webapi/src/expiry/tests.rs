use super::*;

/// 2026-01-02T03:04:05Z.
const NOW: u64 = 1_767_323_045_000;

/// Finds members at the top, and those below `data`.
fn select<'a>(document: &'a Value) -> impl Fn(&str) -> Option<String> + 'a {
    |path: &str| {
        let pointer = path
            .replace("['data']", ".data")
            .replace(['$', '\''], "")
            .replace('.', "/");
        document.pointer(&pointer).map(ToString::to_string)
    }
}

fn end(path: Option<(&str, Format)>, ttl_ms: Option<u64>, token_path: &str, document: &Value) -> End {
    let path = path.map(|(path, format)| (path.to_owned(), format));
    Expiry { path, ttl_ms }.end(NOW, token_path, &select(document))
}

fn at(seconds: i64) -> End {
    End {
        at: Some(NOW.checked_add_signed(seconds * 1000).unwrap()),
        ..End::default()
    }
}

#[test]
fn what_stands_beside_the_token_counts() {
    for (value, expected) in [
        ("3600", at(3600)),
        ("\"3600\"", at(3600)),
        ("3.6e3", at(3600)),
        (
            "0.5",
            End {
                at: Some(NOW + 500),
                ..End::default()
            },
        ),
        ("null", End::default()),
    ] {
        let document = serde_json::from_str(&format!("{{\"expires_in\":{value}}}")).unwrap();
        assert_eq!(end(None, None, "$.token", &document), expected, "{value}");
    }
    let nested = serde_json::json!({"expires_in": 1, "data": {"expires_in": 60}});
    assert_eq!(end(None, None, "$['data']['to.ken']", &nested), at(60));
    assert_eq!(end(None, None, "$.data.token", &nested), at(60));
    assert_eq!(end(None, None, "$.token", &serde_json::json!({})), End::default());
}

#[test]
fn what_is_over_is_used_once() {
    for value in ["0", "-5", "\"-1\"", "-1e300"] {
        let document = serde_json::from_str(&format!("{{\"expires_in\":{value}}}")).unwrap();
        let end = end(None, None, "$.token", &document);
        assert_eq!((end.at, end.over), (Some(NOW), true), "{value}");
        assert!(end.warning.unwrap().contains("used once"));
    }
    let past = serde_json::json!({"end": "2026-01-02T03:04:05Z"});
    assert!(end(Some(("$.end", Format::Rfc3339)), None, "$.token", &past).over);
}

#[test]
fn what_cannot_be_read_is_unknown_and_said() {
    for value in ["\"soon\"", "true", "[]", "\"\"", "1e300", "\"inf\"", "\"NaN\""] {
        let document = serde_json::from_str(&format!("{{\"expires_in\":{value}}}")).unwrap();
        let end = end(None, None, "$.token", &document);
        assert_eq!((end.at, end.over), (None, false), "{value}");
        assert!(end.warning.unwrap().starts_with("`$.expires_in` is "), "{value}");
    }
    let found = end(
        Some(("$.exp", Format::Unix)),
        None,
        "$.token",
        &serde_json::json!({"expires_in": 60}),
    );
    assert_eq!(found.at, None, "a configured path is the only one");
    assert!(found.warning.unwrap().contains("`$.exp` matched nothing"));
}

#[test]
fn a_path_is_read_in_its_format() {
    for (format, value, expected) in [
        (Format::Seconds, serde_json::json!("60"), at(60)),
        (Format::Unix, serde_json::json!(1_767_323_645), at(600)),
        (
            Format::Unix,
            serde_json::json!("1767323645.5"),
            End {
                at: Some(NOW + 600_500),
                ..End::default()
            },
        ),
        (Format::UnixMs, serde_json::json!(1_767_323_645_000_u64), at(600)),
        (Format::Rfc3339, serde_json::json!("2026-01-02T04:04:05Z"), at(3600)),
        (
            Format::Rfc3339,
            serde_json::json!("2026-01-02T05:04:05.250+01:00"),
            End {
                at: Some(NOW + 3_600_250),
                ..End::default()
            },
        ),
    ] {
        let document = serde_json::json!({"end": value});
        assert_eq!(
            end(Some(("$.end", format)), None, "$.token", &document),
            expected,
            "{value}"
        );
    }
    for (format, value) in [
        (Format::Rfc3339, serde_json::json!(1_767_323_645)),
        (Format::Rfc3339, serde_json::json!("2026-01-02 04:04")),
        (Format::Unix, serde_json::json!("2026-01-02T04:04:05Z")),
    ] {
        let found = end(
            Some(("$.end", format)),
            None,
            "$.token",
            &serde_json::json!({"end": value}),
        );
        assert!(found.at.is_none() && found.warning.is_some(), "{value}");
    }
}

#[test]
fn a_ttl_only_shortens() {
    let document = serde_json::json!({"expires_in": 3600});
    assert_eq!(end(None, Some(120_000), "$.token", &document), at(120));
    assert_eq!(end(None, Some(7_200_000), "$.token", &document), at(3600));
    assert_eq!(end(None, Some(120_000), "$.token", &serde_json::json!({})), at(120));
    let past = serde_json::json!({"expires_in": -5});
    assert_eq!(end(None, Some(120_000), "$.token", &past).at, Some(NOW));
}

#[test]
fn the_place_beside_a_token() {
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
