//! The roles that `tollgate rbac manifest` prints, tested with a real API server. They are
//! sufficient, every rule is necessary, and the gateway reports missing ones.

use reqwest::{Method, StatusCode};
use serde_json::{Value, json};

use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::{Gateway, Layout, base64};

/// The resources that the shipped mapping needs to impersonate.
const NAMES: [&str; 6] = [
    "users",
    "groups",
    "userextras/agent.gitlab.com/access_type",
    "userextras/agent.gitlab.com/config_project_id",
    "userextras/agent.gitlab.com/id",
    "userextras/agent.gitlab.com/username",
];

/// A cluster in which the gateway's service account has no rights, and a gateway with one agent
/// there.
struct Fixture {
    cluster: &'static Cluster,
    gateway: Gateway,
    namespace: String,
    token: String,
}

impl Fixture {
    async fn start() -> Self {
        let cluster = Cluster::shared().await;
        let namespace = cluster.namespace("least").await;
        let token = cluster.service_account(&namespace, "gateway").await;
        let developers = format!(
            r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{ name: developer, namespace: {namespace} }}
rules:
  - {{ apiGroups: [""], resources: [configmaps], verbs: ["*"] }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{ name: developer, namespace: {namespace} }}
roleRef: {{ apiGroup: rbac.authorization.k8s.io, kind: Role, name: developer }}
subjects:
  - {{ kind: Group, name: "gitlab:group_role:2:developer", apiGroup: rbac.authorization.k8s.io }}
"#
        );
        cluster.admin().apply(&developers).await;
        let mut layout = Layout::new(&[], "");
        layout.policies("kubernetes");
        layout.settings(json!({"kubernetes": {}}));
        let config = json!({
            "bearerToken": token,
            "tlsClientConfig": {"caData": base64(cluster.authority())},
        });
        let secret = json!({"name": "people", "server": cluster.url(), "config": config.to_string()});
        layout.cluster("people", &secret);
        layout.write(&agent("first", 9999));
        Self {
            cluster,
            gateway: layout.start().await,
            namespace,
            token,
        }
    }

    /// The objects that the command prints for the agent.
    async fn manifest(&self, more: &[&str]) -> Vec<Value> {
        let subject = format!("serviceaccount:{}:gateway", self.namespace);
        let arguments = ["--agent", "9999", "--subject", &subject];
        self.gateway.rbac_manifest(&arguments, more).await
    }

    async fn apply(&self, objects: &[Value]) {
        for object in objects {
            self.cluster.admin().apply(&object.to_string()).await;
        }
    }

    /// Sends a request as the gateway would for `user`. Returns the response of the API server.
    async fn ask(&self, method: Method, user: &str, more: &[(&str, &str)]) -> (StatusCode, String) {
        let url = format!("{}/api/v1/namespaces/{}/configmaps", self.cluster.url(), self.namespace);
        let mut request = self
            .cluster
            .client()
            .request(method.clone(), url)
            .bearer_auth(&self.token)
            .header("impersonate-user", format!("gitlab:user:{user}"))
            .header("impersonate-group", "gitlab:user")
            .header("impersonate-group", "gitlab:group_role:2:developer")
            .header("impersonate-extra-agent.gitlab.com%2fid", "9999")
            .header("impersonate-extra-agent.gitlab.com%2fusername", user)
            .header("impersonate-extra-agent.gitlab.com%2fconfig_project_id", "1234")
            .header(
                "impersonate-extra-agent.gitlab.com%2faccess_type",
                "personal_access_token",
            );
        for (name, value) in more {
            request = request.header(*name, *value);
        }
        if method == Method::POST {
            request = request.json(&json!({"metadata": {"name": user}}));
        }
        let answer = request.send().await.unwrap();
        (answer.status(), answer.text().await.unwrap())
    }

    /// Waits for this response to a list, and returns its text. Each attempt has a new user,
    /// because the API server caches what it allowed.
    async fn listed(&self, what: &str, wanted: StatusCode, word: &str) -> String {
        let mut round = 0;
        let what = format!("{what}: {wanted} with `{word}`");
        eventually(&what, async || {
            round += 1;
            let user = format!("alice-{round}-{}", what.len());
            let (status, text) = self.ask(Method::GET, &user, &[]).await;
            (status == wanted && text.contains(word)).then_some(text)
        })
        .await
    }

    /// Removes each name from the role in turn, and checks that the request is then refused.
    async fn miss_each(&self, objects: &[Value]) {
        let role = &objects[0];
        for name in NAMES {
            let mut less = role.clone();
            for rule in less["rules"].as_array_mut().unwrap() {
                let resources = rule.get_mut("resources").and_then(Value::as_array_mut);
                if let Some(resources) = resources {
                    resources.retain(|resource| resource != name);
                }
            }
            let rules = less["rules"].as_array_mut().unwrap();
            rules.retain(|rule| rule.get("resources") != Some(&json!([])));
            assert_ne!(less, *role, "the role has no `{name}`");
            self.apply(&[less]).await;
            self.listed(name, StatusCode::FORBIDDEN, &format!("resource \\\"{name}\\\""))
                .await;
        }
        self.apply(objects).await;
        self.listed("the whole role", StatusCode::OK, "ConfigMapList").await;
    }

    /// What the gateway reports about its agent, once the state is `state`.
    async fn known(&self, state: &str) -> Value {
        eventually(&format!("the gateway says `{state}`"), async || {
            let agents = self.gateway.admin("/agents").await;
            let first = agents.as_array().unwrap().first()?.clone();
            (first["impersonation"]["state"] == state).then_some(first)
        })
        .await
    }

    /// Adds an agent, so that the gateway asks the cluster again.
    fn change(&self) {
        let path = self.gateway.path("state/Agent-second.yaml");
        std::fs::write(path, agent("second", 10_000).to_string()).unwrap();
    }
}

fn agent(name: &str, id: i64) -> Value {
    json!({
        "apiVersion": "tollgate.dev/v1alpha1",
        "kind": "Agent",
        "metadata": {"name": name, "namespace": "argocd"},
        "spec": {
            "id": id,
            "configProject": {"id": 1234},
            "cluster": "people",
            "config": {"user_access": {"access_as": {"user": {}}, "groups": [{"id": "group-2"}]}},
        },
    })
}

#[tokio::test]
async fn the_classic_role_is_sufficient_and_every_rule_is_necessary() {
    let fixture = Fixture::start().await;
    let known = fixture.known("missing").await;
    assert_eq!((&known["id"], &known["cluster"]), (&json!(9999), &json!("people")));
    assert_eq!(known["impersonation"]["missing"], json!(NAMES));
    let command = "tollgate rbac manifest --agent first";
    assert_eq!(known["impersonation"]["command"], command);
    let log = std::fs::read_to_string(fixture.gateway.path("log")).unwrap();
    let warnings = log.lines().filter(|line| line.contains(command)).count();
    assert_eq!(warnings, NAMES.len(), "{log}");

    let (status, text) = fixture.ask(Method::GET, "early", &[]).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{text}");
    let objects = fixture.manifest(&[]).await;
    fixture.apply(&objects).await;
    fixture
        .listed("the printed role", StatusCode::OK, "ConfigMapList")
        .await;
    // The role grants nothing to the gateway's own identity, and no uid can be impersonated.
    let url = format!(
        "{}/api/v1/namespaces/{}/configmaps",
        fixture.cluster.url(),
        fixture.namespace
    );
    let own = fixture
        .cluster
        .client()
        .get(url)
        .bearer_auth(&fixture.token)
        .send()
        .await
        .unwrap();
    assert_eq!(own.status(), StatusCode::FORBIDDEN);
    let (status, text) = fixture.ask(Method::GET, "bob", &[("impersonate-uid", "7")]).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{text}");
    assert!(text.contains(r#"resource \"uids\""#), "{text}");
    fixture.miss_each(&objects).await;

    fixture.change();
    let known = fixture.known("granted").await;
    assert_eq!(known["impersonation"]["mode"], "classic");
}

#[tokio::test]
async fn the_constrained_role_is_sufficient_for_its_verbs_only() {
    let fixture = Fixture::start().await;
    let objects = fixture
        .manifest(&["--mode", "constrained", "--verbs", "get,list,watch"])
        .await;
    fixture.apply(&objects).await;
    fixture
        .listed("the printed role", StatusCode::OK, "ConfigMapList")
        .await;
    // The group may create config maps, but the gateway may not do so on anybody's behalf.
    let (status, text) = fixture.ask(Method::POST, "carol", &[]).await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{text}");
    assert!(text.contains("impersonate-on:user-info:create"), "{text}");
    let (status, text) = fixture
        .ask(Method::GET, "dave", &[("impersonate-group", "system:masters")])
        .await;
    assert_eq!(status, StatusCode::FORBIDDEN, "{text}");
    assert!(text.contains("system:masters group is not allowed"), "{text}");
    fixture.miss_each(&objects).await;
    let account = format!("system:serviceaccount:{}:gateway", fixture.namespace);
    let events = fixture.cluster.audit().events_with(&account);
    let passed =
        |event: &&Value| event["user"]["username"] == account.as_str() && event["responseStatus"]["code"] == 200;
    let lists = events.iter().filter(passed).filter(|event| event["verb"] == "list");
    let constraints: Vec<&Value> = lists
        .map(|event| &event["authenticationMetadata"]["impersonationConstraint"])
        .collect();
    assert!(!constraints.is_empty());
    assert!(
        constraints.iter().all(|name| **name == "impersonate:user-info"),
        "{constraints:?}"
    );

    fixture.change();
    let known = fixture.known("granted").await;
    assert_eq!(known["impersonation"]["mode"], "constrained");
    // With a role for all verbs, the same request succeeds.
    fixture.apply(&fixture.manifest(&["--mode", "constrained"]).await).await;
    eventually("the new verbs are granted", async || {
        let (status, _) = fixture.ask(Method::POST, "erin", &[]).await;
        (status == StatusCode::CREATED).then_some(())
    })
    .await;
}
