//! The errors of the API for tokens, sessions, agents and audit. Each has a status, a reason for
//! programs and a message for people.
//!
//! Security: no error tells whether something exists that the caller may not see.

use http::StatusCode;

use crate::Denial;
use tollgate_identity::access::secret::RandomError;
use tollgate_proxy::record::PolicyInputError;
use tollgate_store as store;

/// Why a request of the API is refused or fails.
#[expect(missing_docs, reason = "the text of each says what it is")]
#[derive(Debug, thiserror::Error)]
pub enum Error {
    #[error("no user in the directory matches `{user}` of issuer `{issuer}`; {hint}")]
    NotLinked {
        user: String,
        issuer: String,
        hint: &'static str,
    },
    #[error("the user `{0}` is blocked")]
    Blocked(String),
    #[error("not permitted: `{resource}, {action}` of `{object}`")]
    NotPermitted {
        resource: &'static str,
        action: &'static str,
        object: String,
    },
    #[error("there is no agent `{agent}` that is shared with `{user}`")]
    UnknownAgent { agent: String, user: String },
    #[error("agent `{0}` takes ID tokens alone (`access_as: mapped`)")]
    IdTokensOnly(String),
    #[error("tokens and browser sessions are made by the platform that `kubernetes.authorizer.remote` names")]
    RemoteAuthorizer,
    #[error("there is no user `{user}` in the directory")]
    UnknownUser { user: String },
    #[error("there is no such token")]
    UnknownToken,
    #[error("there is no such session")]
    UnknownSession,
    #[error("the query {why}")]
    Query { why: String },
    #[error("the content {why}")]
    Content { why: String },
    #[error("the content has a type other than `application/json`")]
    ContentType,
    #[error("the content is longer than {allowed} bytes or does not say its length")]
    ContentLength { allowed: u64 },
    #[error("the token would expire {found}, at most {allowed} is allowed")]
    Lifetime { found: String, allowed: String },
    #[error("`{user}` has {found} unexpired {what}s, {allowed} are allowed")]
    TooMany {
        user: String,
        what: &'static str,
        /// How many there are, revoked ones included.
        found: u32,
        allowed: u32,
    },
    #[error("`kubernetes.cookie.sameSite: none` needs TLS, or a `publicURL` with https")]
    Cookie,
    #[error(transparent)]
    PolicyInput(#[from] PolicyInputError),
    #[error("no secret can be made")]
    Random(#[from] RandomError),
    #[error("the store does not answer, nothing was changed")]
    Store(#[from] store::Error),
}

impl Error {
    /// HTTP status, and the stable reason for programs.
    pub fn answer(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NotLinked { .. } => (StatusCode::FORBIDDEN, "user_not_linked"),
            Self::Blocked(_) => (StatusCode::FORBIDDEN, "user_blocked"),
            Self::NotPermitted { .. } => (StatusCode::FORBIDDEN, "permission_denied"),
            Self::UnknownAgent { .. } => (StatusCode::NOT_FOUND, "agent_not_found"),
            Self::IdTokensOnly(_) => (StatusCode::CONFLICT, "id_tokens_only"),
            Self::RemoteAuthorizer => (StatusCode::CONFLICT, "platform_elsewhere"),
            Self::UnknownUser { .. } => (StatusCode::NOT_FOUND, "user_not_found"),
            Self::UnknownToken => (StatusCode::NOT_FOUND, "token_not_found"),
            Self::UnknownSession => (StatusCode::NOT_FOUND, "session_not_found"),
            Self::Query { .. } => (StatusCode::BAD_REQUEST, "bad_query"),
            Self::Content { .. } => (StatusCode::BAD_REQUEST, "bad_content"),
            Self::ContentType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "bad_content_type"),
            Self::ContentLength { .. } => (StatusCode::PAYLOAD_TOO_LARGE, "content_too_large"),
            Self::Lifetime { .. } => (StatusCode::BAD_REQUEST, "bad_lifetime"),
            Self::TooMany { what: "session", .. } => (StatusCode::CONFLICT, "too_many_sessions"),
            Self::TooMany { .. } => (StatusCode::CONFLICT, "too_many_tokens"),
            Self::PolicyInput(PolicyInputError::Displaced(_)) => (StatusCode::GONE, "policy_input_gone"),
            Self::PolicyInput(_) => (StatusCode::NOT_FOUND, "no_policy_input"),
            Self::Cookie => (StatusCode::INTERNAL_SERVER_ERROR, "cookie_needs_tls"),
            Self::Random(_) => (StatusCode::INTERNAL_SERVER_ERROR, "no_random"),
            Self::Store(_) => (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable"),
        }
    }
}

impl From<Error> for Denial {
    fn from(error: Error) -> Self {
        let (status, reason) = error.answer();
        Self::of_api(status, reason, error.to_string()).caused_by(error)
    }
}
