//! Template functions for the type of a value, and defaults for empty values.

use super::Args;
use crate::template::ExecError;
use crate::template::value::{Heap, Value, check_depth};

pub(super) fn call(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let (first, second) = (args.arg(0), args.arg(1));
    match args.name {
        "all" => Ok(Value::Bool(!args.values.iter().any(empty))),
        "any" => Ok(Value::Bool(args.values.iter().any(|value| !empty(value)))),
        "coalesce" => {
            let found = args.values.iter().find(|value| !empty(value));
            Ok(found.cloned().unwrap_or(Value::Nil))
        }
        "deepCopy" | "mustDeepCopy" if first.is_nil() => Err(args.error("there is nothing to copy")),
        "deepCopy" | "mustDeepCopy" => copy(heap, first, 0),
        "deepEqual" => deep_equal(heap, first, second, 0).map(Value::Bool),
        "default" => Ok(if empty(second) { first } else { second }.clone()),
        "empty" => Ok(Value::Bool(empty(first))),
        "fail" => Err(args.error(args.text(0)?)),
        "hello" => heap.text("Hello!"),
        "kindIs" => Ok(Value::Bool(&**args.text(0)? == second.kind_name())),
        "kindOf" => heap.text(first.kind_name()),
        "ternary" => Ok(if args.bool(2)? { first } else { second }.clone()),
        "typeIs" => Ok(Value::Bool(&**args.text(0)? == second.type_name())),
        "typeIsLike" => {
            let (wanted, observed) = (&**args.text(0)?, second.type_name());
            Ok(Value::Bool(wanted == observed || format!("*{wanted}") == observed))
        }
        "typeOf" => heap.text(first.type_name()),
        _ => Err(args.unknown()),
    }
}

/// Whether `if` treats the value as false, except that times and versions are never empty.
pub(super) fn empty(value: &Value) -> bool {
    !value.is_truthy()
}

/// Equality as in `reflect.DeepEqual`: types count too.
pub(super) fn deep_equal(heap: &Heap<'_>, left: &Value, right: &Value, depth: usize) -> Result<bool, ExecError> {
    heap.step()?;
    check_depth(depth)?;
    Ok(match (left, right) {
        (left, right) if left.is_nil() && right.is_nil() => true,
        (Value::Bool(left), Value::Bool(right)) => left == right,
        (Value::Int(left), Value::Int(right)) | (Value::Int64(left), Value::Int64(right)) => left == right,
        (Value::Float(left), Value::Float(right)) => left == right,
        (Value::Text(left), Value::Text(right)) => {
            heap.work(left.len())?;
            left == right
        }
        (Value::Time(left), Value::Time(right)) => left.timestamp() == right.timestamp(),
        (Value::Version(left), Value::Version(right)) => left.order(right).is_eq() && left.original == right.original,
        (Value::List(left), Value::List(right))
            if left.element_type == right.element_type && left.items.len() == right.items.len() =>
        {
            for (left, right) in left.items.iter().zip(&right.items) {
                if !deep_equal(heap, left, right, depth + 1)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Map(left), Value::Map(right)) if left.ptr_eq(right) => true,
        (Value::Map(left), Value::Map(right))
            if left.element_type == right.element_type && left.len() == right.len() =>
        {
            heap.fits(left.len(), 64)?;
            for (key, left) in left.entries() {
                let Some(right) = right.get(&key) else { return Ok(false) };
                if !deep_equal(heap, &left, &right, depth + 1)? {
                    return Ok(false);
                }
            }
            true
        }
        _ => false,
    })
}

/// The copy shares no map with `value`.
pub(super) fn copy(heap: &Heap<'_>, value: &Value, depth: usize) -> Result<Value, ExecError> {
    heap.step()?;
    check_depth(depth)?;
    Ok(match value {
        Value::List(list) => {
            heap.fits(list.items.len(), 64)?;
            let items = list.items.iter().map(|item| copy(heap, item, depth + 1));
            heap.list_as(list.element_type, items.collect::<Result<_, _>>()?, list.shared)?
        }
        Value::Map(map) => {
            let copied = heap.map(map.element_type)?;
            for (key, item) in map.entries() {
                heap.put(&copied, key, copy(heap, &item, depth + 1)?)?;
            }
            Value::Map(copied)
        }
        other => other.clone(),
    })
}
