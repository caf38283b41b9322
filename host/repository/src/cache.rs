//! The fetched commits on disk, and the commits that revisions are known to resolve to.
//!
//! Invariant: at most [`MAX_CACHED_COMMITS`] commits are kept, and none that was not requested for
//! a long time. A folder is never removed while it is being read.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use gix::ObjectId;
use tokio::time::Instant;

use crate::disk::Folder;
use crate::fetch_key::FetchKey;
use crate::{Error, MAX_CACHED_COMMITS};

/// How long a failure is cached: long enough that a set with many generators fails only once, and
/// short enough not to delay a person who fixes the cause.
const FAILURE_TTL: Duration = Duration::from_secs(3);

const MAX_REVISIONS: usize = 4096;

/// A commit in a separate folder, which is removed when the last reference is dropped.
#[derive(Debug)]
pub(crate) struct Checkout {
    pub(crate) repository: gix::ThreadSafeRepository,
    pub(crate) commit: ObjectId,
    pub(crate) _folder: Folder,
}

#[derive(Debug, Default)]
pub(crate) struct Cache {
    commits: HashMap<([u8; 32], ObjectId), CachedCheckout>,
    revisions: HashMap<FetchKey, ResolvedRevision>,
}

#[derive(Debug)]
struct CachedCheckout {
    checkout: Arc<Checkout>,
    requested_at: Instant,
}

#[derive(Debug)]
struct ResolvedRevision {
    at: Instant,
    outcome: Result<ObjectId, Error>,
}

impl Cache {
    /// The cached outcome for a revision, if it is younger than `max_age`. A full commit id never
    /// expires.
    pub(crate) fn lookup(&mut self, key: &FetchKey, max_age: Duration) -> Option<Result<Arc<Checkout>, Error>> {
        if let Ok(commit) = key.revision.parse()
            && let Some(kept) = self.commit(&key.repository, commit)
        {
            return Some(Ok(kept));
        }
        let known = self.revisions.get(key)?;
        let age = known.at.elapsed();
        match known.outcome.clone() {
            Err(error) => (age < FAILURE_TTL.min(max_age)).then_some(Err(error)),
            Ok(commit) if age < max_age => self.commit(&key.repository, commit).map(Ok),
            Ok(_) => None,
        }
    }

    pub(crate) fn commit(&mut self, repository: &[u8; 32], commit: ObjectId) -> Option<Arc<Checkout>> {
        let kept = self.commits.get_mut(&(*repository, commit))?;
        kept.requested_at = Instant::now();
        Some(Arc::clone(&kept.checkout))
    }

    /// Caches the outcome of a fetch. Returns what is no longer kept, which must be dropped
    /// outside the lock.
    #[must_use]
    pub(crate) fn insert_outcome(
        &mut self,
        key: &FetchKey,
        outcome: &Result<Arc<Checkout>, Error>,
    ) -> Vec<Arc<Checkout>> {
        if self.revisions.len() >= MAX_REVISIONS {
            self.revisions.clear();
        }
        let at = Instant::now();
        let known = outcome.as_ref().map(|checkout| checkout.commit);
        let resolved = ResolvedRevision {
            at,
            outcome: known.map_err(Clone::clone),
        };
        self.revisions.insert(key.clone(), resolved);
        let Ok(checkout) = outcome else {
            return Vec::new();
        };
        let kept = CachedCheckout {
            checkout: Arc::clone(checkout),
            requested_at: at,
        };
        let before = self.commits.insert((key.repository, checkout.commit), kept);
        let mut evicted: Vec<_> = before.into_iter().map(|before| before.checkout).collect();
        while self.commits.len() > MAX_CACHED_COMMITS {
            evicted.extend(self.evict());
        }
        evicted
    }

    /// Removes the least recently requested commit, preferring one that nobody reads. It must be
    /// dropped outside the lock.
    #[must_use]
    pub(crate) fn evict(&mut self) -> Option<Arc<Checkout>> {
        let is_read = |kept: &CachedCheckout| Arc::strong_count(&kept.checkout) > 1;
        let oldest = self.commits.iter();
        let (key, _) = oldest.min_by_key(|(_, kept)| (is_read(kept), kept.requested_at))?;
        let key = *key;
        self.commits.remove(&key).map(|kept| kept.checkout)
    }

    /// Removes commits that nobody has requested for `unused_ttl`.
    #[must_use]
    pub(crate) fn expire(&mut self, unused_ttl: Duration) -> Vec<Arc<Checkout>> {
        let is_old = |kept: &CachedCheckout| kept.requested_at.elapsed() >= unused_ttl;
        let evicted = self.commits.extract_if(|_, kept| is_old(kept));
        evicted.map(|(_, kept)| kept.checkout).collect()
    }
}
