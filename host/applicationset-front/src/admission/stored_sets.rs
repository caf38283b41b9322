//! Reads ApplicationSets as they are stored. Argo CD's controller generates many Applications of a set
//! at a time: their reviews share reads, and what is derived from them.
//!
//! Invariant: a read begins after every review that it answers came in.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::panic::AssertUnwindSafe;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use futures_util::FutureExt as _;
use rustc_hash::FxBuildHasher;
use serde_json::Value;
use tokio::sync::oneshot;

use crate::admission::judge::Refusal;
use crate::set_author::{author_of, parent_of, parent_statement, statement};
use tollgate_front::snapshot::CurrentSnapshot;
use tollgate_identity::authenticate::{DeployedBy, Principal};
use tollgate_objects::ObjectName;
use tollgate_state::source::Source;
use tollgate_state::write::{self, ObjectKey, WritableKind};

/// A set, and who wrote it by its signed statements.
#[derive(Debug)]
pub(super) struct StoredSet {
    pub(super) set: Value,
    /// The author, or why they are unknown.
    pub(super) author: Result<Arc<Principal>, String>,
    /// The Application that deployed it, or why none is known.
    pub(super) parent: Result<DeployedBy, String>,
}

type ReadResult = Result<Arc<StoredSet>, Refusal>;
type Waiting = HashMap<ObjectName, Vec<oneshot::Sender<ReadResult>>, FxBuildHasher>;

/// The reads in progress.
#[derive(Debug)]
pub struct StoredSets {
    current: CurrentSnapshot,
    source: Arc<dyn Source>,
    /// Who waits for the next read of each set that is being read.
    waiting: Mutex<Waiting>,
}

impl StoredSets {
    /// - `source`: read where a snapshot is not new enough.
    pub fn new(current: CurrentSnapshot, source: Arc<dyn Source>) -> Arc<Self> {
        Arc::new(Self {
            current,
            source,
            waiting: Mutex::default(),
        })
    }

    /// The set as it is stored now.
    ///
    /// # Errors
    /// It cannot be read.
    ///
    /// Cancel safe.
    pub(super) async fn read(self: &Arc<Self>, name: &ObjectName) -> ReadResult {
        let (sender, receiver) = oneshot::channel();
        match self.waiting().entry(name.clone()) {
            // A read that runs began before this review came in, so the review waits for the next one.
            Entry::Occupied(mut waiting) => waiting.get_mut().push(sender),
            Entry::Vacant(none) => {
                none.insert(vec![sender]);
                // A separate task: if this review is given up, the others still get their answer.
                tokio::spawn(Arc::clone(self).read_while_awaited(name.clone()));
            }
        }
        receiver.await.unwrap_or_else(|_| Err(interrupted(name)))
    }

    /// Reads the set until nobody waits for it.
    async fn read_while_awaited(self: Arc<Self>, name: ObjectName) {
        while let Some(waiting) = self.take_waiting(&name) {
            // A panic answers those who wait.
            let read = AssertUnwindSafe(self.read_once(&name)).catch_unwind().await;
            let result = read.unwrap_or_else(|_| Err(interrupted(&name)));
            for sender in waiting {
                // A review that was given up does not wait any more.
                let _ = sender.send(result.clone());
            }
        }
    }

    /// Who waits for a read that begins now. `None` if there is nobody; the next one starts again.
    fn take_waiting(&self, name: &ObjectName) -> Option<Vec<oneshot::Sender<ReadResult>>> {
        let mut all = self.waiting();
        // The entry stays while the read runs, so that reviews that come in meanwhile do not start a second one.
        let waiting = all.get_mut(name).map(std::mem::take).unwrap_or_default();
        if waiting.is_empty() {
            all.remove(name);
            return None;
        }
        Some(waiting)
    }

    async fn read_once(&self, name: &ObjectName) -> ReadResult {
        let failed = |error: &write::Error| unreadable(name, &error.to_string());
        let writer = self.source.writer().map_err(|error| failed(&error))?;
        let stored = writer.read(&ObjectKey::of(WritableKind::ApplicationSet, name)).await;
        let set = stored.map_err(|error| failed(&error))?.object;
        let policies = &self.current.load().policies;
        let author = match statement(&set) {
            Some(text) => author_of(policies, name, &set, text),
            None => Err("it has no statement of its author".to_owned()),
        };
        let parent = match parent_statement(&set) {
            Some(text) => parent_of(policies, name, &set, text),
            None => Err("none of an Application that deployed it".to_owned()),
        };
        Ok(Arc::new(StoredSet { set, author, parent }))
    }

    fn waiting(&self) -> MutexGuard<'_, Waiting> {
        self.waiting.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn unreadable(name: &ObjectName, why: &str) -> Refusal {
    Refusal::new(
        "set_unknown",
        format!("ApplicationSet `{}` cannot be read: {why}", name.name),
    )
}

fn interrupted(name: &ObjectName) -> Refusal {
    unreadable(name, "the read was interrupted")
}
