//! The guest interface to the identities of the gateway's pod. Guests get tokens and keys as
//! handles.
//!
//! Security: an audience must be granted by name.

use std::fmt;

use futures_util::future::BoxFuture;
use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;
use wasmtime::component::Resource;
use zeroize::Zeroizing;

use super::call_state::{CallState, Phase};
use super::egress_scope::EgressScope;
use super::secret::Secret;
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

type AmbientResult<T> = wasmtime::Result<Result<T, wit::AmbientError>>;

impl wit::Host for HostState {
    async fn service_account_token(&mut self, audience: String) -> AmbientResult<wit::Bearer> {
        let call = self.provider_call()?;
        let egress_scope = call.permissions.audience_scope(&audience).cloned();
        let (Some(egress_scope), true) = (egress_scope, call.services.grant.audiences.contains(&audience)) else {
            return Ok(Err(wit::AmbientError::NotGranted));
        };
        if call.phase == Phase::Check {
            return Ok(Err(wit::AmbientError::NotGranted));
        }
        let source = call.services.environment.ambient.clone();
        let bearer = source.service_account_token(audience).await;
        self.provider()?.bearer(bearer, &egress_scope)
    }

    async fn eks_pod_identity(&mut self) -> AmbientResult<wit::AwsCredentials> {
        let Some(source) = self.provider_call()?.ambient() else {
            return Ok(Err(wit::AmbientError::NotGranted));
        };
        let credentials = source.eks_pod_identity().await;
        let call = self.provider()?;
        let egress_scope = call.permissions.all_hosts_scope();
        let AwsCredentials {
            access_key_id,
            secret_access_key,
            session_token,
            expires_at,
        } = match credentials {
            Ok(credentials) => credentials,
            Err(error) => return Ok(Err(error.into())),
        };
        let key = call.insert_pod_secret(&secret_access_key, &egress_scope)?;
        let session = session_token
            .map(|token| call.insert_pod_secret(&token, &egress_scope))
            .transpose()?;
        Ok(Ok(wit::AwsCredentials {
            access_key_id,
            secret_access_key: key,
            session_token: session,
            expires_at: expires_at.and_then(milliseconds),
        }))
    }

    async fn gce_metadata_token(&mut self, scopes: Vec<String>) -> AmbientResult<wit::Bearer> {
        let Some(source) = self.provider_call()?.ambient() else {
            return Ok(Err(wit::AmbientError::NotGranted));
        };
        let bearer = source.gce_metadata_token(scopes).await;
        let call = self.provider()?;
        let egress_scope = call.permissions.all_hosts_scope();
        call.bearer(bearer, &egress_scope)
    }

    async fn azure_imds_token(&mut self, application: String, client_id: Option<String>) -> AmbientResult<wit::Bearer> {
        let Some(source) = self.provider_call()?.ambient() else {
            return Ok(Err(wit::AmbientError::NotGranted));
        };
        let bearer = source.azure_imds_token(application, client_id).await;
        let call = self.provider()?;
        let egress_scope = call.permissions.all_hosts_scope();
        call.bearer(bearer, &egress_scope)
    }
}

impl CallState {
    /// The pod's identities. `None` during `check`.
    fn ambient(&self) -> Option<std::sync::Arc<dyn Ambient>> {
        (self.phase != Phase::Check).then(|| self.services.environment.ambient.clone())
    }

    fn bearer(
        &mut self,
        bearer: Result<BearerToken, AmbientError>,
        egress_scope: &EgressScope,
    ) -> AmbientResult<wit::Bearer> {
        match bearer {
            Ok(BearerToken { token, expires_at }) => Ok(Ok(wit::Bearer {
                token: self.insert_pod_secret(&token, egress_scope)?,
                expires_at: expires_at.and_then(milliseconds),
            })),
            Err(error) => Ok(Err(error.into())),
        }
    }

    fn insert_pod_secret(
        &mut self,
        secret: &SecretString,
        egress_scope: &EgressScope,
    ) -> wasmtime::Result<Resource<Secret>> {
        let bytes = Zeroizing::new(secret.expose_secret().as_bytes().to_vec());
        let secret = Secret::new(bytes, egress_scope.clone()).and_then(|secret| self.insert_secret(secret));
        secret.map_err(|error| wasmtime::Error::msg(error.to_string()))
    }
}

/// Milliseconds since 1970; nothing for a time before.
pub(crate) fn milliseconds(time: jiff::Timestamp) -> Option<u64> {
    u64::try_from(time.as_millisecond()).ok()
}
