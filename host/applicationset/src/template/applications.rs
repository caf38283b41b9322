//! Renders an Application from a set's template and one set of parameters.
//!
//! Security: an Application is always in the namespace of its set, and `templatePatch` never
//! chooses its project.

use serde_json::{Map, Value, json};

use super::{AuthorizationImpact, Error, RenderContext, StringTemplate, authorization_impact, tree};
use crate::decode::fields::{list, mistake, object, section, text, texts};
use crate::message::truncated;
use crate::{GenerationBudget, Params, Spec, decode, heap_size, patch, transient_annotations};

/// The finalizer that makes Argo CD's controller delete an Application's resources.
const CASCADE: &str = "resources-finalizer.argocd.argoproj.io";
/// The metadata that a template may set, besides the namespace.
const METADATA: [&str; 4] = ["name", "labels", "annotations", "finalizers"];

/// The parsed template of one generator.
#[derive(Debug)]
pub struct ApplicationTemplate {
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
    /// - `namespace`: the set's; Applications are put there regardless of the template.
    ///
    /// # Errors
    /// [`Error::Syntax`], [`Error::Depth`], [`Error::Divergent`]; [`Error::Field`]: the template
    /// is not an object.
    pub fn new(spec: &Spec, generator_template: Option<&Value>, namespace: &str) -> Result<Self, Error> {
        let merged = match generator_template {
            Some(own) => fill(own, &spec.template),
            None => spec.template.clone(),
        };
        let written = template(merged)?;
        // SECURITY: any part of a patch can set a name or a destination.
        let patch = spec.template_patch.as_deref().map(|text| {
            let patch = StringTemplate::new(spec.engine, text, AuthorizationImpact::Direct);
            patch.map_err(|error| error.in_field("templatePatch"))
        });
        Ok(Self {
            namespace: namespace.to_owned(),
            template: tree::TemplateTree::new(spec.engine, &written, authorization_impact)?,
            written,
            patch: patch.transpose()?,
            cascade: !spec.sync_policy.preserve_resources,
        })
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
        let context = RenderContext::new(params, budget);
        let mut parts = if params.is_empty() {
            budget.charge_bytes(heap_size::of(&self.written))?;
            self.written.clone()
        } else {
            let mut rendered = self.template.render(&context)?;
            if self.cascade {
                cascade(&mut rendered);
            }
            rendered
        };
        if let Some(text) = &self.patch {
            let text = text.render(&context)?;
            parts = patch::apply(parts, &text, budget)?;
        }
        application(parts, &self.namespace)
    }
}

/// The `metadata` and `spec` of a template, without its other members.
fn template(merged: Value) -> Result<Value, Error> {
    let mut fields = members(merged, "template")?;
    let metadata = metadata(fields.remove("metadata").unwrap_or_default())?;
    let spec = members(fields.remove("spec").unwrap_or_default(), "spec")?;
    Ok(json!({ "metadata": metadata, "spec": spec }))
}

/// The part of a template's metadata that is used.
fn metadata(value: Value) -> Result<Map<String, Value>, Error> {
    let mut fields = members(value, "metadata")?;
    fields.retain(|key, value| METADATA.contains(&key.as_str()) && !value.is_null());
    Ok(fields)
}

/// Adds the finalizer unless there is one.
fn cascade(rendered: &mut Value) {
    let Some(metadata) = rendered.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    let finalizers = metadata.get("finalizers").and_then(Value::as_array);
    if finalizers.is_none_or(Vec::is_empty) {
        metadata.insert("finalizers".to_owned(), json!([CASCADE]));
    }
}

/// The Application, with its fields checked.
fn application(parts: Value, namespace: &str) -> Result<Value, Error> {
    let mut parts = members(parts, "template")?;
    let mut metadata = metadata(parts.remove("metadata").unwrap_or_default())?;
    let spec = members(parts.remove("spec").unwrap_or_default(), "spec")?;
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

fn check_metadata(metadata: &Map<String, Value>) -> Result<(), decode::Error> {
    text(metadata, "name", "metadata")?;
    for (key, path) in [("labels", "metadata.labels"), ("annotations", "metadata.annotations")] {
        let entries = section(metadata, key, path)?;
        entries
            .keys()
            .try_for_each(|entry| text(entries, entry, path).map(drop))?;
    }
    texts(metadata, "finalizers", "metadata").map(drop)
}

/// Checks the fields that decide where an Application may be and what it may deploy.
fn check_spec(spec: &Map<String, Value>) -> Result<(), decode::Error> {
    text(spec, "project", "spec")?;
    let destination = section(spec, "destination", "spec.destination")?;
    for key in ["server", "name", "namespace"] {
        text(destination, key, "spec.destination")?;
    }
    check_source(section(spec, "source", "spec.source")?, "spec.source")?;
    for (index, source) in list(spec, "sources", "spec")?.iter().enumerate() {
        let path = format!("spec.sources[{index}]");
        check_source(object(source, &path)?, &path)?;
    }
    Ok(())
}

fn check_source(source: &Map<String, Value>, path: &str) -> Result<(), decode::Error> {
    let mut keys = ["repoURL", "path", "chart", "ref", "targetRevision"].into_iter();
    keys.try_for_each(|key| text(source, key, path).map(drop))
}

/// The members of an object; none if it is null.
fn members(value: Value, path: &str) -> Result<Map<String, Value>, Error> {
    match value {
        Value::Object(fields) => Ok(fields),
        Value::Null => Ok(Map::new()),
        other => Err(mistake(path, &other, "an object").into()),
    }
}

impl From<decode::Error> for Error {
    fn from(error: decode::Error) -> Self {
        Self::Field(truncated(&error.to_string()))
    }
}

/// Merges `own` over `base`. Where `own` has nothing, `false`, 0 or an empty string or list,
/// `base` is used. Lists are not merged element by element.
///
/// Source: Argo CD's `mergeGeneratorTemplate`.
pub(super) fn fill(own: &Value, base: &Value) -> Value {
    match (own, base) {
        (Value::Object(own), Value::Object(base)) => Value::Object(objects(own, base)),
        (own, base) if empty(own) && !base.is_null() => base.clone(),
        (own, _) => own.clone(),
    }
}

fn objects(own: &Map<String, Value>, base: &Map<String, Value>) -> Map<String, Value> {
    let mut merged = own.clone();
    for (key, base) in base {
        let value = match own.get(key) {
            // An object that counts as one value: it is raw JSON, not fields of a type.
            Some(own) if !own.is_null() && key == "valuesObject" => own.clone(),
            Some(own) => fill(own, base),
            None => base.clone(),
        };
        merged.insert(key.clone(), value);
    }
    merged
}

fn empty(value: &Value) -> bool {
    match value {
        Value::Null => true,
        Value::Bool(yes) => !yes,
        Value::Number(number) => number.as_f64() == Some(0.0),
        Value::String(text) => text.is_empty(),
        Value::Array(items) => items.is_empty(),
        Value::Object(fields) => fields.is_empty(),
    }
}
