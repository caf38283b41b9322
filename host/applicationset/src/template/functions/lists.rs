//! Template functions for lists.

use std::rc::Rc;

use super::Args;
use super::kinds::{deep_equal, empty};
use super::numbers::whole;
use super::strings::texts;
use crate::template::value::{ElementType, Heap, List, Value};
use crate::template::{ExecError, print};

pub(super) fn call(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
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
        "uniq" | "mustUniq" => filtered(heap, args, |kept, item| contains(heap, kept, item)),
        "without" | "mustWithout" => filtered(heap, args, |_, item| contains(heap, args.rest(1), item)),
        _ => Err(args.unknown()),
    }
}

/// Memory that an element of a list takes before it has a value, in bytes.
const SLOT_BYTES: usize = 32;

fn pick(heap: &Heap<'_>, args: &Args<'_>, choose: fn(&[Value]) -> Vec<Value>) -> Result<Value, ExecError> {
    let list = args.list(0)?;
    heap.fits(list.items.len(), SLOT_BYTES)?;
    heap.list(ElementType::Any, choose(&list.items))
}

/// Refuses an empty list where the result must equal Argo CD's: Argo CD gives `nil`, which JSON
/// distinguishes from `[]`.
fn part(heap: &Heap<'_>, args: &Args<'_>, choose: fn(&[Value]) -> Option<&[Value]>) -> Result<Value, ExecError> {
    let items = &args.list(0)?.items;
    heap.refuse_divergent(items.is_empty(), || format!("`{}` of an empty list", args.name))?;
    heap.fits(items.len(), SLOT_BYTES)?;
    heap.list(ElementType::Any, choose(items).unwrap_or_default().to_vec())
}

fn chained(heap: &Heap<'_>, one: &[Value], other: &[Value]) -> Result<Value, ExecError> {
    heap.fits(one.len() + other.len(), SLOT_BYTES)?;
    heap.list(ElementType::Any, [one, other].concat())
}

fn contains(heap: &Heap<'_>, items: &[Value], wanted: &Value) -> Result<bool, ExecError> {
    for item in items {
        if deep_equal(heap, item, wanted, 0)? {
            return Ok(true);
        }
    }
    Ok(false)
}

/// The list without the items that are to be dropped, given those before them that are kept.
fn filtered(
    heap: &Heap<'_>,
    args: &Args<'_>,
    is_dropped: impl Fn(&[Value], &Value) -> Result<bool, ExecError>,
) -> Result<Value, ExecError> {
    let mut kept = Vec::new();
    for item in &args.list(0)?.items {
        if !is_dropped(&kept, item)? {
            kept.push(item.clone());
        }
    }
    heap.list(ElementType::Any, kept)
}

fn slice(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
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
    let items = items.ok_or_else(|| args.out_of_range())?;
    heap.fits(items.len(), SLOT_BYTES)?;
    // Upstream, the result shares memory with the list.
    heap.list_as(list.element_type, items.to_vec(), is_held(list))
}

/// Whether a change of the list would be seen elsewhere upstream.
fn is_held(list: &Rc<List>) -> bool {
    list.shared || list.element_type == ElementType::Text && Rc::strong_count(list) > 1
}

fn concat(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let mut items = Vec::new();
    for index in 0..args.values.len() {
        let list = args.list(index)?;
        heap.fits(items.len() + list.items.len(), SLOT_BYTES)?;
        items.extend(list.items.iter().cloned());
    }
    heap.refuse_divergent(items.is_empty(), || "`concat` of empty lists".to_owned())?;
    heap.list(ElementType::Any, items)
}

fn chunk(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let size = args.count(0)?;
    if size == 0 {
        return Err(args.error("chunks of 0 elements"));
    }
    let list = args.list(1)?;
    let chunks = list
        .items
        .chunks(size)
        .map(|items| heap.list(ElementType::Any, items.to_vec()));
    heap.list(ElementType::List, chunks.collect::<Result<_, _>>()?)
}

/// As upstream, a list of strings is returned itself, not copied.
fn to_strings(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let items = texts(heap, args.arg(0))?;
    match args.arg(0) {
        Value::List(list) if list.element_type == ElementType::Text => Ok(Value::List(Rc::clone(list))),
        Value::List(list) if list.shared => {
            heap.list_as(ElementType::Text, items.into_iter().map(Value::Text).collect(), true)
        }
        _ => heap.texts(items),
    }
}

fn sort(heap: &Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let Value::List(list) = args.arg(0) else {
        return heap.texts([print::text_of(heap, args.arg(0))?]);
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
