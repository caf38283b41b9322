//! Checks the framing of HTTP/1.1 requests before the parser sees them, regardless of the pieces in
//! which the bytes arrive, and finds where the first refused line begins.
//!
//! Refused: content length and transfer coding together, either of them twice,
//! codings other than `chunked`, lines not ended by CR LF, CR inside a line,
//! folded lines, blanks before the colon, malformed chunk sizes; and the preface
//! of HTTP/2 where HTTP/1.1 is spoken.
//!
//! Security: a request is never repaired. RFC 9112 lets a server repair much of this, and
//! then proxies and servers disagree on where a request ends.

/// Begins the preface of HTTP/2. Source: RFC 9113, section 3.4.
const HTTP2_LINE: &[u8] = b"PRI * HTTP/2.0";

const CONNECT: &[u8] = b"CONNECT ";

/// Bytes of a chunk-size line with its extensions.
const CHUNK_LINE_BYTES: usize = 4096;

/// Hexadecimal digits of a chunk size: 2^60 bytes and more are refused.
const CHUNK_DIGITS: usize = 15;

const LENGTH_DIGITS: usize = 18;

#[derive(Debug)]
pub(super) struct FramingValidator {
    state: State,
    framing: Framing,
    /// The start of a line whose end has not arrived.
    partial: Vec<u8>,
    line_bytes: usize,
    heads: u64,
    /// Number of heads that ended before one whose fields were refused and whose request line was
    /// valid. `None` if something else was refused, or nothing.
    pub(super) refused_fields: Option<u64>,
}

/// What the next byte is part of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum State {
    RequestLine,
    Field,
    Content(u64),
    ChunkSize,
    Chunk(u64),
    ChunkEnd,
    Trailer,
    /// Longer than the parser accepts, or another protocol. Not checked.
    Unchecked,
    Refused,
}

#[derive(Clone, Copy, Debug, Default)]
struct Framing {
    length: Option<u64>,
    chunked: bool,
    /// The head asks for another protocol after it, by `Upgrade` or `CONNECT`.
    upgrade: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum RequestPhase {
    /// No byte of the next request arrived.
    Between,
    /// A head has started and not ended.
    Head,
    Other,
}

impl FramingValidator {
    /// - `line_bytes`: longest line that is checked. A head with a longer line is left to the
    ///   parser, which refuses heads of that size.
    pub(super) fn new(line_bytes: usize) -> Self {
        Self {
            state: State::RequestLine,
            framing: Framing::default(),
            partial: Vec::new(),
            line_bytes,
            heads: 0,
            refused_fields: None,
        }
    }

    pub(super) fn phase(&self) -> RequestPhase {
        match self.state {
            State::RequestLine if self.partial.is_empty() => RequestPhase::Between,
            State::RequestLine | State::Field => RequestPhase::Head,
            _ => RequestPhase::Other,
        }
    }

    /// Checks the next bytes.
    ///
    /// # Errors
    /// The offset in `bytes` up to which they may be passed on; everything
    /// after is refused, for good.
    pub(super) fn scan(&mut self, bytes: &[u8]) -> Result<(), usize> {
        let mut rest = bytes;
        while !rest.is_empty() {
            let passed = bytes.len() - rest.len();
            let Some(next) = self.step(rest) else {
                self.refused_fields = (self.state == State::Field).then_some(self.heads);
                self.state = State::Refused;
                return Err(passed);
            };
            rest = next;
        }
        Ok(())
    }

    /// Checks one line or piece of content, and returns what follows it.
    fn step<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        match self.state {
            State::Unchecked => Some(&[]),
            State::Refused => None,
            State::Content(left) => {
                let (left, rest) = skip(left, bytes);
                self.state = if left == 0 { self.begin() } else { State::Content(left) };
                Some(rest)
            }
            State::Chunk(left) => {
                let (left, rest) = skip(left, bytes);
                self.state = if left == 0 { State::ChunkEnd } else { State::Chunk(left) };
                Some(rest)
            }
            State::RequestLine | State::Field | State::ChunkSize | State::ChunkEnd | State::Trailer => {
                self.take_line(bytes)
            }
        }
    }

    fn take_line<'a>(&mut self, bytes: &'a [u8]) -> Option<&'a [u8]> {
        let end = memchr::memchr(b'\n', bytes);
        // Checked before anything is kept, so `partial` cannot exceed the bound.
        if self.partial.len() + end.unwrap_or(bytes.len()) > self.max_line_bytes() {
            return self.too_long();
        }
        let Some(end) = end else {
            self.partial.extend_from_slice(bytes);
            return Some(&[]);
        };
        let (line, rest) = bytes.split_at_checked(end)?;
        let rest = rest.get(1..)?;
        if self.partial.is_empty() {
            self.line(line)?;
        } else {
            let mut whole = std::mem::take(&mut self.partial);
            whole.extend_from_slice(line);
            self.line(&whole)?;
            // The allocation is used again by the next line that arrives in pieces.
            whole.clear();
            self.partial = whole;
        }
        Some(rest)
    }

    /// Bytes of a line before its LF.
    fn max_line_bytes(&self) -> usize {
        match self.state {
            State::ChunkSize => CHUNK_LINE_BYTES,
            State::ChunkEnd => 1,
            _ => self.line_bytes,
        }
    }

    fn too_long(&mut self) -> Option<&'static [u8]> {
        if !matches!(self.state, State::RequestLine | State::Field) {
            return None;
        }
        // The parser's own bound is the same and answers 431.
        self.state = State::Unchecked;
        self.partial = Vec::new();
        Some(&[])
    }

    fn line(&mut self, line: &[u8]) -> Option<()> {
        // RFC 9112, section 2.2, lets a reader take a bare LF as the end of a line, or not.
        let line = line.strip_suffix(b"\r")?;
        // A bare CR is a blank to some readers, and the end of a line to others.
        if memchr::memchr(b'\r', line).is_some() {
            return None;
        }
        self.state = match (self.state, line.is_empty()) {
            // RFC 9112, section 2.2: an empty line before a request is ignored.
            (State::RequestLine, true) => State::RequestLine,
            // Another protocol's first line, which the parser would not answer.
            (State::RequestLine, false) if line == HTTP2_LINE => return None,
            (State::RequestLine, false) => {
                self.framing.upgrade = line.starts_with(CONNECT);
                State::Field
            }
            (State::Field, true) => self.content(),
            (State::Field, false) => {
                let (name, value) = field(line)?;
                self.framing.note(name, value)?;
                State::Field
            }
            (State::ChunkSize, _) => match chunk_size(line)? {
                0 => State::Trailer,
                size => State::Chunk(size),
            },
            (State::ChunkEnd, true) => State::ChunkSize,
            (State::Trailer, true) => self.begin(),
            (State::Trailer, false) => {
                field(line)?;
                State::Trailer
            }
            (State::ChunkEnd, false) => return None,
            (state @ (State::Content(_) | State::Chunk(_) | State::Unchecked | State::Refused), _) => state,
        };
        Some(())
    }

    fn begin(&mut self) -> State {
        self.framing = Framing::default();
        State::RequestLine
    }

    fn content(&mut self) -> State {
        self.heads += 1;
        match self.framing {
            // The server closes the connection unless the protocol is switched or a tunnel opened.
            Framing { upgrade: true, .. } => State::Unchecked,
            Framing { chunked: true, .. } => State::ChunkSize,
            Framing {
                length: Some(length), ..
            } if length > 0 => State::Content(length),
            Framing { .. } => self.begin(),
        }
    }
}

impl Framing {
    fn note(&mut self, name: &[u8], value: &[u8]) -> Option<()> {
        match name.len() {
            14 if name.eq_ignore_ascii_case(b"content-length") => {
                // RFC 9112, section 6.3, lets a recipient use one of them, and the upstream may use the other.
                if self.length.is_some() || self.chunked {
                    return None;
                }
                self.length = Some(length(value)?);
            }
            17 if name.eq_ignore_ascii_case(b"transfer-encoding") => {
                if self.length.is_some() || self.chunked || !value.eq_ignore_ascii_case(b"chunked") {
                    return None;
                }
                self.chunked = true;
            }
            7 if name.eq_ignore_ascii_case(b"upgrade") => self.upgrade = true,
            _ => {}
        }
        Some(())
    }
}

/// Name and trimmed value of a field line.
fn field(line: &[u8]) -> Option<(&[u8], &[u8])> {
    let colon = memchr::memchr(b':', line)?;
    let (name, value) = line.split_at_checked(colon)?;
    let blank = |byte: Option<&u8>| matches!(byte, None | Some(b' ' | b'\t'));
    // A blank first folds the line into the one before; a blank before the colon makes another name to some
    // readers. Source: RFC 9112, sections 5.1 and 5.2.
    if blank(name.first()) || blank(name.last()) {
        return None;
    }
    Some((name, value.get(1..)?.trim_ascii()))
}

fn length(value: &[u8]) -> Option<u64> {
    // Digits only: some parsers take `+3` or `3, 3` as well, and others fail or read another number.
    let digits = !value.is_empty() && value.len() <= LENGTH_DIGITS && value.iter().all(u8::is_ascii_digit);
    digits.then(|| {
        value
            .iter()
            .fold(0, |length, digit| length * 10 + u64::from(digit - b'0'))
    })
}

fn chunk_size(line: &[u8]) -> Option<u64> {
    // Unknown extensions have to be ignored. Source: RFC 9112, section 7.1.1.
    let size = line.split(|byte| *byte == b';').next()?;
    if size.is_empty() || size.len() > CHUNK_DIGITS {
        return None;
    }
    size.iter().try_fold(0, |sum, digit| {
        Some(sum * 16 + u64::from(char::from(*digit).to_digit(16)?))
    })
}

/// Steps over content: what is left of it, and what follows.
fn skip(left: u64, bytes: &[u8]) -> (u64, &[u8]) {
    match usize::try_from(left).ok().and_then(|left| bytes.split_at_checked(left)) {
        Some((_, rest)) => (0, rest),
        None => (left.saturating_sub(u64::try_from(bytes.len()).unwrap_or(u64::MAX)), &[]),
    }
}

#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
