//! Asks a web API for a token, as `webAPIProviderConfig` says.
//!
//! In: method, URL, headers and body as Go templates over the cluster's Secret,
//! and where the token stands in the answer. Out: the token, as a handle. Never:
//! a secret's bytes, a redirect, a second try.
//!
//! The modules run in this order: `config` reads the configuration, `ask`
//! renders it, `lower` puts handles into it, `host` sends it, `answer` and
//! `expiry` read what comes back.

mod answer;
mod ask;
mod config;
mod expiry;
mod field;
mod host;
mod lower;
mod query;

use tollgate_provider::{Credential, Error, MintInput, Provider, credential_provider, json_path};

use config::{Plan, RawConfig};

#[derive(Debug)]
struct WebApi;

impl Provider for WebApi {
    type Config = RawConfig;

    fn check(config: &RawConfig) -> Result<Vec<String>, Error> {
        Ok(Plan::new(config, &json_path::check)?.warnings)
    }

    fn mint(config: &RawConfig, _: &MintInput) -> Result<Credential, Error> {
        host::mint(Plan::new(config, &json_path::check)?)
    }
}

credential_provider!(WebApi);
