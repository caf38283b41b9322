//! Signs short-lived assertions of who calls, each for one extension.
//!
//! An assertion is a JWT in a header value; extensions verify it with the public key.
//!
//! Security: the private key stays in this module. Each request gets its own assertion: one for one
//! audience, person or application is never given to another. None are cached, because signing
//! takes only about 20 µs.

use std::path::Path;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, Ed25519KeyPair};
use http::HeaderValue;
use jsonwebtoken::jwk::{Jwk, JwkSet, PublicKeyUse, ThumbprintHash};
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use secrecy::{ExposeSecret, SecretString};
use serde::Serialize;

use tollgate_objects::extensions::AssertionSpec;
use tollgate_runtime::followed::FollowedFile;

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
    /// The public key, for `/.well-known/jwks.json`.
    pub jwks: JwkSet,
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
            // With less than a second, `exp` would be `now`, and the assertion would have ended already.
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

/// How long a new key is published before it signs, and a former one after it has signed last. The longest
/// assertion has ended by then, and replicas and extensions have read the keys again.
const OVERLAP: Duration = MAX_LIFETIME;

/// The key that signs now, and those that are published besides: the next one and the former one.
#[derive(Debug)]
pub struct SigningKeys {
    /// `None` for a key that lives as long as the process.
    file: Option<Arc<FollowedFile<Signer>>>,
    rotation: Mutex<Rotation>,
}

#[derive(Debug)]
struct Rotation {
    current: Arc<Signer>,
    /// Since when each has its place.
    next: Option<(Arc<Signer>, Instant)>,
    former: Option<(Arc<Signer>, Instant)>,
}

impl Rotation {
    /// Notes which key the file has now.
    fn advance(&mut self, newest: &Arc<Signer>, now: Instant) {
        let is_over = |since: &Instant| now.saturating_duration_since(*since) >= OVERLAP;
        if self.former.as_ref().is_some_and(|(_, since)| is_over(since)) {
            self.former = None;
        }
        if newest.header.kid == self.current.header.kid {
            // The former key was put back before the next one signed.
            self.next = None;
            return;
        }
        match &self.next {
            Some((next, since)) if next.header.kid == newest.header.kid => {
                if is_over(since) {
                    let former = std::mem::replace(&mut self.current, Arc::clone(newest));
                    (self.former, self.next) = (Some((former, now)), None);
                }
            }
            Some(_) | None => self.next = Some((Arc::clone(newest), now)),
        }
    }
}

impl SigningKeys {
    /// A new key that lives as long as the process.
    ///
    /// # Errors
    /// As [`Signer::generate`].
    pub fn generate(issuer: String) -> Result<Self, Error> {
        Ok(Self::new(None, Arc::new(Signer::generate(issuer)?)))
    }

    /// The key of a PEM file, which is followed. Another key signs once it has been published for five
    /// minutes, so that no extension meets a signature whose key it cannot find. Blocks.
    ///
    /// # Errors
    /// The file cannot be read or has no usable key.
    pub fn follow(setting: &'static str, path: &Path, issuer: String) -> Result<Self, String> {
        let file = FollowedFile::open(setting, path, move |content| {
            let pem = str::from_utf8(content).map_err(|_| Error::Key.to_string())?;
            Signer::from_pem(issuer.clone(), &SecretString::from(pem)).map_err(|error| error.to_string())
        })?;
        let signer = file.load();
        Ok(Self::new(Some(file), signer))
    }

    fn new(file: Option<Arc<FollowedFile<Signer>>>, current: Arc<Signer>) -> Self {
        let rotation = Rotation {
            current,
            next: None,
            former: None,
        };
        Self {
            file,
            rotation: Mutex::new(rotation),
        }
    }

    fn now<T>(&self, read: impl FnOnce(&Rotation) -> T) -> T {
        let mut rotation = self.rotation.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(file) = &self.file {
            rotation.advance(&file.load(), Instant::now());
        }
        read(&rotation)
    }

    /// As [`Signer::sign`], with the key that signs now.
    ///
    /// # Errors
    /// [`Error::Sign`].
    pub fn sign(&self, spec: &AssertionSpec, claims: &AssertionClaims<'_>) -> Result<HeaderValue, Error> {
        self.now(|rotation| Arc::clone(&rotation.current)).sign(spec, claims)
    }

    /// The public keys, for `/.well-known/jwks.json`.
    pub fn jwks(&self) -> JwkSet {
        self.now(Rotation::jwks)
    }
}

impl Rotation {
    fn jwks(&self) -> JwkSet {
        let others = [&self.next, &self.former]
            .into_iter()
            .flatten()
            .map(|(signer, _)| signer);
        let signers = std::iter::once(&self.current).chain(others);
        JwkSet {
            keys: signers.flat_map(|signer| signer.jwks.keys.clone()).collect(),
        }
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
