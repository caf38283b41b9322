//! The values that Go templates compute with. They behave as Go's do: maps are shared and can be
//! changed, and `int` is not `int64`.
//!
//! Invariant: no value outlives its render, every step and byte is counted, and a template never
//! changes its parameters.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;

use jiff::Zoned;
use regex::Regex;
use serde_json::{Map as Object, Value as Json};

use super::ExecError;
use super::versions::Version;
use crate::GenerationBudget;

/// Maximum memory that one render may allocate for computed values, in bytes.
const MEMORY_BYTES: u64 = 16 * 1024 * 1024;
/// Maximum nesting of lists and maps.
const DEPTH: usize = 100;
/// Number of steps between two checks of the deadline.
const STEPS_PER_DEADLINE_CHECK: u64 = 256;
/// Maximum number of steps of one render.
const STEPS: u64 = 5_000_000;
/// Number of bytes that count as one step of work.
const WORK_BYTES: u64 = 64;
/// Memory for an element of a list or map in addition to its strings, in bytes.
const CELL_BYTES: u64 = 48;

/// The type of a list's elements or a map's values, as far as templates can tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ElementType {
    /// `interface {}`.
    Any,
    /// `string`.
    Text,
    /// `int`.
    Int,
    /// `[]interface {}`.
    List,
}

#[derive(Debug)]
pub(super) struct List {
    pub(super) element_type: ElementType,
    pub(super) items: Vec<Value>,
    /// Whether Go may have other lists in the same memory, although nothing here has.
    pub(super) shared: bool,
    depth: usize,
}

/// A map; a change is visible in all copies.
#[derive(Clone, Debug)]
pub(super) struct Map {
    pub(super) element_type: ElementType,
    /// Whether it belongs to the parameters, which cannot be changed.
    read_only: bool,
    cells: Rc<RefCell<BTreeMap<Rc<str>, Value>>>,
}

impl Map {
    pub(super) fn get(&self, key: &str) -> Option<Value> {
        self.cells.borrow().get(key).cloned()
    }

    /// All entries, sorted by key.
    pub(super) fn entries(&self) -> Vec<(Rc<str>, Value)> {
        let cells = self.cells.borrow();
        let entries = cells.iter().map(|(key, value)| (Rc::clone(key), value.clone()));
        entries.collect()
    }

    pub(super) fn len(&self) -> usize {
        self.cells.borrow().len()
    }

    pub(super) fn remove(&self, key: &str) -> Result<(), ExecError> {
        self.check_mutable()?;
        // The value is dropped after the borrow has ended.
        let _gone = self.cells.borrow_mut().remove(key);
        Ok(())
    }

    /// SECURITY: all strings of a template share the parameters, and Argo CD renders them in its
    /// own order. A change that one of them made would be visible to others there and not here.
    fn check_mutable(&self) -> Result<(), ExecError> {
        if self.read_only {
            let why = "parameters cannot be changed; take a `dict` or a `deepCopy`";
            return Err(ExecError::Divergent(why.to_owned()));
        }
        Ok(())
    }

    pub(super) fn ptr_eq(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.cells, &other.cells)
    }
}

#[derive(Clone, Debug)]
pub(super) enum Value {
    /// No value at all: a missing key.
    Missing,
    /// An explicit `nil`.
    Nil,
    Bool(bool),
    Int(i64),
    Int64(i64),
    /// `float64`: every number in parameters.
    Float(f64),
    Text(Rc<str>),
    List(Rc<List>),
    Map(Map),
    /// `time.Time`.
    Time(Rc<Zoned>),
    /// `*semver.Version`.
    Version(Rc<Version>),
}

impl Value {
    /// The type as `%T` prints it.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Missing | Self::Nil => "<nil>",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Int64(_) => "int64",
            Self::Float(_) => "float64",
            Self::Text(_) => "string",
            Self::List(list) => match list.element_type {
                ElementType::Any => "[]interface {}",
                ElementType::Text => "[]string",
                ElementType::Int => "[]int",
                ElementType::List => "[][]interface {}",
            },
            Self::Map(map) if map.element_type == ElementType::Text => "map[string]string",
            Self::Map(_) => "map[string]interface {}",
            Self::Time(_) => "time.Time",
            Self::Version(_) => "*semver.Version",
        }
    }

    /// The kind as in `reflect.Kind`.
    pub(super) fn kind_name(&self) -> &'static str {
        match self {
            Self::Missing | Self::Nil => "invalid",
            Self::List(_) => "slice",
            Self::Map(_) => "map",
            Self::Time(_) => "struct",
            Self::Version(_) => "ptr",
            scalar => scalar.type_name(),
        }
    }

    pub(super) fn is_nil(&self) -> bool {
        matches!(self, Self::Missing | Self::Nil)
    }

    /// Whether `if` treats it as true.
    pub(super) fn is_truthy(&self) -> bool {
        match self {
            Self::Missing | Self::Nil => false,
            Self::Bool(yes) => *yes,
            Self::Int(number) | Self::Int64(number) => *number != 0,
            Self::Float(number) => *number != 0.0,
            Self::Text(text) => !text.is_empty(),
            Self::List(list) => !list.items.is_empty(),
            Self::Map(map) => map.len() != 0,
            Self::Time(_) | Self::Version(_) => true,
        }
    }
}

/// The values of one render, and its remaining limits. Counters are cells, so that a function can
/// use the result of another as an argument.
pub(super) struct Heap<'a> {
    budget: &'a GenerationBudget,
    memory: Cell<u64>,
    steps: Cell<u64>,
    /// Whether the parameters are being made, so that new maps are read-only.
    building_params: Cell<bool>,
    /// Whether functions refuse input that Argo CD's could treat differently.
    pub(super) strict: Cell<bool>,
    /// Every map of this render. They are emptied one after the other at the end, so that maps
    /// that contain themselves are freed and long chains need no deep stack.
    maps: RefCell<Vec<Map>>,
    /// Small compiled expressions, by their pattern.
    pub(super) expressions: RefCell<BTreeMap<Rc<str>, Rc<Regex>>>,
}

impl Drop for Heap<'_> {
    fn drop(&mut self) {
        for map in self.maps.get_mut() {
            drop(map.cells.take());
        }
    }
}

impl<'a> Heap<'a> {
    pub(super) fn new(budget: &'a GenerationBudget) -> Self {
        Self {
            budget,
            memory: Cell::default(),
            steps: Cell::default(),
            building_params: Cell::default(),
            strict: Cell::default(),
            maps: RefCell::default(),
            expressions: RefCell::default(),
        }
    }

    /// Refuses what Argo CD could treat differently, if that matters here.
    pub(super) fn refuse_divergent(&self, differs: bool, what: impl FnOnce() -> String) -> Result<(), ExecError> {
        match self.strict.get() && differs {
            true => Err(ExecError::Divergent(what())),
            false => Ok(()),
        }
    }

    pub(super) fn step(&self) -> Result<(), ExecError> {
        let steps = self.steps.get().saturating_add(1);
        self.steps.set(steps);
        if steps > STEPS {
            return Err(ExecError::Limit(format!("it takes more than {STEPS} steps")));
        }
        if steps.is_multiple_of(STEPS_PER_DEADLINE_CHECK) {
            self.check_deadline()?;
        }
        Ok(())
    }

    /// Counts work that is linear in `bytes`.
    pub(super) fn work(&self, bytes: usize) -> Result<(), ExecError> {
        let steps = size(bytes) / WORK_BYTES;
        self.steps.set(self.steps.get().saturating_add(steps));
        if steps >= STEPS_PER_DEADLINE_CHECK {
            self.check_deadline()?;
        }
        self.step()
    }

    pub(super) fn check_deadline(&self) -> Result<(), ExecError> {
        Ok(self.budget.check_deadline()?)
    }

    /// Charges `bytes` before they are allocated.
    pub(super) fn charge(&self, bytes: u64) -> Result<(), ExecError> {
        self.check_available(bytes)?;
        self.memory.set(self.memory.get().saturating_add(bytes));
        self.step()
    }

    /// Checks that `count` times `bytes` would fit, without charging them.
    pub(super) fn fits(&self, count: usize, bytes: usize) -> Result<(), ExecError> {
        self.check_available(size(count).saturating_mul(size(bytes)))
    }

    /// Checks that `bytes` would fit, without charging them.
    pub(super) fn check_available(&self, bytes: u64) -> Result<(), ExecError> {
        let observed = self.memory.get().saturating_add(bytes);
        if observed > MEMORY_BYTES {
            let text = format!("it needs {observed} bytes of memory or more, at most {MEMORY_BYTES} are allowed");
            return Err(ExecError::Limit(text));
        }
        Ok(())
    }

    pub(super) fn text(&self, text: impl Into<Rc<str>>) -> Result<Value, ExecError> {
        let text = text.into();
        self.charge(size(text.len()) + CELL_BYTES)?;
        Ok(Value::Text(text))
    }

    /// Makes a string from Go's bytes: each byte that is not UTF-8 becomes U+FFFD, which is what
    /// Go writes for it in JSON.
    ///
    /// SECURITY: Go's strings contain any bytes, and functions can tell such a byte from a
    /// character. Invalid bytes are refused where that matters.
    pub(super) fn bytes(&self, bytes: &[u8]) -> Result<Value, ExecError> {
        self.refuse_divergent(std::str::from_utf8(bytes).is_err(), || {
            "a function gives bytes that are no text in UTF-8, or cuts a text within a letter".to_owned()
        })?;
        self.fits(bytes.len(), 3)?;
        let mut text = String::with_capacity(bytes.len());
        for chunk in bytes.utf8_chunks() {
            text.push_str(chunk.valid());
            text.extend(chunk.invalid().iter().map(|_| '\u{fffd}'));
        }
        self.text(text)
    }

    pub(super) fn list(&self, element_type: ElementType, items: Vec<Value>) -> Result<Value, ExecError> {
        self.list_as(element_type, items, false)
    }

    /// - `shared`: as [`List::shared`].
    pub(super) fn list_as(&self, element: ElementType, items: Vec<Value>, shared: bool) -> Result<Value, ExecError> {
        self.charge(size(items.len()).saturating_add(1).saturating_mul(CELL_BYTES))?;
        let depths = items.iter().map(|item| match item {
            Value::List(list) => list.depth,
            _ => 0,
        });
        let depth = 1 + depths.max().unwrap_or(0);
        check_depth(depth)?;
        Ok(Value::List(Rc::new(List {
            element_type: element,
            items: items.into_iter().map(contained).collect(),
            shared,
            depth,
        })))
    }

    pub(super) fn texts<T: Into<Rc<str>>>(&self, items: impl IntoIterator<Item = T>) -> Result<Value, ExecError> {
        let texts = items.into_iter().map(|item| self.text(item));
        self.list(ElementType::Text, texts.collect::<Result<_, _>>()?)
    }

    pub(super) fn map(&self, element_type: ElementType) -> Result<Map, ExecError> {
        self.charge(CELL_BYTES)?;
        let map = Map {
            element_type,
            read_only: self.building_params.get(),
            cells: Rc::default(),
        };
        self.maps.borrow_mut().push(map.clone());
        Ok(map)
    }

    pub(super) fn put(&self, map: &Map, key: impl Into<Rc<str>>, value: Value) -> Result<(), ExecError> {
        if !self.building_params.get() {
            map.check_mutable()?;
        }
        let key = key.into();
        self.charge(size(key.len()) + CELL_BYTES)?;
        // As in `Map::remove`, the value before it is dropped after the borrow.
        let _gone = map.cells.borrow_mut().insert(key, contained(value));
        Ok(())
    }

    /// Converts a JSON value; numbers become `float64`, as in Go's decoder.
    pub(super) fn json(&self, json: &Json) -> Result<Value, ExecError> {
        match json {
            Json::Null => Ok(Value::Nil),
            Json::Bool(yes) => Ok(Value::Bool(*yes)),
            Json::Number(number) => Ok(Value::Float(number.as_f64().unwrap_or(f64::NAN))),
            Json::String(text) => self.text(text.as_str()),
            Json::Array(items) => self.items(items, false),
            Json::Object(fields) => self.fields(fields),
        }
    }

    fn items(&self, items: &[Json], shared: bool) -> Result<Value, ExecError> {
        let items = items.iter().map(|item| self.json(item)).collect::<Result<_, _>>()?;
        self.list_as(ElementType::Any, items, shared)
    }

    /// Converts the parameters. Neither they nor what they contain can be changed.
    pub(super) fn parameters(&self, fields: &Object<String, Json>) -> Result<Value, ExecError> {
        self.building_params.set(true);
        let made = self.fields(fields);
        self.building_params.set(false);
        made
    }

    fn fields(&self, fields: &Object<String, Json>) -> Result<Value, ExecError> {
        let origin = params_origin(fields);
        self.object(ElementType::Any, fields, |key, value| match (key, value) {
            ("metadata", Json::Object(parts)) if origin == ParamsOrigin::Clusters => self.metadata(parts),
            // Lists that are `[]string` in Argo CD if its generators made them: `sortAlpha` sorts
            // them in place.
            ("segments", Json::Array(items)) if fields.contains_key("basenameNormalized") => self.items(items, true),
            ("labels", Json::Array(items)) if fields.contains_key("head_short_sha") => self.items(items, true),
            ("values", Json::Object(texts)) if origin != ParamsOrigin::Others => self.texts_by_key(texts),
            (_, value) => self.json(value),
        })
    }

    fn metadata(&self, parts: &Object<String, Json>) -> Result<Value, ExecError> {
        self.object(ElementType::Any, parts, |_, part| match part {
            Json::Object(texts) => self.texts_by_key(texts),
            part => self.json(part),
        })
    }

    /// Converts to a `map[string]string`, if all values are strings.
    fn texts_by_key(&self, fields: &Object<String, Json>) -> Result<Value, ExecError> {
        let element_type = match fields.values().all(Json::is_string) {
            true => ElementType::Text,
            false => ElementType::Any,
        };
        self.object(element_type, fields, |_, value| self.json(value))
    }

    fn object(
        &self,
        element_type: ElementType,
        fields: &Object<String, Json>,
        convert: impl Fn(&str, &Json) -> Result<Value, ExecError>,
    ) -> Result<Value, ExecError> {
        let map = self.map(element_type)?;
        for (key, value) in fields {
            self.put(&map, key.as_str(), convert(key, value)?)?;
        }
        Ok(Value::Map(map))
    }
}

/// A missing value becomes `nil` once something contains it.
fn contained(value: Value) -> Value {
    if value.is_nil() { Value::Nil } else { value }
}

/// Which generator made a set of parameters, as far as that affects maps of strings: there a
/// missing key is empty, not `<no value>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ParamsOrigin {
    /// The cluster generator: `metadata.labels`, `metadata.annotations`, `values`.
    Clusters,
    /// The git generator: `values`.
    Git,
    /// Any other, or none.
    Others,
}

/// Recognizes the generator by the keys that only it sets.
pub(crate) fn params_origin(fields: &Object<String, Json>) -> ParamsOrigin {
    let path = fields.get("path").and_then(|path| path.get("basenameNormalized"));
    match (fields.contains_key("nameNormalized"), path) {
        (true, _) => ParamsOrigin::Clusters,
        (false, Some(_)) => ParamsOrigin::Git,
        (false, None) => ParamsOrigin::Others,
    }
}

/// Checks the nesting of a value, since a map may contain itself.
pub(super) fn check_depth(depth: usize) -> Result<(), ExecError> {
    match depth > DEPTH {
        true => Err(ExecError::Limit(format!("its values nest more than {DEPTH} levels"))),
        false => Ok(()),
    }
}

/// A length as a number of bytes to charge.
pub(super) fn size(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
