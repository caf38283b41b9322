//! Tests of cached principals: how long they are used, and for whom.

use std::time::Duration;

use serde_json::json;

use super::{Arc, alice, argocd_sessions, bearer, build, head, refusal, resources, session, with};
use crate::authenticate::{CredentialTransport, Error, Principal, Safety};

#[tokio::test]
async fn the_same_token_gives_the_same_principal() {
    let authenticator = build(&argocd_sessions(), &resources());
    let token = session(&alice());
    let first = bearer(&authenticator, &token).await.unwrap();
    assert!(Arc::ptr_eq(&first, &bearer(&authenticator, &token).await.unwrap()));
    // The transport is part of the cached principal.
    let cookie = authenticator
        .authenticate(&head(&[("cookie", &format!("argocd.token={token}"))]), Safety::ByMethod)
        .await
        .unwrap();
    assert_eq!(
        (first.transport(), cookie.transport()),
        (CredentialTransport::Bearer, CredentialTransport::Cookie)
    );
    assert_eq!(first.limit_key(), cookie.limit_key());
    authenticator.clock.advance(Duration::from_secs(299));
    assert!(Arc::ptr_eq(&first, &bearer(&authenticator, &token).await.unwrap()));
    authenticator.clock.advance(Duration::from_secs(2));
    assert!(!Arc::ptr_eq(&first, &bearer(&authenticator, &token).await.unwrap()));
}

#[tokio::test]
async fn a_cached_principal_expires_with_its_token() {
    let authenticator = build(&argocd_sessions(), &resources());
    let soon = jiff::Timestamp::now().as_second() + 60;
    let token = session(&with(alice(), &[("exp", json!(soon))]));
    assert!(bearer(&authenticator, &token).await.is_ok());
    authenticator.clock.advance(Duration::from_secs(61));
    assert_eq!(refusal(&authenticator, &token).await, Error::Expired);
}

#[test]
fn a_limit_key_belongs_to_one_person() {
    let principal = |claims: serde_json::Value| {
        Principal::for_test(claims.as_object().unwrap().clone(), CredentialTransport::Bearer)
    };
    let key = |claims| principal(claims).limit_key();
    let ann = json!({ "iss": "https://a.example", "sub": "ann", "jti": "1" });
    assert_eq!(key(ann.clone()), key(with(ann.clone(), &[("jti", json!("2"))])));
    assert_ne!(
        key(ann.clone()),
        key(with(ann.clone(), &[("iss", json!("https://b.example"))]))
    );
    assert_ne!(key(ann.clone()), key(with(ann.clone(), &[("sub", json!("bob"))])));
    // Parts do not run into each other.
    let shifted = |iss: &str, sub: &str| key(json!({ "iss": iss, "sub": sub }));
    assert_ne!(shifted("https://a.examplex", "y"), shifted("https://a.example", "xy"));
    assert_eq!(
        principal(with(ann, &[("email", json!("ann@a.example"))])).username(),
        "ann@a.example"
    );
}
