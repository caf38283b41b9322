//! A cluster, a gateway before it, and people.

use serde_json::{Value, json};

use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::gateway::{Gateway, Layout, base64, kubeconfig, session};
use test_support::kubernetes::kubectl::Kubectl;
use test_support::oidc::Provider;

/// Whom the cluster sees through agents.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum As {
    /// The person.
    User = 9999,
    /// The agent.
    Agent = 10000,
}

/// What alice came with.
#[derive(Clone, Copy, Debug)]
pub(crate) enum With {
    /// A personal access token.
    Pat,
    /// An ID token.
    IdToken,
}

/// A personal access token of alice.
pub(crate) struct Token {
    /// Its number.
    pub(crate) id: String,
    /// What a client shows: `pat:…`.
    pub(crate) bearer: String,
    /// When it ends by itself.
    pub(crate) expires_at: jiff::Timestamp,
}

/// All of it. alice is a developer of group 2, the agents are shared with it.
pub(crate) struct World {
    /// The cluster of both agents, shared with other tests.
    pub(crate) cluster: &'static Cluster,
    /// The gateway, of this world alone.
    pub(crate) gateway: Gateway,
    /// A namespace where developers of group 2, and the agent, may do everything.
    pub(crate) home: String,
    /// A namespace where nobody may do anything.
    pub(crate) other: String,
    provider: Provider,
}

impl World {
    /// One as shipped.
    pub(crate) async fn start() -> Self {
        Self::start_with(|_| ()).await
    }

    /// One whose folder is changed before the gateway starts.
    pub(crate) async fn start_with(change: impl FnOnce(&mut Layout)) -> Self {
        Self::start_in(Cluster::shared().await, impersonate, change).await
    }

    /// One in a cluster where the gateway may do what `may` says, which is told the
    /// namespace of its account.
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
        let mut layout = lay_out(&provider);
        for (name, agent, token) in [("people", As::User, &impersonator), ("robots", As::Agent, &robot)] {
            let config = json!({
                "bearerToken": token,
                "tlsClientConfig": {"caData": base64(cluster.authority())},
            });
            // Clusters are told apart by their URL too.
            let server = match agent {
                As::User => cluster.url().to_owned(),
                As::Agent => cluster.url().replace("127.0.0.1", "localhost"),
            };
            let data = json!({"name": name, "server": server, "config": config.to_string()});
            layout.cluster(name, &data);
            layout.write(&described(name, agent));
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

    /// Asks the API as alice, who is signed in at the control plane.
    pub(crate) async fn api(&self, method: reqwest::Method, path: &str, content: &Value) -> Value {
        let url = format!("{}{path}", self.gateway.url());
        let client = self.gateway.client("alice");
        let answer = client.request(method, &url).json(content).send().await.unwrap();
        let (status, text) = (answer.status(), answer.text().await.unwrap());
        assert!(status.is_success(), "{path}: {status} {text}");
        serde_json::from_str(&text).unwrap()
    }

    /// A new token of alice.
    pub(crate) async fn token(&self, agent: As) -> Token {
        self.token_for(agent, "1h").await
    }

    /// A new token of alice with this life.
    pub(crate) async fn token_for(&self, agent: As, lifetime: &str) -> Token {
        let wish = json!({"name": "day", "agent": agent as i64, "lifetime": lifetime});
        let made = self.api(reqwest::Method::POST, "/api/v1/tokens", &wish).await;
        Token {
            id: made["token"]["id"].as_str().unwrap().to_owned(),
            bearer: made["bearer"].as_str().unwrap().to_owned(),
            expires_at: made["token"]["expiresAt"].as_str().unwrap().parse().unwrap(),
        }
    }

    /// What alice shows as her bearer token.
    pub(crate) async fn bearer(&mut self, with: With, agent: As) -> String {
        match with {
            With::Pat => self.token(agent).await.bearer,
            With::IdToken => self.provider.token(&format!("id-token alice {}", agent as i64)),
        }
    }

    /// kubectl with a bearer token.
    pub(crate) fn kubectl(&self, bearer: &str) -> Kubectl {
        kubectl(&self.gateway, bearer)
    }

    /// What a command of `tollgate` prints that alice gives the gateway.
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

    /// The session of alice at the control plane.
    pub(crate) fn session(&self) -> String {
        session("alice")
    }

    /// The service account the cluster knows the gateway by.
    pub(crate) fn account(&self, agent: As) -> String {
        let name = match agent {
            As::User => "gateway",
            As::Agent => "robot",
        };
        format!("system:serviceaccount:{}:{name}", self.home)
    }
}

/// kubectl with a bearer token, through one gateway.
pub(crate) fn kubectl(gateway: &Gateway, bearer: &str) -> Kubectl {
    let mut server = json!({"server": format!("{}/k8s-proxy/", gateway.url())});
    if let Some(authority) = gateway.authority() {
        server["certificate-authority-data"] = base64(&authority).into();
    }
    Kubectl::with_kubeconfig(&kubeconfig(&server, &json!({"token": bearer})))
}

fn lay_out(provider: &Provider) -> Layout {
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

fn described(cluster: &str, agent: As) -> Value {
    let access_as = match agent {
        As::User => json!({"user": {}}),
        As::Agent => json!({"agent": {}}),
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

/// What those may do who come as alice, or as the agent.
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

/// Lets the gateway act in people's names, and do nothing else.
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
