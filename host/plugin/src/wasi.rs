//! A minimal WASI for guests whose language runtime requires it: no files, environment, arguments,
//! sockets or standard streams.
//!
//! Security: the real clock needs the grant `clock`, and real randomness the grant `random`.

use std::time::Duration;

use wasmtime::component::ResourceTable;
use wasmtime_wasi::random::Deterministic;
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtx, WasiCtxBuilder, WasiCtxView, WasiView};

use super::budget::HostState;
use super::imports::GrantedImports;
use tollgate_core::plugin::Import;

const MAX_RANDOM_BYTES: u64 = 4096;
/// Handles a guest may hold.
const MAX_HANDLES: usize = 256;

pub(super) struct Wasi {
    context: WasiCtx,
    table: ResourceTable,
}

impl Wasi {
    pub(super) fn new(granted: GrantedImports) -> Self {
        let mut builder = WasiCtxBuilder::new();
        builder.allow_tcp(false).allow_udp(false).allow_ip_name_lookup(false);
        builder.max_random_size(MAX_RANDOM_BYTES);
        if !granted.has(Import::Clock) {
            builder.wall_clock(FixedClock).monotonic_clock(FixedClock);
        }
        if !granted.has(Import::Random) {
            // Language runtimes seed their hash tables at start. Without the grant, every guest
            // gets the same seed.
            builder.secure_random(Deterministic::new(vec![0]));
            builder.insecure_random(Deterministic::new(vec![0]));
            builder.insecure_random_seed(0);
        }
        let mut table = ResourceTable::new();
        table.set_max_capacity(MAX_HANDLES);
        Self {
            context: builder.build(),
            table,
        }
    }
}

impl WasiView for HostState {
    fn ctx(&mut self) -> WasiCtxView<'_> {
        let wasi = self.wasi();
        WasiCtxView {
            ctx: &mut wasi.context,
            table: &mut wasi.table,
        }
    }
}

/// A clock that always shows 1970.
#[derive(Clone, Copy, Debug)]
struct FixedClock;

impl HostWallClock for FixedClock {
    fn resolution(&self) -> Duration {
        Duration::from_secs(1)
    }

    fn now(&self) -> Duration {
        Duration::ZERO
    }
}

impl HostMonotonicClock for FixedClock {
    fn resolution(&self) -> u64 {
        1
    }

    fn now(&self) -> u64 {
        0
    }
}
