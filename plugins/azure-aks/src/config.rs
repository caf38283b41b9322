//! The provider's configuration, which selects exactly one way to authenticate.

use serde::Deserialize;
use tollgate_provider::Error;

use crate::Client;

/// The server application of AKS, the same in every cloud.
const APPLICATION: &str = "6dae42f8-4368-4678-94ff-3960e28e3630";

/// Default authority, that of the public cloud.
const AUTHORITY: &str = "https://login.microsoftonline.com";

/// Default audience of federated tokens, as Entra ID requires it.
const FEDERATED_AUDIENCE: &str = "api://AzureADTokenExchange";

/// The source of the gateway's credential.
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

/// A client of a tenant, and how it authenticates.
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

/// How the gateway authenticates to Azure.
#[derive(Debug, PartialEq, Eq)]
pub enum Authentication {
    Secret(Client),
    Certificate(Client),
    Federated(Client),
    Imds,
}

impl Config {
    /// The application that the token is for.
    pub fn application(&self) -> &str {
        self.application.as_deref().unwrap_or(APPLICATION)
    }

    /// Audience of the pod's token.
    pub fn federated_audience(&self) -> &str {
        self.federated_audience.as_deref().unwrap_or(FEDERATED_AUDIENCE)
    }

    /// The configured way to authenticate.
    ///
    /// # Errors
    /// `config`: several ways, an incomplete client, or a setting that needs another one.
    pub fn authentication(&self) -> Result<Authentication, Error> {
        if self.federated.is_none() && self.federated_audience.is_some() {
            return Err(refusal("`federatedAudience` needs `federated`"));
        }
        match (self.credentials, &self.federated) {
            (Some(_), Some(_)) => Err(refusal("`credentials` and `federated` exclude each other")),
            (Some(Source::Imds), None) => Ok(Authentication::Imds),
            (Some(Source::Certificate), None) => self.client().map(Authentication::Certificate),
            (Some(Source::Secret) | None, None) => self.client().map(Authentication::Secret),
            (None, Some(_)) => self.client().map(Authentication::Federated),
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

    fn authentication(changes: &Value) -> Result<Authentication, Error> {
        let mut config = json!({"tenantId": "t", "clientId": "c"});
        for (name, value) in changes.as_object().unwrap() {
            config.as_object_mut().unwrap().insert(name.clone(), value.clone());
        }
        serde_json::from_value::<Config>(config).unwrap().authentication()
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
            assert_eq!(
                authentication(&json!({"authorityHost": authority})),
                Ok(Authentication::Secret(client))
            );
        }
    }

    #[test]
    fn there_is_one_way_to_authenticate() {
        assert!(matches!(
            authentication(&json!({"credentials": "certificate"})),
            Ok(Authentication::Certificate(_))
        ));
        assert!(matches!(
            authentication(&json!({"federated": "ambient:sa-token"})),
            Ok(Authentication::Federated(_))
        ));
        assert_eq!(
            authentication(&json!({"tenantId": null, "clientId": null, "credentials": "ambient:azure-imds"})),
            Ok(Authentication::Imds)
        );
        for (bad, message) in [
            (
                json!({"credentials": "secret", "federated": "ambient:sa-token"}),
                "exclude each other",
            ),
            (json!({"tenantId": null}), "`tenantId` and `clientId`"),
            (json!({"federatedAudience": "a"}), "needs `federated`"),
        ] {
            let error = authentication(&bad).unwrap_err();
            assert!(error.message.contains(message), "{bad}: {}", error.message);
        }
    }
}
