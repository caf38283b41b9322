//! Signs short-lived assertions of who calls, each for one extension.
//!
//! An assertion is a JWT in a header value; extensions verify it with the public key.
//!
//! Security: the private key stays in this module. Each request gets an assertion of its own: one
//! for one audience, person or application is never given to another. None are cached, because
//! signing takes only about 20 µs.

use std::time::Duration;

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair};
use http::HeaderValue;
use jsonwebtoken::jwk::{Jwk, JwkSet, PublicKeyUse, ThumbprintHash};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;

use tollgate_state::extensions::AssertionSpec;

/// Longest lifetime of an assertion.
pub const MAX_LIFETIME: Duration = Duration::from_secs(300);

/// Why there is no signer or no assertion.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No key could be made.
    #[error("no signing key could be made")]
    Generate,
    /// The configured key is neither a P-256 nor an Ed25519 key in PKCS#8 PEM.
    #[error("the signing key is neither a P-256 nor an Ed25519 private key in PKCS#8 PEM")]
    Key,
    /// Signing failed.
    #[error("signing failed")]
    Sign(#[source] jsonwebtoken::errors::Error),
}

/// The claims of an assertion, except who signed it and when.
#[derive(Clone, Copy, Debug)]
pub struct AssertionClaims<'a> {
    /// `sub`: the caller's user id.
    pub subject: &'a str,
    /// `preferred_username`; may be empty.
    pub username: &'a str,
    /// `groups`.
    pub groups: &'a [String],
    /// `app`: namespace and name, when the request is about one.
    pub application: Option<(&'a str, &'a str)>,
    /// `project`, when the request is about one.
    pub project: Option<&'a str>,
    /// End of the caller's own credential in seconds since 1970; no assertion outlives it.
    pub caller_expires_at: Option<i64>,
}

#[derive(Serialize)]
struct JwtClaims<'a> {
    iss: &'a str,
    aud: &'a str,
    sub: &'a str,
    #[serde(skip_serializing_if = "str::is_empty")]
    preferred_username: &'a str,
    groups: &'a [String],
    #[serde(skip_serializing_if = "Option::is_none")]
    app: Option<String>,
    #[serde(skip_serializing_if = "Option::is_none")]
    project: Option<&'a str>,
    iat: i64,
    nbf: i64,
    exp: i64,
    jti: String,
}

/// Signs assertions with one key.
#[derive(derive_more::Debug)]
#[debug("Signer {{ issuer: {issuer:?}, kid: {:?}, .. }}", self.header.kid)]
pub struct Signer {
    issuer: String,
    header: Header,
    key: EncodingKey,
    jwks: JwkSet,
}

impl Signer {
    /// Makes a signer with a new P-256 key that lives as long as the process.
    ///
    /// - `issuer`: `iss`, normally the gateway's URL.
    ///
    /// # Errors
    /// [`Error::Generate`].
    pub fn generate(issuer: String) -> Result<Self, Error> {
        let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).map_err(|_| Error::Generate)?;
        let der = pair.to_pkcs8v1().map_err(|_| Error::Generate)?;
        Self::new(issuer, Algorithm::ES256, EncodingKey::from_ec_der(der.as_ref()))
    }

    /// Makes a signer with the operator's key, so that several replicas can share it.
    ///
    /// # Errors
    /// [`Error::Key`].
    pub fn from_pem(issuer: String, pem: &SecretString) -> Result<Self, Error> {
        let pem = pem.expose_secret().as_bytes();
        let (algorithm, key) = match EncodingKey::from_ec_pem(pem) {
            Ok(key) => (Algorithm::ES256, key),
            Err(_) => (
                Algorithm::EdDSA,
                EncodingKey::from_ed_pem(pem)
                    .map_err(|_| Error::Key)
                    .and_then(|key| private_only(&key))?,
            ),
        };
        Self::new(issuer, algorithm, key)
    }

    fn new(issuer: String, algorithm: Algorithm, key: EncodingKey) -> Result<Self, Error> {
        let mut jwk = Jwk::from_encoding_key(&key, algorithm).map_err(|_| Error::Key)?;
        let kid = jwk.thumbprint(ThumbprintHash::SHA256).map_err(|_| Error::Key)?;
        jwk.common.key_id = Some(kid.clone());
        jwk.common.public_key_use = Some(PublicKeyUse::Signature);
        let header = Header {
            kid: Some(kid),
            ..Header::new(algorithm)
        };
        let signer = Self {
            issuer,
            header,
            key,
            jwks: JwkSet { keys: vec![jwk] },
        };
        // A key that cannot sign is found here, not at the first request.
        jsonwebtoken::encode(&signer.header, &serde_json::json!({}), &signer.key).map_err(|_| Error::Key)?;
        Ok(signer)
    }

    /// The public key, for `/.well-known/jwks.json`.
    pub fn jwks(&self) -> &JwkSet {
        &self.jwks
    }

    /// Returns an assertion for one extension.
    ///
    /// # Errors
    /// [`Error::Sign`].
    pub fn sign(&self, spec: &AssertionSpec, claims: &AssertionClaims<'_>) -> Result<HeaderValue, Error> {
        self.sign_at(spec, claims, jiff::Timestamp::now().as_second())
    }

    fn sign_at(&self, spec: &AssertionSpec, claims: &AssertionClaims<'_>, now: i64) -> Result<HeaderValue, Error> {
        let lifetime = i64::try_from(spec.lifetime.min(MAX_LIFETIME).as_secs())
            .unwrap_or_default()
            .max(1);
        let exp = claims
            .caller_expires_at
            .unwrap_or(i64::MAX)
            .min(now.saturating_add(lifetime));
        let jwt_claims = JwtClaims {
            iss: &self.issuer,
            aud: &spec.audience,
            sub: claims.subject,
            preferred_username: claims.username,
            groups: claims.groups,
            app: claims
                .application
                .map(|(namespace, name)| format!("{namespace}:{name}")),
            project: claims.project,
            iat: now,
            nbf: now,
            exp,
            jti: uuid::Uuid::now_v7().to_string(),
        };
        let token = jsonwebtoken::encode(&self.header, &jwt_claims, &self.key).map_err(Error::Sign)?;
        let mut value = HeaderValue::try_from(token)
            .map_err(|_| Error::Sign(jsonwebtoken::errors::ErrorKind::InvalidToken.into()))?;
        value.set_sensitive(true);
        Ok(value)
    }
}

/// Returns the same Ed25519 key without its public half, which newer PKCS#8 files add and the JWK
/// encoder does not expect.
fn private_only(key: &EncodingKey) -> Result<EncodingKey, Error> {
    let pair = Ed25519KeyPair::from_pkcs8(key.as_bytes()).map_err(|_| Error::Key)?;
    let der = pair.to_pkcs8v1().map_err(|_| Error::Key)?;
    Ok(EncodingKey::from_ed_der(der.as_ref()))
}

#[cfg(test)]
mod tests;
