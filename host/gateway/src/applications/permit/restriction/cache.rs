//! Caches the compiled [`Restrictions`] of each project, by the project's address in memory.
//!
//! Security: a project never gets the restrictions of an earlier one at the same address.

use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use rustc_hash::FxBuildHasher;

use crate::applications::permit::restriction::Restrictions;
use tollgate_state::Project;

/// Most projects that are cached.
const PROJECTS: u64 = 10_000;

/// How long a project that nobody asks about is kept in the cache, and so kept alive. Its state
/// may be long gone.
const IDLE: Duration = Duration::from_secs(600);

/// Compiled restrictions by the address of their project. Clones share the cache.
#[derive(Clone, Debug)]
pub struct RestrictionsCache(Cache<usize, Arc<Restrictions>, FxBuildHasher>);

impl Default for RestrictionsCache {
    fn default() -> Self {
        let cache = Cache::builder().max_capacity(PROJECTS).time_to_idle(IDLE);
        Self(cache.build_with_hasher(FxBuildHasher))
    }
}

impl RestrictionsCache {
    /// Returns what `project` permits, compiled on first use.
    pub fn of(&self, project: &Arc<Project>) -> Arc<Restrictions> {
        let key = Arc::as_ptr(project) as usize;
        // INVARIANT: an entry keeps its project alive, so no other project can have
        // the same address while the entry exists.
        if let Some(kept) = self.0.get(&key)
            && Arc::ptr_eq(&kept.project, project)
        {
            return kept;
        }
        let made = Arc::new(Restrictions::of(project));
        self.0.insert(key, Arc::clone(&made));
        made
    }
}
