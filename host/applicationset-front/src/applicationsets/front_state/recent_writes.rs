//! Remembers sets that were written here until a snapshot has them.
//!
//! Security: a caller is judged by the latest state that is known, not by an older snapshot.

use std::collections::{BTreeSet, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;
use tollgate_front::set_list::OwnedApplication;

use serde_json::Value;
use tokio::time::Instant;

use tollgate_applicationset::plan::is_equivalent;
use tollgate_objects::ObjectName;

const MAX_RECENT_WRITES: usize = 64;

/// How long a recent write is remembered if no snapshot contains it before.
const RECENT_WRITE_TTL: Duration = Duration::from_secs(10);

/// The latest writes of sets.
#[derive(Debug, Default)]
pub(in crate::applicationsets) struct RecentWrites(Mutex<VecDeque<RecentWrite>>);

#[derive(Debug)]
struct RecentWrite {
    name: ObjectName,
    at: Instant,
    was: Option<Arc<Value>>,
    now: Option<Arc<Value>>,
    applications: Arc<BTreeSet<OwnedApplication>>,
}

/// A set as it is known without reading its source.
#[derive(Clone, Debug, Default)]
pub(in crate::applicationsets) struct CachedSet {
    pub(in crate::applicationsets) set: Option<Arc<Value>>,
    /// Its Applications, if the set was written recently.
    pub(in crate::applicationsets) applications: Option<Arc<BTreeSet<OwnedApplication>>>,
}

impl RecentWrites {
    /// The latest known state of a set: as it was written here recently, or else as the snapshot
    /// has it.
    pub(in crate::applicationsets) fn latest_known(&self, name: &ObjectName, has: Option<&Arc<Value>>) -> CachedSet {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        written.retain(|one| one.at.elapsed() < RECENT_WRITE_TTL);
        let mut writes = written.iter().rev().filter(|one| one.name == *name);
        // A snapshot that changed since the write is newer than the write, unless it has what an
        // earlier one of these writes stored: it was loaded between the two.
        let latest = writes.next().filter(|one| {
            let is_unchanged = one.was.as_ref().map(Arc::as_ptr) == has.map(Arc::as_ptr);
            is_unchanged || writes.any(|earlier| is_same(earlier.now.as_deref(), has.map(|has| &**has)))
        });
        CachedSet {
            set: latest.map_or_else(|| has.cloned(), |one| one.now.clone()),
            applications: latest.map(|one| Arc::clone(&one.applications)),
        }
    }

    /// Whether a set of this namespace was written recently.
    pub(in crate::applicationsets) fn has_written(&self, namespace: &str) -> bool {
        let written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let mut recent = written.iter().filter(|one| one.at.elapsed() < RECENT_WRITE_TTL);
        recent.any(|one| one.name.namespace == namespace)
    }

    /// Remembers a set as it is stored now. `None` if it was deleted.
    ///
    /// - `was`: what the snapshot had before the write.
    pub(in crate::applicationsets) fn record_write(
        &self,
        name: ObjectName,
        was: Option<Arc<Value>>,
        now: Option<Arc<Value>>,
        applications: BTreeSet<OwnedApplication>,
    ) {
        let mut written = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if written.len() >= MAX_RECENT_WRITES {
            written.pop_front();
        }
        written.push_back(RecentWrite {
            name,
            at: Instant::now(),
            was,
            now,
            applications: Arc::new(applications),
        });
    }
}

fn is_same(stored: Option<&Value>, loaded: Option<&Value>) -> bool {
    match (stored, loaded) {
        (None, None) => true,
        (Some(stored), Some(loaded)) => is_equivalent(stored, loaded),
        (None, Some(_)) | (Some(_), None) => false,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::sync::Arc;

    use serde_json::{Value, json};

    use super::RecentWrites;
    use tollgate_objects::ObjectName;

    fn set(version: &str) -> Arc<Value> {
        Arc::new(json!({"metadata": {"name": "a"}, "spec": {"template": {"spec": {"project": version}}}}))
    }

    #[test]
    fn a_snapshot_from_between_two_writes_is_older_than_the_second() {
        let name = ObjectName {
            namespace: "argocd".to_owned(),
            name: "a".to_owned(),
        };
        let writes = RecentWrites::default();
        let (first, second) = (set("first"), set("second"));
        writes.record_write(name.clone(), None, Some(Arc::clone(&first)), BTreeSet::new());
        // The request that made the second began before any snapshot had the first.
        writes.record_write(name.clone(), None, Some(Arc::clone(&second)), BTreeSet::new());
        let known = |has: Option<&Arc<Value>>| writes.latest_known(&name, has).set;
        assert_eq!(known(None), Some(Arc::clone(&second)));
        // The snapshot decoded it anew.
        assert_eq!(known(Some(&set("first"))), Some(Arc::clone(&second)));
        // Somebody else wrote after the two.
        let other = set("other");
        assert_eq!(known(Some(&other)), Some(Arc::clone(&other)));
        writes.record_write(name.clone(), Some(Arc::clone(&other)), None, BTreeSet::new());
        assert_eq!(known(Some(&set("second"))), None);
        assert_eq!(known(Some(&set("new"))), Some(set("new")));
    }
}
