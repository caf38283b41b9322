//! Decodes one entry of `generators`: its kinds in order, borrowed, with the types of their
//! settings checked.
//!
//! Security: a key that a template produces never becomes a generator kind.

use serde_json::{Map, Value};

use super::fields::{child_path, list, member, object};
use super::{Error, KIND_ORDER, settings};
use crate::GeneratorKind;

/// The nesting level of an entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NestingLevel {
    /// In `spec.generators`.
    Top,
    /// In a matrix or merge of [`Self::Top`].
    Nested,
    /// In a matrix or merge of [`Self::Nested`]; no further matrix or merge is allowed here.
    Terminal,
}

impl NestingLevel {
    /// The level of the children of a matrix or merge at this level; `None` where there can be no
    /// matrix or merge.
    pub(crate) fn child_level(self) -> Option<Self> {
        match self {
            Self::Top => Some(Self::Nested),
            Self::Nested => Some(Self::Terminal),
            Self::Terminal => None,
        }
    }
}

/// A decoded entry.
#[derive(Clone, Debug)]
pub(crate) struct GeneratorEntry<'v> {
    /// The kinds and their settings, in [`KIND_ORDER`].
    pub(crate) kinds: Vec<(GeneratorKind, &'v Value)>,
    /// `selector`.
    pub(crate) selector: Option<&'v Value>,
}

impl<'v> GeneratorEntry<'v> {
    /// Decodes an entry and checks the types of its settings, including those of its children.
    pub(crate) fn read(raw: &'v Value, level: NestingLevel, path: &str) -> Result<Self, Error> {
        let entry = Self::open(raw, path)?;
        for (name, value) in &entry.kinds {
            let path = child_path(path, name.as_str());
            settings::check(*name, value, &path)?;
            let (GeneratorKind::Matrix | GeneratorKind::Merge, Some(level)) = (name, level.child_level()) else {
                continue;
            };
            for (index, child) in list(object(value, &path)?, "generators", &path)?.iter().enumerate() {
                GeneratorEntry::read(child, level, &format!("{path}.generators[{index}]"))?;
            }
        }
        Ok(entry)
    }

    /// Decodes an entry without checking its settings.
    pub(crate) fn open(raw: &'v Value, path: &str) -> Result<Self, Error> {
        let members = object(raw, path)?;
        let kind = |name: &GeneratorKind| member(members, name.as_str()).map(|value| (*name, value));
        let selector = member(members, "selector");
        if let Some(selector) = selector {
            object(selector, &child_path(path, "selector"))?;
        }
        Ok(Self {
            kinds: KIND_ORDER.iter().filter_map(kind).collect(),
            selector,
        })
    }
}

/// Removes keys that Argo CD does not know from the entry and its children, so that templates in
/// keys cannot make generators. Nesting that is too deep is kept, so that it is reported as an
/// error.
pub(super) fn pruned(raw: &Value, level: NestingLevel, path: &str) -> Result<Value, Error> {
    let entry = GeneratorEntry::open(raw, path)?;
    let mut kept = Map::new();
    for (name, value) in entry.kinds {
        let mut value = value.clone();
        if let (GeneratorKind::Matrix | GeneratorKind::Merge, Some(level)) = (name, level.child_level()) {
            let path = format!("{}.generators", child_path(path, name.as_str()));
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
