//! Attempts to send secrets to other hosts, to read them, and to return them as credentials.

use serde_json::{Value, json};
use tollgate_credential::MintErrorClass::{Config, Permanent};

use super::{BOUND, DIGITS, Fixture, MINTED, SHARED, always, answers, case, check, observed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_goes_only_to_its_own_hosts_in_any_encoding() {
    let fixture = Fixture::new().await;
    let mut cases = Vec::new();
    let send = |name: &str, place: &str, text: &str, url: &str| {
        json!({
            "attack": "reach-secret", "name": name, "place": place, "text": text, "url": url,
            "endpoint": "https://other.example/path",
        })
    };
    let (issuer, other) = ("https://issuer.example/", "https://other.example/");
    let reason = "a secret may not be sent to `other.example`";
    for place in ["", "composed", "base64", "trimmed", "memo"] {
        for text in ["header", "query", "body"] {
            cases.push(case(
                send("bound", place, text, other),
                Config,
                "egress.secret-host",
                reason,
            ));
        }
        cases.push(observed(send("bound", place, "header", issuer), "answered 200").seen(1));
    }
    cases.extend([
        case(
            send("document", "field", "body", other),
            Config,
            "egress.secret-host",
            reason,
        ),
        observed(send("document", "field", "body", issuer), "answered 200").seen(1),
        case(
            send("endpoint", "", "header", issuer),
            Config,
            "egress.secret-host",
            "`issuer.example`",
        ),
        observed(send("endpoint", "", "header", other), "answered 200").seen(1),
        // Two combined secrets may go only to hosts that both may go to: there are none.
        case(
            send("bound", "mixed", "header", issuer),
            Config,
            "egress.secret-host",
            "`issuer.example`",
        ),
        case(
            send("bound", "mixed", "header", other),
            Config,
            "egress.secret-host",
            "`other.example`",
        ),
        case(
            send("bound", "derived", "header", issuer),
            Config,
            "egress.secret-host",
            "`issuer.example`",
        ),
        case(
            send("key", "", "header", issuer),
            Config,
            "egress.secret-host",
            "`issuer.example`",
        ),
        // A document that the guest composed around a secret has no fields that can be extracted.
        case(
            send("bound", "encoded", "header", issuer),
            Config,
            "secret.bad-format",
            "wrong form",
        ),
        case(
            send("not-in-the-manifest", "", "header", issuer),
            Config,
            "secret.not-granted",
            "not granted",
        ),
    ]);
    check(&fixture, cases).await;
    // An endpoint in the configuration is no wildcard, and cannot widen the manifest.
    for endpoint in [
        "*",
        "*.example",
        "https://other.example@issuer.example/",
        "https://issuer.example\\.other.example",
    ] {
        let config = json!({
            "attack": "reach-secret", "name": "endpoint", "url": issuer, "endpoint": endpoint,
        });
        case(config, Config, "egress.secret-host", "`issuer.example`")
            .check(&fixture, always(&json!({})))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_turns_a_handle_into_text() {
    let fixture = Fixture::new().await;
    let refused = r#"["not-granted", "not-granted", "not-granted", "not JSON", "not-granted"], sent true"#;
    for name in ["bound", "shared", "key"] {
        let outcome = observed(json!({"attack": "reach-url", "name": name}), refused).seen(1);
        let outcome = outcome.check(&fixture, always(&json!({}))).await;
        for value in [BOUND, SHARED, "PRIVATE"] {
            assert!(!outcome.seen[0].url.contains(value), "{}", outcome.seen[0].url);
        }
    }
    check(
        &fixture,
        vec![
            observed(
                json!({"attack": "reach-text", "text": "$.client_email"}),
                r#"Ok("robot@example.com") Ok("anyone may read this") Err("not-granted")"#,
            ),
            observed(
                json!({"attack": "reach-text", "text": "$.private_key"}),
                r#"Err("not-granted") Ok("#,
            ),
            observed(
                json!({"attack": "reach-text", "text": "$"}),
                r#"Err("not-granted") Ok("#,
            ),
            // A guest may read the times of a JWT, but not of one that it composed around a secret,
            // nor of a copy of that.
            observed(
                json!({"attack": "reach-number", "name": "digits"}),
                "[false, false, true]",
            ),
            // The guest cannot test whether a secret is JSON.
            observed(
                json!({"attack": "reach-oracle", "name": "bound"}),
                "bad-format bad-format",
            ),
            observed(json!({"attack": "log"}), "Secret"),
        ],
    )
    .await;
    assert_eq!(DIGITS.len(), 9);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_values_meant_for_clusters_become_a_credential() {
    let fixture = Fixture::new().await;
    let publish = |name: &str, place: &str, text: &str| json!({"attack": "reach-cluster", "name": name, "place": place, "text": text, "endpoint": "https://other.example"});
    let mut cases = Vec::new();
    for text in ["token", "certificate", "header"] {
        for (name, place) in [
            ("bound", ""),
            ("bound", "base64"),
            ("bound", "trimmed"),
            ("bound", "memo"),
            ("document", "field"),
            ("shared", "derived"),
            ("shared", "mixed"),
            ("key", ""),
        ] {
            cases.push(case(
                publish(name, place, text),
                Permanent,
                "plugin.reach",
                "`cluster: true` in the manifest",
            ));
        }
    }
    check(&fixture, cases).await;
    for place in ["", "base64", "trimmed", "memo"] {
        for text in ["token", "certificate", "header"] {
            let outcome = fixture.mint(&publish("shared", place, text), always(&json!({}))).await;
            assert!(outcome.minted.is_ok(), "{place} {text}: {:?}", outcome.minted);
        }
    }
    // A token may be text of the guest's own. Only not granting a plugin protects from false
    // tokens.
    let outcome = fixture
        .mint(&json!({"attack": "wrap", "text": "own-token"}), always(&json!({})))
        .await;
    assert_eq!(outcome.minted.unwrap().token.unwrap().expose(), "own-token");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_guest_reads_only_what_the_manifest_shows_of_a_response() {
    let fixture = Fixture::new().await;
    let read = |text: &str| json!({"attack": "reach-answer", "text": text});
    let body = json!({
        "access_token": MINTED, "refresh_token": "refresh-0123456789", "shown": "for everyone",
        "expires_in": 5, "nested": {"list": ["hidden-in-a-list"]}, "echo": MINTED,
    });
    let outcome = observed(read(""), r#""shown":"for everyone""#)
        .seen(1)
        .check(&fixture, always(&body))
        .await;
    assert!(outcome.message().contains(r#""expires_in":5"#), "{}", outcome.message());
    for hidden in ["refresh-0123456789", "hidden-in-a-list"] {
        assert!(!outcome.message().contains(hidden), "{}", outcome.message());
    }
    // A member whose name is a secret that the host knows is removed too.
    let named: Value = json!({"access_token": MINTED, MINTED: 1, "other-names-stay": 1});
    let outcome = observed(read(""), "other-names-stay")
        .seen(1)
        .check(&fixture, always(&named))
        .await;
    assert!(!outcome.message().contains(MINTED));
    let plain = answers(
        200,
        &[
            ("set-cookie", "a=b"),
            ("location", "x"),
            ("x-secret", "y"),
            ("x-request-id", "r"),
        ],
        "plain-body",
    );
    let outcome = observed(read(""), r#"200 ["x-request-id"] "#)
        .seen(1)
        .check(&fixture, plain)
        .await;
    assert!(!outcome.message().contains("plain-body"), "{}", outcome.message());

    let basic = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, format!("user:{BOUND}"));
    // Values that the guest never asked for are redacted too. The host recognizes unknown tokens
    // only by their form, which a guest can disguise.
    let echo = format!(
        "no: {BOUND} {SHARED} {} {} {basic} eyJhbGciOiJSUzI1NiJ9.e30xxx.c2ln k8s-aws-v1.aHR0cHM6Ly9zdHM end",
        BOUND.replace('&', "\\u0026"),
        BOUND.replace('/', "\\/"),
    );
    let straight = observed(read(""), "[redacted] [redacted] end").seen(1);
    straight.check(&fixture, answers(403, &[], &echo)).await;
    let reversed = observed(read("reversed"), "nl2c.xxx03e.").seen(1);
    let reversed = reversed.check(&fixture, answers(403, &[], &echo)).await;
    assert!(reversed.message().ends_with(" :on"), "{}", reversed.message());
    fixture.still_mints().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn captures_are_bounded_well_formed_and_bound_to_their_host() {
    let fixture = Fixture::new().await;
    let capture = |number: u64, path: &str, url: &str| json!({"attack": "reach-capture", "number": number, "text": path, "url": url});
    let token = "$.access_token";
    check(
        &fixture,
        vec![
            case(
                capture(17, token, ""),
                Config,
                "egress.invalid-request",
                "`17` captures; at most `16`",
            ),
            case(
                capture(1, "$..access_token", ""),
                Config,
                "egress.invalid-request",
                "no singular path",
            ),
            case(
                capture(1, "access_token", ""),
                Config,
                "egress.invalid-request",
                "no singular path",
            ),
            case(
                capture(1, "$[?@.a]", ""),
                Config,
                "egress.invalid-request",
                "no singular path",
            ),
            observed(capture(1, "$.nope", ""), "200 without").seen(1),
            observed(capture(1, "$", ""), "200 without").seen(1),
            case(
                capture(1, token, "https://other.example/"),
                Config,
                "egress.secret-host",
                "`other.example`",
            )
            .seen(1),
            observed(capture(1, token, "https://issuer.example/"), "answered 200").seen(2),
        ],
    )
    .await;
    let outcome = fixture
        .mint(&capture(16, token, ""), always(&json!({"access_token": MINTED})))
        .await;
    assert_eq!(outcome.minted.unwrap().token.unwrap().expose(), MINTED);
}
