//! Reads the files that commands are given, with a bound on their size.

use std::io::{self, Read};
use std::path::Path;

pub(crate) fn read_text(source: impl Read, most: u64) -> io::Result<String> {
    let mut text = String::new();
    let read = source.take(most.saturating_add(1)).read_to_string(&mut text)?;
    if read as u64 > most {
        return Err(io::Error::other(format!("it has more than {most} bytes")));
    }
    Ok(text)
}

/// Reads a file, or standard input if its name is `-`.
pub(crate) fn read_file_or_stdin(path: &Path, most: u64) -> io::Result<String> {
    if path == Path::new("-") {
        return read_text(io::stdin().lock(), most);
    }
    read_text(std::fs::File::open(path)?, most)
}
