//! Template functions for maps.

use std::rc::Rc;

use super::Args;
use super::kinds::empty;
use crate::template::value::{ElementType, Heap, Map, Value, check_depth};
use crate::template::{ExecError, print};

pub(super) fn call(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    match args.name {
        "dict" => dict(heap, args),
        "dig" => dig(args),
        "get" => match args.map(0)?.get(args.text(1)?) {
            Some(value) => Ok(value),
            None => heap.text(""),
        },
        "hasKey" => Ok(Value::Bool(args.map(0)?.get(args.text(1)?).is_some())),
        "keys" => keys(heap, args),
        "merge" | "mustMerge" => merge(heap, args, MergePrecedence::First),
        "mergeOverwrite" | "mustMergeOverwrite" => merge(heap, args, MergePrecedence::Last),
        "omit" => choose(heap, args, false),
        "pick" => choose(heap, args, true),
        "pluck" => pluck(heap, args),
        "set" => {
            let map = args.map(0)?;
            heap.put(map, Rc::clone(args.text(1)?), args.arg(2).clone())?;
            Ok(Value::Map(map.clone()))
        }
        "unset" => {
            let map = args.map(0)?;
            map.remove(args.text(1)?)?;
            Ok(Value::Map(map.clone()))
        }
        "values" => values(heap, args),
        _ => Err(args.unknown()),
    }
}

fn dict(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let map = heap.map(ElementType::Any)?;
    for pair in args.values.chunks(2) {
        let (key, value) = match pair {
            [key, value] => (key, value.clone()),
            [key] => (key, heap.text("")?),
            _ => continue,
        };
        heap.put(&map, print::text_of(heap, key)?, value)?;
    }
    Ok(Value::Map(map))
}

fn pluck(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let key = args.text(0)?;
    let mut found = Vec::new();
    for index in 1..args.values.len() {
        found.extend(args.map(index)?.get(key));
    }
    heap.list(ElementType::Any, found)
}

/// In the order of the keys; Go has no order.
fn keys(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let mut keys = Vec::new();
    for index in 0..args.values.len() {
        let map = args.map(index)?;
        heap.fits(map.len() + keys.len(), 64)?;
        keys.extend(map.entries().into_iter().map(|(key, _)| key));
    }
    heap.texts(keys)
}

fn values(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let map = args.map(0)?;
    heap.fits(map.len(), 64)?;
    let values = map.entries().into_iter().map(|(_, value)| value);
    heap.list(ElementType::Any, values.collect())
}

fn choose(heap: &Heap<'_>, args: &Args<'_>, named: bool) -> Result<Value, ExecError> {
    let from = args.map(0)?;
    let names = (1..args.values.len()).map(|index| args.text(index));
    let names = names.collect::<Result<Vec<_>, _>>()?;
    let chosen = heap.map(ElementType::Any)?;
    for (key, value) in from.entries() {
        heap.work(names.len())?;
        if names.contains(&&key) == named {
            heap.put(&chosen, key, value)?;
        }
    }
    Ok(Value::Map(chosen))
}

/// Whose value is used if both maps have a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum MergePrecedence {
    First,
    Last,
}

fn merge(heap: &Heap<'_>, args: &Args<'_>, precedence: MergePrecedence) -> Result<Value, ExecError> {
    let target = args.map(0)?;
    for index in 1..args.values.len() {
        merge_into(heap, target, args.map(index)?, precedence, 0)?;
    }
    Ok(Value::Map(target.clone()))
}

fn merge_into(
    heap: &Heap<'_>,
    target: &Map,
    source: &Map,
    precedence: MergePrecedence,
    depth: usize,
) -> Result<(), ExecError> {
    // A map merged into itself changes nothing, and would be read while it is written.
    if source.ptr_eq(target) {
        return Ok(());
    }
    check_depth(depth)?;
    for (key, value) in source.entries() {
        heap.step()?;
        match (target.get(&key), &value) {
            (Some(Value::Map(before)), Value::Map(after)) => merge_into(heap, &before, after, precedence, depth + 1)?,
            // An empty value is replaced.
            (Some(before), _) if precedence == MergePrecedence::First && !empty(&before) => {}
            // As upstream, both maps share the same nested map from now on.
            (_, value) => heap.put(target, key, value.clone())?,
        }
    }
    Ok(())
}

fn dig(args: &Args<'_>) -> Result<Value, ExecError> {
    let last = args.values.len().saturating_sub(1);
    let names = last.saturating_sub(1);
    let mut value = Value::Map(args.map(last)?.clone());
    // All names are checked first, even those after a missing one.
    let keys = (0..names)
        .map(|index| args.text(index))
        .collect::<Result<Vec<_>, _>>()?;
    for key in keys {
        value = match value {
            Value::Map(map) if map.element_type == ElementType::Any => match map.get(key) {
                Some(value) => value,
                None => return Ok(args.arg(names).clone()),
            },
            other => return Err(args.wrong("map[string]interface {}", &other)),
        };
    }
    Ok(value)
}
