//! Runs the generators of an ApplicationSet and renders its Applications, in order.
//!
//! Differences from Argo CD:
//!
//! - Clusters are sorted by name, and merged sets follow the order of the first child. Upstream
//!   has no order.
//! - A pattern that cannot be parsed is an error, also in an exclusion. Upstream treats it as
//!   matching nothing.
//! - A generator of an unknown kind is an error, also in a stored set.
//!
//! Invariant: the result is complete or an error, and the budget is charged before memory is
//! allocated.
//!
//! Security: nothing is read that the `InputAuthorizer` denies.
//!
//! Source: Argo CD, `applicationset/generators` and `controllers/template`.

use serde_json::Value;

use super::decode::fields::{child_path, member};
use super::inputs::InputError;
use super::message::truncated;
use super::{
    ApplicationSet, Denial, Exceeded, GenerationBudget, Inputs, Params, Spec, decode, heap_size, selector, template,
};

mod clusters;
mod flatten;
mod generator_run;
mod git;
mod list;
mod matrix;
mod merge;
mod plugin_generator;
mod static_inputs;
#[cfg(test)]
mod tests;
mod type_ambiguity;
mod values;

pub use static_inputs::{ClusterSelection, StaticInputs, static_inputs};

use generator_run::GeneratorRun;

/// Why a set generates nothing.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller may not read all inputs of the generators. Contains the denials found.
    #[error("generators may not read {} of what they name", .0.len())]
    Denied(Vec<Denial>),
    /// A limit was exceeded.
    #[error(transparent)]
    Exceeded(#[from] Exceeded),
    /// An input is not available.
    #[error("`{path}`: {error}")]
    Input {
        /// Path of the generator, from the root of the object.
        path: String,
        /// The reason.
        error: InputError,
    },
    /// A template cannot be rendered.
    #[error("`{path}`: {error}")]
    Template {
        /// Path of the generator whose parameters were used.
        path: String,
        /// The reason.
        error: template::Error,
    },
    /// A generator is not valid.
    #[error("`{path}`: {what}")]
    Invalid {
        /// Path of the generator, from the root of the object.
        path: String,
        /// What is wrong.
        what: String,
    },
    /// A generator's settings have the wrong type.
    #[error(transparent)]
    Decode(#[from] decode::Error),
}

/// Generates the Applications of a set, in the order of its generators and their parameters.
///
/// Blocks while repositories and plugins are read; call it off the runtime.
///
/// - Returns: each with `apiVersion`, `kind`, `metadata` and `spec`, in the set's namespace. Names
///   may be empty or duplicated; the plan checks that.
///
/// # Errors
/// The first [`Error`] found. [`Error::Denied`] takes precedence over other errors of running the
/// generators, but not over those of parsing the templates.
pub fn generate(set: &ApplicationSet, inputs: &Inputs<'_>, budget: &GenerationBudget) -> Result<Vec<Value>, Error> {
    // Before the generators, which read other systems: a template with a mistake costs no fetch.
    let templates = templates(set, budget)?;
    let made = parameters(&set.spec, inputs, budget)?;
    let mut applications = Vec::new();
    for ((path, template), made) in templates.iter().zip(&made) {
        for params in made {
            budget.charge_applications(1)?;
            let rendered = template.render(params, budget);
            applications.push(rendered.map_err(|error| template_error(path, error))?);
        }
    }
    Ok(applications)
}

/// Generates the sets of parameters of each kind of each entry of a set, in order.
fn parameters(spec: &Spec, inputs: &Inputs<'_>, budget: &GenerationBudget) -> Result<Vec<Vec<Params>>, Error> {
    let run = GeneratorRun::new(spec.engine, inputs, budget);
    let made = run
        .all(spec)
        .and_then(|made| run.check_type_ambiguity(spec).map(|()| made));
    // Denials take precedence: they may have caused the other error.
    match run.denials.into_inner() {
        denials if denials.is_empty() => made,
        denials => Err(Error::Denied(denials)),
    }
}

/// The parsed template of every kind, with the kind's path, in the order of [`parameters`].
fn templates(
    set: &ApplicationSet,
    budget: &GenerationBudget,
) -> Result<Vec<(String, template::ApplicationTemplate)>, Error> {
    // Each kind holds its own copy of the set's template, as written and parsed.
    let patch = set.spec.template_patch.as_deref().map_or(0, heap_size::text);
    let shared = heap_size::of(&set.spec.template).saturating_add(patch);
    let mut templates = Vec::new();
    for (index, generator) in set.spec.generators.iter().enumerate() {
        for (kind, settings) in generator.kinds() {
            let path = child_path(&format!("spec.generators[{index}]"), kind.as_ref());
            let own = settings.as_object().and_then(|settings| member(settings, "template"));
            budget.check_deadline()?;
            let bytes = own.map_or(0, heap_size::of).saturating_add(shared);
            budget.charge_bytes(bytes.saturating_mul(2))?;
            let template = template::ApplicationTemplate::new(&set.spec, own, &set.name.namespace);
            let template = template.map_err(|error| template_error(&path, error))?;
            templates.push((path, template));
        }
    }
    Ok(templates)
}

fn template_error(path: &str, error: template::Error) -> Error {
    match error {
        template::Error::Exceeded(exceeded) => Error::Exceeded(exceeded),
        error => Error::Template {
            path: path.to_owned(),
            error,
        },
    }
}

fn invalid(path: &str, what: impl AsRef<str>) -> Error {
    Error::Invalid {
        path: path.to_owned(),
        what: truncated(what.as_ref()),
    }
}

impl Error {
    fn selector(path: &str, error: &selector::Error) -> Self {
        invalid(&child_path(path, "selector"), error.to_string())
    }
}
