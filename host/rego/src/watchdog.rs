//! Detects a decision that does not return, and marks its bundle as stuck.
//!
//! The engine checks its limits between instructions. If a single instruction ran forever, its
//! thread would be lost, as nothing can end it. Marking the bundle keeps later requests from losing
//! their threads as well.
//!
//! A thread that waits for a processor is not stuck, however long: what counts is the CPU time that the
//! decision has used.
//!
//! Invariant: apart from a thread's first decision, the watchdog adds neither a lock nor a reading
//! of the clock to a decision.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, SyncSender, sync_channel};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::time::Duration;

use crate::limits::DECISION_TIME_LIMIT;
use cpu_clock::CpuClock;

mod cpu_clock;

const INTERVAL: Duration = DECISION_TIME_LIMIT.saturating_mul(2);
/// Number of checks that must find the same decision before it counts as stuck. Checks are counted
/// rather than time, so that nothing is stuck after a pause of the whole process.
const CHECKS_UNTIL_STUCK: u32 = 5;
/// A decision that runs for this long cannot be stopped. Its bundle decides nothing else until it
/// returns.
pub const STUCK_AFTER: Duration = INTERVAL.saturating_mul(CHECKS_UNTIL_STUCK);
/// CPU time that a decision has used by then, at least: more than all attempts at one that can be stopped.
const STUCK_CPU: Duration = STUCK_AFTER;
const STACK_BYTES: usize = 256 * 1024;

/// The decision that a thread is making. Only that thread writes.
#[derive(Debug)]
struct ThreadSlot {
    cpu_clock: CpuClock,
    /// Generation of the bundle; 0 while the thread decides nothing.
    generation: AtomicU64,
    sequence: AtomicU64,
}

/// A slot for each living thread that has ever decided.
static SLOTS: Mutex<Vec<Weak<ThreadSlot>>> = Mutex::new(Vec::new());

thread_local! {
    static SLOT: Arc<ThreadSlot> = {
        let slot = Arc::new(ThreadSlot {
            cpu_clock: CpuClock::of_this_thread(),
            generation: AtomicU64::new(0),
            sequence: AtomicU64::new(0),
        });
        let mut slots = SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
        slots.retain(|slot| slot.strong_count() > 0);
        slots.push(Arc::downgrade(&slot));
        slot
    };
}

/// Clears the slot when dropped, even if the decision panics.
struct Running<'a>(&'a ThreadSlot);

impl Drop for Running<'_> {
    fn drop(&mut self) {
        self.0.generation.store(0, Ordering::Relaxed);
    }
}

/// Watches the decisions of one generation of a bundle until it is dropped.
#[derive(Debug)]
pub(crate) struct Watchdog {
    generation: u64,
    stuck: Arc<AtomicBool>,
    /// Dropping it ends the watchdog's thread.
    _stop: SyncSender<()>,
}

impl Watchdog {
    /// Starts watching. `name` is for the log: front and digest of the bundle.
    pub(crate) fn start(generation: u64, name: String) -> std::io::Result<Self> {
        let stuck = Arc::new(AtomicBool::new(false));
        let (stop, stopped) = sync_channel(1);
        let watcher = WatchdogThread {
            generation,
            name,
            stuck: Arc::clone(&stuck),
            seen: Vec::new(),
        };
        std::thread::Builder::new()
            .name("policy-watch".into())
            .stack_size(STACK_BYTES)
            .spawn(move || watcher.run(&stopped))?;
        Ok(Self {
            generation,
            stuck,
            _stop: stop,
        })
    }

    pub(crate) fn run<T>(&self, decide: impl FnOnce() -> T) -> T {
        SLOT.with(|slot| {
            // Relaxed is enough. A check that sees only one of the two stores takes the decision for another one, and
            // the next check corrects that.
            let sequence = slot.sequence.load(Ordering::Relaxed);
            slot.sequence.store(sequence.wrapping_add(1), Ordering::Relaxed);
            slot.generation.store(self.generation, Ordering::Relaxed);
            let _running = Running(slot);
            decide()
        })
    }

    pub(crate) fn is_stuck(&self) -> bool {
        self.stuck.load(Ordering::Relaxed)
    }
}

struct WatchdogThread {
    generation: u64,
    name: String,
    stuck: Arc<AtomicBool>,
    seen: Vec<SeenDecision>,
}

/// A decision that was running at the last check.
struct SeenDecision {
    slot: Weak<ThreadSlot>,
    sequence: u64,
    /// Checks after the first that found it.
    checks: u32,
    /// CPU time of its thread at the first.
    cpu_before: Option<Duration>,
}

impl WatchdogThread {
    fn run(mut self, stopped: &Receiver<()>) {
        while stopped.recv_timeout(INTERVAL) == Err(RecvTimeoutError::Timeout) {
            let stuck = self.finds_stuck_decision();
            match (self.stuck.swap(stuck, Ordering::Relaxed), stuck) {
                (false, true) => tracing::error!(
                    bundle = self.name,
                    "a decision of the policy has been running for more than {STUCK_AFTER:?} and cannot be stopped; \
                     every request the bundle would decide is denied until it comes back or another bundle is loaded"
                ),
                (true, false) => tracing::warn!(bundle = self.name, "the decision came back; the bundle decides again"),
                (false, false) | (true, true) => {}
            }
        }
    }

    fn finds_stuck_decision(&mut self) -> bool {
        let mut running = Vec::new();
        let mut is_stuck = false;
        // The lock is not held while clocks are read: a thread's first decision waits for it.
        let slots: Vec<_> = {
            let slots = SLOTS.lock().unwrap_or_else(PoisonError::into_inner);
            slots.iter().filter_map(Weak::upgrade).collect()
        };
        let is_ours = |slot: &Arc<ThreadSlot>| slot.generation.load(Ordering::Relaxed) == self.generation;
        for slot in slots.into_iter().filter(is_ours) {
            let (weak, sequence) = (Arc::downgrade(&slot), slot.sequence.load(Ordering::Relaxed));
            let mut seen = self.seen.iter();
            let before = seen.find(|seen| seen.slot.ptr_eq(&weak) && seen.sequence == sequence);
            let decision = SeenDecision {
                slot: weak,
                sequence,
                checks: before.map_or(0, |seen| seen.checks.saturating_add(1)),
                cpu_before: before.map_or_else(|| slot.cpu_clock.read(), |seen| seen.cpu_before),
            };
            is_stuck |= decision.is_stuck(&slot.cpu_clock);
            running.push(decision);
        }
        self.seen = running;
        is_stuck
    }
}

impl SeenDecision {
    /// Without a reading of the clock, the time of the checks counts.
    fn is_stuck(&self, cpu_clock: &CpuClock) -> bool {
        self.checks >= CHECKS_UNTIL_STUCK
            && match (self.cpu_before, cpu_clock.read()) {
                (Some(before), Some(now)) => now.saturating_sub(before) >= STUCK_CPU,
                _ => true,
            }
    }
}

#[cfg(test)]
mod tests;
