//! The decision file: one JSON line for each decision, and one for each exchange that was ended
//! from outside later. Only the file's owner can read it.
//!
//! Invariant: no request waits for the disk, and every lost line is counted.

use std::io::{BufWriter, Write};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use serde::Serialize;
use tokio::sync::{mpsc, oneshot};
use uuid::Uuid;

use super::{Record, Termination};

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
/// arrive together are written together.
pub(super) fn write_lines(
    path: &Path,
    mut messages: mpsc::Receiver<WriterMessage>,
    lost: Counter,
) -> Result<(), FileError> {
    let path = path.to_owned();
    let start = |path: PathBuf| {
        // Only the operator may know who called what.
        let mut options = std::fs::OpenOptions::new();
        let mut file = BufWriter::new(options.create(true).append(true).mode(0o600).open(&path)?);
        let write_all = move || {
            let mut waiting = Vec::new();
            while let Some(message) = messages.blocking_recv() {
                let mut failed = None;
                let mut next = Some(message);
                while let Some(message) = next {
                    let written = match message {
                        WriterMessage::Record(record) => write(&mut file, &record),
                        WriterMessage::Termination(decision_id, ended) => {
                            write(&mut file, &TerminationView { decision_id, ended })
                        }
                        WriterMessage::Flush(done) => {
                            waiting.push(done);
                            Ok(())
                        }
                    };
                    if let Err(error) = written {
                        lost.inc();
                        failed = Some(error);
                    }
                    next = messages.try_recv().ok();
                }
                if let Some(error) = file.flush().err().or(failed) {
                    tracing::error!(path = %path.display(), %error, "a decision line could not be written");
                }
                for done in waiting.drain(..) {
                    // The caller may have given up.
                    let _ = done.send(());
                }
            }
        };
        std::thread::Builder::new()
            .name("decisions".to_owned())
            .spawn(write_all)
    };
    match start(path.clone()) {
        Ok(_) => Ok(()),
        Err(source) => Err(FileError { path, source }),
    }
}

/// A line about the termination of an exchange that a decision in an earlier line had allowed.
#[derive(Debug, Serialize)]
struct TerminationView {
    decision_id: Uuid,
    ended: Termination,
}

fn write(file: &mut impl Write, view: &impl Serialize) -> std::io::Result<()> {
    let mut line = serde_json::to_vec(view)?;
    line.push(b'\n');
    file.write_all(&line)
}
