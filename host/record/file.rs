//! The decision file: one JSON line a decision.
//!
//! In: closed records. Out: lines appended to a file only its owner reads.
//! Never: a request that waits for the disk; a lost line that is not counted.

use std::io::Write;
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use prometheus_client::metrics::counter::Counter;
use tokio::sync::{mpsc, oneshot};

use super::{Record, View};

/// The decision file cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("the decision file `{}` cannot be opened for appending", path.display())]
pub struct FileError {
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

/// What the writer is handed.
#[derive(Debug)]
pub(super) enum Line {
    /// A record to append.
    Record(Arc<Record>),
    /// Answered when everything before is written.
    Flush(oneshot::Sender<()>),
}

/// Appends records to `path` from a thread of its own, until every sender is
/// gone. Lines that arrive together are written together.
pub(super) fn write_lines(path: &Path, mut lines: mpsc::Receiver<Line>, lost: Counter) -> Result<(), FileError> {
    // Who called what is nobody's business but the operator's.
    let open = || {
        std::fs::OpenOptions::new()
            .create(true)
            .append(true)
            .mode(0o600)
            .open(path)
    };
    let file = open().map_err(|source| FileError {
        path: path.to_owned(),
        source,
    })?;
    let path = path.to_owned();
    std::thread::Builder::new()
        .name("decisions".to_owned())
        .spawn({
            let path = path.clone();
            move || {
                let mut file = std::io::BufWriter::new(file);
                let mut waiting = Vec::new();
                while let Some(line) = lines.blocking_recv() {
                    let mut failed = None;
                    let mut next = Some(line);
                    while let Some(line) = next {
                        match line {
                            Line::Record(record) => {
                                if let Some(error) = write(&mut file, &record) {
                                    lost.inc();
                                    failed = Some(error);
                                }
                            }
                            Line::Flush(done) => waiting.push(done),
                        }
                        next = lines.try_recv().ok();
                    }
                    if let Some(error) = file.flush().err().or(failed) {
                        tracing::error!(path = %path.display(), %error, "a decision line could not be written");
                    }
                    for done in waiting.drain(..) {
                        // Whoever asked may have given up.
                        let _ = done.send(());
                    }
                }
            }
        })
        .map_err(|source| FileError { path, source })?;
    Ok(())
}

fn write(file: &mut impl Write, record: &Record) -> Option<std::io::Error> {
    let mut line = match serde_json::to_vec(&View::of(record)) {
        Ok(line) => line,
        Err(error) => return Some(error.into()),
    };
    line.push(b'\n');
    file.write_all(&line).err()
}
