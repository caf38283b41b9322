//! Fetches groups that are not in the token from the issuer's userinfo endpoint.
//!
//! Security: an answer about another subject is refused (OpenID Connect Core, section 5.3.2).

use std::time::Duration;

use reqwest::Client;
use serde_json::{Map, Value};
use tokio::sync::Semaphore;
use url::Url;

use super::error::UserinfoError;
use super::fetch::{self, FetchError};
use super::principal::string_claim;
use super::verified_tokens::{VerifiedTokens, sha256};
use crate::http_client::Authority;

const MAX_LOOKUPS: usize = 32;
/// How long a lookup waits for others to end, at most.
const WAIT: Duration = Duration::from_secs(5);

/// The endpoint of one issuer.
///
/// Argo CD sends the access token it kept from the sign-in. The gateway sends the token it got
/// from the caller, so an issuer that does not accept ID tokens here needs callers that send
/// access tokens.
///
/// Security: it outlives reloads with its answers, so none is used for longer than `max_age`, and only for a
/// token that was verified now.
#[derive(Debug)]
pub(super) struct UserinfoClient {
    client: Client,
    pub(super) settings: UserinfoSettings,
    permits: Semaphore,
    answers: VerifiedTokens<[u8; 32], Answer>,
}

/// What a client was made of. A reload keeps the client if it is equal.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct UserinfoSettings {
    pub(super) issuer: String,
    pub(super) url: Url,
    pub(super) authority: Option<Authority>,
    /// How long an answer may be cached.
    pub(super) max_age: Duration,
}

#[derive(Clone, Debug)]
struct Answer {
    subject: String,
    groups: Option<Value>,
    /// Seconds since 1970 from which it no longer counts.
    until: i64,
}

impl UserinfoClient {
    pub(super) fn new(settings: UserinfoSettings) -> Result<Self, FetchError> {
        let UserinfoSettings { url, authority, .. } = &settings;
        let client = fetch::client(url, &fetch::OwnHosts::of(&[url]), authority.as_ref(), None)?;
        Ok(Self {
            client,
            settings,
            permits: Semaphore::new(MAX_LOOKUPS),
            answers: VerifiedTokens::new(),
        })
    }

    /// Returns the `groups` of `subject`, a list or a text, and for how long they count. With `None`, the
    /// answer has none, and those of the token stay (Argo CD, `SetGroupsFromUserInfo`).
    ///
    /// - `now`, `expires_at`: seconds since 1970.
    pub(super) async fn groups(
        &self,
        token: &str,
        subject: &str,
        now: i64,
        expires_at: Option<i64>,
    ) -> Result<(Option<Value>, Duration), UserinfoError> {
        let key = sha256(token);
        let known = self.answers.get(&key, now).filter(|known| known.subject == subject);
        if let Some(Answer { groups, until, .. }) = known {
            let left = u64::try_from(until.saturating_sub(now)).unwrap_or_default();
            return Ok((groups, Duration::from_secs(left)));
        }
        let groups = self.look_up(token, subject).await?;
        let max_age = self.settings.max_age;
        let answer = Answer {
            subject: subject.to_owned(),
            groups: groups.clone(),
            until: now.saturating_add_unsigned(max_age.as_secs()),
        };
        self.answers.insert(key, token, answer, Some(max_age), now, expires_at);
        Ok((groups, max_age))
    }

    async fn look_up(&self, token: &str, subject: &str) -> Result<Option<Value>, UserinfoError> {
        let permit = tokio::time::timeout(WAIT, self.permits.acquire()).await;
        let Ok(Ok(_permit)) = permit else {
            return Err(UserinfoError::Busy);
        };
        let answer = fetch::fetch_json(&self.client, &self.settings.url, Some(token)).await;
        let mut answer: Map<String, Value> = answer.map_err(|error| {
            tracing::warn!(%error, "userinfo lookup failed");
            UserinfoError::Unreachable
        })?;
        // Two subjects that are missing would be equal.
        if subject.is_empty() || string_claim(&answer, "sub") != subject {
            return Err(UserinfoError::OtherSubject);
        }
        let groups = answer.remove("groups");
        Ok(groups.filter(|groups| groups.is_array() || groups.is_string()))
    }
}
