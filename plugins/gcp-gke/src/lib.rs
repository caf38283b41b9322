//! The provider `gcp-gke`: access tokens for Google Kubernetes Engine, from a service account key,
//! the metadata server or workload identity federation. It uses the configured source only.
//!
//! Sources: golang.org/x/oauth2/google; the references of Security Token Service
//! and IAM Credentials.

mod config;
mod key;
mod wif;

use config::{Config, Mode};
use tollgate_provider::{Credential, Error, Expiry, MintInput, Provider, ambient, bearer, clock, credential_provider};

#[derive(Debug)]
struct Gke;

impl Provider for Gke {
    type Config = Config;

    fn check(config: &Config) -> Result<Vec<String>, Error> {
        config.validate()
    }

    fn mint(config: &Config, _: &MintInput) -> Result<Credential, Error> {
        config.validate()?;
        match config.mode {
            Mode::ServiceAccountKey => key::mint(config),
            Mode::Wif => wif::mint(config),
            Mode::Metadata => {
                let found = ambient::gce_metadata_token(&config.scopes())?;
                let now = clock::now();
                let expiry = found
                    .expires_at
                    .map_or_else(Expiry::unknown, |end| Expiry::at(end, now));
                Ok(bearer(found.token, expiry))
            }
        }
    }
}

credential_provider!(Gke);
