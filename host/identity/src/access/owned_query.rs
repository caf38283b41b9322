//! An owned copy of an [`AccessQuery`], for a task that outlives the request.
//!
//! Invariant: no copy is made when the answer is already cached.

use secrecy::SecretString;

use super::{AccessKey, AccessQuery, IdToken};
use tollgate_core::agent::AgentId;

/// An owned [`AccessQuery`].
#[derive(Debug)]
pub(super) struct OwnedAccessQuery {
    pub(super) agent: AgentId,
    pub(super) key: OwnedAccessKey,
}

/// An owned [`AccessKey`].
#[derive(Debug)]
pub(super) enum OwnedAccessKey {
    PersonalAccessToken(SecretString),
    OidcIdToken(Box<IdToken>),
    SessionCookie {
        cookie: SecretString,
        csrf_token: SecretString,
    },
    CiJobToken(SecretString),
}

impl From<&AccessQuery<'_>> for OwnedAccessQuery {
    fn from(query: &AccessQuery<'_>) -> Self {
        let key = match query.key {
            AccessKey::PersonalAccessToken(token) => OwnedAccessKey::PersonalAccessToken(token.clone()),
            AccessKey::OidcIdToken(token) => OwnedAccessKey::OidcIdToken(Box::new(token.clone())),
            AccessKey::SessionCookie { cookie, csrf_token } => OwnedAccessKey::SessionCookie {
                cookie: cookie.clone(),
                csrf_token: csrf_token.clone(),
            },
            AccessKey::CiJobToken(token) => OwnedAccessKey::CiJobToken(token.clone()),
        };
        Self {
            agent: query.agent,
            key,
        }
    }
}
