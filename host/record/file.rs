//! The decision file: one JSON line a decision.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use tokio::sync::mpsc;

use super::{Record, View};

/// The decision file cannot be opened.
#[derive(Debug, thiserror::Error)]
#[error("the decision file `{}` cannot be opened for appending", path.display())]
pub struct FileError {
    path: PathBuf,
    #[source]
    source: std::io::Error,
}

/// Appends records to `path` from a thread of its own, until every sender is
/// gone. Lines that arrive together are written together.
pub(super) fn write_lines(path: &Path, mut records: mpsc::Receiver<Arc<Record>>) -> Result<(), FileError> {
    let open = || std::fs::OpenOptions::new().create(true).append(true).open(path);
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
                while let Some(record) = records.blocking_recv() {
                    let mut failed = write(&mut file, &record);
                    while let Ok(record) = records.try_recv() {
                        failed = write(&mut file, &record).or(failed);
                    }
                    if let Some(error) = file.flush().err().or(failed) {
                        tracing::error!(path = %path.display(), %error, "a decision line could not be written");
                    }
                }
            }
        })
        .map_err(|source| FileError { path, source })?;
    Ok(())
}

fn write(file: &mut impl Write, record: &Record) -> Option<std::io::Error> {
    let mut line = serde_json::to_vec(&View::of(record)).ok()?;
    line.push(b'\n');
    file.write_all(&line).err()
}
