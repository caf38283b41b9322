//! Concurrent changes share transactions, but succeed or fail independently.

use futures_util::future::join_all;
use sqlx::{Connection as _, PgConnection};
use tollgate_store::{AuditFilter, CredentialFilter, Error, Page};

use crate::store::support::{Backend, actor, all_events, create, event, hash, on_both, token};
use test_support::postgres::Server;

on_both!(
    one_failure_does_not_affect_others,
    more_than_the_queue_holds_all_succeed,
    are_made_when_the_caller_gives_up
);

async fn one_failure_does_not_affect_others(backend: Backend) {
    let store = backend.open().await;
    let first = token(7, 1, 0);
    create(&store, &first).await;
    // Every tenth token has the secret of the first one.
    let made: Vec<_> = (0..200).map(|second| token(7, 1, second)).collect();
    let by = actor(7);
    let done = join_all(made.iter().enumerate().map(async |(number, token)| {
        let secret = if number % 10 == 0 { first.id } else { token.id };
        store.create_token(token, hash(secret.to_string()), &by).await
    }))
    .await;
    for (number, done) in done.into_iter().enumerate() {
        let expected = if number % 10 == 0 {
            Err(Error::Exists("token"))
        } else {
            Ok(())
        };
        assert_eq!(done, expected, "token {number}");
    }
    assert_eq!(
        store
            .tokens(&CredentialFilter::default(), &Page::default())
            .await
            .unwrap()
            .len(),
        181
    );
    assert_eq!(all_events(&store, AuditFilter::default()).await.len(), 181);
}

async fn more_than_the_queue_holds_all_succeed(backend: Backend) {
    let store = backend.open().await;
    let events: Vec<_> = (0..3_000).map(|second| event("access.denied", 7, second)).collect();
    let done = join_all(events.iter().map(|event| store.record(std::slice::from_ref(event)))).await;
    assert!(done.iter().all(Result::is_ok), "{done:?}");
    assert_eq!(all_events(&store, AuditFilter::default()).await.len(), events.len());
}

async fn are_made_when_the_caller_gives_up(backend: Backend) {
    let store = backend.open().await;
    let abandoned: Vec<_> = (0..50).map(|second| event("access.denied", 7, second)).collect();
    for event in &abandoned {
        // One poll puts the change into the queue. Then the future is dropped.
        let record = std::pin::pin!(store.record(std::slice::from_ref(event)));
        assert!(futures_util::poll!(record).is_pending());
    }
    let last = event("access.denied", 7, 99);
    store.record(std::slice::from_ref(&last)).await.unwrap();
    let all = all_events(&store, AuditFilter::default()).await;
    assert_eq!(all.len(), abandoned.len() + 1);
    assert_eq!(all[0], last);
}

/// The id of the next transaction. Every transaction that writes gets one.
async fn next_transaction(url: &str) -> i64 {
    let mut connection = PgConnection::connect(url).await.unwrap();
    let (number,): (i64,) = sqlx::query_as("SELECT pg_current_xact_id()::text::bigint")
        .fetch_one(&mut connection)
        .await
        .unwrap();
    number
}

#[tokio::test]
async fn a_thousand_concurrent_changes_need_few_transactions() {
    // A separate server, because transactions of other databases count too.
    let server = Server::start();
    let url = server.database().await;
    let store = tollgate_store::Store::open(&url.clone().into()).await.unwrap();
    let events: Vec<_> = (0..1_000).map(|second| event("access.denied", 7, second)).collect();
    let before = next_transaction(&url).await;
    for done in join_all(events.iter().map(|event| store.record(std::slice::from_ref(event)))).await {
        done.unwrap();
    }
    let transactions = next_transaction(&url).await - before;
    assert!((1..=20).contains(&transactions), "{transactions} transactions");
    // Sequential changes need one transaction each.
    let before = next_transaction(&url).await;
    for event in &events[..30] {
        store.record(std::slice::from_ref(event)).await.unwrap();
    }
    let transactions = next_transaction(&url).await - before;
    assert!(transactions >= 30, "{transactions} transactions");
}
