//! The provider `azure-aks`: access tokens of Entra ID for Azure Kubernetes Service. The gateway
//! authenticates with a secret, a certificate, a federated token or a managed identity.
//!
//! It does not read `ext_expires_in`, which is only for outages of Entra ID.
//!
//! Sources: kubelogin; "Microsoft identity platform and the OAuth 2.0 client
//! credentials flow".

mod config;

use config::{Authentication, Config};
use tollgate_provider::encoding::base64url;
use tollgate_provider::oauth::{self, InvalidRequest};
use tollgate_provider::{
    Algorithm, Credential, Error, Expiry, MintInput, Provider, Request, Secret, Value, ambient, ambient_token, bearer,
    clock, credential_provider, crypto, jwt, required,
};

/// Lifetime of an assertion in seconds. Entra ID recommends at most ten minutes.
const ASSERTION_SECONDS: u64 = 300;

#[derive(Debug)]
struct Aks;

impl Provider for Aks {
    type Config = Config;

    fn check(config: &Config) -> Result<Vec<String>, Error> {
        config.authentication().map(|_| Vec::new())
    }

    fn mint(config: &Config, _: &MintInput) -> Result<Credential, Error> {
        match config.authentication()? {
            Authentication::Imds => imds(config),
            Authentication::Secret(client) => {
                let secret = required("clientSecret")?;
                request_token(&client, config, vec![("client_secret", (&secret).into())])
            }
            Authentication::Certificate(client) => {
                let assertion = assertion(&client)?;
                request_token(&client, config, assertion_pairs(&assertion))
            }
            Authentication::Federated(client) => {
                let token = ambient_token(config.federated_audience())?.token;
                request_token(&client, config, assertion_pairs(&token))
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

/// A token of the managed identity. The host gets it from the instance metadata service.
fn imds(config: &Config) -> Result<Credential, Error> {
    let found = ambient::azure_imds_token(config.application(), config.client_id.as_deref())?;
    let now = clock::now();
    let expiry = found
        .expires_at
        .map_or_else(Expiry::unknown, |end| Expiry::at(end, now));
    Ok(bearer(found.token, expiry))
}

fn assertion_pairs(assertion: &Secret) -> Vec<(&str, Value<'_>)> {
    vec![
        ("client_assertion_type", oauth::CLIENT_ASSERTION.into()),
        ("client_assertion", assertion.into()),
    ]
}

fn request_token(
    client: &Client,
    config: &Config,
    client_credential: Vec<(&str, Value<'_>)>,
) -> Result<Credential, Error> {
    let mut form: Vec<(&str, Value<'_>)> = vec![("client_id", client.id.as_str().into())];
    form.extend(client_credential);
    form.push(("grant_type", "client_credentials".into()));
    form.push(("scope", format!("{}/.default", config.application()).into()));
    let request = Request::post(&client.endpoint)
        .header("accept", "application/json")
        .form(form);
    let issued = oauth::token(request, InvalidRequest::Malformed)?;
    Ok(bearer(issued.token, issued.expiry))
}

/// A new JWT, signed with the key of the client's certificate.
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
