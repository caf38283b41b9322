//! Reads and checks Argo CD's extension configuration: the keys `extension.config` and
//! `extension.config.<name>` of `argocd-cm`, the Secrets they refer to, and `ArgoCDExtension`
//! objects. The result is either all [`ExtensionSpec`]s, or every mistake with its position.
//!
//! Security: findings never contain the value of a secret.
//!
//! Source: Argo CD, proxy extensions; the first proposal for extensions
//! (`enabled`, `idleConnTimeout`, `clusterName`); own keys are documented in
//! `docs/extension-config.md`.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;

use crate::fields::SourceMap;
use crate::{ConfigMap, ExtensionObject, Resources, Text};
use tollgate_config::Compatibility;
use tollgate_core::diagnostic::{Loaded, Location};
use tollgate_core::yaml;

mod backend;
mod reader;
pub mod secrets;
mod service;
mod spec;

use reader::{Setting, SettingsReader, TextValue};
pub use spec::{
    AssertionSpec, ClusterRef, ConnectionSpec, ExtensionSpec, IdentitySpec, LimitSpec, PersonLimitSpec, Scope,
    ServiceSpec, TimeoutSpec, TlsSpec,
};

const EXTENSION_CONFIG_KEY: &str = "extension.config";

/// Stands for a URL to which no request can be sent. Nothing listens on port 0, so each request
/// ends with 502, as with Argo CD.
pub const UNREACHABLE: &str = "http://127.0.0.1:0/";

/// Class of a mistake. Argo CD's classes come first, in its order of checks.
///
/// The case tables write the names in snake case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ErrorClass {
    /// Not YAML, or a value of the wrong type.
    DecodeError,
    /// An extension without a name.
    MissingExtensionName,
    /// A name with other characters than `[A-Za-z0-9_-]`.
    InvalidExtensionName,
    /// Two extensions of one name.
    DuplicateExtensionName,
    /// No services.
    MissingServices,
    /// A service without a URL.
    MissingServiceUrl,
    /// One of several services without a cluster.
    MissingClusterForMultipleServices,
    /// A cluster without name and server.
    EmptyCluster,
    /// A header without a name.
    MissingHeaderName,
    /// A header without a value.
    MissingHeaderValue,
    /// Two services for one cluster.
    DuplicateClusterKey,
    /// A `$key` that cannot be resolved. Argo CD uses the text as it is.
    UnknownSecret,
    /// A value that Argo CD accepts or ignores and Tollgate refuses.
    InvalidSetting,
}

impl ErrorClass {
    /// The phase in which Argo CD finds it: decoding, validation, building the registry. What Argo
    /// CD never refuses comes last.
    fn phase(self) -> u8 {
        match self {
            Self::DecodeError => 0,
            Self::MissingExtensionName
            | Self::InvalidExtensionName
            | Self::DuplicateExtensionName
            | Self::MissingServices
            | Self::MissingServiceUrl
            | Self::MissingClusterForMultipleServices
            | Self::EmptyCluster
            | Self::MissingHeaderName
            | Self::MissingHeaderValue => 1,
            Self::DuplicateClusterKey => 2,
            Self::UnknownSecret | Self::InvalidSetting => 3,
        }
    }
}

/// The result of reading a configuration.
#[derive(Debug)]
pub struct Parsed {
    /// Enabled extensions in key order, or every mistake.
    pub specs: Loaded<Vec<ExtensionSpec>>,
    /// The class of each mistake, in the order they are found.
    pub classes: Vec<ErrorClass>,
}

impl Parsed {
    /// The class of the mistake Argo CD would report. It stops at the first one: it decodes all
    /// texts, then validates, then registers.
    pub fn class(&self) -> Option<ErrorClass> {
        // `min_by_key` returns the first of equals.
        self.classes.iter().copied().min_by_key(|class| class.phase())
    }
}

/// Reads all extensions as the gateway does: `$key` references must resolve and URLs must be
/// usable.
pub fn parse(resources: &Resources) -> Loaded<Vec<ExtensionSpec>> {
    parse_with(resources, Compatibility::None).specs
}

/// Reads all extensions.
///
/// Every mistake is reported with its position. An extension that is not enabled
/// is checked and left out.
///
/// With [`Compatibility::Argocd`], the reading is as permissive as Argo CD's. A setting that only
/// Tollgate refuses ([`ErrorClass::InvalidSetting`]) is left out with a warning, and the URL of a
/// service to which no request can be sent becomes [`UNREACHABLE`]. A `$key` that cannot be resolved
/// is used as the value, with a warning.
pub fn parse_with(resources: &Resources, compatibility: Compatibility) -> Parsed {
    let reader = SettingsReader {
        secrets: &resources.secrets,
        compatibility,
        findings: RefCell::default(),
    };
    let mut collector = ExtensionCollector {
        reader: &reader,
        names: BTreeMap::new(),
        specs: Vec::new(),
    };
    for entry in entries(&resources.argocd_cm) {
        let source = SourceMap::nested(entry.text);
        let Some(node) = document(&reader, &entry, &source) else {
            continue;
        };
        let setting = Setting {
            node: &node,
            source: &source,
            reader: &reader,
        };
        match entry.name.as_str() {
            "" => collector.main(setting),
            _ => collector.single(setting, &entry),
        }
    }
    for object in resources.extensions.values() {
        collector.object(object);
    }
    let specs = collector.specs;
    service::compare_with_clusters(&reader, &specs, &resources.clusters);
    let (classes, findings): (Vec<_>, Vec<_>) = reader.findings.into_inner().into_iter().unzip();
    Parsed {
        specs: Loaded::new(specs, findings),
        classes: classes.into_iter().flatten().collect(),
    }
}

/// A key that configures extensions and its text.
#[derive(Clone, Debug)]
pub struct ConfigEntry<'a> {
    /// The extension the key names; empty for the list of extensions.
    pub name: String,
    /// The key.
    pub key: &'a str,
    /// Its text.
    pub text: &'a Text,
}

/// The keys that configure extensions: all that begin with `extension.config`. One leading dot of
/// the remainder is dropped.
///
/// Source: Argo CD, `getExtensionConfigs`.
pub fn entries(argocd_cm: &ConfigMap) -> Vec<ConfigEntry<'_>> {
    let entry = |(key, text)| {
        let key: &String = key;
        let rest = key.strip_prefix(EXTENSION_CONFIG_KEY)?;
        let name = rest.strip_prefix('.').unwrap_or(rest).to_owned();
        Some(ConfigEntry { name, key, text })
    };
    argocd_cm.data.iter().filter_map(entry).collect()
}

/// The first document of a text. Later ones are ignored, as in Argo CD.
fn document(reader: &SettingsReader<'_>, entry: &ConfigEntry<'_>, source: &SourceMap) -> Option<Rc<yaml::Node>> {
    let key = entry.key;
    if key != EXTENSION_CONFIG_KEY && !key.starts_with("extension.config.") {
        let message = format!("key `{key}` has no dot before the extension's name");
        let hint = format!("write `{EXTENSION_CONFIG_KEY}.{}`", entry.name);
        let location = entry.text.location.clone();
        reader.refuse_with(ErrorClass::InvalidSetting, location, message, &hint);
    }
    let parsed = yaml::parse(&entry.text.value);
    for problem in &parsed.problems {
        let location = source.location_at(problem.line, problem.column);
        let message = format!("`{key}`: {}", problem.message);
        reader.refuse(ErrorClass::DecodeError, location, message);
    }
    let mut documents = parsed.documents.into_iter();
    let first = documents.next();
    if let Some(second) = documents.next() {
        let message = format!("`{key}` has several documents, only the first is read");
        reader.warn(source.location_of(&second), message, "join them");
    }
    let node = match first {
        Some(node) => node,
        None if parsed.problems.is_empty() => Rc::new(yaml::Node::empty_mapping()),
        None => return None,
    };
    if node.entries().is_none() {
        let message = format!("`{key}` must be a mapping, found {}", node.kind());
        reader.refuse(ErrorClass::DecodeError, source.location_of(&node), message);
        return None;
    }
    Some(node)
}

/// Whether an extension may have this name, which becomes part of paths and file names.
fn is_safe(name: &str) -> bool {
    name.bytes()
        .all(|byte| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_'))
}

struct ExtensionCollector<'a> {
    reader: &'a SettingsReader<'a>,
    names: BTreeMap<String, Location>,
    specs: Vec<ExtensionSpec>,
}

impl ExtensionCollector<'_> {
    /// `extension.config`: `{extensions: [{name, enabled, backend}]}`.
    fn main(&mut self, setting: Setting<'_>) {
        setting.reject_unknown_keys("`extension.config`", &["extensions"]);
        for item in setting.list("extensions") {
            item.reject_unknown_keys("an extension", &["name", "enabled", "backend"]);
            let name = match item.text("name") {
                TextValue::Absent => {
                    // Reading goes on without a name, so that all mistakes are reported at once.
                    item.refuse(ErrorClass::MissingExtensionName, "an extension has no `name`");
                    String::new()
                }
                TextValue::Refused => String::new(),
                TextValue::Value(name) => {
                    self.check_name(&name.value, item.location());
                    name.value
                }
            };
            match item.mapping("backend", ErrorClass::DecodeError) {
                Some(backend) => {
                    backend.reject_unknown_keys("`backend`", &backend::KEYS);
                    self.extension(backend, item, name);
                }
                // An entry without backend is one without services.
                None if item.get("backend").is_none() => self.extension(item, item, name),
                None => {}
            }
        }
    }

    /// `extension.config.<name>`: a backend object.
    fn single(&mut self, setting: Setting<'_>, entry: &ConfigEntry<'_>) {
        let known: Vec<&str> = backend::KEYS.into_iter().chain(["enabled"]).collect();
        setting.reject_unknown_keys(&format!("`{}`", entry.key), &known);
        self.check_name(&entry.name, entry.text.location.clone());
        self.extension(setting, setting, entry.name.clone());
    }

    /// Reads an `ArgoCDExtension`: one service, with defaults for everything else.
    fn object(&mut self, object: &ExtensionObject) {
        // Others than the operator may write these objects. One that is not valid is left out, and
        // `argocd-cm` wins.
        let name = object.name.escape_debug();
        if !is_safe(&object.name) {
            let message = format!("ArgoCDExtension `{name}` is left out: its name has unsafe characters");
            let hint = "letters, digits, `-` and `_` are allowed";
            return self.reader.warn(object.location.clone(), message, hint);
        }
        if let Some(first) = self.names.get(&object.name) {
            let message = format!("ArgoCDExtension `{name}` is left out: the extension is configured at {first}");
            let hint = "give one of both another name";
            return self.reader.warn(object.location.clone(), message, hint);
        }
        self.names.insert(object.name.clone(), object.location.clone());
        self.specs.push(ExtensionSpec {
            name: object.name.clone(),
            scope: Scope::default(),
            services: vec![ServiceSpec {
                url: object.url.clone(),
                cluster: None,
                headers: Vec::new(),
                location: object.location.clone(),
            }],
            connection: ConnectionSpec::default(),
            timeouts: TimeoutSpec::default(),
            limits: LimitSpec::default(),
            tls: TlsSpec::default(),
            identity: IdentitySpec::default(),
            location: object.location.clone(),
        });
    }

    fn check_name(&mut self, name: &str, location: Location) {
        let shown = name.escape_debug();
        if !is_safe(name) {
            let message = format!("extension name `{shown}` has other characters than letters, digits, `-` and `_`");
            self.reader
                .refuse(ErrorClass::InvalidExtensionName, location.clone(), message);
        }
        if let Some(first) = self.names.get(name) {
            let message = format!("extension `{shown}` is configured twice, first at {first}");
            self.reader
                .refuse(ErrorClass::DuplicateExtensionName, location, message);
        } else {
            self.names.insert(name.to_owned(), location);
        }
    }

    /// Reads one extension. `outer` is the node that has `enabled`.
    fn extension(&mut self, backend: Setting<'_>, outer: Setting<'_>, name: String) {
        let services = service::services(backend, &name);
        let spec = ExtensionSpec {
            scope: backend::scope(backend),
            connection: backend::connection(backend),
            timeouts: backend::timeouts(backend),
            limits: backend::limits(backend),
            tls: backend::tls(backend),
            identity: backend::identity(backend),
            location: outer.location(),
            services,
            name,
        };
        let encrypted = spec.services.iter().any(|service| service.url.scheme() == "https");
        if let (Some(tls), false) = (backend.get("tls"), encrypted) {
            tls.warn("`tls` has no effect, no service has an https URL", "use https");
        }
        if outer.boolean("enabled", true) {
            self.specs.push(spec);
        }
    }
}

#[cfg(test)]
mod tests;
