//! Gets secrets by name and joins them. Errors name the missing value.

use crate::bindings::tollgate::plugin::ambient::Bearer;
use crate::error::secret_error;
use crate::{Encoding, Error, Part, Secret, SecretError, SecretRef, ambient, secrets};

/// The value `name` of the cluster's Secret.
///
/// # Errors
/// `config`: the value is missing, or the manifest does not list it.
pub fn required(name: &str) -> Result<Secret, Error> {
    secrets::get(name).map_err(|error| secret_error(error, &format!("value `{name}` of the cluster's Secret")))
}

/// The value `name` of the cluster's Secret, if there is one.
///
/// # Errors
/// `config`: the manifest does not list the value.
pub fn optional(name: &str) -> Result<Option<Secret>, Error> {
    match secrets::get(name) {
        Err(SecretError::NotFound) => Ok(None),
        Ok(secret) => Ok(Some(secret)),
        Err(error) => Err(secret_error(error, &format!("value `{name}` of the cluster's Secret"))),
    }
}

/// The value `name` of the cluster's Secret, without white space at both ends. Secrets are often
/// made from files that end with a line break, which is not part of the token or key.
///
/// # Errors
/// `config`: the value is missing, or the manifest does not list it.
pub fn trimmed(name: &str) -> Result<Secret, Error> {
    Ok(secrets::trim(&required(name)?)?)
}

/// The public value `name` of the cluster's Secret, as text without white space at both ends.
///
/// # Errors
/// `config`: the value is missing or not public.
pub fn public(name: &str) -> Result<String, Error> {
    let text = secrets::public(name);
    let text = text.map_err(|error| secret_error(error, &format!("value `{name}` of the cluster's Secret")))?;
    Ok(text.trim().to_owned())
}

/// Joins the parts, then encodes the result as a whole.
///
/// # Errors
/// `config`: the result is too large, or a secret has the wrong form.
pub fn compose(parts: &[Part<'_>], encoding: Encoding) -> Result<Secret, Error> {
    Ok(secrets::compose(parts, encoding)?)
}

/// A second handle for the same bytes, for calls that take ownership of a handle, such as
/// `memo::store`.
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

/// A ServiceAccount token of the gateway's own pod, for `audience`.
///
/// # Errors
/// `config`: the audience is not granted. `retryable`: there is no token now. `denied`: the token
/// was refused.
pub fn ambient_token(audience: &str) -> Result<Bearer, Error> {
    ambient::service_account_token(audience).map_err(|error| {
        let mut error = Error::from(error);
        error.message = format!("token of the pod's for audience `{audience}`: {}", error.message);
        error
    })
}
