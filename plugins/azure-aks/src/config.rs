//! What the operator says.
//!
//! In: JSON that fits the schema. Out: one proof of who the gateway is. Never: a
//! proof that is guessed.

use serde::Deserialize;
use tollgate_provider::Error;

use crate::Client;

/// The server application of AKS, the same in every cloud.
const APPLICATION: &str = "6dae42f8-4368-4678-94ff-3960e28e3630";

/// The authority of the public cloud.
const AUTHORITY: &str = "https://login.microsoftonline.com";

/// Audience Entra ID wants of federated tokens.
const FEDERATED_AUDIENCE: &str = "api://AzureADTokenExchange";

/// Where the proof comes from.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
pub enum Source {
    /// Value `clientSecret` of the cluster's Secret.
    #[serde(rename = "secret")]
    Secret,
    /// Values `tls.crt` and `tls.key`.
    #[serde(rename = "certificate")]
    Certificate,
    /// Azure's instance metadata service.
    #[serde(rename = "ambient:azure-imds")]
    Imds,
}

/// A client of a tenant and its proof.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    tenant_id: Option<String>,
    pub client_id: Option<String>,
    application: Option<String>,
    authority_host: Option<String>,
    credentials: Option<Source>,
    federated: Option<String>,
    federated_audience: Option<String>,
}

/// How the gateway shows who it is.
#[derive(Debug, PartialEq, Eq)]
pub enum Proof {
    Secret(Client),
    Certificate(Client),
    Federated(Client),
    Imds,
}

impl Config {
    /// Application the token is for.
    pub fn application(&self) -> &str {
        self.application.as_deref().unwrap_or(APPLICATION)
    }

    /// Audience of the pod's token.
    pub fn federated_audience(&self) -> &str {
        self.federated_audience.as_deref().unwrap_or(FEDERATED_AUDIENCE)
    }

    /// The one proof.
    ///
    /// # Errors
    /// `config`: several, or a client that is not complete.
    pub fn proof(&self) -> Result<Proof, Error> {
        if self.federated.is_none() && self.federated_audience.is_some() {
            return Err(refusal("`federatedAudience` needs `federated`"));
        }
        match (self.credentials, &self.federated) {
            (Some(_), Some(_)) => Err(refusal("`credentials` and `federated` exclude each other")),
            (Some(Source::Imds), None) => Ok(Proof::Imds),
            (Some(Source::Certificate), None) => self.client().map(Proof::Certificate),
            (Some(Source::Secret) | None, None) => self.client().map(Proof::Secret),
            (None, Some(_)) => self.client().map(Proof::Federated),
        }
    }

    fn client(&self) -> Result<Client, Error> {
        let (Some(tenant), Some(id)) = (&self.tenant_id, &self.client_id) else {
            return Err(refusal(
                "`tenantId` and `clientId` are needed, but for `ambient:azure-imds`",
            ));
        };
        let authority = self.authority_host.as_deref().unwrap_or(AUTHORITY);
        Ok(Client {
            endpoint: format!("{}/{tenant}/oauth2/v2.0/token", authority.trim_end_matches('/')),
            id: id.clone(),
        })
    }
}

fn refusal(text: &str) -> Error {
    Error::config("azure-aks.config", text)
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn proof(changes: &Value) -> Result<Proof, Error> {
        let mut config = json!({"tenantId": "t", "clientId": "c"});
        for (name, value) in changes.as_object().unwrap() {
            config.as_object_mut().unwrap().insert(name.clone(), value.clone());
        }
        serde_json::from_value::<Config>(config).unwrap().proof()
    }

    #[test]
    fn the_endpoint_has_no_empty_segment() {
        for (authority, expected) in [
            (json!(null), "https://login.microsoftonline.com/t/oauth2/v2.0/token"),
            (
                json!("https://login.microsoftonline.us/"),
                "https://login.microsoftonline.us/t/oauth2/v2.0/token",
            ),
            (
                json!("https://login.chinacloudapi.cn"),
                "https://login.chinacloudapi.cn/t/oauth2/v2.0/token",
            ),
        ] {
            let client = Client {
                endpoint: expected.to_owned(),
                id: "c".to_owned(),
            };
            assert_eq!(proof(&json!({"authorityHost": authority})), Ok(Proof::Secret(client)));
        }
    }

    #[test]
    fn there_is_one_proof() {
        assert!(matches!(
            proof(&json!({"credentials": "certificate"})),
            Ok(Proof::Certificate(_))
        ));
        assert!(matches!(
            proof(&json!({"federated": "ambient:sa-token"})),
            Ok(Proof::Federated(_))
        ));
        assert_eq!(
            proof(&json!({"tenantId": null, "clientId": null, "credentials": "ambient:azure-imds"})),
            Ok(Proof::Imds)
        );
        for (bad, said) in [
            (
                json!({"credentials": "secret", "federated": "ambient:sa-token"}),
                "exclude each other",
            ),
            (json!({"tenantId": null}), "`tenantId` and `clientId`"),
            (json!({"federatedAudience": "a"}), "needs `federated`"),
        ] {
            let error = proof(&bad).unwrap_err();
            assert!(error.message.contains(said), "{bad}: {}", error.message);
        }
    }
}
