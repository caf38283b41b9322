//! The decision file: one JSON line for each decision, and one for each exchange that was ended
//! from outside later. Only the file's owner can read it.
//!
//! Invariant: no request waits for the disk, and every lost line is counted.

use std::fs::File;
use std::io::Write;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, OpenOptionsExt as _};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use prometheus_client::metrics::counter::Counter;
use rustix::fs::OFlags;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::{Record, Termination};

/// How often it is looked whether another file has taken the name, and failures are logged.
const PERIOD: Duration = Duration::from_secs(1);

/// Most bytes that are written at once.
const BATCH_BYTES: usize = 1 << 20;

/// The decision file cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("the decision file `{}` cannot be opened for appending", path.display())]
pub struct FileError {
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

#[derive(Debug)]
pub(super) enum WriterMessage {
    Record(Arc<Record>),
    Termination(Uuid, Termination),
    /// Answered when every line before it is written.
    Flush(oneshot::Sender<()>),
}

/// Appends records to `path` from a separate thread, until every sender is gone. Lines that
/// arrive together are written together. A file that was renamed or removed is replaced by a new one within
/// [`PERIOD`] of the next line.
pub(super) fn write_lines(
    path: &Path,
    messages: mpsc::Receiver<WriterMessage>,
    lost: Counter,
) -> Result<(), FileError> {
    let start = || {
        let writer = Writer::open(path.to_owned(), lost)?;
        let thread = std::thread::Builder::new().name("decisions".to_owned());
        thread.spawn(move || writer.run(messages)).map(drop)
    };
    start().map_err(|source| FileError {
        path: path.to_owned(),
        source,
    })
}

/// A line about the termination of an exchange that a decision in an earlier line had allowed.
#[derive(Debug, Serialize)]
struct TerminationView {
    decision_id: Uuid,
    ended: Termination,
}

#[derive(Debug)]
struct Writer {
    path: PathBuf,
    file: File,
    /// When it was last looked whether `path` still names `file`.
    checked_at: Instant,
    lost: Counter,
    /// Whether the file may end with a part of a line.
    is_torn: bool,
    logged_at: Option<Instant>,
}

/// The lines that are written together.
#[derive(Debug, Default)]
struct Batch {
    bytes: Vec<u8>,
    lines: u64,
    unwritable: u64,
    waiting: Vec<oneshot::Sender<()>>,
}

impl Batch {
    fn add(&mut self, message: WriterMessage) {
        let added = match message {
            WriterMessage::Record(record) => self.add_line(&*record),
            WriterMessage::Termination(decision_id, ended) => self.add_line(&TerminationView { decision_id, ended }),
            WriterMessage::Flush(done) => {
                self.waiting.push(done);
                return;
            }
        };
        match added {
            Ok(()) => self.lines = self.lines.saturating_add(1),
            Err(_) => self.unwritable = self.unwritable.saturating_add(1),
        }
    }

    fn add_line(&mut self, view: &impl Serialize) -> serde_json::Result<()> {
        let line = serde_json::to_vec(view)?;
        self.bytes.extend_from_slice(&line);
        self.bytes.push(b'\n');
        Ok(())
    }
}

impl Writer {
    fn open(path: PathBuf, lost: Counter) -> std::io::Result<Self> {
        Ok(Self {
            file: open(&path)?,
            path,
            checked_at: Instant::now(),
            lost,
            is_torn: false,
            logged_at: None,
        })
    }

    fn run(mut self, mut messages: mpsc::Receiver<WriterMessage>) {
        while let Some(message) = messages.blocking_recv() {
            let mut batch = Batch::default();
            batch.add(message);
            while batch.bytes.len() < BATCH_BYTES
                && let Ok(message) = messages.try_recv()
            {
                batch.add(message);
            }
            self.lost.inc_by(batch.unwritable);
            if let Err(error) = self.write(&batch.bytes) {
                self.lost.inc_by(batch.lines);
                self.log(&error);
            }
            for done in batch.waiting {
                // The caller may have given up.
                let _ = done.send(());
            }
        }
    }

    fn write(&mut self, bytes: &[u8]) -> std::io::Result<()> {
        if bytes.is_empty() {
            return Ok(());
        }
        if self.checked_at.elapsed() >= PERIOD {
            self.checked_at = Instant::now();
            self.reopen_if_replaced()?;
        }
        // The next line must not continue one of which only a part was written.
        if self.is_torn {
            self.file.write_all(b"\n")?;
        }
        self.is_torn = true;
        self.file.write_all(bytes)?;
        self.is_torn = false;
        Ok(())
    }

    /// Opens the file anew if `path` names another one or none: it was rotated.
    fn reopen_if_replaced(&mut self) -> std::io::Result<()> {
        let here = self.file.metadata()?;
        let is_same = match std::fs::metadata(&self.path) {
            Ok(there) => (there.dev(), there.ino()) == (here.dev(), here.ino()),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => false,
            Err(error) => return Err(error),
        };
        if !is_same {
            self.file = open(&self.path)?;
            self.is_torn = false;
        }
        Ok(())
    }

    /// A full disk fails each batch; at most one line in each [`PERIOD`] says so.
    fn log(&mut self, error: &std::io::Error) {
        if self.logged_at.is_none_or(|at| at.elapsed() >= PERIOD) {
            self.logged_at = Some(Instant::now());
            tracing::error!(
                path = %self.path.display(),
                %error,
                "decision lines could not be written; `tollgate_decision_lines_lost_total` counts them"
            );
        }
    }
}

/// Opens the file for appending, and creates it if it is not there.
fn open(path: &Path) -> std::io::Result<File> {
    let mut options = std::fs::OpenOptions::new();
    // A pipe that nobody reads is an error instead of a wait without end.
    let nonblocking = i32::try_from(OFlags::NONBLOCK.bits()).map_err(std::io::Error::other)?;
    let options = options.create(true).append(true).custom_flags(nonblocking);
    // Only the operator may know who called what.
    let file = options.mode(0o600).open(path)?;
    if file.metadata()?.file_type().is_fifo() {
        // Lines are written whole: the thread waits for the reader.
        let flags = rustix::fs::fcntl_getfl(&file)?;
        rustix::fs::fcntl_setfl(&file, flags - OFlags::NONBLOCK)?;
    }
    Ok(file)
}

#[cfg(test)]
mod tests;
