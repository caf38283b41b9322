//! The provider `upbound`: exchanges a robot token (the value `token`) for a token of an Upbound
//! organization, for Spaces and control planes.
//!
//! Source: `service/auth` of up-sdk-go.

use serde::Deserialize;
use tollgate_provider::oauth::{self, InvalidRequest};
use tollgate_provider::{Credential, Error, MintInput, Provider, Request, bearer, credential_provider, trimmed};

/// Endpoint that exchanges tokens.
const ENDPOINT: &str = "https://auth.upbound.io/apis/tokenexchange.upbound.io/v1alpha1/orgscopedtokens";

/// The organization that the token is for.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Config {
    /// Name of the organization.
    organization: String,
}

#[derive(Debug)]
struct Upbound;

impl Provider for Upbound {
    type Config = Config;

    fn mint(config: &Config, _: &MintInput) -> Result<Credential, Error> {
        let token = trimmed("token")?;
        let scope = format!("upbound:org:{}", config.organization);
        let request = Request::post(ENDPOINT).bearer(&token).form([
            ("audience", "upbound:spaces:api".into()),
            ("audience", "upbound:spaces:controlplanes".into()),
            ("grant_type", oauth::TOKEN_EXCHANGE.into()),
            ("subject_token_type", "urn:ietf:params:oauth:token-type:id_token".into()),
            ("subject_token", (&token).into()),
            ("scope", scope.into()),
        ]);
        let issued = oauth::token(request, InvalidRequest::TokenRefused)?;
        Ok(bearer(issued.token, issued.expiry))
    }
}

credential_provider!(Upbound);
