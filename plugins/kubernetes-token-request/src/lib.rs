//! The provider `kubernetes-token-request`: short-lived ServiceAccount tokens from the TokenRequest
//! API of a hub cluster. The gateway's identity there needs `create` on `serviceaccounts/token`.
//!
//! Source: `authentication.k8s.io/v1` of k8s.io/api.

use serde::Deserialize;
use serde_json::{Value, json};
use tollgate_provider::{
    Credential, Error, Expiry, Json, MintInput, Provider, Request, Secret, ambient_token, bearer, credential_provider,
    kubernetes, trimmed,
};

/// Default lifetime to request, in seconds.
const EXPIRATION_SECONDS: u64 = 3600;

/// The source of the gateway's credential for the hub.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
enum Source {
    /// Value `hubToken` of the cluster's Secret.
    #[default]
    #[serde(rename = "secret")]
    Secret,
    /// A token of the gateway's pod.
    #[serde(rename = "ambient:sa-token")]
    Pod,
}

/// The hub, and the ServiceAccount whose token is requested.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
struct Config {
    server: String,
    namespace: String,
    service_account: String,
    #[serde(default)]
    audiences: Vec<String>,
    expiration_seconds: Option<u64>,
    /// A `BoundObjectReference`, sent unchanged.
    bound_object_ref: Option<Value>,
    #[serde(default)]
    credentials: Source,
    hub_audience: Option<String>,
}

impl Config {
    fn url(&self) -> String {
        let server = self.server.trim_end_matches('/');
        let (namespace, account) = (&self.namespace, &self.service_account);
        format!("{server}/api/v1/namespaces/{namespace}/serviceaccounts/{account}/token")
    }

    fn body(&self) -> Value {
        let mut spec = json!({"expirationSeconds": self.expiration_seconds.unwrap_or(EXPIRATION_SECONDS)});
        if let Some(spec) = spec.as_object_mut() {
            if !self.audiences.is_empty() {
                spec.insert("audiences".to_owned(), self.audiences.clone().into());
            }
            if let Some(bound) = &self.bound_object_ref {
                spec.insert("boundObjectRef".to_owned(), bound.clone());
            }
        }
        json!({"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec})
    }

    fn validate(&self) -> Result<Vec<String>, Error> {
        let refuse = |text: &str| Err(Error::config("kubernetes-token-request.config", text));
        match (self.credentials, &self.hub_audience) {
            (Source::Pod, None) => refuse("`credentials: ambient:sa-token` needs `hubAudience`"),
            (Source::Secret, Some(_)) => refuse("`hubAudience` needs `credentials: ambient:sa-token`"),
            (Source::Pod, Some(_)) | (Source::Secret, None) => Ok(self.lifetime_warning().into_iter().collect()),
        }
    }

    fn lifetime_warning(&self) -> Option<String> {
        let seconds = self.expiration_seconds.filter(|seconds| *seconds < 600)?;
        Some(format!(
            "API servers refuse `expirationSeconds` below 600, and it is {seconds}"
        ))
    }

    /// The token that authenticates the gateway to the hub.
    fn identity(&self) -> Result<Secret, Error> {
        match &self.hub_audience {
            Some(audience) => Ok(ambient_token(audience)?.token),
            None => trimmed("hubToken"),
        }
    }
}

#[derive(Debug)]
struct TokenRequest;

impl Provider for TokenRequest {
    type Config = Config;

    fn check(config: &Config) -> Result<Vec<String>, Error> {
        config.validate()
    }

    fn mint(config: &Config, _: &MintInput) -> Result<Credential, Error> {
        config.validate()?;
        let identity = config.identity()?;
        let mut answer = Request::post(&config.url())
            .bearer(&identity)
            .header("accept", "application/json")
            .json_body(&Json::Value(config.body()))
            .capture("$.status.token")
            .send()?;
        if !answer.is_success() {
            return Err(kubernetes::refusal(&answer));
        }
        let json = answer.json()?;
        let token = answer.expect(0, "status.token")?;
        let now = answer.sent_at;
        let granted = json.pointer("/status/expirationTimestamp");
        let expiry = Expiry::rfc3339(granted, "expirationTimestamp", now).shortened_by(&token, now);
        Ok(bearer(token, expiry))
    }
}

credential_provider!(TokenRequest);

#[cfg(test)]
mod tests {
    use super::*;

    fn config(changes: &Value) -> Config {
        let mut config = json!({"server": "https://hub:6443/", "namespace": "gw", "serviceAccount": "deployer"});
        for (name, value) in changes.as_object().unwrap() {
            config.as_object_mut().unwrap().insert(name.clone(), value.clone());
        }
        serde_json::from_value(config).unwrap()
    }

    #[test]
    fn the_request_contains_what_is_configured() {
        let plain = config(&json!({}));
        assert_eq!(
            plain.url(),
            "https://hub:6443/api/v1/namespaces/gw/serviceaccounts/deployer/token"
        );
        assert_eq!(plain.body().pointer("/spec"), Some(&json!({"expirationSeconds": 3600})));
        let bound = json!({"kind": "Pod", "apiVersion": "v1", "name": "gw-0"});
        let full = config(&json!({"audiences": ["a"], "expirationSeconds": 600, "boundObjectRef": bound}));
        let spec = json!({"audiences": ["a"], "expirationSeconds": 600, "boundObjectRef": bound});
        assert_eq!(full.body().pointer("/spec"), Some(&spec));
    }

    #[test]
    fn there_is_one_identity() {
        let pod = json!({"credentials": "ambient:sa-token", "hubAudience": "hub"});
        assert_eq!(config(&pod).validate(), Ok(Vec::new()));
        for bad in [
            json!({"credentials": "ambient:sa-token"}),
            json!({"hubAudience": "hub"}),
        ] {
            let error = config(&bad).validate().unwrap_err();
            assert_eq!(error.code, "kubernetes-token-request.config", "{bad}");
        }
        let warnings = config(&json!({"expirationSeconds": 60})).validate().unwrap();
        assert!(
            matches!(warnings.as_slice(), [one] if one.contains("below 600")),
            "{warnings:?}"
        );
    }
}
