//! A cluster with two agents, a gateway in front of it, and users.

use serde_json::{Value, json};

use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::gateway::{Gateway, Layout, base64, kubeconfig, session};
use test_support::kubernetes::kubectl::Kubectl;
use test_support::oidc::Provider;

/// The identity with which an agent's cluster sees requests; the value is the agent's id.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AccessAs {
    /// The person.
    User = 9999,
    /// The agent.
    Agent = 10000,
}

/// The kind of alice's credential.
#[derive(Clone, Copy, Debug)]
pub(crate) enum CredentialKind {
    /// A personal access token.
    Pat,
    /// An ID token.
    IdToken,
}

/// A personal access token of alice.
pub(crate) struct Token {
    /// The id of the token.
    pub(crate) id: String,
    /// The bearer token of clients: `pat:…`.
    pub(crate) bearer: String,
    /// When the token expires.
    pub(crate) expires_at: jiff::Timestamp,
}

/// The running gateway. alice is a developer of group 2, with which the agents are shared.
pub(crate) struct Fixture {
    /// The cluster of both agents, shared with other tests.
    pub(crate) cluster: &'static Cluster,
    /// The gateway of this fixture alone.
    pub(crate) gateway: Gateway,
    /// A namespace in which developers of group 2 and the agent may do everything.
    pub(crate) home: String,
    /// A namespace in which nobody may do anything.
    pub(crate) other: String,
    provider: Provider,
}

impl Fixture {
    /// Starts a gateway with the shipped policies.
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| ()).await
    }

    /// Changes the gateway's folder before it starts.
    pub(crate) async fn start_with(change: impl FnOnce(&mut Layout)) -> Self {
        Self::start_in(Cluster::shared().await, impersonate, change).await
    }

    /// Starts a gateway for this cluster. `may` makes the objects with the gateway's rights from
    /// the namespace of its account.
    pub(crate) async fn start_in(
        cluster: &'static Cluster,
        may: impl FnOnce(&str) -> String,
        change: impl FnOnce(&mut Layout),
    ) -> Self {
        let (home, other) = (cluster.namespace("home").await, cluster.namespace("other").await);
        let impersonator = cluster.service_account(&home, "gateway").await;
        let robot = cluster.service_account(&home, "robot").await;
        cluster
            .admin()
            .apply(&format!("{}---\n{}", developers(&home), may(&home)))
            .await;
        cluster.running_pod(&home, "pod").await;
        let provider = Provider::start();
        let mut layout = self::layout(&provider);
        for (name, agent, token) in [
            ("people", AccessAs::User, &impersonator),
            ("robots", AccessAs::Agent, &robot),
        ] {
            let config = json!({
                "bearerToken": token,
                "tlsClientConfig": {"caData": base64(cluster.authority())},
            });
            // The URLs of clusters must differ.
            let server = match agent {
                AccessAs::User => cluster.url().to_owned(),
                AccessAs::Agent => cluster.url().replace("127.0.0.1", "localhost"),
            };
            let data = json!({"name": name, "server": server, "config": config.to_string()});
            layout.cluster(name, &data);
            layout.write(&agent_object(name, agent));
        }
        change(&mut layout);
        Self {
            cluster,
            gateway: layout.start().await,
            home,
            other,
            provider,
        }
    }

    /// Sends a request to the gateway's API with alice's Argo CD session.
    pub(crate) async fn api(&self, method: reqwest::Method, path: &str, content: &Value) -> Value {
        let url = format!("{}{path}", self.gateway.url());
        let client = self.gateway.client("alice");
        let answer = client.request(method, &url).json(content).send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// Creates a token of alice for an hour.
    pub(crate) async fn token(&self, agent: AccessAs) -> Token {
        self.token_for(agent, "1h").await
    }

    /// Creates a token of alice with this lifetime.
    pub(crate) async fn token_for(&self, agent: AccessAs, lifetime: &str) -> Token {
        let wish = json!({"name": "day", "agent": agent as i64, "lifetime": lifetime});
        let made = self.api(reqwest::Method::POST, "/api/v1/tokens", &wish).await;
        Token {
            id: made["token"]["id"].as_str().unwrap().to_owned(),
            bearer: made["bearer"].as_str().unwrap().to_owned(),
            expires_at: made["token"]["expiresAt"].as_str().unwrap().parse().unwrap(),
        }
    }

    /// A bearer token of alice.
    pub(crate) async fn bearer(&mut self, kind: CredentialKind, agent: AccessAs) -> String {
        match kind {
            CredentialKind::Pat => self.token(agent).await.bearer,
            CredentialKind::IdToken => self.provider.token(&format!("id-token alice {}", agent as i64)),
        }
    }

    /// kubectl with a bearer token.
    pub(crate) fn kubectl(&self, bearer: &str) -> Kubectl {
        kubectl(&self.gateway, bearer)
    }

    /// The output of a `tollgate` command that alice runs against the gateway.
    pub(crate) async fn tollgate(&self, arguments: &[&str]) -> String {
        let output = tokio::process::Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args(arguments)
            .args(["--server", &self.gateway.url(), "--auth-token", &self.session()])
            .arg("--certificate-authority")
            .arg(self.gateway.path("gateway-ca.pem"))
            .output()
            .await
            .unwrap();
        assert!(output.status.success(), "{arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    /// The Argo CD session of alice.
    pub(crate) fn session(&self) -> String {
        session("alice")
    }

    /// The gateway's service account in the cluster.
    pub(crate) fn account(&self, agent: AccessAs) -> String {
        let name = match agent {
            AccessAs::User => "gateway",
            AccessAs::Agent => "robot",
        };
        format!("system:serviceaccount:{}:{name}", self.home)
    }
}

/// kubectl with a bearer token, through this gateway.
pub(crate) fn kubectl(gateway: &Gateway, bearer: &str) -> Kubectl {
    let mut server = json!({"server": format!("{}/k8s-proxy/", gateway.url())});
    if let Some(authority) = gateway.authority() {
        server["certificate-authority-data"] = base64(&authority).into();
    }
    Kubectl::with_kubeconfig(&kubeconfig(&server, &json!({"token": bearer})))
}

fn layout(provider: &Provider) -> Layout {
    let mut layout = Layout::new(&["alice"], "");
    layout.policies("kubernetes");
    layout.tls();
    layout.settings(json!({
        "clusters": {"forward": true},
        "kubernetes": {
            "jwt": [{"issuer": {"url": provider.issuer, "audiences": ["gate"]}}],
            "users": [
                {"issuer": provider.issuer, "is": "username"},
                {"issuer": "argocd", "is": "username"},
            ],
        },
    }));
    layout.write(&json!({
        "apiVersion": "tollgate.dev/v1alpha1",
        "kind": "UserDirectory",
        "metadata": {"name": "people", "namespace": "argocd"},
        "spec": {
            "users": [{"id": 101, "username": "alice"}, {"id": 102, "username": "mallory"}],
            "groups": [{"id": 2, "path": "group-2", "members": [{"username": "alice", "role": "developer"}]}],
        },
    }));
    layout
}

fn agent_object(cluster: &str, agent: AccessAs) -> Value {
    let access_as = match agent {
        AccessAs::User => json!({"user": {}}),
        AccessAs::Agent => json!({"agent": {}}),
    };
    json!({
        "apiVersion": "tollgate.dev/v1alpha1",
        "kind": "Agent",
        "metadata": {"name": format!("agent-{cluster}"), "namespace": "argocd"},
        "spec": {
            "id": agent as i64,
            "configProject": {"id": 1234},
            "cluster": cluster,
            "config": {"user_access": {"access_as": access_as, "groups": [{"id": "group-2"}]}},
        },
    })
}

/// The rights of alice and of the agent's account.
fn developers(home: &str) -> String {
    format!(
        r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{ name: developer, namespace: {home} }}
rules:
  - {{ apiGroups: ["*"], resources: ["*"], verbs: ["*"] }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{ name: developer, namespace: {home} }}
roleRef: {{ apiGroup: rbac.authorization.k8s.io, kind: Role, name: developer }}
subjects:
  - {{ kind: Group, name: "gitlab:group_role:2:developer", apiGroup: rbac.authorization.k8s.io }}
  - {{ kind: ServiceAccount, name: robot, namespace: {home} }}
"#
    )
}

/// The gateway's right to impersonate users, and nothing else.
fn impersonate(home: &str) -> String {
    format!(
        r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRole
metadata: {{ name: impersonate-{home} }}
rules:
  - {{ apiGroups: [""], resources: [users, groups], verbs: [impersonate] }}
  - apiGroups: [authentication.k8s.io]
    resources:
      - userextras/agent.gitlab.com/id
      - userextras/agent.gitlab.com/username
      - userextras/agent.gitlab.com/access_type
      - userextras/agent.gitlab.com/config_project_id
    verbs: [impersonate]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: ClusterRoleBinding
metadata: {{ name: impersonate-{home} }}
roleRef: {{ apiGroup: rbac.authorization.k8s.io, kind: ClusterRole, name: impersonate-{home} }}
subjects:
  - {{ kind: ServiceAccount, name: gateway, namespace: {home} }}
"#
    )
}
