//! What `check` and `revoke` may do, and which calls share memo entries.

use secrecy::SecretString;
use serde_json::json;
use tollgate_credential::MintErrorClass::{Config, Permanent};
use tollgate_credential::{Mint as _, MintReason};

use super::{BOUND, Fixture, always, case, check, observed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_sends_nothing_and_sees_no_secret() {
    let fixture = Fixture::new().await;
    for (attack, class, code, reason) in [
        ("send", Config, "egress.phase", "`check` may send nothing"),
        ("ambient", Config, "ambient.not-granted", "not granted"),
        ("memo", Permanent, "plugin.trap", "failed"),
        ("loop", Permanent, "plugin.budget", "took longer than"),
    ] {
        fixture.world.endpoint.play(always(&json!({})));
        let error = fixture
            .source("c", &json!({"check": attack}))
            .check()
            .await
            .unwrap_err();
        assert_eq!((error.class, error.code.as_str()), (class, code), "{error}");
        assert!(error.message.contains(reason), "{error}");
        assert!(fixture.world.endpoint.seen().is_empty());
    }
    let warnings = fixture.source("c", &json!({"check": "secret"})).check().await.unwrap();
    assert!(warnings[0].contains("not-granted"), "{warnings:?}");
    let warnings = fixture
        .source("c", &json!({"check": "warnings"}))
        .check()
        .await
        .unwrap();
    assert!(
        warnings.len() == 8 && warnings.iter().all(|text| text.len() <= 512),
        "{warnings:?}"
    );
    assert_eq!(
        fixture.source("c", &json!({})).check().await.unwrap(),
        Vec::<String>::new()
    );
    fixture.still_mints().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_revocation_value_stays_bound_to_the_hosts_of_its_secret() {
    let fixture = Fixture::new().await;
    let config = |url: &str| json!({"attack": "reach-cluster", "name": "bound", "text": "revocation", "revoke": "launder", "url": url});
    let minted = fixture.mint(&config(""), always(&json!({}))).await.minted.unwrap();
    let revocation = minted.revocation.unwrap();
    for (url, code, reason, seen) in [
        (
            "https://other.example/",
            "egress.secret-host",
            "a secret may not be sent to `other.example`",
            0,
        ),
        ("https://issuer.example/", "hostile.observed", "sent, 200", 1),
    ] {
        fixture.world.endpoint.play(always(&json!({})));
        let error = fixture
            .source("c", &config(url))
            .revoke(revocation.clone())
            .await
            .unwrap_err();
        assert_eq!(error.code, code, "{error}");
        assert!(error.message.contains(reason), "{error}");
        let sent = fixture.world.endpoint.seen();
        assert_eq!(sent.len(), seen);
        assert!(sent.iter().all(|seen| seen.headers["x-stolen"] == BOUND));
    }
    let requests = fixture.source("c", &json!({"revoke": "requests"}));
    fixture.world.endpoint.play(always(&json!({})));
    let error = requests.revoke(revocation).await.unwrap_err();
    assert_eq!(
        (error.class, error.code.as_str()),
        (Permanent, "plugin.budget"),
        "{error}"
    );
    assert_eq!(fixture.world.endpoint.seen().len(), 8);
    // A value that no mint returned may not be sent to any host.
    let launder = fixture.source("c", &config("https://issuer.example/"));
    for other in ["", "no reach", "?issuer.example\nvalue"] {
        let error = launder.revoke(SecretString::from(other)).await.unwrap_err();
        assert_eq!(error.code, "egress.secret-host", "{error}");
    }
    fixture.still_mints().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn memo_entries_belong_to_one_cluster_and_configuration() {
    let fixture = Fixture::new().await;
    let (store, load) = (
        json!({"attack": "reach-memo-store", "name": "bound"}),
        json!({"attack": "reach-memo-load"}),
    );
    let both = json!({"attack": "reach-memo-unauthorized", "name": "bound"});
    let source = fixture.source("a", &both);
    let message_of = async |source: &tollgate_plugin::ProviderMint, reason| {
        let outcome = fixture.mint_for(source, reason, always(&json!({}))).await;
        outcome.message().to_owned()
    };
    assert!(
        message_of(&source, MintReason::Initial)
            .await
            .ends_with("Initial: false")
    );
    assert!(
        message_of(&source, MintReason::Refresh)
            .await
            .ends_with("Refresh: true")
    );
    // A mint after a 401 starts without the entry. The entry that it stores stays.
    assert!(
        message_of(&source, MintReason::Unauthorized)
            .await
            .ends_with("Unauthorized: false")
    );
    assert!(
        message_of(&source, MintReason::Initial)
            .await
            .ends_with("Initial: true")
    );
    // An expired entry is gone.
    fixture.world.clock.set("2026-01-02T05:04:05Z".parse().unwrap());
    assert!(
        message_of(&source, MintReason::Initial)
            .await
            .ends_with("Initial: false")
    );
    // Another cluster, or another source of the same cluster, has no entry.
    for other in [fixture.source("b", &both), fixture.source("a", &both)] {
        assert!(
            message_of(&other, MintReason::Initial)
                .await
                .ends_with("Initial: false")
        );
    }
    assert_eq!(
        message_of(&fixture.source("a", &store), MintReason::Initial).await,
        "stored"
    );
    assert_eq!(
        message_of(&fixture.source("a", &load), MintReason::Initial).await,
        "no entry"
    );
    fixture.still_mints().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pod_s_identity_needs_a_granted_audience() {
    let fixture = Fixture::new().await;
    let ask = |audience: &str| json!({"attack": "reach-ambient", "name": audience});
    check(
        &fixture,
        vec![
            observed(ask("sts.amazonaws.com"), "NotGranted"),
            observed(ask(""), "NotGranted"),
            observed(ask("issuer"), "a token"),
            case(
                json!({"attack": "reach-secret", "name": "no-such-value"}),
                Config,
                "secret.not-granted",
                "not granted",
            ),
        ],
    )
    .await;
}
