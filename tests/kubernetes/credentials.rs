//! A real kubectl and API server with tokens that the gateway gets by TokenRequest.

use std::path::Path;

use serde_json::{Value, json};

use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::gateway::{Gateway, Layout, base64, kubeconfig, session};
use test_support::kubernetes::kubectl::Kubectl;
use test_support::kubernetes::{PATIENCE, eventually};

/// The rights of the account `deployer`, and the right of `minter` to create its tokens.
fn grants(namespace: &str) -> String {
    format!(
        r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{ name: deployer, namespace: {namespace} }}
rules:
  - {{ apiGroups: [""], resources: [configmaps], verbs: [get, list, watch, create, update, patch] }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{ name: deployer, namespace: {namespace} }}
roleRef: {{ apiGroup: rbac.authorization.k8s.io, kind: Role, name: deployer }}
subjects:
  - {{ kind: ServiceAccount, name: deployer, namespace: {namespace} }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{ name: minter, namespace: {namespace} }}
rules:
  - {{ apiGroups: [""], resources: [serviceaccounts/token], verbs: [create], resourceNames: [deployer] }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{ name: minter, namespace: {namespace} }}
roleRef: {{ apiGroup: rbac.authorization.k8s.io, kind: Role, name: minter }}
subjects:
  - {{ kind: ServiceAccount, name: minter, namespace: {namespace} }}
"#
    )
}

/// kubectl that gets its tokens from `tollgate credential exec`.
fn kubectl_exec(cluster: &Cluster, arguments: &[&str]) -> Kubectl {
    let mut all = vec!["credential", "exec", "real"];
    all.extend(arguments);
    let exec = json!({
        "apiVersion": "client.authentication.k8s.io/v1",
        "command": env!("CARGO_BIN_EXE_tollgate"),
        "args": all,
        "interactiveMode": "Never",
        "provideClusterInfo": true,
    });
    let server = json!({
        "server": cluster.url(),
        "certificate-authority-data": base64(cluster.authority()),
    });
    Kubectl::with_kubeconfig(&kubeconfig(&server, &json!({"exec": exec})))
}

/// kubectl that reaches the cluster through the gateway, as `user`.
fn kubectl_through(gateway: &Gateway, user: &str) -> Kubectl {
    let server = json!({
        "server": format!("https://{}/clusters/real/k8s", gateway.address()),
        "certificate-authority-data": base64(&gateway.authority().unwrap()),
    });
    Kubectl::with_kubeconfig(&kubeconfig(&server, &json!({"token": session(user)})))
}

/// A gateway with one cluster called `real`.
async fn start(cluster: &Cluster, namespace: &str, hub_token: &str) -> Gateway {
    let policy =
        "p, alice, clusters, *, *, allow\np, alice, credentials, get, *, allow\np, bob, clusters, get, *, allow\n";
    let mut layout = Layout::new(&["alice", "bob"], policy);
    let root = layout.root().to_owned();
    for ending in ["wasm", "yaml"] {
        let file = format!("kubernetes-token-request.{ending}");
        let built = Path::new(env!("CARGO_MANIFEST_DIR")).join("target/guests").join(&file);
        std::fs::copy(built, root.join("plugins").join(&file))
            .unwrap_or_else(|error| panic!("{file}: {error}; build the guests with `cargo xtask plugins`"));
    }
    let config = json!({
        "tlsClientConfig": {"caData": base64(cluster.authority())},
        "provider": {
            "name": "kubernetes-token-request",
            "config": {
                "server": cluster.url(), "namespace": namespace, "serviceAccount": "deployer",
                "expirationSeconds": 600,
            },
        },
    });
    let described = json!({
        "name": "real", "server": cluster.url(), "hubToken": hub_token, "config": config.to_string(),
    });
    layout.cluster("real", &described);
    std::fs::write(root.join("ca.pem"), cluster.authority()).unwrap();
    let port: u16 = cluster.url().rsplit(':').next().unwrap().parse().unwrap();
    layout.tls();
    layout.settings(json!({
        "plugins": {
            "directory": "plugins", "cache": "cache",
            "grants": {"kubernetes-token-request": {
                "imports": ["clock", "ambient"],
                "hosts": [{"host": "127.0.0.1", "port": port, "loopback": true, "ca": root.join("ca.pem")}],
            }},
        },
        // A short time, so that the test sees tokens rotate.
        "clusters": {"forward": true, "renewAfter": "2s"},
    }));
    layout.start().await
}

/// A cluster, a new namespace in it, and a gateway for the cluster.
async fn fixture() -> (&'static Cluster, String, Gateway) {
    let cluster = Cluster::shared().await;
    let namespace = cluster.namespace("gate").await;
    let minter = cluster.service_account(&namespace, "minter").await;
    cluster.service_account(&namespace, "deployer").await;
    cluster.admin().apply(&grants(&namespace)).await;
    let gateway = start(cluster, &namespace, &minter).await;
    (cluster, namespace, gateway)
}

/// The ids of the tokens with which the cluster saw the account `deployer`.
fn tokens_seen(cluster: &Cluster, namespace: &str) -> Vec<String> {
    let account = format!("system:serviceaccount:{namespace}:deployer");
    let mut seen = Vec::new();
    for event in cluster.audit().events_with(namespace) {
        let user = &event["user"];
        let id = user["extra"]["authentication.kubernetes.io/credential-id"][0].as_str();
        if let (true, Some(id)) = (user["username"] == account.as_str(), id)
            && !seen.iter().any(|known| known == id)
        {
            seen.push(id.to_owned());
        }
    }
    seen
}

#[tokio::test]
async fn kubectl_gets_its_token_from_credential_exec() {
    let (cluster, namespace, gateway) = fixture().await;
    let config = gateway.path("tollgate.yaml").display().to_string();
    let server = format!("https://{}", gateway.address());
    let authority = gateway.path("gateway-ca.pem").display().to_string();
    let token = session("alice");
    // Once with the settings file, and once from the running gateway.
    for arguments in [
        vec!["--config", config.as_str()],
        vec![
            "--server",
            server.as_str(),
            "--auth-token",
            token.as_str(),
            "--certificate-authority",
            authority.as_str(),
        ],
    ] {
        let kubectl = kubectl_exec(cluster, &arguments);
        let whoami = kubectl.json(&["auth", "whoami", "-o", "json"]).await;
        assert_eq!(
            whoami["status"]["userInfo"]["username"],
            format!("system:serviceaccount:{namespace}:deployer")
        );
        kubectl.succeed(&["get", "configmaps", "-n", &namespace]).await;
        let refused = kubectl.fail(&["get", "secrets", "-n", &namespace]).await;
        assert!(refused.contains("Forbidden"), "{refused}");
    }
    // bob may see clusters, but may not get tokens.
    let bob = session("bob");
    let asked = [
        "--server",
        &server,
        "--auth-token",
        &bob,
        "--certificate-authority",
        &authority,
    ];
    let kubectl = kubectl_exec(cluster, &asked);
    let refused = kubectl.fail(&["get", "configmaps", "-n", &namespace]).await;
    assert!(
        refused.contains("permission_denied") || refused.contains("403"),
        "{refused}"
    );
}

#[tokio::test]
async fn tokens_rotate_without_errors_while_kubectl_watches() {
    let (cluster, namespace, gateway) = fixture().await;
    let through = kubectl_through(&gateway, "alice");
    let server = format!("https://{}", gateway.address());
    let authority = gateway.path("gateway-ca.pem").display().to_string();
    let token = session("alice");
    let asked = [
        "--server",
        &server,
        "--auth-token",
        &token,
        "--certificate-authority",
        &authority,
    ];
    let by_exec = kubectl_exec(cluster, &asked);
    let started = tokio::time::Instant::now();
    let mut round = 0;
    // Watches in both ways until tokens have rotated at least three times.
    while tokens_seen(cluster, &namespace).len() < 4 {
        round += 1;
        for (way, kubectl) in [("through", &through), ("exec", &by_exec)] {
            let mut watch = kubectl.start(&["get", "configmaps", "-n", &namespace, "-w", "-o", "name"]);
            let name = format!("round-{round}-{way}");
            through.succeed(&["create", "configmap", &name, "-n", &namespace]).await;
            let seen = watch.line(&format!("configmap/{name}")).await;
            assert!(seen.is_some() && watch.runs(), "round {round}: {seen:?}");
        }
        assert!(started.elapsed() < PATIENCE * 2, "tokens do not rotate");
    }
    let events = cluster.audit().events_with(&namespace);
    let account = format!("system:serviceaccount:{namespace}:deployer");
    let failed = events
        .iter()
        .filter(|event| event["user"]["username"] == account.as_str());
    let failed: Vec<&Value> = failed.filter(|event| event["responseStatus"]["code"] == 401).collect();
    assert!(failed.is_empty(), "{failed:?}");
}

#[tokio::test]
async fn a_token_that_the_cluster_refuses_is_replaced_without_a_visible_failure() {
    let (cluster, namespace, gateway) = fixture().await;
    let through = kubectl_through(&gateway, "alice");
    through.succeed(&["get", "configmaps", "-n", &namespace]).await;
    let before = tokens_seen(cluster, &namespace);
    // The account is created again. The API server refuses tokens of the old one.
    let admin = cluster.admin();
    admin
        .succeed(&["delete", "serviceaccount", "deployer", "-n", &namespace])
        .await;
    admin
        .succeed(&["create", "serviceaccount", "deployer", "-n", &namespace])
        .await;
    let after = eventually("a token of the new account", async || {
        // The caller must not see an error.
        through.succeed(&["get", "configmaps", "-n", &namespace]).await;
        let seen = tokens_seen(cluster, &namespace);
        (seen.len() > before.len()).then_some(seen)
    })
    .await;
    assert!(after.len() > before.len());
}
