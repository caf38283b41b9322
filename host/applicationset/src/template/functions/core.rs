//! The functions of the template language itself.

use super::{Args, Signature, VARIADIC, printf};
use crate::template::ExecError;
use crate::template::value::{ElementType, Heap, Value, size};

pub(super) const NAMES: &[Signature] = &[
    (0, VARIADIC, "print println"),
    (1, 1, "len not"),
    (1, VARIADIC, "call html index js urlquery"),
];

pub(super) fn call(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    match args.name {
        "call" => Err(args.error("there are no functions to call")),
        "html" => escaped(heap, args, gotmpl::html_escape),
        "index" => index(heap, args),
        "js" => escaped(heap, args, js),
        "len" => len(args),
        "not" => Ok(Value::Bool(!args.arg(0).is_truthy())),
        "print" => {
            let text = sprint(heap, args.values)?;
            heap.text(text)
        }
        "println" => println(heap, args),
        "urlquery" => escaped(heap, args, gotmpl::url_encode),
        _ => Err(args.unknown()),
    }
}

fn len(args: &Args<'_>) -> Result<Value, ExecError> {
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
        printf::show(heap, &mut text, value)?;
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
        printf::show(heap, &mut text, value)?;
    }
    text.push('\n');
    heap.text(text)
}

/// How many times longer escaping can make a string.
const GROWTH: u64 = 6;

fn escaped(heap: &mut Heap<'_>, args: &Args<'_>, escape: fn(&str) -> String) -> Result<Value, ExecError> {
    let values = args.values.iter().map(|value| match value {
        Value::Missing | Value::Nil => Value::Text("<no value>".into()),
        other => other.clone(),
    });
    let text = sprint(heap, &values.collect::<Vec<_>>())?;
    heap.charge(size(text.len()).saturating_mul(GROWTH))?;
    heap.text(escape(&text))
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
