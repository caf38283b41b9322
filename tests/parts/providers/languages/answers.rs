//! How guests in other languages handle a broker's responses.

use std::time::Duration;

use serde_json::json;
use tollgate_credential::MintErrorClass;

use super::{BOTH, Fixture, answer, granted, json_answer};
use test_support::providers::Reply;

#[tokio::test]
async fn the_status_decides_class_and_wait() {
    let fixture = Fixture::new(&BOTH).await;
    let body = r#"{"message":"not now","error_description":"not now"}"#;
    for name in BOTH {
        for (status, header, class, wait) in [
            (401, None, MintErrorClass::Denied, None),
            (403, Some("7"), MintErrorClass::Denied, None),
            (307, None, MintErrorClass::Config, None),
            (302, None, MintErrorClass::Config, None),
            (404, None, MintErrorClass::Config, None),
            (501, None, MintErrorClass::Permanent, None),
            (429, Some("7"), MintErrorClass::Retryable, Some(7)),
            (503, Some("120"), MintErrorClass::Retryable, Some(120)),
            (503, Some("601"), MintErrorClass::Retryable, Some(600)),
            (503, Some("99999999999999999999"), MintErrorClass::Retryable, Some(600)),
            (
                503,
                Some("Fri, 02 Jan 2026 03:04:35 GMT"),
                MintErrorClass::Retryable,
                Some(30),
            ),
            (
                503,
                Some("Fri, 02 Jan 2026 03:00:00 GMT"),
                MintErrorClass::Retryable,
                Some(0),
            ),
            (500, Some("soon"), MintErrorClass::Retryable, None),
            (500, None, MintErrorClass::Retryable, None),
        ] {
            let mut headers = vec![("x-request-id", "r-1"), ("location", "https://other.example.com/")];
            headers.extend(header.map(|value| ("retry-after", value)));
            let error = fixture.mint(name, answer(status, &headers, body)).await.unwrap_err();
            let what = format!("{name} {status} {header:?}: {error:?}");
            assert_eq!((error.class, error.code), (class, format!("http.{status}")), "{what}");
            assert_eq!(error.retry_after, wait.map(Duration::from_secs), "{what}");
            assert_eq!(
                (error.http_status, error.correlation.as_deref()),
                (Some(status), Some("r-1")),
                "{what}"
            );
            assert_eq!(error.message, format!("the broker answered {status}: not now"));
            assert_eq!(fixture.seen().len(), 1, "{what}");
        }
    }
}

#[tokio::test]
async fn invalid_broker_responses_become_errors() {
    let fixture = Fixture::new(&BOTH).await;
    let deep = format!("{{\"message\":{}1{}}}", "[".repeat(20_000), "]".repeat(20_000));
    let odd = [
        (200, "{}", MintErrorClass::Permanent, "answer.incomplete"),
        (
            200,
            r#"{"token":1,"access_token":{}}"#,
            MintErrorClass::Permanent,
            "answer.incomplete",
        ),
        (200, "token=tok.en-1", MintErrorClass::Permanent, "answer.incomplete"),
        (200, "", MintErrorClass::Permanent, "answer.incomplete"),
        (200, deep.as_str(), MintErrorClass::Permanent, "answer.incomplete"),
        (
            200,
            r#"{"token":"to ken","access_token":"to ken"}"#,
            MintErrorClass::Permanent,
            "token.bytes",
        ),
        (500, deep.as_str(), MintErrorClass::Retryable, "http.500"),
        (500, "\u{0}\u{1}{", MintErrorClass::Retryable, "http.500"),
        (
            500,
            r#"{"message":["x"],"error":7,"error_description":{}}"#,
            MintErrorClass::Retryable,
            "http.500",
        ),
    ];
    for name in BOTH {
        for (status, body, class, code) in odd {
            let reply = answer(status, &[("content-type", "application/json")], body);
            let error = fixture.mint(name, reply).await.unwrap_err();
            let start: String = body.chars().take(40).collect();
            assert_eq!(
                (error.class, error.code.as_str()),
                (class, code),
                "{name} {status} {start}: {error:?}"
            );
        }
        for (reply, class, code) in [
            (Reply::Timeout, MintErrorClass::Retryable, "egress.connect"),
            (Reply::Untrusted, MintErrorClass::Config, "egress.tls"),
        ] {
            let error = fixture.mint(name, reply).await.unwrap_err();
            assert_eq!((error.class, error.code.as_str()), (class, code), "{name}: {error:?}");
        }
    }
}

#[tokio::test]
async fn lifetimes_are_read_as_the_broker_writes_them() {
    let fixture = Fixture::new(&BOTH).await;
    let long = "1".repeat(400);
    for (name, lifetime, end, cacheable, warning) in [
        (
            "token-broker",
            json!("2026-01-02T03:04:05.5Z"),
            Some("2026-01-02T03:04:05.5Z"),
            true,
            false,
        ),
        (
            "token-broker",
            json!("2026-01-02t04:04:05.123456789z"),
            Some("2026-01-02T04:04:05.123Z"),
            true,
            false,
        ),
        (
            "token-broker",
            json!("2026-01-02T03:04:05Z"),
            Some("2026-01-02T03:04:05Z"),
            false,
            false,
        ),
        (
            "token-broker",
            json!("2020-01-01T00:00:00Z"),
            Some("2026-01-02T03:04:05Z"),
            false,
            false,
        ),
        ("token-broker", json!("2026-13-02T04:04:05Z"), None, true, true),
        ("token-broker", json!("tomorrow"), None, true, true),
        ("token-broker", json!(1_767_326_645), None, true, true),
        ("token-broker", json!(null), None, true, false),
        (
            "token-broker",
            json!("9999-12-31T23:59:59Z"),
            Some("9999-12-30T22:00:00Z"),
            true,
            false,
        ),
        ("session-broker", json!(3600), Some("2026-01-02T04:04:05Z"), true, false),
        (
            "session-broker",
            json!("3600"),
            Some("2026-01-02T04:04:05Z"),
            true,
            false,
        ),
        (
            "session-broker",
            json!(0.5),
            Some("2026-01-02T03:04:05.5Z"),
            true,
            false,
        ),
        ("session-broker", json!(0), Some("2026-01-02T03:04:05Z"), false, false),
        ("session-broker", json!(-5), Some("2026-01-02T03:04:05Z"), false, false),
        (
            "session-broker",
            json!(1e300),
            Some("9999-12-30T22:00:00Z"),
            true,
            false,
        ),
        ("session-broker", json!(true), None, true, true),
        ("session-broker", json!([]), None, true, true),
        ("session-broker", json!(null), None, true, false),
        ("session-broker", json!(long), None, true, true),
        ("session-broker", json!("nan"), None, true, true),
    ] {
        let mut body = granted(name);
        let member = if name == "token-broker" {
            "expiresAt"
        } else {
            "expires_in"
        };
        body[member] = lifetime.clone();
        let credential = fixture.mint(name, json_answer(200, &body)).await.unwrap();
        let observed = credential.expires_at.map(|end| end.to_string());
        let what = format!("{name} {lifetime}: {:?}", credential.warnings);
        assert_eq!((observed.as_deref(), credential.cacheable), (end, cacheable), "{what}");
        assert_eq!(!credential.warnings.is_empty(), warning, "{what}");
    }
}
