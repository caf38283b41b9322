//! Caches the compiled [`Restrictions`] of each project, by the project's address in memory.
//!
//! Security: a project never gets the restrictions of an earlier one at the same address.

use std::sync::Arc;
use std::time::Duration;

use moka::sync::Cache;
use rustc_hash::FxBuildHasher;

use crate::restriction::Restrictions;
use tollgate_objects::Project;

const PROJECTS: u64 = 10_000;

/// Time to idle of an entry. An entry keeps its project alive, whose snapshot may be long gone.
const IDLE: Duration = Duration::from_secs(600);

/// Compiled restrictions by the address of their project. Clones share the cache.
#[derive(Clone, Debug)]
pub(crate) struct RestrictionsCache(Cache<usize, Arc<Restrictions>, FxBuildHasher>);

impl Default for RestrictionsCache {
    fn default() -> Self {
        let cache = Cache::builder().max_capacity(PROJECTS).time_to_idle(IDLE);
        Self(cache.build_with_hasher(FxBuildHasher))
    }
}

impl RestrictionsCache {
    /// Returns the restrictions of `project`, compiled on first use.
    pub(crate) fn get_or_compile(&self, project: &Arc<Project>) -> Arc<Restrictions> {
        let key = Arc::as_ptr(project) as usize;
        // INVARIANT: an entry keeps its project alive, so no other project can have
        // the same address while the entry exists.
        if let Some(cached) = self.0.get(&key)
            && Arc::ptr_eq(&cached.project, project)
        {
            return cached;
        }
        let compiled = Arc::new(Restrictions::of(project));
        self.0.insert(key, Arc::clone(&compiled));
        compiled
    }
}
