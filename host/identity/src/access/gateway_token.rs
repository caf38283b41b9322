//! The JWT with which a gateway authenticates to its platform.
//!
//! It is signed with a secret from a file that both have, and lives for thirty seconds.
//! Verification refuses any other algorithm, issuer, audience, secret or time.
//!
//! Security: no error contains the secret.
//!
//! Source: GitLab, `Gitlab::Kas.verify_api_request`.

use std::path::Path;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use http::{HeaderName, HeaderValue};
use jsonwebtoken::{Algorithm, DecodingKey, EncodingKey, Header, Validation};
use serde::{Deserialize, Serialize};
use serde_json::Value;
use zeroize::Zeroizing;

use super::remote::SetupError;

pub(super) const HEADER_NAME: HeaderName = HeaderName::from_static("gitlab-kas-api-request");
const ISSUER: &str = "gitlab-kas";
const AUDIENCE: &str = "gitlab";
/// Lifetime of a token in seconds, as in GitLab's agent server.
const LIFETIME_SECONDS: i64 = 30;
/// Longest lifetime of an accepted token, in seconds.
const MAX_LIFETIME_SECONDS: i64 = 5 * 60;
/// Seconds by which two clocks may differ; applies to `nbf` only.
const LEEWAY: i64 = 30;
/// Fewest bytes of the secret: HS256 is as strong as its key (RFC 7518, section 3.2).
const MIN_SECRET_BYTES: usize = 32;

#[derive(derive_more::Debug)]
#[debug("SharedSecret")]
pub(super) struct SharedSecret {
    sign: EncodingKey,
    verify: DecodingKey,
}

#[derive(Debug, Serialize, Deserialize)]
struct Claims {
    iss: String,
    aud: Value,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    iat: Option<i64>,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    nbf: Option<i64>,
    exp: i64,
}

impl SharedSecret {
    /// Reads the file, which holds base64; surrounding white space is ignored. Blocks.
    pub(super) fn read(path: &Path) -> Result<Self, SetupError> {
        let unusable = |reason| SetupError::SecretFile {
            file: path.display().to_string(),
            reason,
        };
        let text = std::fs::read_to_string(path).map(Zeroizing::new);
        let text = text.map_err(|error| unusable(error.to_string()))?;
        let bytes = STANDARD.decode(text.trim()).map(Zeroizing::new);
        let bytes = bytes.map_err(|_| unusable("it is not base64".to_owned()))?;
        if bytes.len() < MIN_SECRET_BYTES {
            let reason = format!("it has {} bytes, at least {MIN_SECRET_BYTES} are allowed", bytes.len());
            return Err(unusable(reason));
        }
        Ok(Self {
            sign: EncodingKey::from_secret(&bytes),
            verify: DecodingKey::from_secret(&bytes),
        })
    }

    /// Makes a token that is valid for the next thirty seconds.
    ///
    /// - `now`: seconds since 1970.
    pub(super) fn token(&self, now: i64) -> Option<HeaderValue> {
        let claims = Claims {
            iss: ISSUER.to_owned(),
            aud: AUDIENCE.into(),
            iat: Some(now),
            // The platform's clock may be behind this one.
            nbf: Some(now.saturating_sub(5)),
            exp: now.saturating_add(LIFETIME_SECONDS),
        };
        let token = jsonwebtoken::encode(&Header::new(Algorithm::HS256), &claims, &self.sign).ok()?;
        let mut value = HeaderValue::from_str(&token).ok()?;
        value.set_sensitive(true);
        Some(value)
    }

    /// Whether a gateway that has the secret made the token.
    ///
    /// - `now`: seconds since 1970.
    pub(super) fn is_valid_token(&self, token: &HeaderValue, now: i64) -> bool {
        let mut rules = Validation::new(Algorithm::HS256);
        // Times are checked below, by our own clock.
        rules.validate_exp = false;
        rules.validate_nbf = false;
        rules.set_issuer(&[ISSUER]);
        rules.set_audience(&[AUDIENCE]);
        rules.set_required_spec_claims(&["exp", "iss", "aud"]);
        // SECURITY: the signature is compared in constant time by aws-lc.
        let Ok(token) = jsonwebtoken::decode::<Claims>(token.as_bytes(), &self.verify, &rules) else {
            return false;
        };
        let Claims { nbf, exp, .. } = token.claims;
        let begun = nbf.is_none_or(|start| start <= now.saturating_add(LEEWAY));
        begun && now < exp && exp <= now.saturating_add(MAX_LIFETIME_SECONDS)
    }
}

#[cfg(test)]
mod tests;
