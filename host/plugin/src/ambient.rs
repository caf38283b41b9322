//! The identities of the gateway's pod: tokens and keys that the cloud or Kubernetes gives it.

use std::fmt;

use futures_util::future::BoxFuture;
use secrecy::SecretString;
use serde_json::Value;

mod pod;

pub(crate) use pod::{PodIdentities, read as read_token};

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
