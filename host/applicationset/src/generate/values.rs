//! Renders the `values` of a generator and adds them to the parameters it made.
//!
//! Invariant: an entry of `values` is never rendered with another entry.

use serde_json::{Map, Value};

use super::generator_run::GeneratorRun;
use super::type_ambiguity::TypeAmbiguity;
use super::{Error, template_error};
use crate::decode::fields::child_path;
use crate::decode::settings;
use crate::template::{CompiledTemplate, ParamsOrigin, params_origin};
use crate::{Params, TemplateEngine};

/// `values`, parsed once for all sets of parameters.
pub(super) struct CompiledValues<'v> {
    entries: Vec<(&'v str, CompiledTemplate)>,
    path: String,
}

impl<'v> CompiledValues<'v> {
    /// - `path`: that of the generator.
    pub(super) fn new(run: &GeneratorRun<'_>, values: settings::ValueTemplates<'v>, path: &str) -> Result<Self, Error> {
        let path = child_path(path, "values");
        let entry = |(key, text): (&'v str, &'v str)| {
            // Names and projects depend on parameters.
            let compiled = CompiledTemplate::for_authorization(run.engine, &Value::String(text.to_owned()));
            let compiled = compiled.map_err(|error| template_error(&child_path(&path, key), error))?;
            Ok((key, compiled))
        };
        let entries = values.into_iter().map(entry).collect::<Result<_, Error>>()?;
        Ok(Self { entries, path })
    }

    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Renders each entry with the parameters as they are, then adds all of them.
    pub(super) fn append(&self, run: &GeneratorRun<'_>, params: &mut Params) -> Result<(), Error> {
        // Collected first: an entry must not see those before it.
        let mut rendered = Map::new();
        for (key, compiled) in &self.entries {
            let value = compiled.render(params, run.budget);
            let value = value.map_err(|error| template_error(&child_path(&self.path, key), error))?;
            rendered.insert((*key).to_owned(), value);
        }
        add(run.engine, rendered, params);
        if !self.is_empty() && params_origin(params) == ParamsOrigin::Others {
            run.record_type_ambiguity(TypeAmbiguity::Maps, &self.path);
        }
        Ok(())
    }
}

/// Adds `values` in the engine's form.
pub(super) fn add(engine: TemplateEngine, values: Map<String, Value>, params: &mut Params) {
    match engine {
        TemplateEngine::GoTemplate { .. } if values.is_empty() => {}
        TemplateEngine::GoTemplate { .. } => {
            params.insert("values".to_owned(), Value::Object(values));
        }
        TemplateEngine::FastTemplate => {
            let values = values.into_iter();
            params.extend(values.map(|(key, value)| (format!("values.{key}"), value)));
        }
    }
}
