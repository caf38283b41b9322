//! Template functions for lists.

use std::rc::Rc;

use super::kinds::{deep_equal, empty};
use super::numbers::whole;
use super::strings::texts;
use super::{Args, Signature, VARIADIC, text_of};
use crate::template::ExecError;
use crate::template::value::{ElementType, Heap, List, Value};

pub(super) const NAMES: &[Signature] = &[
    (0, VARIADIC, "concat list tuple"),
    (1, 1, "compact first initial last rest reverse sortAlpha toStrings uniq"),
    (
        1,
        1,
        "mustCompact mustFirst mustInitial mustLast mustRest mustReverse mustUniq",
    ),
    (1, VARIADIC, "mustSlice mustWithout slice without"),
    (
        2,
        2,
        "append chunk has mustAppend mustChunk mustHas mustPrepend mustPush prepend push",
    ),
];

pub(super) fn call(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    match args.name {
        "append" | "push" | "mustAppend" | "mustPush" => chained(heap, &args.list(0)?.items, args.rest(1)),
        "chunk" | "mustChunk" => chunk(heap, args),
        "compact" | "mustCompact" => pick(heap, args, |items| {
            items.iter().filter(|item| !empty(item)).cloned().collect()
        }),
        "concat" => concat(heap, args),
        "first" | "mustFirst" => Ok(args.list(0)?.items.first().cloned().unwrap_or(Value::Nil)),
        "has" | "mustHas" if args.arg(1).is_nil() => Ok(Value::Bool(false)),
        "has" | "mustHas" => contains(heap, &args.list(1)?.items, args.arg(0)).map(Value::Bool),
        "initial" | "mustInitial" => part(heap, args, |items| items.split_last().map(|(_, before)| before)),
        "last" | "mustLast" => Ok(args.list(0)?.items.last().cloned().unwrap_or(Value::Nil)),
        "list" | "tuple" => heap.list(ElementType::Any, args.values.to_vec()),
        "prepend" | "mustPrepend" => chained(heap, args.rest(1), &args.list(0)?.items),
        "rest" | "mustRest" => part(heap, args, |items| items.get(1..)),
        "reverse" | "mustReverse" => pick(heap, args, |items| items.iter().rev().cloned().collect()),
        "slice" | "mustSlice" => slice(heap, args),
        "sortAlpha" => sort(heap, args),
        "toStrings" => to_strings(heap, args),
        "uniq" | "mustUniq" => uniq(heap, args),
        "without" | "mustWithout" => without(heap, args),
        _ => Err(args.unknown()),
    }
}

/// Memory that an element of a list takes before it has a value, in bytes.
const SLOT_BYTES: usize = 32;

fn pick(heap: &mut Heap<'_>, args: &Args<'_>, choose: fn(&[Value]) -> Vec<Value>) -> Result<Value, ExecError> {
    let list = args.list(0)?;
    heap.fits(list.items.len(), SLOT_BYTES)?;
    heap.list(ElementType::Any, choose(&list.items))
}

/// Refuses an empty list where the result must equal Argo CD's: Argo CD gives `nil`, which JSON
/// distinguishes from `[]`.
fn part(heap: &mut Heap<'_>, args: &Args<'_>, choose: fn(&[Value]) -> Option<&[Value]>) -> Result<Value, ExecError> {
    let items = &args.list(0)?.items;
    heap.refuse_divergent(items.is_empty(), || format!("`{}` of an empty list", args.name))?;
    heap.fits(items.len(), SLOT_BYTES)?;
    heap.list(ElementType::Any, choose(items).unwrap_or_default().to_vec())
}

fn chained(heap: &mut Heap<'_>, one: &[Value], other: &[Value]) -> Result<Value, ExecError> {
    heap.fits(one.len() + other.len(), SLOT_BYTES)?;
    heap.list(ElementType::Any, [one, other].concat())
}

fn contains(heap: &mut Heap<'_>, items: &[Value], wanted: &Value) -> Result<bool, ExecError> {
    for item in items {
        if deep_equal(heap, item, wanted, 0)? {
            return Ok(true);
        }
    }
    Ok(false)
}

fn uniq(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let mut kept: Vec<Value> = Vec::new();
    for item in &args.list(0)?.items {
        if !contains(heap, &kept, item)? {
            kept.push(item.clone());
        }
    }
    heap.list(ElementType::Any, kept)
}

fn without(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let mut kept = Vec::new();
    for item in &args.list(0)?.items {
        if !contains(heap, args.rest(1), item)? {
            kept.push(item.clone());
        }
    }
    heap.list(ElementType::Any, kept)
}

fn slice(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let list = args.list(0)?;
    if list.items.is_empty() {
        return Ok(Value::Nil);
    }
    let index_or = |index: usize, otherwise: usize| match args.values.get(index) {
        None => Some(otherwise),
        Some(value) => usize::try_from(whole(value)).ok(),
    };
    let range = index_or(1, 0).zip(index_or(2, list.items.len()));
    let items = range.and_then(|(start, end)| list.items.get(start..end));
    let items = items.ok_or_else(|| args.error("slice bounds out of range"))?;
    heap.fits(items.len(), SLOT_BYTES)?;
    // Upstream, the result shares memory with the list.
    heap.list_as(list.element_type, items.to_vec(), is_held(list))
}

/// Whether a change of the list would be seen elsewhere upstream.
fn is_held(list: &Rc<List>) -> bool {
    list.shared || list.element_type == ElementType::Text && Rc::strong_count(list) > 1
}

fn concat(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let mut items = Vec::new();
    for index in 0..args.values.len() {
        let list = args.list(index)?;
        heap.fits(items.len() + list.items.len(), SLOT_BYTES)?;
        items.extend(list.items.iter().cloned());
    }
    heap.refuse_divergent(items.is_empty(), || "`concat` of empty lists".to_owned())?;
    heap.list(ElementType::Any, items)
}

fn chunk(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let size = args.count(0)?;
    if size == 0 {
        return Err(args.error("chunks of 0 elements"));
    }
    let list = args.list(1)?;
    let mut chunks = Vec::new();
    for items in list.items.chunks(size) {
        chunks.push(heap.list(ElementType::Any, items.to_vec())?);
    }
    heap.list(ElementType::List, chunks)
}

/// As upstream, a list of strings is returned itself, not copied.
fn to_strings(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let items = texts(heap, args.arg(0))?;
    let Value::List(list) = args.arg(0) else {
        return heap.texts(items);
    };
    if list.element_type == ElementType::Text {
        return Ok(Value::List(Rc::clone(list)));
    }
    if list.shared {
        return heap.list_as(ElementType::Text, items.into_iter().map(Value::Text).collect(), true);
    }
    heap.texts(items)
}

fn sort(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let Value::List(list) = args.arg(0) else {
        let text = text_of(heap, args.arg(0))?;
        return heap.texts([text]);
    };
    let mut items = texts(heap, args.arg(0))?;
    heap.work(items.len().saturating_mul(64))?;
    // SECURITY: upstream sorts strings in place, so any other holder of the list sees it sorted
    // there, and unsorted here.
    if is_held(list) && !items.is_sorted() {
        let why = "`sortAlpha` would change a list that is used elsewhere too; sort a `concat` of it";
        return Err(ExecError::Divergent(why.to_owned()));
    }
    items.sort_unstable();
    heap.texts(items)
}
