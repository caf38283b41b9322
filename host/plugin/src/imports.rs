//! Builds the linker with the imports that a guest may use: the intersection of manifest and grant.
//!
//! Security: an import that is not granted is absent, and a guest's text enters the log without
//! line breaks.

use aws_lc_rs::rand::{SecureRandom as _, SystemRandom};
use wasmtime::component::{HasSelf, Linker};

use super::bindings::provider::tollgate::plugin as provider;
use super::bindings::tollgate::plugin::{clock, header_types, log, random};
use super::granted_imports::GrantedImports;
use super::host_state::HostState;
use strum::VariantArray;
use tollgate_core::diagnostic::one_line;
use tollgate_core::plugin::{Import, World};

mod ambient;
mod crypto;
mod egress;
mod memo;
mod redacted_body;
mod secrets;

/// Random bytes of one call.
const MAX_RANDOM_BYTES: u32 = 4096;

impl log::Host for HostState {
    fn write(&mut self, level: log::Level, message: String) -> wasmtime::Result<()> {
        self.count_host_call()?;
        if self.log_bytes_left == 0 {
            return Ok(());
        }
        // Redacted as a whole and then cut: half a secret would not be found.
        let line = match &self.provider {
            Some(call) => call.redactor.redact_line(&message, self.log_bytes_left),
            None => one_line(&message, self.log_bytes_left),
        };
        self.log_bytes_left -= line.len();
        if line.is_empty() || !self.log.admits_line() {
            return Ok(());
        }
        let plugin = self.log.plugin.as_str();
        match level {
            log::Level::Debug => tracing::debug!(target: "tollgate::plugin", plugin, "{line}"),
            log::Level::Info => tracing::info!(target: "tollgate::plugin", plugin, "{line}"),
            log::Level::Warn => tracing::warn!(target: "tollgate::plugin", plugin, "{line}"),
        }
        Ok(())
    }
}

impl clock::Host for HostState {
    fn now(&mut self) -> wasmtime::Result<u64> {
        self.count_host_call()?;
        let now = self
            .provider
            .as_deref()
            .map_or_else(jiff::Timestamp::now, |call| call.services.environment.clock.now());
        Ok(u64::try_from(now.as_millisecond()).unwrap_or(0))
    }
}

impl random::Host for HostState {
    fn bytes(&mut self, len: u32) -> wasmtime::Result<Vec<u8>> {
        self.count_host_call()?;
        // Before the allocation, whose size the guest chooses.
        if len > MAX_RANDOM_BYTES {
            return Err(wasmtime::Error::msg("too many random bytes"));
        }
        let mut bytes = vec![0; usize::try_from(len).unwrap_or(0)];
        SystemRandom::new()
            .fill(&mut bytes)
            .map_err(|_| wasmtime::Error::msg("no random bytes"))?;
        Ok(bytes)
    }
}

impl header_types::Host for HostState {}

/// Adds what every guest of `world` has, and the granted interfaces.
pub(super) fn link(linker: &mut Linker<HostState>, world: World, granted: GrantedImports) -> wasmtime::Result<()> {
    macro_rules! add {
        ($($interface:ident)::+) => {
            $($interface)::+::add_to_linker::<_, HasSelf<HostState>>(linker, |state| state)?
        };
    }
    match world {
        World::HeaderFilter => add!(header_types),
        World::CredentialProvider | World::Generator => {
            add!(provider::provider_types);
            add!(provider::secrets);
            add!(provider::egress);
            add!(provider::json_path);
        }
    }
    let is_linked = |import: &Import| granted.has(*import) && import.is_available_in(world);
    for import in Import::VARIANTS.iter().copied().filter(is_linked) {
        match import {
            Import::Clock => add!(clock),
            Import::Log => add!(log),
            Import::Random => add!(random),
            Import::Crypto => add!(provider::crypto),
            Import::Ambient => add!(provider::ambient),
            Import::Memo => add!(provider::memo),
            Import::Reveal => add!(provider::reveal),
        }
    }
    Ok(())
}
