//! The section `plugins` of the settings file: its written shape, and the checks that turn it into
//! [`crate::Plugins`]. Every mistake is reported with its line.

use std::cmp::Ordering;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use serde::Deserialize;
use serde_saphyr::Spanned;

use crate::{Ambient, PluginGrant, Plugins};
use tollgate_core::diagnostic::{Diagnostic, Location};
use tollgate_core::plugin::Import;

mod pod;

const MAX_CALL_TIME: Duration = Duration::from_secs(10);
/// Least memory a guest can start with: one page.
const MIN_MEMORY_BYTES: u64 = 64 << 10;
const MAX_MEMORY_BYTES: u64 = 1 << 30;

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RawPlugins {
    directory: Option<PathBuf>,
    cache: Option<PathBuf>,
    required: Vec<Spanned<String>>,
    grants: BTreeMap<Name, RawGrant>,
    ambient: RawAmbient,
}

/// `plugins.ambient`. [`crate`] adds what a pod finds in its environment.
#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawAmbient {
    service_account_tokens: BTreeMap<String, PathBuf>,
}

/// A key and its position. Keys are compared by their text.
#[derive(Debug, Deserialize)]
#[serde(transparent)]
struct Name(Spanned<String>);

impl PartialEq for Name {
    fn eq(&self, other: &Self) -> bool {
        self.0.value == other.0.value
    }
}

impl Eq for Name {}

impl PartialOrd for Name {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Name {
    fn cmp(&self, other: &Self) -> Ordering {
        self.0.value.cmp(&other.0.value)
    }
}

#[derive(Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawGrant {
    sha256: Option<Spanned<String>>,
    imports: Vec<Spanned<String>>,
    extensions: Vec<String>,
    hosts: Vec<crate::EgressEntry>,
    audiences: Vec<String>,
    config: serde_json::Value,
    secret: Option<String>,
    time: Option<Spanned<String>>,
    memory_bytes: Option<Spanned<u64>>,
}

impl RawPlugins {
    /// Checks every value; mistakes in the file `file` go to `diagnostics`.
    pub(super) fn check(self, file: &Arc<str>, diagnostics: &mut Vec<Diagnostic>) -> Plugins {
        let mut validator = PluginsValidator { file, diagnostics };
        if let (None, Some(first)) = (&self.directory, self.required.first()) {
            validator.refuse(
                first,
                "`plugins.required` without `plugins.directory`",
                "nothing could ever be loaded",
            );
        }
        let grants = self
            .grants
            .into_iter()
            .map(|(name, grant)| {
                let location = validator.locate(&name.0);
                (name.0.value, validator.grant(grant, location))
            })
            .collect();
        Plugins {
            directory: self.directory,
            cache: self.cache,
            required: self.required.into_iter().map(|name| name.value).collect(),
            grants,
            ambient: Ambient {
                service_account_tokens: self.ambient.service_account_tokens,
                ..pod::ambient()
            },
        }
    }
}

struct PluginsValidator<'a> {
    file: &'a Arc<str>,
    diagnostics: &'a mut Vec<Diagnostic>,
}

impl PluginsValidator<'_> {
    fn locate<T>(&self, part: &Spanned<T>) -> Location {
        let number = |value: u64| u32::try_from(value).unwrap_or(0);
        let location = &part.referenced;
        Location {
            file: self.file.clone(),
            line: number(location.line()),
            column: number(location.column()),
        }
    }

    fn refuse<T>(&mut self, part: &Spanned<T>, message: impl Into<String>, hint: &str) {
        let location = self.locate(part);
        self.diagnostics
            .push(Diagnostic::error(location, message).with_hint(hint));
    }

    fn grant(&mut self, raw: RawGrant, location: Location) -> PluginGrant {
        PluginGrant {
            sha256: raw.sha256.and_then(|part| self.digest(&part)),
            imports: raw.imports.into_iter().filter_map(|part| self.import(part)).collect(),
            extensions: raw.extensions,
            hosts: raw.hosts,
            audiences: raw.audiences,
            config: raw.config,
            secret: raw.secret,
            time: raw.time.and_then(|part| self.time(&part)),
            memory_bytes: raw.memory_bytes.and_then(|part| self.memory(&part)),
            location: Some(location),
        }
    }

    fn digest(&mut self, part: &Spanned<String>) -> Option<String> {
        if part.value.len() == 64 && part.value.bytes().all(|byte| byte.is_ascii_hexdigit()) {
            return Some(part.value.to_ascii_lowercase());
        }
        self.refuse(
            part,
            "`sha256` is not a digest",
            "64 hex digits, as `sha256sum` prints them",
        );
        None
    }

    fn import(&mut self, part: Spanned<String>) -> Option<String> {
        if Import::from_name(&part.value).is_some() {
            return Some(part.value);
        }
        let message = format!("there is no host interface `{}`", part.value);
        self.refuse(
            &part,
            message,
            "known: `clock`, `log`, `random`, `crypto`, `ambient`, `memo`, `reveal`",
        );
        None
    }

    fn time(&mut self, part: &Spanned<String>) -> Option<Duration> {
        let parsed: Result<jiff::SignedDuration, _> = part.value.parse();
        match parsed.ok().and_then(|time| Duration::try_from(time).ok()) {
            Some(time) if !time.is_zero() && time <= MAX_CALL_TIME => Some(time),
            Some(_) | None => {
                let message = format!("`{}` is not the time of a call", part.value);
                self.refuse(part, message, "above 0 and at most `10s`, such as `50ms`");
                None
            }
        }
    }

    fn memory(&mut self, part: &Spanned<u64>) -> Option<usize> {
        let bytes = usize::try_from(part.value).ok();
        if (MIN_MEMORY_BYTES..=MAX_MEMORY_BYTES).contains(&part.value) {
            return bytes;
        }
        let message = format!("`{}` bytes are not the memory of a guest", part.value);
        self.refuse(part, message, "from `65536` to `1073741824`");
        None
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(text: &str) -> (Plugins, Vec<String>) {
        let raw: RawPlugins = serde_saphyr::from_str(text).unwrap();
        let mut diagnostics = Vec::new();
        let plugins = raw.check(&"tollgate.yaml".into(), &mut diagnostics);
        (plugins, diagnostics.iter().map(ToString::to_string).collect())
    }

    #[test]
    fn good_settings_are_read() {
        let (plugins, findings) = check(
            "directory: plugins\nrequired: [baseline]\ngrants:\n  baseline:\n    imports: [log]\n    time: 50ms\n    \
             memoryBytes: 1048576\n    config: { keepCookies: true }\n    extensions: [metrics]\n",
        );
        assert_eq!(findings, Vec::<String>::new());
        let grant = &plugins.grants["baseline"];
        assert_eq!(grant.time, Some(Duration::from_millis(50)));
        assert_eq!(grant.memory_bytes, Some(1 << 20));
        assert_eq!(grant.imports, ["log"]);
        let location = grant.location.as_ref().unwrap();
        assert_eq!((location.line, location.column), (4, 3), "the grant's name");
        assert_eq!(grant.config["keepCookies"], true);
        assert_eq!(plugins.required, ["baseline"]);
    }

    #[test]
    fn mistakes_are_named_by_line() {
        let (_, findings) = check(
            "required: [baseline]\ngrants:\n  a:\n    sha256: abc\n    imports: [sockets]\n    time: 11s\n    \
             memoryBytes: 1\n  b:\n    time: -1s\n",
        );
        let places: Vec<&str> = findings
            .iter()
            .map(|line| line.split(": error").next().unwrap())
            .collect();
        let wanted = ["1:12", "4:13", "5:15", "6:11", "7:18", "9:11"].map(|place| format!("tollgate.yaml:{place}"));
        assert_eq!(places, wanted, "{findings:#?}");
    }

    #[test]
    fn unknown_keys_are_refused() {
        for text in ["folder: x", "grants: { a: { network: true } }"] {
            assert!(serde_saphyr::from_str::<RawPlugins>(text).is_err(), "{text}");
        }
    }
}
