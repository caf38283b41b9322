//! Deletion of expired rows.

use jiff::Timestamp;
use tollgate_core::session::{AccessType, SessionId};
use tollgate_store::{ActiveSession, AuditFilter, CredentialFilter, Page, SessionOwner};
use uuid::Uuid;

use crate::store::support::{
    Backend, actor, agent, all_events, at, browser_session, event, hash, on_both, token, user,
};

on_both!(is_done_by_age, is_done_for_any_number_of_rows);

/// Twice the day for which active sessions are kept, in seconds.
const LATER: i64 = 48 * 3_600;

async fn is_done_by_age(backend: Backend) {
    let store = backend.open().await;
    let (audit, now) = (LATER, 2 * LATER);
    // Tokens and sessions expire 1,000 s after their creation.
    let kept_token = token(7, 1, audit - 1_000);
    for made in [&token(7, 1, audit - 1_001), &kept_token] {
        store.import_token(made, hash(made.id.to_string())).await.unwrap();
    }
    let kept_event = event("access.denied", 7, audit);
    let mut kept_bucket = event("access.allowed", 7, audit - 1);
    kept_bucket.last_at = at(audit);
    let old = event("access.denied", 7, audit - 1);
    store
        .record(&[old, kept_bucket.clone(), kept_event.clone()])
        .await
        .unwrap();
    let kept_session = browser_session(8, now - 1_000);
    for made in [&browser_session(8, now - 1_001), &kept_session] {
        store
            .create_session(made, hash(made.id.to_string()), &actor(8))
            .await
            .unwrap();
    }
    let about = SessionOwner {
        user: user(9),
        agent_id: None,
    };
    for until in [now - 1, now] {
        let session = SessionId::new(AccessType::OidcIdToken, format!("until-{until}"));
        store
            .revoke(&session, at(until), at(0), &actor(9), &about)
            .await
            .unwrap();
    }
    let seen = |session: &str, last_at: Timestamp| ActiveSession {
        session: session.to_owned(),
        replica: Uuid::now_v7(),
        user: user(7),
        agent_id: agent(1),
        first_at: last_at,
        last_at,
        client: String::new(),
        requests: 1,
        open_streams: 0,
        expires_at: None,
    };
    store
        .upsert_active_sessions(&[
            seen("pat:old", at(now - LATER / 2 - 1)),
            seen("pat:new", at(now - LATER / 2)),
        ])
        .await
        .unwrap();

    store.delete_expired(at(audit), at(now)).await.unwrap();

    let filter = CredentialFilter::default();
    assert_eq!(store.tokens(&filter, &Page::default()).await.unwrap(), [kept_token]);
    assert_eq!(
        store.browser_sessions(&filter, None, &Page::default()).await.unwrap(),
        [kept_session]
    );
    let of_seven = AuditFilter {
        user_id: Some(7),
        ..AuditFilter::default()
    };
    assert_eq!(all_events(&store, of_seven).await, [kept_bucket, kept_event]);
    let revocations = store.revocations_after(0).await.unwrap();
    assert_eq!(revocations.len(), 1);
    assert_eq!(revocations[0].until, at(now));
    let active = store
        .active_sessions(at(0), at(0), &filter, &Page::default())
        .await
        .unwrap();
    assert_eq!(active.len(), 1);
    assert_eq!(active[0].session, "pat:new");
}

async fn is_done_for_any_number_of_rows(backend: Backend) {
    let store = backend.open().await;
    let events: Vec<_> = (0..4_500)
        .map(|second| event("access.denied", 7, second % 100))
        .collect();
    store.record(&events).await.unwrap();
    let kept = event("access.denied", 7, 500);
    store.record(std::slice::from_ref(&kept)).await.unwrap();
    store.delete_expired(at(500), at(0)).await.unwrap();
    assert_eq!(all_events(&store, AuditFilter::default()).await, [kept]);
}
