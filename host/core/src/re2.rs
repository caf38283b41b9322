//! Translates Go's regular expressions (RE2 syntax) to Rust's dialect, so that the result matches
//! the same texts. An expression that Go refuses is refused. Matching never backtracks.
//!
//! The dialects differ in: ASCII-only `\d \w \s \b`, `\Q…\E`, literal `[`, `&`, `~` in classes,
//! literal `{` where no count follows, escaped `<`, `>`, `%` and blanks, repetitions of a
//! repetition (`a**`), counts above 1,000, also of groups within groups, flags beyond `imsU`.

use std::iter::Peekable;
use std::str::Chars;

const SIZE_LIMIT: usize = 1 << 20;
/// Highest count in `{n,m}` that RE2 accepts.
const MAX_COUNT: u32 = 1000;

/// Names of classes within brackets.
const POSIX: [&str; 14] = [
    "alnum", "alpha", "ascii", "blank", "cntrl", "digit", "graph", "lower", "print", "punct", "space", "upper", "word",
    "xdigit",
];

/// Compiles an expression. It searches: it is not anchored.
///
/// # Errors
/// What is wrong, in one line: Go refuses the expression, or its compiled form exceeds the bound.
pub fn compile(expression: &str) -> Result<regex::Regex, String> {
    compile_within(expression, SIZE_LIMIT)
}

/// As [`compile`], with another bound on the bytes of the compiled form.
///
/// # Errors
/// As [`compile`].
pub fn compile_within(expression: &str, bytes: usize) -> Result<regex::Regex, String> {
    let translated = translate(expression)?;
    regex::RegexBuilder::new(&translated)
        .size_limit(bytes)
        .build()
        .map_err(|error| {
            let text = error.to_string();
            let mut lines = text.lines().rev().map(str::trim);
            let last = lines.find(|line| !line.is_empty()).unwrap_or_default();
            last.trim_start_matches("error: ").to_owned()
        })
}

#[derive(Clone, Copy)]
struct PrecedingItem {
    /// The product of the counts within it.
    within: u32,
    /// Whether it is a repetition, which may not be repeated again.
    is_repetition: bool,
}

impl PrecedingItem {
    const fn atom(within: u32) -> Self {
        Self {
            within,
            is_repetition: false,
        }
    }
}

/// The expression in Rust's dialect.
///
/// # Errors
/// Why Go refuses it, in one line.
pub fn translate(expression: &str) -> Result<String, String> {
    let mut chars = expression.chars().peekable();
    let mut out = String::with_capacity(expression.len() + 8);
    let mut last = PrecedingItem::atom(1);
    // Highest product of counts so far, for each open group and for the expression.
    let mut products = vec![1_u32];
    // Where a run of flags begins that nothing but flags has followed. In Go flags cannot be
    // repeated: a repetition behind them applies to what is before them.
    let mut flags_at = None;
    while let Some(c) = chars.next() {
        let began = out.len();
        let mut next = PrecedingItem::atom(1);
        match c {
            '\\' => escape(&mut chars, &mut out, EscapeContext::Outside)?,
            '[' => class(&mut chars, &mut out)?,
            '*' | '+' | '?' => {
                out.push(c);
                next = repeated(last, last.within, &mut chars, &mut out)?;
            }
            '{' => {
                if let Some(most) = count(&mut chars, &mut out)? {
                    let product = last.within.saturating_mul(most.max(1));
                    next = repeated(last, product, &mut chars, &mut out)?;
                    // Go does not check the product at `{0}` and `{1}`.
                    if most > 1 && product > MAX_COUNT {
                        return Err(format!("counts multiply to {product}, at most {MAX_COUNT} is allowed"));
                    }
                    if let Some(most_of_group) = products.last_mut() {
                        *most_of_group = (*most_of_group).max(product);
                    }
                }
            }
            '(' => {
                if !group(&mut chars, &mut out)? {
                    flags_at = flags_at.or(Some(began));
                    last.is_repetition = false;
                    continue;
                }
                products.push(1);
            }
            ')' => {
                out.push(')');
                let product = products.pop().unwrap_or(1);
                if let Some(outer) = products.last_mut() {
                    *outer = (*outer).max(product);
                }
                next = PrecedingItem::atom(product);
            }
            other => out.push(other),
        }
        flags_at = flags_at.filter(|_| next.is_repetition).map(|at| {
            let repetition = out.split_off(began);
            out.insert_str(at, &repetition);
            at + repetition.len()
        });
        last = next;
    }
    Ok(out)
}

/// Handles what follows a repetition: a `?` makes it lazy, anything else may not repeat it again.
fn repeated(
    last: PrecedingItem,
    within: u32,
    chars: &mut Peekable<Chars<'_>>,
    out: &mut String,
) -> Result<PrecedingItem, String> {
    if last.is_repetition {
        return Err("invalid nested repetition operator".to_owned());
    }
    if let Some(lazy) = chars.next_if_eq(&'?') {
        out.push(lazy);
    }
    Ok(PrecedingItem {
        within,
        is_repetition: true,
    })
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum EscapeContext {
    Outside,
    Class,
}

fn escape(chars: &mut Peekable<Chars<'_>>, out: &mut String, context: EscapeContext) -> Result<(), String> {
    let c = chars.next().ok_or("trailing backslash at end of expression")?;
    let text = match (c, context) {
        ('d', _) => "[0-9]",
        ('D', _) => "[^0-9]",
        ('w', _) => "[0-9A-Za-z_]",
        ('W', _) => "[^0-9A-Za-z_]",
        ('s', _) => r"[\t\n\f\r ]",
        ('S', _) => r"[^\t\n\f\r ]",
        ('b', EscapeContext::Outside) => r"(?-u:\b)",
        ('B', EscapeContext::Outside) => r"(?-u:\B)",
        ('Q', EscapeContext::Outside) => {
            quoted(chars, out);
            return Ok(());
        }
        ('A' | 'z' | 'a' | 'f' | 'n' | 'r' | 't' | 'v', _) => {
            out.extend(['\\', c]);
            return Ok(());
        }
        ('x' | 'p' | 'P', _) => {
            out.extend(['\\', c]);
            // Braces with a name or number are not a count.
            if chars.peek() == Some(&'{') {
                let braced = chars.clone().position(|c| c == '}').ok_or("missing closing }")?;
                out.extend(chars.by_ref().take(braced + 1));
            }
            return Ok(());
        }
        _ if c.is_ascii() && !c.is_ascii_alphanumeric() => {
            out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
            return Ok(());
        }
        ('0'..='7', _) => return octal(c, chars, out),
        _ => return Err(format!("invalid escape sequence `\\{c}`")),
    };
    out.push_str(text);
    Ok(())
}

/// Everything from `\Q` up to `\E` or the end is literal.
fn quoted(chars: &mut Peekable<Chars<'_>>, out: &mut String) {
    while let Some(c) = chars.next() {
        if c == '\\' && chars.next_if_eq(&'E').is_some() {
            return;
        }
        out.push_str(&regex::escape(c.encode_utf8(&mut [0; 4])));
    }
}

/// `\0`, `\012`. `\1` alone would be a backreference, which RE2 lacks.
fn octal(first: char, chars: &mut Peekable<Chars<'_>>, out: &mut String) -> Result<(), String> {
    let digit = |c: &char| ('0'..='7').contains(c);
    if first != '0' && !chars.peek().is_some_and(digit) {
        return Err(format!("invalid escape sequence `\\{first}`"));
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

fn class(chars: &mut Peekable<Chars<'_>>, out: &mut String) -> Result<(), String> {
    out.push('[');
    if chars.next_if_eq(&'^').is_some() {
        out.push('^');
    }
    let mut first = true;
    loop {
        match chars.next().ok_or("missing closing ]")? {
            ']' if !first => break,
            '\\' => escape(chars, out, EscapeContext::Class)?,
            '[' => match posix(chars)? {
                Some(name) => out.push_str(&name),
                None => out.push_str("\\["),
            },
            '-' if first || chars.peek() == Some(&']') => out.push_str("\\-"),
            // Rust reads `--`, `&&` and `~~` as operations on two classes.
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

/// `[:name:]`, after its `[`. Fails if there is no class of that name.
fn posix(chars: &mut Peekable<Chars<'_>>) -> Result<Option<String>, String> {
    let rest: String = chars.clone().collect();
    let Some((name, _)) = rest.strip_prefix(':').and_then(|rest| rest.split_once(":]")) else {
        return Ok(None);
    };
    if !POSIX.contains(&name.strip_prefix('^').unwrap_or(name)) {
        return Err(format!("no class is called `[:{name}:]`"));
    }
    let text = format!("[:{name}:]");
    chars.by_ref().take(text.len() - 1).for_each(drop);
    Ok(Some(text))
}

/// `{n}`, `{n,}`, `{n,m}` are counts, without leading zeros; any other `{` is literal. Returns the
/// highest number.
fn count(chars: &mut Peekable<Chars<'_>>, out: &mut String) -> Result<Option<u32>, String> {
    let body: String = chars.clone().take_while(|c| c.is_ascii_digit() || *c == ',').collect();
    let closed = chars.clone().nth(body.chars().count()) == Some('}');
    let mut parts = body.splitn(2, ',');
    let (low, high) = (parts.next().unwrap_or_default(), parts.next());
    let is_number = |text: &str| text.len() < 2 || !text.starts_with('0');
    let numbers = [Some(low), high.filter(|high| !high.is_empty())].into_iter().flatten();
    let is_count = closed && !low.is_empty() && !high.is_some_and(|high| high.contains(','));
    if !is_count || !numbers.clone().all(is_number) {
        out.push_str("\\{");
        return Ok(None);
    }
    let mut most = 0;
    for number in numbers {
        match number.parse::<u32>() {
            Ok(number) if number <= MAX_COUNT => most = number,
            Ok(_) | Err(_) => {
                return Err(format!(
                    "invalid repeat count `{{{body}}}`, at most {MAX_COUNT} is allowed"
                ));
            }
        }
    }
    // Up to and including the closing brace.
    out.push('{');
    out.extend(chars.by_ref().take(body.len() + 1));
    Ok(Some(most))
}

/// Reads the start of a group after its `(`, or flags, which are not a group. Returns whether it is
/// a group.
///
/// The name of a group does not affect a verdict and is left out, as Go accepts more names.
fn group(chars: &mut Peekable<Chars<'_>>, out: &mut String) -> Result<bool, String> {
    if chars.next_if_eq(&'?').is_none() {
        out.push('(');
        return Ok(true);
    }
    let rest: String = chars.clone().collect();
    if let Some(named) = rest.strip_prefix("P<").or_else(|| rest.strip_prefix('<')) {
        let name = named.split_once('>').map(|(name, _)| name).unwrap_or_default();
        if name.is_empty() || !name.chars().all(|c| c == '_' || c.is_ascii_alphanumeric()) {
            return Err("invalid named capture".to_owned());
        }
        // Up to and including the `>`.
        chars.by_ref().find(|c| *c == '>');
        out.push('(');
        return Ok(true);
    }
    let unsupported = |c: char| format!("invalid or unsupported Perl syntax `(?{c}`");
    let (mut set, mut cleared, mut is_negative) = (String::new(), String::new(), false);
    for c in chars {
        match c {
            'i' | 'm' | 's' | 'U' => {
                // The last occurrence of a flag counts.
                set.retain(|other| other != c);
                cleared.retain(|other| other != c);
                if is_negative { &mut cleared } else { &mut set }.push(c);
            }
            '-' if !is_negative => is_negative = true,
            // Go refuses a `-` that no flag follows.
            ':' | ')' if !is_negative || !cleared.is_empty() => {
                let is_group = c == ':';
                let sign = if cleared.is_empty() { "" } else { "-" };
                // Go accepts `(?)`, Rust does not.
                if is_group || !set.is_empty() || !cleared.is_empty() {
                    out.push_str(&format!("(?{set}{sign}{cleared}{c}"));
                }
                return Ok(is_group);
            }
            other => return Err(unsupported(other)),
        }
    }
    Err("missing closing )".to_owned())
}

#[cfg(test)]
mod tests;
