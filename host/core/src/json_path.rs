//! Paths that select at most one value of a JSON document: a [`SingularPath`] is a singular query
//! of RFC 9535. Queries that may select several values and the dialects of other tools are refused,
//! each with a hint what to write instead.
//!
//! The parser is `jsonpath-rust`'s. It reads blanks between tokens where RFC
//! 9535 has none (`$.a b`, `$[- 1]`) and trims Unicode blanks off names, so a
//! path must match the grammar of singular queries as well; names with Unicode
//! blanks must be quoted. Queries that cannot be singular are refused whether or
//! not they are well formed.

use std::fmt;
use std::sync::LazyLock;

use jsonpath_rust::parser::model::{JpQuery, Segment, Selector};
use jsonpath_rust::parser::parse_json_path;
use regex::Regex;
use serde_json::Value;

mod hint;

const MAX_PATH_BYTES: usize = 1024;
const MAX_SEGMENTS: usize = 64;

/// Why a path cannot be used. Each is a mistake in a configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The path has this many bytes.
    #[error("the path has {0} bytes, {MAX_PATH_BYTES} are allowed")]
    TooLong(usize),
    /// The path has this many segments.
    #[error("the path has {0} segments, {MAX_SEGMENTS} are allowed")]
    TooDeep(usize),
    /// It is RFC 9535 but may select several values.
    #[error(
        "`{0}` may select more than one value; only names and indexes are allowed, as in `$.data.token` or `$.tokens[0]`"
    )]
    NotSingular(String),
    /// It is not RFC 9535; what to write instead.
    #[error("`{0}` is not an RFC 9535 path: {1}")]
    Invalid(String, String),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum Step {
    Name(String),
    /// Counts from the end when negative.
    Index(i64),
}

/// A path that selects one value or none: names and indexes only.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SingularPath {
    steps: Vec<Step>,
}

impl SingularPath {
    /// Reads a singular query, RFC 9535 section 2.3.5.1. Blanks inside brackets are allowed, as in
    /// other queries.
    ///
    /// - `text`: up to 1 KiB and 64 segments.
    ///
    /// # Errors
    /// [`Error`], with what to write instead where that is known.
    pub fn parse(text: &str) -> Result<Self, Error> {
        if text.len() > MAX_PATH_BYTES {
            return Err(Error::TooLong(text.len()));
        }
        let invalid = || Error::Invalid(hint::shown(text), hint::for_text(text));
        let query = parse_json_path(text).ok().or_else(|| parse_on_new_thread(text));
        let query = query.ok_or_else(invalid)?;
        if query.segments.len() > MAX_SEGMENTS {
            return Err(Error::TooDeep(query.segments.len()));
        }
        let steps: Option<Vec<Step>> = query.segments.into_iter().map(step).collect();
        let steps = steps.ok_or_else(|| Error::NotSingular(hint::shown(text)))?;
        if is_singular(text) {
            Ok(Self { steps })
        } else {
            Err(invalid())
        }
    }

    /// The selected value, if there is one. RFC 9535 leaves open what a duplicate name means;
    /// `serde_json` keeps the last one.
    pub fn select<'v>(&self, document: &'v Value) -> Option<&'v Value> {
        self.steps.iter().try_fold(document, |value, step| match (step, value) {
            (Step::Name(name), Value::Object(members)) => members.get(name),
            (Step::Index(index), Value::Array(items)) => items.get(position(*index, items.len())?),
            _ => None,
        })
    }
}

impl fmt::Display for SingularPath {
    /// Writes the normalized path of RFC 9535 section 2.7. A negative index stays as it is, because
    /// its meaning depends on the document.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("$")?;
        self.steps.iter().try_for_each(|step| write_step(f, step))
    }
}

fn write_step(f: &mut impl fmt::Write, step: &Step) -> fmt::Result {
    let name = match step {
        Step::Index(index) => return write!(f, "[{index}]"),
        Step::Name(name) => name,
    };
    f.write_str("['")?;
    for c in name.chars() {
        match c {
            '\'' | '\\' => write!(f, "\\{c}")?,
            '\u{8}' => f.write_str("\\b")?,
            '\t' => f.write_str("\\t")?,
            '\n' => f.write_str("\\n")?,
            '\u{c}' => f.write_str("\\f")?,
            '\r' => f.write_str("\\r")?,
            '\0'..='\u{1f}' => write!(f, "\\u{:04x}", u32::from(c))?,
            _ => f.write_char(c)?,
        }
    }
    f.write_str("']")
}

fn step(segment: Segment) -> Option<Step> {
    match segment {
        Segment::Selector(Selector::Name(name)) => Some(Step::Name(name)),
        Segment::Selector(Selector::Index(index)) => Some(Step::Index(index)),
        _ => None,
    }
}

/// The position an index points to, RFC 9535 section 2.3.3.2.
fn position(index: i64, length: usize) -> Option<usize> {
    match usize::try_from(index) {
        Ok(index) => Some(index),
        Err(_) => length.checked_sub(usize::try_from(index.unsigned_abs()).ok()?),
    }
}

/// Parses again on a new thread. The parser gives up when little of the thread's stack is left. A
/// plugin's host calls run on other stacks, where it finds none. So only texts that were refused
/// come here.
fn parse_on_new_thread(text: &str) -> Option<JpQuery> {
    std::thread::scope(|scope| {
        let parse = std::thread::Builder::new().spawn_scoped(scope, || parse_json_path(text).ok());
        parse.ok()?.join().ok()?
    })
}

/// Matches the grammar of singular queries as one regular expression.
fn is_singular(text: &str) -> bool {
    static GRAMMAR: LazyLock<Option<Regex>> = LazyLock::new(|| {
        let blank = r"[ \t\n\r]*";
        let first = r"A-Za-z_\x{80}-\x{D7FF}\x{E000}-\x{10FFFF}";
        let plain = r"\x{20}-\x{21}\x{23}-\x{26}\x{28}-\x{5B}\x{5D}-\x{10FFFF}";
        let escaped = r"[bfnrt/\\]|u[0-9A-Fa-f]{4}";
        let single = format!(r#"'(?:[{plain}"]|\\(?:{escaped}|'))*'"#);
        let double = format!(r#""(?:[{plain}']|\\(?:{escaped}|"))*""#);
        let selector = format!(r"{single}|{double}|0|-?[1-9][0-9]*");
        // `&&\S`: the parser would trim Unicode blanks, which are letters in this grammar.
        let segment = format!(r"\.[{first}&&\S][{first}0-9&&\S]*|\[{blank}(?:{selector}){blank}\]");
        // Built from constants. If it were invalid, nothing would match.
        Regex::new(&format!(r"\A\$(?:{blank}(?:{segment}))*\z")).ok()
    });
    GRAMMAR.as_ref().is_some_and(|grammar| grammar.is_match(text))
}

#[cfg(test)]
mod tests;
