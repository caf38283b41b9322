//! Commits that were fetched, on disk, and what revisions are known to be.
//!
//! In: outcomes of fetches. Out: a commit's folder. Never: more commits than
//! [`MAX_CACHED_COMMITS`] kept, or one that nobody asked for in a long time; a folder
//! removed while somebody reads it.

use std::collections::HashMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use gix::ObjectId;
use tokio::time::Instant;

use super::disk::Part;
use super::flight::Asked;
use super::tree::CommitTree;
use super::{Error, MAX_CACHED_COMMITS};

/// How long a failure is taken as known: long enough that a set with many generators
/// fails once, short enough for who mends it.
const FAILURE_FRESH: Duration = Duration::from_secs(3);

/// Revisions remembered.
const MAX_REVISIONS: usize = 4096;

/// A commit in a folder of its own, which goes when nobody holds it.
#[derive(Debug)]
pub(super) struct Checkout {
    pub(super) repository: gix::ThreadSafeRepository,
    pub(super) commit: ObjectId,
    pub(super) folder: PathBuf,
    /// Its bytes on disk; given back after the folder went.
    pub(super) _part: Part,
}

impl Checkout {
    /// Its tree; `url` is for errors.
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

/// What is kept.
#[derive(Debug, Default)]
pub(super) struct Cache {
    commits: HashMap<([u8; 32], ObjectId), Kept>,
    revisions: HashMap<Asked, Known>,
    uses: u64,
}

#[derive(Debug)]
struct Kept {
    checkout: Arc<Checkout>,
    used: u64,
    at: Instant,
}

#[derive(Debug)]
struct Known {
    at: Instant,
    outcome: Result<ObjectId, Error>,
}

impl Cache {
    /// What is known of a revision, if it was looked at no longer than `fresh` before
    /// `now`. A full commit never changes.
    pub(super) fn fresh(
        &mut self,
        asked: &Asked,
        (now, fresh): (Instant, Duration),
    ) -> Option<Result<Arc<Checkout>, Error>> {
        if let Ok(commit) = asked.revision.parse::<ObjectId>()
            && let Some(kept) = self.commit(&asked.repository, commit)
        {
            return Some(Ok(kept));
        }
        let known = self.revisions.get(asked)?;
        let age = now.saturating_duration_since(known.at);
        match known.outcome.clone() {
            Err(error) => (age < FAILURE_FRESH.min(fresh)).then_some(Err(error)),
            Ok(commit) if age < fresh => self.commit(&asked.repository, commit).map(Ok),
            Ok(_) => None,
        }
    }

    /// A commit, if it is kept.
    pub(super) fn commit(&mut self, repository: &[u8; 32], commit: ObjectId) -> Option<Arc<Checkout>> {
        self.uses = self.uses.saturating_add(1);
        let kept = self.commits.get_mut(&(*repository, commit))?;
        kept.used = self.uses;
        kept.at = Instant::now();
        Some(Arc::clone(&kept.checkout))
    }

    /// Remembers what came of a fetch. Gives what is no longer kept, to be dropped
    /// outside the lock.
    #[must_use]
    pub(super) fn learn(
        &mut self,
        asked: &Asked,
        outcome: &Result<Arc<Checkout>, Error>,
        at: Instant,
    ) -> Vec<Arc<Checkout>> {
        if self.revisions.len() >= MAX_REVISIONS {
            self.revisions.clear();
        }
        let known = outcome.as_ref().map(|checkout| checkout.commit);
        let outcome_known = Known {
            at,
            outcome: known.map_err(Clone::clone),
        };
        self.revisions.insert(asked.clone(), outcome_known);
        let Ok(checkout) = outcome else {
            return Vec::new();
        };
        self.uses = self.uses.saturating_add(1);
        let kept = Kept {
            checkout: Arc::clone(checkout),
            used: self.uses,
            at,
        };
        let before = self.commits.insert((asked.repository, checkout.commit), kept);
        let mut gone: Vec<_> = before.into_iter().map(|before| before.checkout).collect();
        while self.commits.len() > MAX_CACHED_COMMITS {
            gone.extend(self.evict());
        }
        gone
    }

    /// Gives up the commit that was asked for longest ago, one that nobody reads if there
    /// is one. It is to be dropped outside the lock.
    #[must_use]
    pub(super) fn evict(&mut self) -> Option<Arc<Checkout>> {
        let is_read = |kept: &Kept| Arc::strong_count(&kept.checkout) > 1;
        let oldest = self.commits.iter().min_by_key(|(_, kept)| (is_read(kept), kept.used));
        let key = *oldest?.0;
        self.commits.remove(&key).map(|kept| kept.checkout)
    }

    /// Gives up what nobody asked for since `keep` before `now`.
    #[must_use]
    pub(super) fn expire(&mut self, now: Instant, keep: Duration) -> Vec<Arc<Checkout>> {
        let is_old = |kept: &Kept| now.saturating_duration_since(kept.at) >= keep;
        let gone = self.commits.extract_if(|_, kept| is_old(kept));
        gone.map(|(_, kept)| kept.checkout).collect()
    }
}
