//! The reasons why a request has no principal.
//!
//! Security: no message contains a token, a secret or a claim's value.

use super::k8s_proxy::MalformedAgentCredential;
use super::request_token::MAX_TOKEN_BYTES;
use crate::sessions::EndReason;

/// Why the caller of a request cannot be determined.
///
/// Messages contain rules and configured values, never contents of a token, so each may be
/// logged. Each variant says what the *caller* may see.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Neither an `argocd.token` cookie nor an `Authorization` field. The
    /// caller may see the whole message.
    #[error("no credential: send cookie `argocd.token` or field `Authorization: Bearer`")]
    NoCredential,
    /// Something was sent that cannot be a credential. The caller may see the whole message,
    /// which concerns the form only.
    #[error("malformed credential: {0}")]
    Malformed(#[from] MalformedCredential),
    /// A well-formed token that does not verify. The caller may see that the token is invalid,
    /// but not why: the reason would help to forge one.
    #[error("invalid token: {0}")]
    Invalid(#[from] InvalidTokenReason),
    /// `exp` has passed. The caller may see this, to sign in again.
    #[error("the token has expired")]
    Expired,
    /// The token was valid once. The caller may see that it was revoked, but not how: that could
    /// reveal whether an account exists.
    #[error("revoked token: {0}")]
    Revoked(#[from] RevocationReason),
    /// A browser may have sent the request on another site's behalf. The
    /// caller may see the whole message; it repeats only its own fields and
    /// the configured origins. Maps to 403: a new sign-in does not help.
    #[error("cross-site request: saw {seen}, allowed is {allowed}")]
    CrossSite {
        /// The field that decided, as sent, shortened.
        seen: String,
        /// What would have passed.
        allowed: String,
    },
    /// The issuer's keys cannot be fetched, so nothing is known about the token. The caller may
    /// see "try again later", not the issuer. Maps to 503.
    #[error("the keys of issuer `{0}` are unavailable")]
    IssuerUnavailable(String),
    /// Argo CD may have revoked the token, but its Redis does not answer. The caller may see this.
    /// Maps to 503.
    #[error("Argo CD's list of revoked tokens is unavailable")]
    RevocationsUnavailable,
    /// The store cannot tell whether a login is in force. Maps to 503.
    #[error("the store of logins is unavailable")]
    StoreUnavailable(#[source] tollgate_store::Error),
    /// The credential is good, but not for this. The caller may see the whole message. Maps to 403.
    #[error("this credential is not for requests of this kind: {0}")]
    Scope(&'static str),
    /// Somebody locked the caller. The caller may see this. Maps to 403.
    #[error("the person is locked")]
    Locked,
    /// The token is valid, but its groups could not be fetched from the issuer's userinfo
    /// endpoint (Argo CD: 401 `Invalid session`). The caller may see the first words, not the
    /// cause.
    #[error("unusable session: {0}")]
    SessionUnusable(#[from] UserinfoError),
}

impl Error {
    /// A stable name of the reason in snake case, for metrics, logs and bodies.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NoCredential => "no_credential",
            Self::Malformed(malformed) => malformed.code(),
            Self::Invalid(reason) => reason.code(),
            Self::Expired => "token_expired",
            Self::Revoked(_) => "token_revoked",
            Self::CrossSite { .. } => "cross_site_request",
            Self::IssuerUnavailable(_) => "issuer_unavailable",
            Self::RevocationsUnavailable => EndReason::RevocationsUnavailable.code(),
            Self::StoreUnavailable(_) => EndReason::StoreUnavailable.code(),
            Self::Scope(_) => "credential_scope",
            Self::Locked => "person_locked",
            Self::SessionUnusable(_) => "session_unusable",
        }
    }
}

/// What is wrong with the form of a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedCredential {
    #[error("{0} `Authorization` fields, one is allowed")]
    SeveralAuthorizations(usize),
    #[error("`Authorization` must be `Bearer` and a token")]
    NotBearer,
    #[error("cookie, `Authorization` and `Sec-WebSocket-Protocol` hold different tokens, send one")]
    Conflict,
    #[error("{0}")]
    Subprotocol(MalformedAgentCredential),
    /// A cookie name that occurs twice: a site in a parent domain may have
    /// planted one.
    #[error("cookie `{0}` occurs more than once")]
    DuplicateCookie(String),
    #[error("the chunk count of cookie `argocd.token` must be 1 to {0}, without leading zeros")]
    ChunkCount(usize),
    #[error("cookie `argocd.token-{0}` is missing")]
    MissingChunk(usize),
    #[error("the token has {0} bytes, {MAX_TOKEN_BYTES} are allowed")]
    TooLong(usize),
    /// Not three base64url parts, or a header or claims set that is not JSON.
    #[error("the token is not a signed JWT in compact form")]
    NotJwt,
    #[error("claim `{0}` has the wrong type")]
    Claim(&'static str),
}

impl MalformedCredential {
    fn code(&self) -> &'static str {
        match self {
            Self::SeveralAuthorizations(_) | Self::NotBearer => "malformed_authorization",
            Self::Conflict => "conflicting_credentials",
            Self::Subprotocol(_) => "malformed_subprotocol",
            Self::DuplicateCookie(_) | Self::ChunkCount(_) | Self::MissingChunk(_) => "malformed_cookie",
            Self::TooLong(_) => "token_too_long",
            Self::NotJwt | Self::Claim(_) => "malformed_token",
        }
    }
}

/// Which rule a token broke.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum InvalidTokenReason {
    /// `iss` is none of the configured issuers, or missing.
    #[error("no configured issuer matches `iss`")]
    UnknownIssuer,
    /// No login of the gateway has this secret.
    #[error("no login has this secret")]
    UnknownLogin,
    /// `alg` is not on the issuer's list; `none` never is.
    #[error("`alg` is not one of {0}")]
    Algorithm(String),
    /// `typ` names another kind of token.
    #[error("`typ` is not one of {0}")]
    Type(String),
    /// The header has `crit`, `enc` or `zip`, which are not supported here (RFC 7515, section
    /// 4.1.11).
    #[error("header field `{0}` is not supported")]
    HeaderField(&'static str),
    /// No key of the issuer has this `kid` and fits `alg`.
    #[error("no key of the issuer fits `kid` and `alg`")]
    UnknownKey,
    /// The signature does not verify.
    #[error("the signature does not verify")]
    Signature,
    /// `aud` holds none of the configured audiences.
    #[error("`aud` holds none of the configured audiences")]
    Audience,
    /// A required claim is missing.
    #[error("claim `{0}` is missing")]
    MissingClaim(String),
    /// `sub` is longer than OpenID Connect allows.
    #[error("claim `sub` has more than 255 bytes")]
    SubjectLength,
    /// `nbf` or `iat` lies in the future, beyond the leeway.
    #[error("claim `{0}` is in the future")]
    NotYetValid(&'static str),
    /// A rule of `claimValidationRules` refused the token, with its configured message.
    #[error("claim rule refused: {0}")]
    ClaimRule(String),
    /// The username comes from `email` and `email_verified` is not `true`.
    #[error("`email_verified` is not `true`")]
    EmailNotVerified,
    /// A mapping failed or gave nothing.
    #[error("the mapping of `{0}` gives nothing usable")]
    Mapping(IdentityField),
    /// A name with control characters or blanks at an edge.
    #[error("the {0} holds characters a name must not have")]
    Name(IdentityField),
    /// A name that starts with `system:` (Kubernetes), or a username that
    /// starts with `proj:` or `role:` or is a local account's (Argo CD), and
    /// the settings do not allow it.
    #[error("the {0} is reserved or a local account's and is not in `allowedReservedNames`")]
    ReservedName(IdentityField),
    /// A rule of `userValidationRules` refused the user, with its configured message.
    #[error("user rule refused: {0}")]
    UserRule(String),
    /// The subject of a token Argo CD signed has no form it uses.
    #[error("the subject is none of `<account>`, `<account>:login`, `<account>:apiKey`, `proj:<project>:<role>`")]
    Subject,
}

impl InvalidTokenReason {
    pub(super) fn missing(claim: &str) -> Self {
        Self::MissingClaim(claim.to_owned())
    }

    fn code(&self) -> &'static str {
        match self {
            Self::UnknownIssuer => "unknown_issuer",
            Self::UnknownLogin => "unknown_login",
            Self::Algorithm(_) => "algorithm_refused",
            Self::Type(_) | Self::HeaderField(_) => "token_kind_refused",
            Self::UnknownKey => "unknown_key",
            Self::Signature => "bad_signature",
            Self::Audience => "wrong_audience",
            Self::MissingClaim(_) => "missing_claim",
            Self::NotYetValid(_) => "token_not_yet_valid",
            Self::ClaimRule(_) => "claim_rule_refused",
            Self::EmailNotVerified => "email_not_verified",
            Self::Mapping(_) | Self::Name(_) | Self::Subject | Self::SubjectLength => "unusable_identity",
            Self::ReservedName(_) => "reserved_name",
            Self::UserRule(_) => "user_rule_refused",
        }
    }
}

/// A part of an identity.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::Display)]
#[strum(serialize_all = "lowercase")]
pub enum IdentityField {
    Username,
    Groups,
    Uid,
    Extra,
}

/// How a token was revoked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RevocationReason {
    /// The account is not in `argocd-cm`, or its settings cannot be read.
    #[error("the account does not exist")]
    NoAccount,
    /// `accounts.<name>.enabled` or `admin.enabled` is false.
    #[error("the account is disabled")]
    AccountDisabled,
    #[error("the account lacks the capability the token was issued for")]
    NoCapability,
    #[error("the password was changed after the token was issued")]
    PasswordChanged,
    /// The `jti` is not among the account's or role's tokens.
    #[error("the token is not listed any more")]
    NotListed,
    #[error("the project or role does not exist")]
    NoRole,
    /// The login at the gateway was ended.
    #[error("the login was ended")]
    LoginEnded,
    /// It is on the list in Argo CD's Redis.
    #[error("the session was signed out in Argo CD")]
    SignedOut,
}

/// Why the userinfo endpoint gave no groups.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum UserinfoError {
    /// No answer in time, or not a 200 with JSON.
    #[error("unexpected answer from the userinfo endpoint")]
    Unreachable,
    /// The answer is about somebody else (OpenID Connect Core, section 5.3.2).
    #[error("the userinfo answer has another `sub` than the token")]
    OtherSubject,
    /// As many lookups as may run at once wait.
    #[error("too many userinfo lookups are under way")]
    Busy,
}
