//! A cache of recent access decisions, which also merges concurrent queries with the same key.
//!
//! Invariant: at most one query per key is in flight, and [`Error::Unavailable`] is not cached.
//!
//! Security: the key covers the agent, the credential and the CSRF token. The credential itself
//! is not kept.

use std::sync::Arc;
use std::time::Duration;

use aws_lc_rs::hmac;
use aws_lc_rs::rand::SystemRandom;
use moka::ops::compute::{CompResult, Op};
use moka::sync::Cache;
use rustc_hash::FxBuildHasher;
use secrecy::ExposeSecret as _;
use tokio::sync::{Semaphore, watch};

use super::{AccessGrant, AccessKey, AccessQuery, Error};
use crate::clock::Clock;
use tollgate_core::session::AccessType;

/// Most results cached at once.
const MAX_ENTRIES: u64 = 20_000;
/// Most queries in flight at once; further ones wait.
const MAX_CONCURRENT_QUERIES: usize = 256;
/// Time limit of one query, including the wait for a permit.
const QUERY_TIMEOUT: Duration = Duration::from_secs(15);
/// A result that is not used for this long is dropped; longer than any result stays fresh.
const IDLE: Duration = Duration::from_secs(600);

/// Access, or why it was not granted.
pub(super) type AccessResult = Result<Arc<AccessGrant>, Error>;

/// Identifies a query without containing its credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CacheKey([u8; 32]);

/// Results by key.
#[derive(Debug)]
pub(super) struct AccessCache {
    slots: Cache<CacheKey, Slot, FxBuildHasher>,
    /// Random for each process, so that keys reveal nothing of credentials.
    secret: hmac::Key,
    permits: Arc<Semaphore>,
    clock: Clock,
    success_ttl: Duration,
    refusal_ttl: Duration,
    /// Time limit of one query.
    query_timeout: Duration,
}

/// A result, or one that is awaited. The task that runs the query holds the other end.
type Slot = watch::Receiver<Option<CachedResult>>;

#[derive(Clone, Debug)]
struct CachedResult {
    result: AccessResult,
    /// Uptime from which it is no longer fresh.
    until: Duration,
}

impl AccessCache {
    /// Makes an empty cache.
    ///
    /// - `success_ttl`, `refusal_ttl`: how long each kind of result is cached.
    ///
    /// # Errors
    /// The system has no randomness.
    pub(super) fn new(
        clock: Clock,
        (success_ttl, refusal_ttl): (Duration, Duration),
    ) -> Result<Self, aws_lc_rs::error::Unspecified> {
        let slots = Cache::builder()
            .max_capacity(MAX_ENTRIES)
            .time_to_idle(IDLE)
            .build_with_hasher(FxBuildHasher);
        Ok(Self {
            slots,
            secret: hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())?,
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_QUERIES)),
            clock,
            success_ttl,
            refusal_ttl,
            query_timeout: QUERY_TIMEOUT,
        })
    }

    /// The key of a query. It covers the agent, the kind, the whole credential, the CSRF token and
    /// `dependencies`: whatever else the result depends on.
    pub(super) fn key(&self, query: &AccessQuery<'_>, dependencies: &[&[u8]]) -> CacheKey {
        let (kind, credential, csrf_token) = match &query.key {
            AccessKey::PersonalAccessToken(token) => (AccessType::PersonalAccessToken, *token, None),
            AccessKey::OidcIdToken(token) => (AccessType::OidcIdToken, &token.token, None),
            AccessKey::SessionCookie { cookie, csrf_token } => (AccessType::SessionCookie, *cookie, Some(*csrf_token)),
            AccessKey::CiJobToken(token) => (AccessType::CiJobToken, *token, None),
        };
        let mut context = hmac::Context::with_key(&self.secret);
        // Each part is preceded by its length, so that parts cannot run together.
        let mut part = |bytes: &[u8]| {
            context.update(&bytes.len().to_le_bytes());
            context.update(bytes);
        };
        part(&query.agent.get().to_le_bytes());
        part(kind.as_str().as_bytes());
        part(credential.expose_secret().as_bytes());
        part(csrf_token.map_or("", |token| token.expose_secret()).as_bytes());
        for bytes in dependencies {
            part(bytes);
        }
        let mut key = [0; 32];
        key.copy_from_slice(context.sign().as_ref());
        CacheKey(key)
    }

    /// Returns the result under `key`, and runs the query if none is fresh. Concurrent callers wait
    /// for the same result. The query runs in a task of its own, which goes on if the callers go
    /// away. Cancel safe.
    pub(super) async fn answer<F, A>(&self, key: CacheKey, ask: F) -> AccessResult
    where
        F: FnOnce() -> A,
        A: Future<Output = AccessResult> + Send + 'static,
    {
        let cached = self.slots.get(&key).filter(|slot| self.is_fresh(slot));
        let mut slot = match cached {
            Some(slot) => slot,
            None => self.begin(key, ask),
        };
        let answer = slot.wait_for(Option::is_some).await;
        // The task ended without a result: it panicked, or the gateway stops.
        let answer = answer.ok().and_then(|answer| answer.clone());
        answer.map_or_else(|| Err(unavailable("the question was given up")), |answer| answer.result)
    }

    fn begin<F, A>(&self, key: CacheKey, ask: F) -> Slot
    where
        F: FnOnce() -> A,
        A: Future<Output = AccessResult> + Send + 'static,
    {
        let slot = self.slots.entry(key).and_compute_with(|entry| match entry {
            Some(entry) if self.is_fresh(entry.value()) => Op::Nop,
            Some(_) | None => Op::Put(self.spawn_query(ask())),
        });
        match slot {
            CompResult::Inserted(entry)
            | CompResult::ReplacedWith(entry)
            | CompResult::Unchanged(entry)
            | CompResult::Removed(entry) => entry.into_value(),
            // Cannot occur: a value was put.
            CompResult::StillNone(_) => watch::channel(None).1,
        }
    }

    fn spawn_query<A>(&self, query: A) -> Slot
    where
        A: Future<Output = AccessResult> + Send + 'static,
    {
        let (sender, receiver) = watch::channel(None);
        let (permits, clock) = (Arc::clone(&self.permits), self.clock.clone());
        let (success_ttl, refusal_ttl, query_timeout) = (self.success_ttl, self.refusal_ttl, self.query_timeout);
        tokio::spawn(async move {
            let permitted = async {
                let _permit = permits.acquire_owned().await;
                query.await
            };
            let result = tokio::time::timeout(query_timeout, permitted).await;
            let result = result.unwrap_or_else(|_| Err(unavailable("no answer in time")));
            let good_for = match &result {
                Ok(access) => access.expires_at.map_or(success_ttl, |end| {
                    let left = end.duration_since(clock.now());
                    Duration::try_from(left).unwrap_or_default().min(success_ttl)
                }),
                Err(Error::Refused { .. } | Error::JobNotAllowed) => refusal_ttl,
                Err(Error::Unavailable { .. }) => Duration::ZERO,
            };
            let until = clock.uptime().saturating_add(good_for);
            sender.send_replace(Some(CachedResult { result, until }));
        });
        receiver
    }

    /// Whether the result is still fresh or is awaited.
    fn is_fresh(&self, slot: &Slot) -> bool {
        match &*slot.borrow() {
            Some(answer) => self.clock.uptime() < answer.until,
            None => slot.has_changed().is_ok(),
        }
    }
}

fn unavailable(detail: &str) -> Error {
    Error::Unavailable {
        detail: detail.to_owned(),
    }
}

#[cfg(test)]
mod tests;
