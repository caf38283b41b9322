//! Regular expressions and versions.

use std::rc::Rc;

use regex::{NoExpand, Regex, RegexBuilder};

use super::super::versions::{Version, satisfies};
use super::{Args, Entry};
use crate::applicationset::template::Fault;
use crate::applicationset::template::value::{Heap, Value};

pub(super) const TABLE: &[Entry] = &[
    ("regexMatch", 2, 2, |heap, args| {
        Ok(Value::Bool(compiled(heap, args).is_ok_and(|pattern| {
            args.text(1).is_ok_and(|text| pattern.is_match(text))
        })))
    }),
    ("mustRegexMatch", 2, 2, |heap, args| {
        Ok(Value::Bool(compiled(heap, args)?.is_match(args.text(1)?)))
    }),
    ("regexFind", 2, 2, find),
    ("mustRegexFind", 2, 2, find),
    ("regexFindAll", 3, 3, find_all),
    ("mustRegexFindAll", 3, 3, find_all),
    ("regexReplaceAll", 3, 3, |heap, args| replace(heap, args, false)),
    ("mustRegexReplaceAll", 3, 3, |heap, args| replace(heap, args, false)),
    ("regexReplaceAllLiteral", 3, 3, |heap, args| replace(heap, args, true)),
    ("mustRegexReplaceAllLiteral", 3, 3, |heap, args| {
        replace(heap, args, true)
    }),
    ("regexSplit", 3, 3, split),
    ("mustRegexSplit", 3, 3, split),
    ("regexQuoteMeta", 1, 1, |heap, args| {
        let mut quoted = String::new();
        for letter in args.text(0)?.chars() {
            if r"\.+*?()|[]{}^$".contains(letter) {
                quoted.push('\\');
            }
            quoted.push(letter);
        }
        heap.text(quoted)
    }),
    ("semver", 1, 1, |_, args| {
        Version::read(args.text(0)?).map(|version| Value::Version(Rc::new(version)))
    }),
    ("semverCompare", 2, 2, |heap, args| {
        heap.work(args.text(0)?.len().saturating_mul(64))?;
        satisfies(args.text(0)?, args.text(1)?).map(Value::Bool)
    }),
];

/// Bytes of a compiled expression.
const SIZE_BYTES: usize = 1024 * 1024;

fn compiled(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Regex, Fault> {
    let pattern = args.text(0)?;
    heap.work(pattern.len().saturating_mul(4096))?;
    heap.work(args.text(1)?.len().saturating_mul(4))?;
    RegexBuilder::new(&translated(pattern))
        .size_limit(SIZE_BYTES)
        .build()
        .map_err(|_| args.error(format!("`{pattern}` is no regular expression, or too large a one")))
}

/// Go's classes are ASCII and know no sets within sets.
fn translated(pattern: &str) -> String {
    let mut made = String::with_capacity(pattern.len() * 2);
    let mut letters = pattern.chars().peekable();
    let mut class = 0_usize;
    while let Some(letter) = letters.next() {
        match letter {
            '\\' => escape(&mut made, &mut letters, class > 0),
            '[' if class == 0 => {
                class = 1;
                made.push('[');
                if let Some(not) = letters.next_if_eq(&'^') {
                    made.push(not);
                }
                if letters.next_if_eq(&']').is_some() {
                    made.push_str("\\]");
                }
            }
            '[' if letters.peek() == Some(&':') => {
                made.push('[');
                class = 2;
            }
            '[' => made.push_str("\\["),
            ']' => {
                class = class.saturating_sub(1);
                made.push(']');
            }
            '&' | '~' if class > 0 => {
                made.push('\\');
                made.push(letter);
            }
            other => made.push(other),
        }
    }
    made
}

fn escape(made: &mut String, letters: &mut std::iter::Peekable<std::str::Chars<'_>>, in_class: bool) {
    match letters.next() {
        Some('d') => made.push_str("[0-9]"),
        Some('D') => made.push_str("[^0-9]"),
        Some('w') => made.push_str("[0-9A-Za-z_]"),
        Some('W') => made.push_str("[^0-9A-Za-z_]"),
        Some('s') => made.push_str(r"[\t\n\x0C\r ]"),
        Some('S') => made.push_str(r"[^\t\n\x0C\r ]"),
        Some('b') if !in_class => made.push_str(r"(?-u:\b)"),
        Some('Q') if !in_class => {
            let mut quoted = String::new();
            while let Some(letter) = letters.next() {
                if letter == '\\' && letters.next_if_eq(&'E').is_some() {
                    break;
                }
                quoted.push(letter);
            }
            made.push_str(&regex::escape(&quoted));
        }
        Some(other) => {
            made.push('\\');
            made.push(other);
        }
        None => made.push('\\'),
    }
}

fn find(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, Fault> {
    let pattern = compiled(heap, args)?;
    heap.text(pattern.find(args.text(1)?).map_or("", |found| found.as_str()))
}

/// So many at most; none for a negative number means all.
fn most(args: &Args<'_>) -> Result<usize, Fault> {
    Ok(usize::try_from(args.int(2)?).unwrap_or(usize::MAX))
}

fn find_all(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, Fault> {
    let pattern = compiled(heap, args)?;
    let (text, most) = (args.text(1)?, most(args)?);
    heap.fits(text.len().min(most), 64)?;
    heap.texts(pattern.find_iter(text).take(most).map(|found| found.as_str()))
}

fn replace(heap: &mut Heap<'_>, args: &Args<'_>, literal: bool) -> Result<Value, Fault> {
    let pattern = compiled(heap, args)?;
    let (text, with) = (args.text(1)?, args.text(2)?);
    let found = pattern.find_iter(text).count();
    heap.fits(found, with.len())?;
    if literal {
        return heap.text(pattern.replace_all(text, NoExpand(with)).into_owned());
    }
    // Each `$` may bring what was found once more.
    let length: usize = pattern
        .find_iter(text)
        .map(|found| found.len())
        .fold(0, usize::saturating_add);
    heap.fits(with.bytes().filter(|byte| *byte == b'$').count(), length)?;
    heap.text(pattern.replace_all(text, &**with).into_owned())
}

fn split(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, Fault> {
    let pattern = compiled(heap, args)?;
    let (text, most) = (args.text(1)?, most(args)?);
    if most == 0 {
        return heap.texts(Vec::<&str>::new());
    }
    heap.fits(text.len().min(most), 64)?;
    if text.is_empty() && !args.text(0)?.is_empty() {
        return heap.texts([""]);
    }
    let (mut parts, mut begin, mut end) = (Vec::new(), 0, 0);
    for found in pattern.find_iter(text) {
        if parts.len() + 1 == most {
            break;
        }
        end = found.start();
        if found.end() != 0 {
            parts.push(text.get(begin..end).unwrap_or_default());
        }
        begin = found.end();
    }
    if end != text.len() {
        parts.push(text.get(begin..).unwrap_or_default());
    }
    heap.texts(parts)
}
