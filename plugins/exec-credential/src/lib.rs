//! The provider `exec-credential`: gets an ExecCredential from a web service, with its token or
//! client certificate. The gateway runs no program, so a client-go exec plugin has to run behind a
//! web server.
//!
//! Source: client-go, `plugin/pkg/client/auth/exec`.

use serde::Deserialize;
use tollgate_provider::serde_json::Value;
use tollgate_provider::{
    ClientCertificate, Credential, Error, Expiry, MintInput, Provider, Request, Secret, bearer, clock,
    credential_provider, optional,
};

/// Default version of the protocol.
const VERSION: &str = "client.authentication.k8s.io/v1";

/// The service to call.
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
        let service_token = optional("bearer")?;
        let mut request = Request::get(&config.url)
            .header("accept", "application/json")
            .capture("$.status.token")
            .capture("$.status.clientKeyData");
        if let Some(service_token) = &service_token {
            request = request.bearer(service_token);
        }
        let before = clock::now();
        let mut answer = request.send()?;
        if !answer.is_success() {
            return Err(answer.refused("the service"));
        }
        let json = answer.json()?;
        check_version(&json, config.api_version.as_deref().unwrap_or(VERSION))?;
        let (token, key) = (answer.captured(0), answer.captured(1));
        let chain = json.pointer("/status/clientCertificateData").and_then(Value::as_str);
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
        let expiry = match json.pointer("/status/expirationTimestamp") {
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

/// Refuses another version than the configured one, as client-go does.
fn check_version(json: &Value, wanted: &str) -> Result<(), Error> {
    if json.get("kind").and_then(Value::as_str) != Some("ExecCredential") {
        return Err(unusable("no ExecCredential"));
    }
    let version = json.get("apiVersion").and_then(Value::as_str).unwrap_or_default();
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
