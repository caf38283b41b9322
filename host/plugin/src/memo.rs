//! Keeps a guest's intermediate credentials between calls for the same cluster, until they expire.
//!
//! Security: an entry is never returned for another cluster, configuration or secret, and never
//! written to disk.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use crate::bindings::secret::Secret;
use crate::clock::{WallClock, milliseconds};

const MAX_ENTRIES: usize = 8;
const SWEEP_EVERY: Duration = Duration::from_secs(60);

#[derive(Clone)]
pub(crate) struct MemoEntry {
    pub(crate) key: String,
    pub(crate) fields: Vec<(String, String)>,
    pub(crate) values: Vec<(String, Secret)>,
    /// Milliseconds since 1970.
    pub(crate) expires_at: u64,
}

/// The entries that a cluster's provider stored. They and their secrets are dropped with the
/// cluster's configuration.
#[derive(Default)]
pub(crate) struct Memo {
    entries: Mutex<Vec<MemoEntry>>,
    sweeper_running: AtomicBool,
}

impl Memo {
    fn entries(&self) -> std::sync::MutexGuard<'_, Vec<MemoEntry>> {
        // Entries are put in whole, so a panic elsewhere leaves nothing half done.
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(crate) fn clear(&self) {
        self.entries().clear();
    }

    /// The entry of that key, if it has not expired by `now`.
    pub(crate) fn load(&self, key: &str, now: u64) -> Option<MemoEntry> {
        self.sweep(now);
        self.entries().iter().find(|entry| entry.key == key).cloned()
    }

    /// Replaces the entry of the same key, or drops the oldest if there are too many.
    pub(crate) fn store(&self, entry: MemoEntry, now: u64) {
        let mut entries = self.entries();
        entries.retain(|other| other.key != entry.key && other.expires_at > now);
        if entries.len() >= MAX_ENTRIES {
            entries.remove(0);
        }
        entries.push(entry);
    }

    pub(crate) fn forget(&self, key: &str) {
        self.entries().retain(|entry| entry.key != key);
    }

    /// Drops the entries that expired by `now`. Returns whether any are left.
    fn sweep(&self, now: u64) -> bool {
        let mut entries = self.entries();
        entries.retain(|entry| entry.expires_at > now);
        !entries.is_empty()
    }

    /// Starts the task that drops expired entries, even if nobody asks for them any more. At most
    /// one such task runs, until no entry is left.
    pub(crate) fn start_sweeper(memo: &Arc<Self>, clock: Arc<dyn WallClock>) {
        if memo.sweeper_running.swap(true, Ordering::AcqRel) {
            return;
        }
        let memo = Arc::downgrade(memo);
        tokio::spawn(async move {
            loop {
                tokio::time::sleep(SWEEP_EVERY).await;
                let Some(memo) = memo.upgrade() else { return };
                if !memo.sweep(milliseconds(clock.now()).unwrap_or_default()) {
                    memo.sweeper_running.store(false, Ordering::Release);
                    // An entry stored meanwhile found the flag set and started no sweeper.
                    if memo.entries().is_empty() || memo.sweeper_running.swap(true, Ordering::AcqRel) {
                        return;
                    }
                }
            }
        });
    }
}
