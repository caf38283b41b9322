//! The pod's identities (`ambient`) and the stopped clock (`now`) of a case. Neither reads a file
//! or an address of the machine.

use std::sync::{Mutex, PoisonError};

use futures_util::future::BoxFuture;
use jiff::{SignedDuration, Timestamp};
use secrecy::SecretString;
use serde_json::Value;

use crate::provider::{Ambient, AmbientError, AwsCredentials, BearerToken, WallClock};

/// A clock that stands still until it is set.
#[derive(Debug, Default)]
pub(super) struct ManualClock(Mutex<Timestamp>);

impl ManualClock {
    pub(super) fn set(&self, now: Timestamp) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = now;
    }
}

impl WallClock for ManualClock {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The pod identities that a case defines: `sa-token` {audience, token}, `eks-pod-identity`,
/// `gce-metadata` and `azure-imds` in the words of their sources.
#[derive(Default)]
pub(super) struct CaseAmbient(Mutex<(Value, Timestamp)>);

impl std::fmt::Debug for CaseAmbient {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Pod")
    }
}

impl CaseAmbient {
    pub(super) fn set(&self, given: Value, now: Timestamp) {
        *self.0.lock().unwrap_or_else(PoisonError::into_inner) = (given, now);
    }

    fn given(&self, key: &str) -> Result<(Value, Timestamp), AmbientError> {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let given = held.0.get(key).cloned();
        let missing = || AmbientError::Unavailable(format!("the case has no `ambient.{key}`"));
        Ok((given.ok_or_else(missing)?, held.1))
    }

    fn bearer(&self, key: &str) -> Result<BearerToken, AmbientError> {
        let (given, now) = self.given(key)?;
        let seconds = given.get("expires_in").and_then(|seconds| match seconds {
            Value::String(text) => text.parse().ok(),
            Value::Number(number) => number.as_i64(),
            Value::Null | Value::Bool(_) | Value::Array(_) | Value::Object(_) => None,
        });
        Ok(BearerToken {
            token: secret(&given, "access_token")?,
            expires_at: seconds.and_then(|seconds| now.checked_add(SignedDuration::from_secs(seconds)).ok()),
        })
    }
}

fn text<'a>(given: &'a Value, key: &str) -> Result<&'a str, AmbientError> {
    let text = given.get(key).and_then(Value::as_str);
    text.ok_or_else(|| AmbientError::Unavailable(format!("the identity of the case has no `{key}`")))
}

fn secret(given: &Value, key: &str) -> Result<SecretString, AmbientError> {
    Ok(SecretString::from(text(given, key)?))
}

impl Ambient for CaseAmbient {
    fn service_account_token(&self, audience: String) -> BoxFuture<'_, Result<BearerToken, AmbientError>> {
        Box::pin(async move {
            let (given, _) = self.given("sa-token")?;
            if text(&given, "audience")? != audience {
                return Err(AmbientError::Unavailable(format!(
                    "the case has no token for `{audience}`"
                )));
            }
            Ok(BearerToken {
                token: secret(&given, "token")?,
                expires_at: None,
            })
        })
    }

    fn eks_pod_identity(&self) -> BoxFuture<'_, Result<AwsCredentials, AmbientError>> {
        Box::pin(async move {
            let (given, _) = self.given("eks-pod-identity")?;
            let expires_at = given.get("Expiration").and_then(Value::as_str);
            Ok(AwsCredentials {
                access_key_id: text(&given, "AccessKeyId")?.to_owned(),
                secret_access_key: secret(&given, "SecretAccessKey")?,
                session_token: given.get("Token").map(|_| secret(&given, "Token")).transpose()?,
                expires_at: expires_at.and_then(|end| end.parse().ok()),
            })
        })
    }

    fn gce_metadata_token(&self, _: Vec<String>) -> BoxFuture<'_, Result<BearerToken, AmbientError>> {
        Box::pin(async move { self.bearer("gce-metadata") })
    }

    fn azure_imds_token(&self, _: String, _: Option<String>) -> BoxFuture<'_, Result<BearerToken, AmbientError>> {
        Box::pin(async move { self.bearer("azure-imds") })
    }
}
