//! What one call may use up, and the store that holds it to that.
//!
//! In: a budget and what the guest may import. Out: a store with every limit
//! set. Never: a store without a limit.

use std::sync::Arc;
use std::time::{Duration, Instant};

use wasmtime::{Engine, ResourceLimiter, Store, UpdateDeadline};

use super::imports::{Granted, Log};
use super::wasi::Wasi;

/// What one call of a guest may use up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Budget {
    /// Wall time, waiting for a free slot included.
    pub time: Duration,
    /// Bytes of all the guest's memories together.
    pub memory_bytes: usize,
    /// Calls of host functions.
    pub host_calls: u32,
    /// Bytes of log lines; more is dropped.
    pub log_bytes: usize,
    /// Bytes the guest may hand to the host in one go.
    pub data_bytes: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self {
            time: Duration::from_millis(100),
            memory_bytes: 16 << 20,
            host_calls: 256,
            log_bytes: 8 << 10,
            data_bytes: 256 << 10,
        }
    }
}

impl Budget {
    /// The budget of the one call at load, which may take its time.
    pub(super) fn for_plan(self) -> Self {
        Self {
            time: self.time.max(Duration::from_secs(5)),
            ..self
        }
    }
}

/// Which limit stopped a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Exceeded {
    Time,
    Memory,
    HostCalls,
}

/// Everything the host knows about one call.
#[derive(Debug)]
pub(super) struct State {
    pub(super) exceeded: Option<Exceeded>,
    pub(super) log: Arc<Log>,
    pub(super) log_bytes_left: usize,
    host_calls_left: u32,
    memory_bytes_left: usize,
    deadline: Instant,
    granted: Granted,
    wasi: Option<Box<Wasi>>,
}

impl State {
    /// The inert WASI of this call, made when the guest first asks.
    pub(super) fn wasi(&mut self) -> &mut Wasi {
        self.wasi.get_or_insert_with(|| Box::new(Wasi::new(self.granted)))
    }

    /// Counts one host call.
    pub(super) fn host_call(&mut self) -> wasmtime::Result<()> {
        match self.host_calls_left.checked_sub(1) {
            Some(left) => {
                self.host_calls_left = left;
                Ok(())
            }
            None => {
                self.exceeded = Some(Exceeded::HostCalls);
                Err(wasmtime::Error::msg("too many host calls"))
            }
        }
    }
}

/// Elements of one table; guests of languages with a runtime need a few tens
/// of thousands.
pub(super) const TABLE_ELEMENTS_MOST: usize = 100_000;

impl ResourceLimiter for State {
    fn memory_growing(&mut self, current: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        match self.memory_bytes_left.checked_sub(desired.saturating_sub(current)) {
            Some(left) => {
                self.memory_bytes_left = left;
                Ok(true)
            }
            None => {
                self.exceeded = Some(Exceeded::Memory);
                Err(wasmtime::Error::msg("too much memory"))
            }
        }
    }

    fn table_growing(&mut self, _: usize, desired: usize, _: Option<usize>) -> wasmtime::Result<bool> {
        Ok(desired <= TABLE_ELEMENTS_MOST)
    }

    fn instances(&self) -> usize {
        INSTANCES_MOST
    }

    fn tables(&self) -> usize {
        TABLES_MOST
    }

    fn memories(&self) -> usize {
        MEMORIES_MOST
    }
}

/// Core instances of one component.
pub(super) const INSTANCES_MOST: usize = 64;
/// Tables of one component.
pub(super) const TABLES_MOST: usize = 16;
/// Memories of one component.
pub(super) const MEMORIES_MOST: usize = 4;

/// A store in which one call of one guest may happen.
pub(super) fn store(engine: &Engine, budget: Budget, granted: Granted, log: &Arc<Log>) -> Store<State> {
    let state = State {
        exceeded: None,
        log: log.clone(),
        log_bytes_left: budget.log_bytes,
        host_calls_left: budget.host_calls,
        memory_bytes_left: budget.memory_bytes,
        deadline: Instant::now() + budget.time,
        granted,
        wasi: None,
    };
    let mut store = Store::new(engine, state);
    store.limiter(|state| state);
    store.set_hostcall_fuel(budget.data_bytes);
    store.set_epoch_deadline(1);
    // The guest gives its worker back at every tick, and ends at its deadline
    // also where the timer of a busy worker would come late.
    store.epoch_deadline_callback(|mut context| {
        let state = context.data_mut();
        if Instant::now() < state.deadline {
            return Ok(UpdateDeadline::Yield(1));
        }
        state.exceeded = Some(Exceeded::Time);
        Ok(UpdateDeadline::Interrupt)
    });
    store
}
