//! Connects the functions that the bindings export with a [`Provider`].

use core::marker::PhantomData;

use crate::bindings::exports::tollgate::plugin::credentials::Guest;
use crate::bindings::tollgate::plugin::provider_types::MintError;
use crate::{Credential, Error, MintInput, Provider, Secret};

/// Implements the exports of the world with `P`.
#[doc(hidden)]
#[derive(Debug)]
pub struct Adapter<P>(PhantomData<P>);

impl<P: Provider> Guest for Adapter<P> {
    fn check(config: String) -> Result<Vec<String>, MintError> {
        let config = read(&config)?;
        Ok(P::check(&config)?)
    }

    fn mint(input: MintInput) -> Result<Credential, MintError> {
        let config = read(&input.config)?;
        Ok(P::mint(&config, &input)?)
    }

    fn revoke(config: String, revocation: Secret) -> Result<(), MintError> {
        let config = read(&config)?;
        Ok(P::revoke(&config, &revocation)?)
    }
}

/// Reads the configuration. The host has already checked it with the manifest's schema, so only
/// what the schema cannot express fails here.
fn read<C: serde::de::DeserializeOwned>(config: &str) -> Result<C, Error> {
    let config = if config.is_empty() { "null" } else { config };
    serde_json::from_str(config).map_err(|error| Error::config("config.invalid", format!("configuration: {error}")))
}
