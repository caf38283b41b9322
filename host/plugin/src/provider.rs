//! Plugins that mint the credentials for clusters. A call returns a [`Credential`], or a
//! [`MintError`] with the requests that led to it.
//!
//! Security: no secret enters guest memory, unless the manifest asks for `reveal` and the operator
//! grants it.

use std::sync::Arc;
use std::time::Duration;

use futures_util::future::BoxFuture;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use zeroize::Zeroizing;

mod public;

pub use public::webapi_public_values;

use crate::bindings::provider::exports::tollgate::plugin::credentials::GuestIndices;
use crate::bindings::provider::tollgate::plugin::provider_types as wit;
use crate::bindings::secret::Secret;
use crate::call_state::{CallState, EgressLog, EgressRecord, HostServices, MemoUse, Phase, SecretValues};
use crate::clock::milliseconds;
use crate::compilation_cache::CodeOrigin;
use crate::egress_scope::EgressScope;
use crate::guest::Guest;
use crate::manifest::Manifest;
use crate::memo::Memo;
use crate::permissions::ResolvedPermissions;
use crate::sandbox::Sandbox;
use tollgate_credential::{Credential, Mint, MintError, MintErrorClass, MintReason, MintRequest};

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
            permissions: Arc::new(ResolvedPermissions::new(&self.manifest.provider, config)),
            config: Arc::from(tollgate_credential::cache::key::canonical_json(config).to_string()),
            schema: self.manifest.config_violations(config),
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
    /// The provider.
    pub provider: Arc<CredentialProvider>,
    cluster: ProviderCluster,
    config: Arc<str>,
    schema: Vec<String>,
    permissions: Arc<ResolvedPermissions>,
    /// The values of the cluster's Secret that it uses.
    pub secret_values: Arc<SecretValues>,
    memo: Arc<Memo>,
}

impl ProviderMint {
    /// Validates the configuration against the manifest's schema, then asks the guest. Returns the
    /// guest's warnings. Sends nothing.
    ///
    /// # Errors
    /// [`MintError`] of class `config`, or `permanent` when the guest fails.
    pub async fn check(&self) -> Result<Vec<String>, MintError> {
        // First, so that the guest sees only what fits its schema.
        self.schema()?;
        let Guest { sandbox, world, .. } = &*self.provider;
        let checked = sandbox.call_provider(
            sandbox.budget.for_load(),
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
        let records = egress_log.records();
        (minted, records)
    }

    async fn mint_now(&self, request: MintRequest, egress_log: &EgressLog) -> Result<Credential, MintError> {
        // Again, for a caller that skipped `check`.
        self.schema()?;
        let memo_use = match request.reason {
            MintReason::Initial | MintReason::Refresh => MemoUse::Allowed,
            MintReason::Unauthorized => {
                // The credential that the cluster rejected may have been made from an entry.
                self.memo.clear();
                MemoUse::Bypassed
            }
        };
        let Guest { sandbox, world, .. } = &*self.provider;
        let budget = sandbox.budget.within(request.budget);
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
            previous_expiry: request.previous_expiry.and_then(milliseconds),
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
            .and_then(|(egress_scope, value)| Some((EgressScope::parse_line(egress_scope)?, value)))
            .unwrap_or_else(|| (EgressScope::none(), kept));
        let bytes = Zeroizing::new(value.as_bytes().to_vec());
        let too_large = || MintError::new(MintErrorClass::Permanent, "plugin.revocation", "too large");
        let secret = Secret::new(bytes, egress_scope).map_err(|_| too_large())?;
        let handle = call.insert_secret(secret).map_err(|_| too_large())?;
        let Guest { sandbox, world, .. } = &*self.provider;
        let budget = sandbox.budget.within(Duration::from_secs(5));
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
        Box::new(CallState::new(
            phase,
            Arc::clone(&self.permissions),
            Arc::clone(&self.secret_values),
            Arc::clone(&self.memo),
            self.provider.world.services.clone(),
        ))
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
