//! The interface `memo`: a guest keeps intermediate credentials between calls for the same cluster.

use crate::bindings::provider::tollgate::plugin::memo as wit;
use crate::call_state::{MemoUse, Phase};
use crate::host_state::HostState;
use crate::memo::{Memo, MemoEntry};

/// Texts and secrets of one entry.
const MAX_FIELDS: usize = 16;
const MAX_TEXT_BYTES: usize = 4 << 10;
/// Bytes of an entry: a gateway has hundreds of clusters.
const MAX_ENTRY_BYTES: usize = 128 << 10;

impl wit::Host for HostState {
    fn load(&mut self, key: String) -> wasmtime::Result<Option<wit::Entry>> {
        let call = self.provider_call()?;
        if call.phase != Phase::Mint(MemoUse::Allowed) {
            return Ok(None);
        }
        let now = call.now_ms();
        let Some(found) = call.memo.load(&key, now) else {
            return Ok(None);
        };
        let mut handles = Vec::with_capacity(found.values.len());
        for (name, secret) in found.values {
            // Without room for the secrets the guest mints anew, as if nothing had been kept.
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
        // The guest has given the handles away, also if the entry cannot be kept.
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
        let entry = MemoEntry {
            key,
            fields,
            values: secrets,
            expires_at,
        };
        call.memo.store(entry, now);
        Memo::start_sweeper(&call.memo, call.services.environment.clock.clone());
        Ok(())
    }

    fn forget(&mut self, key: String) -> wasmtime::Result<()> {
        let call = self.provider_call()?;
        call.memo.forget(&key);
        Ok(())
    }
}
