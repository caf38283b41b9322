//! Plugins that mint the credentials for clusters. A call returns a [`Credential`], or a
//! [`MintError`] with the requests that led to it.
//!
//! Security: no secret enters guest memory, unless the manifest asks for `reveal` and the operator
//! grants it.

use std::collections::BTreeSet;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::future::BoxFuture;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
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
use call_state::SystemWallClock;
pub(super) use call_state::{CallState, HostServices, MemoUse, Phase};
pub use call_state::{EgressRecord, SecretValues, WallClock};
pub(crate) use egress_scope::{HostTemplate, TextTemplate};
pub(crate) use permissions::{AudiencePermission, CapturePermission, ProviderPermissions, SecretPermission};
use pod::PodIdentities;
pub(crate) use pod::read as read_token;
pub use public::webapi_public_values;
pub(crate) use redact::Redactor;

pub(super) use memo::Memo;
pub(super) use permissions::ResolvedPermissions;

use super::bindings::provider::exports::tollgate::plugin::credentials::GuestIndices;
use super::bindings::provider::tollgate::plugin::provider_types as wit;
use super::compilation_cache::CodeOrigin;
use super::egress::{EgressAllowList, EgressClient};
use super::error::{CallError, TrapCause};
use super::guest::Guest;
use super::manifest::Manifest;
use super::sandbox::Sandbox;
use tollgate_credential::{Credential, Mint, MintError, MintErrorClass, MintReason, MintRequest};

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

impl ProviderEnvironment {
    /// The machine's network and clock, and the identities of this pod.
    pub fn of_pod(ambient: &tollgate_config::Ambient) -> Self {
        Self {
            egress_client: Arc::default(),
            ambient: Arc::new(PodIdentities::new(ambient)),
            clock: Arc::new(SystemWallClock),
        }
    }
}

/// What the operator grants a provider beyond imports and budget.
pub(crate) struct ProviderGrant {
    pub(crate) allow_list: EgressAllowList,
    pub(crate) audiences: BTreeSet<String>,
    /// Digest of everything that is granted, for the keys of caches.
    pub(crate) digest: String,
}

/// A cluster, as providers see it.
#[derive(Clone, Debug, PartialEq, Eq, serde::Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ProviderCluster {
    /// Its name.
    pub name: String,
    /// URL of its API server.
    pub server: String,
}

/// A loaded plugin of the world `credential-provider`.
pub type CredentialProvider = Guest<ProviderParts>;

/// What a credential provider has beside its code.
#[expect(missing_debug_implementations, reason = "the generated exports have none")]
pub struct ProviderParts {
    exports: GuestIndices,
    services: HostServices,
}

impl CredentialProvider {
    /// Finds the exports; runs nothing.
    pub(super) fn start(
        manifest: Manifest,
        origin: CodeOrigin,
        sandbox: Sandbox,
        services: HostServices,
    ) -> Result<Self, String> {
        let exports = sandbox.exports(GuestIndices::new)?;
        Ok(Self::new(
            manifest,
            origin,
            sandbox,
            ProviderParts { exports, services },
        ))
    }

    pub(crate) fn grant_digest(&self) -> &str {
        &self.world.services.grant.digest
    }

    /// The mint of a cluster. Call [`ProviderMint::check`] before its credentials are used.
    pub fn mint_for(
        self: &Arc<Self>,
        cluster: ProviderCluster,
        config: &Value,
        secret_values: SecretValues,
    ) -> ProviderMint {
        ProviderMint {
            permissions: Arc::new(ResolvedPermissions::new(&self.manifest().provider, config)),
            config: Arc::from(tollgate_credential::cache::key::canonical_json(config).to_string()),
            schema: self.manifest().config_violations(config),
            provider: Arc::clone(self),
            cluster,
            secret_values: Arc::new(secret_values),
            memo: Arc::new(Memo::default()),
        }
    }
}

/// Mints the credentials of one cluster through a provider plugin.
#[derive(Clone, derive_more::Debug)]
#[debug("ProviderMint {{ provider: {provider:?}, cluster: {cluster:?}, material: {secret_values:?}, .. }}")]
pub struct ProviderMint {
    provider: Arc<CredentialProvider>,
    cluster: ProviderCluster,
    config: Arc<str>,
    schema: Vec<String>,
    permissions: Arc<ResolvedPermissions>,
    secret_values: Arc<SecretValues>,
    memo: Arc<Memo>,
}

impl ProviderMint {
    /// The provider.
    pub fn provider(&self) -> &Arc<CredentialProvider> {
        &self.provider
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
        let Guest { sandbox, world, .. } = &*self.provider;
        let checked = sandbox.call_provider(
            sandbox.budget().for_load(),
            self.call(Phase::Check),
            async |store, instance| {
                let guest = world.exports.load(&mut *store, &instance)?;
                guest.call_check(store, &self.config).await
            },
        );
        let (warnings, call) = checked.await?;
        Ok(call.warnings(&warnings))
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
        let Guest { sandbox, world, .. } = &*self.provider;
        let budget = sandbox.budget().within(request.budget);
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
            budget_ms: budget.time_ms(),
        };
        let mut call = self.call(Phase::Mint(memo_use));
        call.egress_log = egress_log.clone();
        let minted = sandbox.call_provider(budget, call, async |store, instance| {
            let guest = world.exports.load(&mut *store, &instance)?;
            guest.call_mint(store, &input).await
        });
        let (credential, mut call) = minted.await?;
        call.credential(credential)
    }

    /// Revokes what a mint created.
    ///
    /// # Errors
    /// [`MintError`]; nothing is tried again.
    pub async fn revoke_now(&self, revocation: &SecretString) -> Result<(), MintError> {
        let mut call = self.call(Phase::Revoke);
        let kept = revocation.expose_secret();
        // A value without a stored scope may be sent nowhere.
        let (egress_scope, value) = kept
            .split_once('\n')
            .and_then(|(egress_scope, value)| Some((egress_scope::EgressScope::parse_line(egress_scope)?, value)))
            .unwrap_or_else(|| (egress_scope::EgressScope::none(), kept));
        let bytes = Zeroizing::new(value.as_bytes().to_vec());
        let too_large = || MintError::new(MintErrorClass::Permanent, "plugin.revocation", "too large");
        let secret = secret::Secret::new(bytes, egress_scope).map_err(|_| too_large())?;
        let handle = call.insert_secret(secret).map_err(|_| too_large())?;
        let Guest { sandbox, world, .. } = &*self.provider;
        let budget = sandbox.budget().within(Duration::from_secs(5));
        let revoked = sandbox.call_provider(budget, call, async |store, instance| {
            let guest = world.exports.load(&mut *store, &instance)?;
            guest.call_revoke(store, &self.config, handle).await
        });
        revoked.await.map(drop)
    }

    fn schema(&self) -> Result<(), MintError> {
        if self.schema.is_empty() {
            return Ok(());
        }
        let violations = self.schema.join("; ");
        Err(MintError::new(MintErrorClass::Config, "config.schema", &violations))
    }

    fn call(&self, phase: Phase) -> Box<CallState> {
        let held = (Arc::clone(&self.permissions), Arc::clone(&self.secret_values));
        let services = self.provider.world.services.clone();
        Box::new(CallState::new(phase, held, Arc::clone(&self.memo), services))
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
