//! The provider `oauth2`: tokens from any OAuth 2.0 token endpoint, by client credentials or token
//! exchange. It uses one client authentication and does not fall back to another.
//!
//! Sources: RFC 6749, section 4.4; RFC 7523, section 2.2; RFC 8693, section 2.

mod client;
mod config;

use config::{Config, Grant};
use tollgate_provider::oauth::{self, InvalidRequest};
use tollgate_provider::{
    Credential, Error, MintInput, Provider, Request, Secret, Value, ambient_token, bearer, credential_provider, trimmed,
};

#[derive(Debug)]
struct OAuth2;

impl Provider for OAuth2 {
    type Config = Config;

    fn check(config: &Config) -> Result<Vec<String>, Error> {
        config.validate()
    }

    fn mint(config: &Config, _: &MintInput) -> Result<Credential, Error> {
        config.validate()?;
        let client = client::Client::new(config)?;
        let subject = subject(config)?;
        let actor = config.actor_token_ref.as_deref().map(trimmed).transpose()?;

        let mut form = plain_pairs(config);
        if let (Some(subject), Some(kind)) = (&subject, &config.subject_token_type) {
            form.push(("subject_token", subject.into()));
            form.push(("subject_token_type", kind.into()));
        }
        if let (Some(actor), Some(kind)) = (&actor, &config.actor_token_type) {
            form.push(("actor_token", actor.into()));
            form.push(("actor_token_type", kind.into()));
        }
        let request = client.authenticate(Request::post(&config.endpoint), form);
        let meaning = match config.grant {
            Grant::ClientCredentials => InvalidRequest::Malformed,
            Grant::TokenExchange => InvalidRequest::TokenRefused,
        };
        let issued = oauth::token(request.header("accept", "application/json"), meaning)?;
        Ok(bearer(issued.token, issued.expiry))
    }
}

/// The token to exchange.
fn subject(config: &Config) -> Result<Option<Secret>, Error> {
    match (config.grant, &config.subject_audience) {
        (Grant::ClientCredentials, _) => Ok(None),
        (Grant::TokenExchange, Some(audience)) => Ok(Some(ambient_token(audience)?.token)),
        (Grant::TokenExchange, None) => trimmed(config.subject_token_ref()).map(Some),
    }
}

/// The pairs of the form that are not secret.
fn plain_pairs(config: &Config) -> Vec<(&'static str, Value<'static>)> {
    let grant = match config.grant {
        Grant::ClientCredentials => "client_credentials",
        Grant::TokenExchange => oauth::TOKEN_EXCHANGE,
    };
    let mut form = vec![("grant_type", grant.into())];
    form.extend(config.resource.iter().map(|text| ("resource", text.into())));
    form.extend(config.audience.iter().map(|text| ("audience", text.into())));
    let scope = config.scope.join(" ");
    if !scope.is_empty() {
        form.push(("scope", scope.into()));
    }
    if let Some(kind) = &config.requested_token_type {
        form.push(("requested_token_type", kind.into()));
    }
    form
}

credential_provider!(OAuth2);

#[cfg(test)]
mod tests;
