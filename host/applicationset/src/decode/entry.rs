//! Entries of `generators`.
//!
//! In: an entry as JSON. Out: its kinds in order, borrowed, with settings of the
//! right types. Never: a key that becomes a kind because a template made it one.

use serde_json::{Map, Value};

use super::fields::{below, list, member, object};
use super::{Error, ORDER, settings};
use crate::KindName;

/// Where an entry stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    /// In `spec.generators`.
    Top,
    /// In a matrix or merge of [`Self::Top`].
    Nested,
    /// In a matrix or merge of [`Self::Nested`]; no matrix or merge can stand here.
    Terminal,
}

impl Level {
    /// The level of the children of a matrix or merge here; none where there can be
    /// no matrix or merge.
    pub(crate) fn below(self) -> Option<Self> {
        match self {
            Self::Top => Some(Self::Nested),
            Self::Nested => Some(Self::Terminal),
            Self::Terminal => None,
        }
    }
}

/// An entry, taken apart.
#[derive(Clone, Debug)]
pub(crate) struct Entry<'v> {
    /// Kinds and what stands below them, in [`ORDER`].
    pub(crate) kinds: Vec<(KindName, &'v Value)>,
    /// `selector`.
    pub(crate) selector: Option<&'v Value>,
}

impl<'v> Entry<'v> {
    /// Takes an entry apart and judges the types of its settings, those of children
    /// too.
    pub(crate) fn read(raw: &'v Value, level: Level, path: &str) -> Result<Self, Error> {
        let entry = Self::open(raw, path)?;
        for (name, value) in &entry.kinds {
            let path = below(path, name.as_str());
            settings::check(*name, value, &path)?;
            let (KindName::Matrix | KindName::Merge, Some(level)) = (name, level.below()) else {
                continue;
            };
            for (index, child) in list(object(value, &path)?, "generators", &path)?.iter().enumerate() {
                Entry::read(child, level, &format!("{path}.generators[{index}]"))?;
            }
        }
        Ok(entry)
    }

    /// Takes an entry apart.
    pub(crate) fn open(raw: &'v Value, path: &str) -> Result<Self, Error> {
        let members = object(raw, path)?;
        let kind = |name: &KindName| member(members, name.as_str()).map(|value| (*name, value));
        let selector = member(members, "selector");
        if let Some(selector) = selector {
            object(selector, &below(path, "selector"))?;
        }
        Ok(Self {
            kinds: ORDER.iter().filter_map(kind).collect(),
            selector,
        })
    }
}

/// The entry without keys Argo CD does not know, those of children too, so that
/// templates in keys cannot make generators. Nesting deeper than allowed is kept, for
/// the error.
pub(super) fn pruned(raw: &Value, level: Level, path: &str) -> Result<Value, Error> {
    let entry = Entry::open(raw, path)?;
    let mut kept = Map::new();
    for (name, value) in entry.kinds {
        let mut value = value.clone();
        if let (KindName::Matrix | KindName::Merge, Some(level)) = (name, level.below()) {
            let path = format!("{}.generators", below(path, name.as_str()));
            if let Some(Value::Array(children)) = value.get_mut("generators") {
                for (index, child) in children.iter_mut().enumerate() {
                    *child = pruned(child, level, &format!("{path}[{index}]"))?;
                }
            }
        }
        kept.insert(name.as_str().to_owned(), value);
    }
    if let Some(selector) = entry.selector {
        kept.insert("selector".to_owned(), selector.clone());
    }
    Ok(Value::Object(kept))
}
