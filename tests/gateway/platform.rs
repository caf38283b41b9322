//! The API for tokens, sessions, agents and audit: what people may do with what is theirs, and with
//! what belongs to others.

mod agents;
mod audit;
mod commands;
mod policy_inputs;
mod sessions;
mod tokens;

use reqwest::{Method, RequestBuilder, Response};
use serde_json::{Value, json};

use crate::clusters::{ask, bearer, cluster};
use test_support::api_server::Api;
use test_support::world::{CONTROL_PLANE, Setup, World, map, object};

/// carol administers everything and is not in the user directory; dora may manage the tokens and
/// sessions of the agent `prod` and read its audit events.
const POLICY: &str = "p, carol, tokens, *, *, allow\np, carol, sessions, *, *, allow\np, carol, audit, *, *, allow\n\
                      p, dora, tokens, *, prod/*, allow\np, dora, sessions, *, prod/*, allow\n\
                      p, dora, audit, get, prod/*, allow\n";

/// An allowed origin of pages.
const ORIGIN: &str = "https://pages.example";

/// A gateway, and the API server of its cluster.
struct TestEnvironment {
    world: World,
    api: Api,
}

/// The agent `prod` (9999) is shared with a project in which alice is a developer. The agents
/// `stage` (9998) and `mapped` (9996) are shared with a group in which bob is; `mapped` accepts
/// only ID tokens. `shut` (9997) is shared with nobody. eve is blocked.
async fn environment() -> TestEnvironment {
    environment_with(json!({})).await
}

async fn environment_with(kubernetes: Value) -> TestEnvironment {
    let api = Api::start(|_| (200, vec![("content-type", "application/json".into())], "{}".into())).await;
    let mut settings = json!({
        "users": [{"issuer": "argocd", "is": "username"}],
        "allowedOrigins": [ORIGIN],
        "longestToken": "2160h",
    });
    for (key, value) in kubernetes.as_object().unwrap() {
        settings[key] = value.clone();
    }
    let accounts = ["alice", "bob", "carol", "dora", "eve"].map(|name| (format!("accounts.{name}"), "login"));
    let accounts: Vec<(&str, &str)> = accounts.iter().map(|(key, value)| (key.as_str(), *value)).collect();
    let setup = Setup {
        argocd_cm: map(&accounts),
        rbac_cm: map(&[("policy.csv", POLICY)]),
        objects: vec![
            cluster("production", &api.url(), &bearer(&api, "gateway"), &[]),
            people(),
            agent(
                "prod",
                9999,
                &json!({"access_as": {"user": {}}, "projects": [{"id": "group-1/project-1"}]}),
            ),
            agent(
                "stage",
                9998,
                &json!({"access_as": {"agent": {}}, "groups": [{"id": "group-2"}]}),
            ),
            agent("shut", 9997, &Value::Null),
            // Ignored, because the name of an agent needs a letter. This one is the id of `prod`.
            agent(
                "9999",
                9995,
                &json!({"access_as": {"user": {}}, "projects": [{"id": "group-1/project-1"}]}),
            ),
            agent(
                "mapped",
                9996,
                &json!({"access_as": {"mapped": {}}, "groups": [{"id": "group-2"}]}),
            ),
        ],
        settings: json!({"kubernetes": settings}),
        ..Setup::default()
    };
    TestEnvironment {
        world: setup.start().await,
        api,
    }
}

fn people() -> Value {
    people_with("active")
}

/// The user directory, with alice in this state.
fn people_with(alice: &str) -> Value {
    let member = |name: &str| json!([{"username": name, "role": "developer"}]);
    let spec = json!({
        "users": [
            {"id": 101, "username": "alice", "state": alice},
            {"id": 102, "username": "bob"},
            {"id": 103, "username": "eve", "state": "blocked"},
        ],
        "groups": [
            {"id": 1, "path": "group-1", "members": member("eve")},
            {"id": 2, "path": "group-2", "members": member("bob")},
        ],
        "projects": [{"id": 7, "path": "group-1/project-1", "members": member("alice")}],
    });
    object(
        "tollgate.dev/v1alpha1",
        "UserDirectory",
        "people",
        CONTROL_PLANE,
        json!({"spec": spec}),
    )
}

fn agent(name: &str, id: u32, user_access: &Value) -> Value {
    let mut spec = json!({"id": id, "configProject": {"id": 1}, "cluster": "production"});
    if !user_access.is_null() {
        spec["config"] = json!({"user_access": user_access});
    }
    object(
        "tollgate.dev/v1alpha1",
        "Agent",
        name,
        CONTROL_PLANE,
        json!({"spec": spec}),
    )
}

impl TestEnvironment {
    fn ask(&self, method: Method, user: &str, path: &str) -> RequestBuilder {
        ask(&self.world, method, user, &format!("/api/v1/{path}"))
    }

    fn get(&self, user: &str, path: &str) -> RequestBuilder {
        self.ask(Method::GET, user, path)
    }

    /// Gets the items of a list.
    async fn items(&self, user: &str, path: &str) -> Vec<Value> {
        let answer = self.get(user, path).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{user} {path}");
        assert_eq!(answer.headers()["cache-control"], "no-store");
        let body: Value = answer.json().await.unwrap();
        body["items"].as_array().unwrap().clone()
    }

    /// Creates a token. The response has its secret.
    async fn token(&self, user: &str, content: &Value) -> Response {
        self.ask(Method::POST, user, "tokens")
            .json(content)
            .send()
            .await
            .unwrap()
    }

    /// Creates a token of alice for `prod`.
    async fn made(&self) -> Value {
        let answer = self.token("alice", &json!({"name": "laptop", "agent": 9999})).await;
        assert_eq!(answer.status(), 201);
        answer.json().await.unwrap()
    }

    /// Lists namespaces of the cluster with this bearer token.
    async fn enter(&self, bearer: &str) -> u16 {
        self.enter_with(Method::GET, bearer, "/api/v1/namespaces").await
    }

    /// Sends a request to the cluster with this bearer token.
    async fn enter_with(&self, method: Method, bearer: &str, target: &str) -> u16 {
        let url = format!("http://{}/k8s-proxy{target}", self.world.address());
        let request = reqwest::Client::new().request(method, url).bearer_auth(bearer);
        request.send().await.unwrap().status().as_u16()
    }
}

/// Status and reason of a refusal.
async fn refused(request: RequestBuilder) -> (u16, String) {
    let (status, reason, _) = crate::clusters::refusal(request.send().await.unwrap()).await;
    (status, reason)
}

fn no(status: u16, reason: &str) -> (u16, String) {
    (status, reason.to_owned())
}
