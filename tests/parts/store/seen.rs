//! Active sessions, as several replicas report them.

use tollgate_store::{ActiveSession, CredentialFilter, Page, Store};
use uuid::Uuid;

use crate::store::support::{Backend, agent, at, on_both, user};

on_both!(
    replace_the_earlier_report_of_a_replica,
    of_several_replicas_are_merged,
    of_a_silent_replica_do_not_count,
    are_one_row_for_each_agent,
    are_filtered_by_person_and_agent,
    at_most_a_thousand_are_listed,
    streams_of_a_silent_replica_are_closed,
    are_filtered_before_they_are_counted,
);

const REPLICAS: [Uuid; 2] = [Uuid::from_u128(1), Uuid::from_u128(2)];

fn seen(session: &str, replica: usize, last: i64) -> ActiveSession {
    ActiveSession {
        session: session.to_owned(),
        replica: REPLICAS[replica],
        user: user(7),
        agent_id: agent(1),
        first_at: at(last - 10),
        last_at: at(last),
        client: format!("10.0.0.{replica}"),
        requests: 3,
        open_streams: 1,
        expires_at: Some(at(1_000)),
    }
}

async fn active(store: &Store, since: i64) -> Vec<ActiveSession> {
    store
        .active_sessions(at(since), at(since), &CredentialFilter::default(), &Page::default())
        .await
        .unwrap()
}

async fn replace_the_earlier_report_of_a_replica(backend: Backend) {
    let store = backend.open().await;
    store.upsert_active_sessions(&[]).await.unwrap();
    let first = seen("pat:a", 0, 20);
    store
        .upsert_active_sessions(std::slice::from_ref(&first))
        .await
        .unwrap();
    assert_eq!(active(&store, 0).await, std::slice::from_ref(&first));
    let mut next = seen("pat:a", 0, 90);
    (next.requests, next.open_streams, next.expires_at) = (9, 0, None);
    store.upsert_active_sessions(std::slice::from_ref(&next)).await.unwrap();
    let expected = ActiveSession {
        first_at: first.first_at,
        ..next
    };
    assert_eq!(active(&store, 0).await, [expected]);
}

async fn of_several_replicas_are_merged(backend: Backend) {
    let store = backend.open().await;
    let (mut one, mut other) = (seen("pat:a", 0, 50), seen("pat:a", 1, 40));
    (one.requests, one.open_streams) = (5, 2);
    (other.requests, other.open_streams, other.expires_at) = (7, 4, Some(at(2_000)));
    store.upsert_active_sessions(std::slice::from_ref(&one)).await.unwrap();
    store
        .upsert_active_sessions(std::slice::from_ref(&other))
        .await
        .unwrap();
    let expected = ActiveSession {
        first_at: at(30),
        requests: 12,
        open_streams: 6,
        expires_at: Some(at(2_000)),
        ..one
    };
    assert_eq!(active(&store, 0).await, [expected]);
}

async fn of_a_silent_replica_do_not_count(backend: Backend) {
    let store = backend.open().await;
    let alive = seen("pat:a", 0, 50);
    let (dead, gone) = (seen("pat:a", 1, 20), seen("pat:b", 1, 20));
    store
        .upsert_active_sessions(&[alive.clone(), dead, gone])
        .await
        .unwrap();
    assert_eq!(active(&store, 30).await, [alive]);
    // The bound is inclusive.
    assert_eq!(active(&store, 50).await.len(), 1);
    assert!(active(&store, 51).await.is_empty());
}

async fn are_one_row_for_each_agent(backend: Backend) {
    let store = backend.open().await;
    let first = seen("cookie:a", 0, 40);
    let mut second = seen("cookie:a", 0, 50);
    second.agent_id = agent(2);
    store
        .upsert_active_sessions(&[first.clone(), second.clone()])
        .await
        .unwrap();
    assert_eq!(active(&store, 0).await, [first, second]);
}

async fn are_filtered_by_person_and_agent(backend: Backend) {
    let store = backend.open().await;
    let first = seen("pat:a", 0, 40);
    let mut second = seen("pat:b", 0, 50);
    second.user = user(8);
    let mut third = seen("pat:c", 0, 60);
    third.agent_id = agent(2);
    store.upsert_active_sessions(&[first, second, third]).await.unwrap();
    let listed = async |user_id: Option<i64>, agent_id: Option<i64>| {
        let filter = CredentialFilter {
            user_id,
            agents: agent_id.map(|id| vec![agent(id)]),
            ..CredentialFilter::default()
        };
        let rows = store
            .active_sessions(at(0), at(0), &filter, &Page::default())
            .await
            .unwrap();
        rows.into_iter().map(|row| row.session).collect::<Vec<_>>()
    };
    assert_eq!(listed(None, None).await, ["pat:a", "pat:b", "pat:c"]);
    assert_eq!(listed(Some(7), None).await, ["pat:a", "pat:c"]);
    assert_eq!(listed(None, Some(1)).await, ["pat:a", "pat:b"]);
    assert_eq!(listed(Some(8), Some(1)).await, ["pat:b"]);
    assert_eq!(listed(Some(8), Some(2)).await, [] as [&str; 0]);
}

async fn at_most_a_thousand_are_listed(backend: Backend) {
    let store = backend.open().await;
    let rows: Vec<_> = (0..1_001)
        .map(|number| seen(&format!("pat:{number}"), 0, number))
        .collect();
    store.upsert_active_sessions(&rows).await.unwrap();
    let mut listed = active(&store, 0).await;
    assert_eq!(listed.len(), 1_000);
    let last = listed.last().unwrap();
    let next = Page {
        after: Some((last.session.clone(), last.agent_id)),
        ..Page::default()
    };
    let more = store
        .active_sessions(at(0), at(0), &CredentialFilter::default(), &next)
        .await
        .unwrap();
    listed.extend(more);
    let keys: Vec<_> = listed.iter().map(|row| row.session.as_bytes()).collect();
    assert!(
        keys.is_sorted() && keys.len() == 1_001,
        "each session is listed once, in byte order"
    );
}

async fn streams_of_a_silent_replica_are_closed(backend: Backend) {
    let store = backend.open().await;
    let (alive, silent) = (seen("pat:a", 0, 50), seen("pat:a", 1, 20));
    store.upsert_active_sessions(&[alive, silent]).await.unwrap();
    let of = async |silent: i64| {
        let rows = store
            .active_sessions(at(0), at(silent), &CredentialFilter::default(), &Page::default())
            .await;
        let rows = rows.unwrap();
        (rows[0].requests, rows[0].open_streams)
    };
    assert_eq!(of(20).await, (6, 2));
    assert_eq!(of(21).await, (6, 1));
}

async fn are_filtered_before_they_are_counted(backend: Backend) {
    let store = backend.open().await;
    let mut rows: Vec<_> = (0..1_000)
        .map(|number| seen(&format!("oidc:a{number}"), 0, number))
        .collect();
    let mut mine = seen("oidc:b", 0, 5);
    (mine.user, mine.agent_id) = (user(8), agent(2));
    rows.push(mine.clone());
    store.upsert_active_sessions(&rows).await.unwrap();
    let listed = async |username: Option<&str>, agents: Option<i64>| {
        let filter = CredentialFilter {
            username: username.map(str::to_owned),
            agents: agents.map(|id| vec![agent(id)]),
            ..CredentialFilter::default()
        };
        let page = Page::default();
        store.active_sessions(at(0), at(0), &filter, &page).await.unwrap()
    };
    assert_eq!(listed(None, Some(2)).await, std::slice::from_ref(&mine));
    assert_eq!(
        listed(Some(&mine.user.username), None).await,
        std::slice::from_ref(&mine)
    );
    assert_eq!(listed(Some(&mine.user.username), Some(1)).await, []);
}
