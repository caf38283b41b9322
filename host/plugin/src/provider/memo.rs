//! Keeps a guest's intermediate credentials between calls for the same cluster, until they expire.
//!
//! Security: an entry is never returned for another cluster, configuration or secret, and never
//! written to disk.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use super::ambient::milliseconds;
use super::call_state::{MemoUse, Phase, WallClock};
use super::secret::Secret;
use crate::bindings::provider::tollgate::plugin::memo as wit;
use crate::budget::HostState;

const MAX_ENTRIES: usize = 8;
/// Texts and secrets of one entry.
const MAX_FIELDS: usize = 16;
const MAX_TEXT_BYTES: usize = 4 << 10;
/// Bytes of an entry: a gateway has hundreds of clusters.
const MAX_ENTRY_BYTES: usize = 128 << 10;
const SWEEP_EVERY: Duration = Duration::from_secs(60);

#[derive(Clone)]
struct MemoEntry {
    key: String,
    fields: Vec<(String, String)>,
    values: Vec<(String, Secret)>,
    /// Milliseconds since 1970.
    expires_at: u64,
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

    /// Drops the entries that expired by `now`. Returns whether any are left.
    fn sweep(&self, now: u64) -> bool {
        let mut entries = self.entries();
        entries.retain(|entry| entry.expires_at > now);
        !entries.is_empty()
    }

    /// Starts the task that drops expired entries, even if nobody asks for them any more. At most
    /// one such task runs, until no entry is left.
    fn start_sweeper(memo: &Arc<Self>, clock: Arc<dyn WallClock>) {
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

impl wit::Host for HostState {
    fn load(&mut self, key: String) -> wasmtime::Result<Option<wit::Entry>> {
        let call = self.provider_call()?;
        if call.phase != Phase::Mint(MemoUse::Allowed) {
            return Ok(None);
        }
        let now = call.now_ms();
        call.memo.sweep(now);
        let found = call.memo.entries().iter().find(|entry| entry.key == key).cloned();
        let Some(found) = found else {
            return Ok(None);
        };
        let mut handles = Vec::with_capacity(found.values.len());
        for (name, secret) in found.values {
            let Ok(handle) = call.insert_secret(secret) else {
                return Ok(None);
            };
            handles.push((name, handle));
        }
        Ok(Some(wit::Entry {
            fields: found.fields,
            values: handles,
            expires_at: found.expires_at,
        }))
    }

    fn store(&mut self, key: String, entry: wit::Entry) -> wasmtime::Result<()> {
        let call = self.provider_call()?;
        let wit::Entry {
            fields,
            values,
            expires_at,
        } = entry;
        let take = |(name, handle)| call.take(handle).map(|secret| (name, secret));
        let secrets: Vec<_> = values.into_iter().map(take).collect::<wasmtime::Result<_>>()?;
        let texts = fields.iter().flat_map(|(name, value)| [name, value]);
        let small = texts.chain([&key]).all(|text| text.len() <= MAX_TEXT_BYTES);
        let few = fields.len() <= MAX_FIELDS && secrets.len() <= MAX_FIELDS;
        let texts: usize = fields.iter().map(|(name, value)| name.len() + value.len()).sum();
        let bytes = secrets
            .iter()
            .fold(texts, |sum, (name, secret)| sum + name.len() + secret.bytes().len());
        if !small || !few || bytes > MAX_ENTRY_BYTES || call.phase == Phase::Check {
            return Err(wasmtime::Error::msg("an entry that cannot be kept"));
        }
        let now = call.now_ms();
        let mut entries = call.memo.entries();
        entries.retain(|entry| entry.key != key && entry.expires_at > now);
        if entries.len() >= MAX_ENTRIES {
            entries.remove(0);
        }
        entries.push(MemoEntry {
            key,
            fields,
            values: secrets,
            expires_at,
        });
        drop(entries);
        Memo::start_sweeper(&call.memo, call.services.environment.clock.clone());
        Ok(())
    }

    fn forget(&mut self, key: String) -> wasmtime::Result<()> {
        let call = self.provider_call()?;
        call.memo.entries().retain(|entry| entry.key != key);
        Ok(())
    }
}
