//! Template functions for regular expressions and versions.
//!
//! Invariant: the duration of one search is bounded by the sizes of pattern and text, and the
//! deadline is checked between searches.

use std::iter;
use std::rc::Rc;
use std::str::Chars;

use regex::{Captures, Match, Regex, RegexBuilder};

use super::Args;
use crate::template::ExecError;
use crate::template::value::{ElementType, Heap, Value};
use crate::template::versions::{Version, satisfies};

pub(super) fn call(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    match args.name {
        "mustRegexMatch" => Ok(Value::Bool(compiled(heap, args)?.is_match(args.text(1)?))),
        "regexFind" | "mustRegexFind" => {
            let pattern = compiled(heap, args)?;
            heap.text(pattern.find(args.text(1)?).map_or("", |found| found.as_str()))
        }
        "regexFindAll" | "mustRegexFindAll" => find_all(heap, args),
        "regexMatch" => {
            let (pattern, text) = (expression(heap, args)?, args.text(1)?);
            Ok(Value::Bool(pattern.is_some_and(|pattern| pattern.is_match(text))))
        }
        "regexQuoteMeta" => {
            let mut quoted = String::new();
            for letter in args.text(0)?.chars() {
                quoted.extend(r"\.+*?()|[]{}^$".contains(letter).then_some('\\'));
                quoted.push(letter);
            }
            heap.text(quoted)
        }
        "regexReplaceAll" | "mustRegexReplaceAll" => replace(heap, args, false),
        "regexReplaceAllLiteral" | "mustRegexReplaceAllLiteral" => replace(heap, args, true),
        "regexSplit" | "mustRegexSplit" => split(heap, args),
        "semver" => Version::read(args.text(0)?).map(|version| Value::Version(Rc::new(version))),
        "semverCompare" => {
            heap.work(args.text(0)?.len().saturating_mul(64))?;
            satisfies(args.text(0)?, args.text(1)?).map(Value::Bool)
        }
        _ => Err(args.unknown()),
    }
}

/// Maximum number of compiled expressions that are kept; only small ones are.
const KEPT: usize = 16;
/// Maximum length of a pattern, in bytes. A class of two letters can stand for hundreds of ranges.
const PATTERN_BYTES: usize = 4 * 1024;

/// Maximum size of a large compiled expression, and of the text that a small one searches, in
/// bytes.
///
/// A search cannot be interrupted, and its time is proportional to the product of both sizes.
/// Therefore at least one of them is small.
const LARGE_BYTES: usize = 1024 * 1024;
/// Maximum size of a small compiled expression, and of the text that a large one searches, in bytes.
const SMALL_BYTES: usize = 64 * 1024;
/// Maximum memory of a search, in bytes.
const SEARCH_BYTES: usize = 256 * 1024;

/// The compiled expression, if it can be used with the text; `None` if it is invalid or too large.
///
/// # Errors
/// The pattern or the text exceeds a limit.
fn expression(heap: &Heap<'_>, args: &Args<'_>) -> Result<Option<Rc<Regex>>, ExecError> {
    let (pattern, text) = (args.text(0)?, args.text(1)?);
    for (what, observed, allowed) in [
        ("expression", pattern.len(), PATTERN_BYTES),
        ("text", text.len(), LARGE_BYTES),
    ] {
        if observed > allowed {
            let text = format!("the {what} has {observed} bytes, at most {allowed} are allowed");
            return Err(limit(args, text));
        }
    }
    heap.work(text.len().saturating_mul(4))?;
    heap.check_deadline()?;
    let mut expressions = heap.expressions.borrow_mut();
    if let Some(known) = expressions.get(pattern) {
        return Ok(Some(Rc::clone(known)));
    }
    // Compiling costs far more than the length of a pattern suggests.
    heap.work(pattern.len().saturating_mul(4096))?;
    let translated = translated(pattern);
    match built(&translated, SMALL_BYTES) {
        Ok(small) => {
            let small = Rc::new(small);
            if expressions.len() >= KEPT {
                expressions.clear();
            }
            expressions.insert(Rc::clone(pattern), Rc::clone(&small));
            Ok(Some(small))
        }
        Err(regex::Error::CompiledTooBig(_)) if text.len() <= SMALL_BYTES => {
            Ok(built(&translated, LARGE_BYTES).ok().map(Rc::new))
        }
        Err(regex::Error::CompiledTooBig(allowed)) => {
            let (observed, most) = (text.len(), SMALL_BYTES);
            let text = format!("the text has {observed}, at most {most} are allowed then");
            Err(limit(
                args,
                format!("the expression takes more than {allowed} bytes, and {text}"),
            ))
        }
        Err(_) => Ok(None),
    }
}

fn built(pattern: &str, size: usize) -> Result<Regex, regex::Error> {
    RegexBuilder::new(pattern)
        .size_limit(size)
        .dfa_size_limit(SEARCH_BYTES)
        .build()
}

fn limit(args: &Args<'_>, text: String) -> ExecError {
    ExecError::Limit(args.error(text).to_string())
}

fn compiled(heap: &Heap<'_>, args: &Args<'_>) -> Result<Rc<Regex>, ExecError> {
    let pattern = args.text(0)?;
    let wrong = || args.error(format!("`{pattern}` is no regular expression, or too large a one"));
    expression(heap, args)?.ok_or_else(wrong)
}

/// Adapts a pattern: Go's classes are ASCII only and cannot be nested.
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
                made.extend(letters.next_if_eq(&'^'));
                // A `]` right after the start of a class is a letter of it, in Go as well.
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
            // Rust reads `&&` and `~~` in a class as operations on sets.
            '&' | '~' if class > 0 => made.extend(['\\', letter]),
            other => made.push(other),
        }
    }
    made
}

fn escape(made: &mut String, letters: &mut iter::Peekable<Chars<'_>>, in_class: bool) {
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
        other => made.extend(iter::once('\\').chain(other)),
    }
}

/// Maximum number of matches; a negative argument means no maximum.
fn most(args: &Args<'_>) -> Result<usize, ExecError> {
    Ok(usize::try_from(args.int(2)?).unwrap_or(usize::MAX))
}

fn find_all(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let (pattern, text) = (compiled(heap, args)?, args.text(1)?);
    let texts = pattern.find_iter(text).take(most(args)?).map(|found| {
        // Each search may scan all of the remaining text.
        heap.check_deadline()?;
        heap.text(found.as_str())
    });
    heap.list(ElementType::Text, texts.collect::<Result<_, _>>()?)
}

fn replace(heap: &Heap<'_>, args: &Args<'_>, literal: bool) -> Result<Value, ExecError> {
    let pattern = compiled(heap, args)?;
    let (text, with) = (args.text(1)?, args.text(2)?);
    // Each `$` may insert the match once more.
    let groups = if literal { 0 } else { with.matches('$').count() };
    let mut made = String::new();
    let mut begin = 0;
    let mut put = |found: Match<'_>, captures: Option<&Captures<'_>>| {
        heap.check_deadline()?;
        made.push_str(text.get(begin..found.start()).unwrap_or_default());
        begin = found.end();
        heap.fits(groups, found.len())?;
        heap.fits(made.len().saturating_add(with.len()), 1)?;
        match captures {
            Some(captures) => captures.expand(with, &mut made),
            None => made.push_str(with),
        }
        heap.fits(made.len(), 1)
    };
    if groups == 0 {
        pattern.find_iter(text).try_for_each(|found| put(found, None))?;
    } else {
        let mut found = pattern.captures_iter(text);
        found.try_for_each(|captures| put(captures.get_match(), Some(&captures)))?;
    }
    made.push_str(text.get(begin..).unwrap_or_default());
    heap.text(made)
}

fn split(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let pattern = compiled(heap, args)?;
    let (text, most) = (args.text(1)?, most(args)?);
    if most == 0 {
        return heap.texts(Vec::<&str>::new());
    }
    if text.is_empty() && !args.text(0)?.is_empty() {
        return heap.texts([""]);
    }
    let (mut parts, mut begin, mut end) = (Vec::new(), 0, 0);
    for found in pattern.find_iter(text) {
        heap.check_deadline()?;
        if parts.len() + 1 == most {
            break;
        }
        end = found.start();
        if found.end() != 0 {
            parts.push(heap.text(text.get(begin..end).unwrap_or_default())?);
        }
        begin = found.end();
    }
    if end != text.len() {
        parts.push(heap.text(text.get(begin..).unwrap_or_default())?);
    }
    heap.list(ElementType::Text, parts)
}
