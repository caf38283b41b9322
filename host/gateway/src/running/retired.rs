//! Frees snapshots that are no longer in force.
//!
//! Invariant: no thread that serves frees a snapshot. A request that is its last user only gives it back.

use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::time::sleep;

use crate::snapshot::Snapshot;

/// How often it is looked which snapshots nobody uses any more.
const INTERVAL: Duration = Duration::from_secs(1);

/// The snapshots that were in force and may still be used. Clones share them.
#[derive(Clone, Debug, Default)]
pub(super) struct RetiredSnapshots(Arc<Mutex<Vec<Arc<Snapshot>>>>);

impl RetiredSnapshots {
    /// Adds a snapshot that is no longer in force. Each is added once, since the list counts as a user.
    pub(super) fn add(&self, snapshot: Arc<Snapshot>) {
        self.lock().push(snapshot);
    }

    /// Frees snapshots for as long as it is polled.
    pub(super) async fn run(self) {
        loop {
            sleep(INTERVAL).await;
            let unused = self.take_unused();
            if !unused.is_empty() {
                // An error is a panic, which is logged.
                let _ = tokio::task::spawn_blocking(move || drop(unused)).await;
            }
        }
    }

    fn take_unused(&self) -> Vec<Arc<Snapshot>> {
        // Nobody can take a clone of one that only this list has.
        let is_unused = |snapshot: &mut Arc<Snapshot>| Arc::strong_count(snapshot) == 1;
        self.lock().extract_if(.., is_unused).collect()
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, Vec<Arc<Snapshot>>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
