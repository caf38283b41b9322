//! Revocations: the rows they mark, their order, and their audit events.

use tollgate_core::session::{AccessType, SessionId};
use tollgate_store::{AuditFilter, CredentialFilter, Page, Revocation, SessionOwner, Store};

use crate::store::support::{
    Backend, actor, agent, all_events, at, browser_session, create, hash, on_both, session_of, token, user,
};

on_both!(
    marks_the_token_once,
    marks_the_browser_session,
    needs_no_row_for_other_sessions,
    gets_a_new_number_when_extended,
    come_in_order_after_a_number,
    never_reuse_a_number,
);

fn about() -> SessionOwner {
    SessionOwner {
        user: user(7),
        agent_id: Some(agent(1)),
    }
}

async fn revoke(store: &Store, session: &SessionId, until: i64, now: i64) -> Revocation {
    store
        .revoke(session, at(until), at(now), &actor(9), &about())
        .await
        .unwrap()
}

/// The actions of the events about revocations, oldest first.
async fn actions(store: &Store) -> Vec<String> {
    let events = all_events(store, AuditFilter::default()).await;
    let revoked = events
        .into_iter()
        .rev()
        .filter(|event| event.action.ends_with(".revoked"));
    revoked.map(|event| event.action).collect()
}

async fn marks_the_token_once(backend: Backend) {
    let store = backend.open().await;
    let (made, other) = (token(7, 1, 0), token(7, 1, 0));
    create(&store, &made).await;
    create(&store, &other).await;
    let session = session_of(&made);
    let first = revoke(&store, &session, 1_000, 10).await;
    assert_eq!((&first.session, first.until), (&session, at(1_000)));
    assert_eq!(revoke(&store, &session, 1_000, 20).await, first);
    assert_eq!(store.token(made.id).await.unwrap().unwrap().revoked_at, Some(at(10)));
    assert_eq!(store.token(other.id).await.unwrap().unwrap().revoked_at, None);
    assert_eq!(store.revocations_after(0).await.unwrap(), [first]);
    let filter = AuditFilter {
        action: Some("token.revoked".to_owned()),
        ..AuditFilter::default()
    };
    let events = all_events(&store, filter).await;
    let [event] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!((event.user_id, event.first_at), (Some(9), at(10)));
    assert_eq!(event.agent_id, Some(agent(1)));
    assert_eq!(event.session, Some(session.to_string()));
    assert_eq!(event.details["owner"], "user-7");
    // The owner and the person who revoked it see the event. Others do not.
    for (person, seen) in [(7, 1), (9, 1), (8, 0)] {
        let filter = AuditFilter {
            user_id: Some(person),
            action: Some("token.revoked".to_owned()),
            ..AuditFilter::default()
        };
        assert_eq!(all_events(&store, filter).await.len(), seen, "{person}");
    }
}

async fn marks_the_browser_session(backend: Backend) {
    let store = backend.open().await;
    let made = browser_session(7, 0);
    store.create_session(&made, hash("cookie"), &actor(7)).await.unwrap();
    let session = SessionId::new(AccessType::SessionCookie, made.id.to_string());
    revoke(&store, &session, 1_000, 10).await;
    let found = store.find_session(hash("cookie")).await.unwrap().unwrap();
    assert_eq!(found.revoked_at, Some(at(10)));
    assert_eq!(actions(&store).await, ["session.revoked"]);
    // A token with the id of a browser session is a different session.
    let token = SessionId::new(AccessType::PersonalAccessToken, made.id.to_string());
    assert_ne!(revoke(&store, &token, 1_000, 20).await.session, session);
    let found = store.find_session(hash("cookie")).await.unwrap().unwrap();
    assert_eq!(found.revoked_at, Some(at(10)));
}

async fn needs_no_row_for_other_sessions(backend: Backend) {
    let store = backend.open().await;
    for access_type in [AccessType::OidcIdToken, AccessType::CiJobToken] {
        let session = SessionId::new(access_type, "4f2a_-b");
        let revocation = revoke(&store, &session, 1_000, 10).await;
        assert_eq!(revocation.session, session);
    }
    assert_eq!(store.revocations_after(0).await.unwrap().len(), 2);
    assert_eq!(actions(&store).await, ["session.revoked", "session.revoked"]);
}

async fn gets_a_new_number_when_extended(backend: Backend) {
    let store = backend.open().await;
    let session = SessionId::new(AccessType::OidcIdToken, "sid");
    let first = revoke(&store, &session, 1_000, 10).await;
    assert_eq!(revoke(&store, &session, 900, 11).await, first);
    let longer = revoke(&store, &session, 2_000, 12).await;
    assert!(longer.sequence > first.sequence);
    assert_eq!(longer.until, at(2_000));
    for known in [0, first.sequence] {
        assert_eq!(
            store.revocations_after(known).await.unwrap(),
            std::slice::from_ref(&longer)
        );
    }
    assert_eq!(actions(&store).await.len(), 2);
}

async fn come_in_order_after_a_number(backend: Backend) {
    let store = backend.open().await;
    let sessions: Vec<_> = (0..1_003)
        .map(|number| SessionId::new(AccessType::OidcIdToken, format!("s{number}")))
        .collect();
    futures_util::future::join_all(sessions.iter().map(|session| revoke(&store, session, 1_000, 10))).await;
    let first = store.revocations_after(0).await.unwrap();
    assert_eq!(first.len(), 1_000);
    assert!(first.is_sorted_by(|one, next| one.sequence < next.sequence));
    let rest = store.revocations_after(first[999].sequence).await.unwrap();
    assert_eq!(rest.len(), 3);
    assert!(store.revocations_after(rest[2].sequence).await.unwrap().is_empty());
}

async fn never_reuse_a_number(backend: Backend) {
    let store = backend.open().await;
    let session = SessionId::new(AccessType::OidcIdToken, "sid");
    let first = revoke(&store, &session, 100, 10).await;
    store.delete_expired(at(0), at(200)).await.unwrap();
    assert!(store.revocations_after(0).await.unwrap().is_empty());
    let next = revoke(&store, &session, 1_000, 300).await;
    assert!(next.sequence > first.sequence);
    assert!(
        store
            .tokens(&CredentialFilter::default(), &Page::default())
            .await
            .unwrap()
            .is_empty()
    );
}
