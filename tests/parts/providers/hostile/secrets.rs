//! Secrets to where they may not go, and into what can be read.

use serde_json::{Value, json};
use tollgate_plugin::credential::MintErrorClass::{Config, Permanent};

use super::{BOUND, DIGITS, MINTED, SHARED, Stage, always, answers, case, check, observed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_secret_goes_to_its_own_hosts_however_it_is_dressed() {
    let stage = Stage::new().await;
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
        // Together they go only where both may go: nowhere.
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
        // What a guest wrote around a secret has no fields to take out.
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
    check(&stage, cases).await;
    // The configuration writes no wildcard, and is no way around the manifest.
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
            .check(&stage, always(&json!({})))
            .await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_turns_a_handle_into_text() {
    let stage = Stage::new().await;
    let refused = r#"["not-granted", "not-granted", "not-granted", "not JSON", "not-granted"], sent true"#;
    for name in ["bound", "shared", "key"] {
        let outcome = observed(json!({"attack": "reach-url", "name": name}), refused).seen(1);
        let outcome = outcome.check(&stage, always(&json!({}))).await;
        for value in [BOUND, SHARED, "PRIVATE"] {
            assert!(!outcome.seen[0].url.contains(value), "{}", outcome.seen[0].url);
        }
    }
    check(
        &stage,
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
            // Times are told of what came from elsewhere, not of its own words
            // around a secret, nor of a copy of those.
            observed(
                json!({"attack": "reach-number", "name": "digits"}),
                "[false, false, true]",
            ),
            // Whether a text is JSON is no question to ask about a secret.
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
async fn only_what_is_meant_for_clusters_becomes_a_credential() {
    let stage = Stage::new().await;
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
    check(&stage, cases).await;
    for place in ["", "base64", "trimmed", "memo"] {
        for text in ["token", "certificate", "header"] {
            let outcome = stage.mint(&publish("shared", place, text), always(&json!({}))).await;
            assert!(outcome.minted.is_ok(), "{place} {text}: {:?}", outcome.minted);
        }
    }
    // Its own bytes may be a token: a plugin that lies about who it is can only
    // be kept out by not granting it.
    let outcome = stage
        .mint(&json!({"attack": "wrap", "text": "own-token"}), always(&json!({})))
        .await;
    assert_eq!(outcome.minted.unwrap().token.unwrap().expose(), "own-token");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn of_an_answer_the_guest_reads_what_the_manifest_shows() {
    let stage = Stage::new().await;
    let read = |text: &str| json!({"attack": "reach-answer", "text": text});
    let body = json!({
        "access_token": MINTED, "refresh_token": "refresh-0123456789", "shown": "for everyone",
        "expires_in": 5, "nested": {"list": ["hidden-in-a-list"]}, "echo": MINTED,
    });
    let outcome = observed(read(""), r#""shown":"for everyone""#)
        .seen(1)
        .check(&stage, always(&body))
        .await;
    assert!(outcome.message().contains(r#""expires_in":5"#), "{}", outcome.message());
    for hidden in ["refresh-0123456789", "hidden-in-a-list"] {
        assert!(!outcome.message().contains(hidden), "{}", outcome.message());
    }
    // A name that carries a secret the host knows is cut as well.
    let named: Value = json!({"access_token": MINTED, MINTED: 1, "other-names-stay": 1});
    let outcome = observed(read(""), "other-names-stay")
        .seen(1)
        .check(&stage, always(&named))
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
        .check(&stage, plain)
        .await;
    assert!(!outcome.message().contains("plain-body"), "{}", outcome.message());

    let basic = base64::Engine::encode(&base64::engine::general_purpose::STANDARD, format!("user:{BOUND}"));
    // What it never asked for is cut as well; what the host never saw it knows
    // by its shape only, and a guest can write that otherwise.
    let echo = format!(
        "no: {BOUND} {SHARED} {} {} {basic} eyJhbGciOiJSUzI1NiJ9.e30xxx.c2ln k8s-aws-v1.aHR0cHM6Ly9zdHM end",
        BOUND.replace('&', "\\u0026"),
        BOUND.replace('/', "\\/"),
    );
    let straight = observed(read(""), "[redacted] [redacted] end").seen(1);
    straight.check(&stage, answers(403, &[], &echo)).await;
    let reversed = observed(read("reversed"), "nl2c.xxx03e.").seen(1);
    let reversed = reversed.check(&stage, answers(403, &[], &echo)).await;
    assert!(reversed.message().ends_with(" :on"), "{}", reversed.message());
    stage.still_mints().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn captures_are_few_well_formed_and_stay_with_their_host() {
    let stage = Stage::new().await;
    let capture = |number: u64, path: &str, url: &str| json!({"attack": "reach-capture", "number": number, "text": path, "url": url});
    let token = "$.access_token";
    check(
        &stage,
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
    let outcome = stage
        .mint(&capture(16, token, ""), always(&json!({"access_token": MINTED})))
        .await;
    assert_eq!(outcome.minted.unwrap().token.unwrap().expose(), MINTED);
}
