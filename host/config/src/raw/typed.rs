//! Deserializes settings into a type and reports every value that does not fit.
//!
//! The deserializer stops at the first mistake. This module records each one, blanks the value and
//! deserializes again.

use std::collections::BTreeMap;

use serde::de::DeserializeOwned;
use serde_saphyr::Error;

const MAX_MISTAKES: usize = 50;

/// Reads settings, or gives every mistake, in order. Booleans are only `true` and `false`. If a key
/// is unknown or misses something, the rest of its top-level key is not checked.
pub(super) fn read<T: DeserializeOwned>(text: &str) -> Result<T, Vec<Error>> {
    let parse =
        |text: &str| serde_saphyr::from_str_with_options(text, serde_saphyr::options! { strict_booleans: true });
    let mut error = match parse(text) {
        Ok(read) => return Ok(read),
        Err(error) => error,
    };
    let mut lines: Vec<String> = text.lines().map(str::to_owned).collect();
    // How often each position failed.
    let mut wrong: BTreeMap<Position, u8> = BTreeMap::new();
    let mut errors = Vec::new();
    loop {
        let Some(at) = position(&error) else {
            errors.push(error);
            break;
        };
        let times = wrong.entry(at).or_default();
        *times += 1;
        let times = *times;
        let is_out = match times {
            1 => blank_value(&mut lines, at) || blank_section(&mut lines, at.line),
            // `null` is invalid there as well.
            2 => blank_section(&mut lines, at.line),
            _ => false,
        };
        // A second error at a position is about the blank.
        if times == 1 {
            errors.push(error);
        }
        if !is_out || errors.len() >= MAX_MISTAKES {
            break;
        }
        match parse(&lines.join("\n")) {
            // A field that is missing now was blanked above.
            Err(next) if !next.to_string().contains("missing field") => error = next,
            Ok::<T, _>(_) | Err(_) => break,
        }
    }
    errors.sort_by_key(position);
    Err(errors)
}

/// Line and column, counted from 0.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Position {
    line: usize,
    column: usize,
}

fn position(error: &Error) -> Option<Position> {
    let at = error.location()?;
    let number = |number: u64| usize::try_from(number).ok()?.checked_sub(1);
    Some(Position {
        line: number(at.line())?,
        column: number(at.column())?,
    })
}

/// Replaces a scalar on one line, or a list or mapping in brackets, by `~`.
fn blank_value(lines: &mut [String], at: Position) -> bool {
    let Some(text) = lines.get_mut(at.line) else {
        return false;
    };
    let Some((start, _)) = text.char_indices().nth(at.column) else {
        return false;
    };
    let Some((before, value)) = text.split_at_checked(start) else {
        return false;
    };
    // This is a key, not a value.
    if !before.trim_end().ends_with([':', '[', ',']) && !before.trim_end().ends_with("- ") {
        return false;
    }
    let length = match value.chars().next() {
        Some(quote @ ('"' | '\'')) => value.get(1..).and_then(|rest| rest.find(quote)).map(|end| end + 2),
        Some('[') => value.find(']').map(|end| end + 1),
        Some('{') => value.find('}').map(|end| end + 1),
        // These may go on over several lines, so only the whole section can be blanked.
        Some('|' | '>' | '&' | '*' | '!') | None => None,
        Some(_) => Some(value.find([',', '}', ']', '#']).unwrap_or(value.len())),
    };
    let Some(rest) = length.and_then(|length| value.get(length..)) else {
        return false;
    };
    let kept = value.len().saturating_sub(rest.len());
    // The same length as before, so that positions on the line stay correct.
    *text = format!("{before}~{}{rest}", " ".repeat(kept.saturating_sub(1)));
    true
}

/// Empties the lines of the top-level key that a line belongs to.
fn blank_section(lines: &mut [String], line: usize) -> bool {
    let is_top = |text: &String| {
        text.starts_with(|first: char| !first.is_whitespace() && !matches!(first, '#' | '-' | '}' | ']'))
    };
    let Some(start) = (0..=line).rev().find(|at| lines.get(*at).is_some_and(is_top)) else {
        return false;
    };
    let mut below = start + 1..lines.len();
    let end = below.find(|at| lines.get(*at).is_some_and(is_top));
    let end = end.unwrap_or(lines.len());
    for text in lines.iter_mut().take(end).skip(start) {
        // The settings require both keys.
        *text = match text.split_once(':') {
            Some((key @ ("state" | "policies"), _)) => format!("{key}: {{directory: x}}"),
            _ => String::new(),
        };
    }
    true
}
