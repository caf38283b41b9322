//! Argo CD's components as ServiceAccounts: the gateway verifies their tokens with the keys of the API
//! server, and a program gives Argo CD those that the kubelet renews.

use std::path::Path;

use jiff::Timestamp;
use serde_json::{Value, json};

use super::argocd::{HOME, World, config_map, project};
use super::{OWN, STRANGER, Scene, through};
use test_support::kubernetes::argocd::NAMESPACE;
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::Layout;

const CONTROLLER: &str = "argocd-application-controller";

/// What makes a token one for the gateway.
const AUDIENCE: &str = "tollgate";

/// The token with which the gateway fetches keys, in its folder.
const OWN_TOKEN: &str = "own-token";

/// Accepts tokens of a cluster, and lets the controller of a namespace in.
fn accept(layout: &mut Layout, cluster: &Cluster, namespace: &str) {
    let issuer = json!({
        "issuer": {
            "url": cluster.url(), "audiences": [AUDIENCE], "certificateAuthority": cluster.authority(),
        },
        "claimMappings": {"username": {"claim": "sub", "prefix": "kubernetes:"}},
        "algorithms": ["ES256"],
        "jwksTokenFile": OWN_TOKEN,
    });
    layout.setting("/authentication/jwt", json!([issuer]));
    let user = format!("kubernetes:{}", Scene::account(namespace, CONTROLLER));
    let caller = json!({"issuer": cluster.url(), "user": user});
    layout.setting("/controlPlane/callers", json!([caller]));
}

/// A token of an account for this audience; for the API server if there is none.
async fn token(cluster: &Cluster, (namespace, account): (&str, &str), audience: Option<&str>) -> String {
    let namespace = format!("--namespace={namespace}");
    let audience = audience.map(|audience| format!("--audience={audience}"));
    let mut create = vec!["create", "token", account, &namespace];
    create.extend(audience.as_deref());
    cluster.admin().succeed(&create).await.trim().to_owned()
}

/// A token with another signature.
fn forged(token: &str) -> String {
    let (signed, signature) = token.rsplit_once('.').unwrap();
    format!("{signed}.{}", signature.chars().rev().collect::<String>())
}

/// How client-go gets a token of this file.
fn exec(file: &Path) -> Value {
    json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": test_support::tollgate(),
        "args": ["credential", "exec", "--token-file", file],
    })
}

#[tokio::test]
async fn only_tokens_of_the_named_account_for_the_gateway_are_accepted() {
    let cluster = Cluster::shared().await;
    let argocd = cluster.namespace("argocd").await;
    for account in [CONTROLLER, STRANGER, "tollgate"] {
        cluster.service_account(&argocd, account).await;
    }
    let scene = Scene::start_with(|layout, cluster| accept(layout, cluster, &argocd)).await;
    let controller = (argocd.as_str(), CONTROLLER);
    let own = token(cluster, (&argocd, "tollgate"), None).await;
    let good = token(cluster, controller, Some(AUDIENCE)).await;

    // The API server gives its keys to nobody without a token.
    let client = scene.gateway.plain_client();
    let url = format!("{}/api/v1/tollgate/clusters", scene.gateway.url());
    let status = async || client.get(&url).bearer_auth(&good).send().await.unwrap().status();
    assert_eq!(status().await, 503);
    std::fs::write(scene.gateway.path(OWN_TOKEN), own).unwrap();
    eventually("the gateway fetches the keys", async || {
        (status().await == 200).then_some(())
    })
    .await;

    let namespace = format!("--namespace={}", scene.home);
    let get = ["get", "configmaps", &namespace];
    let now = Timestamp::now().as_second();
    let claims = |changes: Value| {
        let mut claims = json!({
            "iss": cluster.url(), "sub": Scene::account(&argocd, CONTROLLER), "aud": [AUDIENCE],
            "iat": now - 60, "nbf": now - 60, "exp": now + 600,
        });
        for (claim, value) in changes.as_object().unwrap() {
            claims[claim] = value.clone();
        }
        claims
    };
    let stranger = token(cluster, (&argocd, STRANGER), Some(AUDIENCE)).await;
    let for_api_server = token(cluster, controller, None).await;
    let create = ["create", "configmap", "stolen", &namespace];
    let deployer = format!("--as={}", Scene::account(&scene.home, "deployer"));
    let create = [&create[..], &[&deployer]].concat();
    for (what, token, status, reason) in [
        ("another account", stranger, 403, "permission_denied"),
        ("for the API server", for_api_server, 401, "invalid_token"),
        (
            "expired",
            cluster.sign(&claims(json!({"exp": now - 1}))),
            401,
            "token_expired",
        ),
        (
            "for somebody else",
            cluster.sign(&claims(json!({"aud": ["tollgate.example"]}))),
            401,
            "invalid_token",
        ),
        (
            "another issuer",
            cluster.sign(&claims(json!({"iss": "https://kubernetes.default.svc"}))),
            401,
            "invalid_token",
        ),
        (
            "another key",
            forged(&cluster.sign(&claims(json!({})))),
            401,
            "invalid_token",
        ),
    ] {
        let before = scene.gateway.decisions().len();
        let refused = scene.kubectl_of(&json!({"token": token})).fail(&create).await;
        let record = eventually("the refusal is recorded", async || {
            let records = scene.gateway.decisions();
            records
                .into_iter()
                .skip(before)
                .find(|record| record["outcome"] == "denied")
        })
        .await;
        assert_eq!(
            (&record["status"], &record["reason"]),
            (&json!(status), &json!(reason)),
            "{what}: {record}, {refused}"
        );
    }
    // The same claims with nothing wrong, and as Argo CD gets its token.
    let file = scene.gateway.path("projected");
    for token in [cluster.sign(&claims(json!({}))), good] {
        std::fs::write(&file, token).unwrap();
        let kubectl = scene.kubectl_of(&json!({"exec": {
            "apiVersion": "client.authentication.k8s.io/v1", "interactiveMode": "Never",
            "command": test_support::tollgate(), "args": exec(&file)["args"],
        }}));
        kubectl.succeed(&get).await;
        let refused = kubectl.fail(&["create", "configmap", "stolen", &namespace]).await;
        assert!(refused.contains("without impersonation"), "{refused}");
    }
    for (who, event) in scene.arrived() {
        assert!(who.is_empty() || who == Scene::account(&scene.own, "reader"), "{event}");
        assert_ne!(event["verb"], "create", "{event}");
    }
    let is_accepted = |record: &Value| record["outcome"] == "allowed";
    let principal = &scene.gateway.decision("what was accepted", is_accepted).await["principal"];
    let expected = format!("kubernetes:{}", Scene::account(&argocd, CONTROLLER));
    assert_eq!(principal["username"], expected, "{principal}");
}

#[tokio::test(flavor = "multi_thread")]
async fn argo_cd_sends_the_token_that_is_in_the_file_now() {
    let (world, own) = World::start_without_clusters(|layout, control| accept(layout, control, NAMESPACE)).await;
    let (control, server) = (&world.control, world.destination.url());
    let of_gateway = control.service_account(NAMESPACE, "tollgate").await;
    std::fs::write(world.gateway.path(OWN_TOKEN), of_gateway).unwrap();
    let file = world.gateway.path("projected");
    let write = async |audience: Option<&str>| {
        let token = token(control, (NAMESPACE, CONTROLLER), audience).await;
        std::fs::write(&file, token).unwrap();
    };
    write(None).await;

    let mut credential = super::credential(OWN, server, &own, world.destination.authority());
    credential["metadata"]["name"] = json!("destination");
    control.admin().apply(&credential.to_string()).await;
    let mut config = through(&world.gateway.url(), &world.gateway.authority().unwrap(), "");
    config.as_object_mut().unwrap().remove("bearerToken");
    config["execProviderConfig"] = exec(&file);
    let secret = json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {
            "name": "destination", "namespace": NAMESPACE,
            "labels": {"argocd.argoproj.io/secret-type": "cluster"},
        },
        "stringData": {"name": "destination", "server": server, "config": config.to_string()},
    });
    control.admin().apply(&secret.to_string()).await;
    let project = project("shop", &[(server, HOME)], &[(server, HOME, "deployer")]);
    control.admin().apply(&project.to_string()).await;
    world
        .commit(&[("shop/hello.yaml", Some(config_map("hello", "1")))])
        .await;
    let application = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {"name": HOME, "namespace": NAMESPACE},
        "spec": {
            "project": "shop",
            "source": {"repoURL": world.argocd.repository(), "path": HOME},
            "destination": {"server": server, "namespace": HOME},
            "syncPolicy": {"automated": {}},
        },
    });
    control.admin().apply(&application.to_string()).await;
    eventually("a token for the API server is refused", async || {
        let mut records = world.gateway.decisions().into_iter();
        records.find(|record| record["status"] == 401 && record["reason"] == "invalid_token")
    })
    .await;

    // Nobody touches the Secret.
    write(Some(AUDIENCE)).await;
    let cli = world.cli().await;
    eventually("the Application is synced", async || {
        let run = cli.run(&["app", "get", HOME, "--refresh", "--output=json"]).await;
        let application: Value = serde_json::from_str(&run.stdout).ok()?;
        (application["status"]["sync"]["status"] == "Synced").then_some(())
    })
    .await;
    let account = Scene::account(HOME, "deployer");
    world.wrote(&account, "create", ("configmaps", "hello")).await;
    world.assert_actors(&[account]);
}
