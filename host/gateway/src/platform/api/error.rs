//! The errors of the API for tokens, sessions, agents and audit. Each has a status, a reason for
//! programs and a message for people.
//!
//! Security: no error tells whether something exists that the caller may not see.

use http::StatusCode;

use tollgate_identity::access::secret::RandomError;
use tollgate_identity::store;

/// Why the API refuses a request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The caller's token does not identify a user in the directory. (403)
    #[error("nobody in the user directory is meant by `{user}` of issuer `{issuer}`; {hint}")]
    NotLinked {
        /// The caller's subject.
        user: String,
        /// The issuer or kind of credential that vouches for them.
        issuer: String,
        /// Which setting or object would link them.
        hint: &'static str,
    },
    /// The caller is blocked in the directory. (403)
    #[error("the user `{user}` is blocked")]
    Blocked {
        /// The caller's own name.
        user: String,
    },
    /// RBAC does not let the caller do this for others. (403)
    #[error("not permitted: `{resource}, {action}` of `{object}`")]
    NotPermitted {
        /// RBAC resource.
        resource: &'static str,
        /// RBAC action.
        action: &'static str,
        /// RBAC object: agent and user.
        object: String,
    },
    /// No such agent, or it is not shared with the person. (404)
    #[error("there is no agent `{agent}` that is shared with `{user}`")]
    UnknownAgent {
        /// As the caller named it.
        agent: String,
        /// Who the agent must be shared with.
        user: String,
    },
    /// The agent does not accept tokens of the gateway. (409)
    #[error("agent `{agent}` takes ID tokens alone (`access_as: mapped`)")]
    IdTokensOnly {
        /// Its name.
        agent: String,
    },
    /// Another platform authorizes, so only its credentials are accepted. (409)
    #[error("tokens and browser sessions are made by the platform that `kubernetes.authorizer.remote` names")]
    RemoteAuthorizer,
    /// No user has this name. Only for callers who may act for the user. (404)
    #[error("there is no user `{user}` in the directory")]
    UnknownUser {
        /// As the caller named them.
        user: String,
    },
    /// No such token, or the caller may not see it. (404)
    #[error("there is no such token")]
    UnknownToken,
    /// No such session, or the caller may not see it. (404)
    #[error("there is no such session")]
    UnknownSession,
    /// The query cannot be understood. (400)
    #[error("the query {why}")]
    Query {
        /// What is wrong with it.
        why: String,
    },
    /// The content cannot be understood. (400)
    #[error("the content {why}")]
    Content {
        /// What is wrong with it.
        why: String,
    },
    /// The content type is not JSON. (415)
    #[error("the content has a type other than `application/json`")]
    ContentType,
    /// The content is longer than allowed, or has no declared length. (413)
    #[error("the content is longer than {allowed} bytes or does not say its length")]
    ContentLength {
        /// Limit in bytes.
        allowed: u64,
    },
    /// The token's lifetime would be too long, or zero. (400)
    #[error("the token would end {found}, allowed is up to {allowed}")]
    Lifetime {
        /// When it would end.
        found: String,
        /// The latest end.
        allowed: String,
    },
    /// The person has too many tokens or browser sessions that did not expire yet. (409)
    #[error("`{user}` has {found} {what}s that were not yet to end, allowed are {allowed}")]
    TooMany {
        /// The person.
        user: String,
        /// `token` or `session`.
        what: &'static str,
        /// How many there are, revoked ones included.
        found: u32,
        /// How many there may be.
        allowed: u32,
    },
    /// `SameSite=None` without TLS. (500)
    #[error("`kubernetes.cookie.sameSite: none` needs TLS, or a `publicURL` with https")]
    Cookie,
    /// The system returned no random bytes. (500)
    #[error("no secret can be made")]
    Random(#[from] RandomError),
    /// The store failed. (503)
    #[error("the store does not answer, nothing was changed")]
    Store(#[from] store::Error),
}

impl Error {
    /// HTTP status.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::UnknownAgent { .. } | Self::UnknownUser { .. } | Self::UnknownToken | Self::UnknownSession => {
                StatusCode::NOT_FOUND
            }
            Self::NotLinked { .. } | Self::Blocked { .. } | Self::NotPermitted { .. } => StatusCode::FORBIDDEN,
            Self::Query { .. } | Self::Content { .. } | Self::Lifetime { .. } => StatusCode::BAD_REQUEST,
            Self::ContentType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::ContentLength { .. } => StatusCode::PAYLOAD_TOO_LARGE,
            Self::TooMany { .. } | Self::IdTokensOnly { .. } | Self::RemoteAuthorizer => StatusCode::CONFLICT,
            Self::Cookie | Self::Random(_) => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Store(_) => StatusCode::SERVICE_UNAVAILABLE,
        }
    }

    /// Stable reason for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotLinked { .. } => "user_not_linked",
            Self::Blocked { .. } => "user_blocked",
            Self::NotPermitted { .. } => "permission_denied",
            Self::UnknownAgent { .. } => "agent_not_found",
            Self::IdTokensOnly { .. } => "id_tokens_only",
            Self::RemoteAuthorizer => "platform_elsewhere",
            Self::UnknownUser { .. } => "user_not_found",
            Self::UnknownToken => "token_not_found",
            Self::UnknownSession => "session_not_found",
            Self::Query { .. } => "bad_query",
            Self::Content { .. } => "bad_content",
            Self::ContentType => "bad_content_type",
            Self::ContentLength { .. } => "content_too_large",
            Self::Lifetime { .. } => "bad_lifetime",
            Self::TooMany { what: "session", .. } => "too_many_sessions",
            Self::TooMany { .. } => "too_many_tokens",
            Self::Cookie => "cookie_needs_tls",
            Self::Random(_) => "no_random",
            Self::Store(_) => "store_unavailable",
        }
    }
}
