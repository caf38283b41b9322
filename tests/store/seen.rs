//! Sessions at work, as several replicas see them.

use tollgate::store::{Owned, SeenSession, Store};
use uuid::Uuid;

use crate::support::{Backend, agent, at, on_both, user};

on_both!(
    replace_what_a_replica_said_before,
    of_several_replicas_are_put_together,
    of_a_silent_replica_do_not_count,
    are_one_row_for_each_agent,
    are_filtered_by_person_and_agent,
    at_most_a_thousand_are_listed,
);

const REPLICAS: [Uuid; 2] = [Uuid::from_u128(1), Uuid::from_u128(2)];

fn seen(session: &str, replica: usize, last: i64) -> SeenSession {
    SeenSession {
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

async fn active(store: &Store, since: i64) -> Vec<SeenSession> {
    store.active(at(since), &Owned::default()).await.unwrap()
}

async fn replace_what_a_replica_said_before(backend: Backend) {
    let store = backend.open().await;
    store.seen(&[]).await.unwrap();
    let first = seen("pat:a", 0, 20);
    store.seen(std::slice::from_ref(&first)).await.unwrap();
    assert_eq!(active(&store, 0).await, std::slice::from_ref(&first));
    let mut next = seen("pat:a", 0, 90);
    (next.requests, next.open_streams, next.expires_at) = (9, 0, None);
    store.seen(std::slice::from_ref(&next)).await.unwrap();
    let expected = SeenSession {
        first_at: first.first_at,
        ..next
    };
    assert_eq!(active(&store, 0).await, [expected]);
}

async fn of_several_replicas_are_put_together(backend: Backend) {
    let store = backend.open().await;
    let (mut one, mut other) = (seen("pat:a", 0, 50), seen("pat:a", 1, 40));
    (one.requests, one.open_streams) = (5, 2);
    (other.requests, other.open_streams, other.expires_at) = (7, 4, Some(at(2_000)));
    store.seen(std::slice::from_ref(&one)).await.unwrap();
    store.seen(std::slice::from_ref(&other)).await.unwrap();
    let expected = SeenSession {
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
    store.seen(&[alive.clone(), dead, gone]).await.unwrap();
    assert_eq!(active(&store, 30).await, [alive]);
    // The very time counts.
    assert_eq!(active(&store, 50).await.len(), 1);
    assert!(active(&store, 51).await.is_empty());
}

async fn are_one_row_for_each_agent(backend: Backend) {
    let store = backend.open().await;
    let first = seen("cookie:a", 0, 40);
    let mut second = seen("cookie:a", 0, 50);
    second.agent_id = agent(2);
    store.seen(&[first.clone(), second.clone()]).await.unwrap();
    assert_eq!(active(&store, 0).await, [second, first]);
}

async fn are_filtered_by_person_and_agent(backend: Backend) {
    let store = backend.open().await;
    let first = seen("pat:a", 0, 40);
    let mut second = seen("pat:b", 0, 50);
    second.user = user(8);
    let mut third = seen("pat:c", 0, 60);
    third.agent_id = agent(2);
    store.seen(&[first, second, third]).await.unwrap();
    let listed = async |user_id: Option<i64>, agent_id: Option<i64>| {
        let owned = Owned {
            user_id,
            agent_id: agent_id.map(agent),
        };
        let rows = store.active(at(0), &owned).await.unwrap();
        rows.into_iter().map(|row| row.session).collect::<Vec<_>>()
    };
    assert_eq!(listed(None, None).await, ["pat:c", "pat:b", "pat:a"]);
    assert_eq!(listed(Some(7), None).await, ["pat:c", "pat:a"]);
    assert_eq!(listed(None, Some(1)).await, ["pat:b", "pat:a"]);
    assert_eq!(listed(Some(8), Some(1)).await, ["pat:b"]);
    assert_eq!(listed(Some(8), Some(2)).await, [] as [&str; 0]);
}

async fn at_most_a_thousand_are_listed(backend: Backend) {
    let store = backend.open().await;
    let rows: Vec<_> = (0..1_001)
        .map(|number| seen(&format!("pat:{number}"), 0, number))
        .collect();
    store.seen(&rows).await.unwrap();
    let listed = active(&store, 0).await;
    assert_eq!(listed.len(), 1_000);
    assert_eq!(listed[0].session, "pat:1000");
}
