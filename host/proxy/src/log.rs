//! The log of the process: lines wait in a bounded queue for a separate thread that writes them to
//! standard error.
//!
//! Invariant: no thread that serves waits for standard error, and every lost line is counted.

use std::sync::OnceLock;

use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};

/// Most lines that may wait for standard error. Later ones are lost.
pub const QUEUE_LINES: usize = 4_096;

static LOST: OnceLock<ErrorCounter> = OnceLock::new();

/// Makes the writer of the process's log. Dropping the guard waits at most about a second for the lines
/// that are still queued.
pub fn stderr() -> (NonBlocking, WorkerGuard) {
    let (writer, guard) = NonBlockingBuilder::default()
        .lossy(true)
        .buffered_lines_limit(QUEUE_LINES)
        .thread_name("log")
        .finish(std::io::stderr());
    // The metric counts the lines of the first writer. A process makes one.
    let _ = LOST.set(writer.error_counter());
    (writer, guard)
}

/// How many lines were lost because standard error was not read fast enough.
pub fn lost_lines() -> u64 {
    let lost = LOST.get().map_or(0, ErrorCounter::dropped_lines);
    u64::try_from(lost).unwrap_or(u64::MAX)
}
