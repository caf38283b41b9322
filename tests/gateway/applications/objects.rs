//! What callers without the permission `override` reach: single objects of the Application. The
//! objects stored in the cluster decide what belongs to it.

use reqwest::Method;
use serde_json::{Value, json};

use super::{CART, api, asked, setup, shop, status_message};
use crate::clusters::ask;
use test_support::api_server::{Answer, Api, Seen};
use test_support::world::World;

const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/cart/deployments";
const CONFIGMAPS: &str = "/api/v1/namespaces/cart/configmaps";
const PODS: &str = "/api/v1/namespaces/cart/pods";
const BINDINGS: &str = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
const NOT_OWNED: &str = "the object is not a resource of this application";

/// Metadata of an object with this tracking id.
fn tracked(id: &str) -> Value {
    json!({"uid": "t", "annotations": {"argocd.argoproj.io/tracking-id": id}})
}

/// Metadata of an object with these owners: kind, name and uid of each.
fn owned(uid: &str, owners: &[(&str, &str, &str)]) -> Value {
    let owner = |(kind, name, uid): &(&str, &str, &str)| {
        let version = if *kind == "Pod" { "v1" } else { "apps/v1" };
        json!({"apiVersion": version, "kind": kind, "name": name, "uid": uid})
    };
    // The controller copied this annotation from the owner. It does not count as tracking id.
    let copied = json!({"argocd.argoproj.io/tracking-id": "cart:apps/Deployment:cart/web"});
    json!({"uid": uid, "annotations": copied, "ownerReferences": owners.iter().map(owner).collect::<Vec<_>>()})
}

/// The metadata of the object that the cluster has stored at a path.
fn live(path: &str) -> Option<Value> {
    let name = |folder: &str| path.strip_prefix(folder)?.strip_prefix('/');
    if let Some(name) = name(DEPLOYMENTS) {
        return match name {
            "web" => Some(
                json!({"uid": "d", "annotations": {"argocd.argoproj.io/tracking-id": "cart:apps/Deployment:cart/web"}}),
            ),
            "copied" => Some(tracked("cart:apps/Deployment:cart/web")),
            "foreign" => Some(tracked("other:apps/Deployment:cart/foreign")),
            "labelled" => Some(json!({"uid": "l", "labels": {"app.kubernetes.io/instance": "cart"}})),
            "bare" => Some(json!({"uid": "b"})),
            _ => None,
        };
    }
    if let Some(name) = name("/apis/apps/v1/namespaces/cart/replicasets") {
        return match name {
            "web-1" => Some(owned("rs", &[("Deployment", "web", "d")])),
            "stale" => Some(owned("rs-2", &[("Deployment", "web", "of-before")])),
            _ => None,
        };
    }
    if let Some(name) = name(PODS) {
        return match name {
            "web-1-a" => Some(owned("p", &[("ReplicaSet", "web-1", "rs")])),
            "two-owners" => Some(owned(
                "p",
                &[("ReplicaSet", "gone", "x"), ("ReplicaSet", "web-1", "rs")],
            )),
            "of-stale" => Some(owned("p", &[("ReplicaSet", "stale", "rs-2")])),
            "of-itself" => Some(owned("p", &[("Pod", "of-itself", "p"), ("Pod", "of-itself", "p")])),
            "stray" => Some(json!({"uid": "s"})),
            _ => None,
        };
    }
    if let Some(name) = name(CONFIGMAPS) {
        return match name {
            "settings" => Some(tracked("cart:/ConfigMap:cart/settings")),
            "foreign" => Some(tracked("other:/ConfigMap:cart/foreign")),
            _ => None,
        };
    }
    match path {
        "/api/v1/namespaces/cart/secrets/db" => Some(tracked("cart:/Secret:cart/db")),
        _ => None,
    }
}

/// Answers as an API server that has stored [`live`] and accepts every other request.
fn answer(seen: &Seen) -> Answer {
    let json = |status: u16, body: &Value| {
        let fields = vec![("content-type", "application/json".to_owned())];
        (status, fields, body.to_string())
    };
    let path = seen.target.split('?').next().unwrap_or_default();
    match (seen.method.as_str(), live(path)) {
        ("GET", Some(metadata)) => json(200, &json!({"kind": "Object", "metadata": metadata})),
        ("GET", None) if is_lookup(seen) => json(404, &json!({"kind": "Status", "code": 404})),
        (_, _) => json(200, &json!({"kind": "Status", "status": "Success"})),
    }
}

/// Whether this is a lookup of an object by the gateway itself.
fn is_lookup(seen: &Seen) -> bool {
    seen.value("accept")
        .is_some_and(|accept| accept.contains("PartialObjectMetadata"))
}

/// The callers' requests that reached the cluster.
fn passed(api: &Api) -> Vec<(String, String)> {
    let seen = asked(api).into_iter().filter(|seen| !is_lookup(seen));
    seen.map(|seen| (seen.method, seen.target)).collect()
}

async fn send(world: &World, who: &str, method: &Method, rest: &str) -> (u16, String) {
    let path = format!("{CART}{rest}");
    let request = ask(world, method.clone(), who, &path).body("{}");
    let answer = request.send().await.unwrap();
    match answer.status().as_u16() {
        200 => (200, String::new()),
        _ => status_message(answer).await,
    }
}

/// Sends each request. A refused one gets a message with this text and does not reach the cluster.
async fn check(world: &World, api: &Api, requests: &[(&str, Method, String, Option<&str>)]) {
    for (who, method, rest, refusal) in requests {
        let before = passed(api).len();
        let (status, message) = send(world, who, method, rest).await;
        let after = passed(api).split_off(before);
        match refusal {
            None => {
                assert_eq!(status, 200, "{who} {method} {rest}: {message}");
                assert_eq!(after, [(method.to_string(), rest.clone())]);
            }
            Some(refusal) => {
                assert_eq!(status, 403, "{who} {method} {rest}: {message}");
                assert!(message.contains(refusal), "{who} {method} {rest}: {message}");
                assert_eq!(after, [], "{who} {method} {rest}");
            }
        }
    }
}

/// A caller who may only sync must not be able to bind themselves to `cluster-admin`.
#[tokio::test]
async fn who_may_only_sync_writes_nothing_of_their_own() {
    let api = api(answer).await;
    // A project that permits everything, as `default` does.
    let open = json!({
        "destinations": [{"server": "*", "namespace": "*"}],
        "clusterResourceWhitelist": [{"group": "*", "kind": "*"}],
        "namespaceResourceBlacklist": [],
    });
    let mut setup = setup(&api, "true", shop(&open));
    let policy = "p, bob, applications, sync, shop/cart, allow\np, carol, applications, get, shop/cart, allow\n\
                  p, carol, applications, sync, shop/cart, allow\np, alice, applications, get, shop/cart, allow\n\
                  p, alice, applications, sync, shop/cart, allow\np, alice, applications, override, shop/cart, allow\n";
    setup.rbac_cm.insert("policy.csv".to_owned(), policy.to_owned());
    let world = setup.start().await;
    let over = "this needs `applications, override`";
    let roles = "/apis/rbac.authorization.k8s.io/v1/namespaces/cart/rolebindings";
    check(
        &world,
        &api,
        &[
            ("bob", Method::POST, BINDINGS.to_owned(), Some("you may not see")),
            ("carol", Method::POST, BINDINGS.to_owned(), Some(over)),
            ("carol", Method::POST, format!("{BINDINGS}?dryRun=All"), Some(over)),
            // Server-side apply would create the object.
            (
                "carol",
                Method::PATCH,
                format!("{BINDINGS}/carol?fieldManager=x"),
                Some("update/rbac"),
            ),
            ("carol", Method::POST, PODS.to_owned(), Some(over)),
            ("carol", Method::POST, roles.to_owned(), Some(over)),
            (
                "carol",
                Method::DELETE,
                format!("{PODS}/web-1-a"),
                Some("delete//Pod/cart/web-1-a"),
            ),
            ("alice", Method::POST, BINDINGS.to_owned(), None),
            ("alice", Method::PATCH, format!("{BINDINGS}/alice?fieldManager=x"), None),
            ("alice", Method::POST, PODS.to_owned(), None),
        ],
    )
    .await;
}

#[tokio::test]
async fn a_tracking_id_of_the_request_proves_nothing() {
    let api = api(answer).await;
    let world = setup(&api, "true", shop(&json!({}))).start().await;
    for (name, status) in [("absent", 403), ("bare", 403), ("web", 200)] {
        let body = json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": name, "annotations": {
                    "argocd.argoproj.io/tracking-id": format!("cart:apps/Deployment:cart/{name}"),
                },
                "labels": {"app.kubernetes.io/instance": "cart"},
            },
        });
        let path = format!("{CART}{DEPLOYMENTS}/{name}?fieldManager=x&force=true");
        let request = ask(&world, Method::PATCH, "dave", &path).header("content-type", "application/apply-patch+yaml");
        let answer = request.body(body.to_string()).send().await.unwrap();
        assert_eq!(answer.status(), status, "{name}");
    }
    assert_eq!(passed(&api).len(), 1);
}

#[tokio::test]
async fn only_what_the_cluster_says_is_the_applications_is_reached() {
    let api = api(answer).await;
    let world = setup(&api, "true", shop(&json!({"namespaceResourceBlacklist": []})))
        .start()
        .await;
    let over = "this needs `applications, override`";
    let (get, patch, delete) = (Method::GET, Method::PATCH, Method::DELETE);
    check(
        &world,
        &api,
        &[
            // carol, who may `get`, reads tracked objects and what they own.
            ("carol", get.clone(), format!("{DEPLOYMENTS}/web"), None),
            ("carol", get.clone(), format!("{DEPLOYMENTS}/web/scale"), None),
            ("carol", get.clone(), format!("{PODS}/web-1-a"), None),
            ("carol", get.clone(), format!("{PODS}/two-owners"), None),
            ("carol", get.clone(), format!("{DEPLOYMENTS}/copied"), Some(NOT_OWNED)),
            ("carol", get.clone(), format!("{DEPLOYMENTS}/foreign"), Some(NOT_OWNED)),
            ("carol", get.clone(), format!("{DEPLOYMENTS}/labelled"), Some(NOT_OWNED)),
            ("carol", get.clone(), format!("{DEPLOYMENTS}/bare"), Some(NOT_OWNED)),
            ("carol", get.clone(), format!("{DEPLOYMENTS}/absent"), Some(NOT_OWNED)),
            ("carol", get.clone(), format!("{PODS}/of-stale"), Some(NOT_OWNED)),
            ("carol", get.clone(), format!("{PODS}/of-itself"), Some(NOT_OWNED)),
            ("carol", get.clone(), format!("{PODS}/stray"), Some(NOT_OWNED)),
            // Lists, watches, Secrets and other namespaces are refused.
            ("carol", get.clone(), PODS.to_owned(), Some(over)),
            (
                "carol",
                get.clone(),
                format!("{PODS}?watch=true&fieldSelector=metadata.name=web-1-a"),
                Some(over),
            ),
            (
                "carol",
                get.clone(),
                "/api/v1/namespaces/cart/secrets/db".to_owned(),
                Some(over),
            ),
            (
                "carol",
                get.clone(),
                "/api/v1/namespaces/other/pods/p".to_owned(),
                Some("namespace other"),
            ),
            ("carol", get.clone(), "/metrics".to_owned(), Some("path /metrics")),
            ("carol", get.clone(), "/version".to_owned(), None),
            ("alice", get.clone(), PODS.to_owned(), None),
            ("alice", get.clone(), format!("{PODS}/stray"), None),
            (
                "alice",
                get.clone(),
                "/api/v1/namespaces/cart/secrets/db".to_owned(),
                None,
            ),
            (
                "alice",
                get.clone(),
                "/api/v1/namespaces/other/pods/p".to_owned(),
                Some("namespace other"),
            ),
            ("alice", get.clone(), "/metrics".to_owned(), Some("path /metrics")),
            // Logs and exec are only for pods of the Application.
            ("dave", get.clone(), format!("{PODS}/web-1-a/log"), None),
            ("dave", get.clone(), format!("{PODS}/stray/log"), Some(NOT_OWNED)),
            (
                "carol",
                get.clone(),
                format!("{PODS}/web-1-a/log"),
                Some("you may not read logs"),
            ),
            (
                "alice",
                get,
                format!("{PODS}/web-1-a/log"),
                Some("you may not read logs"),
            ),
            ("dave", Method::POST, format!("{PODS}/web-1-a/exec?command=sh"), None),
            (
                "dave",
                Method::POST,
                format!("{PODS}/stray/exec?command=sh"),
                Some(NOT_OWNED),
            ),
            (
                "alice",
                Method::POST,
                format!("{PODS}/web-1-a/exec?command=sh"),
                Some("you may not run"),
            ),
            // Changes need the permission for the object.
            ("dave", patch.clone(), format!("{DEPLOYMENTS}/web"), None),
            ("dave", Method::PUT, format!("{DEPLOYMENTS}/web"), None),
            ("dave", patch.clone(), format!("{DEPLOYMENTS}/web/scale"), None),
            ("dave", patch.clone(), format!("{DEPLOYMENTS}/foreign"), Some(NOT_OWNED)),
            ("dave", patch.clone(), format!("{DEPLOYMENTS}/web/status"), Some(over)),
            (
                "dave",
                patch.clone(),
                format!("{CONFIGMAPS}/settings"),
                Some("update//ConfigMap/cart/settings"),
            ),
            ("dave", delete.clone(), format!("{CONFIGMAPS}/settings"), None),
            ("dave", delete.clone(), format!("{CONFIGMAPS}/foreign"), Some(NOT_OWNED)),
            (
                "dave",
                delete.clone(),
                format!("{DEPLOYMENTS}/web"),
                Some("delete/apps/Deployment/cart/web"),
            ),
            ("dave", delete.clone(), CONFIGMAPS.to_owned(), Some(over)),
            (
                "dave",
                delete,
                "/api/v1/namespaces/cart/secrets/db".to_owned(),
                Some(over),
            ),
            (
                "dave",
                patch,
                "/api/v1/namespaces/cart/secrets/db".to_owned(),
                Some(over),
            ),
        ],
    )
    .await;
    // The gateway sends every lookup as the account, and gets only metadata.
    for seen in asked(&api).iter().filter(|seen| is_lookup(seen)) {
        assert_eq!(seen.method, "GET");
        assert_eq!(
            seen.value("impersonate-user"),
            Some("system:serviceaccount:cart:deployer")
        );
    }
}

#[tokio::test]
async fn a_chain_of_owners_is_followed_so_far_and_no_further() {
    // The Pod `web-0` is tracked, and each other is owned by the one before it.
    let api = api(|seen: &Seen| {
        let path = seen.target.split('?').next().unwrap_or_default();
        let number = path
            .rsplit_once("/web-")
            .and_then(|(_, number)| number.parse::<u32>().ok());
        let metadata = match number {
            None => json!({}),
            Some(0) => json!({"uid": "u0", "annotations": {"argocd.argoproj.io/tracking-id": "cart:/Pod:cart/web-0"}}),
            Some(number) => {
                let (name, uid) = (format!("web-{}", number - 1), format!("u{}", number - 1));
                owned(&format!("u{number}"), &[("Pod", &name, &uid)])
            }
        };
        let fields = vec![("content-type", "application/json".to_owned())];
        (200, fields, json!({"metadata": metadata}).to_string())
    })
    .await;
    let world = setup(&api, "true", shop(&json!({}))).start().await;
    for (number, status) in [(0, 200), (1, 200), (7, 200), (8, 403), (5_000, 403)] {
        let before = asked(&api).iter().filter(|seen| is_lookup(seen)).count();
        let (observed, message) = send(&world, "carol", &Method::GET, &format!("{PODS}/web-{number}")).await;
        assert_eq!(observed, status, "{number}: {message}");
        let lookups = asked(&api).iter().filter(|seen| is_lookup(seen)).count() - before;
        assert!(lookups <= 8, "{number}: {lookups}");
    }
}

#[tokio::test]
async fn where_it_cannot_be_told_nothing_passes() {
    for (status, expected) in [
        (403, "the acting identity may not read it"),
        (500, "the cluster does not say"),
        (200, "the cluster does not say"),
        (302, "the cluster does not say"),
    ] {
        let api = api(move |_: &Seen| (status, Vec::new(), "broken".to_owned())).await;
        let world = setup(&api, "true", shop(&json!({}))).start().await;
        let (observed, message) = send(&world, "carol", &Method::GET, &format!("{PODS}/p")).await;
        assert_eq!(observed, 403, "{status}: {message}");
        assert!(message.contains(expected), "{status}: {message}");
        assert_eq!(passed(&api), []);
    }
}

#[tokio::test]
async fn argocd_cm_says_how_objects_are_tracked() {
    for (settings, name, status) in [
        (vec![("application.resourceTrackingMethod", "label")], "labelled", 200),
        (vec![("application.resourceTrackingMethod", "label")], "web", 403),
        (
            vec![("application.resourceTrackingMethod", "annotation+label")],
            "labelled",
            403,
        ),
        (vec![("installationID", "ours")], "web", 403),
    ] {
        let api = api(answer).await;
        let mut setup = setup(&api, "true", shop(&json!({})));
        for (key, value) in &settings {
            setup.argocd_cm.insert((*key).to_owned(), (*value).to_owned());
        }
        let world = setup.start().await;
        let (observed, message) = send(&world, "carol", &Method::GET, &format!("{DEPLOYMENTS}/{name}")).await;
        assert_eq!(observed, status, "{settings:?} {name}: {message}");
    }
}

/// `Connection` can remove the content type from what the cluster gets.
#[tokio::test]
async fn the_content_type_is_the_one_the_cluster_sees() {
    let api = api(answer).await;
    let by_name = json!({"clusterResourceWhitelist": [{"group": "", "kind": "Namespace", "name": "cart"}]});
    let world = setup(&api, "true", shop(&by_name)).start().await;
    // JSON, which is YAML too.
    let namespace = |name: &str| {
        format!("{{\"apiVersion\": \"v1\", \"kind\": \"Namespace\", \"metadata\": {{\"name\": \"{name}\"}}}}")
    };
    let post = async |body: String, fields: &[(&str, &str)]| {
        let mut request = ask(&world, Method::POST, "alice", &format!("{CART}/api/v1/namespaces")).body(body);
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        request.send().await.unwrap().status().as_u16()
    };
    let yaml = "apiVersion: v1\nkind: Namespace\nmetadata: {name: cart}\n".to_owned();
    let yaml_type = ("content-type", "application/yaml");
    assert_eq!(post(yaml.clone(), &[yaml_type]).await, 200);
    assert_eq!(
        post(namespace("cart"), &[("connection", "content-type"), yaml_type]).await,
        200
    );
    assert_eq!(api.seen().last().unwrap().value("content-type"), None);
    // Without the field, the cluster would read YAML as JSON; the gateway cannot read it as JSON.
    let before = passed(&api).len();
    assert_eq!(post(yaml, &[("connection", "content-type"), yaml_type]).await, 403);
    assert_eq!(passed(&api).len(), before);
}
