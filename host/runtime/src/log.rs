//! The log of the process: lines wait in a bounded queue for a separate thread that writes them to
//! standard error.
//!
//! Invariant: no thread that serves waits for standard error, and every lost line is counted.

use std::backtrace::{Backtrace, BacktraceStatus};
use std::io::{IsTerminal as _, Write as _};
use std::sync::OnceLock;

use tracing::Dispatch;
use tracing_appender::non_blocking::{ErrorCounter, NonBlocking, NonBlockingBuilder, WorkerGuard};
use tracing_subscriber::util::SubscriberInitExt as _;

/// Most lines that may wait for standard error. Later ones are lost.
pub const QUEUE_LINES: usize = 4_096;

static LOST: OnceLock<ErrorCounter> = OnceLock::new();

/// The log that runs until this is dropped, which waits at most about a second for the last lines.
#[derive(Debug)]
pub struct Log {
    writer: NonBlocking,
    _flush: WorkerGuard,
}

/// The form of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LineFormat {
    /// For people.
    Text,
    /// An object of JSON.
    Json,
}

/// Starts the log. From then on, nothing may write to standard error directly: such a write waits for
/// its reader.
///
/// # Errors
/// The filter is neither a level nor directives, or there is a log already.
pub fn start(filter: &str, format: LineFormat) -> Result<Log, String> {
    let directives =
        tracing_subscriber::EnvFilter::try_new(filter).map_err(|error| format!("`--log {filter}`: {error}"))?;
    let (writer, flush) = stderr();
    let lines = writer.clone();
    let builder = tracing_subscriber::fmt()
        .with_env_filter(directives)
        .with_ansi(std::io::stderr().is_terminal())
        .with_writer(move || lines.clone());
    let dispatch = match format {
        LineFormat::Json => Dispatch::new(builder.json().finish()),
        LineFormat::Text => Dispatch::new(builder.finish()),
    };
    dispatch.clone().try_init().map_err(|error| error.to_string())?;
    log_panics(dispatch);
    Ok(Log { writer, _flush: flush })
}

/// Has panics logged, in place of the standard library's message on standard error.
fn log_panics(dispatch: Dispatch) {
    std::panic::set_hook(Box::new(move |panic| {
        let backtrace = Backtrace::capture();
        let backtrace = (backtrace.status() == BacktraceStatus::Captured).then_some(backtrace);
        // A thread that must not log says at least where it panicked.
        tracing::dispatcher::with_default(&dispatch, || {
            let backtrace = backtrace.as_ref().map(tracing::field::display);
            tracing::error!(backtrace, "a bug of this program: {panic}");
        });
    }));
}

impl Log {
    /// Reports why the process ends, even if the log filter drops errors.
    pub fn fatal(&mut self, text: &str) {
        if tracing::enabled!(tracing::Level::ERROR) {
            tracing::error!("{text}");
        } else {
            // A full queue loses the line, as it loses any other.
            let _ = writeln!(self.writer, "tollgate: {text}");
        }
    }
}

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
