//! Plugins that mint the credentials for clusters. A call returns a [`Credential`], or a
//! [`MintError`] with the requests that led to it.
//!
//! Security: no secret enters guest memory, unless the manifest asks for `reveal` and the operator
//! grants it.

use std::collections::BTreeSet;
use std::fmt;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use wasmtime::component::Resource;
use zeroize::Zeroizing;

mod ambient;
mod call_state;
mod convert;
mod crypto;
mod egress_scope;
mod memo;
mod outgoing;
mod permissions;
mod pod;
mod public;
mod redact;
mod redacted_body;
pub(crate) mod secret;
mod secrets;

pub use ambient::{Ambient, AmbientError, AwsCredentials, BearerToken};
pub(super) use call_state::{CallState, HostServices, MemoUse, Phase};
pub use call_state::{EgressRecord, SecretValues, SystemWallClock, WallClock};
pub(crate) use egress_scope::{HostTemplate, TextTemplate};
pub(crate) use permissions::ProviderPermissions;
pub(crate) use permissions::{AudiencePermission, CapturePermission, SecretPermission};
pub use pod::PodIdentities;
pub(crate) use pod::read as read_token;
pub use public::webapi_public_values;
pub(crate) use redact::Redactor;

pub(super) use memo::Memo;
pub(super) use permissions::ResolvedPermissions;

use super::bindings::provider::exports::tollgate::plugin::credentials::GuestIndices;
use super::bindings::provider::tollgate::plugin::provider_types as wit;
use super::budget::Budget;
use super::compilation_cache::CodeOrigin;
use super::egress::{EgressAllowList, EgressClient};
use super::error::{CallError, TrapCause};
use super::imports::GrantedImports;
use super::load::ConfigSchema;
use super::manifest::Manifest;
use super::sandbox::Sandbox;
use crate::credential::{Credential, Mint, MintError, MintErrorClass, MintReason, MintRequest};
use tollgate_core::plugin::Import;

/// The environment that all providers of a gateway share.
#[derive(Clone, Debug)]
pub struct ProviderEnvironment {
    /// Client of the network.
    pub egress_client: Arc<EgressClient>,
    /// The pod's identities.
    pub ambient: Arc<dyn Ambient>,
    /// The clock guests and expiry times see.
    pub clock: Arc<dyn WallClock>,
}

/// What the operator grants a provider beyond imports and budget.
#[derive(Clone, Debug, Default)]
pub(super) struct ProviderGrant {
    pub(super) allow_list: EgressAllowList,
    pub(super) audiences: BTreeSet<String>,
    /// Digest of everything that is granted, for the keys of caches.
    pub(super) digest: String,
}

/// A cluster, as providers see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ProviderCluster {
    /// Its name.
    pub name: String,
    /// URL of its API server.
    pub server: String,
}

/// A loaded plugin of the world `credential-provider`.
pub struct CredentialProvider {
    manifest: Manifest,
    label: Arc<str>,
    origin: CodeOrigin,
    sandbox: Sandbox,
    exports: GuestIndices,
    services: HostServices,
    reveals_bodies: bool,
    grant: String,
    /// Compiled once; every cluster's configuration is validated against it.
    schema: ConfigSchema,
}

impl fmt::Debug for CredentialProvider {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Provider")
            .field("label", &self.label)
            .finish_non_exhaustive()
    }
}

impl CredentialProvider {
    /// Finds the exports; runs nothing.
    pub(super) fn start(
        (manifest, origin): (Manifest, CodeOrigin),
        (sandbox, granted): (Sandbox, GrantedImports),
        grant: ProviderGrant,
        environment: &ProviderEnvironment,
    ) -> Result<Self, wasmtime::Error> {
        let exports = GuestIndices::new(sandbox.instance_pre())?;
        let schema = ConfigSchema::from_manifest(&manifest);
        let ProviderEnvironment {
            egress_client,
            ambient,
            clock,
        } = environment.clone();
        Ok(Self {
            label: Arc::from(format!("{}@sha256:{}", manifest.name, manifest.sha256)),
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
            reveals_bodies: granted.has(Import::Reveal),
            grant: grant.digest,
            schema,
        })
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

    /// Digest of what the operator grants it.
    pub fn grant_digest(&self) -> &str {
        &self.grant
    }

    /// The mint of a cluster. Call [`ProviderMint::check`] before its credentials are used.
    pub fn mint_for(
        self: &Arc<Self>,
        cluster: ProviderCluster,
        config: &Value,
        secret_values: SecretValues,
    ) -> ProviderMint {
        ProviderMint {
            permissions: Arc::new(ResolvedPermissions::new(&self.manifest.provider, config)),
            config: Arc::from(crate::credential::cache::key::canonical_json(config).to_string()),
            schema: self.schema.violations(config),
            provider: Arc::clone(self),
            cluster,
            secret_values: Arc::new(secret_values),
            memo: Arc::new(Memo::default()),
        }
    }
}

/// Mints the credentials of one cluster through a provider plugin.
#[derive(Clone)]
pub struct ProviderMint {
    provider: Arc<CredentialProvider>,
    cluster: ProviderCluster,
    config: Arc<str>,
    /// Violations of the manifest's schema by the configuration.
    schema: Vec<String>,
    permissions: Arc<ResolvedPermissions>,
    secret_values: Arc<SecretValues>,
    memo: Arc<Memo>,
}

impl fmt::Debug for ProviderMint {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("ProviderMint")
            .field("provider", &self.provider)
            .field("cluster", &self.cluster)
            .field("material", &self.secret_values)
            .finish_non_exhaustive()
    }
}

/// Result of a guest's call: what the guest returned, and the host's state of the call.
type CallResult<T> = Result<(Result<T, wit::MintError>, Box<CallState>), CallError>;

impl ProviderMint {
    /// The provider.
    pub fn provider(&self) -> &Arc<CredentialProvider> {
        &self.provider
    }

    /// The cluster.
    pub fn cluster(&self) -> &ProviderCluster {
        &self.cluster
    }

    /// The configuration, canonical.
    pub fn config(&self) -> &str {
        &self.config
    }

    /// The values of the cluster's Secret that it uses.
    pub fn secret_values(&self) -> &SecretValues {
        &self.secret_values
    }

    /// Validates the configuration against the manifest's schema, then asks the guest. Returns the
    /// guest's warnings. Sends nothing.
    ///
    /// # Errors
    /// [`MintError`] of class `config`, or `permanent` when the guest fails.
    pub async fn check(&self) -> Result<Vec<String>, MintError> {
        self.schema()?;
        let budget = self.provider.sandbox.budget().for_load();
        let call = self.call(Phase::Check, &EgressLog::default());
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

    /// Mints a credential, and returns the requests that were sent for it.
    ///
    /// Cancel safe: the instance and its secrets are dropped with the future.
    pub async fn mint_traced(&self, request: MintRequest) -> (Result<Credential, MintError>, Vec<EgressRecord>) {
        let egress_log = EgressLog::default();
        let minted = self.mint_now(request, &egress_log).await;
        let records = egress_log.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        (minted, records)
    }

    async fn mint_now(&self, request: MintRequest, egress_log: &EgressLog) -> Result<Credential, MintError> {
        self.schema()?;
        let memo_use = match request.reason {
            MintReason::Initial | MintReason::Refresh => MemoUse::Allowed,
            MintReason::Unauthorized => {
                self.memo.clear();
                MemoUse::Bypassed
            }
        };
        let budget = self.budget(request.budget);
        let input = wit::MintInput {
            cluster: wit::Cluster {
                name: self.cluster.name.clone(),
                server: self.cluster.server.clone(),
            },
            config: self.config.to_string(),
            reason: match request.reason {
                MintReason::Initial => wit::Reason::Initial,
                MintReason::Refresh => wit::Reason::Refresh,
                MintReason::Unauthorized => wit::Reason::Unauthorized,
            },
            previous_expiry: request.previous_expiry.and_then(ambient::milliseconds),
            budget_ms: u32::try_from(budget.time.as_millis()).unwrap_or(u32::MAX),
        };
        let call = self.call(Phase::Mint(memo_use), egress_log);
        let called: CallResult<_> = self
            .run(budget, call, async |guest, store| guest.call_mint(store, &input).await)
            .await;
        let (answer, mut call) = called.map_err(|error| plugin_failed(&error))?;
        match answer {
            Ok(credential) => call.credential(credential),
            Err(error) => Err(call.mint_error(error)),
        }
    }

    /// Revokes what a mint created.
    ///
    /// # Errors
    /// [`MintError`]; nothing is tried again.
    pub async fn revoke_now(&self, revocation: &SecretString) -> Result<(), MintError> {
        let budget = self.budget(Duration::from_secs(5));
        let egress_log = EgressLog::default();
        let mut call = self.call(Phase::Revoke, &egress_log);
        let unusable = |why: &str| MintError::new(MintErrorClass::Permanent, "plugin.revocation", why);
        let kept = revocation.expose_secret();
        // A value without a stored scope may be sent nowhere.
        let (egress_scope, value) = kept
            .split_once('\n')
            .and_then(|(egress_scope, value)| Some((egress_scope::EgressScope::parse_line(egress_scope)?, value)))
            .unwrap_or_else(|| (egress_scope::EgressScope::none(), kept));
        let bytes = Zeroizing::new(value.as_bytes().to_vec());
        let kept = secret::Secret::new(bytes, egress_scope).and_then(|secret| call.insert_secret(secret));
        let handle = kept.map_err(|_| unusable("too large"))?;
        let called: CallResult<()> = self
            .run(budget, call, async |guest, store| {
                let handle = Resource::new_own(handle.rep());
                guest.call_revoke(store, &self.config, handle).await
            })
            .await;
        let (answer, call) = called.map_err(|error| plugin_failed(&error))?;
        answer.map_err(|error| call.mint_error(error))
    }

    fn schema(&self) -> Result<(), MintError> {
        if self.schema.is_empty() {
            return Ok(());
        }
        Err(MintError::new(
            MintErrorClass::Config,
            "config.schema",
            &self.schema.join("; "),
        ))
    }

    fn budget(&self, wanted: Duration) -> Budget {
        let budget = self.provider.sandbox.budget();
        Budget {
            time: budget.time.min(wanted),
            ..budget
        }
    }

    fn call(&self, phase: Phase, egress_log: &EgressLog) -> Box<CallState> {
        let held = (Arc::clone(&self.permissions), Arc::clone(&self.secret_values));
        let mut call = CallState::new(phase, held, Arc::clone(&self.memo), self.provider.services.clone());
        call.reveals_bodies = self.provider.reveals_bodies;
        call.egress_log = egress_log.clone();
        Box::new(call)
    }

    /// Runs one export in a fresh instance.
    async fn run<T, F>(&self, budget: Budget, call: Box<CallState>, export: F) -> CallResult<T>
    where
        F: AsyncFnOnce(
            super::bindings::provider::exports::tollgate::plugin::credentials::Guest,
            &mut wasmtime::Store<super::budget::HostState>,
        ) -> wasmtime::Result<Result<T, wit::MintError>>,
    {
        let exports = &self.provider.exports;
        let load = |store: &mut wasmtime::Store<super::budget::HostState>, instance: &_| exports.load(store, instance);
        self.provider.sandbox.call((budget, call), load, export).await
    }
}

impl Mint for ProviderMint {
    fn mint(&self, request: MintRequest) -> BoxFuture<'static, Result<Credential, MintError>> {
        let source = self.clone();
        Box::pin(async move { source.mint_traced(request).await.0 })
    }

    fn revoke(&self, revocation: SecretString) -> BoxFuture<'static, Result<(), MintError>> {
        let source = self.clone();
        Box::pin(async move { source.revoke_now(&revocation).await })
    }
}

/// The requests that one call sent. Available even if the call was cut off.
#[derive(Clone, Debug, Default)]
pub(crate) struct EgressLog(Arc<Mutex<Vec<EgressRecord>>>);

impl EgressLog {
    fn push(&self, exchange: EgressRecord) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).push(exchange);
    }
}

/// Converts the failure of a guest to a [`MintError`].
pub(super) fn plugin_failed(error: &CallError) -> MintError {
    let (class, code) = match error {
        CallError::Busy { .. } => (MintErrorClass::Retryable, "plugin.busy"),
        CallError::Timeout { .. } | CallError::Memory { .. } => (MintErrorClass::Permanent, "plugin.budget"),
        CallError::Trap {
            cause: TrapCause::HostCalls | TrapCause::HostData,
            ..
        } => (MintErrorClass::Permanent, "plugin.budget"),
        CallError::Trap { .. } => (MintErrorClass::Permanent, "plugin.trap"),
        CallError::Refused { .. } | CallError::InvalidOutput { .. } => (MintErrorClass::Permanent, "plugin.lie"),
    };
    MintError::new(class, code, &error.to_string())
}
