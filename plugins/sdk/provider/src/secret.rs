//! Getting and joining secrets.
//!
//! In: names. Out: handles, or errors that name what is missing. Never: bytes.

use crate::bindings::tollgate::plugin::ambient::Bearer;
use crate::error::secret as error_of;
use crate::{Encoding, Error, Part, Secret, SecretError, SecretRef, ambient, secrets};

/// The value `name` of the cluster's Secret.
///
/// # Errors
/// `config`: it is missing or the manifest does not list it.
pub fn required(name: &str) -> Result<Secret, Error> {
    secrets::get(name).map_err(|error| error_of(error, &format!("value `{name}` of the cluster's Secret")))
}

/// The value `name` of the cluster's Secret, if there is one.
///
/// # Errors
/// `config`: the manifest does not list it.
pub fn optional(name: &str) -> Result<Option<Secret>, Error> {
    match secrets::get(name) {
        Err(SecretError::NotFound) => Ok(None),
        Ok(secret) => Ok(Some(secret)),
        Err(error) => Err(error_of(error, &format!("value `{name}` of the cluster's Secret"))),
    }
}

/// The value `name` of the cluster's Secret without white space at both ends: a
/// token or key has none, but files that end in a line break often become Secrets.
///
/// # Errors
/// `config`: it is missing or the manifest does not list it.
pub fn trimmed(name: &str) -> Result<Secret, Error> {
    Ok(secrets::trim(&required(name)?)?)
}

/// The public value `name` of the cluster's Secret, as text without white space
/// at both ends.
///
/// # Errors
/// `config`: it is missing or not public.
pub fn public(name: &str) -> Result<String, Error> {
    let text = secrets::public(name);
    let text = text.map_err(|error| error_of(error, &format!("value `{name}` of the cluster's Secret")))?;
    Ok(text.trim().to_owned())
}

/// The parts put together, then encoded as a whole.
///
/// # Errors
/// `config`: too large, or of the wrong form.
pub fn compose(parts: &[Part<'_>], encoding: Encoding) -> Result<Secret, Error> {
    Ok(secrets::compose(parts, encoding)?)
}

/// A second handle of the same bytes, for what takes handles away, such as `memo`.
///
/// # Errors
/// `config`: more than 256 secrets in one call.
pub fn copy(secret: &Secret) -> Result<Secret, Error> {
    let value = SecretRef {
        value: secret,
        encoding: Encoding::Raw,
    };
    compose(&[Part::Secret(value)], Encoding::Raw)
}

/// A token of the gateway's own pod for `audience`.
///
/// # Errors
/// `config` without a grant, `retryable` when there is none now.
pub fn ambient_token(audience: &str) -> Result<Bearer, Error> {
    ambient::service_account_token(audience).map_err(|error| {
        let mut error = Error::from(error);
        error.message = format!("token of the pod's for audience `{audience}`: {}", error.message);
        error
    })
}
