//! Tests of locks: whom a name means, and what holds while the store is away.

use std::time::Duration;

use secrecy::SecretString;
use serde_json::{Value, json};

use super::{alice, argocd_sessions, bearer, build, resources, session};
use crate::authenticate::{Arc, Authenticator, CredentialTransport, Error, Principal, Registries};
use crate::clock::Clock;
use crate::metrics::Metrics;
use crate::sessions::SessionRegistry;
use tollgate_store::{Actor, Store};

struct Fixture {
    _folder: tempfile::TempDir,
    sessions: Arc<SessionRegistry>,
    authenticator: Authenticator,
}

impl Fixture {
    async fn start() -> Self {
        let folder = tempfile::tempdir().unwrap();
        let url = format!("sqlite:{}/store", folder.path().display());
        let store = Arc::new(Store::open(&SecretString::from(url)).await.unwrap());
        let sessions = SessionRegistry::start(
            store,
            Clock::default(),
            Duration::from_secs(10),
            Arc::new(Metrics::default()),
        )
        .await
        .unwrap();
        let registries = Registries {
            sessions: Some(Arc::clone(&sessions)),
            ..Registries::default()
        };
        Self {
            _folder: folder,
            sessions,
            authenticator: build(&argocd_sessions(), &resources()).with_registries(registries),
        }
    }
}

fn actor() -> Actor {
    Actor {
        user_id: None,
        name: "root".to_owned(),
    }
}

fn principal(claims: &Value) -> Principal {
    Principal::for_test(claims.as_object().unwrap().clone(), CredentialTransport::Bearer)
}

#[tokio::test]
async fn every_name_that_an_issuer_gives_means_the_person() {
    let fixture = Fixture::start().await;
    let plain = principal(&json!({"iss": "https://idp.example", "sub": "u1-sub", "email": "u1@corp.example"}));
    // An issuer with claim mappings: its own claims are under `token`.
    let mapped = json!({"iss": "https://idp.example", "sub": "corp:u1", "token": {"sub": "u1-sub"}});
    let mapped = principal(&mapped);
    let other = principal(&json!({"iss": "https://idp.example", "sub": "u2-sub", "email": "u2@corp.example"}));
    for (name, means) in [
        ("u1-sub", [true, true]),
        ("u1@corp.example", [true, false]),
        ("corp:u1", [false, true]),
        ("u1", [false, false]),
    ] {
        fixture.sessions.lock_person(name, "", &actor()).await.unwrap();
        let locked = [&plain, &mapped].map(|one| fixture.authenticator.is_locked(one));
        assert_eq!(locked, means, "{name}");
        assert!(!fixture.authenticator.is_locked(&other), "{name}");
        fixture.sessions.unlock_person(name, &actor()).await.unwrap();
        assert!(!fixture.authenticator.is_locked(&plain), "{name}");
    }
}

#[tokio::test]
async fn nobody_is_let_in_who_may_have_been_locked_elsewhere() {
    let fixture = Fixture::start().await;
    let token = session(&alice());
    assert!(bearer(&fixture.authenticator, &token).await.is_ok());
    fixture.sessions.set_store_unavailable_for_test(true);
    let refused = bearer(&fixture.authenticator, &token).await.unwrap_err();
    assert!(matches!(refused, Error::StoreUnavailable(_)), "{refused}");
    fixture.sessions.set_store_unavailable_for_test(false);
    assert!(bearer(&fixture.authenticator, &token).await.is_ok());
}
