//! Resolves `$key` references to Secrets. The results are marked as secret.
//!
//! Security: only Secrets that are labelled for it are read, and error texts contain no values.
//!
//! Source: Argo CD, `ReplaceStringSecret` and `updateSettingsFromSecret`.

use std::collections::BTreeMap;
use std::sync::Arc;

use secrecy::ExposeSecret;

use crate::Secret;

/// The Secret that holds keys referenced without a Secret's name.
const DEFAULT_SECRET: &str = "argocd-secret";

/// Label a Secret must have to be referenced as `$<secret>:<key>`.
const LABEL: (&str, &str) = ("app.kubernetes.io/part-of", "argocd");

/// What to do with a reference to a key that does not exist.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum UnknownSecret {
    /// Refuse the configuration.
    #[default]
    Refuse,
    /// Use the reference as the value and warn, as Argo CD does.
    KeepLiteral,
}

/// A text after substitution.
#[derive(Clone, PartialEq, Eq)]
pub struct Substituted {
    /// The text.
    pub value: String,
    /// Where it comes from.
    pub origin: Origin,
}

/// Where a text comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Written in the configuration.
    Literal,
    /// Taken from a Secret: must not be shown.
    Secret,
}

impl std::fmt::Debug for Substituted {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.origin {
            Origin::Literal => write!(f, "{:?}", self.value),
            Origin::Secret => f.write_str("[secret]"),
        }
    }
}

/// A reference that cannot be resolved.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// `argocd-secret`, or the named Secret, lacks the key.
    #[error("`${reference}` names a key that Secret `{secret}` does not have")]
    UnknownKey {
        /// The reference without `$`.
        reference: String,
        /// The Secret.
        secret: String,
    },
    /// No such Secret.
    #[error("`${reference}` names Secret `{secret}`, which does not exist")]
    UnknownSecret {
        /// The reference without `$`.
        reference: String,
        /// The Secret.
        secret: String,
    },
    /// The Secret exists but is not meant to be referenced.
    #[error("`${reference}` names Secret `{secret}`, which lacks the label `app.kubernetes.io/part-of: argocd`")]
    NotLabelled {
        /// The reference without `$`.
        reference: String,
        /// The Secret.
        secret: String,
    },
    /// The text after `$` cannot be a key. It is not shown because it may be a secret.
    #[error("a value that begins with `$` is not a reference to a key of a Secret")]
    NotAReference,
}

/// Replaces a text that begins with `$` by the value it refers to, without the
/// white space around it; any other text stays as it is.
///
/// - `$key`: key of `argocd-secret`.
/// - `$secret:key`: key of a Secret labelled `app.kubernetes.io/part-of: argocd`.
///
/// Where `unknown` says so, a reference that cannot be resolved stays, and the error is beside it.
///
/// # Errors
/// See [`Error`], with [`UnknownSecret::Refuse`] only; the text names the key, never a value.
pub fn substitute_or(
    text: &str,
    secrets: &BTreeMap<String, Arc<Secret>>,
    unknown: UnknownSecret,
) -> Result<(Substituted, Option<Error>), Error> {
    let literal = Substituted {
        value: text.to_owned(),
        origin: Origin::Literal,
    };
    let Some(reference) = text.strip_prefix('$') else {
        return Ok((literal, None));
    };
    match (resolve(reference, secrets), unknown) {
        (Ok(value), _) => {
            let (value, origin) = (value.trim().to_owned(), Origin::Secret);
            Ok((Substituted { value, origin }, None))
        }
        (Err(error), UnknownSecret::Refuse) => Err(error),
        (Err(error), UnknownSecret::KeepLiteral) => Ok((literal, Some(error))),
    }
}

fn resolve<'s>(reference: &str, secrets: &'s BTreeMap<String, Arc<Secret>>) -> Result<&'s str, Error> {
    let own = secrets.get(DEFAULT_SECRET);
    if let Some(value) = own.and_then(|secret| secret.values.get(reference)) {
        return Ok(value.expose_secret());
    }
    let letters = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'.');
    let is_key = |text: &str| !text.is_empty() && text.bytes().all(letters);
    let (name, key) = reference.split_once(':').unwrap_or((DEFAULT_SECRET, reference));
    if !is_key(name) || !is_key(key) {
        return Err(Error::NotAReference);
    }
    let (reference, secret) = (reference.to_owned(), name.to_owned());
    let Some(found) = secrets.get(name) else {
        return Err(Error::UnknownSecret { reference, secret });
    };
    if name != DEFAULT_SECRET && found.labels.get(LABEL.0).is_none_or(|value| value != LABEL.1) {
        return Err(Error::NotLabelled { reference, secret });
    }
    let value = found.values.get(key).map(|value| value.expose_secret());
    value.ok_or(Error::UnknownKey { reference, secret })
}
