//! Runs the generators that plugins provide, with Secrets of the control plane.
//!
//! Security: a plugin gets only values of Secrets that the operator's grant names.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use serde_json::Value;
use tokio::runtime::Handle;
use tokio::time::Instant;

use tollgate_applicationset::{GenerationBudget, GeneratorKind, InputError, Params, PluginGenerators};
use tollgate_objects::{ObjectName, Secret};
use tollgate_plugin::SecretValues;

#[derive(Debug)]
pub(super) struct WasmGenerators<'a> {
    pub(crate) plugins: &'a tollgate_plugin::PluginSet,
    /// Secrets of the control plane's namespace.
    pub(crate) secrets: &'a BTreeMap<String, Arc<Secret>>,
    pub(crate) set: &'a ObjectName,
    /// The runtime for calls. The caller waits outside of it.
    pub(crate) runtime: Handle,
}

impl PluginGenerators for WasmGenerators<'_> {
    fn generate(
        &self,
        kind: GeneratorKind,
        settings: &Value,
        budget: &GenerationBudget,
    ) -> Result<Vec<Params>, InputError> {
        let generator = self.plugins.generator(kind).ok_or_else(|| {
            InputError(format!(
                "no plugin provides generators of kind `{}`: put one of the world `generator` into the plugins folder",
                kind.as_ref()
            ))
        })?;
        let plugin_error = |text: String| InputError(format!("plugin `{}`: {text}", generator.name()));
        let values = match generator.secret() {
            None => BTreeMap::new(),
            Some(name) => match self.secrets.get(name) {
                Some(secret) => secret.values.clone(),
                None => return Err(plugin_error("the Secret of its grant does not exist".to_owned())),
            },
        };
        let secret_values = SecretValues {
            values,
            public: BTreeSet::new(),
        };
        let time = budget.deadline().saturating_duration_since(Instant::now());
        let max_sets = budget.limits().parameters;
        let generated = generator.generate(kind, settings, self.set, secret_values, max_sets, time);
        // The call waits for another service. Meanwhile another set may use the slot.
        let generated = budget.release_while(|| self.runtime.block_on(generated));
        let generated = generated.map_err(|exceeded| plugin_error(exceeded.to_string()))?;
        generated.map_err(|error| plugin_error(error.to_string()))
    }
}
