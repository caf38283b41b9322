//! Authenticates the client at the token endpoint.
//!
//! Security: every request gets a new assertion.

use serde_json::Value as JsonValue;
use tollgate_provider::encoding::form;
use tollgate_provider::{
    Algorithm, Encoding, Error, Part, Request, Secret, SecretRef, Value, clock, compose, jwt, oauth, required,
};

use crate::config::{self, ClientAuth, Config};

/// Lifetime of an assertion in seconds. Profiles of RFC 7523 allow at most 300.
const ASSERTION_SECONDS: u64 = 60;

/// A client with its credential.
#[derive(Debug)]
pub struct Client<'a> {
    id: Option<&'a str>,
    credential: ClientCredential,
}

#[derive(Debug)]
enum ClientCredential {
    /// Value of `Authorization`, without `Basic `.
    Basic(Secret),
    Secret(Secret),
    Assertion(Secret),
    None,
}

impl<'a> Client<'a> {
    /// Gets the secrets that the configuration names.
    pub fn new(config: &'a Config) -> Result<Self, Error> {
        let id = config.client_id.as_deref();
        let credential = match config.client_auth {
            ClientAuth::Basic => {
                ClientCredential::Basic(basic(id.unwrap_or_default(), &required(config.client_secret_ref())?)?)
            }
            ClientAuth::Post => ClientCredential::Secret(required(config.client_secret_ref())?),
            ClientAuth::PrivateKeyJwt => ClientCredential::Assertion(assertion(config, id.unwrap_or_default())?),
            ClientAuth::None => ClientCredential::None,
        };
        Ok(Self { id, credential })
    }

    /// Adds `pairs` and the client's credential to `request`.
    pub fn authenticate<'r>(&'r self, request: Request<'r>, pairs: Vec<(&'r str, Value<'r>)>) -> Request<'r> {
        let mut pairs = pairs;
        if let (Some(id), false) = (self.id, matches!(self.credential, ClientCredential::Basic(_))) {
            pairs.push(("client_id", id.into()));
        }
        match &self.credential {
            ClientCredential::Basic(value) => {
                let value = SecretRef {
                    value,
                    encoding: Encoding::Raw,
                };
                let parts = vec![Part::Text("Basic ".to_owned()), Part::Secret(value)];
                return request.form(pairs).header_parts("authorization", parts);
            }
            ClientCredential::Secret(secret) => pairs.push(("client_secret", secret.into())),
            ClientCredential::Assertion(assertion) => {
                pairs.push(("client_assertion_type", oauth::CLIENT_ASSERTION.into()));
                pairs.push(("client_assertion", assertion.into()));
            }
            ClientCredential::None => {}
        }
        request.form(pairs)
    }
}

/// Client id and secret, form-encoded before base64 (RFC 6749, section 2.3.1).
fn basic(id: &str, secret: &Secret) -> Result<Secret, Error> {
    let secret = SecretRef {
        value: secret,
        encoding: Encoding::Form,
    };
    compose(
        &[Part::Text(format!("{}:", form(id))), Part::Secret(secret)],
        Encoding::Base64,
    )
}

/// A client assertion (RFC 7523, section 3).
fn assertion(config: &Config, id: &str) -> Result<Secret, Error> {
    let key = required(config.key_ref())?;
    let algorithm = match config.algorithm {
        config::Algorithm::Rs256 => Algorithm::Rs256,
        config::Algorithm::Ps256 => Algorithm::Ps256,
        config::Algorithm::Es256 => Algorithm::Es256,
    };
    let now = clock::now() / 1000;
    let audience = config.assertion_audience.as_ref().unwrap_or(&config.endpoint);
    let kid = config.kid.iter().map(|kid| ("kid", kid.as_str().into()));
    let header: Vec<(&str, JsonValue)> = kid.collect();
    let claims = [
        ("iss", id.into()),
        ("sub", id.into()),
        ("aud", audience.as_str().into()),
        ("iat", now.into()),
        ("exp", now.saturating_add(ASSERTION_SECONDS).into()),
        ("jti", jwt::unique_id().into()),
    ];
    jwt::sign(algorithm, &key, &header, &claims)
}
