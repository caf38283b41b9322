//! Browser sessions: creation, lookup and lists.

use tollgate_store::{AuditFilter, CredentialFilter, Error, Page};
use uuid::Uuid;

use crate::store::support::{Backend, actor, agent, all_events, at, browser_session, hash, on_both};

on_both!(
    is_found_by_cookie_and_by_id,
    is_listed_by_person,
    is_listed_while_it_is_open,
    is_made_once_with_its_audit_event
);

async fn is_found_by_cookie_and_by_id(backend: Backend) {
    let store = backend.open().await;
    let made = browser_session(7, 0);
    store.create_session(&made, hash("cookie"), &actor(7)).await.unwrap();
    assert_eq!(store.find_session(hash("cookie")).await.unwrap(), Some(made.clone()));
    assert_eq!(store.browser_session(made.id).await.unwrap(), Some(made.clone()));
    assert_eq!(store.find_session(hash("another")).await.unwrap(), None);
    assert_eq!(store.find_session(made.csrf).await.unwrap(), None);
    assert_eq!(store.browser_session(Uuid::now_v7()).await.unwrap(), None);
    // A cookie is not accepted as a token.
    assert_eq!(store.find_token(hash("cookie")).await.unwrap(), None);
}

async fn is_listed_by_person(backend: Backend) {
    let store = backend.open().await;
    let made = [browser_session(7, 0), browser_session(7, 5), browser_session(8, 9)];
    for session in &made {
        store
            .create_session(session, hash(session.id.to_string()), &actor(7))
            .await
            .unwrap();
    }
    let listed = async |user_id: Option<i64>, agent_id: Option<i64>| {
        let filter = CredentialFilter {
            user_id,
            agents: agent_id.map(|id| vec![agent(id)]),
            ..CredentialFilter::default()
        };
        let sessions = store.browser_sessions(&filter, None, &Page::default()).await.unwrap();
        sessions.into_iter().map(|session| session.id).collect::<Vec<_>>()
    };
    assert_eq!(listed(None, None).await, [made[2].id, made[1].id, made[0].id]);
    assert_eq!(listed(Some(7), None).await, [made[1].id, made[0].id]);
    assert_eq!(listed(Some(7), Some(3)).await, [made[1].id, made[0].id]);
    assert_eq!(listed(Some(9), None).await, [] as [Uuid; 0]);
}

/// The filter for open sessions applies before the limit of a page.
async fn is_listed_while_it_is_open(backend: Backend) {
    let store = backend.open().await;
    let mut made = [browser_session(7, 0), browser_session(7, 5), browser_session(7, 9)];
    (made[1].expires_at, made[2].revoked_at) = (at(50), Some(at(10)));
    for session in &made {
        let secret = hash(session.id.to_string());
        store.create_session(session, secret, &actor(7)).await.unwrap();
    }
    let page = Page {
        limit: 1,
        ..Page::default()
    };
    let listed = async |open_at: Option<i64>| {
        let open_at = open_at.map(at);
        let sessions = store
            .browser_sessions(&CredentialFilter::default(), open_at, &page)
            .await
            .unwrap();
        sessions.into_iter().map(|session| session.id).collect::<Vec<_>>()
    };
    assert_eq!(listed(Some(49)).await, [made[1].id]);
    assert_eq!(listed(Some(50)).await, [made[0].id]);
    assert_eq!(listed(None).await, [made[2].id]);
}

async fn is_made_once_with_its_audit_event(backend: Backend) {
    let store = backend.open().await;
    let made = browser_session(7, 0);
    store.create_session(&made, hash("cookie"), &actor(9)).await.unwrap();
    let again = store
        .create_session(&browser_session(7, 1), hash("cookie"), &actor(9))
        .await;
    assert_eq!(again, Err(Error::Exists("session")));
    let events = all_events(&store, AuditFilter::default()).await;
    let [created] = events.as_slice() else {
        panic!("{events:?}")
    };
    assert_eq!(created.action, "session.created");
    assert_eq!((created.user_id, created.first_at), (Some(9), at(0)));
    assert_eq!(created.session, Some(format!("cookie:{}", made.id)));
    assert_eq!(created.agent_id, None);
    assert_eq!(created.details["owner_id"], 7);
}
