//! Audit events: writing, counting and queries.

use serde_json::json;
use sqlx::Connection as _;
use tollgate_store::{AuditEvent, AuditFilter, Store};
use uuid::Uuid;

use crate::store::support::{Backend, agent, all_events, at, create, event, on_both, token};

on_both!(
    are_kept_as_they_are,
    are_counted_by_their_id,
    the_last_event_with_an_id_in_a_call_counts,
    are_filtered_by_every_part,
    are_not_of_whoever_got_the_number_later,
    are_found_by_what_they_are_about,
    are_found_by_their_time,
    of_the_version_before_stay,
    wait_to_be_exported_until_they_are,
    are_exported_by_one_process_at_a_time,
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

/// A number of the directory may be given to somebody else.
async fn are_not_of_whoever_got_the_number_later(backend: Backend) {
    let store = backend.open().await;
    let of = |name: &str, second| {
        let mut own = event("access.allowed", 7, second);
        own.user = name.to_owned();
        let mut about = event("token.revoked", 9, second + 1);
        let details = json!({"owner": name, "owner_id": 7, "name": format!("x\",\"owner\":\"{name}'s")});
        about.details = serde_json::from_value(details).unwrap();
        [own, about]
    };
    let [before, after] = [of("ann", 0), of("b\"o\\b", 10)];
    store.record(&[before.clone(), after.clone()].concat()).await.unwrap();
    let filter = |username: Option<&str>| AuditFilter {
        user_id: Some(7),
        username: username.map(str::to_owned),
        ..AuditFilter::default()
    };
    let newest_first = |[own, about]: &[AuditEvent; 2]| [about.id, own.id];
    assert_eq!(ids(&store, filter(Some("ann"))).await, newest_first(&before));
    assert_eq!(ids(&store, filter(Some("b\"o\\b"))).await, newest_first(&after));
    assert_eq!(ids(&store, filter(Some("an"))).await, [] as [Uuid; 0]);
    assert_eq!(ids(&store, filter(None)).await.len(), 4);
}

async fn are_found_by_what_they_are_about(backend: Backend) {
    let store = backend.open().await;
    let about = |second, session: &str, [verb, resource, subresource, namespace, name]: [&str; 5]| {
        let mut one = event("access.allowed", 7, second);
        one.session = Some(session.to_owned());
        let keys = [
            ("verb", verb),
            ("resource", resource),
            ("subresource", subresource),
            ("namespace", namespace),
            ("name", name),
        ];
        let given = keys.into_iter().filter(|(_, value)| !value.is_empty());
        one.details
            .extend(given.map(|(key, value)| (key.to_owned(), value.into())));
        one
    };
    let mut created = event("token.created", 7, 4);
    created.session = None;
    created.details.insert("name".to_owned(), "db".into());
    let events = [
        about(0, "pat:a", ["get", "secrets", "", "shop", "db"]),
        about(1, "pat:b", ["create", "pods", "exec", "shop", "web-0"]),
        about(2, "pat:b", ["delete", "pods", "", "other", "web-0"]),
        about(3, "pat:b", ["get", "", "", "", ""]),
        created,
    ];
    store.record(&events).await.unwrap();
    let [a, b, c, d, _] = events.each_ref().map(|event| event.id);
    type Part = fn(&mut AuditFilter) -> &mut Option<String>;
    let session: Part = |filter| &mut filter.session;
    let verb: Part = |filter| &mut filter.verb;
    let resource: Part = |filter| &mut filter.resource;
    let subresource: Part = |filter| &mut filter.subresource;
    let namespace: Part = |filter| &mut filter.namespace;
    let name: Part = |filter| &mut filter.name;
    for (parts, found) in [
        (vec![(session, "pat:b")], vec![d, c, b]),
        (vec![(verb, "get")], vec![d, a]),
        (vec![(resource, "pods")], vec![c, b]),
        (vec![(subresource, "exec")], vec![b]),
        (vec![(namespace, "shop")], vec![b, a]),
        (vec![(name, "web-0")], vec![c, b]),
        // The name of a token is that of no object.
        (vec![(name, "db")], vec![a]),
        (vec![(name, "web-0"), (namespace, "shop")], vec![b]),
        (vec![(resource, "pods"), (subresource, "log")], vec![]),
        (vec![(verb, "GET")], vec![]),
        (vec![(name, "' OR TRUE --")], vec![]),
    ] {
        let mut filter = AuditFilter::default();
        for (part, value) in &parts {
            *part(&mut filter) = Some((*value).to_owned());
        }
        let values: Vec<_> = parts.iter().map(|(_, value)| value).collect();
        assert_eq!(ids(&store, filter.clone()).await, found, "{values:?}");
        filter.user_id = Some(7);
        assert_eq!(ids(&store, filter.clone()).await, found, "{values:?} of a person");
        filter.user_id = Some(8);
        assert_eq!(
            ids(&store, filter).await,
            [] as [Uuid; 0],
            "{values:?} of another person"
        );
    }
}

/// An event whose id has its time, as those of the gateway do.
fn timed(action: &str, seconds: i64) -> AuditEvent {
    let mut one = event(action, 7, seconds);
    let millis = u64::try_from(one.first_at.as_millisecond()).unwrap();
    one.id = uuid::Builder::from_unix_timestamp_millis(millis, &[0; 10]).into_uuid();
    one
}

async fn are_found_by_their_time(backend: Backend) {
    let store = backend.open().await;
    let timed = |minutes: i64| timed("access.allowed", minutes * 60);
    let mut events = [timed(0), timed(60), timed(120), timed(180)];
    // Reads that were counted for an hour.
    events[1].last_at = at(119 * 60);
    store.record(&events).await.unwrap();
    let [a, b, c, d] = events.each_ref().map(|event| event.id);
    for (since, until, found) in [
        (None, None, vec![d, c, b, a]),
        (Some(0), None, vec![d, c, b, a]),
        (Some(1), None, vec![d, c, b]),
        (Some(119), None, vec![d, c, b]),
        (Some(120), None, vec![d, c]),
        (Some(181), None, vec![]),
        (None, Some(0), vec![]),
        (None, Some(60), vec![a]),
        (None, Some(61), vec![b, a]),
        (Some(100), Some(180), vec![c, b]),
        (Some(100), Some(100), vec![b]),
    ] {
        let filter = AuditFilter {
            since: since.map(|minutes: i64| at(minutes * 60)),
            until: until.map(|minutes: i64| at(minutes * 60)),
            ..AuditFilter::default()
        };
        assert_eq!(ids(&store, filter).await, found, "{since:?} {until:?}");
    }
}

/// Undoes what the versions of the tables from 6 on added.
const VERSION_5: &[&str] = &[
    "DROP INDEX login_requests_network",
    "ALTER TABLE login_requests DROP COLUMN network",
    "DROP INDEX audit_request",
    "DROP INDEX audit_session",
    "DROP INDEX audit_verb",
    "DROP INDEX audit_resource",
    "DROP INDEX audit_subresource",
    "DROP INDEX audit_namespace",
    "DROP INDEX audit_name",
    "ALTER TABLE audit DROP COLUMN verb",
    "ALTER TABLE audit DROP COLUMN resource",
    "ALTER TABLE audit DROP COLUMN subresource",
    "ALTER TABLE audit DROP COLUMN namespace",
    "ALTER TABLE audit DROP COLUMN name",
    "DROP TABLE audit_unexported",
    "DROP TABLE leases",
    "DELETE FROM _sqlx_migrations WHERE version >= 6",
];

/// What they are about is in their details alone.
async fn of_the_version_before_stay(backend: Backend) {
    let store = backend.open().await;
    let exec = |second| {
        let mut one = event("access.allowed", 7, second);
        let details = json!({"verb": "create", "resource": "pods", "subresource": "exec", "name": "a"});
        one.details = serde_json::from_value(details).unwrap();
        one
    };
    let before = exec(0);
    store.record(std::slice::from_ref(&before)).await.unwrap();
    drop(store);
    let url = secrecy::ExposeSecret::expose_secret(&backend.url);
    let mut connection = sqlx::AnyConnection::connect(url).await.unwrap();
    for change in VERSION_5 {
        sqlx::query(*change).execute(&mut connection).await.unwrap();
    }
    connection.close().await.unwrap();
    let store = backend.open().await;
    let after = exec(1);
    store.record(std::slice::from_ref(&after)).await.unwrap();
    let filter = AuditFilter {
        subresource: Some("exec".to_owned()),
        ..AuditFilter::default()
    };
    assert_eq!(ids(&store, filter).await, [after.id]);
    let of_session = AuditFilter {
        session: before.session.clone(),
        ..AuditFilter::default()
    };
    assert_eq!(all_events(&store, of_session).await, [after, before]);
}

async fn wait_to_be_exported_until_they_are(backend: Backend) {
    let store = backend.open().await;
    store.record(&[event("access.denied", 7, 0)]).await.unwrap();
    assert_eq!(store.unexported_count().await.unwrap(), 0);
    store.export_audit_events();
    let events: Vec<_> = (1..=600).map(|second| timed("access.denied", second)).collect();
    store.record(&events).await.unwrap();
    assert_eq!(store.unexported_count().await.unwrap(), 600);
    assert_eq!(store.unexported(at(3)).await.unwrap(), events[..2]);
    let first = store.unexported(at(1_000)).await.unwrap();
    assert_eq!(first, events[..500]);
    store.mark_exported(&first).await.unwrap();
    // It was counted meanwhile.
    let mut counted = events[500].clone();
    counted.count = 2;
    store.record(std::slice::from_ref(&counted)).await.unwrap();
    store.mark_exported(&events[500..]).await.unwrap();
    assert_eq!(store.unexported(at(1_000)).await.unwrap(), [counted]);
    // What waits survives the process, and a token's event waits as any other.
    let other = backend.open().await;
    assert_eq!(other.unexported_count().await.unwrap(), 1);
    other.export_audit_events();
    create(&other, &token(7, 2, 0)).await;
    assert_eq!(other.unexported_count().await.unwrap(), 2);
}

async fn are_exported_by_one_process_at_a_time(backend: Backend) {
    let store = backend.open().await;
    let (first, second) = (Uuid::now_v7(), Uuid::now_v7());
    let minute = std::time::Duration::from_secs(60);
    for (process, second_of, has_it) in [
        (first, 0, true),
        (second, 30, false),
        // Renewed.
        (first, 40, true),
        (second, 70, false),
        (second, 101, true),
        (first, 102, false),
    ] {
        let taken = store.take_export_lease(process, at(second_of), minute).await.unwrap();
        assert_eq!(taken, has_it, "{second_of} s");
    }
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
