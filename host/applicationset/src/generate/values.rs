//! Renders the `values` of a generator and adds them to the parameters it made.
//!
//! Invariant: an entry of `values` is never rendered with another entry.

use serde_json::{Map, Value};

use super::run::Run;
use super::typed::Unclear;
use super::{Error, unrendered};
use crate::decode::fields::below;
use crate::decode::settings;
use crate::template::{Compiled, Made, made};
use crate::{Engine, Params};

/// `values`, parsed once for all sets of parameters.
pub(super) struct Values<'v> {
    entries: Vec<(&'v str, Compiled)>,
    path: String,
}

impl<'v> Values<'v> {
    /// Parses them; `path` is that of the generator.
    pub(super) fn new(run: &Run<'_>, values: settings::Values<'v>, path: &str) -> Result<Self, Error> {
        let path = below(path, "values");
        let entry = |(key, text): (&'v str, &'v str)| {
            // Names and projects depend on parameters.
            let compiled = Compiled::judged(run.engine, &Value::String(text.to_owned()));
            Ok((key, compiled.map_err(|error| unrendered(&below(&path, key), error))?))
        };
        let entries = values.into_iter().map(entry).collect::<Result<_, Error>>()?;
        Ok(Self { entries, path })
    }

    /// Whether there are none.
    pub(super) fn is_empty(&self) -> bool {
        self.entries.is_empty()
    }

    /// Renders each entry with the parameters as they are, then adds all of them.
    pub(super) fn append(&self, run: &Run<'_>, params: &mut Params) -> Result<(), Error> {
        let mut rendered = Map::new();
        for (key, compiled) in &self.entries {
            let value = compiled.render(params, run.budget);
            let value = value.map_err(|error| unrendered(&below(&self.path, key), error))?;
            rendered.insert((*key).to_owned(), value);
        }
        add(run.engine, rendered, params);
        if !self.is_empty() && made(params) == Made::Others {
            run.note(Unclear::Maps, &self.path);
        }
        Ok(())
    }
}

/// Adds `values` in the engine's form.
pub(super) fn add(engine: Engine, values: Map<String, Value>, params: &mut Params) {
    match engine {
        Engine::Go { .. } if values.is_empty() => {}
        Engine::Go { .. } => {
            params.insert("values".to_owned(), Value::Object(values));
        }
        Engine::Fast => {
            let values = values.into_iter();
            params.extend(values.map(|(key, value)| (format!("values.{key}"), value)));
        }
    }
}
