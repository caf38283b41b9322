//! What `check` and `revoke` may do, and what is remembered for whom.

use secrecy::SecretString;
use serde_json::json;
use tollgate_plugin::credential::MintErrorClass::{Config, Permanent};
use tollgate_plugin::credential::{Mint as _, MintReason};

use super::{BOUND, Stage, always, case, check, observed};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_check_sends_nothing_and_sees_no_secret() {
    let stage = Stage::new().await;
    for (attack, class, code, reason) in [
        ("send", Config, "egress.phase", "`check` may send nothing"),
        ("ambient", Config, "ambient.not-granted", "not granted"),
        ("memo", Permanent, "plugin.trap", "failed"),
        ("loop", Permanent, "plugin.budget", "took longer than"),
    ] {
        stage.world.endpoint.play(always(&json!({})));
        let error = stage.source("c", &json!({"check": attack})).check().await.unwrap_err();
        assert_eq!((error.class, error.code.as_str()), (class, code), "{error}");
        assert!(error.message.contains(reason), "{error}");
        assert!(stage.world.endpoint.seen().is_empty());
    }
    let warnings = stage.source("c", &json!({"check": "secret"})).check().await.unwrap();
    assert!(warnings[0].contains("not-granted"), "{warnings:?}");
    let warnings = stage.source("c", &json!({"check": "warnings"})).check().await.unwrap();
    assert!(
        warnings.len() == 8 && warnings.iter().all(|text| text.len() <= 512),
        "{warnings:?}"
    );
    assert_eq!(
        stage.source("c", &json!({})).check().await.unwrap(),
        Vec::<String>::new()
    );
    stage.still_mints().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_revokes_goes_no_further_than_it_could_before() {
    let stage = Stage::new().await;
    let config = |url: &str| json!({"attack": "reach-cluster", "name": "bound", "text": "revocation", "revoke": "launder", "url": url});
    let minted = stage.mint(&config(""), always(&json!({}))).await.minted.unwrap();
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
        stage.world.endpoint.play(always(&json!({})));
        let error = stage
            .source("c", &config(url))
            .revoke(revocation.clone())
            .await
            .unwrap_err();
        assert_eq!(error.code, code, "{error}");
        assert!(error.message.contains(reason), "{error}");
        let sent = stage.world.endpoint.seen();
        assert_eq!(sent.len(), seen);
        assert!(sent.iter().all(|seen| seen.headers["x-stolen"] == BOUND));
    }
    let requests = stage.source("c", &json!({"revoke": "requests"}));
    stage.world.endpoint.play(always(&json!({})));
    let error = requests.revoke(revocation).await.unwrap_err();
    assert_eq!(
        (error.class, error.code.as_str()),
        (Permanent, "plugin.budget"),
        "{error}"
    );
    assert_eq!(stage.world.endpoint.seen().len(), 8);
    // What no mint kept goes nowhere.
    let launder = stage.source("c", &config("https://issuer.example/"));
    for other in ["", "no reach", "?issuer.example\nvalue"] {
        let error = launder.revoke(SecretString::from(other)).await.unwrap_err();
        assert_eq!(error.code, "egress.secret-host", "{error}");
    }
    stage.still_mints().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_remembered_is_for_one_cluster_and_configuration() {
    let stage = Stage::new().await;
    let (store, load) = (
        json!({"attack": "reach-memo-store", "name": "bound"}),
        json!({"attack": "reach-memo-load"}),
    );
    let both = json!({"attack": "reach-memo-unauthorized", "name": "bound"});
    let source = stage.source("a", &both);
    let told = async |source: &tollgate_plugin::ProviderMint, reason| {
        let outcome = stage.mint_for(source, reason, always(&json!({}))).await;
        outcome.message().to_owned()
    };
    assert!(told(&source, MintReason::Initial).await.ends_with("Initial: false"));
    assert!(told(&source, MintReason::Refresh).await.ends_with("Refresh: true"));
    // A 401 forgets what it came of; what that mint stores is there afterwards.
    assert!(
        told(&source, MintReason::Unauthorized)
            .await
            .ends_with("Unauthorized: false")
    );
    assert!(told(&source, MintReason::Initial).await.ends_with("Initial: true"));
    // Not after its end.
    stage.world.clock.set("2026-01-02T05:04:05Z".parse().unwrap());
    assert!(told(&source, MintReason::Initial).await.ends_with("Initial: false"));
    // Another cluster, another configuration, another load.
    for other in [stage.source("b", &both), stage.source("a", &both)] {
        assert!(told(&other, MintReason::Initial).await.ends_with("Initial: false"));
    }
    assert_eq!(told(&stage.source("a", &store), MintReason::Initial).await, "stored");
    assert_eq!(told(&stage.source("a", &load), MintReason::Initial).await, "no entry");
    stage.still_mints().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_pods_identity_is_had_for_granted_audiences_only() {
    let stage = Stage::new().await;
    let ask = |audience: &str| json!({"attack": "reach-ambient", "name": audience});
    check(
        &stage,
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
