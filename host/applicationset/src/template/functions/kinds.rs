//! Template functions for the type of a value, and defaults for empty values.

use super::{Args, FunctionEntry, VARIADIC};
use crate::template::ExecError;
use crate::template::exec::exec_error;
use crate::template::value::{DEPTH, Heap, Value};

pub(super) const TABLE: &[FunctionEntry] = &[
    ("typeOf", 1, 1, |heap, args| heap.text(args.arg(0).type_name())),
    ("typeIs", 2, 2, |_, args| {
        Ok(Value::Bool(&**args.text(0)? == args.arg(1).type_name()))
    }),
    ("typeIsLike", 2, 2, |_, args| {
        let (wanted, observed) = (args.text(0)?, args.arg(1).type_name());
        Ok(Value::Bool(&**wanted == observed || format!("*{wanted}") == observed))
    }),
    ("kindOf", 1, 1, |heap, args| heap.text(args.arg(0).kind_name())),
    ("kindIs", 2, 2, |_, args| {
        Ok(Value::Bool(&**args.text(0)? == args.arg(1).kind_name()))
    }),
    ("deepEqual", 2, 2, |heap, args| {
        deep_equal(heap, args.arg(0), args.arg(1), 0).map(Value::Bool)
    }),
    ("default", 1, VARIADIC, |_, args| {
        let given = args.arg(1);
        Ok(if empty(given) { args.arg(0) } else { given }.clone())
    }),
    ("empty", 1, 1, |_, args| Ok(Value::Bool(empty(args.arg(0))))),
    ("coalesce", 0, VARIADIC, |_, args| {
        Ok(args
            .values
            .iter()
            .find(|value| !empty(value))
            .cloned()
            .unwrap_or(Value::Nil))
    }),
    ("all", 0, VARIADIC, |_, args| {
        Ok(Value::Bool(!args.values.iter().any(empty)))
    }),
    ("any", 0, VARIADIC, |_, args| {
        Ok(Value::Bool(args.values.iter().any(|value| !empty(value))))
    }),
    ("ternary", 3, 3, |_, args| {
        Ok(if args.bool(2)? { args.arg(0) } else { args.arg(1) }.clone())
    }),
    ("fail", 1, 1, |_, args| {
        Err(exec_error(format!("error calling fail: {}", args.text(0)?)))
    }),
    ("deepCopy", 1, 1, |heap, args| deep_copy(heap, args)),
    ("mustDeepCopy", 1, 1, |heap, args| deep_copy(heap, args)),
    ("hello", 0, 0, |heap, _| heap.text("Hello!")),
];

/// Whether `if` treats the value as false, except that times and versions are never empty.
pub(super) fn empty(value: &Value) -> bool {
    !value.is_truthy()
}

/// Equality as in `reflect.DeepEqual`: types count too.
pub(super) fn deep_equal(heap: &mut Heap<'_>, left: &Value, right: &Value, depth: usize) -> Result<bool, ExecError> {
    heap.step()?;
    if depth > DEPTH {
        return Err(ExecError::Depth { allowed: DEPTH });
    }
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
        (Value::List(left), Value::List(right)) => {
            if left.element_type != right.element_type || left.items.len() != right.items.len() {
                return Ok(false);
            }
            for (left, right) in left.items.iter().zip(&right.items) {
                if !deep_equal(heap, left, right, depth + 1)? {
                    return Ok(false);
                }
            }
            true
        }
        (Value::Map(left), Value::Map(right)) => {
            if left.ptr_eq(right) {
                return Ok(true);
            }
            if left.element_type != right.element_type || left.len() != right.len() {
                return Ok(false);
            }
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

fn deep_copy(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    if args.arg(0).is_nil() {
        return Err(args.error("there is nothing to copy"));
    }
    copy(heap, args.arg(0), 0)
}

/// A deep copy that shares no map with `value`.
pub(super) fn copy(heap: &mut Heap<'_>, value: &Value, depth: usize) -> Result<Value, ExecError> {
    heap.step()?;
    if depth > DEPTH {
        return Err(ExecError::Depth { allowed: DEPTH });
    }
    Ok(match value {
        Value::List(list) => {
            heap.fits(list.items.len(), 64)?;
            let mut items = Vec::with_capacity(list.items.len());
            for item in &list.items {
                items.push(copy(heap, item, depth + 1)?);
            }
            if list.shared {
                heap.shared_list(list.element_type, items)?
            } else {
                heap.list(list.element_type, items)?
            }
        }
        Value::Map(map) => {
            let copied = heap.map(map.element_type)?;
            for (key, item) in map.entries() {
                let item = copy(heap, &item, depth + 1)?;
                heap.put(&copied, key, item)?;
            }
            Value::Map(copied)
        }
        other => other.clone(),
    })
}
