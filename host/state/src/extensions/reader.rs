//! Typed access to extension settings, which Argo CD reads more loosely than Kubernetes objects.
//! It substitutes `$key` references and collects findings, each with its class.
//!
//! Security: findings never contain values.

use std::collections::BTreeMap;
use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::sync::Arc;
use std::time::Duration;

use super::secrets::{self, Substituted};
use super::{ErrorClass, Options, StricterRules};
use crate::Secret;
use crate::fields::SourceMap;
use tollgate_core::diagnostic::{Diagnostic, Location};
use tollgate_core::yaml::{Node, ScalarType};

/// A YAML node of the settings and its source map.
#[derive(Clone, Copy)]
pub(super) struct SettingNode<'a> {
    pub(super) node: &'a Node,
    pub(super) source: &'a SourceMap,
}

impl<'a> SettingNode<'a> {
    /// A key's value when present and not null.
    pub(super) fn get(self, key: &str) -> Option<Self> {
        Some(Self {
            node: self.node.get(key)?,
            source: self.source,
        })
    }

    /// Its location.
    pub(super) fn location(self) -> Location {
        self.source.location_of(self.node)
    }
}

/// The result of reading a text.
pub(super) enum TextValue {
    /// Absent, null or empty.
    Absent,
    /// Present but refused. The finding is already recorded.
    Refused,
    /// Present.
    Value(Substituted),
}

impl TextValue {
    /// The value, if there is one.
    pub(super) fn value(self) -> Option<Substituted> {
        match self {
            Self::Value(value) => Some(value),
            Self::Absent | Self::Refused => None,
        }
    }
}

/// Reads typed settings and collects findings in the order in which Argo CD checks.
pub(super) struct SettingsReader<'a> {
    secrets: &'a BTreeMap<String, Arc<Secret>>,
    options: Options,
    /// Findings; the class is there exactly for errors.
    pub(super) findings: Vec<(Option<ErrorClass>, Diagnostic)>,
}

impl<'a> SettingsReader<'a> {
    pub(super) fn new(secrets: &'a BTreeMap<String, Arc<Secret>>, options: Options) -> Self {
        Self {
            secrets,
            options,
            findings: Vec::new(),
        }
    }

    pub(super) fn options(&self) -> Options {
        self.options
    }

    pub(super) fn refuse(&mut self, class: ErrorClass, location: Location, message: impl Into<String>) {
        self.findings.push(match self.is_tolerated(class) {
            true => (None, Diagnostic::warning(location, message)),
            false => (Some(class), Diagnostic::error(location, message)),
        });
    }

    pub(super) fn refuse_with(&mut self, class: ErrorClass, location: Location, message: String, hint: &str) {
        self.refuse(class, location, message);
        if let Some((_, finding)) = self.findings.last_mut() {
            finding.hint = Some(hint.to_owned());
        }
    }

    /// Whether only Tollgate refuses such a mistake and the options tolerate it.
    fn is_tolerated(&self, class: ErrorClass) -> bool {
        class == ErrorClass::InvalidSetting && self.options.stricter_rules == StricterRules::Warn
    }

    pub(super) fn warn(&mut self, location: Location, message: impl Into<String>, hint: &str) {
        self.findings
            .push((None, Diagnostic::warning(location, message).with_hint(hint)));
    }

    /// Refuses unknown keys, which Argo CD ignores.
    pub(super) fn reject_unknown_keys(&mut self, setting: SettingNode<'_>, what: &str, keys: &[&str]) {
        for entry in setting.node.entries().unwrap_or_default() {
            if keys.contains(&&*entry.key) {
                continue;
            }
            let location = setting.source.location_at(entry.line, entry.column);
            let message = format!("unknown key `{}` in {what}", entry.key);
            let hint = format!("known keys: {}", keys.join(", "));
            self.refuse_with(ErrorClass::InvalidSetting, location, message, &hint);
        }
    }

    /// A mapping under `key`; `None` when absent, null or (with a finding of
    /// `class`) something else.
    pub(super) fn mapping<'n>(
        &mut self,
        setting: SettingNode<'n>,
        key: &str,
        class: ErrorClass,
    ) -> Option<SettingNode<'n>> {
        let found = setting.get(key)?;
        if found.node.entries().is_none() {
            let message = format!("`{key}` must be a mapping, found {}", found.node.kind());
            self.refuse(class, found.location(), message);
            return None;
        }
        Some(found)
    }

    /// The items of a list under `key`; absent and null are empty.
    pub(super) fn list<'n>(&mut self, setting: SettingNode<'n>, key: &str) -> Vec<SettingNode<'n>> {
        let Some(found) = setting.get(key) else {
            return Vec::new();
        };
        let Some(items) = found.node.items() else {
            let message = format!("`{key}` must be a list, found {}", found.node.kind());
            self.refuse(ErrorClass::DecodeError, found.location(), message);
            return Vec::new();
        };
        let mut settings = Vec::new();
        for item in items {
            let item = SettingNode {
                node: item,
                source: found.source,
            };
            if item.node.entries().is_none() && !item.node.is_null() {
                let message = format!("each of `{key}` must be a mapping, found {}", item.node.kind());
                self.refuse(ErrorClass::DecodeError, item.location(), message);
            }
            settings.push(item);
        }
        settings
    }

    /// A text under `key`, substituted. Numbers and booleans are texts here, as
    /// in Argo CD.
    pub(super) fn text(&mut self, setting: SettingNode<'_>, key: &str) -> TextValue {
        let Some(found) = setting.get(key) else {
            return TextValue::Absent;
        };
        let Some(scalar) = found.node.scalar() else {
            let message = format!("`{key}` must be text, found {}", found.node.kind());
            self.refuse(ErrorClass::DecodeError, found.location(), message);
            return TextValue::Refused;
        };
        let value = match secrets::substitute_or(&scalar.text, self.secrets, self.options.unknown_secret) {
            Ok((value, None)) => value,
            Ok((value, Some(error))) => {
                self.warn(found.location(), error.to_string(), "the text is used as it is");
                value
            }
            Err(error) => {
                let hint = "add the key to the Secret, or write the value without `$`";
                self.refuse_with(ErrorClass::UnknownSecret, found.location(), error.to_string(), hint);
                return TextValue::Refused;
            }
        };
        if value.value.is_empty() {
            TextValue::Absent
        } else {
            TextValue::Value(value)
        }
    }

    /// A duration under `key`, within `bounds`. Zero and absent are `None`.
    pub(super) fn duration(
        &mut self,
        setting: SettingNode<'_>,
        key: &str,
        bounds: &RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let location = setting.get(key)?.location();
        let value = self.text(setting, key).value()?;
        let refused = match tollgate_config::duration::parse(&value.value) {
            Ok(Duration::ZERO) => return None,
            Ok(found) if bounds.contains(&found) => return Some(found),
            Ok(found) => format!(
                "`{key}` is {found:?}, allowed is {:?} to {:?}",
                bounds.start(),
                bounds.end()
            ),
            Err(error) => format!("`{key}`: {error}"),
        };
        self.refuse(ErrorClass::InvalidSetting, location, refused);
        None
    }

    /// A duration that must not be 0 if it is present.
    pub(super) fn nonzero_duration(
        &mut self,
        setting: SettingNode<'_>,
        key: &str,
        bounds: &RangeInclusive<Duration>,
    ) -> Option<Duration> {
        let location = setting.get(key)?.location();
        let before = self.findings.len();
        let found = self.duration(setting, key, bounds);
        if found.is_none() && self.findings.len() == before {
            let message = format!("`{key}` must not be 0");
            self.refuse_with(
                ErrorClass::InvalidSetting,
                location,
                message,
                "leave it out for no bound",
            );
        }
        found
    }

    /// A whole number under `key` from `least` to `most`.
    pub(super) fn count(&mut self, setting: SettingNode<'_>, key: &str, (least, most): (u32, u32)) -> Option<u32> {
        let found = setting.get(key)?;
        let value = self.text(setting, key).value()?;
        let number = value
            .value
            .parse::<u32>()
            .ok()
            .filter(|number| (least..=most).contains(number));
        if number.is_none() {
            let message = format!("`{key}` must be a whole number from {least} to {most}");
            self.refuse(ErrorClass::InvalidSetting, found.location(), message);
        }
        number
    }

    /// A limit under `key`: 1 to a million.
    pub(super) fn limit(&mut self, setting: SettingNode<'_>, key: &str) -> Option<NonZeroU32> {
        self.count(setting, key, (1, 1_000_000)).and_then(NonZeroU32::new)
    }

    /// A boolean under `key`.
    pub(super) fn boolean(&mut self, setting: SettingNode<'_>, key: &str, default: bool) -> bool {
        let Some(found) = setting.get(key) else { return default };
        if let Some(ScalarType::Boolean(value)) = found.node.scalar().map(tollgate_core::yaml::Scalar::scalar_type) {
            return value;
        }
        let message = format!("`{key}` must be true or false, found {}", found.node.kind());
        self.refuse(ErrorClass::InvalidSetting, found.location(), message);
        default
    }
}
