//! What a Go template computes with.
//!
//! In: JSON parameters. Out: values that behave as Go's do: maps are shared and
//! can be set, `int` is not `int64`. Never: a value that outlives its render, a
//! step or a byte that is not counted; parameters that a template changes.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use jiff::Zoned;
use regex::Regex;
use serde_json::Value as Json;

use super::Fault;
use super::versions::Version;
use crate::Budget;

/// Bytes one render may allocate for values it computes.
const MEMORY_BYTES: u64 = 16 * 1024 * 1024;
/// Nested lists and maps a walk enters.
pub(super) const DEPTH: usize = 100;
/// Steps between two looks at the clock.
const PACE: u64 = 256;
/// Steps of one render.
const STEPS: u64 = 5_000_000;
/// Bytes that are one step of work.
const WORK_BYTES: u64 = 64;
/// Regular expressions that are kept compiled, those that are small.
const EXPRESSIONS: usize = 16;
/// What an element of a list or a map costs beside its text.
const CELL_BYTES: u64 = 48;

/// The type of a list's elements or a map's values, as far as templates see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Of {
    /// `interface {}`.
    Any,
    /// `string`.
    Text,
    /// `int`.
    Int,
    /// `[]interface {}`.
    List,
}

/// A list; it never changes.
#[derive(Debug)]
pub(super) struct List {
    pub(super) of: Of,
    pub(super) items: Vec<Value>,
    /// Whether Go may have other lists of the same memory, though nobody here has.
    pub(super) shared: bool,
    depth: usize,
}

/// A map; all copies see a change.
#[derive(Clone, Debug)]
pub(super) struct Map {
    pub(super) of: Of,
    /// Whether it is of the parameters, which nothing changes.
    frozen: bool,
    cells: Rc<RefCell<BTreeMap<Rc<str>, Value>>>,
}

impl Map {
    /// The value of `key`.
    pub(super) fn get(&self, key: &str) -> Option<Value> {
        self.cells.borrow().get(key).cloned()
    }

    /// All of it, by key.
    pub(super) fn entries(&self) -> Vec<(Rc<str>, Value)> {
        let cells = self.cells.borrow();
        cells
            .iter()
            .map(|(key, value)| (Rc::clone(key), value.clone()))
            .collect()
    }

    /// How many.
    pub(super) fn len(&self) -> usize {
        self.cells.borrow().len()
    }

    /// Removes `key`.
    ///
    /// # Errors
    /// It is of the parameters.
    pub(super) fn remove(&self, key: &str) -> Result<(), Fault> {
        self.thawed()?;
        // The value is dropped after the borrow has ended.
        let gone = self.cells.borrow_mut().remove(key);
        drop(gone);
        Ok(())
    }

    /// SECURITY: all texts of a template share the parameters, and Argo CD renders the
    /// texts in an order of its own. What one of them changed, another would read there
    /// and not here.
    fn thawed(&self) -> Result<(), Fault> {
        if self.frozen {
            let why = "parameters cannot be changed; take a `dict` or a `deepCopy`";
            return Err(Fault::Divergent(why.to_owned()));
        }
        Ok(())
    }

    /// Whether both are the same map.
    pub(super) fn same(&self, other: &Self) -> bool {
        Rc::ptr_eq(&self.cells, &other.cells)
    }

    fn put(&self, key: Rc<str>, value: Value) {
        let gone = self.cells.borrow_mut().insert(key, value);
        drop(gone);
    }
}

/// A value of a template.
#[derive(Clone, Debug)]
pub(super) enum Value {
    /// No value at all: a missing key.
    Missing,
    /// A `nil` somebody wrote.
    Nil,
    /// `bool`.
    Bool(bool),
    /// `int`.
    Int(i64),
    /// `int64`.
    Int64(i64),
    /// `float64`: every number of parameters.
    Float(f64),
    /// `string`.
    Text(Rc<str>),
    /// A slice.
    List(Rc<List>),
    /// A map with text as keys.
    Map(Map),
    /// `time.Time`.
    Time(Rc<Zoned>),
    /// `*semver.Version`.
    Version(Rc<Version>),
}

impl Value {
    /// As `%T` has it.
    pub(super) fn type_name(&self) -> &'static str {
        match self {
            Self::Missing | Self::Nil => "<nil>",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Int64(_) => "int64",
            Self::Float(_) => "float64",
            Self::Text(_) => "string",
            Self::List(list) => match list.of {
                Of::Any => "[]interface {}",
                Of::Text => "[]string",
                Of::Int => "[]int",
                Of::List => "[][]interface {}",
            },
            Self::Map(map) if map.of == Of::Text => "map[string]string",
            Self::Map(_) => "map[string]interface {}",
            Self::Time(_) => "time.Time",
            Self::Version(_) => "*semver.Version",
        }
    }

    /// As `reflect.Kind` has it.
    pub(super) fn kind_name(&self) -> &'static str {
        match self {
            Self::Missing | Self::Nil => "invalid",
            Self::Bool(_) => "bool",
            Self::Int(_) => "int",
            Self::Int64(_) => "int64",
            Self::Float(_) => "float64",
            Self::Text(_) => "string",
            Self::List(_) => "slice",
            Self::Map(_) => "map",
            Self::Time(_) => "struct",
            Self::Version(_) => "ptr",
        }
    }

    /// Whether it is `nil` or nothing.
    pub(super) fn is_nil(&self) -> bool {
        matches!(self, Self::Missing | Self::Nil)
    }

    /// Whether `if` takes it.
    pub(super) fn truth(&self) -> bool {
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

    fn depth(&self) -> usize {
        match self {
            Self::List(list) => list.depth,
            Self::Missing
            | Self::Nil
            | Self::Bool(_)
            | Self::Int(_)
            | Self::Int64(_)
            | Self::Float(_)
            | Self::Text(_)
            | Self::Map(_)
            | Self::Time(_)
            | Self::Version(_) => 0,
        }
    }
}

/// One render: what it made and what it may still take.
pub(super) struct Heap<'a> {
    budget: &'a Budget,
    memory: u64,
    steps: u64,
    /// Whether the parameters are being made, and with them maps that are frozen.
    making: bool,
    /// Whether functions refuse what Argo CD's could take otherwise.
    exact: bool,
    /// Every map of this render. Emptied at the end, one after the other, so that
    /// maps within themselves are freed and long chains need no deep stack.
    maps: Vec<Map>,
    /// Compiled expressions, by their text.
    expressions: BTreeMap<Rc<str>, Rc<Regex>>,
}

impl Drop for Heap<'_> {
    fn drop(&mut self) {
        for map in &self.maps {
            let cells = std::mem::take(&mut *map.cells.borrow_mut());
            drop(cells);
        }
    }
}

impl<'a> Heap<'a> {
    /// An empty one.
    pub(super) fn new(budget: &'a Budget) -> Self {
        Self {
            budget,
            memory: 0,
            steps: 0,
            making: false,
            exact: false,
            maps: Vec::new(),
            expressions: BTreeMap::new(),
        }
    }

    /// Whether functions refuse, from now on, what Argo CD's could take otherwise.
    pub(super) fn be_exact(&mut self, exact: bool) {
        self.exact = exact;
    }

    /// Refuses what Argo CD could take otherwise, where that matters.
    pub(super) fn differs(&self, differs: bool, what: impl FnOnce() -> String) -> Result<(), Fault> {
        match self.exact && differs {
            true => Err(Fault::Divergent(what())),
            false => Ok(()),
        }
    }

    /// An expression that was compiled before.
    pub(super) fn expression(&self, pattern: &str) -> Option<Rc<Regex>> {
        self.expressions.get(pattern).cloned()
    }

    /// Keeps a small compiled expression, [`EXPRESSIONS`] at most.
    pub(super) fn keep_expression(&mut self, pattern: &Rc<str>, compiled: &Rc<Regex>) {
        if self.expressions.len() >= EXPRESSIONS {
            self.expressions.clear();
        }
        self.expressions.insert(Rc::clone(pattern), Rc::clone(compiled));
    }

    /// Counts a step of work.
    pub(super) fn step(&mut self) -> Result<(), Fault> {
        self.steps += 1;
        if self.steps > STEPS {
            return Err(Fault::Steps { allowed: STEPS });
        }
        if self.steps.is_multiple_of(PACE) {
            self.budget.time()?;
        }
        Ok(())
    }

    /// Counts work that is linear in `bytes`.
    pub(super) fn work(&mut self, bytes: usize) -> Result<(), Fault> {
        let steps = size(bytes) / WORK_BYTES;
        self.steps = self.steps.saturating_add(steps);
        if steps >= PACE {
            self.budget.time()?;
        }
        self.step()
    }

    /// Looks at the clock.
    pub(super) fn time(&self) -> Result<(), Fault> {
        Ok(self.budget.time()?)
    }

    /// Counts `bytes` before they are allocated.
    pub(super) fn charge(&mut self, bytes: u64) -> Result<(), Fault> {
        self.memory = self.memory.saturating_add(bytes);
        if self.memory > MEMORY_BYTES {
            return Err(Fault::Memory {
                observed: self.memory,
                allowed: MEMORY_BYTES,
            });
        }
        self.step()
    }

    /// Looks whether `count` times `bytes` would fit, and counts nothing.
    pub(super) fn fits(&self, count: usize, bytes: usize) -> Result<(), Fault> {
        self.room(size(count).saturating_mul(size(bytes)))
    }

    /// Looks whether `bytes` would fit, and counts nothing.
    pub(super) fn room(&self, bytes: u64) -> Result<(), Fault> {
        let wanted = self.memory.saturating_add(bytes);
        if wanted > MEMORY_BYTES {
            return Err(Fault::Memory {
                observed: wanted,
                allowed: MEMORY_BYTES,
            });
        }
        Ok(())
    }

    /// A text.
    pub(super) fn text(&mut self, text: impl Into<Rc<str>>) -> Result<Value, Fault> {
        let text = text.into();
        self.charge(size(text.len()) + CELL_BYTES)?;
        Ok(Value::Text(text))
    }

    /// A text of Go's bytes: each byte that is no UTF-8 becomes U+FFFD, which is
    /// what Go writes for it into JSON.
    ///
    /// # Errors
    /// SECURITY: Go's texts are any bytes, and functions tell such a byte from a letter.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<Value, Fault> {
        self.differs(std::str::from_utf8(bytes).is_err(), || {
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

    /// A list.
    pub(super) fn list(&mut self, of: Of, items: Vec<Value>) -> Result<Value, Fault> {
        self.list_as(of, items, false)
    }

    /// A list that Go has in the memory of another one.
    pub(super) fn shared(&mut self, of: Of, items: Vec<Value>) -> Result<Value, Fault> {
        self.list_as(of, items, true)
    }

    fn list_as(&mut self, of: Of, items: Vec<Value>, shared: bool) -> Result<Value, Fault> {
        self.charge(size(items.len()).saturating_add(1).saturating_mul(CELL_BYTES))?;
        let depth = 1 + items.iter().map(Value::depth).max().unwrap_or(0);
        if depth > DEPTH {
            return Err(Fault::Depth { allowed: DEPTH });
        }
        // What is missing is `nil` once something holds it.
        let nil = |item: Value| if item.is_nil() { Value::Nil } else { item };
        let items = items.into_iter().map(nil).collect();
        Ok(Value::List(Rc::new(List {
            of,
            items,
            shared,
            depth,
        })))
    }

    /// A list of texts.
    pub(super) fn texts<T: Into<Rc<str>>>(&mut self, items: impl IntoIterator<Item = T>) -> Result<Value, Fault> {
        let mut texts = Vec::new();
        for item in items {
            texts.push(self.text(item)?);
        }
        self.list(Of::Text, texts)
    }

    /// An empty map.
    pub(super) fn map(&mut self, of: Of) -> Result<Map, Fault> {
        self.charge(CELL_BYTES)?;
        let map = Map {
            of,
            frozen: self.making,
            cells: Rc::default(),
        };
        self.maps.push(map.clone());
        Ok(map)
    }

    /// Puts a value into a map.
    ///
    /// # Errors
    /// A bound; the map is of the parameters.
    pub(super) fn put(&mut self, map: &Map, key: impl Into<Rc<str>>, value: Value) -> Result<(), Fault> {
        if !self.making {
            map.thawed()?;
        }
        let key = key.into();
        self.charge(size(key.len()) + CELL_BYTES)?;
        map.put(key, if value.is_nil() { Value::Nil } else { value });
        Ok(())
    }

    /// A value of JSON; numbers are `float64` as Go decodes them.
    pub(super) fn json(&mut self, json: &Json) -> Result<Value, Fault> {
        Ok(match json {
            Json::Null => Value::Nil,
            Json::Bool(yes) => Value::Bool(*yes),
            Json::Number(number) => Value::Float(number.as_f64().unwrap_or(f64::NAN)),
            Json::String(text) => self.text(text.as_str())?,
            Json::Array(items) => {
                let mut list = Vec::with_capacity(items.len());
                for item in items {
                    list.push(self.json(item)?);
                }
                self.list(Of::Any, list)?
            }
            Json::Object(fields) => Value::Map(self.fields(fields)?),
        })
    }

    /// The parameters. Nothing changes them, or what is in them.
    pub(super) fn parameters(&mut self, fields: &serde_json::Map<String, Json>) -> Result<Value, Fault> {
        self.making = true;
        let made = self.fields(fields);
        self.making = false;
        made.map(Value::Map)
    }

    /// A map of a JSON object.
    fn fields(&mut self, fields: &serde_json::Map<String, Json>) -> Result<Map, Fault> {
        let (map, made) = (self.map(Of::Any)?, made(fields));
        for (key, value) in fields {
            let value = match (key.as_str(), value) {
                ("metadata", Json::Object(parts)) if made == Made::Clusters => Value::Map(self.metadata(parts)?),
                ("segments", Json::Array(items)) if fields.contains_key("basenameNormalized") => {
                    self.texts_of(items)?
                }
                ("labels", Json::Array(items)) if fields.contains_key("head_short_sha") => self.texts_of(items)?,
                ("values", Json::Object(texts)) if made != Made::Others => Value::Map(self.texts_by_key(texts)?),
                (_, value) => self.json(value)?,
            };
            self.put(&map, key.as_str(), value)?;
        }
        Ok(map)
    }

    /// What is `[]string` to Argo CD where its generators made it: `sortAlpha` sorts it in
    /// place.
    fn texts_of(&mut self, items: &[Json]) -> Result<Value, Fault> {
        let mut list = Vec::with_capacity(items.len());
        for item in items {
            list.push(self.json(item)?);
        }
        self.shared(Of::Any, list)
    }

    /// Labels and annotations.
    fn metadata(&mut self, parts: &serde_json::Map<String, Json>) -> Result<Map, Fault> {
        let map = self.map(Of::Any)?;
        for (key, part) in parts {
            let part = match part {
                Json::Object(texts) => Value::Map(self.texts_by_key(texts)?),
                part => self.json(part)?,
            };
            self.put(&map, key.as_str(), part)?;
        }
        Ok(map)
    }

    /// A `map[string]string`, if it can be one.
    fn texts_by_key(&mut self, fields: &serde_json::Map<String, Json>) -> Result<Map, Fault> {
        let of = if fields.values().all(Json::is_string) {
            Of::Text
        } else {
            Of::Any
        };
        let map = self.map(of)?;
        for (key, value) in fields {
            let value = self.json(value)?;
            self.put(&map, key.as_str(), value)?;
        }
        Ok(map)
    }
}

/// What made a set of parameters, as far as it has another type for maps of texts:
/// there a key that is missing is empty, not `<no value>`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Made {
    /// The cluster generator: `metadata.labels`, `metadata.annotations`, `values`.
    Clusters,
    /// The git generator: `values`.
    Git,
    /// Any other, or nothing of the kind.
    Others,
}

/// By the keys only they give.
pub(crate) fn made(fields: &serde_json::Map<String, Json>) -> Made {
    let path = fields.get("path").and_then(|path| path.get("basenameNormalized"));
    match (fields.contains_key("nameNormalized"), path) {
        (true, _) => Made::Clusters,
        (false, Some(_)) => Made::Git,
        (false, None) => Made::Others,
    }
}

/// A length as it is counted.
pub(super) fn size(length: usize) -> u64 {
    u64::try_from(length).unwrap_or(u64::MAX)
}
