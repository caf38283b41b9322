//! Decodes one entry of `generators`: its kinds in order, borrowed, with the types of their
//! settings checked.
//!
//! Security: a key that a template produces never becomes a generator kind.

use serde_json::{Map, Value};
use strum::VariantArray;

use super::fields::{child_path, member, object, section};
use super::{Error, settings};
use crate::GeneratorKind;

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

#[derive(Clone, Debug)]
pub(crate) struct GeneratorEntry<'v> {
    /// The kinds and their settings, in the order of [`GeneratorKind`].
    pub(crate) kinds: Vec<(GeneratorKind, &'v Value)>,
    pub(crate) selector: Option<&'v Value>,
}

impl<'v> GeneratorEntry<'v> {
    /// Decodes an entry without checking its settings.
    pub(crate) fn open(raw: &'v Value, path: &str) -> Result<Self, Error> {
        let members = object(raw, path)?;
        let kind = |name: &GeneratorKind| member(members, name.as_ref()).map(|value| (*name, value));
        section(members, "selector", &child_path(path, "selector"))?;
        Ok(Self {
            kinds: GeneratorKind::VARIANTS.iter().filter_map(kind).collect(),
            selector: member(members, "selector"),
        })
    }
}

/// Checks the types of the settings of an entry and its children, and removes keys that Argo CD
/// does not know, so that templates in keys cannot make generators. Nesting that is too deep is
/// kept, so that it is reported as an error.
pub(super) fn checked(raw: &Value, level: NestingLevel, path: &str) -> Result<Value, Error> {
    let entry = GeneratorEntry::open(raw, path)?;
    let mut kept = Map::new();
    for (kind, settings) in entry.kinds {
        let path = child_path(path, kind.as_ref());
        settings::check(kind, settings, &path)?;
        let mut settings = settings.clone();
        if let (GeneratorKind::Matrix | GeneratorKind::Merge, Some(level)) = (kind, level.child_level())
            && let Some(Value::Array(children)) = settings.get_mut("generators")
        {
            for (index, child) in children.iter_mut().enumerate() {
                *child = checked(child, level, &format!("{path}.generators[{index}]"))?;
            }
        }
        kept.insert(kind.as_ref().to_owned(), settings);
    }
    if let Some(selector) = entry.selector {
        kept.insert("selector".to_owned(), selector.clone());
    }
    Ok(Value::Object(kept))
}
