//! Authorization of extension calls. Each allowed call has a refused twin that differs in one
//! thing.

use reqwest::{Method, Response};
use serde_json::{Value, json};

use test_support::backend::{Backend, Reply};
use test_support::client::Client;
use test_support::token;
use test_support::world::{SESSION_KEY, Setup, World, application, map, project};

mod application_alone;
mod identity;
mod project_rows;
mod records;
mod remembered;

async fn backend() -> Backend {
    Backend::start(|_| Reply::ok("x")).await
}

/// Status and body of a refusal, without the id of the decision.
async fn refusal(answer: Response) -> (u16, Value) {
    let status = answer.status().as_u16();
    let mut body: Value = answer.json().await.unwrap();
    assert!(body["decision"].take().is_string());
    (status, body)
}

async fn status(request: reqwest::RequestBuilder) -> u16 {
    request.send().await.unwrap().status().as_u16()
}

/// A GET of `path` about an application and project.
async fn about(world: &World, user: &str, path: &str, [application, project]: [&str; 2]) -> Response {
    reqwest::Client::new()
        .get(format!("http://{}{path}", world.address()))
        .bearer_auth(token::session(SESSION_KEY, user))
        .header("Argocd-Application-Name", application)
        .header("Argocd-Project-Name", project)
        .send()
        .await
        .unwrap()
}

#[tokio::test]
async fn rbac_needs_both_permissions_and_a_deny_wins() {
    let get = "p, alice, applications, get, shop/cart, allow\n";
    let invoke = "p, alice, extensions, invoke, echo, allow\n";
    let both = format!("{get}{invoke}");
    for (policy, words) in [
        (both.clone(), None),
        (get.to_owned(), Some("you may not invoke this extension")),
        (invoke.to_owned(), Some("you may not see this application")),
        (
            format!("{get}p, alice, extensions, invoke, other, allow\n"),
            Some("you may not invoke this extension"),
        ),
        (
            format!("{invoke}p, alice, applications, get, shop/other, allow\n"),
            Some("you may not see this application"),
        ),
        (
            format!("{both}p, alice, applications, get, */cart, deny\n"),
            Some("you may not see this application"),
        ),
        (
            format!("{both}p, alice, extensions, invoke, e*, deny\n"),
            Some("you may not invoke this extension"),
        ),
        (String::new(), Some("you may not see this application")),
    ] {
        let backend = backend().await;
        let mut setup = Setup::with_backend(backend.address);
        setup.rbac_cm = map(&[("policy.csv", &policy)]);
        let world = setup.start().await;
        let answer = world.get("alice", "/x").send().await.unwrap();
        assert_eq!(backend.seen().len(), usize::from(words.is_none()), "{policy}");
        match words {
            None => assert_eq!(answer.status(), 200, "{policy}"),
            Some(words) => {
                let (status, body) = refusal(answer).await;
                assert_eq!((status, &body["error"]), (403, &json!(words)), "{policy}");
                assert_eq!(body["reason"], "permission_denied");
            }
        }
    }
}

#[tokio::test]
async fn a_project_must_permit_the_destination() {
    for (destinations, expected) in [
        (
            json!([{"server": "https://kubernetes.default.svc", "namespace": "cart"}]),
            200,
        ),
        (json!([{"name": "in-cluster", "namespace": "ca*"}]), 200),
        (
            json!([{"server": "https://kubernetes.default.svc", "namespace": "other"}]),
            403,
        ),
        (json!([{"server": "https://elsewhere", "namespace": "*"}]), 403),
        (json!([{"server": "*", "namespace": "!cart"}]), 403),
        (json!([]), 403),
    ] {
        let backend = backend().await;
        let mut setup = Setup::with_backend(backend.address);
        setup.objects = vec![project("shop", destinations.clone()), application("cart", "shop")];
        let world = setup.start().await;
        assert_eq!(status(world.get("alice", "/x")).await, expected, "{destinations}");
        assert_eq!(backend.seen().len(), usize::from(expected == 200), "{destinations}");
    }
}

#[tokio::test]
async fn an_edited_policy_takes_effect_and_denies_a_method() {
    let backend = backend().await;
    let world = Setup::with_backend(backend.address).start().await;
    let send = |method: Method| status(world.request(method, "alice", "/x"));
    assert_eq!((send(Method::GET).await, send(Method::POST).await), (200, 200));
    let file = |name: &str| world.path(&format!("policies/extensions/{name}"));
    let denial =
        "\ndeny contains \"only reading is allowed\" if {\n\tnot input.request.method in {\"GET\", \"HEAD\"}\n}\n";
    let policy = std::fs::read_to_string(file("policy.rego")).unwrap() + denial;
    // The shipped cases expect that writing is allowed. With them, the gateway would reject the
    // edited policy and keep the old one.
    let cases = std::fs::read_to_string(file("cases.yaml")).unwrap();
    let (base, _) = cases.split_once("\ncases:").unwrap();
    let own = "\ncases:\n  - note: reading\n    want: {allow: true}\n    reason: allowed\n  - note: writing\n    \
               input: {request: {method: POST}}\n    want: {allow: false}\n    reason: only reading is allowed\n";
    std::fs::write(file("policy.rego"), policy).unwrap();
    std::fs::write(file("cases.yaml"), format!("{base}{own}")).unwrap();
    // A request that the policy refuses meanwhile may end without a response.
    let is_refused = async || {
        let response = world.request(Method::POST, "alice", "/x").send().await;
        response.is_ok_and(|response| response.status() == 403)
    };
    world.until("the edited policy", is_refused).await;
    let before = backend.seen().len();
    let (status, body) = refusal(world.request(Method::POST, "alice", "/x").send().await.unwrap()).await;
    assert_eq!((status, &body["error"]), (403, &json!("only reading is allowed")));
    assert_eq!(backend.seen().len(), before);
    assert_eq!(send(Method::GET).await, 200);
}

#[tokio::test]
async fn project_scope_needs_the_project_and_no_application() {
    let backend = backend().await;
    let block = format!("{{scope: project, services: [{{url: 'http://{}'}}]}}", backend.address);
    let mut setup = Setup::with_extension(&block);
    let policy = "p, alice, projects, get, shop, allow\np, alice, extensions, invoke, echo, allow\n\
                  p, bob, applications, get, *, allow\np, bob, extensions, invoke, echo, allow\n";
    setup.rbac_cm = map(&[("policy.csv", policy)]);
    let world = setup.start().await;
    let ask = |user: &'static str, project: Option<&'static str>| {
        let mut request = reqwest::Client::new()
            .get(world.echo("/x"))
            .bearer_auth(token::session(SESSION_KEY, user));
        if let Some(project) = project {
            request = request.header("Argocd-Project-Name", project);
        }
        status(request)
    };
    assert_eq!(ask("alice", Some("shop")).await, 200);
    let seen = backend.seen();
    assert_eq!(seen[0].values("argocd-project-name"), ["shop"]);
    assert!(seen[0].values("argocd-application-name").is_empty());
    assert!(seen[0].values("argocd-target-cluster-name").is_empty());
    assert_eq!(ask("alice", Some("other")).await, 403);
    assert_eq!(ask("alice", None).await, 400);
    assert_eq!(ask("bob", Some("shop")).await, 403);
    assert_eq!(backend.seen().len(), 1);
}

#[tokio::test]
async fn global_scope_needs_a_grant_of_its_own() {
    let backend = backend().await;
    let block = format!("{{scope: global, services: [{{url: 'http://{}'}}]}}", backend.address);
    let world = Setup::with_extension(&block).start().await;
    let ask = |user: &str| {
        let token = token::session(SESSION_KEY, user);
        status(reqwest::Client::new().get(world.echo("/x")).bearer_auth(token))
    };
    assert_eq!(ask("alice").await, 200);
    let seen = backend.seen();
    assert!(!seen[0].head.to_lowercase().contains("argocd-application-name"));
    assert!(!seen[0].head.to_lowercase().contains("argocd-project-name"));
    assert_eq!(ask("bob").await, 403);
    assert_eq!(backend.seen().len(), 1);
}

#[tokio::test]
async fn only_who_may_call_learns_what_exists() {
    let backend = backend().await;
    let mut setup = Setup::with_backend(backend.address);
    setup
        .objects
        .extend([project("other", json!([])), application("vault", "other")]);
    let world = setup.start().await;
    let (known, unknown) = ("/extensions/echo/x", "/extensions/nothing/x");
    let cart = ["argocd:cart", "shop"];
    // alice may see the application and invoke any extension.
    assert_eq!(about(&world, "alice", known, cart).await.status(), 200);
    let (status, body) = refusal(about(&world, "alice", unknown, cart).await).await;
    assert_eq!((status, &body["reason"]), (404, &json!("extension_not_found")));
    // A missing application and one of another project get the same refusal.
    let missing = refusal(about(&world, "alice", known, ["argocd:missing", "shop"]).await).await;
    let foreign = refusal(about(&world, "alice", known, ["argocd:vault", "shop"]).await).await;
    assert_eq!(missing.0, 403);
    assert_eq!(missing, foreign);
    for subject in [["argocd:vault", "other"], ["argocd:vault", "missing"]] {
        let (status, body) = refusal(about(&world, "alice", known, subject).await).await;
        assert_eq!(
            (status, &body["error"]),
            (403, &json!("you may not see this application"))
        );
    }
    // A caller without permissions gets the same refusal for everything.
    let mut refusals = Vec::new();
    for path in [known, unknown] {
        for subject in [
            cart,
            ["argocd:missing", "shop"],
            ["argocd:vault", "shop"],
            ["argocd:vault", "other"],
            ["elsewhere:cart", "missing"],
        ] {
            refusals.push(refusal(about(&world, "bob", path, subject).await).await);
        }
    }
    assert_eq!(refusals[0].0, 403);
    assert!(refusals.iter().all(|refusal| *refusal == refusals[0]), "{refusals:#?}");
    assert_eq!(backend.seen().len(), 1);
}

#[tokio::test]
async fn cookie_callers_change_things_from_their_own_site_only() {
    let backend = backend().await;
    let mut setup = Setup::with_backend(backend.address);
    setup.settings = json!({"authentication": {"trustedOrigins": ["https://console.example"]}});
    let world = setup.start().await;
    let token = token::session(SESSION_KEY, "alice");
    let send = async |method: &str, credential: &str, lines: &str| {
        let request = format!(
            "{method} /extensions/echo/x HTTP/1.1\r\nHost: gateway\r\n{credential}{token}\r\n{lines}\
             Argocd-Application-Name: argocd:cart\r\nArgocd-Project-Name: shop\r\nContent-Length: 0\r\n\r\n"
        );
        let mut client = Client::connect(world.address()).await;
        client.exchange(request.as_bytes()).await.status
    };
    let (cookie, bearer) = ("Cookie: argocd.token=", "Authorization: Bearer ");
    let cross = "Origin: https://evil.example\r\nSec-Fetch-Site: cross-site\r\n";
    for (method, credential, lines, expected) in [
        ("POST", cookie, "Sec-Fetch-Site: same-origin\r\n", 200),
        ("POST", cookie, "Origin: https://gateway\r\n", 200),
        (
            "POST",
            cookie,
            "Origin: https://console.example\r\nSec-Fetch-Site: cross-site\r\n",
            200,
        ),
        ("GET", cookie, cross, 200),
        ("POST", bearer, cross, 200),
        ("POST", cookie, "", 403),
        ("POST", cookie, cross, 403),
        ("DELETE", cookie, "Sec-Fetch-Site: same-site\r\n", 403),
        ("PUT", cookie, "Origin: null\r\n", 403),
        ("PATCH", cookie, "Origin: https://gateway.evil.example\r\n", 403),
        (
            "POST",
            cookie,
            "Origin: https://gateway\r\nOrigin: https://evil.example\r\n",
            403,
        ),
        ("POST", cookie, "Origin: https://console.example.evil\r\n", 403),
    ] {
        let before = backend.seen().len();
        let status = send(method, credential, lines).await;
        assert_eq!(status, expected, "{method} {lines}");
        let passed = backend.seen().len() - before;
        assert_eq!(passed, usize::from(expected == 200), "{method} {lines}");
    }
}
