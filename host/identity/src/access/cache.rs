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
use moka::future::Cache;
use rustc_hash::FxBuildHasher;
use secrecy::ExposeSecret as _;
use tokio::sync::Semaphore;

use super::{AccessGrant, AccessQuery, Error};
use crate::clock::Clock;

const MAX_ENTRIES: u64 = 20_000;
/// Most queries in flight at once; further ones wait.
const MAX_CONCURRENT_QUERIES: usize = 256;
/// Time limit of one query, including the wait for a permit.
const QUERY_TIMEOUT: Duration = Duration::from_secs(15);
/// A result that is not used for this long is dropped; longer than any result stays fresh.
const IDLE: Duration = Duration::from_secs(600);

pub(super) type AccessResult = Result<Arc<AccessGrant>, Error>;

/// Identifies a query without containing its credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct CacheKey([u8; 32]);

#[derive(Debug)]
pub(super) struct AccessCache {
    results: Cache<CacheKey, CachedResult, FxBuildHasher>,
    /// Random for each process, so that keys reveal nothing of credentials.
    secret: hmac::Key,
    permits: Arc<Semaphore>,
    clock: Clock,
    success_ttl: Duration,
    refusal_ttl: Duration,
    query_timeout: Duration,
}

#[derive(Clone, Debug)]
struct CachedResult {
    result: AccessResult,
    /// Uptime from which it is no longer fresh.
    until: Duration,
}

impl AccessCache {
    /// - `success_ttl`, `refusal_ttl`: how long each kind of result is cached.
    pub(super) fn new(
        clock: Clock,
        success_ttl: Duration,
        refusal_ttl: Duration,
    ) -> Result<Self, aws_lc_rs::error::Unspecified> {
        Ok(Self {
            results: Cache::builder()
                .max_capacity(MAX_ENTRIES)
                .time_to_idle(IDLE)
                // Nobody can choose keys that collide: they are MACs.
                .build_with_hasher(FxBuildHasher),
            secret: hmac::Key::generate(hmac::HMAC_SHA256, &SystemRandom::new())?,
            permits: Arc::new(Semaphore::new(MAX_CONCURRENT_QUERIES)),
            clock,
            success_ttl,
            refusal_ttl,
            query_timeout: QUERY_TIMEOUT,
        })
    }

    /// The key of a query. It covers the agent, the kind, the whole credential, the CSRF token and
    /// `dependencies`: everything else that the result depends on.
    pub(super) fn key(&self, query: &AccessQuery, dependencies: &[&[u8]]) -> CacheKey {
        let (credential, csrf_token) = query.key.secrets();
        let mut context = hmac::Context::with_key(&self.secret);
        // Each part is preceded by its length, so that parts cannot run together.
        let mut part = |bytes: &[u8]| {
            context.update(&bytes.len().to_le_bytes());
            context.update(bytes);
        };
        part(&query.agent.get().to_le_bytes());
        part(query.key.access_type().as_ref().as_bytes());
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
    /// for the same result. The query runs in a separate task, which goes on if the callers go
    /// away. Cancel safe.
    pub(super) async fn answer<F, A>(&self, key: CacheKey, ask: F) -> AccessResult
    where
        F: FnOnce() -> A,
        A: Future<Output = AccessResult> + Send + 'static,
    {
        let clock = self.clock.clone();
        let is_stale = move |cached: &CachedResult| clock.uptime() >= cached.until;
        if let Some(cached) = self.results.get(&key).await.filter(|cached| !is_stale(cached)) {
            return cached.result;
        }
        let (results, query) = (self.results.clone(), self.run(ask()));
        // A task of each caller, of which moka lets one run its query while the others wait for it.
        let task = tokio::spawn(async move { results.entry(key).or_insert_with_if(query, is_stale).await });
        let answer = task.await.map(|entry| entry.into_value().result);
        // The task panicked, or the gateway stops.
        answer.unwrap_or_else(|_| Err(Error::Unavailable("the query was abandoned".to_owned())))
    }

    fn run(
        &self,
        query: impl Future<Output = AccessResult> + Send + 'static,
    ) -> impl Future<Output = CachedResult> + Send + 'static {
        let (permits, clock) = (Arc::clone(&self.permits), self.clock.clone());
        let (success_ttl, refusal_ttl, query_timeout) = (self.success_ttl, self.refusal_ttl, self.query_timeout);
        async move {
            let permitted = async {
                // This cannot fail, because the semaphore is never closed.
                let _permit = permits.acquire_owned().await;
                query.await
            };
            let result = tokio::time::timeout(query_timeout, permitted).await;
            let result = result.unwrap_or_else(|_| Err(Error::Unavailable("no answer in time".to_owned())));
            let good_for = match &result {
                Ok(access) => access.expires_at.map_or(success_ttl, |end| {
                    let left = end.duration_since(clock.now());
                    Duration::try_from(left).unwrap_or_default().min(success_ttl)
                }),
                Err(Error::Refused { .. } | Error::JobNotAllowed) => refusal_ttl,
                // Only those who wait for it now share it.
                Err(Error::Unavailable(_)) => Duration::ZERO,
            };
            let until = clock.uptime().saturating_add(good_for);
            CachedResult { result, until }
        }
    }
}

#[cfg(test)]
mod tests;
