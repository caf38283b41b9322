//! The host's data of one call, and the wasmtime store that enforces its limits.
//!
//! Invariant: every store has every limit set.

use std::sync::Arc;
use std::time::Instant;

use wasmtime::{Engine, ResourceLimiter, Store, UpdateDeadline};
use wasmtime_wasi::{WasiCtxView, WasiView};

use super::budget::{Budget, ExceededLimit};
use super::call_state::CallState;
use super::engine::{EPOCH_TICK, MAX_INSTANCES, MAX_MEMORIES, MAX_TABLE_ELEMENTS, MAX_TABLES};
use super::granted_imports::GrantedImports;
use super::plugin_log::PluginLog;
use super::wasi::Wasi;
use tollgate_core::diagnostic::one_line;

/// Longest line of a guest's standard error in the log, in bytes.
const MAX_ERROR_LINE_BYTES: usize = 1024;

/// The host's data of one call, kept in the wasmtime store.
pub(super) struct HostState {
    pub(super) exceeded: Option<ExceededLimit>,
    pub(super) log: Arc<PluginLog>,
    pub(super) log_bytes_left: usize,
    host_calls_left: u32,
    memory_bytes_left: usize,
    deadline: Instant,
    /// Ticks the guest's code may still run.
    ticks_left: u32,
    granted: GrantedImports,
    wasi: Option<Box<Wasi>>,
    /// Set for credential providers and generators only.
    pub(super) provider: Option<Box<CallState>>,
}

impl HostState {
    /// The inert WASI of this call, made when the guest first asks.
    pub(super) fn wasi(&mut self) -> &mut Wasi {
        self.wasi.get_or_insert_with(|| Box::new(Wasi::new(self.granted)))
    }

    /// The last lines of the guest's standard error, without known secrets.
    pub(super) fn error_lines(&self) -> Vec<String> {
        let lines = self.wasi.iter().flat_map(|wasi| wasi.error_lines());
        let redacted = |line: String| match &self.provider {
            Some(call) => call.redactor.redact_line(&line, MAX_ERROR_LINE_BYTES),
            None => one_line(&line, MAX_ERROR_LINE_BYTES),
        };
        lines.map(redacted).collect()
    }

    /// The [`CallState`] of a credential provider or generator. Other guests are not linked with the
    /// functions that call this.
    pub(super) fn provider(&mut self) -> wasmtime::Result<&mut CallState> {
        self.provider
            .as_deref_mut()
            .ok_or_else(|| wasmtime::Error::msg("not a credential provider"))
    }

    /// Like [`Self::provider`], but counts a host call.
    pub(super) fn provider_call(&mut self) -> wasmtime::Result<&mut CallState> {
        self.count_host_call()?;
        self.provider()
    }

    pub(super) fn deadline(&self) -> tokio::time::Instant {
        tokio::time::Instant::from_std(self.deadline)
    }

    pub(super) fn count_host_call(&mut self) -> wasmtime::Result<()> {
        let Some(left) = self.host_calls_left.checked_sub(1) else {
            self.exceeded = Some(ExceededLimit::HostCalls);
            return Err(wasmtime::Error::msg("too many host calls"));
        };
        self.host_calls_left = left;
        Ok(())
    }
}

impl ResourceLimiter for HostState {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        let Some(left) = self.memory_bytes_left.checked_sub(desired.saturating_sub(current)) else {
            self.exceeded = Some(ExceededLimit::Memory);
            return Err(wasmtime::Error::msg("too much memory"));
        };
        self.memory_bytes_left = left;
        Ok(true)
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= MAX_TABLE_ELEMENTS)
    }

    fn instances(&self) -> usize {
        MAX_INSTANCES
    }

    fn tables(&self) -> usize {
        MAX_TABLES
    }

    fn memories(&self) -> usize {
        MAX_MEMORIES
    }
}

impl WasiView for HostState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        self.wasi().view()
    }
}

pub(super) fn store(
    engine: &Engine,
    budget: Budget,
    granted: GrantedImports,
    log: &Arc<PluginLog>,
    provider: Option<Box<CallState>>,
) -> Store<HostState> {
    let state = HostState {
        exceeded: None,
        log: log.clone(),
        log_bytes_left: budget.log_bytes,
        host_calls_left: budget.host_calls,
        memory_bytes_left: budget.memory_bytes,
        deadline: Instant::now() + budget.time,
        ticks_left: u32::try_from(budget.cpu_time.as_millis() / EPOCH_TICK.as_millis()).unwrap_or(u32::MAX),
        granted,
        wasi: None,
        provider,
    };
    let mut store = Store::new(engine, state);
    store.limiter(|state| state);
    store.set_hostcall_fuel(budget.data_bytes);
    store.set_epoch_deadline(1);
    // The guest yields its worker thread at every tick. It is also stopped here at its deadline,
    // because the timer of a busy worker may fire late.
    store.epoch_deadline_callback(|mut context| {
        let state = context.data_mut();
        // A tick is seen only while the guest's own code runs.
        if let (true, Some(left)) = (Instant::now() < state.deadline, state.ticks_left.checked_sub(1)) {
            state.ticks_left = left;
            return Ok(UpdateDeadline::Yield(1));
        }
        state.exceeded = Some(ExceededLimit::Time);
        Ok(UpdateDeadline::Interrupt)
    });
    store
}
