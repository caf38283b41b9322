//! Forged handles, and false or oversized results and errors.

use serde_json::{Value, json};
use std::time::Duration;
use tollgate_credential::MintErrorClass::{Config, Permanent, Retryable};

use super::{Fixture, always, case, check, observed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn forged_and_dropped_handles_trap() {
    let fixture = Fixture::new().await;
    let mut cases = Vec::new();
    for number in [0_u32, 7, 999, u32::MAX >> 4, u32::MAX] {
        for place in ["equals", "send", "token"] {
            let config = json!({"attack": "forge", "number": number, "place": place});
            cases.push(case(config, Permanent, "plugin.trap", "failed"));
        }
    }
    cases.push(case(json!({"attack": "dropped"}), Permanent, "plugin.trap", "failed"));
    cases.push(case(json!({"attack": "panic"}), Permanent, "plugin.trap", "failed"));
    cases.push(case(json!({"attack": "text"}), Permanent, "plugin.trap", "failed"));
    check(&fixture, cases).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_credential_contains_only_what_the_manifest_allows() {
    let fixture = Fixture::new().await;
    let lie = |config: Value, reason| case(config, Permanent, "plugin.invalid_output", reason);
    let field = |name: &str, value: &str| json!({"attack": "field", "text": "t", "name": name, "place": value});
    let mut cases = vec![
        lie(
            json!({"attack": "nothing", "text": "t"}),
            "neither a token nor a certificate",
        ),
        lie(json!({"attack": "bytes"}), "not text"),
        lie(field("x y", "v"), "no header field can have"),
        lie(field("x-other", "v"), "not among its `outputHeaders`"),
        lie(
            field("x-proxy-token", "a\r\nimpersonate-user: root"),
            "a control character in the field `x-proxy-token`",
        ),
        lie(
            json!({"attack": "fields", "text": "t", "number": 17}),
            "`17` fields; at most `16`",
        ),
        lie(
            json!({"attack": "chain", "text": "t", "number": (64 << 10) + 1}),
            "a certificate of `65537` bytes",
        ),
    ];
    for name in [
        "authorization",
        "impersonate-user",
        "host",
        "connection",
        "transfer-encoding",
        "cookie",
    ] {
        cases.push(lie(field(name, "v"), "not among its `outputHeaders`"));
    }
    for token in ["", "a b", "a\r\nb", "é"] {
        cases.push(case(
            json!({"attack": "wrap", "text": token}),
            Permanent,
            "token.bytes",
            "token",
        ));
    }
    check(&fixture, cases).await;
    for config in [
        field("X-Proxy-Token", "v"),
        json!({"attack": "fields", "text": "t", "number": 16}),
        json!({"attack": "chain", "text": "t", "number": 64 << 10}),
    ] {
        let outcome = fixture.mint(&config, always(&json!({}))).await;
        assert!(outcome.minted.is_ok(), "{config}: {:?}", outcome.minted);
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn expiries_and_warnings_are_bounded() {
    let fixture = Fixture::new().await;
    for (milliseconds, end) in [
        (0, Some("1970-01-01T00:00:00Z")),
        (253_402_300_799_000, None),
        (253_402_207_200_000, Some("9999-12-30T22:00:00Z")),
        (u64::MAX, None),
    ] {
        let config = json!({"attack": "expiry", "text": "t", "number": milliseconds});
        let outcome = fixture.mint(&config, always(&json!({}))).await;
        let observed = outcome.minted.unwrap().expires_at.map(|end| end.to_string());
        assert_eq!(observed.as_deref(), end, "{milliseconds}");
    }
    let outcome = fixture
        .mint(&json!({"attack": "warnings", "text": "t"}), always(&json!({})))
        .await;
    let warnings = outcome.minted.unwrap().warnings;
    assert_eq!(warnings.len(), 8);
    assert!(
        warnings
            .iter()
            .all(|text| text.len() <= 512 && !text.contains(char::is_control)),
        "{warnings:?}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_of_the_host_is_reported_as_such() {
    let fixture = Fixture::new().await;
    let lie = |url: &str, number: u64| json!({"attack": "lie", "url": url, "number": number});
    check(
        &fixture,
        vec![
            case(
                lie("https://evil.example/", 0),
                Config,
                "egress.host",
                "the plugin says: nothing happened",
            ),
            case(
                lie("https://issuer.example/", 1),
                Permanent,
                "plugin.budget",
                "the plugin says: nothing happened",
            )
            .seen(8),
            // The first refusal counts, even if others follow.
            case(lie("http://issuer.example/", 1), Config, "egress.scheme", "`https://`").seen(7),
            case(
                lie("https://issuer.example/", 0),
                Retryable,
                "all.is.well",
                "nothing happened",
            )
            .seen(1),
        ],
    )
    .await;
    let outcome = fixture.mint(&lie("https://evil.example/", 0), always(&json!({}))).await;
    assert_eq!(
        outcome.minted.unwrap_err().retry_after,
        None,
        "a refusal has no `retry_after`"
    );
    let outcome = fixture
        .mint(&lie("https://issuer.example/", 0), always(&json!({})))
        .await;
    assert_eq!(outcome.minted.unwrap_err().retry_after, Some(Duration::from_secs(1)));
    // A guest that was refused once may still mint.
    let config = json!({"attack": "class", "url": "https://evil.example/"});
    let outcome = fixture.mint(&config, always(&json!({"access_token": "t"}))).await;
    assert!(outcome.minted.is_ok(), "{:?}", outcome.minted);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn texts_of_errors_are_sanitized_and_bounded() {
    let fixture = Fixture::new().await;
    let config = json!({
        "attack": "error", "name": "bad code!\r\n", "place": format!("id\r\n\u{1b}[31m{}", "x".repeat(1000)),
        "text": format!("line\r\nforged: line\u{7} {}", "y".repeat(100_000)),
    });
    let outcome = fixture.mint(&config, always(&json!({}))).await;
    let error = outcome.minted.unwrap_err();
    assert_eq!((error.class, error.code.as_str()), (Retryable, "plugin.code"));
    assert!(
        error.message.len() <= 512 && !error.message.contains(char::is_control),
        "{error}"
    );
    let correlation = error.correlation.unwrap();
    assert!(
        correlation.len() <= 128 && !correlation.contains(char::is_control),
        "{correlation}"
    );
    assert_eq!(
        (error.http_status, error.retry_after),
        (None, Some(Duration::from_secs(600)))
    );
    // A key signs any message that the guest chooses. The documentation says so, and plugins are
    // therefore granted by name and digest.
    check(&fixture, vec![observed(json!({"attack": "sign"}), "256 bytes")]).await;
}
