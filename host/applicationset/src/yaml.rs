//! Parses YAML as Argo CD does: version 1.1, the first document only, into JSON. Generators,
//! templates and patches all parse YAML here.
//!
//! Invariant: the bytes of a value, and of each copy that an alias makes, are charged before it is
//! made, since a few lines can stand for more than any memory holds. Nesting is bounded.
//!
//! SECURITY: the gateway authorizes what it parses here, and Argo CD acts on what it parses. Both
//! therefore use the same scanner, libyaml; parsers of version 1.2 differ from it even in everyday
//! documents. What Argo CD refuses, or could read differently because go-yaml changed the scanner,
//! is refused. `tests/parts/differential` compares the two.
//!
//! Source: `sigs.k8s.io/yaml`, which follows go-yaml v2.

use std::collections::{BTreeSet, HashMap};
use std::io::{Chain, Read as _};

use libyaml_safer::{Event, EventData, MappingStyle, Mark, Parser, ScalarStyle, SequenceStyle};
use serde_json::{Map, Value};

use super::heap_size;

mod lexical;
pub(crate) mod scalar;
#[cfg(test)]
mod tests;

/// Maximum nesting of collections, with aliases expanded.
const MAX_NESTING: usize = 64;
/// Number of aliased values from which on Argo CD checks their share.
const MIN_CHECKED_ALIASES: u64 = 100;

const NOT_A_TAG: &str = "a tag other than `!!str` is not read";
const NOT_A_KEY: &str = "a key must be text, a whole number or a boolean; put others into quotes";
const NOT_MERGEABLE: &str = "`<<` takes a mapping or a list of mappings";

/// Why parsing failed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Error<E> {
    /// The text is not YAML, has no JSON form, or could be read differently by Argo CD.
    Syntax(String),
    /// `charge` returned this error.
    Limit(E),
}

/// How a duplicate key in a mapping is handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DuplicateKeys {
    /// It is an error.
    Refused,
    /// The last one is used.
    LastWins,
}

/// Parses the first document; null if there is none. What follows it is not parsed.
///
/// - `charge`: charges bytes before they are allocated.
///
/// # Errors
/// [`Error`].
pub fn read<E>(
    text: &str,
    duplicate_keys: DuplicateKeys,
    charge: &mut dyn FnMut(u64) -> Result<(), E>,
) -> Result<Value, Error<E>> {
    // A byte order mark is not part of the document.
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    lexical::check(text).map_err(Error::Syntax)?;
    let mut parser = Parser::new();
    // The port of libyaml panics at a block scalar that ends without a line break.
    let end = if text.ends_with(['\n', '\r']) { "" } else { "\n" };
    parser.set_input(text.as_bytes().chain(end.as_bytes()));
    let mut reader = Reader {
        text,
        parser,
        position: Mark::default(),
        duplicate_keys,
        charge,
        open: Vec::new(),
        names: HashMap::new(),
        anchors: Vec::new(),
        nodes: 0,
        aliased: 0,
    };
    loop {
        let event = reader.next()?;
        match event.data {
            EventData::StreamStart { .. } | EventData::DocumentStart { .. } => {}
            EventData::StreamEnd => return Ok(Value::Null),
            _ => {
                let node = reader.node(event, NodePlace::Value)?;
                reader.check_aliases()?;
                // Argo CD parses to the end of the document and would find its errors.
                let end = reader.next()?;
                debug_assert!(matches!(end.data, EventData::DocumentEnd { .. }), "{end:?}");
                return Ok(node.value);
            }
        }
    }
}

#[derive(Clone)]
struct ParsedNode {
    value: Value,
    /// Nesting depth of collections in it.
    height: usize,
    /// Number of values and keys in it, including itself.
    nodes: u64,
    origin: NodeOrigin,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NodeOrigin {
    Written,
    Alias,
    /// `<<` as a key.
    Merge,
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum NodePlace {
    Key,
    Value,
}

struct Reader<'t, E> {
    text: &'t str,
    parser: Parser<Chain<&'t [u8], &'t [u8]>>,
    /// Where the last event begins.
    position: Mark,
    duplicate_keys: DuplicateKeys,
    charge: &'t mut dyn FnMut(u64) -> Result<(), E>,
    /// The collections that are not complete yet: whether each is in brackets.
    open: Vec<bool>,
    /// The anchor that a name refers to: the last one that began.
    names: HashMap<String, usize>,
    /// `None` while the value is incomplete.
    anchors: Vec<Option<ParsedNode>>,
    /// Number of values and keys so far.
    nodes: u64,
    /// Number of those that aliases added.
    aliased: u64,
}

impl<E> Reader<'_, E> {
    fn charge(&mut self, bytes: u64) -> Result<(), Error<E>> {
        (self.charge)(bytes).map_err(Error::Limit)
    }

    fn next(&mut self) -> Result<Event, Error<E>> {
        let event = self.parser.parse().map_err(|error| {
            let mark = error.problem_mark().unwrap_or_default();
            syntax(mark, error.problem())
        })?;
        self.position = event.start_mark;
        if !matches!(event.data, EventData::SequenceEnd | EventData::MappingEnd) {
            self.nodes = self.nodes.saturating_add(1);
        }
        Ok(event)
    }

    fn wrong<T>(&self, what: &str) -> Result<T, Error<E>> {
        Err(syntax(self.position, what))
    }

    /// The value that begins with this event. [`MAX_NESTING`] ends the recursion.
    fn node(&mut self, event: Event, place: NodePlace) -> Result<ParsedNode, Error<E>> {
        let (start, end) = (event.start_mark.index, event.end_mark.index);
        match event.data {
            EventData::Scalar {
                anchor,
                tag,
                value,
                plain_implicit,
                style,
                ..
            } => {
                let text = self.checked(value, style, start, end)?;
                let is_plain = match tag.as_deref() {
                    None => plain_implicit,
                    Some(libyaml_safer::STR_TAG) => false,
                    // A `!` alone makes `<<` a string, but one that still merges.
                    Some(tag) if tag.starts_with('!') && tag.len() > 1 => false,
                    Some(_) => return self.wrong(NOT_A_TAG),
                };
                let anchor = self.anchor(anchor)?;
                self.scalar(text, is_plain, anchor, place)
            }
            EventData::SequenceStart { anchor, tag, style, .. } => {
                let anchor = self.begin(anchor, tag.as_ref(), style == SequenceStyle::Flow)?;
                self.sequence(anchor)
            }
            EventData::MappingStart { anchor, tag, style, .. } => {
                let anchor = self.begin(anchor, tag.as_ref(), style == MappingStyle::Flow)?;
                self.mapping(anchor)
            }
            EventData::Alias { anchor } => self.alias(&anchor),
            _ => self.wrong("a value is missing"),
        }
    }

    /// The value of a scalar as go-yaml's scanner reads it.
    fn checked(&self, mut value: String, style: ScalarStyle, start: u64, end: u64) -> Result<String, Error<E>> {
        let [start, end] = [start, end].map(|mark| usize::try_from(mark).unwrap_or(usize::MAX));
        match style {
            ScalarStyle::Plain if self.open.last() == Some(&true) && value.contains('?') => {
                return self.wrong("`?` in a text between brackets is not read: put it into quotes");
            }
            ScalarStyle::DoubleQuoted if !self.text.get(start..end).is_some_and(lexical::has_portable_escapes) => {
                return self.wrong("the escape `\\/` is not read");
            }
            ScalarStyle::Literal | ScalarStyle::Folded if end >= self.text.len() => {
                let last = self.text.rsplit(['\n', '\r']).next().unwrap_or_default();
                if !last.is_empty() && last.trim().is_empty() {
                    return self.wrong("blanks at the end of a block are not read");
                }
                // The line break that was appended is not part of the scalar.
                if !last.is_empty() && value.ends_with('\n') {
                    value.pop();
                }
            }
            _ => {}
        }
        Ok(value)
    }

    /// Reserves an anchor, which has no value until it is complete.
    fn anchor(&mut self, name: Option<String>) -> Result<Option<usize>, Error<E>> {
        let Some(name) = name else { return Ok(None) };
        self.charge(heap_size::text(&name).saturating_add(heap_size::VALUE_BYTES))?;
        let id = self.anchors.len();
        self.names.insert(name, id);
        self.anchors.push(None);
        Ok(Some(id))
    }

    fn begin(
        &mut self,
        anchor: Option<String>,
        tag: Option<&String>,
        is_flow: bool,
    ) -> Result<Option<usize>, Error<E>> {
        self.charge(heap_size::VALUE_BYTES)?;
        if tag.is_some() {
            return self.wrong(NOT_A_TAG);
        }
        self.check_nesting(1)?;
        let anchor = self.anchor(anchor)?;
        self.open.push(is_flow);
        Ok(anchor)
    }

    /// Checks that a value with this many levels fits here.
    fn check_nesting(&self, levels: usize) -> Result<(), Error<E>> {
        match self.open.len().saturating_add(levels) > MAX_NESTING {
            true => self.wrong(&format!(
                "collections and aliases nest deeper than {MAX_NESTING} levels"
            )),
            false => Ok(()),
        }
    }

    fn end(&mut self, mut node: ParsedNode, anchor: Option<usize>) -> Result<ParsedNode, Error<E>> {
        self.open.pop();
        node.height = node.height.saturating_add(1);
        self.remember(anchor, node)
    }

    fn sequence(&mut self, anchor: Option<usize>) -> Result<ParsedNode, Error<E>> {
        let mut items = Vec::new();
        let mut node = ParsedNode::new(Value::Null);
        loop {
            let event = self.next()?;
            if matches!(event.data, EventData::SequenceEnd) {
                node.value = Value::Array(items);
                return self.end(node, anchor);
            }
            let item = self.node(event, NodePlace::Value)?;
            items.push(node.take(item));
        }
    }

    fn mapping(&mut self, anchor: Option<usize>) -> Result<ParsedNode, Error<E>> {
        let mut members = Map::new();
        // Keys that `<<` added; keys of the mapping itself replace them.
        let mut merged = BTreeSet::new();
        let mut node = ParsedNode::new(Value::Null);
        loop {
            let event = self.next()?;
            if matches!(event.data, EventData::MappingEnd) {
                node.value = Value::Object(members);
                return self.end(node, anchor);
            }
            let key = self.node(event, NodePlace::Key)?;
            let key = match key.origin {
                NodeOrigin::Merge => None,
                NodeOrigin::Written | NodeOrigin::Alias => match scalar::key(&node.take(key)) {
                    None => return self.wrong(NOT_A_KEY),
                    key => key,
                },
            };
            let event = self.next()?;
            let value = self.node(event, NodePlace::Value)?;
            let is_alias = value.origin == NodeOrigin::Alias;
            match (key, node.take(value)) {
                // Argo CD does not treat an alias of a list as a list.
                (None, Value::Array(_)) if is_alias => return self.wrong(NOT_MERGEABLE),
                (None, value) => self.merge(&mut members, &mut merged, value)?,
                (Some(key), value) => {
                    let duplicate_keys = match merged.remove(&key) {
                        true => DuplicateKeys::LastWins,
                        false => self.duplicate_keys,
                    };
                    self.insert(&mut members, key, value, duplicate_keys)?;
                }
            }
        }
    }

    fn scalar(
        &mut self,
        text: String,
        is_plain: bool,
        anchor: Option<usize>,
        place: NodePlace,
    ) -> Result<ParsedNode, Error<E>> {
        self.charge(heap_size::text(&text).saturating_add(heap_size::VALUE_BYTES))?;
        let is_key = place == NodePlace::Key;
        let is_merge = is_key && is_plain && text == "<<";
        let value = match is_plain {
            true => match scalar::value(&text) {
                Some(value) => value,
                None if is_key => return self.wrong(NOT_A_KEY),
                None => return self.wrong(&format!("`{text}` has no JSON")),
            },
            false => Value::String(text),
        };
        let mut node = ParsedNode::new(value);
        if is_merge {
            node.origin = NodeOrigin::Merge;
        }
        self.remember(anchor, node)
    }

    /// Keeps a copy for aliases, after charging its bytes.
    fn remember(&mut self, anchor: Option<usize>, node: ParsedNode) -> Result<ParsedNode, Error<E>> {
        if let Some(id) = anchor {
            self.charge(heap_size::of(&node.value))?;
            if let Some(slot) = self.anchors.get_mut(id) {
                *slot = Some(node.clone());
            }
        }
        Ok(node)
    }

    fn alias(&mut self, name: &str) -> Result<ParsedNode, Error<E>> {
        let Some(id) = self.names.get(name) else {
            return self.wrong("an alias has no anchor");
        };
        let Some(known) = self.anchors.get(*id).and_then(Option::as_ref) else {
            return self.wrong("an alias stands inside its own anchor");
        };
        self.check_nesting(known.height)?;
        (self.charge)(heap_size::of(&known.value)).map_err(Error::Limit)?;
        self.nodes = self.nodes.saturating_add(known.nodes);
        self.aliased = self.aliased.saturating_add(known.nodes);
        let copy = ParsedNode {
            origin: NodeOrigin::Alias,
            nodes: known.nodes.saturating_add(1),
            ..known.clone()
        };
        // At each alias, so that an attack stops early.
        self.check_aliases()?;
        Ok(copy)
    }

    /// Refuses what Argo CD treats as an attack by aliases: more than 99 of 100 values come from
    /// aliases. The limit decreases from 400,000 values on, down to one in ten at 4,000,000. The
    /// limit here is half a percentage point lower, because values are not counted in Argo CD's
    /// order.
    fn check_aliases(&self) -> Result<(), Error<E>> {
        let beyond = self.nodes.saturating_sub(400_000).min(3_600_000);
        let allowed_per_million = 985_000_u64.saturating_sub(beyond.saturating_mul(89) / 360);
        let is_attack = self.aliased > MIN_CHECKED_ALIASES
            && self.nodes > 900
            && self.aliased.saturating_mul(1_000_000) > self.nodes.saturating_mul(allowed_per_million);
        match is_attack {
            true => self.wrong("almost all of it is what aliases bring"),
            false => Ok(()),
        }
    }

    /// Adds a member, or replaces an earlier one of the same key.
    ///
    /// SECURITY: in Go `true` and `'true'` are two keys until they are converted to JSON, and which
    /// of them survives is random.
    fn insert(
        &mut self,
        members: &mut Map<String, Value>,
        key: String,
        value: Value,
        duplicate_keys: DuplicateKeys,
    ) -> Result<(), Error<E>> {
        if !members.contains_key(&key) {
            self.charge(heap_size::map_growth(members.len()))?;
        } else if duplicate_keys == DuplicateKeys::Refused || scalar::is_ambiguous_key(&key) {
            return self.wrong(&format!("key `{key}` stands twice in one mapping"));
        }
        members.insert(key, value);
        Ok(())
    }

    /// Adds the members that `<<` merges in. They replace members before it and are replaced by
    /// members after it; of several mappings the first takes precedence.
    fn merge(
        &mut self,
        members: &mut Map<String, Value>,
        merged: &mut BTreeSet<String>,
        value: Value,
    ) -> Result<(), Error<E>> {
        let sources = match value {
            Value::Array(items) => items,
            source => vec![source],
        };
        for source in sources.into_iter().rev() {
            let Value::Object(source) = source else {
                return self.wrong(NOT_MERGEABLE);
            };
            for (key, value) in source {
                self.charge(heap_size::text(&key))?;
                merged.insert(key.clone());
                self.insert(members, key, value, DuplicateKeys::LastWins)?;
            }
        }
        Ok(())
    }
}

impl ParsedNode {
    fn new(value: Value) -> Self {
        Self {
            value,
            height: 0,
            nodes: 1,
            origin: NodeOrigin::Written,
        }
    }

    /// Counts a value or key of this collection, and returns it.
    fn take(&mut self, part: Self) -> Value {
        self.height = self.height.max(part.height);
        self.nodes = self.nodes.saturating_add(part.nodes);
        part.value
    }
}

fn syntax<E>(position: Mark, what: &str) -> Error<E> {
    let (line, column) = (position.line.saturating_add(1), position.column.saturating_add(1));
    Error::Syntax(format!("line {line}, column {column}: {what}"))
}
