//! Secret bytes that a guest holds only by handle: values of a cluster's Secret, captures, tokens
//! of the pod, and what a guest derives from them.
//!
//! Security: the bytes are wiped on drop and never appear in `Debug`.

use std::sync::Arc;

use aws_lc_rs::constant_time::verify_slices_are_equal;
use base64::Engine as _;
use base64::engine::general_purpose::{STANDARD, URL_SAFE, URL_SAFE_NO_PAD};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_encode};
use wasmtime::component::Resource;
use zeroize::Zeroizing;

use super::provider::tollgate::plugin::secrets::{Encoding, JwtTimes, SecretError};
use crate::egress_scope::EgressScope;

/// All but the unreserved characters of RFC 3986, section 2.3.
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'_').remove(b'.').remove(b'~');
pub(crate) const MAX_SECRET_BYTES: usize = 64 << 10;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Provenance {
    /// No: the host received them in this form.
    Received,
    /// Yes: a guest combined them with its own text. The guest may read nothing out of them,
    /// because a guest that writes half of a document could learn the other half that way.
    Composed,
}

/// A secret of one call. Clones share the bytes.
#[derive(Clone, derive_more::Debug)]
#[debug("Secret {{ .. }}")]
#[expect(unreachable_pub, reason = "the generated bindings name it")]
pub struct Secret {
    bytes: Arc<Zeroizing<Vec<u8>>>,
    egress_scope: EgressScope,
    provenance: Provenance,
}

pub(crate) type Handle = Resource<Secret>;

impl Secret {
    pub(crate) fn new(bytes: Zeroizing<Vec<u8>>, egress_scope: EgressScope) -> Result<Self, SecretError> {
        if bytes.len() > MAX_SECRET_BYTES {
            return Err(SecretError::TooLarge);
        }
        Ok(Self {
            bytes: Arc::new(bytes),
            egress_scope,
            provenance: Provenance::Received,
        })
    }

    /// Like [`Self::new`], for bytes that a guest composed.
    pub(crate) fn composed(bytes: Zeroizing<Vec<u8>>, egress_scope: EgressScope) -> Result<Self, SecretError> {
        let made = Self::new(bytes, egress_scope)?;
        Ok(Self {
            provenance: Provenance::Composed,
            ..made
        })
    }

    /// A part of this secret, with the same allowed hosts.
    pub(crate) fn part(&self, bytes: Zeroizing<Vec<u8>>) -> Result<Self, SecretError> {
        let part = Self::new(bytes, self.egress_scope.clone())?;
        Ok(Self {
            provenance: self.provenance,
            ..part
        })
    }

    pub(crate) fn provenance(&self) -> Provenance {
        self.provenance
    }

    pub(crate) fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The bytes, for finding them in texts that must not contain them.
    pub(crate) fn shared(&self) -> Arc<Zeroizing<Vec<u8>>> {
        Arc::clone(&self.bytes)
    }

    pub(crate) fn egress_scope(&self) -> &EgressScope {
        &self.egress_scope
    }

    pub(crate) fn text(&self) -> Result<&str, SecretError> {
        std::str::from_utf8(&self.bytes).map_err(|_| SecretError::BadFormat)
    }

    /// Compares in a time that depends only on the length.
    pub(crate) fn equals(&self, other: &Self) -> bool {
        verify_slices_are_equal(&self.bytes, &other.bytes).is_ok()
    }

    /// Without white space at both ends, as Go's `strings.TrimSpace` sees it.
    pub(crate) fn trim(&self) -> Result<Self, SecretError> {
        let text = self.text()?.trim();
        self.part(Zeroizing::new(text.as_bytes().to_vec()))
    }

    /// Like [`Self::jwt_times`], for a guest. `None` for bytes that a guest composed.
    pub(crate) fn jwt_times_for_guest(&self) -> Option<JwtTimes> {
        match self.provenance {
            Provenance::Received => self.jwt_times(),
            Provenance::Composed => None,
        }
    }

    /// Claims `iat` and `exp`; nobody checked the signature.
    pub(crate) fn jwt_times(&self) -> Option<JwtTimes> {
        let mut parts = self.bytes.split(|byte| *byte == b'.');
        let (_, payload, _) = (parts.next()?, parts.next()?, parts.next()?);
        // A JWE has five parts, and its second one is no payload (RFC 7516, section 3.1).
        if parts.next().is_some() {
            return None;
        }
        let payload = Zeroizing::new(URL_SAFE_NO_PAD.decode(payload).ok()?);
        // serde also reads a struct from an array.
        if payload.first() != Some(&b'{') {
            return None;
        }
        let claims: Claims = serde_json::from_slice(&payload).ok()?;
        Some(JwtTimes {
            issued_at: claims.iat.and_then(instant),
            expires_at: claims.exp.and_then(instant),
        })
    }
}

#[derive(serde::Deserialize)]
struct Claims {
    iat: Option<f64>,
    exp: Option<f64>,
}

/// NumericDate of RFC 7519 as milliseconds.
fn instant(seconds: f64) -> Option<u64> {
    let good = seconds.is_finite() && (0.0..=253_402_300_799.0).contains(&seconds);
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and the year 9999, as just checked"
    )]
    good.then_some((seconds * 1000.0) as u64)
}

pub(crate) fn encode(bytes: &[u8], encoding: Encoding, out: &mut Zeroizing<Vec<u8>>) -> Result<(), SecretError> {
    match encoding {
        Encoding::Raw => out.extend_from_slice(bytes),
        Encoding::Form => escape(bytes, "+", out),
        Encoding::Percent => escape(bytes, "%20", out),
        Encoding::Json => {
            let text = std::str::from_utf8(bytes).map_err(|_| SecretError::BadFormat)?;
            serde_json::to_writer(&mut **out, text).map_err(|_| SecretError::BadFormat)?;
        }
        Encoding::Base64 => out.extend_from_slice(Zeroizing::new(STANDARD.encode(bytes)).as_bytes()),
        Encoding::Base64url => out.extend_from_slice(Zeroizing::new(URL_SAFE.encode(bytes)).as_bytes()),
        Encoding::Base64urlNopad => out.extend_from_slice(Zeroizing::new(URL_SAFE_NO_PAD.encode(bytes)).as_bytes()),
    }
    Ok(())
}

/// Escapes everything but RFC 3986's unreserved characters; `blank` is what a
/// space becomes.
fn escape(bytes: &[u8], blank: &str, out: &mut Vec<u8>) {
    for (at, word) in bytes.split(|byte| *byte == b' ').enumerate() {
        if at > 0 {
            out.extend_from_slice(blank.as_bytes());
        }
        for piece in percent_encode(word, RESERVED) {
            out.extend_from_slice(piece.as_bytes());
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn secret(text: &str) -> Secret {
        Secret::new(Zeroizing::new(text.as_bytes().to_vec()), EgressScope::none()).unwrap()
    }

    #[test]
    fn secrets_are_written_in_the_requested_encoding() {
        for (encoding, expected) in [
            (Encoding::Raw, "é /\"+~"),
            (Encoding::Form, "%C3%A9+%2F%22%2B~"),
            (Encoding::Percent, "%C3%A9%20%2F%22%2B~"),
            (Encoding::Json, "\"é /\\\"+~\""),
            (Encoding::Base64, "w6kgLyIrfg=="),
            (Encoding::Base64url, "w6kgLyIrfg=="),
            (Encoding::Base64urlNopad, "w6kgLyIrfg"),
        ] {
            let mut out = Zeroizing::new(Vec::new());
            encode("é /\"+~".as_bytes(), encoding, &mut out).unwrap();
            assert_eq!(std::str::from_utf8(&out).unwrap(), expected, "{encoding:?}");
        }
        let mut out = Zeroizing::new(Vec::new());
        assert!(matches!(
            encode(&[0xff], Encoding::Json, &mut out),
            Err(SecretError::BadFormat)
        ));
    }

    #[test]
    fn only_jwts_have_times() {
        // {"sub":"x","exp":1767323945}
        let times = secret("e30.eyJzdWIiOiJ4IiwiZXhwIjoxNzY3MzIzOTQ1fQ.c2ln")
            .jwt_times()
            .unwrap();
        assert_eq!((times.issued_at, times.expires_at), (None, Some(1_767_323_945_000)));
        for other in ["opaque", "a.b", "e30.!!.x", "e30.e30.x.y", "e30.W10.x"] {
            assert!(secret(other).jwt_times().is_none(), "{other}");
        }
        assert!(secret("e30.e30.x").jwt_times().unwrap().expires_at.is_none());
    }

    #[test]
    fn a_secret_is_bounded_compared_and_never_shown() {
        let big = Zeroizing::new(vec![b'x'; MAX_SECRET_BYTES + 1]);
        assert!(matches!(
            Secret::new(big, EgressScope::none()),
            Err(SecretError::TooLarge)
        ));
        assert!(secret("a").equals(&secret("a")));
        assert!(!secret("a").equals(&secret("b")) && !secret("a").equals(&secret("aa")));
        assert_eq!(secret(" \tabc\n").trim().unwrap().text().unwrap(), "abc");
        assert!(!format!("{:?}", secret("hunter2")).contains("hunter2"));
    }
}
