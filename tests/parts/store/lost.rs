//! PostgreSQL servers that hang or whose host disappears.

use std::time::Duration;

use futures_util::future::join_all;
use secrecy::ExposeSecret as _;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection};
use tokio::time::{Instant, timeout};
use tollgate_core::session::{AccessType, SessionId};
use tollgate_store::{AuditFilter, CredentialFilter, Error, Page, SessionOwner, Store};

use crate::store::support::{Backend, actor, all_events, at, create, event, hash, token, user};
use test_support::relay::{Mode, Relay};

/// Every read and change ends within this time, also on a busy machine.
const ANSWERED: Duration = Duration::from_secs(15);

/// Returns when so many statements wait for a lock.
async fn waiting(url: &str, count: i64) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let waiting = "SELECT count(*), pg_sleep(0.02)::text FROM pg_stat_activity \
                   WHERE wait_event_type = 'Lock' AND datname = current_database()";
    loop {
        let (waiting, _): (i64, String) = sqlx::query_as(waiting).fetch_one(&mut connection).await.unwrap();
        if waiting >= count {
            return;
        }
    }
}

/// Repeats the work until it succeeds.
async fn recovered<T>(mut work: impl AsyncFnMut() -> Result<T, Error>) -> T {
    let end = Instant::now() + 2 * ANSWERED;
    loop {
        match work().await {
            Ok(done) => return done,
            Err(error) => assert!(Instant::now() < end, "the store does not recover: {error}"),
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn reads_go_on_when_another_host_answers_after_the_first_vanished() {
    let backend = Backend::postgres().await;
    let url = backend.url.expose_secret();
    let relay = Relay::to(url).await;
    let store = Store::open(&relay.url().into()).await.unwrap();
    let made = token(7, 1, 0);
    create(&store, &made).await;
    let mut other = PgConnection::connect(url).await.unwrap();
    let mut lock = other.begin().await.unwrap();
    sqlx::query("LOCK TABLE tokens IN ACCESS EXCLUSIVE MODE")
        .execute(&mut *lock)
        .await
        .unwrap();
    // As many reads of both kinds as there are connections.
    let (filter, page) = (CredentialFilter::default(), Page::default());
    let lists = join_all((0..4).map(|_| store.tokens(&filter, &page)));
    let lookups = join_all((0..4).map(|_| store.token(made.id)));
    let vanish = async {
        waiting(url, 8).await;
        relay.set(Mode::Drop);
        lock.rollback().await.unwrap();
    };
    let all = async { tokio::join!(lists, lookups, vanish) };
    let (lists, lookups, ()) = timeout(ANSWERED, all).await.expect("a read did not end");
    assert!(lists.iter().all(Result::is_err) && lookups.iter().all(Result::is_err));

    relay.set(Mode::Pass);
    let found = recovered(async || store.token(made.id).await).await;
    assert_eq!(found.as_ref(), Some(&made));
    let listed = recovered(async || store.tokens(&filter, &page).await).await;
    assert_eq!(listed, [made]);
}

/// One caller detects that the idle connections are dead, and all of them are dropped together.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn idle_connections_to_a_host_that_vanished_are_given_up_together() {
    let backend = Backend::postgres().await;
    let relay = Relay::to(backend.url.expose_secret()).await;
    let store = Store::open(&relay.url().into()).await.unwrap();
    let made = token(7, 1, 0);
    create(&store, &made).await;
    let mut fastest = Duration::MAX;
    for _ in 0..3 {
        for found in join_all((0..50).map(|_| store.token(made.id))).await {
            found.unwrap();
        }
        relay.set(Mode::Drop);
        relay.set(Mode::Pass);
        let start = Instant::now();
        assert_eq!(store.token(made.id).await.unwrap().as_ref(), Some(&made));
        fastest = fastest.min(start.elapsed());
    }
    // Four connections with a second each would always take longer.
    assert!(
        fastest < Duration::from_secs(3),
        "one caller waited for all connections"
    );
}

/// After a failover a session may lead to a server that only reads. It is used for nothing, because
/// what the new primary has is missing there, and it is not kept.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn connections_to_a_server_that_only_reads_are_not_kept() {
    let backend = Backend::postgres().await;
    let store = backend.open().await;
    let made = token(7, 1, 0);
    create(&store, &made).await;
    let mut admin = PgConnection::connect(backend.url.expose_secret()).await.unwrap();
    let name: String = sqlx::query_scalar("SELECT current_database()::text")
        .fetch_one(&mut admin)
        .await
        .unwrap();
    let read_only = async |admin: &mut PgConnection, value: &str| {
        let sql = format!("ALTER DATABASE {name} SET default_transaction_read_only = {value}");
        sqlx::query(AssertSqlSafe(sql)).execute(admin).await.unwrap();
    };
    read_only(&mut admin, "on").await;
    // A failover ends the sessions; the name still leads to the former primary.
    sqlx::query(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity \
         WHERE datname = current_database() AND pid <> pg_backend_pid()",
    )
    .execute(&mut admin)
    .await
    .unwrap();
    let kept = event("access.allowed", 7, 0);
    let refused = store.record(std::slice::from_ref(&kept)).await.unwrap_err().to_string();
    assert!(refused.contains("the database server only reads"), "{refused}");
    let refused = store.token(made.id).await.unwrap_err().to_string();
    assert!(refused.contains("the database server only reads"), "{refused}");
    read_only(&mut admin, "off").await;
    store.record(std::slice::from_ref(&kept)).await.unwrap();
    assert_eq!(store.token(made.id).await.unwrap(), Some(made));
}

/// A server that is busy for a moment keeps its connections: all replicas would make theirs anew.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_server_that_stalls_for_a_moment_keeps_its_connections() {
    let backend = Backend::postgres().await;
    let relay = Relay::to(backend.url.expose_secret()).await;
    let store = Store::open(&relay.url().into()).await.unwrap();
    let made = token(7, 1, 0);
    create(&store, &made).await;
    join_all((0..50).map(|_| store.token(made.id))).await;
    let mut admin = PgConnection::connect(backend.url.expose_secret()).await.unwrap();
    let mut sessions = async || {
        let sessions: Vec<i32> = sqlx::query_scalar(
            "SELECT pid FROM pg_stat_activity WHERE datname = current_database() \
             AND pid <> pg_backend_pid() ORDER BY pid",
        )
        .fetch_all(&mut admin)
        .await
        .unwrap();
        sessions
    };
    let before = sessions().await;
    relay.set(Mode::Stall);
    let resume = async {
        // Longer than one ping may take.
        tokio::time::sleep(Duration::from_millis(1_200)).await;
        relay.set(Mode::Pass);
    };
    let (found, ()) = tokio::join!(store.token(made.id), resume);
    assert_eq!(found.unwrap(), Some(made));
    assert_eq!(sessions().await, before);
}

/// A network that stalls for a moment loses nothing.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_change_that_stalls_for_a_moment_is_made() {
    let backend = Backend::postgres().await;
    let relay = Relay::to(backend.url.expose_secret()).await;
    let store = Store::open(&relay.url().into()).await.unwrap();
    relay.set(Mode::Stall);
    let made = token(7, 1, 0);
    let stalled = create(&store, &made);
    let resume = async {
        tokio::task::yield_now().await;
        relay.set(Mode::Pass);
    };
    tokio::join!(stalled, resume);
    assert_eq!(backend.open().await.token(made.id).await.unwrap(), Some(made));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_waits_longer_for_the_writer_because_many_do() {
    let backend = Backend::postgres().await;
    let url = backend.url.expose_secret();
    let store = backend.open().await;
    let mut other = PgConnection::connect(url).await.unwrap();
    let mut lock = other.begin().await.unwrap();
    sqlx::query("LOCK TABLE audit IN ACCESS EXCLUSIVE MODE")
        .execute(&mut *lock)
        .await
        .unwrap();
    // More changes than the queue holds, whose transactions would take minutes.
    let events: Vec<_> = (0..3_000).map(|second| event("access.denied", 7, second)).collect();
    let changes = join_all(events.iter().map(|event| store.record(std::slice::from_ref(event))));
    let answers = timeout(ANSWERED, changes)
        .await
        .expect("a caller waits for all earlier changes");
    assert!(answers.iter().all(|answer| matches!(answer, Err(Error::Failed { .. }))));

    // A change that failed while it was queued is not made later.
    lock.rollback().await.unwrap();
    let kept = event("access.allowed", 7, 0);
    recovered(async || store.record(std::slice::from_ref(&kept)).await).await;
    let events = all_events(&store, AuditFilter::default()).await;
    assert!(
        events == [kept],
        "{} events, although their changes failed",
        events.len()
    );
}

/// A replica that disappears while it holds the lock on revocations blocks the others for seconds,
/// not for the hours of TCP's own timeout.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn locks_of_a_replica_that_vanished_are_released() {
    let backend = Backend::postgres().await;
    let url = backend.url.expose_secret();
    let relay = Relay::to(url).await;
    let (vanishing, staying) = (Store::open(&relay.url().into()).await.unwrap(), backend.open().await);
    let mut other = PgConnection::connect(url).await.unwrap();
    let mut lock = other.begin().await.unwrap();
    sqlx::query("LOCK TABLE audit IN ACCESS EXCLUSIVE MODE")
        .execute(&mut *lock)
        .await
        .unwrap();
    let (about, by) = (
        SessionOwner {
            user: user(7),
            agent_id: None,
        },
        actor(7),
    );
    let session = |id: &'static str| SessionId::new(AccessType::OidcIdToken, id);
    let (first, second) = (session("first"), session("second"));
    // It holds the lock on revocations and waits for the audit table.
    let revoked = vanishing.revoke(&first, at(1_000), at(0), &by, &about);
    let vanish = async {
        waiting(url, 1).await;
        relay.set(Mode::Drop);
        lock.rollback().await.unwrap();
    };
    let (revoked, ()) = tokio::join!(revoked, vanish);
    revoked.unwrap_err();
    recovered(async || staying.revoke(&second, at(1_000), at(0), &by, &about).await).await;
    let known = staying.revocations_after(0).await.unwrap();
    let known: Vec<_> = known.iter().map(|one| one.session.id()).collect();
    assert_eq!(known, ["second"]);
}

/// A migration has no time limit, because an index over millions of rows takes longer than any read
/// may.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_migration_takes_as_long_as_it_takes() {
    let backend = Backend::postgres().await;
    let url = backend.url.expose_secret();
    drop(backend.open().await);
    let mut other = PgConnection::connect(url).await.unwrap();
    let mut lock = other.begin().await.unwrap();
    sqlx::query("LOCK TABLE _sqlx_migrations IN ACCESS EXCLUSIVE MODE")
        .execute(&mut *lock)
        .await
        .unwrap();
    let release = async {
        let mut connection = PgConnection::connect(url).await.unwrap();
        let waited = "SELECT count(*), pg_sleep(0.1)::text FROM pg_stat_activity WHERE wait_event_type = 'Lock' \
                      AND datname = current_database() AND clock_timestamp() - query_start > interval '11 seconds'";
        loop {
            let (waited, _): (i64, String) = sqlx::query_as(waited).fetch_one(&mut connection).await.unwrap();
            if waited > 0 {
                break;
            }
        }
        lock.rollback().await.unwrap();
    };
    let mut opening = std::pin::pin!(backend.open());
    let store = tokio::select! {
        // On a busy machine, both can be ready at the same time.
        biased;
        () = release => opening.await,
        _ = &mut opening => panic!("the migration did not wait for the lock"),
    };
    store.create_token(&token(7, 1, 0), hash("a"), &actor(7)).await.unwrap();
}
