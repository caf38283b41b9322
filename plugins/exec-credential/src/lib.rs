//! What a client-go exec plugin prints, from a web service.
//!
//! In: the service's URL, and the secret value `bearer` it wants to see. Out: token
//! and client certificate of the ExecCredential it answers. Never: a program run
//! in the gateway.
//!
//! For those who have an exec plugin of their own: behind a web server it serves
//! the gateway too. Source: client-go, `plugin/pkg/client/auth/exec`.

use serde::Deserialize;
use tollgate_provider::serde_json::Value;
use tollgate_provider::{
    ClientCertificate, Credential, Error, Expiry, MintInput, Provider, Request, Secret, bearer, clock,
    credential_provider, optional,
};

/// The version of the protocol that goes without saying.
const VERSION: &str = "client.authentication.k8s.io/v1";

/// Whom to ask.
#[derive(Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Config {
    /// `https` URL of the service.
    url: String,
    /// The version its answers must have.
    api_version: Option<String>,
}

#[derive(Debug)]
struct ExecCredential;

impl Provider for ExecCredential {
    type Config = Config;

    fn mint(config: &Config, _: &MintInput) -> Result<Credential, Error> {
        let shown = optional("bearer")?;
        let mut request = Request::get(&config.url)
            .header("accept", "application/json")
            .capture("$.status.token")
            .capture("$.status.clientKeyData");
        if let Some(shown) = &shown {
            request = request.bearer(shown);
        }
        let before = clock::now();
        let mut answer = request.send()?;
        if !answer.is_success() {
            return Err(answer.refused("the service"));
        }
        let said = answer.json()?;
        check_version(&said, config.api_version.as_deref().unwrap_or(VERSION))?;
        let (token, key) = (answer.captured(0), answer.captured(1));
        let chain = said.pointer("/status/clientCertificateData").and_then(Value::as_str);
        let certificate = match (chain.filter(|chain| !chain.is_empty()), key) {
            (Some(chain), Some(key_pem)) => Some(ClientCertificate {
                chain_pem: chain.to_owned(),
                key_pem,
            }),
            (None, None) => None,
            (Some(_), None) => return Err(unusable("a certificate without its key")),
            (None, Some(_)) => return Err(unusable("a key without its certificate")),
        };
        if token.is_none() && certificate.is_none() {
            return Err(unusable("neither a token nor a certificate"));
        }
        let expiry = match said.pointer("/status/expirationTimestamp") {
            None | Some(Value::Null) => Expiry::unknown(),
            end => Expiry::rfc3339(end, "status.expirationTimestamp", before),
        };
        Ok(credential(token, certificate, expiry))
    }
}

fn credential(token: Option<Secret>, certificate: Option<ClientCertificate>, expiry: Expiry) -> Credential {
    match token {
        Some(token) => Credential {
            certificate,
            ..bearer(token, expiry)
        },
        None => Credential {
            token: None,
            certificate,
            headers: Vec::new(),
            expires_at: expiry.at,
            cacheable: expiry.cacheable,
            revocation: None,
            warnings: expiry.warning.into_iter().collect(),
        },
    }
}

/// As client-go: another version is a mistake in the configuration.
fn check_version(said: &Value, wanted: &str) -> Result<(), Error> {
    if said.get("kind").and_then(Value::as_str) != Some("ExecCredential") {
        return Err(unusable("no ExecCredential"));
    }
    let version = said.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
    if version == wanted {
        return Ok(());
    }
    let message = format!("the service answers with `{version}`, `apiVersion` says `{wanted}`; both must be the same");
    Err(Error::config("exec.version", message))
}

fn unusable(what: &str) -> Error {
    Error::permanent("exec.credential", format!("the service answered {what}"))
}

credential_provider!(ExecCredential);
