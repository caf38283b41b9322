//! Sessions: the credentials that people present.

use core::fmt;
use std::sync::Arc;

use serde::{Deserialize, Serialize};

/// The kinds of credential.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
#[derive(strum::AsRefStr, strum::IntoStaticStr, strum::VariantArray)]
#[strum(serialize_all = "snake_case")]
pub enum AccessType {
    /// `pat:<agent>:<token>`.
    PersonalAccessToken,
    /// An ID token with the agent claim.
    OidcIdToken,
    /// Cookie `_gitlab_kas` with agent and CSRF token.
    SessionCookie,
    /// `ci:<agent>:<token>`.
    CiJobToken,
    /// A sign-in at the gateway itself: by a browser, or by `tollgate login`.
    Login,
}

/// Prefix of the ids made by [`SessionId::for_single_token`].
const SINGLE_TOKEN_PREFIX: &str = "token-";

/// Identifies a session: the credential a person presented.
///
/// Its text form is `pat:<uuid>`, `cookie:<uuid>`, `oidc:<hash>`,
/// `oidc:token-<hash>`, `ci:<hash>` or `login:<uuid>`; none of them is a secret.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct SessionId {
    access_type: AccessType,
    id: Arc<str>,
}

impl SessionId {
    /// - `id`: without the prefix; ASCII letters, digits, `-` and `_`.
    pub fn new(access_type: AccessType, id: impl Into<Arc<str>>) -> Self {
        Self {
            access_type,
            id: id.into(),
        }
    }

    /// For an ID token that does not say which sign-in it belongs to. The next token of the same
    /// person is another session.
    ///
    /// - `hash`: ASCII letters and digits.
    pub fn for_single_token(hash: &str) -> Self {
        Self::new(AccessType::OidcIdToken, format!("{SINGLE_TOKEN_PREFIX}{hash}"))
    }

    /// Whether ending this session ends only one ID token.
    pub fn is_single_token(&self) -> bool {
        self.access_type == AccessType::OidcIdToken && self.id.starts_with(SINGLE_TOKEN_PREFIX)
    }

    /// Reads the text form.
    pub fn parse(text: &str) -> Option<Self> {
        let (prefix, id) = text.split_once(':')?;
        let access_type = match prefix {
            "pat" => AccessType::PersonalAccessToken,
            "cookie" => AccessType::SessionCookie,
            "oidc" => AccessType::OidcIdToken,
            "ci" => AccessType::CiJobToken,
            "login" => AccessType::Login,
            _ => return None,
        };
        let plain = !id.is_empty()
            && id
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"-_".contains(&byte));
        plain.then(|| Self::new(access_type, id))
    }

    /// The kind of credential.
    pub fn access_type(&self) -> AccessType {
        self.access_type
    }

    /// The id without the prefix.
    pub fn id(&self) -> &str {
        &self.id
    }
}

impl fmt::Display for SessionId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let prefix = match self.access_type {
            AccessType::PersonalAccessToken => "pat",
            AccessType::OidcIdToken => "oidc",
            AccessType::SessionCookie => "cookie",
            AccessType::CiJobToken => "ci",
            AccessType::Login => "login",
        };
        write!(f, "{prefix}:{}", self.id)
    }
}
