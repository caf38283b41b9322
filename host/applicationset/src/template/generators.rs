//! Renders an entry of `generators` with the parameters of another generator.
//!
//! Invariant: a `values` entry whose key is only known later is kept as it was written.

use serde_json::{Map, Value};

use super::functions::listed;
use super::{AuthorizationImpact, CompiledTemplate, Error, RenderContext, StringTemplate};
use crate::{GenerationBudget, MissingKey, Params, TemplateEngine};

/// Generators whose `values` may use parameters that the generator itself makes.
const WITH_VALUES: &str = "clusters git scmProvider pullRequest clusterDecisionResource plugin";

/// Renders an entry of `generators` with the parameters of another.
///
/// Where a generator has `values`, each is rendered separately and its key is kept. A value that
/// uses a missing key stays as written, so that the generator's own parameters can fill it. Empty
/// `params` change nothing.
///
/// # Errors
/// [`Error::Syntax`], [`Error::Execute`], [`Error::MissingKey`], [`Error::TemplateLimit`],
/// [`Error::Divergent`], [`Error::Exceeded`].
///
/// Source: Argo CD's `RenderGeneratorParams`.
pub fn render_generator(
    engine: TemplateEngine,
    raw: &Value,
    params: &Params,
    budget: &GenerationBudget,
) -> Result<Value, Error> {
    if params.is_empty() {
        return Ok(raw.clone());
    }
    Rendering { engine, params, budget }.entry(raw)
}

#[derive(Clone, Copy)]
struct Rendering<'a> {
    engine: TemplateEngine,
    params: &'a Params,
    budget: &'a GenerationBudget,
}

impl Rendering<'_> {
    fn entry(self, raw: &Value) -> Result<Value, Error> {
        let Value::Object(fields) = raw else {
            return self.whole(raw);
        };
        members(fields, |key, value| match value {
            Value::Object(settings) if listed(WITH_VALUES, key).is_some() => {
                members(settings, |key, value| match value {
                    Value::Object(values) if key == "values" => self.own_values(values),
                    other => self.whole(other),
                })
            }
            // The children of a matrix or merge generator are entries too.
            Value::Object(settings) if matches!(key, "matrix" | "merge") => {
                members(settings, |key, value| match value {
                    Value::Array(children) if key == "generators" => {
                        children.iter().map(|child| self.entry(child)).collect()
                    }
                    other => self.whole(other),
                })
            }
            other => self.whole(other),
        })
    }

    fn whole(self, value: &Value) -> Result<Value, Error> {
        CompiledTemplate::for_authorization(self.engine, value)?.render(self.params, self.budget)
    }

    fn own_values(self, values: &Map<String, Value>) -> Result<Value, Error> {
        // A missing key must be an error here: it tells that the generator itself will fill the entry.
        let strict = match self.engine {
            TemplateEngine::FastTemplate => TemplateEngine::FastTemplate,
            TemplateEngine::GoTemplate { .. } => TemplateEngine::GoTemplate {
                missing_key: MissingKey::Error,
            },
        };
        let context = RenderContext::new(self.params, self.budget);
        let resolved = values.iter().map(|(key, value)| {
            let Value::String(text) = value else {
                return Ok((key.clone(), value.clone()));
            };
            let template = StringTemplate::new(strict, text, AuthorizationImpact::Direct)?;
            let text = match template.render(&context) {
                Err(Error::MissingKey { .. }) => text.clone(),
                other => other?,
            };
            Ok((key.clone(), Value::String(text)))
        });
        resolved.collect::<Result<_, _>>().map(Value::Object)
    }
}

/// Renders each member that is not null.
fn members(fields: &Map<String, Value>, render: impl Fn(&str, &Value) -> Result<Value, Error>) -> Result<Value, Error> {
    let fields = fields.iter().filter(|(_, value)| !value.is_null());
    let rendered = fields.map(|(key, value)| Ok((key.clone(), render(key, value)?)));
    rendered.collect::<Result<_, _>>().map(Value::Object)
}
