use std::time::Duration;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderValue};
use jiff::Timestamp;

use crate::access::api::content::{NewSession, NewToken};
use tollgate_front::api::Error;
use tollgate_front::api::content::read;

const DAY: Duration = Duration::from_secs(24 * 60 * 60);

fn json() -> HeaderMap {
    let mut fields = HeaderMap::new();
    fields.insert(
        CONTENT_TYPE,
        HeaderValue::from_static("application/json; charset=utf-8"),
    );
    fields
}

fn token(text: &str) -> Result<NewToken, Error> {
    read(&json(), text.as_bytes())
}

#[test]
fn agents_are_named_by_number_or_name() {
    for (text, expected) in [
        (r#"{"name": "n", "agent": 9999}"#, "9999"),
        (r#"{"name": "n", "agent": "9999"}"#, "9999"),
        (r#"{"name": "n", "agent": "prod", "user": "bob"}"#, "prod"),
    ] {
        assert_eq!(token(text).unwrap().agent.to_string(), expected);
    }
}

#[test]
fn invalid_content_is_refused() {
    for text in [
        r#"{"name": "n"}"#,
        r#"{"agent": 1}"#,
        r#"{"name": "n", "agent": 1, "scopes": ["api"]}"#,
        r#"{"name": "n", "agent": null}"#,
        r#"{"name": "n", "agent": 1, "expiresAt": "tomorrow"}"#,
        r#"{"name": "n", "agent": 1} {}"#,
        "[]",
        "",
    ] {
        assert!(matches!(token(text), Err(Error::Content { .. })), "{text}");
    }
    let plain: Result<NewToken, _> = read(&HeaderMap::new(), br#"{"name": "n", "agent": 1}"#);
    assert!(matches!(plain, Err(Error::ContentType)));
    let mut two = json();
    two.append(CONTENT_TYPE, HeaderValue::from_static("text/plain"));
    assert!(matches!(read::<NewToken>(&two, b"{}"), Err(Error::ContentType)));
    assert!(NewSession::read(&HeaderMap::new(), b"").is_ok());
    assert!(NewSession::read(&json(), b"{}").is_ok());
    assert!(matches!(
        NewSession::read(&HeaderMap::new(), b"{}"),
        Err(Error::ContentType)
    ));
    assert!(matches!(
        NewSession::read(&json(), br#"{"user": "bob"}"#),
        Err(Error::Content { .. })
    ));
}

#[test]
fn names_are_trimmed_and_validated() {
    let long = "x".repeat(256);
    for (name, expected) in [
        (" laptop ", Some("laptop")),
        ("", None),
        ("  ", None),
        ("a\\nb", None),
        (&*long, None),
    ] {
        let token = token(&format!(r#"{{"name": "{name}", "agent": 1}}"#)).unwrap();
        assert_eq!(token.name().ok(), expected, "{name}");
    }
}

#[test]
fn token_lifetimes_are_bounded() {
    let now: Timestamp = "2026-01-01T00:00:00.5Z".parse().unwrap();
    let end = |text: &str, longest| {
        let token = token(&format!(r#"{{"name": "n", "agent": 1{text}}}"#)).unwrap();
        token.expiry(now, longest).map(|end| end.to_string())
    };
    let year = 365 * DAY;
    assert_eq!(end("", year).unwrap(), "2026-01-31T00:00:00Z");
    assert_eq!(end("", DAY).unwrap(), "2026-01-02T00:00:00Z");
    assert_eq!(end(r#", "lifetime": "24h""#, year).unwrap(), "2026-01-02T00:00:00Z");
    let at = r#", "expiresAt": "2026-01-05T00:00:00Z""#;
    assert_eq!(end(at, year).unwrap(), "2026-01-05T00:00:00Z");
    for (text, longest) in [
        (r#", "lifetime": "24h1s""#, DAY),
        (r#", "lifetime": "0""#, DAY),
        (at, DAY),
        (r#", "expiresAt": "2025-12-31T23:59:59Z""#, year),
        (r#", "expiresAt": "2026-01-01T00:00:00.5Z""#, year),
    ] {
        assert!(matches!(end(text, longest), Err(Error::Lifetime { .. })), "{text}");
    }
    let both = r#", "lifetime": "1h", "expiresAt": "2026-01-05T00:00:00Z""#;
    for text in [both, r#", "lifetime": "a day""#, r#", "lifetime": "-1h""#] {
        assert!(matches!(end(text, year), Err(Error::Content { .. })), "{text}");
    }
}
