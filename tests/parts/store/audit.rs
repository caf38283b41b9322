//! Audit events: writing, counting and queries.

use tollgate_identity::store::{AuditEvent, AuditFilter, Store};
use uuid::Uuid;

use crate::store::support::{Backend, agent, all_events, at, event, on_both};

on_both!(
    are_kept_as_they_are,
    are_counted_by_their_id,
    the_last_event_with_an_id_in_a_call_counts,
    are_filtered_by_every_part,
    come_in_pages_newest_first,
);

async fn are_kept_as_they_are(backend: Backend) {
    let store = backend.open().await;
    let mut full = event("access.allowed", 7, 0);
    full.count = 3;
    full.last_at = at(4);
    full.details = serde_json::from_str(r#"{"verb": "get", "nested": {"a": [1, 2]}}"#).unwrap();
    let mut bare = event("access.denied", 7, 1);
    bare.user = String::new();
    (bare.user_id, bare.agent_id, bare.session) = (None, None, None);
    store.record(&[full.clone(), bare.clone()]).await.unwrap();
    store.record(&[]).await.unwrap();
    assert_eq!(all_events(&store, AuditFilter::default()).await, [bare, full]);
}

async fn are_counted_by_their_id(backend: Backend) {
    let store = backend.open().await;
    let first = event("access.allowed", 7, 0);
    store.record(std::slice::from_ref(&first)).await.unwrap();
    let mut later = first.clone();
    (later.last_at, later.count) = (at(30), 12);
    // Only time and count are replaced.
    (later.user, later.action) = ("somebody else".to_owned(), "access.denied".to_owned());
    store.record(&[later]).await.unwrap();
    let expected = AuditEvent {
        last_at: at(30),
        count: 12,
        ..first
    };
    assert_eq!(all_events(&store, AuditFilter::default()).await, [expected]);
}

async fn the_last_event_with_an_id_in_a_call_counts(backend: Backend) {
    let store = backend.open().await;
    let first = event("access.allowed", 7, 0);
    let mut second = first.clone();
    second.count = 2;
    store.record(&[first, second.clone()]).await.unwrap();
    assert_eq!(all_events(&store, AuditFilter::default()).await, [second]);
}

async fn ids(store: &Store, filter: AuditFilter) -> Vec<Uuid> {
    all_events(store, filter)
        .await
        .into_iter()
        .map(|event| event.id)
        .collect()
}

async fn are_filtered_by_every_part(backend: Backend) {
    let store = backend.open().await;
    let mut events = [
        event("access.allowed", 7, 0),
        event("access.denied", 7, 1),
        event("access.denied", 8, 2),
        event("access.denied", 8, 3),
    ];
    events[1].agent_id = Some(agent(2));
    events[3].agent_id = None;
    store.record(&events).await.unwrap();
    let [a, b, c, d] = events.each_ref().map(|event| event.id);
    let filter = |user_id, agents: Option<&[i64]>, action: Option<&str>| AuditFilter {
        user_id,
        agents: agents.map(|agents| agents.iter().copied().map(agent).collect()),
        action: action.map(str::to_owned),
        ..AuditFilter::default()
    };
    assert_eq!(ids(&store, filter(None, None, None)).await, [d, c, b, a]);
    assert_eq!(ids(&store, filter(Some(7), None, None)).await, [b, a]);
    assert_eq!(ids(&store, filter(None, Some(&[1]), None)).await, [c, a]);
    assert_eq!(ids(&store, filter(None, Some(&[2, 1, 99]), None)).await, [c, b, a]);
    assert_eq!(ids(&store, filter(None, Some(&[]), None)).await, [] as [Uuid; 0]);
    assert_eq!(ids(&store, filter(None, None, Some("access.denied"))).await, [d, c, b]);
    assert_eq!(
        ids(&store, filter(Some(8), Some(&[1]), Some("access.denied"))).await,
        [c]
    );
    assert_eq!(
        ids(&store, filter(Some(8), None, Some("access.allowed"))).await,
        [] as [Uuid; 0]
    );
    // More agents than a statement can bind.
    let many: Vec<_> = (1..=70_000).collect();
    assert_eq!(ids(&store, filter(None, Some(&many), None)).await, [c, b, a]);
}

async fn come_in_pages_newest_first(backend: Backend) {
    let store = backend.open().await;
    let events: Vec<_> = (0..1_100).map(|second| event("access.denied", 7, second)).collect();
    store.record(&events).await.unwrap();
    let page = async |before: Option<Uuid>, limit: u32| {
        let filter = AuditFilter {
            before,
            limit,
            ..AuditFilter::default()
        };
        store.audit(&filter).await.unwrap()
    };
    assert_eq!(page(None, 2).await, [events[1_099].clone(), events[1_098].clone()]);
    assert_eq!(page(Some(events[1_098].id), 1).await, [events[1_097].clone()]);
    assert_eq!(page(Some(events[0].id), 10).await, [] as [AuditEvent; 0]);
    // The limit is clamped to 1 to 1,000.
    assert_eq!(page(None, 0).await.len(), 1);
    assert_eq!(page(None, u32::MAX).await.len(), 1_000);
    let newest_first: Vec<_> = events.into_iter().rev().collect();
    assert_eq!(all_events(&store, AuditFilter::default()).await, newest_first);
}
