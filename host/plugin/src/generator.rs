//! Plugins that generate parameters for ApplicationSets, from a generator's kind and settings and
//! the values of the grant's Secret.
//!
//! Invariant: a generator returns no more than the caller's budget allows.
//!
//! Security: parameters contain no known secret.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::bindings::generator::exports::tollgate::plugin::generators::{GenerateInput, GuestIndices};
use super::call_state::{CallState, HostServices, MemoUse, Phase, SecretValues};
use super::compilation_cache::CodeOrigin;
use super::guest::Guest;
use super::manifest::Manifest;
use super::memo::Memo;
use super::permissions::ResolvedPermissions;
use super::sandbox::Sandbox;
use tollgate_credential::{MintError, MintErrorClass};
use tollgate_objects::{GeneratorKind, ObjectName};

/// A loaded plugin of the world `generator`.
pub type Generator = Guest<GeneratorParts>;

/// What a generator has beside its code.
#[expect(missing_debug_implementations, reason = "the generated exports have none")]
pub struct GeneratorParts {
    exports: GuestIndices,
    services: HostServices,
    /// The configuration in the operator's grant, canonical.
    config: String,
    permissions: Arc<ResolvedPermissions>,
    /// Secret of the control plane's namespace whose values it may use.
    secret: Option<String>,
    memo: Arc<Memo>,
}

impl Generator {
    /// Finds the exports and lets the guest check the configuration, which fits the manifest's
    /// schema. Returns the guest's warnings, or why the generator cannot be used.
    pub(super) async fn start(
        manifest: Manifest,
        origin: CodeOrigin,
        sandbox: Sandbox,
        services: HostServices,
        config: &Value,
        secret: Option<String>,
    ) -> Result<(Self, Vec<String>), String> {
        let parts = GeneratorParts {
            exports: sandbox.exports(GuestIndices::new)?,
            services,
            config: config.to_string(),
            permissions: Arc::new(ResolvedPermissions::new(&manifest.provider, config)),
            secret,
            memo: Arc::default(),
        };
        let generator = Self::new(manifest, origin, sandbox, parts);
        let warnings = generator.check().await.map_err(|error| error.to_string())?;
        Ok((generator, warnings))
    }

    /// The kinds of generators it provides.
    pub fn kinds(&self) -> &BTreeSet<GeneratorKind> {
        &self.manifest.generators
    }

    /// Name of the Secret whose values it may use.
    pub fn secret(&self) -> Option<&str> {
        self.world.secret.as_deref()
    }

    async fn check(&self) -> Result<Vec<String>, MintError> {
        let budget = self.sandbox.budget.for_load();
        // `check` may use no secret.
        let call = self.call(Phase::Check, SecretValues::default());
        let checked = self.sandbox.call_provider(budget, call, async |store, instance| {
            let guest = self.world.exports.load(&mut *store, &instance)?;
            guest.call_check(store, &self.world.config).await
        });
        let (warnings, call) = checked.await?;
        Ok(call.warnings(&warnings))
    }

    /// Generates the parameter sets of a generator of `kind` with `settings`.
    ///
    /// - `max_sets`: maximum parameter sets; one more is an error.
    /// - `time`: time limit; a lower one of the grant takes precedence.
    ///
    /// # Errors
    /// [`MintError`]: why there are none.
    ///
    /// Cancel safe: the instance and its secrets are dropped with the future.
    pub async fn generate(
        &self,
        kind: GeneratorKind,
        settings: &Value,
        set: &ObjectName,
        secret_values: SecretValues,
        max_sets: u64,
        time: Duration,
    ) -> Result<Vec<Map<String, Value>>, MintError> {
        let budget = self.sandbox.budget.within(time);
        let input = GenerateInput {
            kind: kind.as_ref().to_owned(),
            settings: settings.to_string(),
            namespace: set.namespace.clone(),
            name: set.name.clone(),
            config: self.world.config.clone(),
            budget_ms: budget.time_ms(),
        };
        let call = self.call(Phase::Mint(MemoUse::Allowed), secret_values);
        let generated = self.sandbox.call_provider(budget, call, async |store, instance| {
            let guest = self.world.exports.load(&mut *store, &instance)?;
            guest.call_generate(store, &input).await
        });
        let (sets, call) = generated.await?;
        let count = u64::try_from(sets.len()).unwrap_or(u64::MAX);
        if count > max_sets {
            let message = format!("it made {count} sets of parameters, at most {max_sets} are allowed");
            return Err(MintError::new(MintErrorClass::Permanent, "plugin.too-many", &message));
        }
        sets.iter().map(|text| parameters(text, &call)).collect()
    }

    fn call(&self, phase: Phase, secret_values: SecretValues) -> Box<CallState> {
        let parts = &self.world;
        Box::new(CallState::new(
            phase,
            Arc::clone(&parts.permissions),
            Arc::new(secret_values),
            Arc::clone(&parts.memo),
            parts.services.clone(),
        ))
    }
}

fn parameters(text: &str, call: &CallState) -> Result<Map<String, Value>, MintError> {
    let invalid_output = |why: &str| MintError::new(MintErrorClass::Permanent, "plugin.invalid_output", why);
    let mut bytes = text.as_bytes().to_vec();
    // Before it is parsed, so that names of parameters are covered as well.
    call.redactor.replace_secrets(&mut bytes, b"***");
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(parameters)) => Ok(parameters),
        Ok(_) => Err(invalid_output("a set of parameters is no JSON object")),
        Err(_) => Err(invalid_output("a set of parameters is no JSON")),
    }
}
