//! The guest interface to the identities of the gateway's pod. Guests get tokens and keys as
//! handles.
//!
//! Security: an audience must be granted by name.

use std::fmt;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use zeroize::Zeroizing;

use super::call_state::{CallState, Phase};
use super::egress_scope::EgressScope;
use super::secret::{Handle, Secret};
use crate::bindings::provider::tollgate::plugin::ambient as wit;
use crate::budget::HostState;

/// A source of the pod's identities. The real one reads projected files and asks link-local
/// addresses; tests replace it.
pub trait Ambient: Send + Sync + fmt::Debug + 'static {
    /// A projected ServiceAccount token for `audience`, read again each time.
    fn service_account_token(&self, audience: String) -> BoxFuture<'_, Result<BearerToken, AmbientError>>;

    /// Credentials of the EKS Pod Identity agent.
    fn eks_pod_identity(&self) -> BoxFuture<'_, Result<AwsCredentials, AmbientError>>;

    /// An access token of the GCE metadata server.
    fn gce_metadata_token(&self, scopes: Vec<String>) -> BoxFuture<'_, Result<BearerToken, AmbientError>>;

    /// An access token of Azure's instance metadata service.
    fn azure_imds_token(
        &self,
        application: String,
        client_id: Option<String>,
    ) -> BoxFuture<'_, Result<BearerToken, AmbientError>>;
}

/// A bearer token of the pod.
#[derive(Debug)]
pub struct BearerToken {
    /// The token.
    pub token: SecretString,
    /// When it expires, if known.
    pub expires_at: Option<jiff::Timestamp>,
}

impl BearerToken {
    /// The token of an `answer` given at `now`. Its `expires_in` is a number or, at Azure, a text of
    /// digits.
    pub(crate) fn expiring(token: SecretString, answer: &Value, now: jiff::Timestamp) -> Self {
        let seconds = answer.get("expires_in").and_then(|left| match left {
            Value::String(text) => text.parse().ok(),
            left => left.as_i64(),
        });
        let end = |seconds| now.checked_add(jiff::SignedDuration::from_secs(seconds)).ok();
        Self {
            token,
            expires_at: seconds.and_then(end),
        }
    }
}

/// AWS credentials of the pod.
#[derive(Debug)]
pub struct AwsCredentials {
    /// Not secret.
    pub access_key_id: String,
    /// The key.
    pub secret_access_key: SecretString,
    /// The session, for temporary credentials.
    pub session_token: Option<SecretString>,
    /// When they expire.
    pub expires_at: Option<jiff::Timestamp>,
}

/// Why there is no identity.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum AmbientError {
    /// It is not available now, or not in this environment.
    #[error("{0}")]
    Unavailable(String),
    /// Its source refuses.
    #[error("{0}")]
    Denied(String),
}

impl From<AmbientError> for wit::AmbientError {
    fn from(error: AmbientError) -> Self {
        match error {
            AmbientError::Unavailable(text) => Self::Unavailable(text),
            AmbientError::Denied(text) => Self::Denied(text),
        }
    }
}

impl wit::Host for HostState {
    fn convert_ambient_error(&mut self, error: wasmtime::Error) -> wasmtime::Result<wit::AmbientError> {
        let of_source = |error: wasmtime::Error| error.downcast::<AmbientError>().map(Into::into);
        error.downcast().or_else(of_source)
    }

    async fn service_account_token(&mut self, audience: String) -> wasmtime::Result<wit::Bearer> {
        let call = self.provider_call()?;
        let is_granted = call.services.grant.audiences.contains(&audience);
        let egress_scope = call.permissions.audience_scope(&audience).filter(|_| is_granted);
        let egress_scope = egress_scope.ok_or(wit::AmbientError::NotGranted)?.clone();
        let bearer = call.ambient()?.service_account_token(audience).await?;
        self.provider()?.bearer(&bearer, egress_scope)
    }

    async fn eks_pod_identity(&mut self) -> wasmtime::Result<wit::AwsCredentials> {
        let credentials = self.provider_call()?.ambient()?.eks_pod_identity().await?;
        let call = self.provider()?;
        let mut insert = |secret: &SecretString| call.insert_pod_secret(secret, call.permissions.all_hosts_scope());
        Ok(wit::AwsCredentials {
            access_key_id: credentials.access_key_id,
            secret_access_key: insert(&credentials.secret_access_key)?,
            session_token: credentials.session_token.as_ref().map(insert).transpose()?,
            expires_at: credentials.expires_at.and_then(milliseconds),
        })
    }

    async fn gce_metadata_token(&mut self, scopes: Vec<String>) -> wasmtime::Result<wit::Bearer> {
        let bearer = self.provider_call()?.ambient()?.gce_metadata_token(scopes).await?;
        let call = self.provider()?;
        call.bearer(&bearer, call.permissions.all_hosts_scope())
    }

    async fn azure_imds_token(
        &mut self,
        application: String,
        client_id: Option<String>,
    ) -> wasmtime::Result<wit::Bearer> {
        let source = self.provider_call()?.ambient()?;
        let bearer = source.azure_imds_token(application, client_id).await?;
        let call = self.provider()?;
        call.bearer(&bearer, call.permissions.all_hosts_scope())
    }
}

impl CallState {
    /// The pod's identities, which `check` does not get.
    fn ambient(&self) -> Result<Arc<dyn Ambient>, wit::AmbientError> {
        match self.phase {
            Phase::Check => Err(wit::AmbientError::NotGranted),
            Phase::Mint(_) | Phase::Revoke => Ok(self.services.environment.ambient.clone()),
        }
    }

    fn bearer(&mut self, bearer: &BearerToken, egress_scope: EgressScope) -> wasmtime::Result<wit::Bearer> {
        Ok(wit::Bearer {
            token: self.insert_pod_secret(&bearer.token, egress_scope)?,
            expires_at: bearer.expires_at.and_then(milliseconds),
        })
    }

    fn insert_pod_secret(&mut self, secret: &SecretString, egress_scope: EgressScope) -> wasmtime::Result<Handle> {
        let bytes = Zeroizing::new(secret.expose_secret().as_bytes().to_vec());
        self.insert_secret(Secret::new(bytes, egress_scope)?)
    }
}

/// Milliseconds since 1970; nothing for a time before.
pub(crate) fn milliseconds(time: jiff::Timestamp) -> Option<u64> {
    u64::try_from(time.as_millisecond()).ok()
}
