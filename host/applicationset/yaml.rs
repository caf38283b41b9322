//! YAML as Argo CD reads it: version 1.1, the first document.
//!
//! In: text, who counts bytes. Out: JSON. Refuses: aliases within themselves, nesting
//! beyond [`NESTING`]. Never: a value, or the copy an alias is, made before its bytes
//! were counted; recursion.
//!
//! Everything that generators, templates and patches read as YAML is read here: a text
//! of some lines can stand for more than any memory holds.
//!
//! Source: `sigs.k8s.io/yaml`, which follows go-yaml v2.

use std::collections::{BTreeSet, HashMap};

use serde_json::{Map, Value};
use serde_saphyr::granit_parser::{Event, Marker, Parser, ScalarStyle, Tag, options};

use super::weight;

mod scalar;
#[cfg(test)]
mod tests;

/// Collections inside one another, aliases followed.
const NESTING: usize = 64;

/// Why a text is not read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Error<E> {
    /// It is no YAML, or none that has a JSON.
    Text(String),
    /// What counts the bytes says no.
    Bound(E),
}

/// What a key that stands twice in a mapping is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Twice {
    /// A mistake.
    Refused,
    /// The last one counts.
    Last,
}

/// Reads the first document that is not empty; null where there is none.
///
/// - `take`: counts bytes before they are taken.
///
/// # Errors
/// [`Error`].
pub(super) fn read<E>(text: &str, twice: Twice, take: &mut dyn FnMut(u64) -> Result<(), E>) -> Result<Value, Error<E>> {
    let options = options! {
        emit_comments: false,
        block_nesting_limit: NESTING,
        flow_nesting_limit: NESTING,
        simple_key_max_lookahead: 4096,
    };
    let mut parser = Parser::new_from_str_with_options(text, options);
    let mut builder = Builder {
        twice,
        take,
        open: Vec::new(),
        anchors: HashMap::new(),
    };
    let mut first = Value::Null;
    // What follows the document is read for its mistakes alone.
    while let Some(event) = parser.next_event() {
        let (event, span) = event.map_err(|error| Error::Text(said(error.marker(), &error.info())))?;
        if !first.is_null() {
            continue;
        }
        let finished = builder.event(event).map_err(|fault| match fault {
            Fault::Text(what) => Error::Text(said(&span.start, &what)),
            Fault::Bound(bound) => Error::Bound(bound),
        })?;
        first = finished.unwrap_or_default();
    }
    Ok(first)
}

fn said(marker: &Marker, what: &str) -> String {
    format!(
        "line {}, column {}: {what}",
        marker.line(),
        marker.col().saturating_add(1)
    )
}

/// An [`Error`] that does not know its place yet.
enum Fault<E> {
    Text(String),
    Bound(E),
}

/// A value that is finished, and how many collections are within each other in it.
#[derive(Clone)]
struct Built {
    value: Value,
    height: usize,
}

/// A collection whose end has not come yet.
struct Open {
    anchor: usize,
    height: usize,
    kind: Kind,
}

enum Kind {
    Sequence(Vec<Value>),
    Mapping {
        members: Map<String, Value>,
        /// Keys that `<<` brought; those that are written take their place.
        merged: BTreeSet<String>,
        key: Option<Key>,
    },
}

struct Key {
    text: String,
    is_merge: bool,
}

struct Builder<'t, E> {
    twice: Twice,
    take: &'t mut dyn FnMut(u64) -> Result<(), E>,
    open: Vec<Open>,
    anchors: HashMap<usize, Built>,
}

impl<E> Builder<'_, E> {
    fn take(&mut self, bytes: u64) -> Result<(), Fault<E>> {
        (self.take)(bytes).map_err(Fault::Bound)
    }

    /// Takes one event; gives the document that it ends.
    fn event(&mut self, event: Event<'_>) -> Result<Option<Value>, Fault<E>> {
        match event {
            Event::DocumentStart(..) => {
                self.open.clear();
                self.anchors.clear();
                Ok(None)
            }
            Event::Scalar(text, style, anchor, tag) => self.scalar(&text, (style, tag.as_deref()), anchor),
            Event::SequenceStart(_, anchor, _) => self.begin(anchor, Kind::Sequence(Vec::new())),
            Event::MappingStart(_, anchor, _) => {
                let kind = Kind::Mapping {
                    members: Map::new(),
                    merged: BTreeSet::new(),
                    key: None,
                };
                self.begin(anchor, kind)
            }
            Event::SequenceEnd | Event::MappingEnd => self.end(),
            Event::Alias(id) => self.alias(id),
            // Streams and ends of documents carry no value; the rest is not asked for.
            _ => Ok(None),
        }
    }

    fn begin(&mut self, anchor: usize, kind: Kind) -> Result<Option<Value>, Fault<E>> {
        self.take(weight::NODE)?;
        self.open.push(Open {
            anchor,
            height: 0,
            kind,
        });
        Ok(None)
    }

    fn end(&mut self) -> Result<Option<Value>, Fault<E>> {
        let Some(open) = self.open.pop() else { return Ok(None) };
        let value = match open.kind {
            Kind::Sequence(items) => Value::Array(items),
            Kind::Mapping { members, .. } => Value::Object(members),
        };
        let height = open.height.saturating_add(1);
        self.place(Built { value, height }, open.anchor)
    }

    fn scalar(
        &mut self,
        text: &str,
        (style, tag): (ScalarStyle, Option<&Tag>),
        anchor: usize,
    ) -> Result<Option<Value>, Fault<E>> {
        self.take(weight::text(text).saturating_add(weight::NODE))?;
        let is_plain = match tag.map(Tag::core_suffix) {
            None => style == ScalarStyle::Plain,
            Some(None | Some("str")) => false,
            Some(Some(_)) => return Err(Fault::Text("a tag other than `!!str` is not read".to_owned())),
        };
        let value = match is_plain {
            true => scalar::value(text).ok_or_else(|| Fault::Text(format!("`{text}` has no JSON")))?,
            false => Value::String(text.to_owned()),
        };
        if let Some(Open {
            kind: Kind::Mapping { key: key @ None, .. },
            ..
        }) = self.open.last_mut()
        {
            *key = Some(Key {
                text: scalar::key(&value).ok_or_else(not_a_key)?,
                is_merge: is_plain && text == "<<",
            });
            return self.remember(anchor, value);
        }
        self.place(Built { value, height: 0 }, anchor)
    }

    fn remember(&mut self, anchor: usize, value: Value) -> Result<Option<Value>, Fault<E>> {
        if anchor != 0 {
            self.take(weight::of(&value))?;
            self.anchors.insert(anchor, Built { value, height: 0 });
        }
        Ok(None)
    }

    fn alias(&mut self, id: usize) -> Result<Option<Value>, Fault<E>> {
        let Some(known) = self.anchors.get(&id) else {
            return Err(Fault::Text("an alias stands inside its own anchor".to_owned()));
        };
        if self.open.len().saturating_add(known.height) > NESTING {
            let what = format!("aliases nest deeper than {NESTING} levels");
            return Err(Fault::Text(what));
        }
        (self.take)(weight::of(&known.value)).map_err(Fault::Bound)?;
        let copy = known.clone();
        self.place(copy, 0)
    }

    /// Puts a finished value where it belongs: a key, a value, an item, or the whole
    /// document, which it gives.
    fn place(&mut self, built: Built, anchor: usize) -> Result<Option<Value>, Fault<E>> {
        if anchor != 0 {
            self.take(weight::of(&built.value))?;
            self.anchors.insert(anchor, built.clone());
        }
        let Some(open) = self.open.last_mut() else {
            return Ok(Some(built.value));
        };
        open.height = open.height.max(built.height);
        match &mut open.kind {
            Kind::Sequence(items) => {
                items.push(built.value);
                Ok(None)
            }
            Kind::Mapping { key: key @ None, .. } => {
                let text = scalar::key(&built.value).ok_or_else(not_a_key)?;
                *key = Some(Key { text, is_merge: false });
                Ok(None)
            }
            Kind::Mapping {
                members,
                merged,
                key: key @ Some(_),
            } => {
                let Some(key) = key.take() else { return Ok(None) };
                let (twice, take) = (self.twice, &mut *self.take);
                match key.is_merge {
                    true => merge(members, merged, built.value, take),
                    false => {
                        let twice = if merged.remove(&key.text) { Twice::Last } else { twice };
                        insert(members, (key.text, built.value), (twice, take))
                    }
                }
                .map(|()| None)
            }
        }
    }
}

type Take<'t, E> = &'t mut dyn FnMut(u64) -> Result<(), E>;

fn not_a_key<E>() -> Fault<E> {
    Fault::Text("a key must be text, a whole number or a boolean; put others into quotes".to_owned())
}

/// Adds a member, in place of an earlier one of the key.
///
/// SECURITY: in Go `true` and `'true'` are two keys until they are JSON, and which of them
/// is left then is chance.
fn insert<E>(
    members: &mut Map<String, Value>,
    (key, value): (String, Value),
    (twice, take): (Twice, Take<'_, E>),
) -> Result<(), Fault<E>> {
    if !members.contains_key(&key) {
        take(weight::slot(members.len())).map_err(Fault::Bound)?;
    } else if twice == Twice::Refused || scalar::is_more_than_text(&key) {
        return Err(Fault::Text(format!("key `{key}` stands twice in one mapping")));
    }
    members.insert(key, value);
    Ok(())
}

/// Adds what `<<` brings. It takes the place of what stands before it, and what stands
/// behind it takes its place; of several mappings the first one counts.
fn merge<E>(
    members: &mut Map<String, Value>,
    merged: &mut BTreeSet<String>,
    value: Value,
    take: Take<'_, E>,
) -> Result<(), Fault<E>> {
    let sources = match value {
        Value::Array(items) => items,
        source @ (Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Object(_)) => {
            vec![source]
        }
    };
    for source in sources.into_iter().rev() {
        let Value::Object(source) = source else {
            return Err(Fault::Text("`<<` takes a mapping or a list of mappings".to_owned()));
        };
        for (key, value) in source {
            take(weight::text(&key)).map_err(Fault::Bound)?;
            merged.insert(key.clone());
            insert(members, (key, value), (Twice::Last, &mut *take))?;
        }
    }
    Ok(())
}
