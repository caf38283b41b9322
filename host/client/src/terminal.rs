//! Escapes text for a terminal.
//!
//! Names, messages and documents that commands print come from servers, plugins and files that
//! others wrote. A control character among them could move the cursor, set the clipboard or hide
//! what stands before it.
//!
//! Security: everything a command prints goes through [`Terminal`] or `escape_block`.

use std::borrow::Cow;
use std::io::{self, Write};

const REPLACEMENT: char = '?';

/// The only escape sequences that pass: the colors of diffs, and their end.
const COLORS: [&str; 4] = ["\u{1b}[31m", "\u{1b}[32m", "\u{1b}[36m", "\u{1b}[0m"];

/// Whether a terminal could act on a character instead of showing it: C0 and C1
/// controls, line separators, and marks that change the direction of text (Unicode
/// Technical Report 36, section 2.8).
pub(crate) fn is_unsafe(letter: char) -> bool {
    letter.is_control()
        || matches!(letter, '\u{61c}' | '\u{200e}' | '\u{200f}' | '\u{2028}'..='\u{202e}' | '\u{2066}'..='\u{2069}')
}

/// Escapes a text for one line, or for a cell of a table.
pub fn escape_line(text: &str) -> Cow<'_, str> {
    replaced(text, is_unsafe)
}

/// Escapes a text of several lines; keeps line breaks and tabs.
pub(crate) fn escape_block(text: &str) -> Cow<'_, str> {
    replaced(text, |letter| is_unsafe(letter) && !matches!(letter, '\n' | '\t'))
}

fn replaced(text: &str, is_refused: impl Fn(char) -> bool + Copy) -> Cow<'_, str> {
    if !text.contains(is_refused) {
        return Cow::Borrowed(text);
    }
    let shown = |letter| if is_refused(letter) { REPLACEMENT } else { letter };
    text.chars().map(shown).collect::<String>().into()
}

/// Escapes a JSON document without changing its meaning. JSON itself escapes only C0 controls.
pub(crate) fn escape_json(document: String) -> String {
    let is_refused = |letter: char| is_unsafe(letter) && letter != '\n';
    if !document.contains(is_refused) {
        return document;
    }
    let mut text = String::with_capacity(document.len() + 16);
    for letter in document.chars() {
        if is_refused(letter) {
            // None of them is beyond the Basic Multilingual Plane, where JSON needs a pair.
            text.push_str(&format!("\\u{:04x}", u32::from(letter)));
        } else {
            text.push(letter);
        }
    }
    text
}

/// Standard output or standard error, with unsafe characters replaced.
///
/// A reader that goes away (`| head -1`) is not an error: later output is dropped. Only
/// [`Write::flush`] reports it, so that a command that runs forever can end.
#[derive(Debug)]
pub struct Terminal<W> {
    inner: W,
    /// The first bytes of a character whose rest was not written yet.
    partial: Vec<u8>,
    is_closed: bool,
}

impl<W: Write> Terminal<W> {
    /// A writer of what `inner` shows.
    pub fn new(inner: W) -> Self {
        Self {
            inner,
            partial: Vec::new(),
            is_closed: false,
        }
    }
}

impl<W: Write> Write for Terminal<W> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        if self.is_closed {
            return Ok(bytes.len());
        }
        self.partial.extend_from_slice(bytes);
        let whole = match std::str::from_utf8(&self.partial) {
            Err(error) if error.error_len().is_none() => error.valid_up_to(),
            Ok(_) | Err(_) => self.partial.len(),
        };
        let rest = self.partial.split_off(whole);
        let complete = std::mem::replace(&mut self.partial, rest);
        match self
            .inner
            .write_all(colored(&String::from_utf8_lossy(&complete)).as_bytes())
        {
            Err(error) if error.kind() == io::ErrorKind::BrokenPipe => self.is_closed = true,
            done => done?,
        }
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        if self.is_closed {
            return Err(io::ErrorKind::BrokenPipe.into());
        }
        self.inner.flush()
    }
}

/// The columns of the terminal that standard output is; `None` if it is none.
pub(crate) fn width() -> Option<usize> {
    let (terminal_size::Width(columns), _) = terminal_size::terminal_size_of(io::stdout())?;
    Some(columns.into())
}

/// As [`escape_block`], but keeps [`COLORS`].
fn colored(text: &str) -> Cow<'_, str> {
    if !text.contains('\u{1b}') {
        return escape_block(text);
    }
    let mut shown = String::with_capacity(text.len());
    let mut rest = text;
    while let Some((before, after)) = rest.split_once('\u{1b}') {
        shown.push_str(&escape_block(before));
        let color = COLORS
            .iter()
            .find_map(|color| Some((color, after.strip_prefix(color.strip_prefix('\u{1b}')?)?)));
        rest = match color {
            Some((color, after)) => {
                shown.push_str(color);
                after
            }
            None => {
                shown.push(REPLACEMENT);
                after
            }
        };
    }
    shown.push_str(&escape_block(rest));
    shown.into()
}

#[cfg(test)]
mod tests {
    use std::io::{self, Write};

    use super::{Terminal, escape_block, escape_json, escape_line};

    #[test]
    fn control_characters_are_replaced() {
        for hostile in [
            "\u{1b}]52;c;eA==\u{7}",
            "\u{9b}2J",
            "a\rb",
            "\u{202e}gpj",
            "\u{7f}",
            "\u{2028}",
        ] {
            assert!(escape_line(hostile).contains('?') && !escape_line(hostile).chars().any(super::is_unsafe));
            assert!(!escape_block(hostile).chars().any(super::is_unsafe), "{hostile:?}");
            let quoted = escape_json(serde_json::to_string(hostile).unwrap());
            assert!(!quoted.chars().any(super::is_unsafe), "{quoted:?}");
            assert_eq!(serde_json::from_str::<String>(&quoted).unwrap(), hostile);
        }
        assert_eq!((&*escape_line("a\nb"), &*escape_block("a\n\tb")), ("a?b", "a\n\tb"));
        assert_eq!(escape_line("héllo, 世界"), "héllo, 世界");
    }

    fn written(parts: &[&[u8]]) -> String {
        let mut out = Vec::new();
        let mut terminal = Terminal::new(&mut out);
        for part in parts {
            terminal.write_all(part).unwrap();
        }
        String::from_utf8(out).unwrap()
    }

    #[test]
    fn only_color_sequences_pass() {
        let text = "\u{1b}[32m+a\u{1b}[0m\n\u{1b}]52;c;eA==\u{7}\u{1b}[2J\u{1b}";
        assert_eq!(written(&[text.as_bytes()]), "\u{1b}[32m+a\u{1b}[0m\n?]52;c;eA==??[2J?");
    }

    #[test]
    fn a_character_may_be_split_across_writes() {
        // U+009B, a control sequence introducer, and U+00E9, a letter.
        assert_eq!(written(&[b"a\xc2", b"\x9b2J\xc3", b"\xa9", b"\xff"]), "a?2Jé\u{fffd}");
    }

    #[test]
    fn a_closed_pipe_is_not_a_write_error() {
        struct ClosedPipe;
        impl Write for ClosedPipe {
            fn write(&mut self, _: &[u8]) -> io::Result<usize> {
                Err(io::ErrorKind::BrokenPipe.into())
            }
            fn flush(&mut self) -> io::Result<()> {
                Ok(())
            }
        }
        let mut terminal = Terminal::new(ClosedPipe);
        assert!(terminal.write_all(b"a").is_ok() && terminal.write_all(b"b").is_ok());
        assert_eq!(terminal.flush().unwrap_err().kind(), io::ErrorKind::BrokenPipe);
    }
}
