//! Typed access to extension settings, which Argo CD reads more loosely than Kubernetes objects.
//! It substitutes `$key` references and collects findings, each with its class.
//!
//! Security: findings never contain values.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::ErrorClass;
use super::secrets::{self, Substituted};
use crate::Secret;
use crate::fields::SourceMap;
use tollgate_config::Compatibility;
use tollgate_core::diagnostic::{Diagnostic, Location};
use tollgate_core::yaml::{Node, Scalar, ScalarType};

/// What settings are read with, and the findings in the order in which Argo CD checks.
pub(super) struct SettingsReader<'a> {
    pub(super) secrets: &'a BTreeMap<String, Arc<Secret>>,
    pub(super) compatibility: Compatibility,
    /// The class is there exactly for errors.
    pub(super) findings: RefCell<Vec<(Option<ErrorClass>, Diagnostic)>>,
}

impl SettingsReader<'_> {
    pub(super) fn refuse(&self, class: ErrorClass, location: Location, message: impl Into<String>) {
        // Only Tollgate refuses such a mistake.
        let is_tolerated = class == ErrorClass::InvalidSetting && self.compatibility == Compatibility::Argocd;
        self.findings.borrow_mut().push(match is_tolerated {
            true => (None, Diagnostic::warning(location, message)),
            false => (Some(class), Diagnostic::error(location, message)),
        });
    }

    pub(super) fn refuse_with(&self, class: ErrorClass, location: Location, message: impl Into<String>, hint: &str) {
        self.refuse(class, location, message);
        if let Some((_, finding)) = self.findings.borrow_mut().last_mut() {
            finding.hint = Some(hint.to_owned());
        }
    }

    pub(super) fn warn(&self, location: Location, message: impl Into<String>, hint: &str) {
        let finding = Diagnostic::warning(location, message).with_hint(hint);
        self.findings.borrow_mut().push((None, finding));
    }
}

#[derive(Clone, Copy)]
pub(super) struct Setting<'a> {
    pub(super) node: &'a Node,
    pub(super) source: &'a SourceMap,
    pub(super) reader: &'a SettingsReader<'a>,
}

pub(super) enum TextValue {
    /// Absent, null or empty.
    Absent,
    /// Present but refused. The finding is already recorded.
    Refused,
    Value(Substituted),
}

impl TextValue {
    pub(super) fn value(self) -> Option<Substituted> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent | Self::Refused => None,
        }
    }
}

impl<'a> Setting<'a> {
    /// A key's value when present and not null.
    pub(super) fn get(self, key: &str) -> Option<Self> {
        let node: &'a Node = self.node.get(key)?;
        Some(Self { node, ..self })
    }

    pub(super) fn location(self) -> Location {
        self.source.location_of(self.node)
    }

    pub(super) fn refuse(self, class: ErrorClass, message: impl Into<String>) {
        self.reader.refuse(class, self.location(), message);
    }

    pub(super) fn refuse_with(self, class: ErrorClass, message: impl Into<String>, hint: &str) {
        self.reader.refuse_with(class, self.location(), message, hint);
    }

    pub(super) fn warn(self, message: impl Into<String>, hint: &str) {
        self.reader.warn(self.location(), message, hint);
    }

    fn must_be(self, class: ErrorClass, what: &str, wanted: &str) {
        self.refuse(class, format!("{what} must be {wanted}, found {}", self.node.kind()));
    }

    /// Refuses unknown keys, which Argo CD ignores.
    pub(super) fn reject_unknown_keys(self, what: &str, keys: &[&str]) {
        let entries = self.node.entries().unwrap_or_default().iter();
        for entry in entries.filter(|entry| !keys.contains(&&*entry.key)) {
            let location = self.source.location_at(entry.line, entry.column);
            let message = format!("unknown key `{}` in {what}", entry.key);
            let hint = format!("known keys: {}", keys.join(", "));
            self.reader
                .refuse_with(ErrorClass::InvalidSetting, location, message, &hint);
        }
    }

    /// A mapping under `key`; `None` when absent, null or (with a finding of
    /// `class`) something else.
    pub(super) fn mapping(self, key: &str, class: ErrorClass) -> Option<Self> {
        let found = self.get(key)?;
        if found.node.entries().is_none() {
            found.must_be(class, &format!("`{key}`"), "a mapping");
            return None;
        }
        Some(found)
    }

    /// The items of a list under `key`; absent and null are empty.
    pub(super) fn list(self, key: &str) -> Vec<Self> {
        let Some(found) = self.get(key) else {
            return Vec::new();
        };
        let Some(items) = found.node.items() else {
            found.must_be(ErrorClass::DecodeError, &format!("`{key}`"), "a list");
            return Vec::new();
        };
        let settings: Vec<Self> = items.iter().map(|node| Self { node, ..found }).collect();
        for item in &settings {
            // Go decodes null in a list as an item without any field.
            if item.node.entries().is_none() && !item.node.is_null() {
                item.must_be(ErrorClass::DecodeError, &format!("each of `{key}`"), "a mapping");
            }
        }
        settings
    }

    /// A text under `key`, substituted. Numbers and booleans are texts here, as
    /// in Argo CD.
    pub(super) fn text(self, key: &str) -> TextValue {
        let Some(found) = self.get(key) else {
            return TextValue::Absent;
        };
        let Some(scalar) = found.node.scalar() else {
            found.must_be(ErrorClass::DecodeError, &format!("`{key}`"), "text");
            return TextValue::Refused;
        };
        match secrets::substitute_or(&scalar.text, self.reader.secrets, self.reader.compatibility) {
            Ok((value, error)) => {
                if let Some(error) = error {
                    found.warn(error, "the text is used as it is");
                }
                match value.value.is_empty() {
                    true => TextValue::Absent,
                    false => TextValue::Value(value),
                }
            }
            Err(error) => {
                let hint = "add the key to the Secret, or write the value without `$`";
                found.refuse_with(ErrorClass::UnknownSecret, error, hint);
                TextValue::Refused
            }
        }
    }

    /// Like [`Self::text`], without telling absent from refused.
    pub(super) fn string(self, key: &str) -> Option<String> {
        self.text(key).value().map(|found| found.value)
    }

    /// A duration under `key`, within `bounds`. Zero and absent are `None`.
    pub(super) fn duration(self, key: &str, bounds: &RangeInclusive<Duration>) -> Option<Duration> {
        let found = self.get(key)?;
        let refused = match tollgate_config::duration::parse(&self.string(key)?) {
            Ok(Duration::ZERO) => return None,
            Ok(found) if bounds.contains(&found) => return Some(found),
            Ok(found) => {
                let (least, most) = (bounds.start(), bounds.end());
                format!("`{key}` is {found:?}, allowed is {least:?} to {most:?}")
            }
            Err(error) => format!("`{key}`: {error}"),
        };
        found.refuse(ErrorClass::InvalidSetting, refused);
        None
    }

    /// A duration that must not be 0 if it is present.
    pub(super) fn nonzero_duration(self, key: &str, bounds: &RangeInclusive<Duration>) -> Option<Duration> {
        let count = || self.reader.findings.borrow().len();
        let (present, before) = (self.get(key)?, count());
        let found = self.duration(key, bounds);
        // `duration` gives nothing for a mistake as well, but reports that.
        if found.is_none() && count() == before {
            let message = format!("`{key}` must not be 0");
            present.refuse_with(ErrorClass::InvalidSetting, message, "leave it out for no bound");
        }
        found
    }

    pub(super) fn count(self, key: &str, least: u32, most: u32) -> Option<u32> {
        let found = self.get(key)?;
        let number = self.string(key)?.parse().ok();
        let number = number.filter(|number| (least..=most).contains(number));
        if number.is_none() {
            let message = format!("`{key}` must be a whole number from {least} to {most}");
            found.refuse(ErrorClass::InvalidSetting, message);
        }
        number
    }

    pub(super) fn limit(self, key: &str) -> Option<NonZeroU32> {
        self.count(key, 1, 1_000_000).and_then(NonZeroU32::new)
    }

    pub(super) fn boolean(self, key: &str, default: bool) -> bool {
        let Some(found) = self.get(key) else { return default };
        if let Some(ScalarType::Boolean(value)) = found.node.scalar().map(Scalar::scalar_type) {
            return value;
        }
        found.must_be(ErrorClass::InvalidSetting, &format!("`{key}`"), "true or false");
        default
    }
}
