//! A cluster that answers what no API server would, and a thief who has an agent's key: what of it reaches the
//! gateway's clients, and how it ends.

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::time::Duration;

use super::super::COMPONENT;
use super::super::command::decoded;
use super::site::Site;
use test_support::api_server::Api;
use test_support::kubernetes::agent::{AgentProcess, ApiServer, make_key};
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::{Gateway, Layout};

/// Fields by which an answer would act on the gateway's origin, or on the gateway itself.
const FOREIGN: [(&str, &str); 7] = [
    ("set-cookie", "argocd.token=stolen; Path=/"),
    ("access-control-allow-origin", "*"),
    ("clear-site-data", "\"*\""),
    ("strict-transport-security", "max-age=0"),
    ("tollgate-status", "101"),
    ("tollgate-no-answer", "absent"),
    ("upgrade", "websocket"),
];

/// A gateway with two clusters. The agent of `hostile` leads to an API server of the test, and says that it is
/// `other`.
struct Hostile {
    gateway: Gateway,
    _agent: AgentProcess,
    _files: TempDir,
}

/// The server of a cluster.
fn server_of(name: &str) -> String {
    format!("https://{name}.clusters.invalid")
}

impl Hostile {
    /// - `settings`: of the gateway.
    /// - `configure`: what differs about its objects.
    async fn start(api: &Api, settings: Value, configure: impl FnOnce(&Layout)) -> Self {
        let files = tempfile::tempdir().unwrap();
        let key = make_key(files.path()).await;
        let mut layout = Layout::new(&["alice"], "p, role:all, *, *, *, allow\ng, alice, role:all\n");
        layout.tls();
        layout.policies("applications");
        layout.settings(settings);
        configure(&layout);
        for (name, keys) in [("hostile", vec![key]), ("other", vec![])] {
            let config = json!({"agent": {"publicKeys": keys}}).to_string();
            layout.cluster(
                name,
                &json!({"name": name, "server": server_of(name), "config": config}),
            );
        }
        let gateway = layout.start().await;
        let server = ApiServer {
            url: &api.url(),
            authority: &api.ca_pem,
            token: "of-the-cluster",
        };
        let more = json!({
            "cluster": "other", "ownAccount": "everything", "impersonate": {"serviceAccounts": ["shop:deployer"]},
        });
        Self {
            _agent: AgentProcess::with_key(files.path(), &gateway, server, &more),
            gateway,
            _files: files,
        }
    }
}

#[tokio::test]
async fn a_hostile_cluster_reaches_its_own_caller_and_nothing_of_the_gateway() {
    let api = Api::start(|_| {
        let fields = FOREIGN.map(|(name, value)| (name, value.to_owned()));
        (200, fields.to_vec(), "{\"major\":\"0\"}".to_owned())
    })
    .await;
    let hostile = Hostile::start(&api, json!({"clusters": {"forward": true}}), |_| {}).await;
    let gateway = &hostile.gateway;
    let client = gateway.client("alice");
    let get = async |cluster: &str| {
        let url = format!("{}/clusters/{cluster}/k8s/version", gateway.url());
        client.get(url).send().await.unwrap()
    };
    let answer = eventually("the cluster answers", async || {
        let answer = get("hostile").await;
        answer.status().is_success().then_some(answer)
    })
    .await;
    let fields = answer.headers().clone();
    for (name, _) in FOREIGN {
        assert!(!fields.contains_key(name), "{name}: {fields:?}");
    }
    assert_eq!(answer.text().await.unwrap(), "{\"major\":\"0\"}");
    // It says that it is another cluster, which decides nothing.
    assert_eq!(get("other").await.status(), 503);
    // The cluster saw its own credential, and none of the caller's.
    for seen in api.seen() {
        assert_eq!(seen.value("authorization"), Some("Bearer of-the-cluster"), "{seen:?}");
        assert!(seen.value("cookie").is_none(), "{seen:?}");
    }
    // A request that asks for a protocol gets none from an answer that is no switch.
    let url = format!(
        "{}/clusters/hostile/k8s/api/v1/namespaces/n/pods/p/exec?command=sh",
        gateway.url()
    );
    let upgrade = client
        .get(url)
        .header("connection", "upgrade")
        .header("upgrade", "websocket")
        .header("sec-websocket-version", "13")
        .header("sec-websocket-key", "AAAAAAAAAAAAAAAAAAAAAA==")
        .send()
        .await
        .unwrap();
    assert_ne!(upgrade.status(), 101);
}

/// How much a gateway may grow by bodies that nobody reads: much less than the cluster sends.
const GROWTH_KIB: u64 = 128 * 1024;

#[tokio::test]
async fn bodies_that_never_end_stay_with_who_asked_and_fill_no_memory() {
    let api = Api::start(|_| (200, Vec::new(), "{\"major\":\"0\"".to_owned())).await;
    api.never_end();
    let settings = json!({"clusters": {"forward": true}, "applications": {}});
    let hostile = Hostile::start(&api, settings, |layout| {
        let account = json!({"server": "*", "namespace": "shop", "defaultServiceAccount": "deployer"});
        layout.object(
            "ConfigMap",
            "argocd-cm",
            &json!({}),
            &json!({"accounts.alice": "login", "application.sync.impersonation.enabled": "true"}),
        );
        layout.write(&json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
            "metadata": {"name": "shop", "namespace": "argocd"},
            "spec": {
                "sourceRepos": ["*"], "destinations": [{"server": "*", "namespace": "*"}],
                "destinationServiceAccounts": [account],
            },
        }));
    })
    .await;
    let gateway = &hostile.gateway;
    let client = gateway.client("alice");
    let url = format!("{}/clusters/hostile/k8s/version", gateway.url());
    let mut answer = eventually("the cluster answers", async || {
        let answer = client.get(&url).send().await.unwrap();
        answer.status().is_success().then_some(answer)
    })
    .await;
    // It streams to any reader.
    let mut read = 0;
    while read < 64 << 20 {
        read += answer.chunk().await.unwrap().unwrap().len();
    }
    let before = gateway.memory_kib();
    let mut unread = Vec::new();
    for _ in 0..32 {
        unread.push(client.get(&url).send().await.unwrap());
    }
    tokio::time::sleep(Duration::from_secs(3)).await;
    let grown = gateway.memory_kib().saturating_sub(before);
    assert!(grown < GROWTH_KIB, "{grown} KiB for {} answers", unread.len());
    // What the gateway itself asks of the cluster ends by its own bounds.
    gateway.rewrite(&json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {"name": "shop", "namespace": "argocd"},
        "spec": {"project": "shop", "destination": {"server": server_of("hostile"), "namespace": "shop"}},
    }));
    let problem = eventually("the gateway gave up", async || {
        let report = gateway.admin("/applications").await;
        report["clusters"].as_array()?.first()?.get("problem").cloned()
    })
    .await;
    assert!(problem.as_str().unwrap().contains("it answered more than"), "{problem}");
    // Nobody is left in the cluster when nobody reads any more.
    drop((answer, unread));
    eventually("the cluster is left", async || (api.open() == 0).then_some(())).await;
}

#[tokio::test]
async fn a_stolen_key_stands_in_for_its_cluster_until_it_is_revoked() {
    let site = Site::start().await;
    site.join(&[]).await;
    let agent = site.run().await;
    site.until_served().await;
    site.until_token_removed().await;
    let key = site.joined.member("key.pem").await.unwrap();
    drop(agent);

    // The thief's own answers, while the agent is away.
    let lies = Api::start(|_| {
        let list = json!({"kind": "ConfigMapList", "apiVersion": "v1", "metadata": {}, "items": [
            {"metadata": {"name": "a-lie", "namespace": "shop"}},
        ]});
        let fields = vec![("content-type", "application/json".to_owned())];
        (200, fields, list.to_string())
    })
    .await;
    let files = tempfile::tempdir().unwrap();
    std::fs::write(files.path().join("key.pem"), decoded(&json!(key))).unwrap();
    let server = ApiServer {
        url: &lies.url(),
        authority: &lies.ca_pem,
        token: "of-the-thief",
    };
    let more = json!({"impersonate": {"serviceAccounts": ["*:*"]}});
    let thief = AgentProcess::with_key(files.path(), &site.scene.gateway, server, &more);
    let path = format!("/api/v1/namespaces/{}/configmaps", site.scene.home);
    let list = ["get", "--raw", &path];
    let kubectl = site.scene.kubectl(COMPONENT);
    eventually("the thief answers", async || {
        kubectl.run(&list).await.stdout.contains("a-lie").then_some(())
    })
    .await;
    // What the thief got: the requests, and no credential of anybody.
    assert!(!lies.seen().is_empty());
    for seen in lies.seen() {
        assert_eq!(seen.value("authorization"), Some("Bearer of-the-thief"), "{seen:?}");
        assert!(seen.value("cookie").is_none(), "{seen:?}");
    }

    // The agent that comes back is refused, and everybody who looks sees it.
    let agent = site.run().await;
    agent.until_logged("already_connected").await;
    let shown = site.agents().await;
    let connections = shown["connections"].as_array().unwrap();
    assert_eq!(connections.len(), 1, "{shown}");
    let metrics = site.scene.gateway.admin_text("/metrics").await;
    let refused = r#"tollgate_connector_events_total{event="agent.refused",reason="already_connected"}"#;
    assert!(metrics.contains(refused), "{metrics}");

    let key = connections[0]["key"].as_str().unwrap();
    let revoked = site.tollgate(&["cluster", "revoke-key", "destination", key]).await;
    assert!(revoked.status.success(), "{revoked:?}");
    tokio::time::sleep(Duration::from_secs(1)).await;
    let gone = kubectl.run(&list).await;
    assert!(!gone.status.success() && !gone.stdout.contains("a-lie"), "{gone:?}");
    thief.until_logged("key_revoked").await;
    site.join(&[]).await;
    site.until_served().await;
    assert!(!kubectl.succeed(&list).await.contains("a-lie"));
    assert_eq!(site.agents().await["connections"].as_array().unwrap().len(), 1);
}
