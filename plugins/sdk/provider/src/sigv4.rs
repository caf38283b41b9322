//! AWS Signature Version 4, with keys that are handles.
//!
//! Building the signed text is pure and tested with AWS's test vectors. [`signature`] and
//! [`sha256`] call the host.
//!
//! Source: "Create a signed AWS API request" of the IAM user guide.
//!
//! Security: the guest never has the secret access key or the session token as text. Signatures are
//! not secret.

mod text;

use jiff::Timestamp;

pub use text::{Header, Piece, Presigned, Scope, Signed, presigned, signed};

use crate::encoding::hex;
use crate::{Encoding, Error, Part, Secret, SecretRef, crypto, secrets};

/// Keys of an AWS identity.
#[derive(Debug)]
pub struct Keys {
    /// Not secret.
    pub access_key_id: String,
    /// Signs, and is never sent.
    pub secret_access_key: Secret,
    /// Belongs to temporary keys.
    pub session_token: Option<Secret>,
}

impl Scope {
    /// The scope at `now` (milliseconds since 1970).
    ///
    /// # Errors
    /// `permanent`: `now` is out of the calendar's range.
    pub fn new(now: u64, region: &str, service: &str) -> Result<Self, Error> {
        let instant = i64::try_from(now)
            .ok()
            .and_then(|now| Timestamp::from_millisecond(now).ok());
        let instant = instant.ok_or_else(|| Error::permanent("clock.invalid", "the clock is out of range"))?;
        Ok(Self {
            date_time: instant.strftime("%Y%m%dT%H%M%SZ").to_string(),
            region: region.to_owned(),
            service: service.to_owned(),
        })
    }
}

/// Converts pieces to parts of a request or a secret.
pub fn parts<'a>(pieces: &[Piece], keys: &'a Keys) -> Vec<Part<'a>> {
    let secret = |encoding| {
        let value = keys.session_token.as_ref()?;
        Some(Part::Secret(SecretRef { value, encoding }))
    };
    pieces
        .iter()
        .filter_map(|piece| match piece {
            Piece::Text(text) => Some(Part::Text(text.clone())),
            Piece::SessionToken => secret(Encoding::Raw),
            Piece::SessionTokenEscaped => secret(Encoding::Percent),
        })
        .collect()
}

/// The signature of a canonical request, in lower-case hex.
///
/// # Errors
/// `config`: the keys have the wrong form.
pub fn signature(keys: &Keys, scope: &Scope, canonical_request: &[Piece]) -> Result<String, Error> {
    let digest = crypto::sha256(&parts(canonical_request, keys))?;
    let first = [
        Part::Text("AWS4".to_owned()),
        Part::Secret(SecretRef {
            value: &keys.secret_access_key,
            encoding: Encoding::Raw,
        }),
    ];
    let mut key = secrets::compose(&first, Encoding::Raw)?;
    for step in scope.steps() {
        key = crypto::derive_hmac_sha256(&key, step.as_bytes())?;
    }
    let text = scope.string_to_sign(&hex(&digest));
    Ok(hex(&crypto::hmac_sha256(&key, text.as_bytes())?))
}

/// SHA-256 of plain text, in lower-case hex.
///
/// # Errors
/// `config`: the text is too large.
pub fn sha256(text: &str) -> Result<String, Error> {
    Ok(hex(&crypto::sha256(&[Part::Text(text.to_owned())])?))
}

#[cfg(test)]
mod tests;
