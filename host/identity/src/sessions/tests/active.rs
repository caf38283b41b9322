//! Tests of the list of active sessions.

use super::*;

fn everyone() -> CredentialFilter {
    CredentialFilter::default()
}

/// Session, requests and open streams of each row.
async fn listed(world: &World, filter: &CredentialFilter) -> Vec<(String, u64, u32)> {
    let mut rows: Vec<_> = world
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
async fn what_is_open_here_is_counted_as_it_is_now() {
    let world = World::start().await;
    drop(world.register(&oidc("one"), "get").unwrap());
    let watch = world.register(&oidc("one"), "watch").unwrap();
    let tunnel = world.register(&oidc("other"), "create").unwrap();
    assert_eq!(
        listed(&world, &everyone()).await,
        [row("one", 2, 1), row("other", 1, 1)]
    );
    world.sessions.flush().await.unwrap();
    drop(watch);
    let _more = [(); 2].map(|()| world.register(&oidc("other"), "watch").unwrap());
    assert_eq!(
        listed(&world, &everyone()).await,
        [row("one", 2, 0), row("other", 3, 3)],
        "not what the store was told"
    );
    drop(tunnel);
    world.sessions.flush().await.unwrap();
    assert_eq!(
        listed(&world, &everyone()).await,
        [row("one", 2, 0), row("other", 3, 2)]
    );
}

#[tokio::test]
async fn all_processes_are_put_together() {
    let here = World::start().await;
    let there = here.beside().await;
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
async fn what_a_process_had_open_that_fell_silent_is_closed() {
    let here = World::start().await;
    let there = here.beside().await;
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
async fn lists_show_what_is_asked_for() {
    let world = World::start().await;
    let _bob = world.register(&oidc("one"), "watch").unwrap();
    world.sessions.flush().await.unwrap();
    let of = |user_id, agent| CredentialFilter {
        user_id,
        agents: Some(vec![AgentId::new(agent).unwrap()]),
        ..CredentialFilter::default()
    };
    let one = [row("one", 1, 1)];
    assert_eq!(listed(&world, &of(Some(102), AGENT)).await, one);
    assert_eq!(listed(&world, &of(None, AGENT)).await, one);
    assert_eq!(listed(&world, &of(Some(103), AGENT)).await, []);
    assert_eq!(listed(&world, &of(Some(102), 7)).await, []);
}

#[tokio::test]
async fn sessions_that_are_over_are_not_listed() {
    let world = World::start().await;
    let _one = world.register(&oidc("revoked"), "watch").unwrap();
    let _two = world
        .enter_until(&oidc("expired"), "watch", Some(Duration::from_secs(5)))
        .unwrap();
    let _three = world.register(&oidc("open"), "watch").unwrap();
    world.sessions.flush().await.unwrap();
    world.revoke(&oidc("revoked")).await.unwrap();
    world.clock.advance(Duration::from_secs(6));
    assert_eq!(listed(&world, &everyone()).await, [row("open", 1, 1)]);
}

#[tokio::test]
async fn rows_are_written_by_themselves_and_only_when_they_change() {
    let world = World::start().await;
    drop(world.register(&oidc("one"), "get").unwrap());
    let stored = async || {
        let since = before(world.clock.now(), ACTIVE_WINDOW);
        let rows = world
            .sessions
            .store
            .active_sessions((since, since), &everyone(), &Page::default())
            .await
            .unwrap();
        rows.iter()
            .map(|row| (row.requests, row.client.clone()))
            .collect::<Vec<_>>()
    };
    assert_eq!(stored().await, []);
    world.clock.advance(Duration::from_secs(6));
    until(async || stored().await == [(1, "192.0.2.7".to_owned())]).await;
    assert!(
        world
            .sessions
            .table
            .take_changed(world.sessions.replica, world.clock.now())
            .is_empty()
    );
}

#[tokio::test]
async fn rows_the_store_did_not_take_are_sent_again() {
    let world = World::start().await;
    drop(world.register(&oidc("one"), "get").unwrap());
    world.sql("ALTER TABLE seen RENAME TO away").await;
    assert!(world.sessions.flush().await.is_err());
    world.sql("ALTER TABLE away RENAME TO seen").await;
    world.sessions.flush().await.unwrap();
    let rows = world
        .sessions
        .store
        .active_sessions((Timestamp::MIN, Timestamp::MIN), &everyone(), &Page::default())
        .await
        .unwrap();
    assert_eq!(rows.len(), 1);
}

#[tokio::test]
async fn who_is_gone_is_forgotten_with_what_was_scheduled() {
    let world = World::start().await;
    let year = Some(Duration::from_hours(24 * 365));
    drop(world.enter_until(&oidc("gone"), "get", year).unwrap());
    let upload = world.enter_until(&oidc("busy"), "get", year).unwrap();
    world.sessions.flush().await.unwrap();
    let now = world.clock.now() + ACTIVE_WINDOW * 2;
    world.sessions.table.forget(before(now, ACTIVE_WINDOW), now);
    let here = world
        .sessions
        .table
        .local_sessions(&everyone(), world.sessions.replica, now);
    assert_eq!(here.len(), 1, "what is open is not forgotten");
    assert!(world.sessions.table.next_expiry().is_some());
    drop(upload);
    world.sessions.table.forget(before(now, ACTIVE_WINDOW), now);
    assert_eq!(world.sessions.table.next_expiry(), None);
}

#[tokio::test]
async fn whose_a_session_is_is_known_beside_thousands_of_others() {
    let world = World::start().await;
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
    let now = world.clock.now();
    let mut rows: Vec<_> = (0..1_005).map(|number| row(format!("oidc:{number}"), 1, now)).collect();
    // Used hours ago for two agents, and in this process for a third one.
    let earlier = now - Duration::from_hours(3);
    rows.extend([1, 2].map(|agent| row("oidc:one".to_owned(), agent, earlier)));
    world.sessions.store.upsert_active_sessions(&rows).await.unwrap();
    drop(world.register(&oidc("one"), "get").unwrap());
    let used = world.sessions.owners_of(&oidc("one")).await.unwrap();
    let mut agents: Vec<_> = used.iter().map(|owner| owner.agent_id.unwrap().get()).collect();
    agents.sort_unstable();
    assert_eq!(agents, [1, 2, AGENT]);
    assert!(used.iter().all(|owner| owner.user == bob()));
    assert_eq!(world.sessions.owners_of(&oidc("never")).await, Ok(Vec::new()));
}
