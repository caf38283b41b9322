//! Fetches groups that are not in the token from the issuer's userinfo endpoint.
//!
//! Security: an answer about another subject is refused (OpenID Connect Core, section 5.3.2).

use std::time::Duration;

use reqwest::Client;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use url::Url;

use super::error::UserinfoError;
use super::fetch;
use super::principal::string_claim;

const MAX_LOOKUPS: usize = 32;
/// How long a lookup waits for others to end, at most.
const WAIT: Duration = Duration::from_secs(5);

/// The endpoint of one issuer.
///
/// Argo CD sends the access token it kept from the sign-in. The gateway sends the token it got
/// from the caller, so an issuer that does not accept ID tokens here needs callers that send
/// access tokens.
#[derive(Debug)]
pub(super) struct UserinfoClient {
    client: Client,
    url: Url,
    /// How long an answer may be cached.
    pub(super) max_age: Duration,
    permits: Semaphore,
}

impl UserinfoClient {
    pub(super) fn new(client: Client, url: Url, max_age: Duration) -> Self {
        Self {
            client,
            url,
            max_age,
            permits: Semaphore::new(MAX_LOOKUPS),
        }
    }

    /// Returns the `groups` of `subject`, a list or a text. With `None`, the answer has none, and
    /// those of the token stay (Argo CD, `SetGroupsFromUserInfo`).
    pub(super) async fn groups(&self, token: &str, subject: &str) -> Result<Option<Value>, UserinfoError> {
        let permit = tokio::time::timeout(WAIT, self.permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            return Err(UserinfoError::Busy);
        };
        let answer = fetch::fetch_json(&self.client, &self.url, Some(token)).await;
        let mut answer: Map<String, Value> = answer.map_err(|error| {
            tracing::warn!(%error, "userinfo lookup failed");
            UserinfoError::Unreachable
        })?;
        if subject.is_empty() || string_claim(&answer, "sub") != subject {
            return Err(UserinfoError::OtherSubject);
        }
        let groups = answer.remove("groups");
        Ok(groups.filter(|groups| groups.is_array() || groups.is_string()))
    }
}
