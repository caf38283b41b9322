//! Reads the fields of a rendered Application that are checked, or reports what is wrong with its
//! shape.
//!
//! Security: every field is read as Argo CD reads it.

use std::collections::BTreeSet;

use serde_json::{Map, Value};

use tollgate_front::set_list::or_default;
use tollgate_objects::Destination;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct ApplicationFields<'a> {
    pub name: &'a str,
    pub(super) project: &'a str,
    pub(super) repositories: Vec<&'a str>,
    pub(super) destination: Destination,
}

pub(super) fn read(application: &Value) -> Result<ApplicationFields<'_>, String> {
    let metadata = object(application, "metadata")?;
    let spec = object(application, "spec")?;
    let destination = match optional_object(spec, "destination", "spec.destination")? {
        None => Destination::default(),
        Some(fields) => Destination {
            name: text(fields, "name", "spec.destination.name")?.to_owned(),
            server: text(fields, "server", "spec.destination.server")?.to_owned(),
            namespace: text(fields, "namespace", "spec.destination.namespace")?.to_owned(),
        },
    };
    Ok(ApplicationFields {
        name: text(metadata, "name", "metadata.name")?,
        project: or_default(text(spec, "project", "spec.project")?),
        repositories: repositories(spec)?,
        destination,
    })
}

fn object<'a>(application: &'a Value, key: &str) -> Result<&'a Map<String, Value>, String> {
    let found = application.get(key).and_then(Value::as_object);
    found.ok_or_else(|| format!("`{key}` is not an object"))
}

fn text<'a>(fields: &'a Map<String, Value>, key: &str, path: &str) -> Result<&'a str, String> {
    match fields.get(key) {
        // Go decodes `null` as the zero value.
        None | Some(Value::Null) => Ok(""),
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(format!("`{path}` is not a text")),
    }
}

/// Every repository an Application takes manifests from or writes them to. `source` counts even
/// beside `sources` and `sourceHydrator`: Argo CD ignores it only until those are removed.
fn repositories(spec: &Map<String, Value>) -> Result<Vec<&str>, String> {
    let mut found = Vec::new();
    if let Some(fields) = optional_object(spec, "sourceHydrator", "spec.sourceHydrator")? {
        hydrated(fields, &mut found)?;
    }
    let several = match spec.get("sources") {
        None | Some(Value::Null) => &[][..],
        Some(Value::Array(sources)) => sources,
        Some(_) => return Err("`spec.sources` is not a list".to_owned()),
    };
    let mut names = BTreeSet::new();
    for source in several {
        let Value::Object(source) = source else {
            return Err("an entry of `spec.sources` is not an object".to_owned());
        };
        let name = text(source, "name", "spec.sources[].name")?;
        if !name.is_empty() && !names.insert(name) {
            return Err(format!("application has duplicate source name: {name}"));
        }
        found.push(checked_source(source, Some("ref"), SOURCES)?);
    }
    match optional_object(spec, "source", "spec.source")? {
        // An empty `source` beside others names no repository. Alone, it gets Argo CD's error for an incomplete one.
        Some(source) if !source.is_empty() || found.is_empty() => found.push(checked_source(source, None, SOURCE)?),
        Some(_) | None => {}
    }
    if found.is_empty() {
        return Err(SOURCE.to_owned());
    }
    Ok(found)
}

const SOURCE: &str = "spec.source.repoURL and either spec.source.path or spec.source.chart are required";
const SOURCES: &str =
    "spec.source.repoURL and either source.path, source.chart, or source.ref are required for each source";
const REVISION: &str = "spec.source.targetRevision is required if the manifest source is a helm chart";

/// The repository of a source that names a path, a chart, or what the key `reference` is for, and a
/// chart's revision.
fn checked_source<'a>(
    source: &'a Map<String, Value>,
    reference: Option<&str>,
    incomplete: &str,
) -> Result<&'a str, String> {
    let url = text(source, "repoURL", "spec.source.repoURL")?;
    let path = text(source, "path", "spec.source.path")?;
    let chart = text(source, "chart", "spec.source.chart")?;
    let revision = text(source, "targetRevision", "spec.source.targetRevision")?;
    // Only an entry of `sources` may consist of a `ref` alone.
    let reference = reference.map_or(Ok(""), |key| text(source, key, "spec.sources[].ref"))?;
    if url.is_empty() || (path.is_empty() && chart.is_empty() && reference.is_empty()) {
        return Err(incomplete.to_owned());
    }
    if !chart.is_empty() && revision.is_empty() {
        return Err(REVISION.to_owned());
    }
    Ok(url)
}

fn optional_object<'a>(
    fields: &'a Map<String, Value>,
    key: &str,
    path: &str,
) -> Result<Option<&'a Map<String, Value>>, String> {
    match fields.get(key) {
        None | Some(Value::Null) => Ok(None),
        Some(Value::Object(object)) => Ok(Some(object)),
        Some(_) => Err(format!("`{path}` is not an object")),
    }
}

fn hydrated<'a>(fields: &'a Map<String, Value>, found: &mut Vec<&'a str>) -> Result<(), String> {
    let mut has_dry_source = false;
    for (key, path) in [
        ("drySource", "spec.sourceHydrator.drySource"),
        ("syncSource", "spec.sourceHydrator.syncSource"),
    ] {
        let Some(source) = optional_object(fields, key, path)? else {
            continue;
        };
        let url = text(source, "repoURL", &format!("{path}.repoURL"))?;
        if !url.is_empty() {
            has_dry_source |= key == "drySource";
            found.push(url);
        }
    }
    match has_dry_source {
        true => Ok(()),
        false => Err("spec.sourceHydrator.drySource.repoURL is required".to_owned()),
    }
}

pub(super) fn unnamed(set: &str) -> String {
    format!(
        "ApplicationSet {set} contains an application with no name; a name must be set in the template's \
         metadata.name or via a templatePatch (generateName is not supported)"
    )
}

pub(super) fn duplicate(set: &str, name: &str) -> String {
    format!("ApplicationSet {set} contains applications with duplicate name: {name}")
}
