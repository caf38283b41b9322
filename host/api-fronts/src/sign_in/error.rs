//! Why somebody is not signed in, or a request about logins is refused.
//!
//! Security: no error says whether a code or a login exists that the caller does not have.

use http::StatusCode;

use tollgate_front::Denial;
use tollgate_front::pages::Unrenderable;
use tollgate_identity::access::secret::RandomError;
use tollgate_identity::authenticate::sign_in::{LogoutTokenError, SignInError};
use tollgate_identity::logins::CreateError;
use tollgate_store as store;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    SignIn(#[from] SignInError),
    #[error(transparent)]
    Logout(#[from] LogoutTokenError),
    #[error("`{user}` has {observed} logins, {allowed} are allowed; sign out of some, or wait until they end")]
    TooManyLogins { user: String, observed: u32, allowed: u32 },
    #[error("{observed} people are locked, {allowed} may be; unlock some, or remove them from the directory")]
    TooManyLocks { observed: u32, allowed: u32 },
    #[error("too many logins of the command line wait to be approved")]
    TooManyRequests,
    #[error("the request {0}")]
    Request(&'static str),
    #[error("nobody has approved the login yet")]
    Pending,
    #[error("the login was refused in the browser")]
    Denied,
    #[error("the code is not known, was used, or has expired")]
    Code,
    #[error("login by a code that is typed elsewhere is switched off (`console.login.device`)")]
    DeviceOff,
    #[error("too many wrong codes; wait ten minutes")]
    TooManyTries,
    #[error("only a login of `tollgate login` can do this")]
    NotALogin,
    #[error("there is no agent `{agent}` that is shared with `{user}`")]
    UnknownAgent { agent: String, user: String },
    #[error("agent `{0}` takes ID tokens of issuers with `claimMappings` alone (`access_as: mapped`)")]
    NotMapped(String),
    #[error("not permitted: `people, lock` of `{0}`")]
    NotPermitted(String),
    #[error("sign-in is disabled: the settings have no `console`")]
    NoConsole,
    #[error(transparent)]
    Page(#[from] Unrenderable),
    #[error(transparent)]
    Random(#[from] RandomError),
    #[error("the store does not answer, nothing was changed")]
    Store(#[source] store::Error),
}

impl From<store::Error> for Error {
    fn from(error: store::Error) -> Self {
        match error {
            store::Error::LimitReached {
                what: "login request", ..
            } => Self::TooManyRequests,
            store::Error::LimitReached {
                what: "person lock",
                observed,
                allowed,
            } => Self::TooManyLocks { observed, allowed },
            other => Self::Store(other),
        }
    }
}

impl Error {
    pub(super) fn creating(user: &str) -> impl Fn(CreateError) -> Self + use<> {
        let user = user.to_owned();
        move |error| match error {
            CreateError::Random(error) => Self::Random(error),
            CreateError::Store(store::Error::LimitReached { observed, allowed, .. }) => Self::TooManyLogins {
                user: user.clone(),
                observed,
                allowed,
            },
            CreateError::Store(error) => Self::Store(error),
        }
    }

    /// HTTP status, and the stable reason for programs. Those of the token endpoint are of RFC 6749 and
    /// RFC 8628.
    pub(crate) fn answer(&self) -> (StatusCode, &'static str) {
        match self {
            Self::SignIn(error) => sign_in_answer(error),
            Self::Logout(error) => match error {
                LogoutTokenError::Store(_) => (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable"),
                LogoutTokenError::Method(_) => (StatusCode::NOT_FOUND, "not_found"),
                LogoutTokenError::Token(_) | LogoutTokenError::Content(_) | LogoutTokenError::Replayed => {
                    (StatusCode::BAD_REQUEST, "invalid_request")
                }
            },
            Self::TooManyLogins { .. } => (StatusCode::CONFLICT, "too_many_logins"),
            Self::TooManyLocks { .. } => (StatusCode::CONFLICT, "too_many_locks"),
            Self::TooManyRequests => (StatusCode::TOO_MANY_REQUESTS, "slow_down"),
            Self::Request(_) => (StatusCode::BAD_REQUEST, "invalid_request"),
            Self::Pending => (StatusCode::BAD_REQUEST, "authorization_pending"),
            Self::Denied => (StatusCode::BAD_REQUEST, "access_denied"),
            Self::Code => (StatusCode::BAD_REQUEST, "invalid_grant"),
            Self::DeviceOff => (StatusCode::FORBIDDEN, "device_login_off"),
            Self::TooManyTries => (StatusCode::TOO_MANY_REQUESTS, "too_many_tries"),
            Self::NotALogin => (StatusCode::FORBIDDEN, "not_a_login"),
            Self::UnknownAgent { .. } => (StatusCode::NOT_FOUND, "agent_not_found"),
            Self::NotMapped(_) => (StatusCode::CONFLICT, "id_tokens_only"),
            Self::NotPermitted(_) => (StatusCode::FORBIDDEN, "permission_denied"),
            Self::NoConsole => (StatusCode::NOT_FOUND, "no_console"),
            Self::Page(_) => Unrenderable::ANSWER,
            Self::Random(_) => (StatusCode::INTERNAL_SERVER_ERROR, "no_random"),
            Self::Store(_) => (StatusCode::SERVICE_UNAVAILABLE, "store_unavailable"),
        }
    }
}

fn sign_in_answer(error: &SignInError) -> (StatusCode, &'static str) {
    match error {
        SignInError::UnknownMethod(_) => (StatusCode::NOT_FOUND, "unknown_sign_in"),
        SignInError::NoAttempt => (StatusCode::BAD_REQUEST, "no_attempt"),
        SignInError::OtherIssuer => (StatusCode::BAD_REQUEST, "other_issuer"),
        SignInError::Refused { .. } => (StatusCode::FORBIDDEN, "refused_by_issuer"),
        SignInError::NoCode => (StatusCode::BAD_REQUEST, "no_code"),
        SignInError::Issuer { .. } => (StatusCode::BAD_GATEWAY, "issuer_unavailable"),
        SignInError::Token(_) | SignInError::NotForAttempt(_) => (StatusCode::FORBIDDEN, "invalid_token"),
        SignInError::Password => (StatusCode::UNAUTHORIZED, "wrong_password"),
        SignInError::Random(_) => (StatusCode::INTERNAL_SERVER_ERROR, "no_random"),
    }
}

impl From<Error> for Denial {
    fn from(error: Error) -> Self {
        let (status, reason) = error.answer();
        Self::of_api(status, reason, error.to_string()).caused_by(error)
    }
}
