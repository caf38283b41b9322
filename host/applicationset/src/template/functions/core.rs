//! The functions of the template language itself.

use super::{Args, FunctionEntry, VARIADIC, print};
use crate::template::ExecError;
use crate::template::value::{ElementType, Heap, Value, size};

pub(super) const TABLE: &[FunctionEntry] = &[
    ("not", 1, 1, |_, args| Ok(Value::Bool(!args.arg(0).is_truthy()))),
    ("len", 1, 1, len),
    ("index", 1, VARIADIC, index),
    ("call", 1, VARIADIC, |_, args| {
        Err(args.error("there are no functions to call"))
    }),
    ("print", 0, VARIADIC, |heap, args| {
        let text = sprint(heap, args.values)?;
        heap.text(text)
    }),
    ("println", 0, VARIADIC, println),
    ("html", 1, VARIADIC, |heap, args| escaped(heap, args, html)),
    ("js", 1, VARIADIC, |heap, args| escaped(heap, args, js)),
    ("urlquery", 1, VARIADIC, |heap, args| escaped(heap, args, query)),
];

fn len(_: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let length = match args.arg(0) {
        Value::Text(text) => text.len(),
        Value::List(list) => list.items.len(),
        Value::Map(map) => map.len(),
        other => return Err(args.error(format!("len of type {}", other.type_name()))),
    };
    Ok(Value::Int(i64::try_from(length).unwrap_or(i64::MAX)))
}

fn index(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let mut value = args.arg(0).clone();
    if value.is_nil() {
        return Err(args.error("index of untyped nil"));
    }
    for key in args.rest(1) {
        // The result has a type of its own in Argo CD.
        heap.refuse_divergent(matches!(value, Value::Text(_)), || "`index` of a text".to_owned())?;
        value = match (&value, key) {
            (Value::List(list), Value::Int(at) | Value::Int64(at)) => usize::try_from(*at)
                .ok()
                .and_then(|at| list.items.get(at))
                .cloned()
                .ok_or_else(|| args.error(format!("index out of range: {at}")))?,
            (Value::Text(text), Value::Int(at) | Value::Int64(at)) => usize::try_from(*at)
                .ok()
                .and_then(|at| text.as_bytes().get(at))
                .map(|byte| Value::Int(i64::from(*byte)))
                .ok_or_else(|| args.error(format!("index out of range: {at}")))?,
            (Value::Map(map), Value::Text(key)) => match map.get(key) {
                Some(value) => value,
                None if map.element_type == ElementType::Text => Value::Text("".into()),
                None => Value::Nil,
            },
            (from @ (Value::List(_) | Value::Text(_) | Value::Map(_)), key) => {
                let (from, key) = (from.kind_name(), key.type_name());
                return Err(args.error(format!("cannot index {from} with type {key}")));
            }
            (from, _) => return Err(args.error(format!("can't index item of type {}", from.type_name()))),
        };
    }
    Ok(value)
}

/// Concatenates values, with a space between two that are both not strings.
pub(super) fn sprint(heap: &mut Heap<'_>, values: &[Value]) -> Result<String, ExecError> {
    let mut text = String::new();
    let mut last_is_text = true;
    for (index, value) in values.iter().enumerate() {
        let is_text = matches!(value, Value::Text(_));
        if index > 0 && !is_text && !last_is_text {
            text.push(' ');
        }
        heap.fits(text.len(), 2)?;
        print::show(heap, &mut text, value, 0)?;
        last_is_text = is_text;
    }
    Ok(text)
}

fn println(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let mut text = String::new();
    for (index, value) in args.values.iter().enumerate() {
        if index > 0 {
            text.push(' ');
        }
        print::show(heap, &mut text, value, 0)?;
    }
    text.push('\n');
    heap.text(text)
}

/// How many times longer escaping can make a string.
const GROWTH: u64 = 6;

fn escaped(heap: &mut Heap<'_>, args: &Args<'_>, escape: fn(&str) -> String) -> Result<Value, ExecError> {
    let values: Vec<Value> = args
        .values
        .iter()
        .map(|value| match value {
            Value::Missing | Value::Nil => Value::Text("<no value>".into()),
            other => other.clone(),
        })
        .collect();
    let text = sprint(heap, &values)?;
    heap.charge(size(text.len()).saturating_mul(GROWTH))?;
    heap.text(escape(&text))
}

fn html(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '\0' => escaped.push('\u{fffd}'),
            '"' => escaped.push_str("&#34;"),
            '\'' => escaped.push_str("&#39;"),
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            other => escaped.push(other),
        }
    }
    escaped
}

fn js(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            '\\' => escaped.push_str(r"\\"),
            '\'' => escaped.push_str(r"\'"),
            '"' => escaped.push_str("\\\""),
            '<' => escaped.push_str(r"\u003C"),
            '>' => escaped.push_str(r"\u003E"),
            '&' => escaped.push_str(r"\u0026"),
            '=' => escaped.push_str(r"\u003D"),
            other if other.is_control() => escaped.push_str(&format!(r"\u{:04X}", u32::from(other))),
            other => escaped.push(other),
        }
    }
    escaped
}

fn query(text: &str) -> String {
    url::form_urlencoded::byte_serialize(text.as_bytes())
        .collect::<String>()
        .replace('*', "%2A")
        .replace("%7E", "~")
}
