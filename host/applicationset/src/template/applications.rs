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
    text(metadata, "metadata", "name")?;
    for key in ["labels", "annotations"] {
        if let Some(entries) = member(metadata, "metadata", key, AN_OBJECT)? {
            let path = format!("metadata.{key}");
            entries.keys().try_for_each(|entry| text(entries, &path, entry))?;
        }
    }
    let finalizers = member(metadata, "metadata", "finalizers", A_LIST)?;
    match finalizers.into_iter().flatten().find(|item| !item.is_string()) {
        Some(item) => Err(wrong("metadata.finalizers".to_owned(), "a list of texts", item)),
        None => Ok(()),
    }
}

/// Checks the fields that decide where an Application may be and what it may deploy.
fn check_spec(spec: &Map<String, Value>) -> Result<(), Error> {
    text(spec, "spec", "project")?;
    if let Some(destination) = member(spec, "spec", "destination", AN_OBJECT)? {
        let mut keys = ["server", "name", "namespace"].into_iter();
        keys.try_for_each(|key| text(destination, "spec.destination", key))?;
    }
    if let Some(source) = member(spec, "spec", "source", AN_OBJECT)? {
        check_source(source, "spec.source")?;
    }
    let sources = member(spec, "spec", "sources", A_LIST)?;
    for (index, source) in sources.into_iter().flatten().enumerate() {
        let path = format!("spec.sources[{index}]");
        let source = source
            .as_object()
            .ok_or_else(|| wrong(path.clone(), AN_OBJECT.0, source))?;
        check_source(source, &path)?;
    }
    Ok(())
}

fn check_source(source: &Map<String, Value>, path: &str) -> Result<(), Error> {
    let mut keys = ["repoURL", "path", "chart", "ref", "targetRevision"].into_iter();
    keys.try_for_each(|key| text(source, path, key))
}

/// A type in words, and the value if it has that type.
type Expected<T> = (&'static str, fn(&Value) -> Option<&T>);

const AN_OBJECT: Expected<Map<String, Value>> = ("an object", Value::as_object);
const A_LIST: Expected<Vec<Value>> = ("a list", Value::as_array);
const A_TEXT: Expected<str> = ("a text", Value::as_str);

/// The member `key` of the object at `path`; null is none.
fn member<'a, T: ?Sized>(
    fields: &'a Map<String, Value>,
    path: &str,
    key: &str,
    (wanted, typed): Expected<T>,
) -> Result<Option<&'a T>, Error> {
    let value = fields.get(key).filter(|value| !value.is_null());
    let typed = value.map(|value| typed(value).ok_or_else(|| wrong(format!("{path}.{key}"), wanted, value)));
    typed.transpose()
}

fn text(fields: &Map<String, Value>, path: &str, key: &str) -> Result<(), Error> {
    member(fields, path, key, A_TEXT).map(|_| ())
}

fn object(value: Value, field: &str) -> Result<Map<String, Value>, Error> {
    match value {
        Value::Object(fields) => Ok(fields),
        Value::Null => Ok(Map::new()),
        other => {
            let field = if field.is_empty() { "template" } else { field };
            Err(wrong(field.to_owned(), "an object", &other))
        }
    }
}

#[expect(clippy::needless_pass_by_value, reason = "callers word it for this alone")]
fn wrong(field: String, wanted: &'static str, observed: &Value) -> Error {
    Error::Field {
        field: truncated(&field),
        wanted,
        observed: type_in_words(observed),
    }
}

pub(crate) fn type_in_words(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "a boolean",
        Value::Number(_) => "a number",
        Value::String(_) => "a text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}
