//! Splits a template into tokens with their positions, as Go's lexer does.
//!
//! Source: the package documentation of Go's text/template, "Text and spaces" and "Actions", and
//! the behavior of Go 1.26.

use alloc::format;
use alloc::string::{String, ToString as _};
use alloc::vec::Vec;
use core::ops::Range;

use crate::error::{Code, Error, Position};
use crate::literal;

/// A token and its start.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Token {
    pub(crate) kind: Kind,
    pub(crate) at: Position,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// Text between actions, with the range it had before trimming.
    Text(String, Range<usize>),
    /// `{{`
    Open,
    /// `}}`
    Close,
    Space,
    /// `name`: a function, a keyword, `true` or `false`.
    Word(String),
    /// `.` alone.
    Dot,
    /// `.name`, without the dot.
    Field(String),
    /// `$name`, without the dollar; empty for `$`.
    Variable(String),
    /// A string, unquoted.
    Literal(String),
    /// `:=`
    Declare,
    /// `=`
    Assign,
    Pipe,
    OpenParen,
    CloseParen,
    /// Any other printable character. No action may contain one.
    Other(char),
}

/// Line and column of the byte `offset`.
pub(crate) fn position(source: &str, offset: usize) -> Position {
    let before = source.get(..offset).unwrap_or(source);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().unwrap_or_default().chars().count() + 1;
    Position { line, column }
}

/// All tokens of `source`.
///
/// # Errors
/// An action, comment, string or parenthesis that does not end, a number, or a character that is
/// not allowed.
pub(crate) fn lex(source: &str) -> Result<Vec<Token>, Error> {
    let mut lexer = Lexer {
        source,
        at: 0,
        reached: (0, Position { line: 1, column: 1 }),
        tokens: Vec::new(),
    };
    let mut trim = Trim::No;
    while lexer.at < source.len() {
        let Some(length) = lexer.rest().find("{{") else {
            lexer.text(source.len(), trim, Trim::No);
            break;
        };
        let open = lexer.at + length;
        let after = lexer.source.get(open + 2..).unwrap_or_default();
        let left = if starts_marker(after) { Trim::Yes } else { Trim::No };
        lexer.text(open, trim, left);
        trim = lexer.action(open, left)?;
    }
    Ok(lexer.tokens)
}

/// Whether a trim marker removes the white space at one end of a text.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Trim {
    Yes,
    No,
}

const SPACES: [char; 4] = [' ', '\t', '\r', '\n'];

fn starts_marker(text: &str) -> bool {
    text.strip_prefix('-').is_some_and(|rest| rest.starts_with(SPACES))
}

struct Lexer<'a> {
    source: &'a str,
    at: usize,
    /// Start of the last token, as a byte offset and as a position. Counting continues from here.
    reached: (usize, Position),
    tokens: Vec<Token>,
}

impl<'a> Lexer<'a> {
    fn rest(&self) -> &'a str {
        self.source.get(self.at..).unwrap_or_default()
    }

    fn push(&mut self, kind: Kind, start: usize) {
        let (reached, mut at) = self.reached;
        for character in self.source.get(reached..start).unwrap_or_default().chars() {
            if character == '\n' {
                at.line += 1;
                at.column = 1;
            } else {
                at.column += 1;
            }
        }
        self.reached = (start, at);
        self.tokens.push(Token { kind, at });
    }

    fn fail<T>(&self, code: Code, offset: usize, text: impl Into<String>) -> Result<T, Error> {
        Err(Error::new(code, position(self.source, offset), text))
    }

    /// Takes the text up to the byte offset `end`.
    fn text(&mut self, end: usize, before: Trim, after: Trim) {
        let start = self.at;
        let mut text = self.source.get(start..end).unwrap_or_default();
        if before == Trim::Yes {
            text = text.trim_start_matches(SPACES);
        }
        if after == Trim::Yes {
            text = text.trim_end_matches(SPACES);
        }
        if start < end {
            self.push(Kind::Text(text.to_string(), start..end), start);
        }
        self.at = end;
    }

    /// Takes the action or comment that starts at the byte offset `open`. Returns whether the text
    /// after it is trimmed.
    fn action(&mut self, open: usize, left: Trim) -> Result<Trim, Error> {
        let marker = if left == Trim::Yes { 2 } else { 0 };
        self.at = open + 2 + marker;
        if self.rest().starts_with("/*") {
            let Some(length) = self.rest().find("*/") else {
                return self.fail(Code::Syntax, open, "this comment has no `*/`");
            };
            self.at += length + 2;
            return match self.close() {
                Some(trim) => Ok(trim),
                None => self.fail(Code::Syntax, self.at, "a comment ends with `*/}}`, or `*/ -}}` to trim"),
            };
        }
        self.push(Kind::Open, open);
        let mut parentheses = 0_usize;
        loop {
            let start = self.at;
            if let Some(trim) = self.close() {
                if parentheses > 0 {
                    return self.fail(Code::Syntax, start, "`(` without `)` before the end of the action");
                }
                self.push(Kind::Close, start);
                return Ok(trim);
            }
            let Some(character) = self.rest().chars().next() else {
                return self.fail(Code::Syntax, open, "this `{{` has no `}}`");
            };
            match character {
                '(' => parentheses += 1,
                ')' if parentheses == 0 => return self.fail(Code::Syntax, start, "`)` without `(`"),
                ')' => parentheses -= 1,
                _ => {}
            }
            self.token(character)?;
        }
    }

    /// Takes `}}` or ` -}}`.
    fn close(&mut self) -> Option<Trim> {
        let rest = self.rest();
        if rest.starts_with("}}") {
            self.at += 2;
            return Some(Trim::No);
        }
        if rest.strip_prefix(SPACES)?.starts_with("-}}") {
            self.at += 4;
            return Some(Trim::Yes);
        }
        None
    }

    /// Takes the token that begins with `first`.
    fn token(&mut self, first: char) -> Result<(), Error> {
        let start = self.at;
        let next = self.rest().chars().nth(1);
        match first {
            ' ' | '\t' | '\r' | '\n' => {
                self.spaces();
                self.push(Kind::Space, start);
            }
            '=' => self.single(Kind::Assign),
            ':' if next == Some('=') => {
                self.at += 2;
                self.push(Kind::Declare, start);
            }
            ':' => return self.fail(Code::Syntax, start, "`:` stands only in `:=`"),
            '|' => self.single(Kind::Pipe),
            '(' => self.single(Kind::OpenParen),
            ')' => self.single(Kind::CloseParen),
            '"' | '`' => self.literal(first)?,
            '$' => {
                self.at += 1;
                let name = self.name()?;
                self.push(Kind::Variable(name), start);
            }
            '.' if !next.is_some_and(|next| next.is_ascii_digit()) => {
                self.at += 1;
                let name = self.name()?;
                let kind = if name.is_empty() { Kind::Dot } else { Kind::Field(name) };
                self.push(kind, start);
            }
            '.' | '+' | '-' | '\'' | '0'..='9' => {
                return self.fail(
                    Code::Unsupported,
                    start,
                    "numbers and characters are no values here; write a string, `\"1\"`",
                );
            }
            _ if is_name(first) => {
                let name = self.name()?;
                self.push(Kind::Word(name), start);
            }
            _ if first.is_ascii_graphic() => self.single(Kind::Other(first)),
            _ => {
                let text = format!("character U+{:04X} may not stand in an action", u32::from(first));
                return self.fail(Code::Syntax, start, text);
            }
        }
        Ok(())
    }

    fn single(&mut self, kind: Kind) {
        let start = self.at;
        self.at += 1;
        self.push(kind, start);
    }

    /// Takes white space, except the space that belongs to ` -}}`.
    fn spaces(&mut self) {
        while self.rest().starts_with(SPACES) {
            let marker = self.rest().get(1..).is_some_and(|rest| rest.starts_with("-}}"));
            if marker {
                break;
            }
            self.at += 1;
        }
    }

    /// Takes letters, digits and `_`. The next character must be one that can follow a name.
    fn name(&mut self) -> Result<String, Error> {
        let rest = self.rest();
        let end = rest.find(|character| !is_name(character)).unwrap_or(rest.len());
        let (name, after) = rest.split_at(end);
        self.at += end;
        let ends = after.is_empty()
            || after.starts_with(SPACES)
            || after.starts_with(['.', ',', '|', ':', ')', '('])
            || after.starts_with("}}");
        if ends {
            return Ok(name.to_string());
        }
        let character = after.chars().next().unwrap_or_default();
        if character == '}' {
            return self.fail(Code::Syntax, self.at, "one `}` does not end an action; write `}}`");
        }
        self.fail(
            Code::Syntax,
            self.at,
            format!(
                "`{character}` cannot be part of a name; a value whose key has other characters than \
                 letters, digits and `_` is written `{{{{ index . \"key\" }}}}`"
            ),
        )
    }

    fn literal(&mut self, quote: char) -> Result<(), Error> {
        let start = self.at;
        let Some((inner, length)) = literal::take(self.rest(), quote) else {
            return self.fail(Code::Syntax, start, "this string does not end");
        };
        let text = if quote == '`' {
            // As in Go source, carriage returns in raw strings are dropped.
            inner.replace('\r', "")
        } else {
            match literal::unquote(inner) {
                Ok(text) => text,
                Err(literal::Error { offset, message }) => return self.fail(Code::Syntax, start + 1 + offset, message),
            }
        };
        self.at += length;
        self.push(Kind::Literal(text), start);
        Ok(())
    }
}

fn is_name(character: char) -> bool {
    character == '_' || character.is_alphanumeric()
}
