//! Template functions for lists.

use std::rc::Rc;

use super::kinds::{deep_equal, empty};
use super::numbers::whole;
use super::strings::texts;
use super::{Args, FunctionEntry, VARIADIC, text_of};
use crate::template::ExecError;
use crate::template::value::{ElementType, Heap, Value};

pub(super) const TABLE: &[FunctionEntry] = &[
    ("list", 0, VARIADIC, |heap, args| {
        heap.list(ElementType::Any, args.values.to_vec())
    }),
    ("tuple", 0, VARIADIC, |heap, args| {
        heap.list(ElementType::Any, args.values.to_vec())
    }),
    ("append", 2, 2, push),
    ("push", 2, 2, push),
    ("mustAppend", 2, 2, push),
    ("mustPush", 2, 2, push),
    ("prepend", 2, 2, prepend),
    ("mustPrepend", 2, 2, prepend),
    ("first", 1, 1, |_, args| {
        Ok(args.list(0)?.items.first().cloned().unwrap_or(Value::Nil))
    }),
    ("mustFirst", 1, 1, |_, args| {
        Ok(args.list(0)?.items.first().cloned().unwrap_or(Value::Nil))
    }),
    ("last", 1, 1, |_, args| {
        Ok(args.list(0)?.items.last().cloned().unwrap_or(Value::Nil))
    }),
    ("mustLast", 1, 1, |_, args| {
        Ok(args.list(0)?.items.last().cloned().unwrap_or(Value::Nil))
    }),
    ("rest", 1, 1, |heap, args| part(heap, args, rest)),
    ("mustRest", 1, 1, |heap, args| part(heap, args, rest)),
    ("initial", 1, 1, |heap, args| part(heap, args, initial)),
    ("mustInitial", 1, 1, |heap, args| part(heap, args, initial)),
    ("reverse", 1, 1, |heap, args| {
        pick(heap, args, |items| items.iter().rev().cloned().collect())
    }),
    ("mustReverse", 1, 1, |heap, args| {
        pick(heap, args, |items| items.iter().rev().cloned().collect())
    }),
    ("compact", 1, 1, |heap, args| pick(heap, args, compact)),
    ("mustCompact", 1, 1, |heap, args| pick(heap, args, compact)),
    ("uniq", 1, 1, uniq),
    ("mustUniq", 1, 1, uniq),
    ("without", 1, VARIADIC, without),
    ("mustWithout", 1, VARIADIC, without),
    ("has", 2, 2, has),
    ("mustHas", 2, 2, has),
    ("slice", 1, VARIADIC, slice),
    ("mustSlice", 1, VARIADIC, slice),
    ("concat", 0, VARIADIC, concat),
    ("chunk", 2, 2, chunk),
    ("mustChunk", 2, 2, chunk),
    ("sortAlpha", 1, 1, sort),
    ("toStrings", 1, 1, to_strings),
];

/// Memory that an element of a list takes before it has a value, in bytes.
const SLOT_BYTES: usize = 32;

fn pick(heap: &mut Heap<'_>, args: &Args<'_>, choose: fn(&[Value]) -> Vec<Value>) -> Result<Value, ExecError> {
    let list = args.list(0)?;
    heap.fits(list.items.len(), SLOT_BYTES)?;
    heap.list(ElementType::Any, choose(&list.items))
}

/// As [`pick`], but refuses an empty list where the result must equal Argo CD's: Argo CD gives
/// `nil`, which JSON distinguishes from `[]`.
fn part(heap: &mut Heap<'_>, args: &Args<'_>, choose: fn(&[Value]) -> Vec<Value>) -> Result<Value, ExecError> {
    let is_empty = args.list(0)?.items.is_empty();
    heap.refuse_divergent(is_empty, || format!("`{}` of an empty list", args.name))?;
    pick(heap, args, choose)
}

fn rest(items: &[Value]) -> Vec<Value> {
    items.iter().skip(1).cloned().collect()
}

fn initial(items: &[Value]) -> Vec<Value> {
    items
        .split_last()
        .map(|(_, before)| before.to_vec())
        .unwrap_or_default()
}

fn compact(items: &[Value]) -> Vec<Value> {
    items.iter().filter(|item| !empty(item)).cloned().collect()
}

fn push(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let list = args.list(0)?;
    heap.fits(list.items.len() + 1, SLOT_BYTES)?;
    let items = list.items.iter().chain(args.rest(1)).cloned().collect();
    heap.list(ElementType::Any, items)
}

fn prepend(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    let list = args.list(0)?;
    heap.fits(list.items.len() + 1, SLOT_BYTES)?;
    let items = args.rest(1).iter().chain(&list.items).cloned().collect();
    heap.list(ElementType::Any, items)
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

fn has(heap: &mut Heap<'_>, args: &Args<'_>) -> Result<Value, ExecError> {
    if args.arg(1).is_nil() {
        return Ok(Value::Bool(false));
    }
    contains(heap, &args.list(1)?.items, args.arg(0)).map(Value::Bool)
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
    if list.shared || list.element_type == ElementType::Text && Rc::strong_count(list) > 1 {
        return heap.shared_list(list.element_type, items.to_vec());
    }
    heap.list(list.element_type, items.to_vec())
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
        return heap.shared_list(ElementType::Text, items.into_iter().map(Value::Text).collect());
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
    let is_held = list.shared || list.element_type == ElementType::Text && Rc::strong_count(list) > 1;
    if is_held && !items.is_sorted() {
        let why = "`sortAlpha` would change a list that is used elsewhere too; sort a `concat` of it";
        return Err(ExecError::Divergent(why.to_owned()));
    }
    items.sort_unstable();
    heap.texts(items)
}
