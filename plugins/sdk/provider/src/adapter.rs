//! From the bindings' free functions to [`Provider`].

use core::marker::PhantomData;

use crate::bindings::exports::tollgate::plugin::credentials::Guest;
use crate::bindings::tollgate::plugin::provider_types::MintError;
use crate::{Credential, Error, MintInput, Provider, Secret};

/// Exports `P`.
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

/// The manifest's schema was checked before; what fails here it cannot say.
fn read<C: serde::de::DeserializeOwned>(config: &str) -> Result<C, Error> {
    let config = if config.is_empty() { "null" } else { config };
    serde_json::from_str(config).map_err(|error| Error::config("config.invalid", format!("configuration: {error}")))
}
