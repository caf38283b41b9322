//! Tests of the key cache over time: floods, rotation, outage, reload.

use std::time::Duration;

use serde_json::json;

use super::issuer_double::IssuerDouble;
use super::issuers::settings;
use super::{OTHER_RSA, RSA, bearer, build, groups_scope, refusal, resources, with};
use crate::authenticate::{Authenticator, Error, InvalidTokenReason};

const MINUTE: Duration = Duration::from_secs(60);
const HOUR: Duration = Duration::from_secs(3600);

async fn started() -> (IssuerDouble, Authenticator) {
    let issuer = IssuerDouble::start().await;
    let authenticator = build(&settings(&issuer.url), &resources());
    (issuer, authenticator)
}

/// A token with its own `jti`, which is not in the cache of principals.
fn numbered(issuer: &IssuerDouble, number: u32) -> String {
    issuer.token(&[("jti", json!(number))])
}

fn unavailable(issuer: &IssuerDouble) -> Error {
    Error::IssuerUnavailable(issuer.url.clone())
}

#[tokio::test]
async fn keys_are_fetched_once() {
    let (issuer, authenticator) = started().await;
    assert_eq!(issuer.key_fetches(), 0, "nothing is fetched before it is needed");
    for number in 0..20 {
        assert!(bearer(&authenticator, &numbered(&issuer, number)).await.is_ok());
    }
    assert_eq!(issuer.key_fetches(), 1);
}

/// An API server gives its keys only to callers who may read them.
#[tokio::test]
async fn keys_are_fetched_with_the_token_of_a_file() {
    let (issuer, authority) = IssuerDouble::start_tls().await;
    issuer.change(|state| state.required_token = Some("of-the-pod".to_owned()));
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("token");
    let mut settings = settings(&issuer.url);
    settings.issuers[0].certificate_authority = Some(authority);
    let without = build(&settings, &resources());
    assert_eq!(refusal(&without, &numbered(&issuer, 0)).await, unavailable(&issuer));

    settings.issuers[0].jwks_token_file = Some(file.clone());
    let authenticator = build(&settings, &resources());
    assert_eq!(
        refusal(&authenticator, &numbered(&issuer, 0)).await,
        unavailable(&issuer)
    );
    for (token, is_accepted) in [
        ("old", false),
        ("two words", false),
        ("", false),
        ("of-the-pod\n", true),
    ] {
        std::fs::write(&file, token).unwrap();
        authenticator.clock.advance(Duration::from_secs(10));
        let accepted = bearer(&authenticator, &numbered(&issuer, 0)).await;
        assert_eq!(accepted.is_ok(), is_accepted, "{token}: {accepted:?}");
    }
}

#[tokio::test]
async fn concurrent_callers_share_a_fetch() {
    let (issuer, authenticator) = started().await;
    let tokens: Vec<String> = (0..50).map(|number| numbered(&issuer, number)).collect();
    let outcomes = futures_util::future::join_all(tokens.iter().map(|token| bearer(&authenticator, token))).await;
    assert!(outcomes.iter().all(Result::is_ok));
    assert_eq!(issuer.key_fetches(), 1);
}

#[tokio::test]
async fn unknown_keys_cause_one_fetch_per_interval() {
    let (issuer, authenticator) = started().await;
    assert!(bearer(&authenticator, &numbered(&issuer, 0)).await.is_ok());
    // Signed before, because that takes long on a busy machine, and the interval is 10 s.
    let sign = |number: u32| OTHER_RSA.sign(Some(&format!("x{number}")), &issuer.claims());
    let tokens: Vec<String> = (0..300).map(sign).collect();
    let flood = async |from: usize| {
        for token in &tokens[from..from + 100] {
            assert_eq!(
                refusal(&authenticator, token).await,
                Error::Invalid(InvalidTokenReason::UnknownKey)
            );
        }
    };
    flood(0).await;
    assert_eq!(issuer.key_fetches(), 2);
    authenticator.clock.advance(Duration::from_secs(5));
    flood(100).await;
    assert_eq!(issuer.key_fetches(), 2);
    authenticator.clock.advance(Duration::from_secs(5));
    flood(200).await;
    assert_eq!(issuer.key_fetches(), 3);
    assert!(bearer(&authenticator, &numbered(&issuer, 1)).await.is_ok());
}

#[tokio::test]
async fn new_keys_are_accepted_at_once_and_removed_keys_up_to_the_maximum_age() {
    let (issuer, authenticator) = started().await;
    assert!(bearer(&authenticator, &numbered(&issuer, 0)).await.is_ok());
    let rotated = OTHER_RSA.sign(Some("k2"), &issuer.claims());
    issuer.change(|state| state.keys = vec![OTHER_RSA.jwk("k2")]);
    assert!(bearer(&authenticator, &rotated).await.is_ok());
    assert_eq!(
        refusal(&authenticator, &numbered(&issuer, 1)).await,
        Error::Invalid(InvalidTokenReason::UnknownKey)
    );

    // A withdrawn key, without a token that is signed with a new one.
    let (issuer, authenticator) = started().await;
    assert!(bearer(&authenticator, &numbered(&issuer, 0)).await.is_ok());
    issuer.change(|state| state.keys = vec![OTHER_RSA.jwk("k2")]);
    authenticator.clock.advance(HOUR);
    assert_eq!(
        refusal(&authenticator, &numbered(&issuer, 1)).await,
        Error::Invalid(InvalidTokenReason::UnknownKey)
    );
}

#[tokio::test]
async fn aging_keys_are_renewed_in_the_background() {
    let (issuer, authenticator) = started().await;
    assert!(bearer(&authenticator, &numbered(&issuer, 0)).await.is_ok());
    authenticator.clock.advance(44 * MINUTE);
    assert!(bearer(&authenticator, &numbered(&issuer, 1)).await.is_ok());
    assert_eq!(issuer.key_fetches(), 1);
    authenticator.clock.advance(2 * MINUTE);
    assert!(bearer(&authenticator, &numbered(&issuer, 2)).await.is_ok());
    while issuer.key_fetches() < 2 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn cached_keys_bridge_an_outage_for_a_limited_time() {
    let (issuer, authenticator) = started().await;
    assert!(bearer(&authenticator, &numbered(&issuer, 0)).await.is_ok());
    issuer.change(|state| state.down = true);
    authenticator.clock.advance(HOUR + MINUTE);
    for number in 1..10 {
        assert!(bearer(&authenticator, &numbered(&issuer, number)).await.is_ok());
    }
    assert_eq!(
        issuer.state.lock().unwrap().requests.len(),
        3,
        "one attempt per interval for all callers"
    );
    // An unknown key cannot be looked up during the outage.
    let unknown = OTHER_RSA.sign(Some("k2"), &issuer.claims());
    assert_eq!(refusal(&authenticator, &unknown).await, unavailable(&issuer));
    authenticator.clock.advance(HOUR);
    assert_eq!(
        refusal(&authenticator, &numbered(&issuer, 20)).await,
        unavailable(&issuer)
    );
    issuer.change(|state| state.down = false);
    assert_eq!(
        refusal(&authenticator, &numbered(&issuer, 21)).await,
        unavailable(&issuer),
        "not tried again yet"
    );
    authenticator.clock.advance(MINUTE);
    assert!(bearer(&authenticator, &numbered(&issuer, 22)).await.is_ok());
}

#[tokio::test]
async fn an_issuer_that_was_never_reached_is_unavailable() {
    let (issuer, authenticator) = started().await;
    issuer.change(|state| state.down = true);
    assert_eq!(
        refusal(&authenticator, &numbered(&issuer, 0)).await,
        unavailable(&issuer)
    );
    assert_eq!(
        refusal(&authenticator, &numbered(&issuer, 1)).await,
        unavailable(&issuer)
    );
    assert_eq!(issuer.state.lock().unwrap().requests.len(), 1);
}

#[tokio::test]
async fn a_discovery_document_of_another_issuer_is_refused() {
    let (issuer, authenticator) = started().await;
    issuer.change(|state| state.claimed_issuer = Some(format!("{}/", issuer.url)));
    assert_eq!(
        refusal(&authenticator, &numbered(&issuer, 0)).await,
        unavailable(&issuer)
    );
    assert_eq!(issuer.key_fetches(), 0);
}

#[tokio::test]
async fn an_empty_key_set_does_not_replace_the_cached_one() {
    let (issuer, authenticator) = started().await;
    assert!(bearer(&authenticator, &numbered(&issuer, 0)).await.is_ok());
    issuer.change(|state| state.keys = Vec::new());
    let unknown = OTHER_RSA.sign(Some("k2"), &issuer.claims());
    assert_eq!(refusal(&authenticator, &unknown).await, unavailable(&issuer));
    assert!(bearer(&authenticator, &numbered(&issuer, 1)).await.is_ok());
}

#[tokio::test]
async fn a_reload_keeps_keys_and_verifies_tokens_again() {
    let (issuer, first) = started().await;
    let token = numbered(&issuer, 0);
    assert!(bearer(&first, &token).await.is_ok());
    let reload = |settings| {
        Authenticator::build(&settings, &resources(), &groups_scope(), Some(&first))
            .value
            .unwrap()
    };
    let second = reload(settings(&issuer.url));
    assert!(bearer(&second, &token).await.is_ok());
    assert_eq!(issuer.key_fetches(), 1);
    assert_eq!(second.cache.0.iter().count(), 1);
    let mut changed = settings(&issuer.url);
    changed.issuers[0].jwks_max_age = MINUTE;
    assert!(bearer(&reload(changed), &token).await.is_ok());
    assert_eq!(issuer.key_fetches(), 2);
    let mut strict = settings(&issuer.url);
    strict.issuers[0].audiences = vec!["elsewhere".to_owned()];
    assert_eq!(
        refusal(&reload(strict), &token).await,
        Error::Invalid(InvalidTokenReason::Audience)
    );
}

#[tokio::test]
async fn a_token_without_kid_is_tried_with_few_keys() {
    let (issuer, authenticator) = started().await;
    let noise = (0..10).map(|number| OTHER_RSA.jwk(&format!("n{number}")));
    issuer.change(|state| state.keys = noise.chain([RSA.jwk("k1")]).collect());
    let claims = with(issuer.claims(), &[("jti", json!("x"))]);
    assert_eq!(
        refusal(&authenticator, &RSA.sign(None, &claims)).await,
        Error::Invalid(InvalidTokenReason::Signature)
    );
    assert!(bearer(&authenticator, &RSA.sign(Some("k1"), &claims)).await.is_ok());
}
