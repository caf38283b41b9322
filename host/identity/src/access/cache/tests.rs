use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use jiff::Timestamp;
use secrecy::SecretString;
use tokio::sync::Notify;

use super::{AccessCache, AccessResult, CacheKey};
use crate::access::tests::world::id;
use crate::access::{AccessDenyReason, AccessGrant, AccessKey, AccessQuery, Error};
use crate::clock::Clock;
use tollgate_core::access::AccessFacts;
use tollgate_core::agent::Agent;
use tollgate_core::session::{AccessType, SessionId};
use tollgate_core::user::{AccessAs, User};

fn cache(clock: &Clock) -> AccessCache {
    AccessCache::new(clock.clone(), (Duration::from_secs(60), Duration::from_secs(10))).unwrap()
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
            access_as: AccessAs::Agent,
            session: SessionId::new(AccessType::PersonalAccessToken, session),
        },
        expires_at,
        linked: None,
    })
}

/// A cache whose queries are counted.
struct Counted {
    cache: AccessCache,
    clock: Clock,
    queries: Arc<AtomicU32>,
}

impl Counted {
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

    async fn ask(&self, result: AccessResult) -> AccessResult {
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
fn every_part_of_a_question_is_in_its_key() {
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
async fn a_success_is_remembered_a_minute() {
    let counted = Counted::new();
    for (second, queries) in [(0, 1), (59, 1), (2, 2), (59, 2)] {
        counted.clock.advance(Duration::from_secs(second));
        counted.ask(Ok(access("s", None))).await.unwrap();
        assert_eq!(counted.queries(), queries, "{second}");
    }
}

#[tokio::test]
async fn a_success_is_never_remembered_beyond_its_credential() {
    let counted = Counted::new();
    let end = Timestamp::from_second(counted.clock.unix_seconds() + 21).unwrap();
    counted.ask(Ok(access("s", Some(end)))).await.unwrap();
    counted.clock.advance(Duration::from_secs(19));
    counted.ask(Ok(access("s", Some(end)))).await.unwrap();
    assert_eq!(counted.queries(), 1);
    counted.clock.advance(Duration::from_secs(2));
    counted.ask(Ok(access("s", Some(end)))).await.unwrap();
    assert_eq!(counted.queries(), 2);
}

#[tokio::test]
async fn refusals_are_remembered_ten_seconds() {
    for error in [Error::from(AccessDenyReason::UnknownKey), Error::JobNotAllowed] {
        let counted = Counted::new();
        assert_eq!(counted.ask(Err(error.clone())).await.unwrap_err(), error);
        counted.clock.advance(Duration::from_secs(9));
        assert_eq!(counted.ask(Ok(access("s", None))).await.unwrap_err(), error);
        assert_eq!(counted.queries(), 1);
        counted.clock.advance(Duration::from_secs(1));
        counted.ask(Ok(access("s", None))).await.unwrap();
        assert_eq!(counted.queries(), 2);
    }
}

#[tokio::test]
async fn what_nobody_could_say_is_never_remembered() {
    let counted = Counted::new();
    assert_eq!(counted.ask(Err(unavailable())).await.unwrap_err(), unavailable());
    counted.ask(Ok(access("s", None))).await.unwrap();
    assert_eq!(counted.queries(), 2);
}

#[tokio::test]
async fn all_who_come_meanwhile_wait_for_one_question() {
    let counted = Arc::new(Counted::new());
    let go = Arc::new(Notify::new());
    let ask = || {
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
    let callers: Vec<_> = (0..20).map(|_| ask()).collect();
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
async fn a_question_outlives_who_asked_first() {
    let counted = Counted::new();
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
    let answer = counted.ask(Err(unavailable())).await;
    assert_eq!(answer.unwrap().session().id(), "s");
    assert_eq!(counted.queries(), 1);
}

#[tokio::test]
async fn an_answer_nobody_waited_for_is_not_given_when_it_is_old() {
    let counted = Counted::new();
    {
        let first = counted.ask(Ok(access("old", None)));
        assert!(futures_util::FutureExt::now_or_never(first).is_none());
    }
    while counted.queries() == 0 {
        tokio::task::yield_now().await;
    }
    tokio::task::yield_now().await;
    counted.clock.advance(Duration::from_secs(61));
    assert_eq!(
        counted.ask(Ok(access("new", None))).await.unwrap().session().id(),
        "new"
    );
}

#[tokio::test]
async fn a_question_that_panics_is_asked_again() {
    let counted = Counted::new();
    let answer = counted.cache.answer(counted.key(), || async { panic!("meant") });
    assert!(matches!(answer.await, Err(Error::Unavailable { .. })));
    counted.ask(Ok(access("s", None))).await.unwrap();
}

#[tokio::test]
async fn a_question_that_does_not_end_is_given_up() {
    let mut counted = Counted::new();
    counted.cache.query_timeout = Duration::from_millis(1);
    let answer = counted.cache.answer(counted.key(), std::future::pending).await;
    assert!(matches!(answer, Err(Error::Unavailable(detail)) if detail == "no answer in time"));
}
