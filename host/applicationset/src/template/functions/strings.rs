//! Template functions for strings.

use std::rc::Rc;

use super::{Args, FunctionEntry, VARIADIC, text_of};
use crate::template::ExecError;
use crate::template::value::{ElementType, Heap, Value};

pub(super) const TABLE: &[FunctionEntry] = &[
    ("trim", 1, 1, |heap, args| heap.text(args.text(0)?.trim())),
    ("upper", 1, 1, |heap, args| {
        let text = stable_case_text(heap, args)?;
        heap.text(text.chars().map(upper).collect::<String>())
    }),
    ("lower", 1, 1, |heap, args| {
        let text = stable_case_text(heap, args)?;
        heap.text(text.chars().map(lower).collect::<String>())
    }),
    ("repeat", 2, 2, repeat),
    ("trimall", 2, 2, trim_all),
    ("trimAll", 2, 2, trim_all),
    ("trimSuffix", 2, 2, |heap, args| {
        let text = args.text(1)?;
        heap.text(text.strip_suffix(&**args.text(0)?).unwrap_or(text))
    }),
    ("trimPrefix", 2, 2, |heap, args| {
        let text = args.text(1)?;
        heap.text(text.strip_prefix(&**args.text(0)?).unwrap_or(text))
    }),
    ("nospace", 1, 1, |heap, args| {
        let text: String = args
            .ascii(heap, 0)?
            .chars()
            .filter(|letter| !letter.is_whitespace())
            .collect();
        heap.text(text)
    }),
    ("contains", 2, 2, |_, args| {
        Ok(Value::Bool(args.text(1)?.contains(&**args.text(0)?)))
    }),
    ("hasPrefix", 2, 2, |_, args| {
        Ok(Value::Bool(args.text(1)?.starts_with(&**args.text(0)?)))
    }),
    ("hasSuffix", 2, 2, |_, args| {
        Ok(Value::Bool(args.text(1)?.ends_with(&**args.text(0)?)))
    }),
    ("quote", 0, VARIADIC, |heap, args| {
        quotes(heap, args, (super::printf::quoted, true))
    }),
    ("squote", 0, VARIADIC, |heap, args| {
        quotes(heap, args, (|text| format!("'{text}'"), false))
    }),
    ("cat", 0, VARIADIC, cat),
    ("indent", 2, 2, |heap, args| indent(heap, args, "")),
    ("nindent", 2, 2, |heap, args| indent(heap, args, "\n")),
    ("replace", 3, 3, replace),
    ("plural", 3, 3, |heap, args| {
        let (one, many) = (args.text(0)?, args.text(1)?);
        let text = if args.int(2)? == 1 { one } else { many };
        heap.text(Rc::clone(text))
    }),
    ("toString", 1, 1, |heap, args| {
        let text = text_of(heap, args.arg(0))?;
        heap.text(text)
    }),
    ("trunc", 2, 2, trunc),
    ("substr", 3, 3, substr),
    ("abbrev", 2, 2, |heap, args| {
        let (width, text) = (args.int(0)?, args.text(1)?);
        let short = if width < 4 {
            Some(text.as_bytes().to_vec())
        } else {
            abbreviate(text.as_bytes(), 0, width)
        };
        heap.bytes(&short.unwrap_or_default())
    }),
    ("abbrevboth", 3, 3, |heap, args| {
        let (left, right, text) = (args.int(0)?, args.int(1)?, args.text(2)?);
        let as_it_is = right < 4 || (left > 0 && right < 7);
        let short = if as_it_is {
            Some(text.as_bytes().to_vec())
        } else {
            abbreviate(text.as_bytes(), left, right)
        };
        heap.bytes(&short.unwrap_or_default())
    }),
    ("wrap", 2, 2, |heap, args| {
        wrap(heap, args, ("\n", args.text(1)?, false))
    }),
    ("wrapWith", 3, 3, |heap, args| {
        let line = args.text(1)?;
        let line = if line.is_empty() { "\n" } else { line };
        wrap(heap, args, (line, args.text(2)?, true))
    }),
    ("split", 2, 2, |heap, args| {
        let pieces = split(heap, args.text(0)?, (args.text(1)?, None))?;
        parts(heap, pieces)
    }),
    ("splitn", 3, 3, splitn),
    ("splitList", 2, 2, |heap, args| {
        let pieces = split(heap, args.text(0)?, (args.text(1)?, None))?;
        heap.texts(pieces)
    }),
    ("join", 2, 2, join),
];

/// The end of the range of letters whose case is the same in all versions of Unicode.
const LAST_STABLE_CASE: char = '\u{17f}';

/// A string with the same upper and lower case in Argo CD.
fn stable_case_text<'v>(heap: &Heap<'_>, args: &'v Args<'_>) -> Result<&'v Rc<str>, ExecError> {
    let text = args.text(0)?;
    heap.refuse_divergent(text.chars().any(|letter| letter > LAST_STABLE_CASE), || {
        format!("`{}` of letters beyond U+017F", args.name)
    })?;
    Ok(text)
}

/// Go converts letter by letter: a letter that would become several stays.
pub(super) fn upper(letter: char) -> char {
    let mut mapped = letter.to_uppercase();
    match (mapped.next(), mapped.next()) {
        (Some(one), None) => one,
        _ => letter,
    }
}

/// As [`upper`].
pub(super) fn lower(letter: char) -> char {
    let mut mapped = letter.to_lowercase();
    match (mapped.next(), mapped.next()) {
        (Some(one), _) => one,
        (None, _) => letter,
    }
}

fn repeat(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let (count, text) = (args.count(0)?, args.text(1)?);
    heap.fits(count, text.len())?;
    heap.text(text.repeat(if text.is_empty() { 0 } else { count }))
}

fn trim_all(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let (letters, text) = (args.text(0)?, args.text(1)?);
    heap.work(letters.len().saturating_mul(text.len()))?;
    heap.text(text.trim_matches(|letter| letters.contains(letter)))
}

/// - `escapes`: whether unprintable characters are escaped.
fn quotes(
    heap: &mut Heap<'_>,
    args: &Args<'_>,
    (quote, escapes): (fn(&str) -> String, bool),
) -> Result<Value, ExecError> {
    let mut texts = Vec::new();
    for value in args.values.iter().filter(|value| !value.is_nil()) {
        let text = text_of(heap, value)?;
        heap.refuse_divergent(escapes && !text.is_ascii(), || {
            "`quote` of other letters than ASCII".to_owned()
        })?;
        heap.charge(super::super::value::size(text.len()).saturating_mul(6))?;
        texts.push(quote(&text));
    }
    heap.text(texts.join(" "))
}

fn cat(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let mut texts = Vec::new();
    for value in args.values.iter().filter(|value| !value.is_nil()) {
        texts.push(text_of(heap, value)?);
    }
    heap.text(texts.join(" "))
}

fn indent(heap: &mut Heap<'_>, args: &Args<'_>, before: &str) -> Result<Value, ExecError> {
    let (spaces, text) = (args.count(0)?, args.text(1)?);
    let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
    heap.fits(lines, spaces)?;
    let padding = " ".repeat(spaces);
    let text = text.replace('\n', &format!("\n{padding}"));
    heap.text(format!("{before}{padding}{text}"))
}

fn replace(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let (from, to, text) = (args.text(0)?, args.text(1)?, args.text(2)?);
    heap.work(text.len())?;
    heap.fits(text.matches(&**from).count(), to.len())?;
    heap.text(text.replace(&**from, to))
}

fn trunc(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let (count, text) = (args.int(0)?, args.text(1)?);
    let bytes = text.as_bytes();
    let kept = match usize::try_from(count) {
        Ok(count) => bytes.get(..count),
        Err(_) => usize::try_from(count.unsigned_abs())
            .ok()
            .and_then(|count| bytes.len().checked_sub(count))
            .and_then(|start| bytes.get(start..)),
    };
    heap.bytes(kept.unwrap_or(bytes))
}

fn substr(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let (start, end, text) = (args.int(0)?, args.int(1)?, args.text(2)?);
    let bytes = text.as_bytes();
    let end = usize::try_from(end).ok();
    let kept = match (usize::try_from(start), end) {
        (Err(_), Some(end)) => bytes.get(..end),
        (Err(_), None) => None,
        (Ok(start), Some(end)) if end <= bytes.len() => bytes.get(start..end),
        (Ok(start), _) => bytes.get(start..),
    };
    heap.bytes(kept.ok_or_else(|| args.error("slice bounds out of range"))?)
}

/// Shortens a text with `...` at the end and, if `offset` is at least 5, at the beginning.
fn abbreviate(text: &[u8], offset: i64, width: i64) -> Option<Vec<u8>> {
    let (mut text, mut width) = (text, usize::try_from(width).ok()?);
    let mut offset = usize::try_from(offset).unwrap_or(0);
    let mut short = Vec::new();
    loop {
        if text.is_empty() || text.len() <= width {
            short.extend_from_slice(text);
            return Some(short);
        }
        let keep = width.checked_sub(3).filter(|keep| *keep > 0)?;
        offset = offset.min(text.len());
        if text.len() - offset < keep {
            offset = text.len() - keep;
        }
        if offset <= 4 {
            short.extend_from_slice(text.get(..keep)?);
            short.extend_from_slice(b"...");
            return Some(short);
        }
        if width < 7 {
            return None;
        }
        short.extend_from_slice(b"...");
        if offset + keep >= text.len() {
            short.extend_from_slice(text.get(text.len() - keep..)?);
            return Some(short);
        }
        (text, width, offset) = (text.get(offset..)?, keep, 0);
    }
}

/// Wraps the lines of a text at spaces; words longer than a line are only broken if `hard`.
fn wrap(heap: &mut Heap<'_>, args: &Args<'_>, (line, text, hard): (&str, &str, bool)) -> Result<Value, ExecError> {
    let width = usize::try_from(args.int(0)?.max(1)).unwrap_or(usize::MAX);
    heap.fits(text.len() / width + 1, line.len().saturating_add(width.min(text.len())))?;
    let mut wrapped: Vec<u8> = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while rest.len() > width {
        heap.step()?;
        if let Some(after) = rest.strip_prefix(b" ") {
            rest = after;
            continue;
        }
        let window = rest.get(..=width).unwrap_or(rest);
        let at = window.iter().rposition(|byte| *byte == b' ');
        let (taken, skip) = match at {
            Some(at) => (at, 1),
            None if hard => (width, 0),
            None => match rest.iter().skip(width).position(|byte| *byte == b' ') {
                Some(more) => (width + more, 1),
                None => break,
            },
        };
        wrapped.extend_from_slice(rest.get(..taken).unwrap_or_default());
        wrapped.extend_from_slice(line.as_bytes());
        rest = rest.get(taken + skip..).unwrap_or_default();
    }
    wrapped.extend_from_slice(rest);
    heap.bytes(&wrapped)
}

/// Splits a text into at most this many pieces; an empty separator splits between characters.
fn split<'t>(heap: &Heap<'_>, by: &str, (text, most): (&'t str, Option<usize>)) -> Result<Vec<&'t str>, ExecError> {
    let most = most.unwrap_or(usize::MAX);
    if !by.is_empty() {
        heap.fits(text.matches(by).count() + 1, 64)?;
        return Ok(text.splitn(most, by).collect());
    }
    heap.fits(text.len(), 64)?;
    let mut pieces = Vec::new();
    let mut rest = text;
    while let Some(letter) = rest.chars().next() {
        if pieces.len() + 1 >= most {
            pieces.extend((most > 0).then_some(rest));
            break;
        }
        let (piece, after) = rest.split_at_checked(letter.len_utf8()).unwrap_or((rest, ""));
        pieces.push(piece);
        rest = after;
    }
    Ok(pieces)
}

fn parts(heap: &mut Heap<'_>, parts: Vec<&str>) -> Result<Value, ExecError> {
    let map = heap.map(ElementType::Text)?;
    for (index, part) in parts.into_iter().enumerate() {
        let part = heap.text(part)?;
        heap.put(&map, format!("_{index}"), part)?;
    }
    Ok(Value::Map(map))
}

fn splitn(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let (by, count, text) = (args.text(0)?, args.int(1)?, args.text(2)?);
    let pieces = split(heap, by, (text, usize::try_from(count).ok()))?;
    parts(heap, pieces)
}

/// Elements as strings, without those that are nil.
pub(super) fn texts(heap: &mut Heap<'_>, value: &Value) -> Result<Vec<Rc<str>>, ExecError> {
    match value {
        Value::List(list) => {
            heap.fits(list.items.len(), 64)?;
            let mut texts = Vec::with_capacity(list.items.len());
            for item in list.items.iter().filter(|item| !item.is_nil()) {
                texts.push(text_of(heap, item)?);
            }
            Ok(texts)
        }
        Value::Missing | Value::Nil => Ok(Vec::new()),
        other => Ok(vec![text_of(heap, other)?]),
    }
}

fn join(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let by = args.text(0)?;
    let items = texts(heap, args.arg(1))?;
    heap.fits(items.len(), by.len())?;
    let length: usize = items.iter().map(|item| item.len()).fold(0, usize::saturating_add);
    heap.fits(length, 1)?;
    heap.text(items.join(&**by))
}
