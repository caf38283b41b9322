//! `sprintf` as OPA has it: Go's `fmt.Sprintf` over the values of a list. Only the verbs that
//! [`unsupported`] permits.

use std::fmt::Write as _;

use regorus::Value;

/// The first verb of a format that is not supported; a format that ends within one has none.
pub(crate) fn unsupported(format: &str) -> Option<String> {
    let mut rest = format;
    while let Some((_, after)) = rest.split_once('%') {
        match Verb::read(after) {
            Some((_, after)) => rest = after,
            None => return Some(format!("%{}", after.chars().take(4).collect::<String>())),
        }
    }
    None
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Padding {
    Left,
    Right,
    Zeros,
}

/// What follows a `%`.
struct Verb {
    letter: char,
    padding: Padding,
    width: usize,
    precision: Option<usize>,
}

impl Verb {
    /// Reads a verb; returns it with what follows.
    fn read(text: &str) -> Option<(Self, &str)> {
        let (padding, rest) = match text.strip_prefix('-') {
            Some(rest) => (Padding::Right, rest),
            None => match text.strip_prefix('0') {
                Some(rest) => (Padding::Zeros, rest),
                None => (Padding::Left, text),
            },
        };
        let (width, rest) = number(rest)?;
        let (precision, rest) = match rest.strip_prefix('.') {
            Some(rest) => number(rest).map(|(digits, rest)| (Some(digits.unwrap_or(0)), rest))?,
            None => (None, rest),
        };
        let letter = rest.chars().next()?;
        let verb = Self {
            letter,
            padding,
            width: width.unwrap_or(0),
            precision,
        };
        let is_plain = padding == Padding::Left && width.is_none() && precision.is_none();
        let is_supported = match letter {
            '%' => is_plain,
            'f' => true,
            'd' => precision.is_none(),
            's' | 'v' => precision.is_none() && padding != Padding::Zeros,
            _ => false,
        };
        is_supported.then(|| (verb, rest.get(letter.len_utf8()..).unwrap_or_default()))
    }

    fn pad(&self, text: &str, out: &mut String) {
        let missing = self.width.saturating_sub(text.chars().count());
        let blanks = |letter: &str| letter.repeat(missing);
        match (self.padding, text.strip_prefix('-')) {
            (Padding::Left, _) => out.extend([&blanks(" "), text]),
            (Padding::Right, _) => out.extend([text, &blanks(" ")]),
            (Padding::Zeros, Some(digits)) => out.extend(["-", &blanks("0"), digits]),
            (Padding::Zeros, None) => out.extend([&blanks("0"), text]),
        }
    }

    fn write(&self, value: &Value, out: &mut String) -> Option<()> {
        let (kind, text) = match value {
            Value::String(text) => ("string", text.to_string()),
            Value::Number(_) => match (value.as_i64(), value.as_f64()) {
                (Ok(whole), _) => ("int64", whole.to_string()),
                (Err(_), Ok(float)) if is_fraction(value) => ("float64", float_text(float)),
                // The engine does not show a whole number that is larger with all its digits.
                (Err(_), _) => return None,
            },
            // OPA shows a number within another value as it was written.
            other if super::numbers::holds_fraction(other) => return None,
            other => ("string", term(other)),
        };
        let text = match (self.letter, kind, value.as_f64()) {
            ('v', _, _) | ('s', "string", _) | ('d', "int64", _) => text,
            // Whether it was written as `100` or `1e2` is not known, and Go distinguishes them.
            ('f', "int64", _) => return None,
            ('f', "float64", Ok(float)) => format!("{float:.*}", self.precision.unwrap_or(6)),
            // Go says so, and pads or cuts the value within what it says.
            (letter, _, _) => {
                if self.width > 0 || self.precision.is_some() {
                    return None;
                }
                write!(out, "%!{letter}({kind}={text})").ok()?;
                return Some(());
            }
        };
        self.pad(&text, out);
        Some(())
    }
}

/// Digits at the start of a text, two at most.
fn number(text: &str) -> Option<(Option<usize>, &str)> {
    let end = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (digits, rest) = text.split_at_checked(end)?;
    match digits.len() {
        0 => Some((None, rest)),
        1 | 2 => Some((Some(digits.parse().ok()?), rest)),
        _ => None,
    }
}

pub(super) fn sprintf(arguments: &[Value]) -> Option<Value> {
    let [Value::String(format), Value::Array(values)] = arguments else {
        return None;
    };
    let mut values = values.iter();
    let (mut out, mut rest) = (String::new(), &**format);
    while let Some((before, after)) = rest.split_once('%') {
        out.push_str(before);
        let (verb, after) = Verb::read(after)?;
        rest = after;
        if verb.letter == '%' {
            out.push('%');
            continue;
        }
        match values.next() {
            Some(value) => verb.write(value, &mut out)?,
            None => write!(out, "%!{}(MISSING)", verb.letter).ok()?,
        }
    }
    out.push_str(rest);
    // Go appends what is left over. A policy that does this is mistaken.
    values.next().is_none().then(|| out.into())
}

fn is_fraction(number: &Value) -> bool {
    number.as_f64().is_ok_and(|float| float.fract() != 0.0)
}

/// Go's `%v` of a float.
fn float_text(float: f64) -> String {
    let exponent = format!("{float:e}");
    let Some((digits, power)) = exponent.split_once('e') else {
        return exponent;
    };
    match power.parse::<i32>() {
        Ok(power) if (-4..21).contains(&power) => float.to_string(),
        Ok(power) => format!(
            "{digits}e{}{:02}",
            if power < 0 { '-' } else { '+' },
            power.unsigned_abs()
        ),
        Err(_) => exponent.clone(),
    }
}

/// A value as Rego writes it.
fn term(value: &Value) -> String {
    let list = |items: Vec<String>| items.join(", ");
    match value {
        Value::Null => "null".to_owned(),
        Value::Bool(value) => value.to_string(),
        Value::Number(_) => value.to_string(),
        Value::String(text) => quoted(text),
        Value::Array(items) => format!("[{}]", list(items.iter().map(term).collect())),
        Value::Set(items) if items.is_empty() => "set()".to_owned(),
        Value::Set(items) => format!("{{{}}}", list(items.iter().map(term).collect())),
        Value::Object(entries) => {
            let entries = entries.iter();
            let entries = entries.map(|(key, value)| format!("{}: {}", term(key), term(value)));
            format!("{{{}}}", list(entries.collect()))
        }
        Value::Undefined => String::new(),
    }
}

/// Go's `strconv.Quote`.
fn quoted(text: &str) -> String {
    let mut out = String::with_capacity(text.len() + 2);
    out.push('"');
    for letter in text.chars() {
        match letter {
            '"' | '\\' => out.extend(['\\', letter]),
            '\u{7}' => out.push_str("\\a"),
            '\u{8}' => out.push_str("\\b"),
            '\u{c}' => out.push_str("\\f"),
            '\n' => out.push_str("\\n"),
            '\r' => out.push_str("\\r"),
            '\t' => out.push_str("\\t"),
            '\u{b}' => out.push_str("\\v"),
            ' '..='~' => out.push(letter),
            _ => {
                let code = u32::from(letter);
                let is_printable = letter.escape_debug().count() == 1;
                match code {
                    _ if is_printable => out.push(letter),
                    // Writing to a text does not fail.
                    0..=0x7f => drop(write!(out, "\\x{code:02x}")),
                    0x80..=0xffff => drop(write!(out, "\\u{code:04x}")),
                    _ => drop(write!(out, "\\U{code:08x}")),
                }
            }
        }
    }
    out.push('"');
    out
}

#[cfg(test)]
mod tests {
    use regorus::Value;
    use serde_json::json;

    use super::{sprintf, unsupported};

    #[track_caller]
    fn formats(format: &str, values: serde_json::Value) -> String {
        assert_eq!(unsupported(format), None);
        let text = sprintf(&[format.into(), Value::from(values)]).unwrap();
        text.as_string().unwrap().to_string()
    }

    /// The results are those of OPA 1.22.0.
    #[test]
    fn texts_are_those_of_opa() {
        for (format, values, text) in [
            ("%s|%d|%v", json!([5, "x", 1.5]), "%!s(int64=5)|%!d(string=x)|1.5"),
            ("%5d|%05d|%-5d|", json!([7, -7, 7]), "    7|-0007|7    |"),
            ("%5s|%-5s|", json!(["ab", "ab"]), "   ab|ab   |"),
            ("%s", json!([]), "%!s(MISSING)"),
            ("%d %.2f", json!([1.5, 2.345]), "%!d(float64=1.5) 2.35"),
            ("%v %v", json!([1.5, 0.00001]), "1.5 1e-05"),
            (
                "%v %s",
                json!([["a", 1, {"b": true}], null]),
                "[\"a\", 1, {\"b\": true}] null",
            ),
            ("%v %v", json!([true, "q\"\n"]), "true q\"\n"),
            ("%v", json!([["q\"\n\u{1}é\u{200b}"]]), "[\"q\\\"\\n\\x01é\\u200b\"]"),
            ("%5v|%-5v|100%%", json!([1, true]), "    1|true |100%"),
            ("%f", json!(["a"]), "%!f(string=a)"),
        ] {
            assert_eq!(formats(format, values), text, "{format}");
        }
    }

    #[test]
    fn what_the_engine_does_not_show_as_go_does_is_a_failure() {
        for (format, value) in [
            ("%f", json!(100)),
            ("%v", json!(1e21)),
            ("%s", json!(u64::MAX)),
            ("%5d", json!("x")),
            ("%.1f", json!("text")),
        ] {
            assert!(
                sprintf(&[format.into(), Value::from(json!([value]))]).is_none(),
                "{format}"
            );
        }
    }

    #[test]
    fn other_verbs_are_not_supported() {
        for format in [
            "%z", "%x", "%*d", "%[1]s", "%999d", "%.999f", "%", "%05s", "%q", "% d", "%+d", "%5%",
        ] {
            assert!(unsupported(format).is_some(), "{format}");
        }
        for format in ["", "%%", "%s and %d", "%5.2f", "100%% of %v", "%-10s 1234567", "%05d"] {
            assert_eq!(unsupported(format), None, "{format}");
        }
    }
}
