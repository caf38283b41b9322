//! Calls that name an application and no project: the application's own project counts.

use reqwest::Response;
use serde_json::{Value, json};

use super::{backend, refusal, status};
use crate::wire::put;
use test_support::backend::{Backend, Reply};
use test_support::client::Client;
use test_support::token;
use test_support::world::{CONTROL_PLANE, SESSION_KEY, Setup, World, application, map, object, project};

/// A GET by `user` that names an application only.
async fn get(world: &World, user: &str, application: &str) -> Response {
    reqwest::Client::new()
        .get(world.echo("/x"))
        .bearer_auth(token::session(SESSION_KEY, user))
        .header("Argocd-Application-Name", application)
        .send()
        .await
        .unwrap()
}

#[tokio::test]
async fn the_project_is_the_applications() {
    let backend = backend().await;
    let world = Setup::with_backend(backend.address).start().await;
    let (status, body) = refusal(get(&world, "bob", "argocd:cart").await).await;
    assert_eq!((status, &body["reason"]), (403, &json!("permission_denied")));
    assert!(backend.seen().is_empty());
    let answer = get(&world, "alice", "argocd/cart").await;
    assert_eq!(answer.status(), 200);
    let record = world.decision(&answer).await;
    assert_eq!(
        (&record["project"], &record["checks"][0]["object"]),
        (&json!("shop"), &json!("shop/cart"))
    );
    let seen = backend.seen();
    assert_eq!(seen.len(), 1);
    assert_eq!(seen[0].values("argocd-application-name"), ["argocd:cart"]);
    assert_eq!(seen[0].values("argocd-project-name"), ["shop"]);
    // An empty field names nothing, and a named project must be the application's.
    let named = |name: &'static str| {
        let request = reqwest::Client::new().get(world.echo("/x"));
        let request = request.bearer_auth(token::session(SESSION_KEY, "alice"));
        let request = request.header("Argocd-Application-Name", "argocd:cart");
        request.header("Argocd-Project-Name", name)
    };
    assert_eq!(self::status(named("")).await, 200);
    assert_eq!(self::status(named("shop")).await, 200);
    let (status, body) = refusal(named("other").send().await.unwrap()).await;
    assert_eq!((status, &body["reason"]), (403, &json!("permission_denied")));
}

/// With `compat: argocd` both must be named, as Argo CD's handler demands.
#[tokio::test]
async fn an_application_is_not_taken_from_a_project() {
    let backend = backend().await;
    let mut setup = Setup::with_backend(backend.address);
    let world = setup.clone().start().await;
    let request = reqwest::Client::new().get(world.echo("/x"));
    let request = request.bearer_auth(token::session(SESSION_KEY, "alice"));
    let (status, body) = refusal(request.header("Argocd-Project-Name", "shop").send().await.unwrap()).await;
    assert_eq!((status, &body["reason"]), (400, &json!("missing_application_header")));
    setup.settings = json!({"extensions": {"compat": "argocd"}});
    let world = setup.start().await;
    let token = token::session(SESSION_KEY, "alice");
    for (lines, status) in [
        ("Argocd-Application-Name: argocd:cart\r\n", 400),
        (
            "Argocd-Application-Name: argocd:cart\r\nArgocd-Project-Name: shop\r\n",
            200,
        ),
    ] {
        let request =
            format!("GET /extensions/echo/x HTTP/1.1\r\nHost: gateway\r\nCookie: argocd.token={token}\r\n{lines}\r\n");
        let mut client = Client::connect(world.address()).await;
        let answer = client.exchange(request.as_bytes()).await;
        assert_eq!(answer.status, status, "{lines}");
        let text = String::from_utf8_lossy(&answer.content).into_owned();
        let is_named = text.starts_with("Invalid headers: header `Argocd-Project-Name` must be provided");
        assert_eq!(is_named, status == 400, "{text}");
    }
    assert_eq!(backend.seen().len(), 1);
}

/// What the caller may read about its own denied decision, without what differs between any two.
async fn own_decision(world: &World, answer: &Response) -> Value {
    let id = answer.headers()["tollgate-decision-id"].to_str().unwrap();
    let request = reqwest::Client::new()
        .get(format!("http://{}/api/v1/decisions/{id}", world.address()))
        .bearer_auth(token::session(SESSION_KEY, "alice"));
    let mut record: Value = request.send().await.unwrap().json().await.unwrap();
    assert_eq!(record["outcome"], "denied", "{record}");
    for different in ["decision_id", "timestamp"] {
        assert!(record[different].take().is_string(), "{record}");
    }
    record
}

/// A caller who may not see an application learns neither that it exists nor its project.
#[tokio::test]
async fn a_hidden_application_is_answered_like_a_missing_one() {
    let backend = backend().await;
    let mut setup = Setup::with_backend(backend.address);
    let mut stray = application("stray", "shop");
    stray["metadata"]["namespace"] = json!("tenant");
    let anywhere = json!([{"server": "*", "namespace": "*"}]);
    setup.objects.extend([
        project("secret", anywhere),
        application("hidden", "secret"),
        // `shop` accepts no applications of this namespace.
        stray,
        application("orphan", "no-such-project"),
    ]);
    let world = setup.start().await;
    let missing = get(&world, "alice", "argocd:missing").await;
    let expected = own_decision(&world, &missing).await;
    let shown = expected.to_string();
    assert!(!shown.contains("missing") && !shown.contains("checks\":[{"), "{shown}");
    let missing = refusal(missing).await;
    assert_eq!(
        (missing.0, &missing.1["error"]),
        (403, &json!("you may not see this application"))
    );
    for hidden in ["argocd:hidden", "tenant:stray", "argocd:orphan"] {
        let answer = get(&world, "alice", hidden).await;
        assert_eq!(own_decision(&world, &answer).await, expected, "{hidden}");
        assert_eq!(refusal(answer).await, missing, "{hidden}");
    }
    // Operators see what was asked.
    let answer = get(&world, "alice", "argocd:hidden").await;
    assert_eq!(world.decision(&answer).await["checks"][0]["object"], "secret/hidden");
    assert!(backend.seen().is_empty());
    assert_eq!(get(&world, "alice", "argocd:cart").await.status(), 200);
}

#[tokio::test]
async fn what_is_open_ends_when_the_application_changes_its_project() {
    let backend = Backend::start(|_| Reply::Stall(b"HTTP/1.1 200 OK\r\ncontent-length: 9\r\n\r\nx".to_vec())).await;
    let mut setup = Setup::with_backend(backend.address);
    let policy = "p, alice, applications, get, */*, allow\np, alice, extensions, invoke, *, allow\n";
    setup.rbac_cm = map(&[("policy.csv", policy)]);
    setup
        .objects
        .push(project("other", json!([{"server": "*", "namespace": "*"}])));
    let world = setup.start().await;
    let token = token::session(SESSION_KEY, "alice");
    let request = format!(
        "GET /extensions/echo/x HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {token}\r\n\
         Argocd-Application-Name: argocd:cart\r\n\r\n"
    );
    let mut client = Client::connect(world.address()).await;
    client.send(request.as_bytes()).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    put(&world, "state/004.yaml", application("cart", "other").to_string());
    assert_eq!(client.rest().await, b"x");
    let mut client = Client::connect(world.address()).await;
    client.send(request.as_bytes()).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    let projects: Vec<String> = backend
        .seen()
        .iter()
        .map(|seen| seen.values("argocd-project-name").join(" "))
        .collect();
    assert_eq!(projects, ["shop", "other"]);
}

/// The configurations and requests of the proposal for proxy extensions, UC-1. Its first two examples
/// name no application: their extension is about the whole installation.
#[tokio::test]
async fn the_examples_of_the_proposal_are_served() {
    let (global, here, there) = (backend().await, backend().await, backend().await);
    let extensions = format!(
        "extensions:\n- name: some-extension\n  enabled: true\n  backend:\n    scope: global\n    \
         idleConnTimeout: 10s\n    services:\n    - url: http://{}\n\
         - name: other-extension\n  enabled: true\n  backend:\n    idleConnTimeout: 10s\n    services:\n    \
         - url: http://{}\n      clusterName: kubernetes.local\n    - url: http://{}\n      \
         clusterName: admins@ppd.cluster.k8s.local\n",
        global.address, here.address, there.address
    );
    let mut setup = Setup::default();
    setup.argocd_cm.insert("extension.config".to_owned(), extensions);
    let mut cluster = object(
        "v1",
        "Secret",
        "ppd",
        CONTROL_PLANE,
        json!({"stringData": {"name": "admins@ppd.cluster.k8s.local", "server": "https://ppd.example"}}),
    );
    cluster["metadata"]["labels"] = json!({"argocd.argoproj.io/secret-type": "cluster"});
    let spec = json!({"spec": {"project": "pre", "destination": {"server": "https://ppd.example", "namespace": "a"}}});
    let named = object(
        "argoproj.io/v1alpha1",
        "Application",
        "ppd-application",
        "default",
        spec,
    );
    let mut pre = project("pre", json!([{"server": "*", "namespace": "*"}]));
    pre["spec"]["sourceNamespaces"] = json!(["default"]);
    setup.objects.extend([cluster, pre, named]);
    let policy = "p, alice, extensions, *, some-extension, allow\n\
                  p, alice, applications, get, pre/*, allow\np, alice, extensions, *, pre/other-extension, allow\n";
    setup.rbac_cm = map(&[("policy.csv", policy)]);
    let world = setup.start().await;
    let ask = |user: &'static str, path: &str| {
        reqwest::Client::new()
            .get(format!("http://{}/api/v1/extensions/{path}", world.address()))
            .bearer_auth(token::session(SESSION_KEY, user))
    };
    for path in ["some-extension", "some-extension/apiv1/metrics/123"] {
        assert_eq!(status(ask("bob", path)).await, 403, "{path}");
        assert_eq!(status(ask("alice", path)).await, 200, "{path}");
    }
    let lines: Vec<String> = global.seen().iter().map(|seen| seen.line().to_owned()).collect();
    assert_eq!(lines, ["GET / HTTP/1.1", "GET /apiv1/metrics/123 HTTP/1.1"]);
    let third = |user| ask(user, "other-extension").header("Argocd-Application-Name", "default/ppd-application");
    assert_eq!(status(third("bob")).await, 403);
    assert_eq!(status(third("alice")).await, 200);
    assert_eq!((here.seen().len(), there.seen().len()), (0, 1));
    assert_eq!(there.seen()[0].line(), "GET / HTTP/1.1");
    assert_eq!(there.seen()[0].values("argocd-project-name"), ["pre"]);
}
