//! Groups that are not in the token but at the issuer's userinfo endpoint.
//!
//! In: a verified token. Out: the `groups` of the answer. Never: an answer
//! about somebody else (OpenID Connect Core, section 5.3.2).

use std::time::Duration;

use reqwest::Client;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use url::Url;

use super::error::Unusable;
use super::fetch;
use super::principal::text;

/// Lookups under way at once.
const MAX_LOOKUPS: usize = 32;
/// Time a lookup waits for others to end.
const WAIT: Duration = Duration::from_secs(5);

/// The endpoint of one issuer.
///
/// Argo CD asks with the access token it kept from the sign-in. The gateway
/// has only what the caller sends and asks with that: issuers that take no ID
/// tokens here need callers that send access tokens.
#[derive(Debug)]
pub(super) struct Userinfo {
    client: Client,
    url: Url,
    max_age: Duration,
    permits: Semaphore,
}

impl Userinfo {
    pub(super) fn new(client: Client, url: Url, max_age: Duration) -> Self {
        Self {
            client,
            url,
            max_age,
            permits: Semaphore::new(MAX_LOOKUPS),
        }
    }

    /// How long an answer may be remembered.
    pub(super) fn max_age(&self) -> Duration {
        self.max_age
    }

    /// The `groups` of `subject`, a list or a text; `None` if the answer has
    /// none, then those of the token stay (Argo CD, `SetGroupsFromUserInfo`).
    pub(super) async fn groups(&self, token: &str, subject: &str) -> Result<Option<Value>, Unusable> {
        let permit = tokio::time::timeout(WAIT, self.permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            return Err(Unusable::Busy);
        };
        let mut answer: Map<String, Value> = match fetch::json(&self.client, &self.url, Some(token)).await {
            Ok(answer) => answer,
            Err(error) => {
                tracing::warn!(%error, "userinfo lookup failed");
                return Err(Unusable::Unreachable);
            }
        };
        if subject.is_empty() || text(&answer, "sub") != subject {
            return Err(Unusable::OtherSubject);
        }
        Ok(answer
            .remove("groups")
            .filter(|groups| groups.is_array() || groups.is_string()))
    }
}
