//! Converts JSON values that an API server sent into the same trees, without writing YAML text in
//! between, and trees into JSON values. Nodes made of JSON have no positions, except for the lines inside multi-line
//! texts.

use std::rc::Rc;

use serde_json::{Number, Value};

use super::{Content, Entry, Node, Position, Scalar, ScalarType, Style};

/// The value as a tree. Its depth is bounded by the JSON parser's.
pub fn from_json(value: &Value) -> Rc<Node> {
    let (content, text_line) = match value {
        Value::Null => (Content::scalar("null", Style::Plain), 0),
        Value::Bool(true) => (Content::scalar("true", Style::Plain), 0),
        Value::Bool(false) => (Content::scalar("false", Style::Plain), 0),
        Value::Number(number) => (Content::scalar(&number.to_string(), Style::Plain), 0),
        // Lines of a multi-line text count from its first one.
        Value::String(text) => (Content::scalar(text, Style::Quoted), u32::from(text.contains('\n'))),
        Value::Array(items) => (Content::Sequence(items.iter().map(from_json).collect()), 0),
        Value::Object(members) => {
            let entry = |(key, value): (&String, &Value)| Entry {
                key: Rc::from(key.as_str()),
                line: 0,
                column: 0,
                value: from_json(value),
            };
            (Content::Mapping(members.iter().map(entry).collect()), 0)
        }
    };
    // Counts and depths bound aliases, which JSON does not have.
    Rc::new(Node {
        text_line,
        ..Node::new(content, Position::default())
    })
}

/// The tree as a value. Numbers without a JSON form (`.inf`) become text.
pub fn to_json(node: &Node) -> Value {
    match &node.content {
        Content::Scalar(scalar) => match scalar.scalar_type() {
            ScalarType::Null => Value::Null,
            ScalarType::Boolean(value) => Value::Bool(value),
            ScalarType::Number => number(scalar).map_or_else(|| Value::String(scalar.text.to_string()), Value::Number),
            ScalarType::Text => Value::String(scalar.text.to_string()),
        },
        Content::Sequence(items) => Value::Array(items.iter().map(|item| to_json(item)).collect()),
        Content::Mapping(entries) => {
            let entries = entries
                .iter()
                .map(|entry| (entry.key.to_string(), to_json(&entry.value)));
            Value::Object(entries.collect())
        }
    }
}

fn number(scalar: &Scalar) -> Option<Number> {
    let text = &*scalar.text;
    let (sign, digits) = match text.strip_prefix('-') {
        Some(digits) => (-1, digits),
        None => (1, text.strip_prefix('+').unwrap_or(text)),
    };
    let whole = match (digits.strip_prefix("0x"), digits.strip_prefix("0o")) {
        (Some(digits), _) => i64::from_str_radix(digits, 16).ok(),
        (_, Some(digits)) => i64::from_str_radix(digits, 8).ok(),
        (None, None) => digits.parse().ok(),
    };
    let large = || digits.parse::<u64>().ok().filter(|_| sign > 0);
    let whole = whole.map(|whole| Number::from(sign * whole));
    let whole = whole.or_else(|| large().map(Number::from));
    whole.or_else(|| Number::from_f64(text.parse().ok()?))
}
