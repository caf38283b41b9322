//! Whether clusters permit the gateway to impersonate the service accounts of Applications: when
//! the gateway asks, what operators see, and how requests follow the answers.

use std::process::Output;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::{Value, json};
use tokio::process::Command;

use crate::clusters::{bearer, cluster};
use test_support::api_server::{Answer, Api, Seen};
use test_support::token;
use test_support::world::{SESSION_KEY, Setup, World, application, map, object};

const REVIEWS: &str = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews";
/// The extra keys (`Impersonate-Extra-*`) that the shipped rules send.
const KEYS: [&str; 2] = ["tollgate.dev/application", "tollgate.dev/user"];

/// A cluster that answers access reviews with `grants` and everything else with the status of
/// `answer`.
async fn api(
    grants: impl Fn(&Value) -> bool + Send + Sync + 'static,
    answer: impl Fn(&Seen) -> u16 + Send + Sync + 'static,
) -> Api {
    crate::applications::api(move |seen| -> Answer {
        let json = vec![("content-type", "application/json".to_owned())];
        if seen.target == REVIEWS {
            let review: Value = serde_json::from_slice(&seen.body).unwrap();
            let allowed = grants(&review["spec"]["resourceAttributes"]);
            return (201, json, json!({"status": {"allowed": allowed}}).to_string());
        }
        (
            answer(seen),
            json,
            json!({"kind": "ConfigMapList", "items": []}).to_string(),
        )
    })
    .await
}

/// The access reviews that the cluster received, as `verb resource` with the subresource, then
/// `namespace/name`.
fn reviews(api: &Api) -> Vec<String> {
    let asked = api.seen().into_iter().filter(|seen| seen.target == REVIEWS);
    let text = |seen: Seen| {
        assert_eq!(seen.value("authorization"), Some("Bearer cluster-token"));
        assert!(
            seen.value("impersonate-user").is_none(),
            "the gateway asks with its own identity"
        );
        let review: Value = serde_json::from_slice(&seen.body).unwrap();
        let of = |key: &str| {
            review["spec"]["resourceAttributes"][key]
                .as_str()
                .unwrap_or_default()
                .to_owned()
        };
        let key = of("subresource");
        format!(
            "{} {}{key} {}/{}",
            of("verb"),
            of("resource"),
            of("namespace"),
            of("name")
        )
    };
    asked.map(text).collect()
}

fn switch(enabled: &str) -> Value {
    object(
        "v1",
        "ConfigMap",
        "argocd-cm",
        "argocd",
        json!({"data": {"accounts.alice": "login", "application.sync.impersonation.enabled": enabled}}),
    )
}

/// A gateway whose Application `cart` acts as the service account `cart:deployer` in the cluster
/// `prod`.
async fn world(api: &Api, enabled: &str) -> World {
    let mut cart = application("cart", "shop");
    cart["spec"]["destination"] = json!({"server": api.url(), "namespace": "cart"});
    let spec = json!({
        "sourceRepos": ["*"],
        "destinations": [{"server": "*", "namespace": "*"}],
        "destinationServiceAccounts": [{"server": "*", "namespace": "cart", "defaultServiceAccount": "deployer"}],
    });
    let setup = Setup {
        argocd_cm: map(&[
            ("accounts.alice", "login"),
            ("application.sync.impersonation.enabled", enabled),
        ]),
        objects: vec![
            cluster("prod", &api.url(), &bearer(api, "cluster-token"), &[]),
            object(
                "argoproj.io/v1alpha1",
                "AppProject",
                "shop",
                "argocd",
                json!({"spec": spec}),
            ),
            cart,
        ],
        // Lists need the permission `override`.
        rbac_cm: map(&[(
            "policy.csv",
            "p, alice, applications, get, shop/*, allow\np, alice, applications, sync, shop/*, allow\n\
             p, alice, applications, override, shop/*, allow\n",
        )]),
        settings: json!({"applications": {}}),
        ..Setup::default()
    };
    setup.start().await
}

async fn report(world: &World) -> Value {
    serde_json::from_str(&world.admin("/applications").await).unwrap()
}

/// Waits until the report of the only cluster `is_so`, and returns it.
async fn known(world: &World, what: &str, is_so: impl Fn(&Value) -> bool) -> Value {
    world
        .until(what, || async { is_so(&report(world).await["clusters"][0]) })
        .await;
    report(world).await["clusters"][0].clone()
}

fn is_known(cluster: &Value) -> bool {
    cluster["impersonation"]["unknown"] == 0
}

#[tokio::test]
async fn accounts_are_asked_about_only_while_they_may_act() {
    let api = api(
        |asked| asked["name"] == "deployer" && asked["verb"] == "impersonate",
        |_| 200,
    )
    .await;
    let world = world(&api, "false").await;
    assert_eq!(report(&world).await, json!({"mode": "off", "clusters": []}));
    let path = world.path("state/000.yaml");
    for (enabled, mode) in [("audit", "audit"), ("true", "enforce")] {
        assert_eq!(reviews(&api).is_empty(), mode == "audit");
        std::fs::write(&path, switch(enabled).to_string()).unwrap();
        world
            .until(mode, || async { report(&world).await["mode"] == mode })
            .await;
        let cluster = known(&world, "the cluster was asked", is_known).await;
        let expected = json!({
            "namespace": "cart", "name": "deployer",
            "impersonation": {"state": "granted", "mode": "classic"},
            "existence": cluster["accounts"][0]["existence"],
            "applications": {"count": 1, "first": ["argocd/cart"]},
        });
        assert_eq!(cluster["accounts"], json!([expected]));
        assert_eq!(
            (&cluster["cluster"], &cluster["server"]),
            (&json!("prod"), &json!(api.url()))
        );
    }
    // It kept what it knew: it asked each question only once.
    let mut asked = reviews(&api);
    asked.sort();
    let expected = [
        "get serviceaccounts /",
        "get serviceaccounts cart/deployer",
        "impersonate serviceaccounts /",
        "impersonate serviceaccounts cart/deployer",
        "impersonate userextrastollgate.dev/application /",
        "impersonate userextrastollgate.dev/user /",
        "impersonate:serviceaccount serviceaccounts /",
    ];
    assert_eq!(asked, expected);
    assert!(
        !api.seen()
            .iter()
            .any(|seen| seen.method == "GET" && seen.target.contains("serviceaccounts"))
    );
    let metrics = world.admin("/metrics").await;
    for (about, state, count) in [
        ("impersonation", "granted", 1),
        ("existence", "unknown", 1),
        ("extra", "missing", 2),
    ] {
        let line =
            format!("tollgate_application_grants{{cluster=\"prod\",about=\"{about}\",state=\"{state}\"}} {count}\n");
        assert!(metrics.contains(&line), "{line}: {metrics}");
    }
    std::fs::write(&path, switch("false").to_string()).unwrap();
    world
        .until("off again", || async { report(&world).await["mode"] == "off" })
        .await;
    assert_eq!(report(&world).await["clusters"], json!([]));
    assert!(!world.admin("/metrics").await.contains("tollgate_application_grants{"));
}

#[tokio::test]
async fn a_cluster_that_does_not_answer_reviews_is_reported_as_unknown() {
    let api = Api::start(|_| (500, Vec::new(), String::new())).await;
    let world = world(&api, "true").await;
    let cluster = known(&world, "a problem", |cluster| cluster["problem"].is_string()).await;
    assert!(cluster["problem"].as_str().unwrap().contains("500"), "{cluster}");
    assert_eq!(
        cluster["impersonation"],
        json!({"granted": 0, "missing": 0, "unknown": 1})
    );
    assert_eq!(cluster["extra"][0]["state"], "unknown");
    assert_eq!(reviews(&api).len(), 1, "after a failed review the gateway asks no more");
    let client = reqwest::Client::new();
    let page = format!("http://{}/applications", world.running.admin_address());
    let answer = client.get(page).header("host", "evil.example").send().await.unwrap();
    assert_eq!(answer.status(), 421);
}

/// Sends a request of alice. Returns the status and the extra keys that the cluster received.
async fn extra_keys(world: &World, api: &Api) -> (u16, Vec<String>) {
    let before = api.seen().len();
    let path = "/applications/argocd/cart/k8s/api/v1/namespaces/cart/configmaps";
    let answer = reqwest::Client::new()
        .get(format!("http://{}{path}", world.address()))
        .bearer_auth(token::session(SESSION_KEY, "alice"))
        .send()
        .await
        .unwrap();
    let seen = api.seen().split_off(before);
    let seen = seen.iter().find(|seen| seen.target.contains("configmaps")).unwrap();
    assert_eq!(
        seen.value("impersonate-user"),
        Some("system:serviceaccount:cart:deployer")
    );
    let prefix = "impersonate-extra-";
    let keys = seen
        .headers
        .keys()
        .filter_map(|name| name.as_str().strip_prefix(prefix));
    let mut keys: Vec<String> = keys.map(|key| key.replace("%2f", "/").replace("%2F", "/")).collect();
    keys.sort();
    (answer.status().as_u16(), keys)
}

#[tokio::test]
async fn an_extra_key_is_sent_only_while_the_cluster_grants_it() {
    let is_granted = Arc::new(AtomicBool::new(true));
    let (grants, answers) = (Arc::clone(&is_granted), Arc::clone(&is_granted));
    let api = api(
        move |asked| match asked["resource"].as_str() {
            // Impersonation of every account of the cluster is never granted.
            Some("serviceaccounts") => asked["name"] == "deployer",
            Some("userextras") => asked["subresource"] == KEYS[1] && grants.load(Ordering::SeqCst),
            _ => false,
        },
        move |seen| {
            let has_extra = seen
                .headers
                .keys()
                .any(|name| name.as_str().starts_with("impersonate-extra-"));
            if has_extra && !answers.load(Ordering::SeqCst) {
                403
            } else {
                200
            }
        },
    )
    .await;
    let world = world(&api, "true").await;
    known(&world, "the cluster was asked", is_known).await;
    let one = vec![KEYS[1].to_owned()];
    assert_eq!(extra_keys(&world, &api).await, (200, one.clone()));

    // When the cluster no longer grants the key, it refuses one request; the gateway sends later
    // requests without the key.
    is_granted.store(false, Ordering::SeqCst);
    assert_eq!(extra_keys(&world, &api).await, (403, one));
    world
        .until("the cluster was asked again", || async {
            extra_keys(&world, &api).await == (200, Vec::new())
        })
        .await;
    known(&world, "the key is missing", |cluster| {
        cluster["extra"][1] == json!({"key": KEYS[1], "state": "missing"})
    })
    .await;
}

async fn tollgate(world: &World, arguments: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .arg("kubeconfig")
        .args(arguments)
        .env_clear()
        .env("TOLLGATE_SERVER", format!("http://{}", world.address()))
        .output()
        .await
        .unwrap()
}

async fn kubeconfig(world: &World, arguments: &[&str]) -> Value {
    let output = tollgate(world, arguments).await;
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    serde_saphyr::from_str(&String::from_utf8(output.stdout).unwrap()).unwrap()
}

#[tokio::test]
async fn a_kubeconfig_leads_to_one_application() {
    let api = api(|_| true, |_| 200).await;
    let world = world(&api, "true").await;
    let file = world.path("token");
    std::fs::write(&file, token::session(SESSION_KEY, "alice")).unwrap();
    let file = file.to_str().unwrap();
    let cart = ["--application", "argocd/cart"];
    let config = kubeconfig(
        &world,
        &[&cart[..], &["--token-file", file, "--namespace", "cart"]].concat(),
    )
    .await;
    let server = config["clusters"][0]["cluster"]["server"].as_str().unwrap();
    assert_eq!(
        config,
        json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "argocd-cart",
            "clusters": [{"name": "argocd-cart", "cluster": {
                "server": format!("http://{}/applications/argocd/cart/k8s", world.address()),
            }}],
            "contexts": [{"name": "argocd-cart", "context": {
                "cluster": "argocd-cart", "user": "argocd-cart", "namespace": "cart",
            }}],
            "users": [{"name": "argocd-cart", "user": {"tokenFile": file}}],
        })
    );
    // A client uses the kubeconfig.
    let answer = reqwest::Client::new()
        .get(format!("{server}/api/v1/namespaces/cart/configmaps"))
        .bearer_auth(std::fs::read_to_string(file).unwrap())
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);

    let issuer = ["--oidc-issuer", "https://i.example", "--oidc-client-id", "argocd"];
    let config = kubeconfig(&world, &[&cart[..], &issuer, &["--context", "mine"]].concat()).await;
    assert_eq!(config["current-context"], "mine");
    assert_eq!(config["contexts"][0]["context"].get("namespace"), None);
    let user = &config["users"][0]["user"];
    assert_eq!(
        (&user["exec"]["command"], user.get("tokenFile")),
        (&json!("kubectl"), None)
    );

    let output = tollgate(&world, &cart).await;
    let text = String::from_utf8(output.stderr).unwrap();
    assert_eq!((output.status.code(), output.stdout.is_empty()), (Some(1), true));
    assert!(
        text.contains("`--token-file`") && text.contains("argocd account session-token"),
        "{text}"
    );
    for wrong in [
        &[][..],
        &["--application", "cart", "--token-file", file],
        &["--application", "argocd/cart", "--agent", "prod", "--token-file", file],
        &["--application", "argocd/cart", "--token-file", file, "--lifetime", "1h"],
    ] {
        let output = tollgate(&world, wrong).await;
        assert_eq!(output.status.code(), Some(64), "{wrong:?}: {output:?}");
    }
}
