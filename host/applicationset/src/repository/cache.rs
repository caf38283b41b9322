//! The fetched commits on disk, and the commits that revisions are known to resolve to.
//!
//! Invariant: at most [`MAX_CACHED_COMMITS`] commits are kept, and none that was not requested for
//! a long time. A folder is never removed while it is being read.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gix::ObjectId;
use tokio::time::Instant;

use super::disk::DiskReservation;
use super::in_flight::FetchKey;
use super::tree::CommitTree;
use super::{Error, MAX_CACHED_COMMITS};

/// How long a failure is cached: long enough that a set with many generators fails only once, and
/// short enough not to delay whoever fixes the cause.
const FAILURE_TTL: Duration = Duration::from_secs(3);

/// Maximum number of cached revisions.
const MAX_REVISIONS: usize = 4096;

/// A commit in a folder of its own, which is removed when the last reference is dropped.
#[derive(Debug)]
pub(super) struct Checkout {
    pub(super) repository: gix::ThreadSafeRepository,
    pub(super) commit: ObjectId,
    pub(super) folder: PathBuf,
    /// The disk space it uses, released after the folder is removed.
    pub(super) _reservation: DiskReservation,
}

impl Checkout {
    /// Opens its tree; `url` is for errors.
    pub(super) fn tree(self: Arc<Self>, url: &str) -> Result<CommitTree, Error> {
        let repository = self.repository.to_thread_local();
        CommitTree::new(repository, self.commit, url).map(|tree| tree.keeping(Arc::clone(&self)))
    }
}

impl Drop for Checkout {
    fn drop(&mut self) {
        if let Err(error) = std::fs::remove_dir_all(&self.folder)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            tracing::warn!(%error, "what was fetched of a repository cannot be removed");
        }
    }
}

/// The cached commits and revisions.
#[derive(Debug, Default)]
pub(super) struct Cache {
    commits: HashMap<([u8; 32], ObjectId), CachedCheckout>,
    revisions: HashMap<FetchKey, ResolvedRevision>,
    uses: u64,
}

#[derive(Debug)]
struct CachedCheckout {
    checkout: Arc<Checkout>,
    used: u64,
    at: Instant,
}

#[derive(Debug)]
struct ResolvedRevision {
    at: Instant,
    outcome: Result<ObjectId, Error>,
}

impl Cache {
    /// The cached outcome for a revision, if it is younger than `max_age` at `now`. A full commit
    /// id never expires.
    pub(super) fn lookup(
        &mut self,
        fetch_key: &FetchKey,
        (now, max_age): (Instant, Duration),
    ) -> Option<Result<Arc<Checkout>, Error>> {
        if let Ok(commit) = fetch_key.revision.parse::<ObjectId>()
            && let Some(kept) = self.commit(&fetch_key.repository, commit)
        {
            return Some(Ok(kept));
        }
        let known = self.revisions.get(fetch_key)?;
        let age = now.saturating_duration_since(known.at);
        match known.outcome.clone() {
            Err(error) => (age < FAILURE_TTL.min(max_age)).then_some(Err(error)),
            Ok(commit) if age < max_age => self.commit(&fetch_key.repository, commit).map(Ok),
            Ok(_) => None,
        }
    }

    /// A commit, if it is cached.
    pub(super) fn commit(&mut self, repository: &[u8; 32], commit: ObjectId) -> Option<Arc<Checkout>> {
        self.uses = self.uses.saturating_add(1);
        let kept = self.commits.get_mut(&(*repository, commit))?;
        kept.used = self.uses;
        kept.at = Instant::now();
        Some(Arc::clone(&kept.checkout))
    }

    /// Caches the outcome of a fetch. Returns what is no longer kept, which must be dropped
    /// outside the lock.
    #[must_use]
    pub(super) fn insert_outcome(
        &mut self,
        fetch_key: &FetchKey,
        outcome: &Result<Arc<Checkout>, Error>,
        at: Instant,
    ) -> Vec<Arc<Checkout>> {
        if self.revisions.len() >= MAX_REVISIONS {
            self.revisions.clear();
        }
        let known = outcome.as_ref().map(|checkout| checkout.commit);
        let resolved = ResolvedRevision {
            at,
            outcome: known.map_err(Clone::clone),
        };
        self.revisions.insert(fetch_key.clone(), resolved);
        let Ok(checkout) = outcome else {
            return Vec::new();
        };
        self.uses = self.uses.saturating_add(1);
        let kept = CachedCheckout {
            checkout: Arc::clone(checkout),
            used: self.uses,
            at,
        };
        let before = self.commits.insert((fetch_key.repository, checkout.commit), kept);
        let mut evicted: Vec<_> = before.into_iter().map(|before| before.checkout).collect();
        while self.commits.len() > MAX_CACHED_COMMITS {
            evicted.extend(self.evict());
        }
        evicted
    }

    /// Removes the least recently requested commit, preferring one that nobody reads. It must be
    /// dropped outside the lock.
    #[must_use]
    pub(super) fn evict(&mut self) -> Option<Arc<Checkout>> {
        let is_read = |kept: &CachedCheckout| Arc::strong_count(&kept.checkout) > 1;
        let oldest = self.commits.iter().min_by_key(|(_, kept)| (is_read(kept), kept.used));
        let key = *oldest?.0;
        self.commits.remove(&key).map(|kept| kept.checkout)
    }

    /// Removes commits that nobody has requested for `unused_ttl` before `now`.
    #[must_use]
    pub(super) fn expire(&mut self, now: Instant, unused_ttl: Duration) -> Vec<Arc<Checkout>> {
        let is_old = |kept: &CachedCheckout| now.saturating_duration_since(kept.at) >= unused_ttl;
        let evicted = self.commits.extract_if(|_, kept| is_old(kept));
        evicted.map(|(_, kept)| kept.checkout).collect()
    }
}
