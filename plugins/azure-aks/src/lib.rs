//! Access tokens of Entra ID for Azure Kubernetes Service.
//!
//! In: a client and its secret, certificate, federated token or managed identity.
//! Out: a token for the server application of AKS. Never: `ext_expires_in`, which
//! is for outages of Entra ID only.
//!
//! Sources: kubelogin; "Microsoft identity platform and the OAuth 2.0 client
//! credentials flow".

mod config;

use config::{Config, Proof};
use tollgate_provider::encoding::base64url;
use tollgate_provider::oauth::{self, InvalidRequest};
use tollgate_provider::{
    Algorithm, Credential, Error, Expiry, MintInput, Provider, Request, Secret, Value, ambient, ambient_token, bearer,
    clock, credential_provider, crypto, jwt, required,
};

/// Seconds an assertion is good for; Entra ID recommends no more than ten minutes.
const ASSERTION_SECONDS: u64 = 300;

#[derive(Debug)]
struct Aks;

impl Provider for Aks {
    type Config = Config;

    fn check(config: &Config) -> Result<Vec<String>, Error> {
        config.proof().map(|_| Vec::new())
    }

    fn mint(config: &Config, _: &MintInput) -> Result<Credential, Error> {
        match config.proof()? {
            Proof::Imds => imds(config),
            Proof::Secret(client) => {
                let secret = required("clientSecret")?;
                ask(&client, config, vec![("client_secret", (&secret).into())])
            }
            Proof::Certificate(client) => {
                let assertion = assertion(&client)?;
                ask(&client, config, asserted(&assertion))
            }
            Proof::Federated(client) => {
                let token = ambient_token(config.federated_audience())?.token;
                ask(&client, config, asserted(&token))
            }
        }
    }
}

/// A client of a tenant.
#[derive(Debug, PartialEq, Eq)]
pub struct Client {
    /// Token endpoint of the tenant.
    endpoint: String,
    id: String,
}

/// A token of the managed identity, which the host gets.
fn imds(config: &Config) -> Result<Credential, Error> {
    let found = ambient::azure_imds_token(config.application(), config.client_id.as_deref())?;
    let now = clock::now();
    let expiry = found
        .expires_at
        .map_or_else(Expiry::unknown, |end| Expiry::at(end, now));
    Ok(bearer(found.token, expiry))
}

fn asserted(assertion: &Secret) -> Vec<(&str, Value<'_>)> {
    vec![
        ("client_assertion_type", oauth::CLIENT_ASSERTION.into()),
        ("client_assertion", assertion.into()),
    ]
}

fn ask(client: &Client, config: &Config, proof: Vec<(&str, Value<'_>)>) -> Result<Credential, Error> {
    let mut form: Vec<(&str, Value<'_>)> = vec![("client_id", client.id.as_str().into())];
    form.extend(proof);
    form.push(("grant_type", "client_credentials".into()));
    form.push(("scope", format!("{}/.default", config.application()).into()));
    let request = Request::post(&client.endpoint)
        .header("accept", "application/json")
        .form(form);
    let granted = oauth::token(request, InvalidRequest::Malformed)?;
    Ok(bearer(granted.token, granted.expiry))
}

/// A JWT signed by the client's certificate, fresh each time.
fn assertion(client: &Client) -> Result<Secret, Error> {
    let certificate = required("tls.crt")?;
    let key = required("tls.key")?;
    let digest = crypto::certificate_sha256(&certificate)
        .map_err(|error| Error::config("azure-aks.certificate", format!("`tls.crt` is no certificate: {error}")))?;
    let now = clock::now() / 1000;
    let header = [("x5t#S256", base64url(&digest).into())];
    let claims = [
        ("aud", client.endpoint.as_str().into()),
        ("iss", client.id.as_str().into()),
        ("sub", client.id.as_str().into()),
        ("jti", jwt::unique_id().into()),
        ("nbf", now.into()),
        ("iat", now.into()),
        ("exp", now.saturating_add(ASSERTION_SECONDS).into()),
    ];
    jwt::sign(Algorithm::Ps256, &key, &header, &claims)
}

credential_provider!(Aks);
