//! The functions of the template language itself.

use std::cmp::Ordering;

use super::numbers::whole;
use super::{Args, printf};
use crate::template::ExecError;
use crate::template::value::{ElementType, Heap, Value, size};

pub(super) fn call(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    Ok(Value::Bool(match args.name {
        "call" => return Err(args.error("there are no functions to call")),
        "eq" => equal(args)?,
        // `ge` and `gt` are the opposites of `lt` and `le` in Go, so NaN makes them true.
        "ge" => order(args)? != Some(Ordering::Less),
        "gt" => !order(args)?.is_some_and(Ordering::is_le),
        "html" => return escaped(heap, args, gotmpl::html_escape),
        "index" => return index(heap, args),
        "js" => return escaped(heap, args, js),
        "le" => order(args)?.is_some_and(Ordering::is_le),
        "len" => return len(args),
        "lt" => order(args)? == Some(Ordering::Less),
        "ne" => !equal(args)?,
        "not" => !args.arg(0).is_truthy(),
        "print" => return heap.text(sprint(heap, args.values)?),
        "println" => return println(heap, args),
        "urlquery" => return escaped(heap, args, gotmpl::url_encode),
        _ => return Err(args.unknown()),
    }))
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

fn index(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let mut value = args.arg(0).clone();
    if value.is_nil() {
        return Err(args.error("index of untyped nil"));
    }
    for key in args.rest(1) {
        // The result has a separate type in Argo CD.
        heap.refuse_divergent(matches!(value, Value::Text(_)), || "`index` of a text".to_owned())?;
        let found = match (&value, key) {
            (Value::List(list), Value::Int(at) | Value::Int64(at)) => {
                usize::try_from(*at).ok().and_then(|at| list.items.get(at).cloned())
            }
            (Value::Text(text), Value::Int(at) | Value::Int64(at)) => {
                let byte = usize::try_from(*at).ok().and_then(|at| text.as_bytes().get(at));
                byte.map(|byte| Value::Int(i64::from(*byte)))
            }
            (Value::Map(map), Value::Text(key)) => Some(match map.get(key) {
                Some(value) => value,
                None if map.element_type == ElementType::Text => Value::Text("".into()),
                None => Value::Nil,
            }),
            (from @ (Value::List(_) | Value::Text(_) | Value::Map(_)), key) => {
                let (from, key) = (from.kind_name(), key.type_name());
                return Err(args.error(format!("cannot index {from} with type {key}")));
            }
            (from, _) => return Err(args.error(format!("can't index item of type {}", from.type_name()))),
        };
        value = found.ok_or_else(|| args.error(format!("index out of range: {}", whole(key))))?;
    }
    Ok(value)
}

/// Concatenates values, with a space between two that are both not strings.
fn sprint(heap: &Heap<'_>, values: &[Value]) -> Result<String, ExecError> {
    let mut text = String::new();
    let mut last_is_text = true;
    for value in values {
        let is_text = matches!(value, Value::Text(_));
        if !is_text && !last_is_text {
            text.push(' ');
        }
        heap.fits(text.len(), 2)?;
        printf::show(heap, &mut text, value)?;
        last_is_text = is_text;
    }
    Ok(text)
}

fn println(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let mut text = String::new();
    for (index, value) in args.values.iter().enumerate() {
        text.push_str(if index > 0 { " " } else { "" });
        printf::show(heap, &mut text, value)?;
    }
    text.push('\n');
    heap.text(text)
}

/// How many times longer escaping can make a string.
const GROWTH: u64 = 6;

fn escaped(heap: &Heap<'_>, args: &Args<'_>, escape: fn(&str) -> String) -> Result<Value, ExecError> {
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
            '\\' | '\'' | '"' => escaped.extend(['\\', letter]),
            '<' | '>' | '&' | '=' => escaped.push_str(&format!(r"\u{:04X}", u32::from(letter))),
            other if other.is_control() => escaped.push_str(&format!(r"\u{:04X}", u32::from(other))),
            other => escaped.push(other),
        }
    }
    escaped
}

fn incompatible(args: &Args<'_>, left: &Value, right: &Value) -> ExecError {
    let (left, right) = (left.type_name(), right.type_name());
    args.error(format!("incompatible types for comparison: {left} and {right}"))
}

/// Whether the first argument equals one of the others.
fn equal(args: &Args<'_>) -> Result<bool, ExecError> {
    if args.values.len() < 2 {
        return Err(args.error("missing argument for comparison"));
    }
    for right in args.rest(1) {
        if pair(args, args.arg(0), right)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn pair(args: &Args<'_>, left: &Value, right: &Value) -> Result<bool, ExecError> {
    match (left, right) {
        (Value::Bool(left), Value::Bool(right)) => Ok(left == right),
        (Value::Int(left) | Value::Int64(left), Value::Int(right) | Value::Int64(right)) => Ok(left == right),
        (Value::Float(left), Value::Float(right)) => Ok(left == right),
        (Value::Text(left), Value::Text(right)) => Ok(left == right),
        (Value::Time(left), Value::Time(right)) => Ok(left.timestamp() == right.timestamp()),
        // Versions are pointers in Go, and `eq` compares those.
        (Value::Version(left), Value::Version(right)) => Ok(std::rc::Rc::ptr_eq(left, right)),
        (left, right) if left.is_nil() || right.is_nil() => Ok(left.is_nil() == right.is_nil()),
        (Value::List(_), Value::List(_)) | (Value::Map(_), Value::Map(_)) => {
            Err(args.error(format!("non-comparable type {}", left.type_name())))
        }
        (left, right) => Err(incompatible(args, left, right)),
    }
}

/// `None` if the numbers have no order.
fn order(args: &Args<'_>) -> Result<Option<Ordering>, ExecError> {
    match (args.arg(0), args.arg(1)) {
        (Value::Int(left) | Value::Int64(left), Value::Int(right) | Value::Int64(right)) => Ok(Some(left.cmp(right))),
        (Value::Float(left), Value::Float(right)) => Ok(left.partial_cmp(right)),
        (Value::Text(left), Value::Text(right)) => Ok(Some(left.cmp(right))),
        (left, right) if std::mem::discriminant(left) == std::mem::discriminant(right) => {
            Err(args.error("invalid type for comparison"))
        }
        (left, right) => Err(incompatible(args, left, right)),
    }
}
