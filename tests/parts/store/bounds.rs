//! The bounds of texts from outside: the greatest length is accepted, and one byte more is refused.

use tollgate_core::session::{AccessType, SessionId};
use tollgate_store::{
    ActiveSession, AuditFilter, BrowserSession, CredentialFilter, Error, Page, SessionOwner, Store, Token, bounds,
};
use uuid::Uuid;

use crate::store::support::{
    Backend, actor, agent, all_events, at, browser_session, event, hash, on_both, token, user,
};

on_both!(
    tokens_are_bounded,
    browser_sessions_are_bounded,
    events_are_bounded,
    revocations_are_bounded,
    seen_sessions_are_bounded,
);

fn too_long(field: &'static str, allowed: usize) -> Result<(), Error> {
    Err(Error::TooLong {
        field,
        observed: allowed + 1,
        allowed,
    })
}

async fn is_empty(store: &Store) -> bool {
    let filter = CredentialFilter::default();
    store.tokens(&filter, &Page::default()).await.unwrap().is_empty()
        && store
            .browser_sessions(&filter, None, &Page::default())
            .await
            .unwrap()
            .is_empty()
        && all_events(store, AuditFilter::default()).await.is_empty()
        && store.revocations_after(0).await.unwrap().is_empty()
        && store
            .active_sessions(at(0), at(0), &filter, &Page::default())
            .await
            .unwrap()
            .is_empty()
}

async fn tokens_are_bounded(backend: Backend) {
    type Change = fn(&mut Token, usize);
    let store = backend.open().await;
    let fields: [(&str, usize, Change); 3] = [
        ("token name", bounds::TOKEN_NAME, |token, length| {
            token.name = "n".repeat(length)
        }),
        ("username", bounds::USERNAME, |token, length| {
            token.user.username = "n".repeat(length)
        }),
        ("scopes", bounds::SCOPES, |token, length| {
            token.scopes = vec!["s".repeat(length)]
        }),
    ];
    for (field, allowed, change) in fields {
        let mut made = token(7, 1, 0);
        change(&mut made, allowed + 1);
        let done = store.create_token(&made, hash(field), &actor(7)).await;
        assert_eq!(done, too_long(field, allowed));
        assert_eq!(store.import_token(&made, hash(field)).await, too_long(field, allowed));
        made.name = "n\0".to_owned();
        made.user = user(7);
        let done = store.create_token(&made, hash(field), &actor(7)).await;
        assert_eq!(done, Err(Error::Character("token name")));
    }
    let mut by = actor(7);
    by.name = "n".repeat(bounds::USERNAME + 1);
    let done = store.create_token(&token(7, 1, 0), hash("x"), &by).await;
    assert_eq!(done, too_long("username", bounds::USERNAME));
    assert!(is_empty(&store).await);
    for (field, allowed, change) in fields {
        let mut made = token(7, 1, 0);
        change(&mut made, allowed);
        store.import_token(&made, hash(field)).await.unwrap();
        assert_eq!(store.token(made.id).await.unwrap(), Some(made));
    }
}

async fn browser_sessions_are_bounded(backend: Backend) {
    let store = backend.open().await;
    let with_name = |length| BrowserSession {
        user: tollgate_core::user::User {
            id: 7,
            username: "n".repeat(length),
        },
        ..browser_session(7, 0)
    };
    let long = with_name(bounds::USERNAME + 1);
    let done = store.create_session(&long, hash("x"), &actor(7)).await;
    assert_eq!(done, too_long("username", bounds::USERNAME));
    assert!(is_empty(&store).await);
    let longest = with_name(bounds::USERNAME);
    store.create_session(&longest, hash("x"), &actor(7)).await.unwrap();
}

async fn events_are_bounded(backend: Backend) {
    type Change = fn(&mut tollgate_store::AuditEvent, usize);
    let store = backend.open().await;
    let fields: [(&str, usize, Change); 4] = [
        ("action", bounds::ACTION, |event, length| {
            event.action = "n".repeat(length)
        }),
        ("username", bounds::USERNAME, |event, length| {
            event.user = "n".repeat(length)
        }),
        ("session", bounds::SESSION, |event, length| {
            event.session = Some("n".repeat(length))
        }),
        ("details", bounds::DETAILS, |event, length| {
            let value = "n".repeat(length - r#"{"a":""}"#.len());
            event.details = serde_json::Map::from_iter([("a".to_owned(), value.into())]);
        }),
    ];
    for (field, allowed, change) in fields {
        let mut long = event("access.denied", 7, 0);
        change(&mut long, allowed + 1);
        // No event of the call is written.
        let done = store.record(&[event("access.denied", 7, 0), long]).await;
        assert_eq!(done, too_long(field, allowed));
    }
    assert!(is_empty(&store).await);
    for (_, allowed, change) in fields {
        let mut longest = event("access.denied", 7, 0);
        change(&mut longest, allowed);
        store.record(&[longest]).await.unwrap();
    }
    assert_eq!(all_events(&store, AuditFilter::default()).await.len(), fields.len());
}

async fn revocations_are_bounded(backend: Backend) {
    let store = backend.open().await;
    let revoke = async |length: usize| {
        let session = SessionId::new(AccessType::OidcIdToken, "s".repeat(length - "oidc:".len()));
        let about = SessionOwner {
            user: user(7),
            agent_id: None,
        };
        store
            .revoke(&session, at(1_000), at(0), &actor(7), &about)
            .await
            .map(drop)
    };
    assert_eq!(revoke(bounds::SESSION + 1).await, too_long("session", bounds::SESSION));
    let session = SessionId::new(AccessType::OidcIdToken, "a b");
    let about = SessionOwner {
        user: user(7),
        agent_id: None,
    };
    let done = store.revoke(&session, at(1_000), at(0), &actor(7), &about).await;
    assert_eq!(done, Err(Error::Character("session")));
    assert!(is_empty(&store).await);
    revoke(bounds::SESSION).await.unwrap();
}

async fn seen_sessions_are_bounded(backend: Backend) {
    let store = backend.open().await;
    let with_client = |length| ActiveSession {
        session: "pat:x".to_owned(),
        replica: Uuid::now_v7(),
        user: user(7),
        agent_id: agent(1),
        first_at: at(0),
        last_at: at(0),
        client: "c".repeat(length),
        requests: 1,
        open_streams: 0,
        expires_at: None,
    };
    let done = store
        .upsert_active_sessions(&[with_client(1), with_client(bounds::CLIENT + 1)])
        .await;
    assert_eq!(done, too_long("client", bounds::CLIENT));
    assert!(is_empty(&store).await);
    store
        .upsert_active_sessions(&[with_client(bounds::CLIENT)])
        .await
        .unwrap();
}
