//! Template functions for strings.

use std::rc::Rc;

use super::{Args, printf};
use crate::template::ExecError;
use crate::template::print::text_of;
use crate::template::value::{ElementType, Heap, Value, size};

pub(super) fn call(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    match args.name {
        "abbrev" => {
            let (width, text) = (args.int(0)?, args.text(1)?);
            abbreviated(heap, text, 0, if width < 4 { i64::MAX } else { width })
        }
        "abbrevboth" => {
            let (left, right, text) = (args.int(0)?, args.int(1)?, args.text(2)?);
            let is_whole = right < 4 || (left > 0 && right < 7);
            abbreviated(heap, text, left, if is_whole { i64::MAX } else { right })
        }
        "cat" => heap.text(non_nil(heap, args.values)?.join(" ")),
        "contains" => Ok(Value::Bool(args.text(1)?.contains(&**args.text(0)?))),
        "hasPrefix" => Ok(Value::Bool(args.text(1)?.starts_with(&**args.text(0)?))),
        "hasSuffix" => Ok(Value::Bool(args.text(1)?.ends_with(&**args.text(0)?))),
        "indent" => indent(heap, args, ""),
        "join" => join(heap, args),
        "lower" => heap.text(stable_case_text(heap, args)?.chars().map(lower).collect::<String>()),
        "nindent" => indent(heap, args, "\n"),
        "nospace" => heap.text(args.ascii(heap, 0)?.split_whitespace().collect::<String>()),
        "plural" => {
            let (one, many) = (args.text(0)?, args.text(1)?);
            heap.text(Rc::clone(if args.int(2)? == 1 { one } else { many }))
        }
        "quote" => quotes(heap, args, printf::quoted, true),
        "repeat" => repeat(heap, args),
        "replace" => replace(heap, args),
        "split" => parts(heap, split(heap, args.text(0)?, args.text(1)?, usize::MAX)?),
        "splitList" => heap.texts(split(heap, args.text(0)?, args.text(1)?, usize::MAX)?),
        "splitn" => {
            let (by, count, text) = (args.text(0)?, args.int(1)?, args.text(2)?);
            parts(
                heap,
                split(heap, by, text, usize::try_from(count).unwrap_or(usize::MAX))?,
            )
        }
        "squote" => quotes(heap, args, |text| format!("'{text}'"), false),
        "substr" => substr(heap, args),
        "toString" => heap.text(text_of(heap, args.arg(0))?),
        "trim" => heap.text(args.text(0)?.trim()),
        "trimAll" | "trimall" => {
            let (letters, text) = (args.text(0)?, args.text(1)?);
            heap.work(letters.len().saturating_mul(text.len()))?;
            heap.text(text.trim_matches(|letter| letters.contains(letter)))
        }
        "trimPrefix" => {
            let text = args.text(1)?;
            heap.text(text.strip_prefix(&**args.text(0)?).unwrap_or(text))
        }
        "trimSuffix" => {
            let text = args.text(1)?;
            heap.text(text.strip_suffix(&**args.text(0)?).unwrap_or(text))
        }
        "trunc" => trunc(heap, args),
        "upper" => heap.text(stable_case_text(heap, args)?.chars().map(upper).collect::<String>()),
        "wrap" => wrap(heap, args, "\n", args.text(1)?, false),
        "wrapWith" => {
            let line = args.text(1)?;
            let line = if line.is_empty() { "\n" } else { line };
            wrap(heap, args, line, args.text(2)?, true)
        }
        _ => Err(args.unknown()),
    }
}

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

pub(super) fn lower(letter: char) -> char {
    letter.to_lowercase().next().unwrap_or(letter)
}

fn repeat(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let (count, text) = (args.count(0)?, args.text(1)?);
    heap.fits(count, text.len())?;
    heap.text(text.repeat(if text.is_empty() { 0 } else { count }))
}

/// - `escapes`: whether unprintable characters are escaped.
fn quotes(heap: &Heap<'_>, args: &Args<'_>, quote: fn(&str) -> String, escapes: bool) -> Result<Value, ExecError> {
    let mut texts = Vec::new();
    for text in non_nil(heap, args.values)? {
        heap.refuse_divergent(escapes && !text.is_ascii(), || {
            "`quote` of other letters than ASCII".to_owned()
        })?;
        heap.charge(size(text.len()).saturating_mul(6))?;
        texts.push(quote(&text));
    }
    heap.text(texts.join(" "))
}

fn indent(heap: &Heap<'_>, args: &Args<'_>, before: &str) -> Result<Value, ExecError> {
    let (spaces, text) = (args.count(0)?, args.text(1)?);
    let lines = text.bytes().filter(|byte| *byte == b'\n').count() + 1;
    heap.fits(lines, spaces)?;
    let padding = " ".repeat(spaces);
    let text = text.replace('\n', &format!("\n{padding}"));
    heap.text(format!("{before}{padding}{text}"))
}

fn replace(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let (from, to, text) = (args.text(0)?, args.text(1)?, args.text(2)?);
    heap.work(text.len())?;
    heap.fits(text.matches(&**from).count(), to.len())?;
    heap.text(text.replace(&**from, to))
}

fn trunc(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let (count, text) = (args.int(0)?, args.text(1)?);
    let bytes = text.as_bytes();
    let kept = match usize::try_from(count) {
        Ok(count) => bytes.get(..count),
        Err(_) => {
            let count = usize::try_from(count.unsigned_abs()).ok();
            count.and_then(|count| bytes.get(bytes.len().checked_sub(count)?..))
        }
    };
    heap.bytes(kept.unwrap_or(bytes))
}

fn substr(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let (start, end, text) = (args.int(0)?, args.int(1)?, args.text(2)?);
    let bytes = text.as_bytes();
    let kept = match (usize::try_from(start), usize::try_from(end)) {
        (Err(_), Ok(end)) => bytes.get(..end),
        (Err(_), Err(_)) => None,
        (Ok(start), Ok(end)) if end <= bytes.len() => bytes.get(start..end),
        (Ok(start), _) => bytes.get(start..),
    };
    heap.bytes(kept.ok_or_else(|| args.out_of_range())?)
}

fn abbreviated(heap: &Heap<'_>, text: &str, offset: i64, width: i64) -> Result<Value, ExecError> {
    heap.bytes(&abbreviate(text.as_bytes(), offset, width).unwrap_or_default())
}

/// Shortens a text with `...` at the end and, if `offset` is at least 5, at the beginning.
fn abbreviate(text: &[u8], offset: i64, width: i64) -> Option<Vec<u8>> {
    const DOTS: &[u8] = b"...";
    let (mut text, mut width) = (text, usize::try_from(width).ok()?);
    let mut offset = usize::try_from(offset).unwrap_or(0);
    let mut before: &[u8] = b"";
    loop {
        if text.len() <= width {
            return Some([before, text].concat());
        }
        let keep = width.checked_sub(3).filter(|keep| *keep > 0)?;
        offset = offset.min(text.len() - keep);
        if offset <= 4 {
            return Some([before, text.get(..keep)?, DOTS].concat());
        }
        if width < 7 {
            return None;
        }
        before = DOTS;
        if offset + keep >= text.len() {
            return Some([before, text.get(text.len() - keep..)?].concat());
        }
        (text, width, offset) = (text.get(offset..)?, keep, 0);
    }
}

/// Wraps the lines of a text at spaces; words longer than a line are only broken if `hard`.
fn wrap(heap: &Heap<'_>, args: &Args<'_>, line: &str, text: &str, hard: bool) -> Result<Value, ExecError> {
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
fn split<'t>(heap: &Heap<'_>, by: &str, text: &'t str, most: usize) -> Result<Vec<&'t str>, ExecError> {
    if !by.is_empty() {
        heap.fits(text.matches(by).count() + 1, 64)?;
        return Ok(text.splitn(most, by).collect());
    }
    heap.fits(text.len(), 64)?;
    let starts: Vec<usize> = text.char_indices().map(|(start, _)| start).take(most).collect();
    let ends = starts.iter().skip(1).copied().chain([text.len()]);
    let pieces = starts.iter().zip(ends).filter_map(|(start, end)| text.get(*start..end));
    Ok(pieces.collect())
}

fn parts(heap: &Heap<'_>, parts: Vec<&str>) -> Result<Value, ExecError> {
    let map = heap.map(ElementType::Text)?;
    for (index, part) in parts.into_iter().enumerate() {
        heap.put(&map, format!("_{index}"), heap.text(part)?)?;
    }
    Ok(Value::Map(map))
}

/// Elements as strings, without those that are nil.
pub(super) fn texts(heap: &Heap<'_>, value: &Value) -> Result<Vec<Rc<str>>, ExecError> {
    match value {
        Value::List(list) => {
            heap.fits(list.items.len(), 64)?;
            non_nil(heap, &list.items)
        }
        Value::Missing | Value::Nil => Ok(Vec::new()),
        other => Ok(vec![text_of(heap, other)?]),
    }
}

fn non_nil(heap: &Heap<'_>, values: &[Value]) -> Result<Vec<Rc<str>>, ExecError> {
    let values = values.iter().filter(|value| !value.is_nil());
    values.map(|value| text_of(heap, value)).collect()
}

fn join(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let by = args.text(0)?;
    let items = texts(heap, args.arg(1))?;
    heap.fits(items.len(), by.len())?;
    let length: usize = items.iter().map(|item| item.len()).fold(0, usize::saturating_add);
    heap.fits(length, 1)?;
    heap.text(items.join(&**by))
}
