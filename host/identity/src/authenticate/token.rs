//! Parses a compact JWS (RFC 7515, section 7.1) and verifies its signature.
//!
//! Security: claims are usable only after verification, and only algorithms the issuer lists are
//! accepted.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;
use jsonwebtoken::{Algorithm, DecodingKey};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::error::{Error, InvalidTokenReason, MalformedCredential};

/// Seconds by which `nbf` and `iat` may be ahead of our clock. `exp` has no leeway, as in
/// Kubernetes.
pub(super) const LEEWAY_SECONDS: i64 = 30;

/// What a token is presented as.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum TokenKind {
    /// The credential of a request: an ID token or an access token (RFC 9068).
    Bearer,
    /// The ID token of somebody who signs in.
    IdToken,
    /// The word of an issuer that somebody signed out (OpenID Connect Back-Channel Logout).
    Logout,
}

impl TokenKind {
    /// The types that its header may name, without the prefix `application/`. Many issuers name
    /// `JWT`, or none, regardless of the kind.
    const fn types(self) -> &'static [&'static str] {
        match self {
            Self::Bearer => &["JWT", "at+jwt"],
            Self::IdToken => &["JWT"],
            Self::Logout => &["JWT", "logout+jwt"],
        }
    }
}

/// The parts of an unverified token. No `Debug`: the signature is part of a secret.
pub(super) struct UnverifiedToken<'a> {
    header: Header,
    signed: &'a str,
    signature: &'a str,
    claims: Map<String, Value>,
}

/// The header fields that are used. Key material in the header (`jwk`, `jku`, `x5c`, `x5u`) is
/// never used.
#[derive(Deserialize)]
struct Header {
    alg: String,
    kid: Option<String>,
    typ: Option<String>,
    crit: Option<Value>,
    enc: Option<Value>,
    zip: Option<Value>,
}

impl<'a> UnverifiedToken<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, MalformedCredential> {
        let (signed, signature) = text.rsplit_once('.').ok_or(MalformedCredential::NotJwt)?;
        // Any further dot is in the claims, which then are not base64url.
        let (header, claims) = signed.split_once('.').ok_or(MalformedCredential::NotJwt)?;
        Ok(Self {
            header: decode(header)?,
            signed,
            signature,
            claims: decode(claims)?,
        })
    }

    /// `iss`, unverified; it only selects the verifier.
    pub(super) fn issuer(&self) -> &str {
        super::principal::string_claim(&self.claims, "iss")
    }

    pub(super) fn key_id(&self) -> Option<&str> {
        self.header.kid.as_deref()
    }

    /// The token's algorithm, if it is among `allowed`, the token may be of this kind and its header
    /// requires nothing unsupported.
    pub(super) fn checked_algorithm(
        &self,
        kind: TokenKind,
        allowed: &[Algorithm],
    ) -> Result<Algorithm, InvalidTokenReason> {
        let algorithm = self.header.alg.parse().ok();
        let Some(algorithm) = algorithm.filter(|algorithm| allowed.contains(algorithm)) else {
            let allowed: Vec<_> = allowed.iter().map(|known| format!("`{known:?}`")).collect();
            return Err(InvalidTokenReason::Algorithm(allowed.join(", ")));
        };
        let unsupported = [
            ("crit", &self.header.crit),
            ("enc", &self.header.enc),
            ("zip", &self.header.zip),
        ];
        if let Some((field, _)) = unsupported.into_iter().find(|(_, value)| value.is_some()) {
            return Err(InvalidTokenReason::HeaderField(field));
        }
        let named = self.header.typ.as_deref().unwrap_or("JWT");
        let named = match named.split_once('/') {
            Some((tree, rest)) if tree.eq_ignore_ascii_case("application") => rest,
            Some(_) | None => named,
        };
        if !kind.types().iter().any(|known| known.eq_ignore_ascii_case(named)) {
            let types: Vec<_> = kind.types().iter().map(|known| format!("`{known}`")).collect();
            return Err(InvalidTokenReason::Type(types.join(", ")));
        }
        Ok(algorithm)
    }

    /// Returns the claims if one of `keys` signed the token.
    pub(super) fn into_verified_claims<'k>(
        self,
        keys: impl IntoIterator<Item = &'k DecodingKey>,
        algorithm: Algorithm,
    ) -> Result<Map<String, Value>, InvalidTokenReason> {
        let signed = self.signed.as_bytes();
        // An error, as of a key of another kind, is no signature either.
        let is_signed_by = |key| jsonwebtoken::crypto::verify(self.signature, signed, key, algorithm).unwrap_or(false);
        let is_signed = keys.into_iter().any(is_signed_by);
        is_signed.then_some(self.claims).ok_or(InvalidTokenReason::Signature)
    }
}

fn decode<T: serde::de::DeserializeOwned>(part: &str) -> Result<T, MalformedCredential> {
    let bytes = URL_SAFE_NO_PAD.decode(part).map_err(|_| MalformedCredential::NotJwt)?;
    serde_json::from_slice(&bytes).map_err(|_| MalformedCredential::NotJwt)
}

/// When a token starts and ends, in seconds since 1970.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct TokenTimes {
    pub(super) issued_at: Option<i64>,
    pub(super) expires_at: Option<i64>,
}

impl TokenTimes {
    /// Reads and checks `exp`, `nbf` and `iat` (RFC 7519, section 4.1).
    ///
    /// - `leeway_seconds`: how far `nbf` and `iat` may lie ahead of `now`.
    pub(super) fn check(claims: &Map<String, Value>, now: i64, leeway_seconds: i64) -> Result<Self, Error> {
        let expires_at = numeric_date(claims, "exp")?;
        let issued_at = numeric_date(claims, "iat")?;
        if expires_at.is_some_and(|end| now >= end) {
            return Err(Error::Expired);
        }
        let latest = now.saturating_add(leeway_seconds);
        if numeric_date(claims, "nbf")?.is_some_and(|start| start > latest) {
            return Err(InvalidTokenReason::NotYetValid("nbf").into());
        }
        if issued_at.is_some_and(|issued| issued > latest) {
            return Err(InvalidTokenReason::NotYetValid("iat").into());
        }
        Ok(Self { issued_at, expires_at })
    }
}

/// A NumericDate in whole seconds, fractions cut off.
fn numeric_date(claims: &Map<String, Value>, claim: &'static str) -> Result<Option<i64>, MalformedCredential> {
    let Some(value) = claims.get(claim) else {
        return Ok(None);
    };
    let wrong = MalformedCredential::Claim(claim);
    match (value.as_i64(), value.as_f64()) {
        (Some(seconds), _) => Ok(Some(seconds)),
        #[expect(
            clippy::cast_possible_truncation,
            reason = "cutting the fraction is meant, the range is checked"
        )]
        (None, Some(seconds)) if seconds.abs() < 1e15 => Ok(Some(seconds.floor() as i64)),
        (None, Some(_) | None) => Err(wrong),
    }
}
