//! A cluster that answers what no API server would: what of it reaches the gateway's clients.

use serde_json::json;

use test_support::api_server::Api;
use test_support::kubernetes::agent::{AgentProcess, ApiServer, make_key};
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::Layout;

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

#[tokio::test]
async fn a_hostile_cluster_reaches_its_own_caller_and_nothing_of_the_gateway() {
    let api = Api::start(|_| {
        let fields = FOREIGN.map(|(name, value)| (name, value.to_owned()));
        (200, fields.to_vec(), "{\"major\":\"0\"}".to_owned())
    })
    .await;
    let files = tempfile::tempdir().unwrap();
    let key = make_key(files.path()).await;
    let mut layout = Layout::new(&["alice"], "p, role:all, *, *, *, allow\ng, alice, role:all\n");
    layout.tls();
    layout.settings(json!({"clusters": {"forward": true}}));
    for (name, keys) in [("hostile", vec![key]), ("other", vec![])] {
        let config = json!({"agent": {"publicKeys": keys}}).to_string();
        let server = format!("https://{name}.clusters.invalid");
        layout.cluster(name, &json!({"name": name, "server": server, "config": config}));
    }
    let gateway = layout.start().await;
    let server = ApiServer {
        url: &api.url(),
        authority: &api.ca_pem,
        token: "of-the-cluster",
    };
    let more = json!({"cluster": "other", "ownAccount": "everything"});
    let _agent = AgentProcess::with_key(files.path(), &gateway, server, &more);
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
