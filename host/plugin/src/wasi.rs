//! A minimal WASI for guests whose language runtime requires it: no files, environment, arguments,
//! sockets or standard input. What it prints is dropped, except for the end of its standard error,
//! where runtimes report exceptions.
//!
//! Security: the real clock needs the grant `clock`, and real randomness the grant `random`.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll};
use std::time::Duration;

use bytes::Bytes;
use tokio::io::AsyncWrite;
use wasmtime::component::ResourceTable;
use wasmtime_wasi::cli::{IsTerminal, StdoutStream};
use wasmtime_wasi::p2::{OutputStream, Pollable, StreamError};
use wasmtime_wasi::random::Deterministic;
use wasmtime_wasi::{HostMonotonicClock, HostWallClock, WasiCtx, WasiCtxBuilder, WasiCtxView};

use super::granted_imports::GrantedImports;
use tollgate_core::plugin::Import;

const MAX_RANDOM_BYTES: u64 = 4096;
/// Handles a guest may hold.
const MAX_HANDLES: usize = 256;
/// Bytes of standard error that are kept.
const MAX_ERROR_BYTES: usize = 4096;

pub(super) struct Wasi {
    context: WasiCtx,
    table: ResourceTable,
    standard_error: StandardError,
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
        let standard_error = StandardError::default();
        builder.stderr(standard_error.clone());
        let mut table = ResourceTable::new();
        table.set_max_capacity(MAX_HANDLES);
        Self {
            context: builder.build(),
            table,
            standard_error,
        }
    }

    pub(super) fn view(&mut self) -> WasiCtxView<'_> {
        WasiCtxView {
            ctx: &mut self.context,
            table: &mut self.table,
        }
    }

    /// The last lines of the guest's standard error, in order.
    pub(super) fn error_lines(&self) -> Vec<String> {
        let kept = self.standard_error.kept();
        let bytes: Vec<u8> = kept.iter().copied().collect();
        let text = String::from_utf8_lossy(&bytes);
        let lines = text.lines().map(str::trim_end).filter(|line| !line.is_empty());
        lines.map(str::to_owned).collect()
    }
}

/// Standard error of a guest, of which the last [`MAX_ERROR_BYTES`] are kept.
#[derive(Clone, Default)]
struct StandardError(Arc<Mutex<VecDeque<u8>>>);

impl StandardError {
    fn kept(&self) -> std::sync::MutexGuard<'_, VecDeque<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn keep(&self, bytes: &[u8]) {
        let mut kept = self.kept();
        let last = bytes.len().saturating_sub(MAX_ERROR_BYTES);
        kept.extend(bytes.iter().skip(last));
        let too_many = kept.len().saturating_sub(MAX_ERROR_BYTES);
        kept.drain(..too_many);
    }
}

impl IsTerminal for StandardError {
    fn is_terminal(&self) -> bool {
        false
    }
}

impl StdoutStream for StandardError {
    fn async_stream(&self) -> Box<dyn AsyncWrite + Send + Sync> {
        Box::new(self.clone())
    }

    // Written at once, so that nothing is lost when the guest traps right after it.
    fn p2_stream(&self) -> Box<dyn OutputStream> {
        Box::new(self.clone())
    }
}

#[wasmtime_wasi::async_trait]
impl Pollable for StandardError {
    async fn ready(&mut self) {}
}

#[wasmtime_wasi::async_trait]
impl OutputStream for StandardError {
    fn write(&mut self, bytes: Bytes) -> Result<(), StreamError> {
        self.keep(&bytes);
        Ok(())
    }

    fn flush(&mut self) -> Result<(), StreamError> {
        Ok(())
    }

    fn check_write(&mut self) -> Result<usize, StreamError> {
        // It is never full: what is new displaces what is old.
        Ok(MAX_ERROR_BYTES)
    }
}

impl AsyncWrite for StandardError {
    fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        self.keep(bytes);
        Poll::Ready(Ok(bytes.len()))
    }

    fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
        Poll::Ready(Ok(()))
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
