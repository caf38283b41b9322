//! The error of a provider: a class, a code for machines and a message for people.

use core::time::Duration;

use crate::bindings::tollgate::plugin::ambient::AmbientError;
use crate::bindings::tollgate::plugin::egress::EgressError;
use crate::bindings::tollgate::plugin::provider_types::{ErrorInfo, MintError};
use crate::bindings::tollgate::plugin::secrets::SecretError;

/// Maximum length of a code.
const MAX_CODE_BYTES: usize = 64;

/// The class of an error. It decides when the host tries again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Class {
    /// A temporary failure. The host tries again soon.
    Retryable,
    /// The issuer refused the secret.
    Denied,
    /// The operator must change something.
    Config,
    /// The answer is unusable.
    Permanent,
}

/// Why there is no credential, for the operator.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Error {
    /// Decides when the host tries again.
    pub class: Class,
    /// Stable slug such as `oauth.invalid_grant`.
    pub code: String,
    /// Message for people. The host redacts it and keeps 512 bytes.
    pub message: String,
    /// Status of the answer that caused the error.
    pub status: Option<u16>,
    /// How long the issuer asks to wait, at most 600 s.
    pub retry_after: Option<Duration>,
    /// The issuer's own id of the request.
    pub correlation: Option<String>,
}

impl Error {
    /// An error of `class`. `code` is cut to 64 characters, and those outside `a-z A-Z 0-9 . _ -`
    /// become `_`.
    pub fn new(class: Class, code: &str, message: impl Into<String>) -> Self {
        Self {
            class,
            code: slug(code),
            message: message.into(),
            status: None,
            retry_after: None,
            correlation: None,
        }
    }

    /// A temporary failure.
    pub fn retryable(code: &str, message: impl Into<String>) -> Self {
        Self::new(Class::Retryable, code, message)
    }

    /// A refusal by the issuer.
    pub fn denied(code: &str, message: impl Into<String>) -> Self {
        Self::new(Class::Denied, code, message)
    }

    /// Something the operator must change.
    pub fn config(code: &str, message: impl Into<String>) -> Self {
        Self::new(Class::Config, code, message)
    }

    /// An unusable answer.
    pub fn permanent(code: &str, message: impl Into<String>) -> Self {
        Self::new(Class::Permanent, code, message)
    }

    /// Adds the status of the answer that caused the error.
    #[must_use]
    pub fn with_status(mut self, status: u16) -> Self {
        self.status = Some(status);
        self
    }

    /// Adds how long the issuer asks to wait. Ignored unless the class is [`Class::Retryable`].
    #[must_use]
    pub fn with_retry_after(mut self, wait: Option<Duration>) -> Self {
        self.retry_after = wait.filter(|_| self.class == Class::Retryable);
        self
    }

    /// Adds the issuer's own id of the request.
    #[must_use]
    pub fn with_correlation(mut self, correlation: Option<String>) -> Self {
        self.correlation = correlation;
        self
    }
}

/// `code` as the host accepts it. An empty code becomes `unknown`.
fn slug(code: &str) -> String {
    let good = |letter: char| letter.is_ascii_alphanumeric() || matches!(letter, '.' | '_' | '-');
    let slug: String = code
        .chars()
        .take(MAX_CODE_BYTES)
        .map(|letter| if good(letter) { letter } else { '_' })
        .collect();
    if slug.is_empty() { "unknown".to_owned() } else { slug }
}

impl From<Error> for MintError {
    fn from(error: Error) -> Self {
        let millis = |wait: Duration| u32::try_from(wait.as_millis()).unwrap_or(u32::MAX);
        let info = ErrorInfo {
            code: error.code,
            message: error.message,
            http_status: error.status,
            retry_after_ms: error.retry_after.map(millis),
            correlation: error.correlation,
        };
        match error.class {
            Class::Retryable => Self::Retryable(info),
            Class::Denied => Self::Denied(info),
            Class::Config => Self::Config(info),
            Class::Permanent => Self::Permanent(info),
        }
    }
}

impl From<SecretError> for Error {
    fn from(error: SecretError) -> Self {
        secret_error(error, "a secret of the request")
    }
}

/// The error for the value that `what` describes.
pub(crate) fn secret_error(error: SecretError, what: &str) -> Error {
    match error {
        SecretError::NotFound => Error::config("secret.not-found", format!("{what} is missing")),
        SecretError::NotGranted => Error::config("secret.not-granted", format!("{what} is not granted to the plugin")),
        SecretError::BadFormat => Error::config("secret.bad-format", format!("{what} has the wrong form")),
        SecretError::TooLarge => Error::config("secret.too-large", format!("{what} is too large")),
    }
}

impl From<EgressError> for Error {
    fn from(error: EgressError) -> Self {
        match error {
            EgressError::Denied(reason) => {
                let code = reason.split(':').next().unwrap_or_default();
                let known = code.starts_with("egress.") && !code.contains(' ');
                Self::config(if known { code } else { "egress.denied" }, reason.as_str())
            }
            EgressError::InvalidRequest(reason) => Self::config("egress.invalid-request", reason),
            EgressError::Dns(reason) => Self::retryable("egress.dns", reason),
            EgressError::Connect(reason) => Self::retryable("egress.connect", reason),
            EgressError::Tls(reason) => Self::config("egress.tls", reason),
            EgressError::Timeout => Self::retryable("egress.timeout", "no answer in time"),
            EgressError::Truncated => Self::retryable("egress.truncated", "the connection broke within the answer"),
            EgressError::TooLarge => Self::permanent("egress.too-large", "the answer is too large"),
            EgressError::Budget => Self::permanent("plugin.budget", "more requests than a call may send"),
            EgressError::Secret(error) => error.into(),
        }
    }
}

impl From<AmbientError> for Error {
    fn from(error: AmbientError) -> Self {
        match error {
            AmbientError::NotGranted => Self::config(
                "ambient.not-granted",
                "the pod's identity is not granted to the plugin: see `imports` and `audiences` of its grant",
            ),
            AmbientError::Unavailable(reason) => Self::retryable("ambient.unavailable", reason),
            AmbientError::Denied(reason) => Self::denied("ambient.denied", reason),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transport_errors_have_their_class() {
        let cases = [
            (
                EgressError::Denied("egress.host: `x` is not granted".into()),
                Class::Config,
                "egress.host",
            ),
            (EgressError::Denied("no way".into()), Class::Config, "egress.denied"),
            (
                EgressError::InvalidRequest("x".into()),
                Class::Config,
                "egress.invalid-request",
            ),
            (EgressError::Dns("x".into()), Class::Retryable, "egress.dns"),
            (EgressError::Connect("x".into()), Class::Retryable, "egress.connect"),
            (EgressError::Tls("x".into()), Class::Config, "egress.tls"),
            (EgressError::Timeout, Class::Retryable, "egress.timeout"),
            (EgressError::Truncated, Class::Retryable, "egress.truncated"),
            (EgressError::TooLarge, Class::Permanent, "egress.too-large"),
            (EgressError::Budget, Class::Permanent, "plugin.budget"),
            (
                EgressError::Secret(SecretError::NotFound),
                Class::Config,
                "secret.not-found",
            ),
        ];
        for (from, class, code) in cases {
            let error = Error::from(from);
            assert_eq!((error.class, error.code.as_str()), (class, code));
        }
    }

    #[test]
    fn codes_are_slugs_and_only_retryable_errors_wait() {
        let wait = Some(Duration::from_secs(7));
        let error = Error::denied("oauth.bad code\n", "x").with_retry_after(wait);
        assert_eq!((error.code.as_str(), error.retry_after), ("oauth.bad_code_", None));
        assert_eq!(Error::retryable("", "x").with_retry_after(wait).retry_after, wait);
        assert_eq!(Error::permanent(&"a".repeat(99), "x").code.len(), 64);
    }
}
