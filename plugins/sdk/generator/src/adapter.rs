//! Connects the functions that the bindings export with a [`Generator`].

use core::marker::PhantomData;

use crate::bindings::exports::tollgate::plugin::generators::Guest;
use crate::bindings::tollgate::plugin::provider_types::MintError;
use crate::{Error, GenerateInput, Generator, Parameters};

/// Implements the exports of the world with `G`.
#[doc(hidden)]
#[derive(Debug)]
pub struct Adapter<G>(PhantomData<G>);

impl<G: Generator> Guest for Adapter<G> {
    fn check(config: String) -> Result<Vec<String>, MintError> {
        let config = read(&config)?;
        Ok(G::check(&config)?)
    }

    fn generate(input: GenerateInput) -> Result<Vec<String>, MintError> {
        let config = read(&input.config)?;
        let settings = serde_json::from_str(&input.settings)
            .map_err(|error| Error::config("settings.invalid", format!("settings: {error}")))?;
        let generated = G::generate(&config, &input, &settings)?;
        let text = |parameters: Parameters| serde_json::Value::Object(parameters).to_string();
        Ok(generated.into_iter().map(text).collect())
    }
}

/// Reads the configuration. The host has already checked it with the manifest's schema, so only
/// what the schema cannot express fails here.
fn read<C: serde::de::DeserializeOwned>(config: &str) -> Result<C, Error> {
    let config = if config.is_empty() { "null" } else { config };
    serde_json::from_str(config).map_err(|error| Error::config("config.invalid", format!("configuration: {error}")))
}
