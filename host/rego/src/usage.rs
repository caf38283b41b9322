//! Counts the memory and the time of the decision that a thread makes.

use std::cell::Cell;
use std::time::{Duration, Instant};

use crate::limits::MAX_MEMORY_BYTES;

thread_local! {
    static USAGE: Cell<Usage> = const { Cell::new(Usage { start: 0, deadline: None, exceeded: None }) };
}

/// What the decision that a thread makes has used.
#[derive(Clone, Copy)]
struct Usage {
    /// Bytes that the thread had allocated when the decision started.
    start: i64,
    deadline: Option<Instant>,
    /// The bound that ended the decision.
    exceeded: Option<Exceeded>,
}

/// A bound that a decision exceeded.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Exceeded {
    /// Bytes beyond the start.
    Memory(u64),
    Time,
}

/// Starts to count the memory and the time of a decision on this thread.
///
/// - `limit`: wall time.
pub(crate) fn start(limit: Duration) {
    USAGE.set(Usage {
        start: regorus_mimalloc::current_thread_live_bytes(),
        deadline: Instant::now().checked_add(limit),
        exceeded: None,
    });
}

/// Bytes that are allocated now beyond those at the start of the decision.
pub(crate) fn memory() -> u64 {
    let now = regorus_mimalloc::current_thread_live_bytes().saturating_sub(USAGE.get().start);
    u64::try_from(now).unwrap_or(0)
}

/// The bound that the decision on this thread exceeded, if it did. Also counts what is allocated now.
pub(crate) fn exceeded() -> Option<Exceeded> {
    let now = memory();
    let exceeded = USAGE.get().exceeded;
    exceeded.or((now > MAX_MEMORY_BYTES).then_some(Exceeded::Memory(now)))
}

/// Whether the decision on this thread has kept its bounds. Remembers one that it exceeded.
pub(crate) fn is_within_bounds() -> bool {
    let exceeded = exceeded();
    if exceeded.is_some() {
        USAGE.set(Usage {
            exceeded,
            ..USAGE.get()
        });
    }
    exceeded.is_none()
}

/// Whether the decision still has time. A function that takes long asks, because the engine looks at the
/// clock only between expressions.
pub(crate) fn has_time() -> bool {
    let usage = USAGE.get();
    let has_time = usage.deadline.is_none_or(|deadline| Instant::now() <= deadline);
    if !has_time && usage.exceeded.is_none() {
        USAGE.set(Usage {
            exceeded: Some(Exceeded::Time),
            ..usage
        });
    }
    has_time
}
