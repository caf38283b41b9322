//! Plugins that generate parameters for ApplicationSets, from a generator's kind and settings and
//! the values of the grant's Secret.
//!
//! Invariant: a generator returns no more than the caller's budget allows.
//!
//! Security: parameters contain no known secret.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use serde_json::{Map, Value};

use super::bindings::generator::exports::tollgate::plugin::generators::{GenerateInput, Guest, GuestIndices};
use super::bindings::provider::tollgate::plugin::provider_types::MintError as Refused;
use super::budget::{self, Budget};
use super::compilation_cache::CodeOrigin;
use super::error::CallError;
use super::imports::GrantedImports;
use super::load::ConfigSchema;
use super::manifest::Manifest;
use super::provider::{
    CallState, HostServices, Memo, MemoUse, Phase, ProviderEnvironment, ProviderGrant, ResolvedPermissions,
    SecretValues, plugin_failed,
};
use super::sandbox::Sandbox;
use crate::credential::{MintError, MintErrorClass};
use tollgate_applicationset::GeneratorKind;
use tollgate_state::ObjectName;

/// Result of a call: what the guest returned, and the host's state of the call.
type CallResult<T> = Result<(Result<T, Refused>, Box<CallState>), CallError>;

/// A loaded plugin of the world `generator`.
pub struct Generator {
    manifest: Manifest,
    label: Arc<str>,
    origin: CodeOrigin,
    sandbox: Sandbox,
    exports: GuestIndices,
    services: HostServices,
    /// The configuration in the operator's grant, canonical.
    config: String,
    permissions: Arc<ResolvedPermissions>,
    /// Secret of the control plane's namespace whose values it may use.
    secret: Option<String>,
    memo: Arc<Memo>,
}

impl fmt::Debug for Generator {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Generator")
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}

impl Generator {
    /// Finds the exports, validates the configuration against the manifest's schema and lets the
    /// guest check it. Returns the guest's warnings.
    ///
    /// # Errors
    /// Why it cannot be used, in sentences.
    pub(super) async fn start(
        (manifest, origin): (Manifest, CodeOrigin),
        (sandbox, _): (Sandbox, GrantedImports),
        (grant, config, secret): (ProviderGrant, &Value, Option<String>),
        environment: &ProviderEnvironment,
    ) -> Result<(Self, Vec<String>), Vec<String>> {
        let exports = GuestIndices::new(sandbox.instance_pre());
        let exports = exports.map_err(|error| vec![format!("the component does not fit its world: {error:#}")])?;
        let findings = ConfigSchema::from_manifest(&manifest).violations(config);
        if !findings.is_empty() {
            return Err(findings);
        }
        let ProviderEnvironment {
            egress_client,
            ambient,
            clock,
        } = environment.clone();
        let generator = Self {
            label: Arc::from(format!("{}@sha256:{}", manifest.name, manifest.sha256)),
            permissions: Arc::new(ResolvedPermissions::new(&manifest.provider, config)),
            manifest,
            origin,
            sandbox,
            exports,
            services: HostServices {
                allow_list: Arc::new(grant.allow_list),
                egress_client,
                ambient,
                audiences: Arc::new(grant.audiences),
                clock,
            },
            config: config.to_string(),
            secret,
            memo: Arc::default(),
        };
        let warnings = generator.check().await.map_err(|error| vec![error.to_string()])?;
        Ok((generator, warnings))
    }

    /// Plugin name.
    pub fn name(&self) -> &str {
        &self.manifest.name
    }

    /// `name@sha256:digest`, for records.
    pub fn label(&self) -> &Arc<str> {
        &self.label
    }

    /// What the plugin says about itself.
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// Whether its code was compiled for this load or came from the cache.
    pub fn origin(&self) -> CodeOrigin {
        self.origin
    }

    /// The kinds of generators it provides.
    pub fn kinds(&self) -> &BTreeSet<GeneratorKind> {
        &self.manifest.generators
    }

    /// Name of the Secret whose values it may use.
    pub fn secret(&self) -> Option<&str> {
        self.secret.as_deref()
    }

    async fn check(&self) -> Result<Vec<String>, MintError> {
        let budget = self.sandbox.budget().for_load();
        let call = self.call(Phase::Check, SecretValues::default());
        let called: CallResult<Vec<String>> = self
            .run(budget, call, async |guest, store| {
                guest.call_check(store, &self.config).await
            })
            .await;
        let (answer, call) = called.map_err(|error| plugin_failed(&error))?;
        match answer {
            Ok(warnings) => Ok(call.warnings(&warnings)),
            Err(error) => Err(call.mint_error(error)),
        }
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
        (kind, settings): (GeneratorKind, &Value),
        set: &ObjectName,
        secret_values: SecretValues,
        (max_sets, time): (u64, Duration),
    ) -> Result<Vec<Map<String, Value>>, MintError> {
        let standard = self.sandbox.budget();
        let budget = Budget {
            time: standard.time.min(time),
            ..standard
        };
        let input = GenerateInput {
            kind: kind.as_str().to_owned(),
            settings: settings.to_string(),
            namespace: set.namespace.clone(),
            name: set.name.clone(),
            config: self.config.clone(),
            budget_ms: u32::try_from(budget.time.as_millis()).unwrap_or(u32::MAX),
        };
        let call = self.call(Phase::Mint(MemoUse::Allowed), secret_values);
        let called: CallResult<Vec<String>> = self
            .run(budget, call, async |guest, store| {
                guest.call_generate(store, &input).await
            })
            .await;
        let (answer, call) = called.map_err(|error| plugin_failed(&error))?;
        let sets = answer.map_err(|error| call.mint_error(error))?;
        let count = u64::try_from(sets.len()).unwrap_or(u64::MAX);
        if count > max_sets {
            let message = format!("it made {count} sets of parameters, at most {max_sets} are allowed");
            return Err(MintError::new(MintErrorClass::Permanent, "plugin.too-many", &message));
        }
        sets.iter().map(|text| parameters(text, &call)).collect()
    }

    fn call(&self, phase: Phase, secret_values: SecretValues) -> Box<CallState> {
        let held = (Arc::clone(&self.permissions), Arc::new(secret_values));
        let mut call = CallState::new(phase, held, Arc::clone(&self.memo), self.services.clone());
        // Responses contain parameters, not credentials. Known secrets are removed from them all
        // the same.
        call.reveals_bodies = true;
        Box::new(call)
    }

    /// Runs one export in a fresh instance.
    async fn run<T, F>(&self, budget: Budget, call: Box<CallState>, export: F) -> CallResult<T>
    where
        F: AsyncFnOnce(Guest, &mut wasmtime::Store<budget::HostState>) -> wasmtime::Result<Result<T, Refused>>,
    {
        let load = |store: &mut wasmtime::Store<budget::HostState>, instance: &_| self.exports.load(store, instance);
        self.sandbox.call((budget, call), load, export).await
    }
}

/// Parses one parameter set, as the guest wrote it.
fn parameters(text: &str, call: &CallState) -> Result<Map<String, Value>, MintError> {
    let invalid_output = |why: &str| MintError::new(MintErrorClass::Permanent, "plugin.lie", why);
    let mut bytes = text.as_bytes().to_vec();
    call.redactor.replace_secrets(&mut bytes, b"***");
    match serde_json::from_slice(&bytes) {
        Ok(Value::Object(parameters)) => Ok(parameters),
        Ok(_) => Err(invalid_output("a set of parameters is no JSON object")),
        Err(_) => Err(invalid_output("a set of parameters is no JSON")),
    }
}
