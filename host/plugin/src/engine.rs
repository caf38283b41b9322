//! The one wasmtime engine of all guests: its instance pool (where address space allows one), its
//! epoch ticker and its slots.
//!
//! Invariant: no more guests run at once than there are slots.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::Semaphore;
use wasmtime::{Config, Enabled, Engine, InstanceAllocationStrategy, PoolingAllocationConfig};

use super::error::Error;

pub(super) const MAX_PLUGINS: usize = 32;
/// Additional slots, for calls still running on a replaced version and for loads.
const SPARE_SLOTS: usize = 32;
/// Period of the epoch increments, at which a guest's time is checked.
pub(super) const EPOCH_TICK: Duration = Duration::from_millis(2);
/// Memory of guests up to this size is reset by a memset between two calls, larger memory by a
/// system call. Guests of the SDK stay below.
const KEEP_RESIDENT_BYTES: usize = 256 << 10;
/// Bytes of tables that are reset the same way.
const KEEP_TABLE_BYTES: usize = 16 << 10;
/// Memory that any guest may have, regardless of its grant.
pub(super) const MAX_MEMORY_BYTES: usize = 1 << 30;
/// Maximum elements of one table. Guests of languages with a runtime need a few tens of thousands.
pub(super) const MAX_TABLE_ELEMENTS: usize = 100_000;
/// Core instances of one component.
pub(super) const MAX_INSTANCES: usize = 64;
/// Tables of one component.
pub(super) const MAX_TABLES: usize = 16;
/// Memories of one component.
pub(super) const MAX_MEMORIES: usize = 4;
const WASM_STACK_BYTES: usize = 512 << 10;
/// Address space that the pool reserves per slot. Next to none of it is ever backed by memory.
const SLOT_ADDRESS_SPACE_BYTES: u64 = 5 << 30;

/// How instances get their memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq, serde::Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Allocation {
    /// From slots reserved at start.
    Pool,
    /// From the system, each time: slower, but works where address space is
    /// limited (`ulimit -v`).
    OnDemand,
}

#[derive(Debug)]
pub(super) struct PluginEngine {
    pub(super) engine: Engine,
    pub(super) allocation: Allocation,
    /// Slots in use over all plugins.
    pub(super) slots: Semaphore,
    /// Slots one plugin may use, so that no plugin can take another's.
    pub(super) plugin_slots: usize,
}

impl PluginEngine {
    /// Starts the engine and its epoch ticker. Uses a pool, unless there is no address space for
    /// one or `wanted` says otherwise.
    pub(super) fn start(wanted: Allocation) -> Result<Arc<Self>, Error> {
        let workers = std::thread::available_parallelism().map_or(2, usize::from);
        let plugin_slots = (workers * 2).clamp(8, 64);
        let slots = plugin_slots * MAX_PLUGINS + SPARE_SLOTS;
        let has_pool = wanted == Allocation::Pool && fits(slots);
        let (engine, allocation) = match has_pool.then(|| pool(slots)).flatten() {
            Some(engine) => (engine, Allocation::Pool),
            None => (on_demand().map_err(Error::Engine)?, Allocation::OnDemand),
        };
        start_epoch_ticker(&engine)?;
        Ok(Arc::new(Self {
            engine,
            allocation,
            slots: Semaphore::new(slots),
            plugin_slots,
        }))
    }
}

/// Whether the pool leaves most of the process's address space alone.
fn fits(slots: usize) -> bool {
    let wanted = SLOT_ADDRESS_SPACE_BYTES.saturating_mul(u64::try_from(slots).unwrap_or(u64::MAX));
    rlimit::Resource::AS.get().is_ok_and(|(soft, _)| soft / 2 >= wanted)
}

/// An engine with a pool, or nothing where the system refuses the reservation.
fn pool(slots: usize) -> Option<Engine> {
    let count = |each: usize| u32::try_from(slots.saturating_mul(each)).unwrap_or(u32::MAX);
    let most = |each: usize| u32::try_from(each).unwrap_or(u32::MAX);
    let mut pool = PoolingAllocationConfig::new();
    pool.total_component_instances(count(1))
        .total_core_instances(count(16))
        .total_memories(count(1))
        .total_tables(count(4))
        .total_stacks(count(1))
        .max_core_instances_per_component(most(MAX_INSTANCES))
        .max_memories_per_component(most(MAX_MEMORIES))
        .max_tables_per_component(most(MAX_TABLES))
        .max_tables_per_module(most(MAX_TABLES))
        .max_memory_size(MAX_MEMORY_BYTES)
        .table_elements(MAX_TABLE_ELEMENTS)
        .linear_memory_keep_resident(KEEP_RESIDENT_BYTES)
        .table_keep_resident(KEEP_TABLE_BYTES)
        // Misses pages that were swapped out (wasmtime pull request 14357):
        // a guest would see what the one before it left.
        .pagemap_scan(Enabled::No);
    let mut config = config();
    config.allocation_strategy(InstanceAllocationStrategy::Pooling(pool));
    Engine::new(&config)
        .inspect_err(|error| tracing::warn!(%error, "plugins run without a pool: the system refuses its address space"))
        .ok()
}

/// An engine whose memories take little more address space than they use.
fn on_demand() -> wasmtime::Result<Engine> {
    let mut config = config();
    config.allocation_strategy(InstanceAllocationStrategy::OnDemand);
    config
        .memory_reservation(0)
        .memory_reservation_for_growth(1 << 20)
        .memory_guard_size(64 << 10);
    Engine::new(&config)
}

fn config() -> Config {
    let mut config = Config::new();
    config.wasm_component_model(true);
    config.epoch_interruption(true);
    config.max_wasm_stack(WASM_STACK_BYTES);
    config
}

/// Starts the thread that increments the epoch until the engine is dropped.
fn start_epoch_ticker(engine: &Engine) -> Result<(), Error> {
    let engine = engine.weak();
    let count = move || {
        while let Some(engine) = engine.upgrade() {
            engine.increment_epoch();
            // Else the sleeping thread would keep an engine that has no other owner.
            drop(engine);
            std::thread::sleep(EPOCH_TICK);
        }
    };
    std::thread::Builder::new()
        .name("plugin-clock".to_owned())
        .spawn(count)
        .map_err(Error::Ticker)?;
    Ok(())
}
