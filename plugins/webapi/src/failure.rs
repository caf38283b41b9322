//! Why there is no token, before it is put into the host's types.
//!
//! In: a class, a code, words. Out: [`Failure`]. Never: the text of a secret.

use tollgate_provider::bindings::tollgate::plugin::provider_types::{ErrorInfo, MintError};

/// When the host should try again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// Soon.
    Retryable,
    /// When a person has given another secret.
    Denied,
    /// When the operator has changed something.
    Config,
    /// The answer is of no use.
    Permanent,
}

/// No token.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Failure {
    pub(crate) class: Class,
    /// Stable slug.
    pub(crate) code: String,
    pub(crate) message: String,
    pub(crate) http_status: Option<u16>,
    pub(crate) retry_after_ms: Option<u32>,
    pub(crate) correlation: Option<String>,
}

impl Failure {
    pub(crate) fn new(class: Class, code: &str, message: impl Into<String>) -> Self {
        Self {
            class,
            code: code.to_owned(),
            message: message.into(),
            http_status: None,
            retry_after_ms: None,
            correlation: None,
        }
    }

    /// The operator has to change the configuration.
    pub(crate) fn config(code: &str, message: impl Into<String>) -> Self {
        Self::new(Class::Config, code, message)
    }
}

impl From<Failure> for MintError {
    fn from(failure: Failure) -> Self {
        let Failure {
            class,
            code,
            message,
            http_status,
            retry_after_ms,
            correlation,
        } = failure;
        let info = ErrorInfo {
            code,
            message,
            http_status,
            retry_after_ms,
            correlation,
        };
        match class {
            Class::Retryable => Self::Retryable(info),
            Class::Denied => Self::Denied(info),
            Class::Config => Self::Config(info),
            Class::Permanent => Self::Permanent(info),
        }
    }
}
