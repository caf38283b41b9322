use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use secrecy::SecretString;
use tokio::sync::Notify;

use super::{AccessCache, AccessResult, CacheKey};
use crate::access::tests::fixture::id;
use crate::access::{AccessDenyReason, AccessGrant, AccessKey, AccessQuery, Error};
use crate::clock::Clock;
use crate::person::PersonNames;
use tollgate_core::access::AccessFacts;
use tollgate_core::agent::Agent;
use tollgate_core::session::{AccessType, SessionId};
use tollgate_core::user::{AccessAs, User};

fn cache(clock: &Clock) -> AccessCache {
    AccessCache::new(clock.clone(), Duration::from_secs(60), Duration::from_secs(10)).unwrap()
}

fn key(cache: &AccessCache, agent: i64, key: AccessKey, dependencies: &[&[u8]]) -> CacheKey {
    cache.key(&AccessQuery { agent: id(agent), key }, dependencies)
}

fn access(session: &str, expires_at: Option<Timestamp>) -> Arc<AccessGrant> {
    Arc::new(AccessGrant {
        facts: AccessFacts {
            agent: Arc::new(Agent {
                id: id(9999),
                name: "my-agent".to_owned(),
                config_project: 1,
                cluster: "in-cluster".to_owned(),
            }),
            user: User {
                id: 102,
                username: "bob".to_owned(),
            },
            issuer_groups: None,
            access_as: AccessAs::Agent,
            session: SessionId::new(AccessType::PersonalAccessToken, session),
        },
        expires_at,
        linked: None,
        names: PersonNames::default(),
    })
}

/// A cache whose queries are counted.
struct CountingCache {
    cache: AccessCache,
    clock: Clock,
    queries: Arc<AtomicU32>,
}

impl CountingCache {
    fn new() -> Self {
        let clock = Clock::default();
        Self {
            cache: cache(&clock),
            clock,
            queries: Arc::default(),
        }
    }

    fn key(&self) -> CacheKey {
        key(
            &self.cache,
            9999,
            AccessKey::PersonalAccessToken(SecretString::from("t")),
            &[],
        )
    }

    async fn answer(&self, result: AccessResult) -> AccessResult {
        let queries = Arc::clone(&self.queries);
        let answer = self.cache.answer(self.key(), || async move {
            queries.fetch_add(1, Ordering::Relaxed);
            result
        });
        answer.await
    }

    fn queries(&self) -> u32 {
        self.queries.load(Ordering::Relaxed)
    }
}

fn unavailable() -> Error {
    Error::Unavailable("away".to_owned())
}

#[test]
fn every_part_of_a_query_is_in_its_key() {
    let cache = cache(&Clock::default());
    let pat = |token: &str| AccessKey::PersonalAccessToken(SecretString::from(token));
    let cookie = |cookie: &str, csrf_token: &str| AccessKey::SessionCookie {
        cookie: SecretString::from(cookie),
        csrf_token: SecretString::from(csrf_token),
    };
    let keys = [
        key(&cache, 1, pat("a"), &[]),
        key(&cache, 2, pat("a"), &[]),
        key(&cache, 1, pat("ab"), &[]),
        key(&cache, 1, AccessKey::CiJobToken(SecretString::from("a")), &[]),
        key(&cache, 1, cookie("a", "b"), &[]),
        key(&cache, 1, cookie("a", "a"), &[]),
        key(&cache, 1, cookie("ab", ""), &[]),
        key(&cache, 1, cookie("b", "b"), &[]),
        key(&cache, 1, pat("a"), &[b"1"]),
        key(&cache, 1, pat("a"), &[b"2"]),
        key(&cache, 1, pat("a"), &[b"", b"1"]),
    ];
    for (index, one) in keys.iter().enumerate() {
        for other in keys.iter().skip(index + 1) {
            assert_ne!(one, other, "{index}");
        }
    }
    assert_eq!(keys[0], key(&cache, 1, pat("a"), &[]));
    // Another process has other keys.
    assert_ne!(keys[0], key(&super::tests::cache(&Clock::default()), 1, pat("a"), &[]));
}

#[tokio::test]
async fn a_grant_is_cached_for_a_minute() {
    let counted = CountingCache::new();
    for (second, queries) in [(0, 1), (59, 1), (2, 2), (59, 2)] {
        counted.clock.advance(Duration::from_secs(second));
        counted.answer(Ok(access("s", None))).await.unwrap();
        assert_eq!(counted.queries(), queries, "{second}");
    }
}

#[tokio::test]
async fn a_grant_is_not_cached_beyond_its_credential() {
    let counted = CountingCache::new();
    let end = Timestamp::from_second(counted.clock.unix_seconds() + 21).unwrap();
    counted.answer(Ok(access("s", Some(end)))).await.unwrap();
    counted.clock.advance(Duration::from_secs(19));
    counted.answer(Ok(access("s", Some(end)))).await.unwrap();
    assert_eq!(counted.queries(), 1);
    counted.clock.advance(Duration::from_secs(2));
    counted.answer(Ok(access("s", Some(end)))).await.unwrap();
    assert_eq!(counted.queries(), 2);
}

#[tokio::test]
async fn refusals_are_cached_for_ten_seconds() {
    for error in [Error::from(AccessDenyReason::UnknownKey), Error::JobNotAllowed] {
        let counted = CountingCache::new();
        assert_eq!(counted.answer(Err(error.clone())).await.unwrap_err(), error);
        counted.clock.advance(Duration::from_secs(9));
        assert_eq!(counted.answer(Ok(access("s", None))).await.unwrap_err(), error);
        assert_eq!(counted.queries(), 1);
        counted.clock.advance(Duration::from_secs(1));
        counted.answer(Ok(access("s", None))).await.unwrap();
        assert_eq!(counted.queries(), 2);
    }
}

#[tokio::test]
async fn unavailable_errors_are_not_cached() {
    let counted = CountingCache::new();
    assert_eq!(counted.answer(Err(unavailable())).await.unwrap_err(), unavailable());
    counted.answer(Ok(access("s", None))).await.unwrap();
    assert_eq!(counted.queries(), 2);
}

#[tokio::test]
async fn concurrent_callers_share_one_query() {
    let counted = Arc::new(CountingCache::new());
    let go = Arc::new(Notify::new());
    let start_caller = || {
        let (counted, go) = (Arc::clone(&counted), Arc::clone(&go));
        tokio::spawn(async move {
            let queries = Arc::clone(&counted.queries);
            let query = || async move {
                queries.fetch_add(1, Ordering::Relaxed);
                go.notified().await;
                Ok(access("s", None))
            };
            counted.cache.answer(counted.key(), query).await
        })
    };
    let callers: Vec<_> = (0..20).map(|_| start_caller()).collect();
    while counted.queries() == 0 {
        tokio::task::yield_now().await;
    }
    for _ in 0..100 {
        tokio::task::yield_now().await;
    }
    go.notify_waiters();
    for caller in callers {
        caller.await.unwrap().unwrap();
    }
    assert_eq!(counted.queries(), 1);
}

#[tokio::test]
async fn a_query_outlives_its_first_caller() {
    let counted = CountingCache::new();
    let go = Arc::new(Notify::new());
    let (queries, wait) = (Arc::clone(&counted.queries), Arc::clone(&go));
    {
        let first = counted.cache.answer(counted.key(), || async move {
            queries.fetch_add(1, Ordering::Relaxed);
            wait.notified().await;
            Ok(access("s", None))
        });
        // The caller goes away while it waits.
        assert!(futures_util::FutureExt::now_or_never(first).is_none());
    }
    while counted.queries() == 0 {
        tokio::task::yield_now().await;
    }
    go.notify_waiters();
    let answer = counted.answer(Err(unavailable())).await;
    assert_eq!(answer.unwrap().session().id(), "s");
    assert_eq!(counted.queries(), 1);
}

#[tokio::test]
async fn a_stale_result_of_an_abandoned_query_is_not_returned() {
    let counted = CountingCache::new();
    {
        let first = counted.answer(Ok(access("old", None)));
        assert!(futures_util::FutureExt::now_or_never(first).is_none());
    }
    while counted.queries() == 0 {
        tokio::task::yield_now().await;
    }
    tokio::task::yield_now().await;
    counted.clock.advance(Duration::from_secs(61));
    assert_eq!(
        counted.answer(Ok(access("new", None))).await.unwrap().session().id(),
        "new"
    );
}

#[tokio::test]
async fn a_query_that_panicked_is_repeated() {
    let counted = CountingCache::new();
    let answer = counted.cache.answer(counted.key(), || async { panic!("intended") });
    assert!(matches!(answer.await, Err(Error::Unavailable { .. })));
    counted.answer(Ok(access("s", None))).await.unwrap();
}

#[tokio::test]
async fn a_query_times_out() {
    let mut counted = CountingCache::new();
    counted.cache.query_timeout = Duration::from_millis(1);
    let answer = counted.cache.answer(counted.key(), std::future::pending).await;
    assert!(matches!(answer, Err(Error::Unavailable(detail)) if detail == "no answer in time"));
}
