//! Generators that plugins provide: runs the plugin and adds the generator's `values` to its sets
//! of parameters.
//!
//! Security: a plugin is called only after the gate has allowed it.

use serde_json::{Map, Value, json};

use super::run::Run;
use super::typed::{self, Unclear};
use super::values::{self, Values};
use super::{Error, flatten, invalid};
use crate::decode::settings::guest_values;
use crate::{Engine, KindName, Params};

/// Runs a generator of `kind`.
pub(super) fn parameters(run: &Run<'_>, kind: KindName, settings: &Value, path: &str) -> Result<Vec<Params>, Error> {
    let literal = guest_values(settings, path)?;
    // As upstream, `clusterDecisionResource` adds its values unrendered.
    let templates = match kind {
        KindName::ClusterDecisionResource => None,
        _ => Some(Values::new(run, literal.clone(), path)?),
    };
    if !run.may_run(kind) {
        return Ok(Vec::new());
    }
    let made = run.inputs.guests.generate(kind, settings, run.budget);
    let made = made.map_err(|error| Error::Input {
        path: path.to_owned(),
        error,
    })?;
    // In Argo CD, lists and `values` contain strings.
    run.note(
        if literal.is_empty() {
            Unclear::Lists
        } else {
            Unclear::Maps
        },
        path,
    );
    let mut all = Vec::new();
    for made in made {
        let mut params = shaped(run, kind, settings, made)?;
        match &templates {
            Some(values) => values.append(run, &mut params)?,
            None => {
                let literal = literal
                    .iter()
                    .map(|(key, text)| ((*key).to_owned(), Value::from(*text)));
                values::add(run.engine, literal.collect(), &mut params);
            }
        }
        run.charge_made(&params)?;
        all.push(params);
    }
    Ok(all)
}

/// The plugin's parameters in the form that the kind gives to templates. Those of `plugin` can
/// have any form, and include the plugin's input.
fn shaped(run: &Run<'_>, kind: KindName, settings: &Value, made: Params) -> Result<Params, Error> {
    if kind != KindName::Plugin {
        return Ok(made);
    }
    let mut params = match run.engine {
        Engine::Go { .. } => {
            typed::written(&made).map_err(|what| invalid(kind.as_str(), what))?;
            made
        }
        Engine::Fast => flatten::flat(run, &made)?,
    };
    let none = Value::Object(Map::new());
    let given = settings.pointer("/input/parameters").unwrap_or(&none);
    let input = json!({ "input": { "parameters": given } });
    params.insert("generator".to_owned(), input);
    Ok(params)
}
