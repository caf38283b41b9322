//! The provider `aws-eks`: tokens for Amazon EKS. A token is an encoded, presigned URL that calls
//! `GetCallerIdentity`. It never outlives the session that signed it.
//!
//! Sources: aws-iam-authenticator, `pkg/token`; the STS API reference.

mod config;
mod partition;
mod session;
mod sts;
mod token;

use config::Config;
use tollgate_provider::{Credential, Error, MintInput, Provider, bearer, clock, credential_provider};

#[derive(Debug)]
struct Eks;

impl Provider for Eks {
    type Config = Config;

    fn check(config: &Config) -> Result<Vec<String>, Error> {
        config.validate()
    }

    fn mint(config: &Config, _: &MintInput) -> Result<Credential, Error> {
        config.validate()?;
        let session = session::get(config)?;
        let now = clock::now();
        let token = token::make(config, &session.keys, now)?;
        Ok(bearer(token, token::expiry(now).and(session.expiry)))
    }
}

credential_provider!(Eks);
