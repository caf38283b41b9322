//! Parses YAML as Argo CD does: version 1.1, the first document only, into JSON. Generators,
//! templates and patches all parse YAML here.
//!
//! Invariant: the bytes of a value, and of each copy that an alias makes, are charged before it is
//! made, since a few lines can stand for more than any memory holds. Parsing does not recurse.
//!
//! SECURITY: the gateway authorizes what it parses here, and Argo CD acts on what it parses. Both
//! therefore use the same scanner, libyaml; parsers of version 1.2 differ from it even in everyday
//! documents. What Argo CD refuses, or could read differently because go-yaml changed the scanner,
//! is refused. `tests/parts/differential` compares the two.
//!
//! Source: `sigs.k8s.io/yaml`, which follows go-yaml v2.

use std::collections::{BTreeSet, HashMap};
use std::io::Read as _;

use libyaml_safer::{Event, EventData, MappingStyle, Parser, ScalarStyle, SequenceStyle};
use serde_json::{Map, Value};

use super::heap_size;

mod lexical;
mod scalar;
#[cfg(test)]
mod tests;

/// Maximum nesting of collections, with aliases expanded.
const MAX_NESTING: usize = 64;
/// Number of aliased values from which on Argo CD checks their share.
const MIN_CHECKED_ALIASES: u64 = 100;

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
    let text = text.strip_prefix('\u{feff}').unwrap_or(text);
    lexical::check(text).map_err(Error::Syntax)?;
    let mut parser = Parser::new();
    // The port of libyaml panics at a block scalar that ends without a line break.
    let end = if text.ends_with(['\n', '\r']) { "" } else { "\n" };
    parser.set_input(text.as_bytes().chain(end.as_bytes()));
    let mut builder = Builder {
        text,
        duplicate_keys,
        charge,
        open: Vec::new(),
        names: HashMap::new(),
        anchors: Vec::new(),
        nodes: 0,
        aliased: 0,
    };
    loop {
        let event = parser.parse().map_err(|error| parse_error(&error))?;
        if matches!(event.data, EventData::StreamEnd) {
            return Ok(Value::Null);
        }
        let (line, column) = (event.start_mark.line, event.start_mark.column);
        let finished = builder.event(event).map_err(|error| match error {
            EventError::Syntax(what) => Error::Syntax(with_position(line, column, &what)),
            EventError::Limit(limit) => Error::Limit(limit),
        })?;
        if let Some(node) = finished {
            // Argo CD parses to the end of the document and would find its errors.
            let end = parser.parse().map_err(|error| parse_error(&error))?;
            debug_assert!(matches!(end.data, EventData::DocumentEnd { .. }), "{end:?}");
            return Ok(node);
        }
    }
}

fn parse_error<E>(error: &libyaml_safer::Error) -> Error<E> {
    let mark = error.problem_mark().unwrap_or_default();
    Error::Syntax(with_position(mark.line, mark.column, error.problem()))
}

fn with_position(line: u64, column: u64, what: &str) -> String {
    format!(
        "line {}, column {}: {what}",
        line.saturating_add(1),
        column.saturating_add(1)
    )
}

/// An [`Error`] without its position in the text.
enum EventError<E> {
    Syntax(String),
    Limit(E),
}

/// A complete value.
#[derive(Clone)]
struct ParsedNode {
    value: Value,
    /// Nesting depth of collections in it.
    height: usize,
    /// Number of values and keys in it, including itself.
    nodes: u64,
    is_alias: bool,
}

impl ParsedNode {
    fn scalar(value: Value) -> Self {
        Self {
            value,
            height: 0,
            nodes: 1,
            is_alias: false,
        }
    }
}

/// A collection that is not complete yet.
struct OpenCollection {
    anchor: Option<usize>,
    height: usize,
    nodes: u64,
    is_flow: bool,
    kind: CollectionKind,
}

enum CollectionKind {
    Sequence(Vec<Value>),
    Mapping {
        members: Map<String, Value>,
        /// Keys that `<<` added; keys of the mapping itself replace them.
        merged: BTreeSet<String>,
        key: Option<PendingKey>,
    },
}

struct PendingKey {
    text: String,
    is_merge: bool,
}

struct Builder<'t, E> {
    text: &'t str,
    duplicate_keys: DuplicateKeys,
    charge: &'t mut dyn FnMut(u64) -> Result<(), E>,
    open: Vec<OpenCollection>,
    /// The anchor that a name refers to: the last one that began.
    names: HashMap<String, usize>,
    /// `None` while the value is incomplete.
    anchors: Vec<Option<ParsedNode>>,
    /// Number of values and keys so far.
    nodes: u64,
    /// Number of those that aliases added.
    aliased: u64,
}

impl<E> Builder<'_, E> {
    fn charge(&mut self, bytes: u64) -> Result<(), EventError<E>> {
        (self.charge)(bytes).map_err(EventError::Limit)
    }

    /// Processes one event; returns the document if the event ends it.
    fn event(&mut self, event: Event) -> Result<Option<Value>, EventError<E>> {
        if !matches!(event.data, EventData::SequenceEnd | EventData::MappingEnd) {
            self.nodes = self.nodes.saturating_add(1);
        }
        let marks = (event.start_mark.index, event.end_mark.index);
        match event.data {
            EventData::Scalar {
                anchor,
                tag,
                value,
                plain_implicit,
                style,
                ..
            } => {
                let value = self.checked(value, style, marks)?;
                let is_plain = match tag.as_deref() {
                    None => plain_implicit,
                    Some(libyaml_safer::STR_TAG) => false,
                    // A `!` alone makes `<<` a string, but one that still merges.
                    Some(tag) if tag.starts_with('!') && tag.len() > 1 => false,
                    Some(_) => return Err(not_a_tag()),
                };
                let anchor = self.anchor(anchor)?;
                self.scalar(value, is_plain, anchor)
            }
            EventData::SequenceStart { anchor, tag, style, .. } => {
                let is_flow = style == SequenceStyle::Flow;
                self.begin((anchor, tag), is_flow, CollectionKind::Sequence(Vec::new()))
            }
            EventData::MappingStart { anchor, tag, style, .. } => {
                let kind = CollectionKind::Mapping {
                    members: Map::new(),
                    merged: BTreeSet::new(),
                    key: None,
                };
                self.begin((anchor, tag), style == MappingStyle::Flow, kind)
            }
            EventData::SequenceEnd | EventData::MappingEnd => self.end(),
            EventData::Alias { anchor } => self.alias(&anchor),
            EventData::StreamStart { .. }
            | EventData::StreamEnd
            | EventData::DocumentStart { .. }
            | EventData::DocumentEnd { .. } => Ok(None),
        }
    }

    /// The value of a scalar as go-yaml's scanner reads it.
    fn checked(&self, mut value: String, style: ScalarStyle, marks: (u64, u64)) -> Result<String, EventError<E>> {
        let [start, end] = [marks.0, marks.1].map(|mark| usize::try_from(mark).unwrap_or(usize::MAX));
        match style {
            ScalarStyle::Plain if self.open.last().is_some_and(|open| open.is_flow) && value.contains('?') => {
                let what = "`?` in a text between brackets is not read: put it into quotes";
                return Err(EventError::Syntax(what.to_owned()));
            }
            ScalarStyle::DoubleQuoted if !self.text.get(start..end).is_some_and(lexical::has_portable_escapes) => {
                return Err(EventError::Syntax("the escape `\\/` is not read".to_owned()));
            }
            ScalarStyle::Literal | ScalarStyle::Folded if end >= self.text.len() => {
                let last = self.text.rsplit(['\n', '\r']).next().unwrap_or_default();
                if !last.is_empty() && last.trim().is_empty() {
                    return Err(EventError::Syntax(
                        "blanks at the end of a block are not read".to_owned(),
                    ));
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
    fn anchor(&mut self, name: Option<String>) -> Result<Option<usize>, EventError<E>> {
        let Some(name) = name else { return Ok(None) };
        self.charge(heap_size::text(&name).saturating_add(heap_size::VALUE_BYTES))?;
        let id = self.anchors.len();
        self.names.insert(name, id);
        self.anchors.push(None);
        Ok(Some(id))
    }

    fn begin(
        &mut self,
        (anchor, tag): (Option<String>, Option<String>),
        is_flow: bool,
        kind: CollectionKind,
    ) -> Result<Option<Value>, EventError<E>> {
        self.charge(heap_size::VALUE_BYTES)?;
        if tag.is_some() {
            return Err(not_a_tag());
        }
        if self.open.len() >= MAX_NESTING {
            return Err(too_deep());
        }
        let anchor = self.anchor(anchor)?;
        self.open.push(OpenCollection {
            anchor,
            height: 0,
            nodes: 1,
            is_flow,
            kind,
        });
        Ok(None)
    }

    fn end(&mut self) -> Result<Option<Value>, EventError<E>> {
        let Some(open) = self.open.pop() else { return Ok(None) };
        let value = match open.kind {
            CollectionKind::Sequence(items) => Value::Array(items),
            CollectionKind::Mapping { members, .. } => Value::Object(members),
        };
        let node = ParsedNode {
            value,
            height: open.height.saturating_add(1),
            nodes: open.nodes,
            is_alias: false,
        };
        self.attach(node, open.anchor)
    }

    fn scalar(&mut self, text: String, is_plain: bool, anchor: Option<usize>) -> Result<Option<Value>, EventError<E>> {
        self.charge(heap_size::text(&text).saturating_add(heap_size::VALUE_BYTES))?;
        let is_key = matches!(
            self.open.last(),
            Some(OpenCollection {
                kind: CollectionKind::Mapping { key: None, .. },
                ..
            })
        );
        let is_merge = is_plain && text == "<<";
        let value = match is_plain {
            true => scalar::value(&text).ok_or_else(|| match is_key {
                true => not_a_key(),
                false => EventError::Syntax(format!("`{text}` has no JSON")),
            })?,
            false => Value::String(text),
        };
        if is_merge
            && is_key
            && let Some(OpenCollection {
                kind: CollectionKind::Mapping { key, .. },
                ..
            }) = self.open.last_mut()
        {
            *key = Some(PendingKey {
                text: "<<".to_owned(),
                is_merge: true,
            });
            self.remember(anchor, &ParsedNode::scalar(value))?;
            return Ok(None);
        }
        self.attach(ParsedNode::scalar(value), anchor)
    }

    /// Keeps a copy for aliases, after charging its bytes.
    fn remember(&mut self, anchor: Option<usize>, node: &ParsedNode) -> Result<(), EventError<E>> {
        let Some(id) = anchor else { return Ok(()) };
        self.charge(heap_size::of(&node.value))?;
        if let Some(slot) = self.anchors.get_mut(id) {
            *slot = Some(node.clone());
        }
        Ok(())
    }

    fn alias(&mut self, name: &str) -> Result<Option<Value>, EventError<E>> {
        let Some(id) = self.names.get(name) else {
            return Err(EventError::Syntax("an alias has no anchor".to_owned()));
        };
        let Some(known) = self.anchors.get(*id).and_then(Option::as_ref) else {
            return Err(EventError::Syntax("an alias stands inside its own anchor".to_owned()));
        };
        if self.open.len().saturating_add(known.height) > MAX_NESTING {
            return Err(too_deep());
        }
        (self.charge)(heap_size::of(&known.value)).map_err(EventError::Limit)?;
        self.nodes = self.nodes.saturating_add(known.nodes);
        self.aliased = self.aliased.saturating_add(known.nodes);
        let copy = ParsedNode {
            is_alias: true,
            nodes: known.nodes.saturating_add(1),
            ..known.clone()
        };
        self.check_aliases()?;
        self.attach(copy, None)
    }

    /// Refuses what Argo CD treats as an attack by aliases: more than 99 of 100 values come from
    /// aliases. The limit decreases from 400,000 values on, down to one in ten at 4,000,000. The
    /// limit here is half a percentage point lower, because values are not counted in Argo CD's
    /// order.
    fn check_aliases(&self) -> Result<(), EventError<E>> {
        let beyond = self.nodes.saturating_sub(400_000).min(3_600_000);
        let allowed_per_million = 985_000_u64.saturating_sub(beyond.saturating_mul(89) / 360);
        let is_attack = self.aliased > MIN_CHECKED_ALIASES
            && self.nodes > 900
            && self.aliased.saturating_mul(1_000_000) > self.nodes.saturating_mul(allowed_per_million);
        match is_attack {
            true => Err(EventError::Syntax("almost all of it is what aliases bring".to_owned())),
            false => Ok(()),
        }
    }

    /// Puts a complete value where it belongs: a key, a value, an item, or the whole document,
    /// which is returned.
    fn attach(&mut self, node: ParsedNode, anchor: Option<usize>) -> Result<Option<Value>, EventError<E>> {
        self.remember(anchor, &node)?;
        let Some(open) = self.open.last_mut() else {
            self.check_aliases()?;
            return Ok(Some(node.value));
        };
        open.height = open.height.max(node.height);
        open.nodes = open.nodes.saturating_add(node.nodes);
        match &mut open.kind {
            CollectionKind::Sequence(items) => {
                items.push(node.value);
                Ok(None)
            }
            CollectionKind::Mapping { key: key @ None, .. } => {
                let text = scalar::key(&node.value).ok_or_else(not_a_key)?;
                *key = Some(PendingKey { text, is_merge: false });
                Ok(None)
            }
            CollectionKind::Mapping {
                members,
                merged,
                key: key @ Some(_),
            } => {
                let Some(key) = key.take() else { return Ok(None) };
                let (duplicate_keys, charge) = (self.duplicate_keys, &mut *self.charge);
                match key.is_merge {
                    // Argo CD does not treat an alias of a list as a list.
                    true if node.is_alias && node.value.is_array() => Err(not_mergeable()),
                    true => merge(members, merged, node.value, charge),
                    false => {
                        let duplicate_keys = if merged.remove(&key.text) {
                            DuplicateKeys::LastWins
                        } else {
                            duplicate_keys
                        };
                        insert(members, (key.text, node.value), (duplicate_keys, charge))
                    }
                }
                .map(|()| None)
            }
        }
    }
}

type Charge<'t, E> = &'t mut dyn FnMut(u64) -> Result<(), E>;

fn not_a_tag<E>() -> EventError<E> {
    EventError::Syntax("a tag other than `!!str` is not read".to_owned())
}

fn too_deep<E>() -> EventError<E> {
    EventError::Syntax(format!("collections and aliases nest deeper than {MAX_NESTING} levels"))
}

fn not_mergeable<E>() -> EventError<E> {
    EventError::Syntax("`<<` takes a mapping or a list of mappings".to_owned())
}

fn not_a_key<E>() -> EventError<E> {
    EventError::Syntax("a key must be text, a whole number or a boolean; put others into quotes".to_owned())
}

/// Adds a member, or replaces an earlier one of the same key.
///
/// SECURITY: in Go `true` and `'true'` are two keys until they are converted to JSON, and which of
/// them survives is random.
fn insert<E>(
    members: &mut Map<String, Value>,
    (key, value): (String, Value),
    (duplicate_keys, charge): (DuplicateKeys, Charge<'_, E>),
) -> Result<(), EventError<E>> {
    if !members.contains_key(&key) {
        charge(heap_size::map_growth(members.len())).map_err(EventError::Limit)?;
    } else if duplicate_keys == DuplicateKeys::Refused || scalar::is_ambiguous_key(&key) {
        return Err(EventError::Syntax(format!("key `{key}` stands twice in one mapping")));
    }
    members.insert(key, value);
    Ok(())
}

/// Adds the members that `<<` merges in. They replace members before it and are replaced by
/// members after it; of several mappings the first takes precedence.
fn merge<E>(
    members: &mut Map<String, Value>,
    merged: &mut BTreeSet<String>,
    value: Value,
    charge: Charge<'_, E>,
) -> Result<(), EventError<E>> {
    let sources = match value {
        Value::Array(items) => items,
        source @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
            vec![source]
        }
    };
    for source in sources.into_iter().rev() {
        let Value::Object(source) = source else {
            return Err(not_mergeable());
        };
        for (key, value) in source {
            charge(heap_size::text(&key)).map_err(EventError::Limit)?;
            merged.insert(key.clone());
            insert(members, (key, value), (DuplicateKeys::LastWins, &mut *charge))?;
        }
    }
    Ok(())
}
