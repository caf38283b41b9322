//! Requests to clusters with credentials that a plugin mints.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use reqwest::Method;
use serde_json::{Value, json};

use super::{ask, cluster, get, refusal, setup};
use crate::wire::put;
use test_support::api_server::{Answer, Api, Seen};
use test_support::world::{Setup, World};

/// The secret that the plugin sends to the identity provider. Nobody else may see it.
pub(super) const ROBOT: &str = "r0bot-t0ken";

/// Starts an identity provider that numbers its tokens.
pub(crate) async fn issuer() -> Api {
    let made = AtomicUsize::new(0);
    Api::start(move |seen| {
        assert_eq!(seen.value("authorization"), Some(&*format!("Bearer {ROBOT}")));
        let nth = made.fetch_add(1, Ordering::SeqCst) + 1;
        let body = json!({"token": format!("minted-{nth}"), "expires_in": 3600});
        (200, vec![("content-type", "application/json".into())], body.to_string())
    })
    .await
}

/// Starts an API server that accepts the tokens for which `known` is true.
pub(crate) async fn cluster_of(known: impl Fn(&str) -> bool + Send + Sync + 'static) -> Api {
    Api::start(move |seen| {
        let token = seen
            .value("authorization")
            .and_then(|value| value.strip_prefix("Bearer "));
        if token.is_some_and(&known) {
            (200, Vec::new(), "welcome".into())
        } else {
            (401, vec![("www-authenticate", "Bearer".into())], "who?".into())
        }
    })
    .await
}

/// The Secret of a cluster `prod` whose credentials the plugin `webapi` mints.
pub(super) fn object(issuer: &Api, api: &Api, robot: &str) -> Value {
    cluster("prod", &api.url(), &config(issuer, api), &[("robot", robot)])
}

fn config(issuer: &Api, api: &Api) -> Value {
    json!({
        "webAPIProviderConfig": {
            "method": "POST", "url": format!("{}/token/{{{{ .name }}}}?for={{{{ .server | urlquery }}}}", issuer.url()),
            "tokenPath": "$.token",
            "headers": {"Authorization": "Bearer {{.robot}}"},
            "expiry": {"path": "$.expires_in", "format": "seconds"},
        },
        "tlsClientConfig": {"caData": STANDARD.encode(&api.ca_pem)},
    })
}

/// A gateway for that cluster. The folder has the certificate authority of the issuer.
pub(crate) fn world(issuer: &Api, api: &Api) -> (Setup, tempfile::TempDir) {
    let folder = tempfile::tempdir().unwrap();
    let ca = folder.path().join("ca.pem");
    std::fs::write(&ca, &issuer.ca_pem).unwrap();
    let mut setup = setup(vec![object(issuer, api, ROBOT)]);
    setup.plugins = vec!["webapi"];
    let host = json!({"host": "127.0.0.1", "port": issuer.address.port(), "loopback": true, "ca": ca});
    setup.settings["plugins"] = json!({"grants": {"webapi": {"imports": ["clock"], "hosts": [host]}}});
    (setup, folder)
}

async fn enter(world: &World) -> reqwest::Response {
    get(world, "carol", "/clusters/prod/k8s/api").send().await.unwrap()
}

#[tokio::test]
async fn one_mint_serves_many_and_no_token_is_written_down() {
    let (issuer, api) = (issuer().await, cluster_of(|token| token == "minted-1").await);
    let (setup, _folder) = world(&issuer, &api);
    let world = setup.start().await;
    let first = enter(&world).await;
    assert_eq!(first.status(), 200, "{}", first.text().await.unwrap());
    let record = world.decision(&first).await;
    assert!(
        record["credential"]["provider"]
            .as_str()
            .unwrap()
            .starts_with("webapi@sha256:")
    );
    assert_eq!(record["credential"]["generation"], 1);
    for _ in 0..20 {
        assert_eq!(enter(&world).await.status(), 200);
    }
    let [seen] = issuer.seen().try_into().unwrap();
    let server = api.url().replace(':', "%3A").replace('/', "%2F");
    assert_eq!(seen.target, format!("/token/prod?for={server}"));
    let metrics = world.admin("/metrics").await;
    assert!(
        metrics.contains("tollgate_credential_mints_total{cluster=\"prod\",result=\"ok\"} 1"),
        "{metrics}"
    );
    assert!(metrics.contains("tollgate_credential_mint_seconds_count{cluster=\"prod\"} 1"));
    assert!(metrics.contains("tollgate_credential_cache_entries{kind=\"live\"} 1"));
    let left = metrics
        .lines()
        .find_map(|line| line.strip_prefix("tollgate_credential_expiry_seconds{cluster=\"prod\"} "));
    let left: f64 = left.unwrap().parse().unwrap();
    assert!((3500.0..=3600.0).contains(&left), "{left}");
    let shown = world.admin("/credentials").await;
    assert!(shown.contains("\"standing\":\"usable\""), "{shown}");
    let mut written =
        metrics + &shown + &world.admin("/decisions?most=1000").await + &world.admin("/configuration").await;
    let file = world.path("decisions.jsonl");
    written += &std::fs::read_to_string(file).unwrap();
    for secret in ["minted-1", ROBOT] {
        assert!(!written.contains(secret));
    }
}

#[tokio::test]
async fn with_the_shortest_ttl_each_request_gets_a_token_of_its_own() {
    let (issuer, api) = (issuer().await, cluster_of(|_| true).await);
    let (mut setup, _folder) = world(&issuer, &api);
    let mut config = config(&issuer, &api);
    config["webAPIProviderConfig"]["ttl"] = json!("1ms");
    setup.objects = vec![cluster("prod", &api.url(), &config, &[("robot", ROBOT)])];
    let world = setup.start().await;
    for nth in 1..=3 {
        assert_eq!(enter(&world).await.status(), 200);
        let seen = api.seen();
        let last = seen.last().unwrap().value("authorization").unwrap();
        assert_eq!(last, format!("Bearer minted-{nth}"));
    }
}

#[tokio::test]
async fn a_refused_credential_is_replaced_and_a_read_sent_once_more() {
    let (issuer, api) = (issuer().await, cluster_of(|token| token == "minted-2").await);
    let (setup, _folder) = world(&issuer, &api);
    let world = setup.start().await;
    let answer = enter(&world).await;
    assert_eq!(answer.status(), 200);
    let record = world.decision(&answer).await;
    assert_eq!(record["credential"]["generation"], 2);
    assert_eq!(record["credential"]["replayed"], true);
    let tokens: Vec<_> = api
        .seen()
        .iter()
        .map(|seen| seen.value("authorization").unwrap().to_owned())
        .collect();
    assert_eq!(tokens, ["Bearer minted-1", "Bearer minted-2"]);
    assert_eq!(enter(&world).await.status(), 200);
    assert_eq!(issuer.seen().len(), 2);
}

#[tokio::test]
async fn what_may_have_done_something_is_sent_once() {
    let (issuer, written) = (issuer().await, Arc::new(AtomicUsize::new(0)));
    let counted = Arc::clone(&written);
    // An aggregated API server that writes, and then answers 401 itself.
    let api = Api::start(move |seen| {
        if seen.method != "GET" {
            counted.fetch_add(1, Ordering::SeqCst);
        }
        (401, Vec::new(), "later".into())
    })
    .await;
    let (setup, _folder) = world(&issuer, &api);
    let world = setup.start().await;
    let orders = "/clusters/prod/k8s/apis/shop.example/v1/namespaces/n/orders";
    let mut sent = 0;
    for (method, rest, content) in [
        (Method::POST, "", "{}"),
        (Method::POST, "", ""),
        (Method::PUT, "/one", "{}"),
        (Method::PATCH, "/one", "{}"),
        (Method::DELETE, "/one", ""),
        (Method::DELETE, "", ""),
        (Method::POST, "/one/pay", ""),
    ] {
        let answer = ask(&world, method.clone(), "alice", &format!("{orders}{rest}"))
            .body(content)
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), 401, "{method} {rest}");
        assert!(!answer.headers().contains_key("www-authenticate"));
        assert_eq!(world.decision(&answer).await["credential"]["replayed"], false);
        sent += 1;
        assert_eq!(written.load(Ordering::SeqCst), sent, "{method} {rest}");
    }
}

#[tokio::test]
async fn after_a_write_that_was_refused_the_next_request_finds_another_credential() {
    let (issuer, api) = (issuer().await, cluster_of(|token| token == "minted-2").await);
    let (setup, _folder) = world(&issuer, &api);
    let world = setup.start().await;
    let answer = ask(&world, Method::POST, "alice", "/clusters/prod/k8s/api")
        .body("x")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 401);
    assert!(!answer.headers().contains_key("www-authenticate"));
    assert_eq!(api.seen().len(), 1);
    assert_eq!(enter(&world).await.status(), 200);
    assert_eq!(issuer.seen().len(), 2);
}

#[tokio::test]
async fn a_storm_of_401_forces_one_mint() {
    let (issuer, api) = (issuer().await, cluster_of(|_| false).await);
    let (setup, _folder) = world(&issuer, &api);
    let world = Arc::new(setup.start().await);
    let mut asking = tokio::task::JoinSet::new();
    for _ in 0..40 {
        let world = Arc::clone(&world);
        asking.spawn(async move { enter(&world).await.status().as_u16() });
    }
    let answers = asking.join_all().await;
    assert!(answers.iter().all(|status| *status == 401), "{answers:?}");
    assert_eq!(enter(&world).await.status(), 401);
    // One mint at first, and one that the refusals forced.
    assert_eq!(issuer.seen().len(), 2);
}

#[tokio::test]
async fn a_403_of_the_cluster_is_final() {
    let issuer = issuer().await;
    let api = Api::start(|_| (403, Vec::new(), "forbidden".into())).await;
    let (setup, _folder) = world(&issuer, &api);
    let world = setup.start().await;
    for _ in 0..3 {
        assert_eq!(enter(&world).await.status(), 403);
    }
    assert_eq!((issuer.seen().len(), api.seen().len()), (1, 3));
}

#[tokio::test]
async fn a_failure_of_the_provider_is_reported_by_its_class() {
    let api = cluster_of(|_| true).await;
    let say = |status: u16, body: &str| -> Answer { (status, vec![("retry-after", "7".into())], body.to_owned()) };
    for (answer, status, class) in [
        (say(503, "{}"), 503, "retryable"),
        (say(401, r#"{"error":"invalid_client"}"#), 502, "denied"),
        (say(200, r#"{"other":1}"#), 502, "permanent"),
    ] {
        let kept = answer.clone();
        let issuer = Api::start(move |_: &Seen| kept.clone()).await;
        let (setup, _folder) = world(&issuer, &api);
        let world = setup.start().await;
        let refused = enter(&world).await;
        let wait = refused
            .headers()
            .get("retry-after")
            .map(|wait| wait.to_str().unwrap().to_owned());
        let record = world.decision(&refused).await;
        let (seen, reason, code) = refusal(refused).await;
        assert_eq!((seen, &*reason), (status, "credential_unavailable"), "{class} {code}");
        assert!(!code.is_empty());
        assert_eq!(wait.is_some(), status == 503, "{class}");
        assert_eq!(record["credential"]["failure"], format!("{class} {code}"));
        let metrics = world.admin("/metrics").await;
        let line = format!("tollgate_credential_mints_total{{cluster=\"prod\",result=\"{class}\"}} 1");
        assert!(metrics.contains(&line), "{metrics}");
        assert!(metrics.contains(&format!(
            "tollgate_credential_last_error{{cluster=\"prod\",class=\"{class}\"}}"
        )));
        // The gateway does not ask the provider again at once.
        assert_eq!(enter(&world).await.status(), status);
        assert_eq!(issuer.seen().len(), 1);
        let refused = get(&world, "bob", "/clusters/prod/k8s/api").send().await.unwrap();
        assert_eq!(refusal(refused).await, (403, "permission_denied".into(), String::new()));
    }
    assert!(api.seen().is_empty());
}

#[tokio::test]
async fn a_reload_keeps_the_credential_of_what_did_not_change() {
    let (issuer, api) = (issuer().await, cluster_of(|_| true).await);
    let (setup, _folder) = world(&issuer, &api);
    let world = setup.start().await;
    assert_eq!(enter(&world).await.status(), 200);
    let open = api.open();
    // Only a label and the version of the Secret change.
    let mut same = object(&issuer, &api, ROBOT);
    same["metadata"]["labels"]["team"] = "shop".into();
    same["metadata"]["resourceVersion"] = "2".into();
    put(&world, "state/003.yaml", same.to_string());
    world.until("a second snapshot", || generation(&world, 2)).await;
    assert_eq!(enter(&world).await.status(), 200);
    assert_eq!(
        (issuer.seen().len(), api.open()),
        (1, open),
        "same credential, same connection"
    );
    // A new secret value is a new credential.
    let broken = object(&issuer, &api, "another");
    put(&world, "state/003.yaml", broken.to_string());
    world.until("a third snapshot", || generation(&world, 3)).await;
    let refused = enter(&world).await;
    assert_ne!(refused.status(), 200, "the issuer refuses the other robot");
}

async fn generation(world: &World, wanted: u64) -> bool {
    let page: Value = serde_json::from_str(&world.admin("/configuration").await).unwrap();
    page["generation"].as_u64().unwrap() >= wanted
}

#[tokio::test]
async fn what_a_pod_answers_stays_the_pods_and_stays_data() {
    let issuer = issuer().await;
    let api = Api::start(|seen| {
        let fields = vec![
            ("www-authenticate", "Basic realm=pod".to_owned()),
            ("set-cookie", "argocd.other=x; Path=/".to_owned()),
            ("service-worker-allowed", "/".to_owned()),
            ("content-security-policy", "default-src *".to_owned()),
        ];
        let status = if seen.target.contains("/proxy/") { 401 } else { 200 };
        (status, fields, "<script>fetch('/api/v1/clusters')</script>".to_owned())
    })
    .await;
    let (setup, _folder) = world(&issuer, &api);
    let world = setup.start().await;
    let pod = "/clusters/prod/k8s/api/v1/namespaces/n/pods/p/%70roxy/login";
    for (path, status) in [
        (pod.replace("%70", "p"), 401),
        ("/clusters/prod/k8s/api".to_owned(), 200),
    ] {
        // As alice, because a request to a pod's proxy is more than a read.
        let answer = get(&world, "alice", &path).send().await.unwrap();
        assert_eq!(answer.status(), status, "{path}");
        let field = |name: &str| {
            answer
                .headers()
                .get(name)
                .map(|value| value.to_str().unwrap().to_owned())
        };
        assert_eq!(field("content-security-policy").as_deref(), Some("sandbox"));
        assert_eq!(field("x-content-type-options").as_deref(), Some("nosniff"));
        assert_eq!(field("set-cookie"), None);
        assert_eq!(field("service-worker-allowed"), None);
        // Callers cannot answer the challenge, because the gateway reads `Authorization` itself.
        assert_eq!(field("www-authenticate"), None);
    }
    // The pod's 401 did not replace the credential, and the request was sent once.
    assert_eq!((issuer.seen().len(), api.seen().len()), (1, 2));
}
