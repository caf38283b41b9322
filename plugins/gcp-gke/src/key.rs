//! Gets access tokens with a key of a service account, from a key file or from its members as
//! separate values.
//!
//! Security: the host allows a token endpoint from the key file only if the manifest lists it.
//!
//! Source: RFC 7523, section 2.1; golang.org/x/oauth2/google/jwt.

use serde_json::Value;
use tollgate_provider::oauth::{self, InvalidRequest};
use tollgate_provider::{
    Algorithm, Credential, Error, Request, Secret, SecretError, bearer, clock, jwt, optional, required, secrets,
};

use crate::config::Config;

/// `grant_type` of an assertion.
const GRANT: &str = "urn:ietf:params:oauth:grant-type:jwt-bearer";

/// Default token endpoint.
const TOKEN_URI: &str = "https://oauth2.googleapis.com/token";

/// Lifetime of an assertion in seconds, the maximum that Google accepts.
const ASSERTION_SECONDS: u64 = 3600;

/// The content of a key file.
#[derive(Debug)]
struct Key {
    email: String,
    id: Option<String>,
    token_uri: String,
    private: Secret,
}

/// Mints a credential with the key.
pub fn mint(config: &Config) -> Result<Credential, Error> {
    let key = match optional("credentials.json")? {
        Some(file) => from_file(&file)?,
        None => from_members()?,
    };
    let assertion = assertion(&key, &config.scopes().join(" "))?;
    let request = Request::post(&key.token_uri)
        .header("accept", "application/json")
        .form([("grant_type", GRANT.into()), ("assertion", (&assertion).into())]);
    let issued = oauth::token(request, InvalidRequest::Malformed).map_err(explain_clock_error)?;
    Ok(bearer(issued.token, issued.expiry))
}

fn from_file(file: &Secret) -> Result<Key, Error> {
    let text = |name: &str| match secrets::public_field(file, &format!("$.{name}")) {
        Ok(text) => Ok(Some(text)),
        Err(SecretError::NotFound) => Ok(None),
        Err(error) => Err(Error::config(
            "gcp-gke.key",
            format!("`{name}` of `credentials.json`: {error}"),
        )),
    };
    let private = secrets::json_field(file, "$.private_key")
        .map_err(|error| Error::config("gcp-gke.key", format!("`private_key` of `credentials.json`: {error}")))?;
    let missing = || {
        Error::config(
            "gcp-gke.key",
            "`credentials.json` is no key file: `client_email` is missing",
        )
    };
    Ok(Key {
        email: text("client_email")?.ok_or_else(missing)?,
        id: text("private_key_id")?,
        token_uri: text("token_uri")?.unwrap_or_else(|| TOKEN_URI.to_owned()),
        private,
    })
}

fn from_members() -> Result<Key, Error> {
    let text = |name: &str| match secrets::public(name) {
        Ok(text) => Ok(Some(text.trim().to_owned())),
        Err(SecretError::NotFound) => Ok(None),
        Err(error) => Err(Error::from(error)),
    };
    let missing = || {
        let text = "the cluster's Secret has neither `credentials.json` nor `client_email`";
        Error::config("secret.not-found", text)
    };
    Ok(Key {
        email: text("client_email")?.ok_or_else(missing)?,
        id: text("private_key_id")?,
        token_uri: text("token_uri")?.unwrap_or_else(|| TOKEN_URI.to_owned()),
        private: required("private_key")?,
    })
}

fn assertion(key: &Key, scope: &str) -> Result<Secret, Error> {
    let now = clock::now() / 1000;
    let header: Vec<(&str, Value)> = key.id.iter().map(|id| ("kid", id.as_str().into())).collect();
    let claims = [
        ("iss", key.email.as_str().into()),
        ("scope", scope.into()),
        ("aud", key.token_uri.as_str().into()),
        ("iat", now.into()),
        ("exp", now.saturating_add(ASSERTION_SECONDS).into()),
    ];
    jwt::sign(Algorithm::Rs256, &key.private, &header, &claims)
}

/// Adds a hint to `invalid_grant` errors that Google returns because the clocks differ.
fn explain_clock_error(mut error: Error) -> Error {
    let clock = ["short-lived token", "reasonable timeframe", "iat and exp"];
    if error.code == "oauth.invalid_grant" && clock.iter().any(|text| error.message.contains(text)) {
        error.message = format!("the gateway's clock differs from Google's: {}", error.message);
    }
    error
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_error_of_the_clock_is_explained() {
        let message = "invalid_grant: Invalid JWT: Token must be a short-lived token (60 minutes)";
        let error = explain_clock_error(Error::denied("oauth.invalid_grant", message));
        assert!(error.message.starts_with("the gateway's clock differs"));
        let other = Error::denied("oauth.invalid_grant", "invalid_grant: account not found");
        assert_eq!(explain_clock_error(other.clone()), other);
    }
}
