//! The comparison functions of the template language.

use std::cmp::Ordering;

use super::{Args, Signature, VARIADIC};
use crate::template::ExecError;
use crate::template::value::{Heap, Value};

pub(super) const NAMES: &[Signature] = &[(1, VARIADIC, "eq"), (2, 2, "ge gt le lt ne")];

pub(super) fn call(_: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    Ok(Value::Bool(match args.name {
        "eq" => equal(args)?,
        "ge" => order(args)? != Some(Ordering::Less),
        "gt" => !at_most(args)?,
        "le" => at_most(args)?,
        "lt" => order(args)? == Some(Ordering::Less),
        "ne" => !equal(args)?,
        _ => return Err(args.unknown()),
    }))
}

fn at_most(args: &Args<'_>) -> Result<bool, ExecError> {
    Ok(matches!(order(args)?, Some(Ordering::Less | Ordering::Equal)))
}

fn incompatible(args: &Args<'_>, left: &Value, right: &Value) -> ExecError {
    args.error(format!(
        "incompatible types for comparison: {} and {}",
        left.type_name(),
        right.type_name()
    ))
}

fn equal(args: &Args<'_>) -> Result<bool, ExecError> {
    let left = args.arg(0);
    if args.values.len() < 2 {
        return Err(args.error("missing argument for comparison"));
    }
    for right in args.rest(1) {
        if pair(args, left, right)? {
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
