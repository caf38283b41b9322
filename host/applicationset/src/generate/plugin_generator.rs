//! Generators that plugins provide: runs the plugin and adds the generator's `values` to its sets
//! of parameters.
//!
//! Security: a plugin is called only after the `InputAuthorizer` has allowed it.

use serde_json::{Value, json};

use super::generator_run::GeneratorRun;
use super::type_ambiguity::{self, TypeAmbiguity};
use super::values::{self, CompiledValues};
use super::{Error, flatten, invalid};
use crate::decode::settings::plugin_values;
use crate::{GeneratorKind, Params, TemplateEngine, heap_size};

pub(super) fn parameters(
    run: &GeneratorRun<'_>,
    kind: GeneratorKind,
    settings: &Value,
    path: &str,
) -> Result<Vec<Params>, Error> {
    let literal = plugin_values(settings, path)?;
    // As upstream, `clusterDecisionResource` adds its values unrendered.
    let templates = match kind {
        GeneratorKind::ClusterDecisionResource => None,
        _ => Some(CompiledValues::new(run, literal.clone(), path)?),
    };
    if !run.record_denial(run.inputs.authorizer.check_plugin(kind)) {
        return Ok(Vec::new());
    }
    let made = run.inputs.plugin_generators.generate(kind, settings, run.budget);
    let made = made.map_err(|error| Error::Input {
        path: path.to_owned(),
        error,
    })?;
    // In Argo CD, lists and `values` contain strings.
    let ambiguity = match literal.is_empty() {
        true => TypeAmbiguity::Lists,
        false => TypeAmbiguity::Maps,
    };
    run.record_type_ambiguity(ambiguity, path);
    let mut all = Vec::new();
    for made in made {
        let mut params = shaped(run, kind, settings, made)?;
        match &templates {
            Some(values) => values.append(run, &mut params)?,
            None => {
                let literal = literal.iter();
                let literal = literal.map(|(key, text)| ((*key).to_owned(), Value::from(*text)));
                values::add(run.engine, literal.collect(), &mut params);
            }
        }
        run.charge(heap_size::of_members(&params))?;
        all.push(params);
    }
    Ok(all)
}

/// The plugin's parameters in the form that the kind gives to templates. Those of `plugin` can
/// have any form, and include the plugin's input.
fn shaped(run: &GeneratorRun<'_>, kind: GeneratorKind, settings: &Value, made: Params) -> Result<Params, Error> {
    if kind != GeneratorKind::Plugin {
        return Ok(made);
    }
    let mut params = match run.engine {
        TemplateEngine::GoTemplate { .. } => {
            type_ambiguity::check_reserved_keys(&made).map_err(|what| invalid(kind.as_ref(), what))?;
            made
        }
        TemplateEngine::FastTemplate => flatten::flat(run, &made)?,
    };
    let given = settings.pointer("/input/parameters").cloned();
    let input = json!({ "input": { "parameters": given.unwrap_or_else(|| json!({})) } });
    params.insert("generator".to_owned(), input);
    Ok(params)
}
