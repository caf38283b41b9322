//! Several replicas on one database.

use futures_util::future::join_all;
use secrecy::ExposeSecret as _;
use sqlx::{Connection as _, PgConnection};
use tollgate_core::session::{AccessType, SessionId};
use tollgate_store::{AuditFilter, SessionOwner, Store};

use crate::store::support::{Backend, actor, all_events, at, create, event, hash, on_both, token, user};

on_both!(
    see_every_revocation_of_each_other,
    do_not_deadlock,
    see_at_once_what_another_acknowledged,
);

const EACH: usize = 150;

async fn see_every_revocation_of_each_other(backend: Backend) {
    let replicas = [backend.open().await, backend.open().await, backend.open().await];
    let listener = backend.open().await;
    let about = SessionOwner {
        user: user(7),
        agent_id: None,
    };
    let by = actor(7);
    // Each replica revokes sessions one after the other, so that their commits alternate.
    let revoke = join_all((0_u8..).zip(&replicas).map(|(replica, store)| {
        let (about, by) = (&about, &by);
        async move {
            for number in 0..EACH {
                let session = SessionId::new(AccessType::OidcIdToken, format!("{replica}-{number}"));
                store.revoke(&session, at(1_000), at(0), by, about).await.unwrap();
            }
        }
    }));
    // Asks for revocations after the last known number, as gateways do.
    let listen = async {
        let (mut heard, mut last) = (0, 0);
        while heard < EACH * replicas.len() {
            let new = listener.revocations_after(last).await.unwrap();
            last = new.last().map_or(last, |revocation| revocation.sequence);
            heard += new.len();
        }
    };
    let both = async { tokio::join!(listen, revoke) };
    tokio::time::timeout(std::time::Duration::from_secs(60), both)
        .await
        .expect("a revocation was missed");
}

/// Numbers are assigned before a commit and visible after it. A revocation must not become visible
/// before one with a lower number.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_revocation_overtakes_another_in_postgres() {
    let backend = Backend::postgres().await;
    let store = backend.open().await;
    let url = backend.url.expose_secret();
    let mut other = PgConnection::connect(url).await.unwrap();
    let mut slow = other.begin().await.unwrap();
    let insert = "INSERT INTO revocations (session, until) VALUES ('oidc:slow', 0)";
    sqlx::query(insert).execute(&mut *slow).await.unwrap();
    let session = SessionId::new(AccessType::OidcIdToken, "fast");
    let (by, about) = (
        actor(7),
        SessionOwner {
            user: user(7),
            agent_id: None,
        },
    );
    let mut revoke = std::pin::pin!(store.revoke(&session, at(1_000), at(0), &by, &about));
    tokio::select! {
        done = &mut revoke => panic!("the revocation did not wait: {done:?}"),
        () = lock_is_awaited(url) => {}
    }
    assert!(store.revocations_after(0).await.unwrap().is_empty());
    slow.commit().await.unwrap();
    revoke.await.unwrap();
    let all = store.revocations_after(0).await.unwrap();
    let sessions: Vec<_> = all.iter().map(|revocation| revocation.session.id()).collect();
    assert_eq!(sessions, ["slow", "fast"]);
}

/// Returns when a statement waits for the lock on revocations.
async fn lock_is_awaited(url: &str) {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let waiting = "SELECT count(*) FROM pg_locks WHERE relation = 'revocations'::regclass AND NOT granted";
    loop {
        let (waiting,): (i64,) = sqlx::query_as(waiting).fetch_one(&mut connection).await.unwrap();
        if waiting > 0 {
            return;
        }
    }
}

/// Two replicas change the same rows in opposite orders.
async fn do_not_deadlock(backend: Backend) {
    let replicas = [backend.open().await, backend.open().await];
    let tokens: Vec<_> = (0..60).map(|second| token(7, 1, second)).collect();
    join_all(tokens.iter().map(|token| create(&replicas[0], token))).await;
    for round in 0..5 {
        let forward = join_all(
            tokens
                .iter()
                .map(|token| replicas[0].record_token_use(token.id, at(round))),
        );
        let backward = join_all(
            tokens
                .iter()
                .rev()
                .map(|token| replicas[1].record_token_use(token.id, at(round))),
        );
        let (forward, backward) = tokio::join!(forward, backward);
        for done in forward.into_iter().chain(backward) {
            done.unwrap();
        }
    }
}

async fn see_at_once_what_another_acknowledged(backend: Backend) {
    let (one, other) = (backend.open().await, backend.open().await);
    let see = async |one: &Store, other: &Store, secret: &str| {
        let made = token(7, 1, 0);
        one.create_token(&made, hash(secret), &actor(7)).await.unwrap();
        assert_eq!(other.find_token(hash(secret)).await.unwrap(), Some(made));
    };
    see(&one, &other, "a").await;
    see(&other, &one, "b").await;
    let mut counted = event("access.allowed", 7, 0);
    one.record(std::slice::from_ref(&counted)).await.unwrap();
    counted.count = 5;
    other.record(std::slice::from_ref(&counted)).await.unwrap();
    let filter = AuditFilter {
        action: Some("access.allowed".to_owned()),
        ..AuditFilter::default()
    };
    assert_eq!(all_events(&one, filter).await, [counted]);
}
