//! The provider's configuration: one source of tokens, without the settings of another.

use serde::Deserialize;
use tollgate_provider::Error;

/// Default scopes. Without the second one, RBAC sees a number instead of the email address.
const SCOPES: [&str; 2] = [
    "https://www.googleapis.com/auth/cloud-platform",
    "https://www.googleapis.com/auth/userinfo.email",
];

/// The source of the token.
#[derive(Clone, Copy, Debug, Deserialize, PartialEq, Eq)]
#[serde(rename_all = "kebab-case")]
pub enum Mode {
    /// A key of a service account.
    ServiceAccountKey,
    /// The GCE metadata server.
    Metadata,
    /// Workload identity federation.
    Wif,
}

/// A source and its settings.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    pub mode: Mode,
    scopes: Option<Vec<String>>,
    pub audience: Option<String>,
    token_audience: Option<String>,
    pub service_account: Option<String>,
    #[serde(default)]
    pub delegates: Vec<String>,
    pub lifetime_seconds: Option<u32>,
}

impl Config {
    /// The scopes to request.
    pub fn scopes(&self) -> Vec<String> {
        let scopes = self.scopes.clone();
        scopes.unwrap_or_else(|| SCOPES.iter().map(|scope| (*scope).to_owned()).collect())
    }

    /// Audience of the pod's token.
    pub fn token_audience(&self) -> Option<&str> {
        self.token_audience.as_deref().or(self.audience.as_deref())
    }

    /// Checks what a schema cannot express, and returns warnings.
    ///
    /// # Errors
    /// `config`: a setting is missing or belongs to another mode.
    pub fn validate(&self) -> Result<Vec<String>, Error> {
        let refuse = |text: &str| Err(Error::config("gcp-gke.config", text));
        let federated = self.audience.is_some() || self.token_audience.is_some() || self.service_account.is_some();
        match self.mode {
            Mode::Wif if self.audience.is_none() => return refuse("`mode: wif` needs `audience`"),
            Mode::Wif => {}
            Mode::ServiceAccountKey | Mode::Metadata if federated => {
                return refuse("`audience`, `tokenAudience` and `serviceAccount` belong to `mode: wif`");
            }
            Mode::ServiceAccountKey | Mode::Metadata => {}
        }
        if self.service_account.is_none() && (self.lifetime_seconds.is_some() || !self.delegates.is_empty()) {
            return refuse("`lifetimeSeconds` and `delegates` need `serviceAccount`");
        }
        let long = self.lifetime_seconds.is_some_and(|seconds| seconds > 3600);
        let warning = "more than 3600 `lifetimeSeconds` need an organization policy";
        Ok(long.then(|| warning.to_owned()).into_iter().collect())
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use tollgate_provider::Class;

    use super::*;

    #[test]
    fn each_mode_has_its_settings() {
        for (good, bad, message) in [
            (
                json!({"mode": "wif", "audience": "//x"}),
                json!({"mode": "wif"}),
                "needs `audience`",
            ),
            (
                json!({"mode": "metadata"}),
                json!({"mode": "metadata", "audience": "//x"}),
                "belong to `mode: wif`",
            ),
            (
                json!({"mode": "wif", "audience": "//x", "serviceAccount": "a@b", "delegates": ["c@d"]}),
                json!({"mode": "wif", "audience": "//x", "delegates": ["c@d"]}),
                "need `serviceAccount`",
            ),
        ] {
            let read = |config: serde_json::Value| serde_json::from_value::<Config>(config).unwrap().validate();
            assert_eq!(read(good), Ok(Vec::new()));
            let error = read(bad).unwrap_err();
            assert_eq!(error.class, Class::Config);
            assert!(error.message.contains(message), "{}", error.message);
        }
    }
}
