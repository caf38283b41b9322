//! The API for ApplicationSets: permissions, writes and responses.

mod bounds;
mod changes;
mod commands;
mod inherited;
mod previews;
mod refusals;
mod summaries;
mod watches;

use reqwest::Method;
use serde_json::{Value, json};

use crate::clusters::ask;
use test_support::world::{CONTROL_PLANE, Setup, World, map, object};

/// The path of the API.
pub(crate) const API: &str = "/api/v1/applicationsets";

/// In `dev`, alice may do everything; carol may read sets; dave may preview them; erin may do
/// everything except delete Applications; frank may do everything with sets, but nothing with
/// Applications. bob has no permissions.
const POLICY: &str = "\
p, alice, applicationsets, *, dev/*, allow
p, alice, applications, *, dev/*, allow
p, carol, applicationsets, get, dev/*, allow
p, dave, applicationsets, preview, dev/*, allow
p, erin, applicationsets, *, dev/*, allow
p, erin, applications, get, dev/*, allow
p, erin, applications, create, dev/*, allow
p, erin, applications, update, dev/*, allow
p, frank, applicationsets, *, dev/*, allow
";

/// A gateway with the projects `dev` and `prod`, these people and the API enabled.
fn setup() -> Setup {
    let people = ["alice", "bob", "carol", "dave", "erin", "frank"];
    let accounts = people.map(|name| (format!("accounts.{name}"), "login".to_owned()));
    let open = json!({"spec": {"sourceRepos": ["*"], "destinations": [{"server": "*", "namespace": "*"}]}});
    let project = |name| object("argoproj.io/v1alpha1", "AppProject", name, CONTROL_PLANE, open.clone());
    Setup {
        argocd_cm: accounts.into_iter().collect(),
        rbac_cm: map(&[("policy.csv", POLICY)]),
        objects: vec![project("dev"), project("prod")],
        settings: json!({"applicationSets": {"maxDeletions": 3}}),
        ..Setup::default()
    }
}

async fn start() -> World {
    setup().start().await
}

/// A set that generates an Application for each name.
fn set(name: &str, project: &str, names: &[&str]) -> Value {
    let elements: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
    json!({
        "apiVersion": "argoproj.io/v1alpha1",
        "kind": "ApplicationSet",
        "metadata": {"name": name},
        "spec": {
            "generators": [{"list": {"elements": elements}}],
            "template": {
                "metadata": {"name": "{{name}}"},
                "spec": {
                    "project": project,
                    "source": {"repoURL": "https://git.example.com/apps.git", "path": "{{name}}", "targetRevision": "HEAD"},
                    "destination": {"server": "https://kubernetes.default.svc", "namespace": "{{name}}"},
                },
            },
        },
    })
}

async fn send(request: reqwest::RequestBuilder) -> (u16, Value) {
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    (status, answer.json().await.unwrap())
}

async fn post(world: &World, user: &str, query: &str, set: &Value) -> (u16, Value) {
    send(ask(world, Method::POST, user, &format!("{API}{query}")).json(set)).await
}

async fn get(world: &World, user: &str, rest: &str) -> (u16, Value) {
    send(ask(world, Method::GET, user, &format!("{API}{rest}"))).await
}

/// Creates a set as alice, which must succeed.
async fn made(world: &World, set: &Value) -> Value {
    let (status, stored) = post(world, "alice", "", set).await;
    assert_eq!(status, 200, "{stored}");
    stored
}

/// Status, gRPC code, reason and text of a refusal.
fn refused((status, body): &(u16, Value)) -> (u16, u64, &str, &str) {
    let text = |key: &str| body[key].as_str().unwrap_or_default();
    assert_eq!(body["error"], body["message"], "{body}");
    (
        *status,
        body["code"].as_u64().unwrap_or_default(),
        text("reason"),
        text("error"),
    )
}

/// What each of the listed refusals is about.
fn about(body: &Value) -> Vec<String> {
    let listed = body["refusals"].as_array().cloned().unwrap_or_default();
    listed
        .iter()
        .map(|one| one["about"].as_str().unwrap().to_owned())
        .collect()
}

/// `application: action` of each change.
fn actions(body: &Value) -> Vec<String> {
    let changes = body["changes"].as_array().cloned().unwrap_or_default();
    let text = |change: &Value, key: &str| change[key].as_str().unwrap().to_owned();
    changes
        .iter()
        .map(|change| format!("{}: {}", text(change, "application"), text(change, "action")))
        .collect()
}

/// Every object of a kind in the state folder, sorted by name.
fn stored(world: &World, kind: &str) -> Vec<Value> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(world.path("state")).unwrap() {
        let path = entry.unwrap().path();
        if !path.is_file() {
            continue;
        }
        let text = std::fs::read_to_string(path).unwrap();
        let object: Value = serde_saphyr::from_str(&text).unwrap();
        if object["kind"] == kind {
            found.push(object);
        }
    }
    found.sort_by_key(|object| object["metadata"]["name"].as_str().unwrap_or_default().to_owned());
    found
}

fn names(objects: &[Value]) -> Vec<&str> {
    objects
        .iter()
        .map(|object| object["metadata"]["name"].as_str().unwrap())
        .collect()
}
