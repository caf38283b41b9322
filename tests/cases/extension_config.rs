//! Runs the cases of `extension_config.yaml`.

use std::collections::{BTreeMap, BTreeSet};

use secrecy::SecretString;
use serde::Deserialize;
use tollgate_config::Compatibility;
use tollgate_core::diagnostic::Location;
use tollgate_objects::extensions::{self, ErrorClass, secrets};
use tollgate_objects::{Cluster, ConfigMap, Resources, Secret, Text};

use crate::suite::{Case, Suite, Table};

/// Kinds of the extension configuration table.
pub(crate) struct ExtensionConfig;

impl Suite for ExtensionConfig {
    fn covers(&self, _table: &Table, kind: &str) -> bool {
        matches!(kind, "register" | "configmap_keys" | "secret_substitution")
    }

    fn run(&self, _table: &Table, case: &Case) -> Result<(), String> {
        match case.kind.as_str() {
            "register" => register(case),
            "configmap_keys" => configmap_keys(case),
            "secret_substitution" => secret_substitution(case),
            other => Err(format!("no handler for `{other}`")),
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Register {
    argocd_cm: BTreeMap<String, String>,
    #[serde(default)]
    secrets: BTreeMap<String, String>,
    expected: Registered,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Registered {
    valid: bool,
    registered: Option<BTreeSet<String>>,
    error_class: Option<ErrorClass>,
    /// The error that the case is about, if Argo CD stops at an earlier one. Tollgate reports both.
    intended_error_class: Option<ErrorClass>,
    #[serde(default)]
    effective_headers: BTreeMap<String, Vec<Header>>,
    #[serde(default)]
    lookup: Vec<Lookup>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Header {
    name: String,
    value: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Lookup {
    destination: Target,
    /// The extension, if several are possible.
    extension: Option<String>,
    url: String,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Target {
    name: String,
    server: String,
}

/// `register`: the configuration is accepted or refused as by Argo CD.
fn register(case: &Case) -> Result<(), String> {
    let case: Register = case.read()?;
    let resources = resources(case.argocd_cm, case.secrets);
    let parsed = extensions::parse_with(&resources, Compatibility::Argocd);
    let class = parsed.class();
    let findings = format!("{:?}", parsed.specs.diagnostics);
    let Registered {
        valid,
        registered,
        error_class,
        intended_error_class,
        effective_headers,
        lookup,
    } = case.expected;
    if class != error_class {
        return Err(format!("class is {class:?}, expected {error_class:?}: {findings}"));
    }
    if let Some(intended) = intended_error_class
        && !parsed.classes.contains(&intended)
    {
        return Err(format!("{intended:?} is not among {:?}", parsed.classes));
    }
    let Some(specs) = parsed.specs.value else {
        if valid {
            return Err(format!("refused: {findings}"));
        }
        // Tollgate's own rules must refuse it too, because they are only stricter.
        let own = extensions::parse(&resources).value;
        return if own.is_none() {
            Ok(())
        } else {
            Err("the gateway's own rules accept it".to_owned())
        };
    };
    if !valid {
        return Err("not refused".to_owned());
    }
    let names: BTreeSet<String> = specs.iter().map(|spec| spec.name.clone()).collect();
    if registered.is_some_and(|expected| expected != names) {
        return Err(format!("the registered extensions are {names:?}"));
    }
    for (name, expected) in effective_headers {
        check_headers(&specs, &name, &expected)?;
    }
    lookup.iter().try_for_each(|expected| check_lookup(&specs, expected))
}

fn check_headers(specs: &[extensions::ExtensionSpec], name: &str, expected: &[Header]) -> Result<(), String> {
    let spec = specs
        .iter()
        .find(|spec| spec.name == name)
        .ok_or(format!("no extension {name}"))?;
    let found = spec.services.iter().flat_map(|service| &service.headers);
    let found: Vec<(String, &[u8])> = found
        .map(|(name, value)| (name.to_string(), value.as_bytes()))
        .collect();
    let expected: Vec<(String, &[u8])> = expected
        .iter()
        .map(|header| (header.name.to_lowercase(), header.value.as_bytes()))
        .collect();
    if found == expected {
        Ok(())
    } else {
        Err(format!("headers of {name} are {found:?}"))
    }
}

fn check_lookup(specs: &[extensions::ExtensionSpec], expected: &Lookup) -> Result<(), String> {
    let Target { name, server } = &expected.destination;
    let cluster = Cluster {
        name: name.clone(),
        server: server.clone(),
        project: String::new(),
    };
    let is_expected = |spec: &&extensions::ExtensionSpec| match &expected.extension {
        Some(extension) => spec.name == *extension,
        None => spec.services.len() > 1,
    };
    let found = specs
        .iter()
        .find(is_expected)
        .and_then(|spec| spec.service_for(&cluster))
        .map(|service| service.url.clone());
    let url = expected.url.parse().ok();
    if found == url {
        Ok(())
    } else {
        Err(format!("{name:?} {server:?}: found {found:?}, expected {url:?}"))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Keys {
    argocd_cm: BTreeMap<String, String>,
    expected_entries: BTreeMap<String, String>,
}

/// `configmap_keys`: the extension that each key configures.
fn configmap_keys(case: &Case) -> Result<(), String> {
    let case: Keys = case.read()?;
    let resources = resources(case.argocd_cm, BTreeMap::new());
    let entries = extensions::entries(&resources.argocd_cm).into_iter();
    let found: BTreeMap<String, String> = entries
        .map(|entry| (entry.name, entry.text.value.to_string()))
        .collect();
    if found == case.expected_entries {
        Ok(())
    } else {
        Err(format!("entries are {found:?}"))
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Substitution {
    secrets: BTreeMap<String, String>,
    value: String,
    expected: String,
}

/// `secret_substitution`: a text with references to Secrets replaced.
fn secret_substitution(case: &Case) -> Result<(), String> {
    let case: Substitution = case.read()?;
    let resources = resources(BTreeMap::new(), case.secrets);
    let found = secrets::substitute_or(&case.value, &resources.secrets, Compatibility::Argocd);
    let found = found?.0.value;
    if found == case.expected {
        Ok(())
    } else {
        Err(format!("found {found:?}, expected {:?}", case.expected))
    }
}

fn resources(argocd_cm: BTreeMap<String, String>, secrets: BTreeMap<String, String>) -> Resources {
    let text = |(key, value): (String, String)| {
        let location = Location::new(format!("argocd-cm/{key}"), 1);
        (
            key,
            Text {
                value: value.into(),
                location,
            },
        )
    };
    let secret = Secret {
        labels: BTreeMap::new(),
        values: secrets
            .into_iter()
            .map(|(key, value)| (key, SecretString::from(value)))
            .collect(),
        location: Location::new("argocd-secret", 0),
    };
    Resources {
        argocd_cm: ConfigMap {
            data: argocd_cm.into_iter().map(text).collect(),
        },
        secrets: [("argocd-secret".to_owned(), secret.into())].into(),
        ..Resources::default()
    }
}
