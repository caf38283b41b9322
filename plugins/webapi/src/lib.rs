//! Asks a web API for a token, as `webAPIProviderConfig` says.
//!
//! In: method, URL, headers and body as Go templates over the cluster's Secret,
//! and where the token stands in the answer. Out: the token, as a handle. Never:
//! a secret's bytes, a redirect, a second try.
//!
//! The request goes through these rooms: `config` reads what is wanted, `ask`
//! renders it, `lower` puts handles into it, `host` sends it, `answer` and
//! `expiry` read what comes back.

mod answer;
mod ask;
mod config;
mod expiry;
mod failure;
mod field;
mod host;
mod lower;
mod query;

use tollgate_provider::bindings::exports::tollgate::plugin::credentials::{
    Credential, Guest, MintError, MintInput, Secret,
};
use tollgate_provider::bindings::tollgate::plugin::json_path;

use config::Plan;

#[derive(Debug)]
struct WebApi;

impl Guest for WebApi {
    fn check(config: String) -> Result<Vec<String>, MintError> {
        Ok(Plan::read(&config, &json_path::check)?.warnings)
    }

    fn mint(input: MintInput) -> Result<Credential, MintError> {
        let plan = Plan::read(&input.config, &json_path::check)?;
        Ok(host::mint(plan)?)
    }

    /// Tokens of web APIs are not given back.
    fn revoke(_config: String, _revocation: Secret) -> Result<(), MintError> {
        Ok(())
    }
}

tollgate_provider::bindings::export_credential_provider!(WebApi with_types_in tollgate_provider::bindings);
