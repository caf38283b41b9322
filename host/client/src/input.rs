//! Reads the files that commands are given, with a bound on their size, and asks the user for
//! confirmation. It asks only on a terminal.

use std::io::{self, BufRead as _, IsTerminal as _, Read, Write as _};
use std::path::Path;

use crate::failure::Failure;

pub(crate) fn read_text(source: impl Read, most: u64) -> io::Result<String> {
    let mut text = String::new();
    let read = source.take(most.saturating_add(1)).read_to_string(&mut text)?;
    if read as u64 > most {
        return Err(io::Error::other(format!("it has more than {most} bytes")));
    }
    Ok(text)
}

/// Reads a file, or standard input if its name is `-`.
pub fn read_file_or_stdin(path: &Path, most: u64) -> io::Result<String> {
    if path == Path::new("-") {
        return read_text(io::stdin().lock(), most);
    }
    read_text(std::fs::File::open(path)?, most)
}

/// Asks the user to confirm with `y` or `yes`.
///
/// - `code`: of the failure.
/// - `declined`: its message if the user does not confirm.
///
/// # Errors
/// Standard input is not a terminal, or the user does not confirm.
pub fn confirm(question: &str, code: &str, declined: &str) -> Result<(), Failure> {
    let stdin = io::stdin();
    if !stdin.is_terminal() {
        let message = format!("standard input is not a terminal, so nobody can confirm: {question}");
        return Err(Failure::new(code, message).with_hint("`--yes` agrees"));
    }
    // If this fails, the answer is not read, and nothing is done.
    let asked = write!(io::stderr(), "{question} [y/N] ");
    let mut answer = String::new();
    let read = asked.and_then(|()| stdin.lock().read_line(&mut answer));
    let agreed = matches!(answer.trim().to_ascii_lowercase().as_str(), "y" | "yes");
    if read.is_ok() && agreed {
        return Ok(());
    }
    Err(Failure::new(code, declined))
}
