//! Tests of the list of active sessions.

use super::*;

fn everyone() -> CredentialFilter {
    CredentialFilter::default()
}

/// Session, requests and open streams of each row.
async fn listed(replica: &Replica, filter: &CredentialFilter) -> Vec<(String, u64, u32)> {
    let mut rows: Vec<_> = replica
        .sessions
        .list(filter)
        .await
        .unwrap()
        .into_iter()
        .map(|row| (row.session, row.requests, row.open_streams))
        .collect();
    rows.sort();
    rows
}

fn row(session: &str, requests: u64, open: u32) -> (String, u64, u32) {
    (format!("oidc:{session}"), requests, open)
}

#[tokio::test]
async fn streams_of_this_replica_are_counted_live() {
    let replica = Replica::start().await;
    drop(replica.register(&oidc("one"), "get").unwrap());
    let watch = replica.register(&oidc("one"), "watch").unwrap();
    let tunnel = replica.register(&oidc("other"), "create").unwrap();
    assert_eq!(
        listed(&replica, &everyone()).await,
        [row("one", 2, 1), row("other", 1, 1)]
    );
    replica.sessions.flush().await.unwrap();
    drop(watch);
    let _more = [(); 2].map(|()| replica.register(&oidc("other"), "watch").unwrap());
    assert_eq!(
        listed(&replica, &everyone()).await,
        [row("one", 2, 0), row("other", 3, 3)],
        "not the counts in the store"
    );
    drop(tunnel);
    replica.sessions.flush().await.unwrap();
    assert_eq!(
        listed(&replica, &everyone()).await,
        [row("one", 2, 0), row("other", 3, 2)]
    );
}

#[tokio::test]
async fn rows_of_all_replicas_are_merged() {
    let here = Replica::start().await;
    let there = here.another_replica().await;
    let _here = here.register(&oidc("one"), "watch").unwrap();
    let _there = [(); 2].map(|()| there.register(&oidc("one"), "watch").unwrap());
    let _only = there.register(&oidc("two"), "get").unwrap();
    for _ in 0..2 {
        there.sessions.flush().await.unwrap();
        here.sessions.flush().await.unwrap();
    }
    let _late = here.register(&oidc("one"), "create").unwrap();
    assert_eq!(listed(&here, &everyone()).await, [row("one", 4, 4), row("two", 1, 0)]);
}

#[tokio::test]
async fn streams_of_a_silent_replica_count_as_closed() {
    let here = Replica::start().await;
    let there = here.another_replica().await;
    let open = there.register(&oidc("one"), "watch").unwrap();
    there.sessions.flush().await.unwrap();
    assert_eq!(listed(&here, &everyone()).await, [row("one", 1, 1)]);
    // As if the process were killed: it writes nothing any more.
    std::mem::forget(open);
    let clock = here.clock.clone();
    let last = there.sessions.table.take_changed(there.sessions.replica, clock.now());
    drop(there);
    here.sql("CREATE TRIGGER dead BEFORE UPDATE ON seen BEGIN SELECT RAISE(IGNORE); END")
        .await;
    assert_eq!(last.len(), 1);
    clock.advance(Duration::from_secs(30));
    assert_eq!(listed(&here, &everyone()).await, [row("one", 1, 0)]);
    clock.advance(ACTIVE_WINDOW);
    assert_eq!(listed(&here, &everyone()).await, []);
}

#[tokio::test]
async fn lists_are_filtered_by_user_and_agent() {
    let replica = Replica::start().await;
    let _bob = replica.register(&oidc("one"), "watch").unwrap();
    replica.sessions.flush().await.unwrap();
    let of = |user_id, agent| CredentialFilter {
        user_id,
        agents: Some(vec![AgentId::new(agent).unwrap()]),
        ..CredentialFilter::default()
    };
    let one = [row("one", 1, 1)];
    assert_eq!(listed(&replica, &of(Some(102), AGENT)).await, one);
    assert_eq!(listed(&replica, &of(None, AGENT)).await, one);
    assert_eq!(listed(&replica, &of(Some(103), AGENT)).await, []);
    assert_eq!(listed(&replica, &of(Some(102), 7)).await, []);
}

#[tokio::test]
async fn revoked_and_expired_sessions_are_not_listed() {
    let replica = Replica::start().await;
    let _one = replica.register(&oidc("revoked"), "watch").unwrap();
    let _two = replica
        .register_until(&oidc("expired"), "watch", Some(Duration::from_secs(5)))
        .unwrap();
    let _three = replica.register(&oidc("open"), "watch").unwrap();
    replica.sessions.flush().await.unwrap();
    replica.revoke(&oidc("revoked")).await.unwrap();
    replica.clock.advance(Duration::from_secs(6));
    assert_eq!(listed(&replica, &everyone()).await, [row("open", 1, 1)]);
}

#[tokio::test]
async fn rows_are_written_periodically_and_only_when_they_change() {
    let replica = Replica::start().await;
    drop(replica.register(&oidc("one"), "get").unwrap());
    let stored = async || {
        let since = before(replica.clock.now(), ACTIVE_WINDOW);
        let rows = replica
            .sessions
            .store
            .active_sessions(since, since, &everyone(), &Page::default())
            .await
            .unwrap();
        rows.iter()
            .map(|row| (row.requests, row.client.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(stored().await, []);
    replica.clock.advance(Duration::from_secs(6));
    until(async || stored().await == [(1, "192.0.2.7".to_owned())]).await;
    assert!(
        replica
            .sessions
            .table
            .take_changed(replica.sessions.replica, replica.clock.now())
            .is_empty()
    );
}

#[tokio::test]
async fn rows_are_written_again_after_a_failed_write() {
    let replica = Replica::start().await;
    drop(replica.register(&oidc("one"), "get").unwrap());
    replica.sql("ALTER TABLE seen RENAME TO away").await;
    assert!(replica.sessions.flush().await.is_err());
    replica.sql("ALTER TABLE away RENAME TO seen").await;
    replica.sessions.flush().await.unwrap();
    let rows = replica
        .sessions
        .store
        .active_sessions(Timestamp::MIN, Timestamp::MIN, &everyone(), &Page::default())
        .await
        .unwrap();
    assert_eq!(rows.len(), 1);
}

#[tokio::test]
async fn idle_sessions_are_forgotten_with_their_scheduled_expiry() {
    let replica = Replica::start().await;
    let year = Some(Duration::from_hours(24 * 365));
    drop(replica.register_until(&oidc("gone"), "get", year).unwrap());
    let upload = replica.register_until(&oidc("busy"), "get", year).unwrap();
    replica.sessions.flush().await.unwrap();
    let now = replica.clock.now() + ACTIVE_WINDOW * 2;
    replica.sessions.table.forget(before(now, ACTIVE_WINDOW), now);
    let here = replica
        .sessions
        .table
        .local_sessions(&everyone(), replica.sessions.replica, now);
    assert_eq!(here.len(), 1, "a session with an open exchange is not forgotten");
    assert!(replica.sessions.table.next_expiry().is_some());
    drop(upload);
    replica.sessions.table.forget(before(now, ACTIVE_WINDOW), now);
    assert_eq!(replica.sessions.table.next_expiry(), None);
}

#[tokio::test]
async fn owners_of_a_session_are_found_among_thousands_of_sessions() {
    let replica = Replica::start().await;
    let row = |session: String, agent, last_at| ActiveSession {
        session,
        replica: Uuid::nil(),
        user: bob(),
        agent_id: AgentId::new(agent).unwrap(),
        first_at: last_at,
        last_at,
        client: CLIENT.to_string(),
        requests: 1,
        open_streams: 0,
        expires_at: None,
    };
    let now = replica.clock.now();
    let mut rows: Vec<_> = (0..1_005).map(|number| row(format!("oidc:{number}"), 1, now)).collect();
    // Used hours ago for two agents, and in this process for a third one.
    let earlier = now - Duration::from_hours(3);
    rows.extend([1, 2].map(|agent| row("oidc:one".to_owned(), agent, earlier)));
    replica.sessions.store.upsert_active_sessions(&rows).await.unwrap();
    drop(replica.register(&oidc("one"), "get").unwrap());
    let used = replica.sessions.owners_of(&oidc("one")).await.unwrap();
    let mut agents: Vec<_> = used.iter().map(|owner| owner.agent_id.unwrap().get()).collect();
    agents.sort_unstable();
    assert_eq!(agents, [1, 2, AGENT]);
    assert!(used.iter().all(|owner| owner.user == bob()));
    assert_eq!(replica.sessions.owners_of(&oidc("never")).await, Ok(Vec::new()));
}
