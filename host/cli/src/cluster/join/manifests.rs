//! The manifests of an agent: what it runs as, what it may do, its settings and its Secret.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use url::Url;

use tollgate_client::failure::Failure;

/// Name of every object in its namespace. Others are named after the namespace, so that several gateways can
/// have an agent each.
const NAME: &str = "tollgate-agent";

/// Keys by which the gateway says which agent a request came through, and who asked.
const EXTRAS: [&str; 5] = ["access_type", "config_project_id", "id", "project_id", "username"];

/// Prefix of the names of what is in no namespace. Without it, a namespace `edit` would replace a role of
/// Kubernetes.
const CLUSTER_PREFIX: &str = "tollgate-agent";

/// Where the agent answers the kubelet's probes.
const HEALTH_PORT: u16 = 8081;

/// Where the settings are mounted.
const DIRECTORY: &str = "/etc/tollgate-agent";

/// What differs from one agent to another.
pub(super) struct AgentManifests<'a> {
    pub(super) name: &'a str,
    pub(super) gateway: &'a Url,
    pub(super) proxy: Option<&'a Url>,
    /// PEM of the authorities of the gateway.
    pub(super) ca: Option<&'a str>,
    pub(super) namespace: &'a str,
    pub(super) image: &'a str,
    pub(super) processes: u8,
    pub(super) users: &'a [String],
    pub(super) groups: &'a [String],
    pub(super) service_accounts: &'a [String],
}

impl AgentManifests<'_> {
    /// All objects, in the order in which they are applied.
    pub(super) fn to_yaml(&self, token: &SecretString) -> Result<String, Failure> {
        let failed = |error: &dyn std::fmt::Display| Failure::new("cluster.manifests", error);
        let mut text = String::new();
        for object in self.objects(token).map_err(|error| failed(&error))? {
            text.push_str("---\n");
            text.push_str(&serde_saphyr::to_string(&object).map_err(|error| failed(&error))?);
        }
        Ok(text)
    }

    fn objects(&self, token: &SecretString) -> Result<Vec<Value>, serde_saphyr::ser::Error> {
        let Self { namespace, image, .. } = self;
        let role = format!("{CLUSTER_PREFIX}:{namespace}");
        let labels = json!({ "app.kubernetes.io/name": NAME });
        let metadata = json!({ "name": NAME, "namespace": namespace, "labels": labels });
        let subject = json!([{ "kind": "ServiceAccount", "name": NAME, "namespace": namespace }]);
        let mut files = BTreeMap::from([("agent.yaml", serde_saphyr::to_string(&self.settings())?)]);
        files.extend(self.ca.map(|ca| ("gateway.pem", ca.to_owned())));
        Ok(vec![
            json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": { "name": namespace } }),
            json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": metadata }),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRole",
                "metadata": { "name": role, "labels": labels },
                "rules": self.impersonation_rules(),
            }),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": { "name": role, "labels": labels },
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role },
                "subjects": subject,
            }),
            // The agent keeps its key in its Secret.
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "Role",
                "metadata": metadata,
                "rules": [{ "apiGroups": [""], "resources": ["secrets"], "resourceNames": [NAME], "verbs": ["get", "patch"] }],
            }),
            json!({
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "RoleBinding",
                "metadata": metadata,
                "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "Role", "name": NAME },
                "subjects": subject,
            }),
            json!({
                "apiVersion": "v1",
                "kind": "Secret",
                "metadata": metadata,
                "stringData": { "joinToken": token.expose_secret() },
            }),
            json!({ "apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": files }),
            json!({
                "apiVersion": "apps/v1",
                "kind": "Deployment",
                "metadata": metadata,
                "spec": {
                    "replicas": self.processes,
                    "selector": { "matchLabels": labels },
                    // A second process would be refused while the first one is connected.
                    "strategy": { "type": "Recreate" },
                    "template": { "metadata": { "labels": labels }, "spec": self.pod(image) },
                },
            }),
        ])
    }

    fn pod(&self, image: &str) -> Value {
        json!({
            "serviceAccountName": NAME,
            "terminationGracePeriodSeconds": 45,
            "securityContext": {
                "runAsNonRoot": true,
                "runAsUser": 65532,
                "runAsGroup": 65532,
                "seccompProfile": { "type": "RuntimeDefault" },
            },
            "containers": [{
                "name": "agent",
                "image": image,
                "args": ["connector", "run", "--config", format!("{DIRECTORY}/agent.yaml"), "--log-json"],
                "ports": [{ "name": "health", "containerPort": HEALTH_PORT }],
                // It fails when the agent is stuck, and not while the gateway cannot be reached.
                "livenessProbe": {
                    "httpGet": { "path": "/healthz", "port": "health" },
                    "periodSeconds": 20,
                    "timeoutSeconds": 5,
                    "failureThreshold": 3,
                },
                "resources": { "requests": { "cpu": "50m", "memory": "64Mi" }, "limits": { "memory": "512Mi" } },
                "securityContext": {
                    "allowPrivilegeEscalation": false,
                    "readOnlyRootFilesystem": true,
                    "capabilities": { "drop": ["ALL"] },
                },
                "volumeMounts": [{ "name": "settings", "mountPath": DIRECTORY, "readOnly": true }],
            }],
            "volumes": [{ "name": "settings", "configMap": { "name": NAME } }],
        })
    }

    /// The agent's settings.
    fn settings(&self) -> Value {
        let settings = json!({
            "gateway": self.gateway.as_str().trim_end_matches('/'),
            "cluster": self.name,
            "keySecret": format!("{}/{NAME}", self.namespace),
            "health": { "listen": format!("0.0.0.0:{HEALTH_PORT}") },
            "impersonate": {
                "users": self.users,
                "groups": self.groups,
                "serviceAccounts": self.service_accounts,
            },
        });
        let ca = self.ca.map(|_| ("certificateAuthority", "gateway.pem"));
        let proxy = self.proxy.map(|proxy| ("proxy", proxy.as_str()));
        with_members(settings, ca.into_iter().chain(proxy))
    }

    /// What the agent's account needs in order to act as others. RBAC has names and no patterns: where a pattern
    /// is allowed, it may act as anybody of that kind, and only the agent's own list bounds it.
    fn impersonation_rules(&self) -> Vec<Value> {
        let rule = |group: &str, resource: &str, names: Option<Vec<&str>>| {
            let rule = json!({ "apiGroups": [group], "resources": [resource], "verbs": ["impersonate"] });
            with_members(rule, names.map(|names| ("resourceNames", names)))
        };
        let mut rules = Vec::new();
        if !self.users.is_empty() {
            rules.push(rule("", "users", names(self.users.iter().map(String::as_str))));
        }
        if !self.groups.is_empty() {
            rules.push(rule("", "groups", names(self.groups.iter().map(String::as_str))));
        }
        if !self.service_accounts.is_empty() {
            let accounts = self
                .service_accounts
                .iter()
                .filter_map(|account| account.split_once(':'));
            rules.push(rule("", "serviceaccounts", names(accounts.map(|(_, name)| name))));
        }
        if !self.users.is_empty() {
            // What the gateway says about people beside their names, as the agent's own list has it.
            rules.push(json!({
                "apiGroups": ["authentication.k8s.io"],
                "resources": EXTRAS.map(|key| format!("userextras/agent.gitlab.com/{key}")),
                "verbs": ["impersonate"],
            }));
        }
        rules
    }
}

/// An object with further members.
fn with_members<'a, V: Into<Value>>(object: Value, members: impl IntoIterator<Item = (&'a str, V)>) -> Value {
    let Value::Object(mut object) = object else {
        return object;
    };
    object.extend(members.into_iter().map(|(name, value)| (name.to_owned(), value.into())));
    Value::Object(object)
}

/// `None` if one of them is a pattern.
fn names<'a>(patterns: impl Iterator<Item = &'a str>) -> Option<Vec<&'a str>> {
    let is_pattern = |text: &str| text.contains(['*', '?', '[', '{', '\\']);
    patterns.map(|text| (!is_pattern(text)).then_some(text)).collect()
}
