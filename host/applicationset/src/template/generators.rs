//! Renders an entry of `generators` with the parameters of another generator.
//!
//! Invariant: a `values` entry whose key is only known later is kept as it was written.

use serde_json::{Map, Value};

use super::{AuthorizationImpact, CompiledTemplate, Error, RenderContext, StringTemplate};
use crate::{GenerationBudget, MissingKey, Params, TemplateEngine};

/// Generators whose `values` may use parameters that the generator itself makes.
const WITH_VALUES: [&str; 6] = [
    "clusters",
    "git",
    "scmProvider",
    "pullRequest",
    "clusterDecisionResource",
    "plugin",
];

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
    entry(engine, raw, params, budget)
}

fn entry(engine: TemplateEngine, raw: &Value, params: &Params, budget: &GenerationBudget) -> Result<Value, Error> {
    let Value::Object(fields) = raw else {
        return CompiledTemplate::for_authorization(engine, raw)?.render(params, budget);
    };
    let mut rendered = Map::new();
    for (key, value) in fields {
        let value = match value {
            Value::Null => continue,
            Value::Object(settings) if WITH_VALUES.contains(&key.as_str()) => {
                with_values(engine, settings, params, budget)?
            }
            Value::Object(settings) if matches!(key.as_str(), "matrix" | "merge") => {
                combined(engine, settings, params, budget)?
            }
            other => CompiledTemplate::for_authorization(engine, other)?.render(params, budget)?,
        };
        rendered.insert(key.clone(), value);
    }
    Ok(Value::Object(rendered))
}

/// The children of a matrix or merge generator are entries too.
fn combined(
    engine: TemplateEngine,
    settings: &Map<String, Value>,
    params: &Params,
    budget: &GenerationBudget,
) -> Result<Value, Error> {
    let mut rendered = Map::new();
    for (key, value) in settings {
        let value = match value {
            Value::Null => continue,
            Value::Array(children) if key == "generators" => Value::Array(
                children
                    .iter()
                    .map(|child| entry(engine, child, params, budget))
                    .collect::<Result<_, _>>()?,
            ),
            other => CompiledTemplate::for_authorization(engine, other)?.render(params, budget)?,
        };
        rendered.insert(key.clone(), value);
    }
    Ok(Value::Object(rendered))
}

fn with_values(
    engine: TemplateEngine,
    settings: &Map<String, Value>,
    params: &Params,
    budget: &GenerationBudget,
) -> Result<Value, Error> {
    let mut rendered = Map::new();
    for (key, value) in settings {
        let value = match value {
            Value::Null => continue,
            Value::Object(values) if key == "values" => own_values(engine, values, params, budget)?,
            other => CompiledTemplate::for_authorization(engine, other)?.render(params, budget)?,
        };
        rendered.insert(key.clone(), value);
    }
    Ok(Value::Object(rendered))
}

fn own_values(
    engine: TemplateEngine,
    values: &Map<String, Value>,
    params: &Params,
    budget: &GenerationBudget,
) -> Result<Value, Error> {
    let strict = match engine {
        TemplateEngine::FastTemplate => TemplateEngine::FastTemplate,
        TemplateEngine::GoTemplate { .. } => TemplateEngine::GoTemplate {
            missing_key: MissingKey::Error,
        },
    };
    let mut resolved = Map::new();
    let mut context = RenderContext::new(params, budget);
    for (key, value) in values {
        let Value::String(text) = value else {
            resolved.insert(key.clone(), value.clone());
            continue;
        };
        let text = match StringTemplate::new(strict, text, AuthorizationImpact::Direct)?.render(&mut context) {
            Err(Error::MissingKey { .. }) => text.clone(),
            other => other?,
        };
        resolved.insert(key.clone(), Value::String(text));
    }
    Ok(Value::Object(resolved))
}
