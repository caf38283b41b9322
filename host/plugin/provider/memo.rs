//! Intermediate credentials, kept between the calls for one cluster.
//!
//! In: entries of a guest. Out: the same, until they end. Never: an entry for
//! another cluster, configuration or secret; anything on disk.

use std::fmt;
use std::sync::{Mutex, PoisonError};

use wasmtime::component::Resource;

use super::call::{Freshness, Phase};
use super::secret::Secret;
use crate::plugin::bindings::provider::tollgate::plugin::memo as wit;
use crate::plugin::budget::State;

/// Entries of one cluster.
const ENTRIES_MOST: usize = 8;
/// Texts and secrets of one entry.
const FIELDS_MOST: usize = 16;
/// Bytes of a name or text.
const TEXT_MOST_BYTES: usize = 4 << 10;

/// One entry.
struct Entry {
    key: String,
    fields: Vec<(String, String)>,
    values: Vec<(String, Secret)>,
    /// Milliseconds since 1970.
    expires_at: u64,
}

/// What a cluster's provider remembers. Dropped with the cluster's
/// configuration, and the secrets with it.
#[derive(Default)]
pub(crate) struct Memo(Mutex<Vec<Entry>>);

impl fmt::Debug for Memo {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Memo").finish_non_exhaustive()
    }
}

impl Memo {
    fn entries(&self) -> std::sync::MutexGuard<'_, Vec<Entry>> {
        // Entries are put in whole, so a panic elsewhere leaves nothing half done.
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Forgets everything.
    pub(crate) fn clear(&self) {
        self.entries().clear();
    }
}

impl wit::Host for State {
    fn load(&mut self, key: String) -> wasmtime::Result<Option<wit::Entry>> {
        let call = self.provider_call()?;
        if call.phase != Phase::Mint(Freshness::Any) {
            return Ok(None);
        }
        let now = call.now_ms();
        let found = {
            let mut entries = call.memo.entries();
            entries.retain(|entry| entry.expires_at > now);
            entries
                .iter()
                .find(|entry| entry.key == key)
                .map(|entry| (entry.fields.clone(), entry.values.clone(), entry.expires_at))
        };
        let Some((fields, values, expires_at)) = found else {
            return Ok(None);
        };
        let mut handles = Vec::with_capacity(values.len());
        for (name, secret) in values {
            match call.keep(secret) {
                Ok(handle) => handles.push((name, handle)),
                Err(_) => return Ok(None),
            }
        }
        Ok(Some(wit::Entry {
            fields,
            values: handles,
            expires_at,
        }))
    }

    fn store(&mut self, key: String, entry: wit::Entry) -> wasmtime::Result<()> {
        let call = self.provider_call()?;
        let wit::Entry {
            fields,
            values,
            expires_at,
        } = entry;
        let mut secrets = Vec::with_capacity(values.len());
        for (name, handle) in values {
            secrets.push((name, call.take(Resource::new_own(handle.rep()))?));
        }
        let texts = fields.iter().flat_map(|(name, value)| [name, value]);
        let small = texts.chain([&key]).all(|text| text.len() <= TEXT_MOST_BYTES);
        if !small || fields.len() > FIELDS_MOST || secrets.len() > FIELDS_MOST || call.phase == Phase::Check {
            return Err(wasmtime::Error::msg("an entry that cannot be kept"));
        }
        let mut entries = call.memo.entries();
        entries.retain(|entry| entry.key != key);
        if entries.len() >= ENTRIES_MOST {
            entries.remove(0);
        }
        entries.push(Entry {
            key,
            fields,
            values: secrets,
            expires_at,
        });
        Ok(())
    }

    fn forget(&mut self, key: String) -> wasmtime::Result<()> {
        let call = self.provider_call()?;
        call.memo.entries().retain(|entry| entry.key != key);
        Ok(())
    }
}
