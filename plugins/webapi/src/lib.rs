//! The provider `webapi`: requests a token from any web API, as `webAPIProviderConfig` configures.
//! URL, headers and body are Go templates over the cluster's Secret.
//!
//! The modules run in this order: `config` reads the configuration, `render` renders it, `lower`
//! replaces names of secrets by handles, `host` sends the request, `answer` and `expiry` read the
//! answer.

mod answer;
mod config;
mod expiry;
mod field;
mod host;
mod lower;
mod query;
mod render;

use tollgate_provider::{Credential, Error, MintInput, Provider, credential_provider, json_path};

use config::{Plan, RawConfig};

#[derive(Debug)]
struct WebApi;

impl Provider for WebApi {
    type Config = RawConfig;

    fn check(config: &RawConfig) -> Result<Vec<String>, Error> {
        Ok(Plan::new(config, &json_path::check)?.warnings)
    }

    fn mint(config: &RawConfig, input: &MintInput) -> Result<Credential, Error> {
        host::mint(Plan::new(config, &json_path::check)?, &input.cluster)
    }
}

credential_provider!(WebApi);
