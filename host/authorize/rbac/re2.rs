//! Go's regular expressions, said in Rust's dialect.
//!
//! In: an expression in RE2 syntax. Out: a compiled one that matches the same
//! texts, or nothing where Go refuses. Never: backtracking.
//!
//! The dialects differ in: ASCII-only `\d \w \s \b`, `\Q…\E`, literal `[`,
//! `&`, `~` in classes, literal `{` where no count follows, `\<` and `\>`,
//! counts above 1,000, flags beyond `imsU`.

use std::iter::Peekable;
use std::str::Chars;

/// Bytes a compiled expression may take.
const SIZE_LIMIT: usize = 1 << 20;
/// Highest count in `{n,m}` that RE2 takes.
const MAX_COUNT: u32 = 1000;

/// Why an expression does not compile.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(super) enum Error {
    /// Go refuses it, or its compiled form is over the bound.
    #[error("{what}")]
    Syntax {
        /// What is wrong, one line.
        what: String,
    },
}

/// Compiles an expression; it searches, it is not anchored.
pub(super) fn compile(expression: &str) -> Result<regex::Regex, Error> {
    let translated = translate(expression)?;
    regex::RegexBuilder::new(&translated)
        .size_limit(SIZE_LIMIT)
        .build()
        .map_err(|error| {
            let text = error.to_string();
            let last = text
                .lines()
                .rev()
                .find(|line| !line.trim().is_empty())
                .unwrap_or_default();
            Error::Syntax {
                what: last.trim().trim_start_matches("error: ").to_owned(),
            }
        })
}

fn refuse(what: impl Into<String>) -> Error {
    Error::Syntax { what: what.into() }
}

fn translate(expression: &str) -> Result<String, Error> {
    let mut chars = expression.chars().peekable();
    let mut out = String::with_capacity(expression.len() + 8);
    while let Some(c) = chars.next() {
        match c {
            '\\' => escape(&mut chars, &mut out, Place::Outside)?,
            '[' => class(&mut chars, &mut out)?,
            '{' => count(&mut chars, &mut out)?,
            '(' => {
                out.push('(');
                if chars.peek() == Some(&'?') {
                    flags(&chars)?;
                }
            }
            other => out.push(other),
        }
    }
    Ok(out)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Place {
    Outside,
    Class,
}

fn escape(chars: &mut Peekable<Chars<'_>>, out: &mut String, place: Place) -> Result<(), Error> {
    let c = chars
        .next()
        .ok_or_else(|| refuse("trailing backslash at end of expression"))?;
    let text = match (c, place) {
        ('d', _) => "[0-9]",
        ('D', _) => "[^0-9]",
        ('w', _) => "[0-9A-Za-z_]",
        ('W', _) => "[^0-9A-Za-z_]",
        ('s', _) => r"[\t\n\f\r ]",
        ('S', _) => r"[^\t\n\f\r ]",
        ('b', Place::Outside) => r"(?-u:\b)",
        ('B', Place::Outside) => r"(?-u:\B)",
        ('<' | '>', _) => {
            out.push(c);
            return Ok(());
        }
        ('Q', Place::Outside) => {
            quoted(chars, out);
            return Ok(());
        }
        ('A' | 'z' | 'a' | 'f' | 'n' | 'r' | 't' | 'v' | 'x' | 'p' | 'P', _) => {
            out.extend(['\\', c]);
            return Ok(());
        }
        _ if c.is_ascii_punctuation() => {
            out.extend(['\\', c]);
            return Ok(());
        }
        ('0'..='7', _) => return octal(c, chars, out),
        _ => return Err(refuse(format!("invalid escape sequence `\\{c}`"))),
    };
    out.push_str(text);
    Ok(())
}

/// `\Q` up to `\E` or the end is literal.
fn quoted(chars: &mut Peekable<Chars<'_>>, out: &mut String) {
    while let Some(c) = chars.next() {
        if c == '\\' && chars.next_if_eq(&'E').is_some() {
            return;
        }
        out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
    }
}

/// `\0`, `\012`; `\1` alone would be a reference back, which RE2 lacks.
fn octal(first: char, chars: &mut Peekable<Chars<'_>>, out: &mut String) -> Result<(), Error> {
    let digit = |c: &char| ('0'..='7').contains(c);
    if first != '0' && !chars.peek().is_some_and(digit) {
        return Err(refuse(format!("invalid escape sequence `\\{first}`")));
    }
    let mut value = first.to_digit(8).unwrap_or_default();
    for _ in 0..2 {
        match chars.next_if(digit).and_then(|c| c.to_digit(8)) {
            Some(next) => value = value * 8 + next,
            None => break,
        }
    }
    out.push_str(&format!("\\x{{{value:x}}}"));
    Ok(())
}

fn class(chars: &mut Peekable<Chars<'_>>, out: &mut String) -> Result<(), Error> {
    out.push('[');
    if chars.next_if_eq(&'^').is_some() {
        out.push('^');
    }
    let mut first = true;
    loop {
        match chars.next().ok_or_else(|| refuse("missing closing ]"))? {
            ']' if !first => break,
            '\\' => escape(chars, out, Place::Class)?,
            '[' => match posix(chars) {
                Some(name) => out.push_str(&name),
                None => out.push_str("\\["),
            },
            '-' if first || chars.peek() == Some(&']') => out.push_str("\\-"),
            '-' => {
                out.push('-');
                if chars.next_if_eq(&'-').is_some() {
                    out.push_str("\\-");
                }
            }
            c @ (']' | '&' | '~') => out.extend(['\\', c]),
            other => out.push(other),
        }
        first = false;
    }
    out.push(']');
    Ok(())
}

/// `[:name:]`, after its `[`.
fn posix(chars: &mut Peekable<Chars<'_>>) -> Option<String> {
    let rest: String = chars.clone().collect();
    let name = rest.strip_prefix(':')?.split_once(":]")?.0;
    if name.chars().any(|c| !c.is_ascii_alphabetic() && c != '^') {
        return None;
    }
    let text = format!("[:{name}:]");
    chars.by_ref().take(text.len() - 1).for_each(drop);
    Some(text)
}

/// `{n}`, `{n,}`, `{n,m}` count; any other `{` is itself.
fn count(chars: &mut Peekable<Chars<'_>>, out: &mut String) -> Result<(), Error> {
    let body: String = chars.clone().take_while(|c| c.is_ascii_digit() || *c == ',').collect();
    let closed = chars.clone().nth(body.chars().count()) == Some('}');
    let mut parts = body.splitn(2, ',');
    let (low, high) = (parts.next().unwrap_or_default(), parts.next());
    if !closed || low.is_empty() || high.is_some_and(|high| high.contains(',')) {
        out.push_str("\\{");
        return Ok(());
    }
    for number in [Some(low), high.filter(|high| !high.is_empty())].into_iter().flatten() {
        if number.parse::<u32>().is_ok_and(|number| number <= MAX_COUNT) {
            continue;
        }
        return Err(refuse(format!(
            "invalid repeat count `{{{body}}}`, at most {MAX_COUNT} is allowed"
        )));
    }
    out.push('{');
    Ok(())
}

/// Refuses flags RE2 does not have; groups with names pass.
fn flags(chars: &Peekable<Chars<'_>>) -> Result<(), Error> {
    let body: String = chars.clone().skip(1).take_while(|c| !matches!(c, ':' | ')')).collect();
    if body.starts_with(['P', '<']) {
        return Ok(());
    }
    match body.chars().find(|c| !matches!(c, 'i' | 'm' | 's' | 'U' | '-')) {
        None => Ok(()),
        Some(other) => Err(refuse(format!("invalid or unsupported Perl syntax `(?{other}`"))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(expression: &str, text: &str, expected: bool) {
        let regex = compile(expression).unwrap_or_else(|error| panic!("{expression}: {error}"));
        assert_eq!(
            regex.is_match(text),
            expected,
            "`{expression}` on `{text}` as `{}`",
            regex.as_str()
        );
    }

    #[test]
    fn searches_without_anchors() {
        check("applications", "applicationsets", false);
        check("application", "applicationsets", true);
        check("^app$", "app", true);
        check("^app$", "apps", false);
        check("repositories", "write-repositories", true);
    }

    #[test]
    fn follows_go_where_the_dialects_differ() {
        check(r"^\d+$", "12", true);
        check(r"^\d+$", "\u{0661}", false);
        check(r"^\w+$", "ä", false);
        check(r"^[\w-]+$", "a-b_1", true);
        check(r"^\Qa.b\E$", "a.b", true);
        check(r"^\Qa.b\E$", "axb", false);
        check("^a{,2}$", "a{,2}", true);
        check("^a{x$", "a{x", true);
        check("^a{2}$", "aa", true);
        check("^[[]$", "[", true);
        check("^[a&&b]+$", "&", true);
        check("^[]a]$", "]", true);
        check("^[[:alpha:]]+$", "abc", true);
        check("^[[:alpha:]]+$", "1", false);
        check(r"^\<a\>$", "<a>", true);
        check(r"^\101$", "A", true);
    }

    #[test]
    fn refuses_what_go_refuses() {
        for expression in [
            "*", "*/*", "[a", "(a", "a)", r"\1", r"\y", "a{1001}", "(?x)a", "a\\", "+",
        ] {
            assert!(compile(expression).is_err(), "{expression}");
        }
    }
}
