//! The interface `ambient`: the identities of the gateway's pod. Guests get tokens and keys as
//! handles.
//!
//! Security: an audience must be granted by name.

use std::sync::Arc;

use secrecy::{ExposeSecret, SecretString};
use zeroize::Zeroizing;

use crate::ambient::{Ambient, AmbientError, BearerToken};
use crate::bindings::provider::tollgate::plugin::ambient as wit;
use crate::bindings::secret::{Handle, Secret};
use crate::call_state::{CallState, Phase};
use crate::clock::milliseconds;
use crate::egress_scope::EgressScope;
use crate::host_state::HostState;

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
        // Both must name it: the manifest, which says where the token may go, and the operator.
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
