//! Renders an Application from a set's template and one set of parameters.
//!
//! Security: an Application is always in the namespace of its set, and `templatePatch` never
//! chooses its project.

use serde_json::{Map, Value, json};

use super::{AuthorizationImpact, Error, RenderContext, StringTemplate, authorization_impact, merge, tree, truncated};
use crate::{GenerationBudget, Params, Spec, TemplateEngine, heap_size, patch, transient_annotations};

/// The finalizer that makes Argo CD's controller delete an Application's resources.
const CASCADE: &str = "resources-finalizer.argocd.argoproj.io";
/// The metadata that a template may set, besides the namespace.
const METADATA: [&str; 4] = ["name", "labels", "annotations", "finalizers"];

/// The parsed template of one generator.
#[derive(Debug)]
pub struct ApplicationTemplate {
    engine: TemplateEngine,
    namespace: String,
    /// The merged template as written, which empty parameters give.
    written: Value,
    template: tree::TemplateTree,
    patch: Option<StringTemplate>,
    cascade: bool,
}

impl ApplicationTemplate {
    /// Parses the set's template, with `generator_template` merged over it, and its patch.
    ///
    /// - `generator_template`: `template` of the generator, if it has one.
    /// - `namespace`: the set's; Applications are put there whatever the template says.
    ///
    /// # Errors
    /// [`Error::Syntax`], [`Error::Depth`], [`Error::Divergent`]; [`Error::Field`]: the template
    /// is not an object.
    pub fn new(spec: &Spec, generator_template: Option<&Value>, namespace: &str) -> Result<Self, Error> {
        let merged = match generator_template {
            Some(own) => merge::fill(own, &spec.template),
            None => spec.template.clone(),
        };
        let written = template(merged)?;
        let patch = spec.template_patch.as_deref();
        Ok(Self {
            engine: spec.engine,
            namespace: namespace.to_owned(),
            template: tree::TemplateTree::new(spec.engine, &written, authorization_impact)?,
            written,
            patch: patch.map(|text| patch_of(spec.engine, text)).transpose()?,
            cascade: !spec.sync_policy.preserve_resources,
        })
    }

    /// The engine it was parsed for.
    pub fn engine(&self) -> TemplateEngine {
        self.engine
    }

    /// Renders an Application: `apiVersion`, `kind`, `metadata` (name, namespace, labels,
    /// annotations, finalizers) and `spec`.
    ///
    /// With empty `params` the template stays as written, without the cascade finalizer; the patch
    /// is still applied.
    ///
    /// # Errors
    /// [`Error::Execute`], [`Error::MissingKey`], [`Error::TemplateLimit`], [`Error::Divergent`],
    /// [`Error::Exceeded`], [`Error::Patch`]; [`Error::Field`]: a field that the gateway bases a
    /// decision on has the wrong type.
    pub fn render(&self, params: &Params, budget: &GenerationBudget) -> Result<Value, Error> {
        let mut context = RenderContext::new(params, budget);
        let mut parts = if params.is_empty() {
            budget.charge_bytes(heap_size::of(&self.written))?;
            self.written.clone()
        } else {
            let mut rendered = self.template.render(&mut context)?;
            if self.cascade {
                cascade(&mut rendered);
            }
            rendered
        };
        if let Some(text) = &self.patch {
            let text = text.render(&mut context)?;
            parts = patch::apply(parts, &text, budget)?;
        }
        application(parts, &self.namespace)
    }
}

/// SECURITY: any part of a patch can set a name or a destination.
fn patch_of(engine: TemplateEngine, text: &str) -> Result<StringTemplate, Error> {
    StringTemplate::new(engine, text, AuthorizationImpact::Direct).map_err(|error| error.in_field("templatePatch"))
}

/// The `metadata` and `spec` of a template, without its other members.
fn template(merged: Value) -> Result<Value, Error> {
    let mut fields = object(merged, "")?;
    let metadata = metadata(fields.remove("metadata").unwrap_or_default())?;
    let spec = object(fields.remove("spec").unwrap_or_default(), "spec")?;
    Ok(json!({ "metadata": metadata, "spec": spec }))
}

/// The part of a template's metadata that is used.
fn metadata(value: Value) -> Result<Map<String, Value>, Error> {
    let mut fields = object(value, "metadata")?;
    fields.retain(|key, value| METADATA.contains(&key.as_str()) && !value.is_null());
    Ok(fields)
}

/// Adds the finalizer unless there is one.
fn cascade(rendered: &mut Value) {
    let Some(metadata) = rendered.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let none = metadata
        .get("finalizers")
        .and_then(Value::as_array)
        .is_none_or(Vec::is_empty);
    if none {
        metadata.insert("finalizers".to_owned(), json!([CASCADE]));
    }
}

/// The Application, with its fields checked.
fn application(parts: Value, namespace: &str) -> Result<Value, Error> {
    let mut parts = object(parts, "")?;
    let mut metadata = metadata(parts.remove("metadata").unwrap_or_default())?;
    let spec = object(parts.remove("spec").unwrap_or_default(), "spec")?;
    check_metadata(&metadata)?;
    transient_annotations::remove_transient(&mut metadata);
    check_spec(&spec)?;
    metadata.insert("namespace".to_owned(), Value::String(namespace.to_owned()));
    Ok(json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "Application",
        "metadata": metadata,
        "spec": spec,
    }))
}

fn check_metadata(metadata: &Map<String, Value>) -> Result<(), Error> {
    text(metadata, "metadata.", "name")?;
    for key in ["labels", "annotations"] {
        let Some(value) = present(metadata, key) else { continue };
        let entries = value
            .as_object()
            .ok_or_else(|| wrong(format!("metadata.{key}"), "an object", value))?;
        for entry in entries.keys() {
            text(entries, &format!("metadata.{key}."), entry)?;
        }
    }
    let Some(value) = present(metadata, "finalizers") else {
        return Ok(());
    };
    let items = value
        .as_array()
        .ok_or_else(|| wrong("metadata.finalizers".to_owned(), "a list", value))?;
    match items.iter().find(|item| !item.is_string()) {
        Some(item) => Err(wrong("metadata.finalizers".to_owned(), "a list of texts", item)),
        None => Ok(()),
    }
}

/// Checks the fields that decide where an Application may be and what it may deploy.
fn check_spec(spec: &Map<String, Value>) -> Result<(), Error> {
    text(spec, "spec.", "project")?;
    if let Some(value) = present(spec, "destination") {
        let destination = value
            .as_object()
            .ok_or_else(|| wrong("spec.destination".to_owned(), "an object", value))?;
        for key in ["server", "name", "namespace"] {
            text(destination, "spec.destination.", key)?;
        }
    }
    if let Some(value) = present(spec, "source") {
        check_source(value, "spec.source")?;
    }
    let Some(value) = present(spec, "sources") else {
        return Ok(());
    };
    let sources = value
        .as_array()
        .ok_or_else(|| wrong("spec.sources".to_owned(), "a list", value))?;
    sources
        .iter()
        .enumerate()
        .try_for_each(|(index, source)| check_source(source, &format!("spec.sources[{index}]")))
}

fn check_source(source: &Value, field: &str) -> Result<(), Error> {
    let fields = source
        .as_object()
        .ok_or_else(|| wrong(field.to_owned(), "an object", source))?;
    ["repoURL", "path", "chart", "ref", "targetRevision"]
        .iter()
        .try_for_each(|key| text(fields, &format!("{field}."), key))
}

fn text(fields: &Map<String, Value>, before: &str, key: &str) -> Result<(), Error> {
    match present(fields, key) {
        None | Some(Value::String(_)) => Ok(()),
        Some(other) => Err(wrong(format!("{before}{key}"), "a text", other)),
    }
}

fn present<'a>(fields: &'a Map<String, Value>, key: &str) -> Option<&'a Value> {
    fields.get(key).filter(|value| !value.is_null())
}

fn object(value: Value, field: &str) -> Result<Map<String, Value>, Error> {
    match value {
        Value::Object(fields) => Ok(fields),
        Value::Null => Ok(Map::new()),
        other @ (Value::Bool(_) | Value::Number(_) | Value::String(_) | Value::Array(_)) => {
            let field = if field.is_empty() { "template" } else { field };
            Err(wrong(field.to_owned(), "an object", &other))
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "callers word it for this alone")]
fn wrong(field: String, wanted: &'static str, observed: &Value) -> Error {
    let observed = match observed {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    };
    Error::Field {
        field: truncated(&field),
        wanted,
        observed,
    }
}
