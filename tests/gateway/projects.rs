//! The API for AppProjects: permissions, versions, and what stays unchanged in files.

use std::path::PathBuf;

use reqwest::Method;
use serde_json::{Value, json};

use crate::clusters::ask;
use test_support::world::{Setup, World, map, project};

/// alice may read and change every project; carol may read `shop`; dave may change `shop`, but not
/// read it; bob has no permissions.
const POLICY: &str = "p, alice, projects, get, *, allow\np, alice, projects, update, *, allow\n\
                      p, carol, projects, get, shop, allow\np, dave, projects, update, shop, allow\n";

const FILE: &str = "\
# The shop's project.
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata: {name: shop}
spec:
  description: 'Shop'   # kept
  destinations:
  - {server: '*', namespace: '*'}
";

async fn start() -> World {
    let accounts = ["alice", "bob", "carol", "dave"].map(|name| (format!("accounts.{name}"), "login".to_owned()));
    let world = Setup {
        argocd_cm: accounts.into_iter().collect(),
        rbac_cm: map(&[("policy.csv", POLICY)]),
        objects: vec![project("other", json!([]))],
        ..Setup::default()
    };
    let world = world.start().await;
    std::fs::write(file(&world), FILE).unwrap();
    world
        .until("the project to be loaded", async || {
            let (_, list) = send(ask(&world, Method::GET, "alice", "/api/v1/projects")).await;
            list["items"].as_array().is_some_and(|items| items.len() == 2)
        })
        .await;
    world
}

fn file(world: &World) -> PathBuf {
    world.path("state/shop.yaml")
}

async fn send(request: reqwest::RequestBuilder) -> (u16, Value) {
    let answer = request.send().await.unwrap();
    let status = answer.status().as_u16();
    (status, answer.json().await.unwrap())
}

async fn get(world: &World, user: &str) -> (u16, Value) {
    send(ask(world, Method::GET, user, "/api/v1/projects/shop")).await
}

async fn put(world: &World, user: &str, name: &str, project: &Value) -> (u16, Value) {
    let request = ask(world, Method::PUT, user, &format!("/api/v1/projects/{name}"));
    send(request.json(&json!({ "project": project }))).await
}

/// Status, reason and text of a refusal.
fn refused((status, body): &(u16, Value)) -> (u16, &str, &str) {
    let text = |key: &str| body[key].as_str().unwrap_or_default();
    (*status, text("reason"), text("error"))
}

fn entry(account: &str) -> Value {
    json!({"server": "https://kubernetes.default.svc", "namespace": "guestbook", "defaultServiceAccount": account})
}

#[tokio::test]
async fn a_change_is_in_the_file_and_takes_effect() {
    let world = start().await;
    let answer = ask(&world, Method::GET, "alice", "/api/v1/projects/shop")
        .send()
        .await
        .unwrap();
    let generation = world.decision(&answer).await["generation"].as_u64();
    let mut project: Value = answer.json().await.unwrap();
    assert_eq!(project["kind"], "AppProject");
    let old = project["metadata"]["resourceVersion"].clone();
    project["spec"]["destinationServiceAccounts"] = json!([entry("guestbook-deployer")]);
    let (status, stored) = put(&world, "alice", "shop", &project).await;
    assert_eq!(status, 200, "{stored}");
    assert_eq!(
        stored["spec"]["destinationServiceAccounts"],
        json!([entry("guestbook-deployer")])
    );
    assert_ne!(stored["metadata"]["resourceVersion"], old);
    let lines = "  destinationServiceAccounts:\n  - defaultServiceAccount: guestbook-deployer\n    namespace: guestbook\n    server: https://kubernetes.default.svc\n";
    assert_eq!(std::fs::read_to_string(file(&world)).unwrap(), format!("{FILE}{lines}"));
    // The same change again, based on the old version, is a conflict.
    let again = put(&world, "alice", "shop", &project).await;
    let text = "AppProject `shop` has changed since it was read: read it again and repeat the change";
    assert_eq!(refused(&again), (409, "conflict", text));
    assert_eq!(get(&world, "alice").await, (200, stored));
    // The gateway loads its own write like any other.
    let lists = || ask(&world, Method::GET, "alice", "/api/v1/projects");
    world
        .until("a snapshot with the change", async || {
            let answer = lists().send().await.unwrap();
            world.decision(&answer).await["generation"].as_u64() > generation
        })
        .await;
}

#[tokio::test]
async fn callers_without_permission_learn_nothing() {
    let world = start().await;
    let (status, project) = get(&world, "carol").await;
    assert_eq!(status, 200);
    for (user, name, action) in [
        ("bob", "shop", "update"),
        ("bob", "none", "update"),
        ("carol", "shop", "update"),
        ("carol", "none", "update"),
        ("dave", "shop", "get"),
        ("dave", "none", "update"),
    ] {
        let answer = put(&world, user, name, &project).await;
        let text = format!("not permitted: `projects, {action}` of `{name}`");
        assert_eq!(
            refused(&answer),
            (403, "permission_denied", text.as_str()),
            "{user} {name}"
        );
    }
    for (user, name) in [("bob", "shop"), ("bob", "none"), ("carol", "other"), ("carol", "none")] {
        let answer = send(ask(&world, Method::GET, user, &format!("/api/v1/projects/{name}"))).await;
        let text = format!("not permitted: `projects, get` of `{name}`");
        assert_eq!(
            refused(&answer),
            (403, "permission_denied", text.as_str()),
            "{user} {name}"
        );
    }
    let none = send(ask(&world, Method::GET, "alice", "/api/v1/projects/none")).await;
    assert_eq!(
        refused(&none),
        (404, "project_not_found", "there is no AppProject `none`")
    );
    let names = async |user: &str| {
        let (status, list) = send(ask(&world, Method::GET, user, "/api/v1/projects")).await;
        assert_eq!(status, 200, "{list}");
        let items = list["items"].as_array().unwrap().clone();
        items
            .iter()
            .map(|item| item["metadata"]["name"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    assert_eq!(names("alice").await, ["other", "shop"]);
    assert_eq!(names("carol").await, ["shop"]);
    assert_eq!(names("bob").await, Vec::<String>::new());
    let stranger = reqwest::get(format!("http://{}/api/v1/projects/shop", world.address()));
    assert_eq!(stranger.await.unwrap().status().as_u16(), 401);
    assert_eq!(std::fs::read_to_string(file(&world)).unwrap(), FILE);
}

#[tokio::test]
async fn only_destination_service_accounts_can_be_changed() {
    let world = start().await;
    let (_, stored) = get(&world, "alice").await;
    let only = "differs from what is stored; only `spec.destinationServiceAccounts` can be changed here";
    for (pointer, value, text) in [
        ("/spec/destinations", json!([]), format!("`spec.destinations` {only}")),
        ("/spec/sourceRepos", json!(["*"]), format!("`spec.sourceRepos` {only}")),
        ("/metadata/name", json!("other"), format!("`metadata.name` {only}")),
        (
            "/spec/destinationServiceAccounts",
            json!([entry("a"), entry("b")]),
            "`spec.destinationServiceAccounts[1]`: destinationServiceAccount \
             'https://kubernetes.default.svc/guestbook' already added"
                .to_owned(),
        ),
        (
            "/spec/destinationServiceAccounts",
            json!([entry("a*")]),
            "`spec.destinationServiceAccounts[0]`: defaultServiceAccount has an invalid format, 'a*'".to_owned(),
        ),
    ] {
        let mut project = stored.clone();
        let (parent, last) = pointer.rsplit_once('/').unwrap();
        project.pointer_mut(parent).unwrap()[last] = value;
        let answer = put(&world, "alice", "shop", &project).await;
        assert_eq!(refused(&answer), (400, "project_invalid", text.as_str()));
    }
    let mut unversioned = stored.clone();
    unversioned["metadata"]
        .as_object_mut()
        .unwrap()
        .remove("resourceVersion");
    let answer = put(&world, "alice", "shop", &unversioned).await;
    let text = "`project.metadata.resourceVersion` is missing: read the project, and send the version together with what you changed";
    assert_eq!(refused(&answer), (409, "version_missing", text));
    // Content with an unknown field, of another type, or too long.
    let request = || ask(&world, Method::PUT, "alice", "/api/v1/projects/shop");
    let answer = send(request().json(&json!({"project": stored, "upsert": true}))).await;
    assert_eq!((answer.0, refused(&answer).1), (400, "bad_content"));
    let answer = send(request().body("{}")).await;
    assert_eq!((answer.0, refused(&answer).1), (415, "bad_content_type"));
    let long = format!("{{\"project\": \"{}\"}}", "x".repeat(1 << 20));
    let answer = send(request().header("content-type", "application/json").body(long)).await;
    assert_eq!((answer.0, refused(&answer).1), (413, "content_too_large"));
    assert_eq!(std::fs::read_to_string(file(&world)).unwrap(), FILE);
}

#[tokio::test]
async fn a_page_of_another_site_cannot_write() {
    let world = start().await;
    let (_, project) = get(&world, "alice").await;
    let token = test_support::token::session(test_support::world::SESSION_KEY, "alice");
    let url = format!("http://{}/api/v1/projects/shop", world.address());
    let request = |origin: &str| {
        reqwest::Client::new()
            .put(&url)
            .header("cookie", format!("argocd.token={token}"))
            .header("origin", origin)
            .json(&json!({ "project": project }))
    };
    let (status, body) = send(request("https://elsewhere.example")).await;
    assert_eq!((status, body["reason"].as_str()), (403, Some("cross_site_request")));
    let (status, body) = send(request(&format!("http://{}", world.address()))).await;
    assert_eq!(status, 200, "{body}");
}

#[tokio::test]
async fn the_command_goes_through_the_gateway() {
    let world = start().await;
    let run = async |user: &str, arguments: &[&str]| {
        let token = test_support::token::session(test_support::world::SESSION_KEY, user);
        let mut command = tokio::process::Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command
            .args(["proj"])
            .args(arguments)
            .arg("--server")
            .arg(format!("http://{}", world.address()));
        let output = command.env("TOLLGATE_AUTH_TOKEN", token).output().await.unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8(bytes).unwrap();
        (output.status.code(), text(output.stdout), text(output.stderr))
    };
    let add = ["add-destination-service-account", "shop", "*", "guestbook", "deployer"];
    let (code, out, err) = run("alice", &add).await;
    let text = "project shop: added service account deployer for server *, namespace guestbook\n";
    assert_eq!((code, out.as_str()), (Some(0), text), "{err}");
    let (code, _, err) = run("alice", &add).await;
    let text = "tollgate: project.present: specified destination service account is already defined in project\n";
    assert_eq!((code, err.as_str()), (Some(1), text));
    let (code, _, err) = run("carol", &["add-destination-service-account", "shop", "*", "*", "x"]).await;
    assert_eq!(code, Some(1));
    assert!(
        err.starts_with("tollgate: permission_denied: not permitted: `projects, update` of `shop`"),
        "{err}"
    );
    let (code, out, _) = run("carol", &["get", "shop", "-o", "yaml"]).await;
    assert_eq!(code, Some(0));
    assert!(out.contains("defaultServiceAccount: deployer"), "{out}");
    // Of several concurrent changes none is lost, because each command tries again.
    let accounts: Vec<String> = (0..3).map(|number| format!("https://{number}")).collect();
    let runs = accounts.iter().map(|server| {
        let arguments = ["add-destination-service-account", "shop", server.as_str(), "n", "a"];
        let run = &run;
        async move { run("alice", &arguments).await }
    });
    for (code, _, err) in futures_util::future::join_all(runs).await {
        assert_eq!(code, Some(0), "{err}");
    }
    let (_, project) = get(&world, "alice").await;
    assert_eq!(
        project["spec"]["destinationServiceAccounts"].as_array().unwrap().len(),
        4
    );
    let usage = run("alice", &["add-destination-service-account", "shop"]).await;
    assert_eq!(usage.0, Some(64));
}
