//! The section `plugins` of the settings file: its written shape, and the checks that turn it into
//! [`crate::Plugins`]. Every mistake is reported with its line.

use std::collections::BTreeMap;
use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use super::SettingsValidator;
use crate::{Ambient, PluginGrant, Plugins};
use tollgate_core::plugin::Import;

mod pod;

const MAX_CALL_TIME: Duration = Duration::from_secs(10);
/// Least memory a guest can start with: one page.
const MIN_MEMORY_BYTES: u64 = 64 << 10;
const MAX_MEMORY_BYTES: u64 = 1 << 30;

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
pub(super) struct RawPlugins {
    directory: Option<PathBuf>,
    cache: Option<PathBuf>,
    required: Vec<String>,
    grants: BTreeMap<String, RawGrant>,
    ambient: RawAmbient,
}

/// `plugins.ambient`. [`pod`] adds what a pod finds in its environment.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawAmbient {
    service_account_tokens: BTreeMap<String, PathBuf>,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawGrant {
    sha256: Option<String>,
    imports: Vec<String>,
    extensions: Vec<String>,
    hosts: Vec<crate::EgressEntry>,
    audiences: Vec<String>,
    config: serde_json::Value,
    secret: Option<String>,
    time: Option<String>,
    memory_bytes: Option<u64>,
}

impl RawPlugins {
    pub(super) fn check(self, validator: &mut SettingsValidator<'_>) -> Plugins {
        if self.directory.is_none() && !self.required.is_empty() {
            let message = "`plugins.required` without `plugins.directory`";
            validator.refuse("plugins.required[0]", message, "nothing could ever be loaded");
        }
        let grants = self.grants.into_iter();
        let grants = grants.map(|(name, grant)| {
            let grant = grant.check(&name, validator);
            (name, grant)
        });
        Plugins {
            grants: grants.collect(),
            directory: self.directory.map(|folder| validator.base.join(folder)),
            cache: self.cache.map(|folder| validator.base.join(folder)),
            required: self.required,
            ambient: Ambient {
                service_account_tokens: self.ambient.service_account_tokens,
                ..pod::ambient()
            },
        }
    }
}

impl RawGrant {
    fn check(self, name: &str, validator: &mut SettingsValidator<'_>) -> PluginGrant {
        let key = |part: &str| format!("plugins.grants.{name}.{part}");
        let is_digest = |text: &str| text.len() == 64 && text.bytes().all(|byte| byte.is_ascii_hexdigit());
        if self.sha256.as_deref().is_some_and(|text| !is_digest(text)) {
            let hint = "64 hex digits, as `sha256sum` prints them";
            validator.refuse(&key("sha256"), "`sha256` is not a digest", hint);
        }
        for (index, import) in self.imports.iter().enumerate() {
            if Import::try_from(import.as_str()).is_err() {
                let hint = "known: `clock`, `log`, `random`, `crypto`, `ambient`, `memo`, `reveal`";
                let message = format!("there is no host interface `{import}`");
                validator.refuse(&key(&format!("imports[{index}]")), message, hint);
            }
        }
        let time = self.time.and_then(|text| {
            let parsed: Result<jiff::SignedDuration, _> = text.parse();
            let time = parsed.ok().and_then(|time| Duration::try_from(time).ok());
            let time = time.filter(|time| !time.is_zero() && *time <= MAX_CALL_TIME);
            if time.is_none() {
                let message = format!("`{text}` is not the time of a call");
                validator.refuse(&key("time"), message, "above 0 and at most `10s`, such as `50ms`");
            }
            time
        });
        let bounds = MIN_MEMORY_BYTES..=MAX_MEMORY_BYTES;
        if let Some(bytes) = self.memory_bytes.filter(|bytes| !bounds.contains(bytes)) {
            let message = format!("`{bytes}` bytes are not the memory of a guest");
            validator.refuse(&key("memoryBytes"), message, "from `65536` to `1073741824`");
        }
        PluginGrant {
            sha256: self.sha256.map(|digest| digest.to_ascii_lowercase()),
            imports: self.imports,
            extensions: self.extensions,
            hosts: self.hosts,
            audiences: self.audiences,
            config: self.config,
            secret: self.secret,
            time,
            memory_bytes: self.memory_bytes.and_then(|bytes| usize::try_from(bytes).ok()),
            location: Some(validator.locations.locate_key("plugins.grants", name)),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use super::*;
    use crate::raw::SettingLocations;

    /// Checks settings below `plugins`. They start on line 2 and are indented by two columns.
    fn check(text: &str) -> (Plugins, Vec<String>) {
        let raw: RawPlugins = serde_saphyr::from_str(text).unwrap();
        let whole = format!("plugins:\n  {}", text.trim_end().replace('\n', "\n  "));
        let locations = SettingLocations::parse(&whole, "tollgate.yaml".to_owned());
        let mut validator = SettingsValidator::new(Path::new(""), locations);
        let plugins = raw.check(&mut validator);
        let findings = validator.findings.iter().map(ToString::to_string);
        (plugins, findings.collect())
    }

    #[test]
    fn valid_settings_are_read() {
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
        assert_eq!((location.line, location.column), (5, 5), "the grant's name");
        assert_eq!(grant.config["keepCookies"], true);
        assert_eq!(plugins.required, ["baseline"]);
    }

    #[test]
    fn mistakes_are_reported_with_their_location() {
        let (_, findings) = check(
            "required: [baseline]\ngrants:\n  a:\n    sha256: abc\n    imports: [sockets]\n    time: 11s\n    \
             memoryBytes: 1\n  b:\n    time: -1s\n",
        );
        let locations: Vec<&str> = findings
            .iter()
            .map(|line| line.split(": error").next().unwrap())
            .collect();
        let expected =
            ["2:14", "5:15", "6:17", "7:13", "8:20", "10:13"].map(|location| format!("tollgate.yaml:{location}"));
        assert_eq!(locations, expected, "{findings:#?}");
    }

    #[test]
    fn unknown_keys_are_refused() {
        for text in ["folder: x", "grants: { a: { network: true } }"] {
            assert!(serde_saphyr::from_str::<RawPlugins>(text).is_err(), "{text}");
        }
    }
}
