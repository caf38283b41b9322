//! The provider's configuration: a cluster and exactly one source of keys.

use serde::Deserialize;
use tollgate_provider::Error;

/// Default audience of the pod's token.
const WEB_IDENTITY_AUDIENCE: &str = "sts.amazonaws.com";

/// The source of the first keys.
#[derive(Clone, Copy, Debug, Default, Deserialize, PartialEq, Eq)]
pub enum Source {
    /// Values of the cluster's Secret.
    #[default]
    #[serde(rename = "static")]
    Static,
    /// The EKS Pod Identity agent.
    #[serde(rename = "ambient:eks-pod-identity")]
    PodIdentity,
}

/// A role to assume.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Role {
    pub role_arn: String,
    pub session_name: Option<String>,
    pub external_id: Option<String>,
    pub duration_seconds: Option<u32>,
}

/// A cluster, and how the gateway authenticates to AWS.
#[derive(Clone, Debug, Deserialize)]
#[serde(rename_all = "camelCase", deny_unknown_fields)]
pub struct Config {
    pub region: String,
    /// Name or ARN.
    pub cluster_name: String,
    pub credentials: Option<Source>,
    /// `ambient:sa-token`: the gateway authenticates with its pod's token.
    pub web_identity: Option<String>,
    pub web_identity_audience: Option<String>,
    pub role_arn: Option<String>,
    pub session_name: Option<String>,
    pub external_id: Option<String>,
    pub duration_seconds: Option<u32>,
    #[serde(default)]
    pub chain: Vec<Role>,
}

impl Config {
    /// Name of the cluster, also if the configuration has its ARN.
    pub fn cluster(&self) -> &str {
        self.cluster_name.rsplit('/').next().unwrap_or_default()
    }

    /// Audience of the pod's token.
    pub fn web_identity_audience(&self) -> &str {
        self.web_identity_audience.as_deref().unwrap_or(WEB_IDENTITY_AUDIENCE)
    }

    /// The first role.
    pub fn role(&self) -> Option<Role> {
        Some(Role {
            role_arn: self.role_arn.clone()?,
            session_name: self.session_name.clone(),
            external_id: self.external_id.clone(),
            duration_seconds: self.duration_seconds,
        })
    }

    /// Checks what a schema cannot express, and returns warnings.
    ///
    /// # Errors
    /// `config`: several sources of keys, a missing role, or a setting that needs another one.
    pub fn validate(&self) -> Result<Vec<String>, Error> {
        let refuse = |text: &str| Err(Error::config("aws-eks.config", text));
        if self.web_identity.is_some() {
            if self.credentials.is_some() {
                return refuse("`webIdentity` and `credentials` exclude each other");
            }
            if self.role_arn.is_none() {
                return refuse("`webIdentity` needs `roleArn`");
            }
            if self.external_id.is_some() {
                return refuse("a web identity takes no `externalId`; roles of `chain` do");
            }
        } else if self.web_identity_audience.is_some() {
            return refuse("`webIdentityAudience` needs `webIdentity`");
        }
        if self.role_arn.is_none() {
            let role_settings = [
                self.session_name.is_some(),
                self.external_id.is_some(),
                self.duration_seconds.is_some(),
            ];
            if role_settings.contains(&true) {
                return refuse("`sessionName`, `externalId` and `durationSeconds` need `roleArn`");
            }
        }
        Ok(self.region_mismatch().into_iter().collect())
    }

    fn region_mismatch(&self) -> Option<String> {
        let region = self.cluster_name.strip_prefix("arn:")?.split(':').nth(2)?;
        let text = format!(
            "the cluster's ARN is of region `{region}`, and `region` is `{}`",
            self.region
        );
        (region != self.region).then_some(text)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};
    use tollgate_provider::Class;

    use super::*;

    fn config(changes: &Value) -> Config {
        let mut config = json!({"region": "us-west-2", "clusterName": "prod-eks"});
        for (name, value) in changes.as_object().unwrap() {
            config.as_object_mut().unwrap().insert(name.clone(), value.clone());
        }
        serde_json::from_value(config).unwrap()
    }

    #[test]
    fn the_name_is_read_from_an_arn() {
        let arn = "arn:aws:eks:eu-west-1:123456789012:cluster/prod-eks";
        let config = config(&json!({"clusterName": arn}));
        assert_eq!(config.cluster(), "prod-eks");
        let warnings = config.validate().unwrap();
        assert!(
            matches!(warnings.as_slice(), [one] if one.contains("`eu-west-1`")),
            "{warnings:?}"
        );
    }

    #[test]
    fn there_is_one_source_of_keys() {
        let role = "arn:aws:iam::123456789012:role/gw";
        for (good, bad, message) in [
            (
                json!({"webIdentity": "ambient:sa-token", "roleArn": role}),
                json!({"webIdentity": "ambient:sa-token"}),
                "needs `roleArn`",
            ),
            (
                json!({"credentials": "ambient:eks-pod-identity", "roleArn": role}),
                json!({"credentials": "static", "webIdentity": "ambient:sa-token", "roleArn": role}),
                "exclude each other",
            ),
            (
                json!({"roleArn": role, "externalId": "xx"}),
                json!({"webIdentity": "ambient:sa-token", "roleArn": role, "externalId": "xx"}),
                "takes no `externalId`",
            ),
            (json!({}), json!({"externalId": "xx"}), "need `roleArn`"),
            (json!({}), json!({"webIdentityAudience": "a"}), "needs `webIdentity`"),
        ] {
            assert_eq!(config(&good).validate(), Ok(Vec::new()), "{good}");
            let error = config(&bad).validate().unwrap_err();
            assert_eq!(error.class, Class::Config, "{bad}");
            assert!(error.message.contains(message), "{bad}: {}", error.message);
        }
    }
}
