//! Requests that another site makes the browser of a signed-in user send.

use http::Method;
use serde_json::{Value, json};

use crate::clusters::{bearer, cluster};
use test_support::api_server::{Answer, Api, Seen};
use test_support::token;
use test_support::world::{SESSION_KEY, Setup, World, application, map, project};

/// alice may do everything.
const POLICY: &str = "p, alice, *, *, *, allow\np, alice, *, *, */*, allow\n";

pub(crate) fn good(seen: &Seen) -> Answer {
    let json = vec![("content-type", "application/json".to_owned())];
    match seen.target.as_str() {
        "/api" => (200, json, kinds(&[("", "pods", "Pod"), ("", "services", "Service")])),
        "/apis" => (200, json, kinds(&[])),
        _ => (200, json, "{}".to_owned()),
    }
}

/// The body of a discovery response.
fn kinds(kinds: &[(&str, &str, &str)]) -> String {
    let resources: Vec<Value> = kinds
        .iter()
        .map(|(_, resource, kind)| {
            json!({"resource": resource, "responseKind": {"group": "", "version": "", "kind": kind},
                   "scope": "Namespaced", "singularResource": kind.to_lowercase(), "verbs": ["get"]})
        })
        .collect();
    let groups: Vec<Value> = match resources.is_empty() {
        true => Vec::new(),
        false => vec![json!({"metadata": {"name": ""}, "versions": [{"version": "v1", "resources": resources}]})],
    };
    json!({"kind": "APIGroupDiscoveryList", "apiVersion": "apidiscovery.k8s.io/v2", "metadata": {}, "items": groups})
        .to_string()
}

pub(crate) async fn world(api: &Api) -> World {
    let mut cart = application("cart", "shop");
    cart["spec"]["destination"] = json!({"server": api.url(), "namespace": "cart"});
    let setup = Setup {
        argocd_cm: map(&[("accounts.alice", "login")]),
        rbac_cm: map(&[("policy.csv", POLICY)]),
        objects: vec![
            cluster("prod", &api.url(), &bearer(api, "t"), &[]),
            project("shop", json!([{"server": "*", "namespace": "*"}])),
            cart,
        ],
        settings: json!({"clusters": {"forward": true}, "applications": {"gatewayIdentity": "allowed"}}),
        ..Setup::default()
    };
    setup.start().await
}

/// A request of alice's browser with her cookie, and with the header fields `site`.
async fn browse(world: &World, method: Method, path: &str, site: &[(&str, &str)]) -> (u16, String) {
    let mut request = reqwest::Client::new()
        .request(method, format!("http://{}{path}", world.address()))
        .header(
            "cookie",
            format!("argocd.token={}", token::session(SESSION_KEY, "alice")),
        );
    for (name, value) in site {
        request = request.header(*name, *value);
    }
    let answer = request.send().await.unwrap();
    let record = world.decision(&answer).await;
    (answer.status().as_u16(), record["reason"].as_str().unwrap().to_owned())
}

/// The proxy requests that the cluster received. They can run something.
fn ran(api: &Api) -> Vec<String> {
    let seen = api.seen().into_iter().map(|seen| seen.target);
    seen.filter(|target| target.contains("/proxy") || target.contains("/%70roxy"))
        .collect()
}

#[tokio::test]
async fn a_navigation_from_another_site_runs_nothing() {
    let api = Api::start(good).await;
    let world = world(&api).await;
    let elsewhere: [&[(&str, &str)]; 6] = [
        &[("sec-fetch-site", "cross-site"), ("sec-fetch-mode", "navigate")],
        &[("sec-fetch-site", "same-site")],
        &[("sec-fetch-site", "none")],
        &[("origin", "https://evil.example")],
        &[("sec-fetch-site", "same-origin"), ("sec-fetch-site", "cross-site")],
        // An old browser sends none of these fields on a navigation.
        &[],
    ];
    for front in ["/clusters/prod/k8s", "/applications/argocd/cart/k8s"] {
        for rest in [
            "/api/v1/namespaces/cart/services/admin:80/proxy/shutdown",
            "/api/v1/namespaces/cart/services/admin:80/%70roxy/shutdown",
            "/api/v1/proxy/namespaces/cart/services/admin:80/shutdown",
            "/api/v1/nodes/a/proxy/run/cart/p/c?cmd=id",
        ] {
            let path = format!("{front}{rest}");
            for site in elsewhere {
                for method in [Method::GET, Method::HEAD, Method::OPTIONS] {
                    let outcome = browse(&world, method.clone(), &path, site).await;
                    assert_eq!(
                        outcome,
                        (403, "cross_site_request".to_owned()),
                        "{method} {path} {site:?}"
                    );
                }
            }
        }
    }
    assert_eq!(ran(&api), Vec::<String>::new());
}

#[tokio::test]
async fn the_gateways_own_pages_and_plain_reads_pass() {
    let api = Api::start(good).await;
    let world = world(&api).await;
    let proxied = "/clusters/prod/k8s/api/v1/namespaces/cart/services/admin:80/proxy/shutdown";
    let own = [("sec-fetch-site", "same-origin")];
    assert_eq!(
        browse(&world, Method::GET, proxied, &own).await,
        (200, "allowed".to_owned())
    );
    // Another site cannot make a browser send `Authorization`.
    let answer = crate::clusters::ask(&world, Method::GET, "alice", proxied)
        .header("sec-fetch-site", "cross-site")
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    assert_eq!(ran(&api).len(), 2);
    let elsewhere = [("sec-fetch-site", "cross-site")];
    for path in [
        "/clusters/prod/k8s/api/v1/namespaces/cart/pods",
        "/clusters/prod/k8s/api/v1/namespaces/cart/pods/p/log",
        "/clusters/prod/k8s/version",
        "/api/v1/clusters",
    ] {
        assert_eq!(
            browse(&world, Method::GET, path, &elsewhere).await,
            (200, "allowed".to_owned()),
            "{path}"
        );
    }
    let (_, reason) = browse(
        &world,
        Method::GET,
        "/applications/argocd/cart/k8s/api/v1/namespaces/cart/pods",
        &elsewhere,
    )
    .await;
    assert_ne!(reason, "cross_site_request");
}

#[tokio::test]
async fn no_other_site_has_a_credential_minted() {
    let api = Api::start(good).await;
    let world = world(&api).await;
    let path = "/api/v1/clusters/prod/credential";
    let elsewhere = [("sec-fetch-site", "cross-site")];
    assert_eq!(
        browse(&world, Method::GET, path, &elsewhere).await,
        (403, "cross_site_request".to_owned())
    );
    let own = [("sec-fetch-site", "same-origin")];
    assert_eq!(
        browse(&world, Method::GET, path, &own).await,
        (200, "allowed".to_owned())
    );
}
