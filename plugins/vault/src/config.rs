//! The provider's configuration, from which it derives URLs and bodies of requests.
//!
//! Security: the manifest's schema restricts mounts and roles, so that no path leaves its mount.

use serde::Deserialize;
use serde_json::{Map, Value};
use tollgate_provider::Error;

/// Default audience of the pod's token.
const LOGIN_AUDIENCE: &str = "vault";

/// Default path of both mounts.
const MOUNT: &str = "kubernetes";

/// One string or a list of strings.
#[derive(Clone, Debug, Deserialize)]
#[serde(untagged)]
enum Texts {
    One(String),
    Many(Vec<String>),
}

/// A Vault server, how to log in, and the requested token.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    address: String,
    pub namespace: Option<String>,
    auth_mount: Option<String>,
    /// Role to log in with. Without it the provider uses the value `token` of the cluster's Secret.
    pub auth_role: Option<String>,
    login_audience: Option<String>,
    mount: Option<String>,
    pub role: String,
    kubernetes_namespace: Option<String>,
    ttl: Option<String>,
    audiences: Option<Texts>,
    cluster_role_binding: Option<bool>,
}

impl Config {
    /// The URL of `path` below `/v1/`.
    pub fn url(&self, path: &str) -> String {
        format!("{}/v1/{path}", self.address.trim_end_matches('/'))
    }

    /// Mount of the login method.
    pub fn auth_mount(&self) -> &str {
        self.auth_mount.as_deref().unwrap_or(MOUNT)
    }

    /// Audience of the pod's token.
    pub fn login_audience(&self) -> &str {
        self.login_audience.as_deref().unwrap_or(LOGIN_AUDIENCE)
    }

    /// Mount of the secrets engine.
    pub fn mount(&self) -> &str {
        self.mount.as_deref().unwrap_or(MOUNT)
    }

    /// The body of a request to the secrets engine.
    pub fn body(&self) -> Value {
        let mut body = Map::new();
        let mut put = |name: &str, value: Option<Value>| {
            if let Some(value) = value {
                body.insert(name.to_owned(), value);
            }
        };
        put(
            "kubernetes_namespace",
            self.kubernetes_namespace.clone().map(Value::from),
        );
        put("ttl", self.ttl.clone().map(Value::from));
        put("cluster_role_binding", self.cluster_role_binding.map(Value::from));
        let audiences = self.audiences.as_ref().map(|texts| match texts {
            Texts::One(text) => text.clone(),
            Texts::Many(texts) => texts.join(","),
        });
        put("audiences", audiences.filter(|text| !text.is_empty()).map(Value::from));
        Value::Object(body)
    }

    /// Checks what a schema cannot express.
    ///
    /// # Errors
    /// `config`: settings of a login without its role.
    pub fn validate(&self) -> Result<(), Error> {
        let login_settings = self.auth_mount.is_some() || self.login_audience.is_some();
        if self.auth_role.is_none() && login_settings {
            let text = "`authMount` and `loginAudience` need `authRole`";
            return Err(Error::config("vault.config", text));
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn config(value: Value) -> Config {
        serde_json::from_value(value).unwrap()
    }

    #[test]
    fn the_request_contains_what_is_configured() {
        let plain = config(json!({"address": "https://v:8200/", "role": "r"}));
        assert_eq!(plain.url("kubernetes/creds/r"), "https://v:8200/v1/kubernetes/creds/r");
        assert_eq!(plain.body(), json!({}));
        let full = config(json!({
            "address": "https://v", "role": "r", "kubernetesNamespace": "prod", "ttl": "1h",
            "audiences": ["a", "b"], "clusterRoleBinding": false,
        }));
        let expected = json!({
            "kubernetes_namespace": "prod", "ttl": "1h", "audiences": "a,b", "cluster_role_binding": false,
        });
        assert_eq!(full.body(), expected);
    }

    #[test]
    fn a_login_needs_its_role() {
        let good = json!({"address": "https://v", "role": "r", "authRole": "gw", "authMount": "k"});
        assert_eq!(config(good).validate(), Ok(()));
        let bad = json!({"address": "https://v", "role": "r", "authMount": "k"});
        assert!(
            config(bad)
                .validate()
                .is_err_and(|error| error.message.contains("need `authRole`"))
        );
    }
}
