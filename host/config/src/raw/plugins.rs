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
    /// Folder with pairs of `<name>.wasm` and `<name>.yaml`, for at most 32 plugins. Without it, no plugins
    /// are loaded.
    directory: Option<PathBuf>,
    /// Private folder for compiled plugins: mode 700, owned by the gateway. Defaults to a folder in the
    /// user's cache folder.
    cache: Option<PathBuf>,
    /// Plugins that must be loaded; while one is missing, every request is refused. Needs `directory`.
    required: Vec<String>,
    /// What each plugin may do, by its name.
    grants: BTreeMap<String, RawGrant>,
    /// Identities of the gateway's pod that plugins may request.
    ambient: RawAmbient,
}

/// `plugins.ambient`. [`pod`] adds what a pod finds in its environment.
#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawAmbient {
    /// Files with projected ServiceAccount tokens, by audience, such as `sts.amazonaws.com:
    /// /var/run/secrets/eks/token`. Tokens for other audiences are requested from the pod's own API server.
    service_account_tokens: BTreeMap<String, PathBuf>,
}

#[derive(Debug, Default, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase", deny_unknown_fields, default)]
struct RawGrant {
    /// SHA-256 digest that the component must have, as 64 hex digits. Takes precedence over the manifest's.
    /// Not pinned by default.
    sha256: Option<String>,
    /// Host interfaces that it may call: `log`, `clock`, `random`; for credential providers and generators
    /// also `crypto`, `ambient`, `memo` and `reveal`.
    imports: Vec<String>,
    /// Extensions to which it applies; all if empty.
    extensions: Vec<String>,
    /// Hosts that a credential provider or generator may connect to. An entry is a host as text, or an
    /// object. See docs/plugins.md#requests-of-plugins.
    hosts: Vec<crate::EgressEntry>,
    /// Audiences for which a credential provider or generator may request tokens of the gateway's pod.
    audiences: Vec<String>,
    /// Configuration, validated by the schema in the manifest. It may be left out only if that schema allows
    /// `null`, or if it is in `NAME.config.yaml` in the folder, from where it is read again without a restart.
    config: serde_json::Value,
    /// Secret in `state.namespace` from which a generator of ApplicationSets may use the values that its
    /// manifest names. Not for other plugins. See docs/plugins.md#generators-of-applicationsets.
    secret: Option<String>,
    /// Wall time of one call. Above 0 and at most `10s`. Defaults to `100ms`; for credential providers and
    /// generators, to `10s`.
    time: Option<String>,
    /// Most bytes of its memories together. 65536 (64 KiB) to 1073741824 (1 GiB). Defaults to 16 MiB; for
    /// credential providers and generators, to 64 MiB.
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
