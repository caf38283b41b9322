//! Refusals, and that they reveal nothing the caller may not see.

use reqwest::Method;
use serde_json::{Value, json};

use super::{API, about, made, post, refused, send, set, setup, start, stored};
use crate::clusters::ask;
use test_support::token;
use test_support::world::SESSION_KEY;

/// Status, header fields and body of a response, without what differs in every response.
async fn whole(request: reqwest::RequestBuilder) -> (u16, Vec<(String, String)>, String) {
    let answer = request.send().await.unwrap();
    let mut fields: Vec<(String, String)> = answer
        .headers()
        .iter()
        .filter(|(name, _)| !["date", "tollgate-decision-id"].contains(&name.as_str()))
        .map(|(name, value)| (name.to_string(), value.to_str().unwrap().to_owned()))
        .collect();
    fields.sort();
    (answer.status().as_u16(), fields, answer.text().await.unwrap())
}

#[tokio::test]
async fn a_set_that_the_caller_may_not_see_is_answered_as_an_absent_one() {
    let world = start().await;
    made(&world, &set("shop", "dev", &["cart"])).await;
    let mut sent = set("shop", "dev", &["cart"]);
    sent["metadata"]["resourceVersion"] = json!("1");
    for (method, rest) in [
        (Method::GET, ""),
        (Method::GET, "/resource-tree"),
        (Method::GET, "/events"),
        (Method::DELETE, ""),
        (Method::DELETE, "?cascade=orphan"),
        (Method::PUT, ""),
    ] {
        let request = |name: &str| {
            let request = ask(&world, method.clone(), "bob", &format!("{API}/{name}{rest}"));
            let mut sent = sent.clone();
            sent["metadata"]["name"] = json!(name);
            if method == Method::PUT {
                request.json(&sent)
            } else {
                request
            }
        };
        let (there, absent) = (whole(request("shop")).await, whole(request("shoe")).await);
        assert_eq!(there.0, 404, "{method} {rest}: {}", there.2);
        assert_eq!(there.1, absent.1, "{method} {rest}");
        assert_eq!(there.2.replace("shop", "shoe"), absent.2, "{method} {rest}");
    }
    // The caller's decision record does not reveal it either.
    let answer = ask(&world, Method::GET, "bob", &format!("{API}/shop"))
        .send()
        .await
        .unwrap();
    let id = answer.headers()["tollgate-decision-id"].to_str().unwrap().to_owned();
    let (status, own) = send(ask(&world, Method::GET, "bob", &format!("/api/v1/decisions/{id}"))).await;
    assert_eq!(
        (status, own["checks"].as_array().map(Vec::len)),
        (200, Some(0)),
        "{own}"
    );
}

#[tokio::test]
async fn every_missing_permission_is_reported() {
    let world = start().await;
    let bob = post(&world, "bob", "", &set("shop", "dev", &["cart"])).await;
    assert_eq!(
        (bob.0, bob.1["code"].as_u64(), bob.1["reason"].as_str()),
        (403, Some(7), Some("permission_denied"))
    );
    assert_eq!(about(&bob.1)[0], "applicationset `dev/shop`", "{}", bob.1);
    let carol = post(&world, "carol", "", &set("shop", "dev", &["cart"])).await;
    assert_eq!(carol.0, 403);
    let prod = post(&world, "alice", "", &set("shop", "prod", &["cart"])).await;
    assert_eq!(prod.0, 403);
    assert!(
        about(&prod.1).contains(&"applicationset `prod/shop`".to_owned()),
        "{}",
        prod.1
    );
    // A generator's own template names another project.
    let mut hidden = set("shop", "dev", &["cart", "till"]);
    hidden["spec"]["generators"][0]["list"]["template"] = json!({"metadata": {}, "spec": {"project": "prod"}});
    let hidden = post(&world, "alice", "", &hidden).await;
    assert_eq!(hidden.0, 403, "{}", hidden.1);
    let refused = about(&hidden.1);
    for name in ["cart", "till"] {
        assert!(refused.contains(&format!("application `prod/{name}`")), "{refused:?}");
    }
    // frank may write sets, but not create their Applications.
    let frank = post(&world, "frank", "", &set("shop", "dev", &["cart"])).await;
    assert_eq!((frank.0, frank.1["code"].as_u64()), (403, Some(7)), "{}", frank.1);
    assert!(stored(&world, "ApplicationSet").is_empty());
    assert!(stored(&world, "Application").is_empty());
}

#[tokio::test]
async fn somebody_elses_application_is_not_taken_over() {
    let world = start().await;
    made(&world, &set("first", "dev", &["cart"])).await;
    let taken = post(&world, "alice", "", &set("second", "dev", &["cart", "till"])).await;
    assert_eq!(taken.0, 403, "{}", taken.1);
    let text = taken.1.to_string();
    assert!(text.contains("exists and does not belong to the set"), "{text}");
    assert_eq!(stored(&world, "Application").len(), 1);
    assert_eq!(stored(&world, "ApplicationSet").len(), 1);
}

#[tokio::test]
async fn other_namespaces_are_refused() {
    let world = start().await;
    let mut elsewhere = set("shop", "dev", &["cart"]);
    elsewhere["metadata"]["namespace"] = json!("NOT-ALLOWED");
    let text = "namespace 'NOT-ALLOWED' is not permitted";
    let expected = (403, 7, "namespace_not_permitted", text);
    assert_eq!(refused(&post(&world, "alice", "", &elsewhere).await), expected);
    assert_eq!(refused(&post(&world, "alice", "/generate", &elsewhere).await), expected);
    let named = |method| {
        ask(
            &world,
            method,
            "alice",
            &format!("{API}/shop?appsetNamespace=NOT-ALLOWED"),
        )
    };
    for method in [Method::GET, Method::DELETE] {
        assert_eq!(refused(&send(named(method)).await), expected);
    }
}

#[tokio::test]
async fn invalid_content_is_refused() {
    let world = start().await;
    let request = || ask(&world, Method::POST, "alice", API);
    let json = |text: String| request().header("content-type", "application/json").body(text);
    for (request, expected) in [
        (request().body("{}"), (415, 3, "bad_content_type")),
        (json("[]".to_owned()), (400, 3, "bad_content")),
        (
            json(format!("{{\"a\": \"{}\"}}", "x".repeat(1_572_864))),
            (413, 8, "content_too_large"),
        ),
        (
            json("{\"metadata\": {}}".to_owned()),
            (400, 3, "applicationset_invalid"),
        ),
        (
            request().json(&json!({"kind": "Application", "metadata": {"name": "a"}})),
            (400, 3, "applicationset_invalid"),
        ),
        (
            request().json(&json!({"metadata": {"name": "a"}, "spec": {"generators": [{"lists": {}}]}})),
            (400, 3, "applicationset_invalid"),
        ),
        (
            ask(&world, Method::POST, "alice", &format!("{API}?dryrun=true")).json(&json!({})),
            (400, 3, "bad_query"),
        ),
    ] {
        let answer = send(request).await;
        let (status, code, reason, _) = refused(&answer);
        assert_eq!((status, code, reason), expected, "{}", answer.1);
    }
    assert!(stored(&world, "ApplicationSet").is_empty());
}

/// Changes that the set's sync policy holds back are authorized too, because Argo CD's controller
/// may make them.
#[tokio::test]
async fn changes_that_are_held_back_are_authorized_too() {
    let world = start().await;
    made(&world, &set("shop", "dev", &["cart"])).await;
    let mut held = set("shop", "dev", &["cart"]);
    held["spec"]["syncPolicy"] = json!({"applicationsSync": "create-only"});
    let mut elsewhere = held.clone();
    elsewhere["spec"]["generators"][0]["list"]["template"] = json!({"metadata": {}, "spec": {"project": "prod"}});
    let refused = post(&world, "alice", "?upsert=true", &elsewhere).await;
    assert_eq!(
        (refused.0, about(&refused.1)),
        (403, vec!["application `prod/cart`".to_owned(); 2]),
        "{}",
        refused.1
    );
    let taken = post(&world, "alice", "?upsert=true", &held).await;
    assert_eq!(taken.0, 200, "{}", taken.1);
}

/// A set does not reveal which names exist in other projects.
#[tokio::test]
async fn names_taken_in_other_projects_are_not_revealed() {
    let mut setup = setup();
    let both = format!(
        "{}p, alice, applicationsets, *, prod/*, allow\np, frank, applications, create, dev/x*, allow\n\
         p, alice, applications, *, prod/*, allow\n",
        super::POLICY
    );
    setup.rbac_cm = test_support::world::map(&[("policy.csv", &both)]);
    let world = setup.start().await;
    made(&world, &set("hidden", "prod", &["cart", "x-cart"])).await;
    let ask = async |name: &str| post(&world, "frank", "", &set("mine", "dev", &[name])).await;
    let (there, free) = (ask("cart").await, ask("till").await);
    assert_eq!((there.0, free.0), (403, 403), "{}", there.1);
    assert_eq!(there.1.to_string().replace("cart", "till"), free.1.to_string());
    // A preview does not reveal them either.
    for path in ["/generate", "?dryRun=true"] {
        let preview = async |name: &str| post(&world, "dave", path, &set("mine", "dev", &[name])).await;
        let (there, free) = (preview("cart").await, preview("till").await);
        assert_eq!((there.0, free.0), (200, 200), "{}", there.1);
        assert_eq!(
            there.1.to_string().replace("cart", "till"),
            free.1.to_string(),
            "{path}"
        );
    }
    // The twin: a caller who could create the Application learns why it is refused.
    let (status, body) = ask("x-cart").await;
    assert!(
        status == 403 && body.to_string().contains("does not belong to the set"),
        "{body}"
    );
    assert_eq!(ask("x-till").await.0, 200);
}

/// A project that depends on the clock cannot be authorized.
#[tokio::test]
async fn a_project_by_the_clock_is_refused() {
    let world = start().await;
    let plain = set("shop", "dev", &["cart"]).to_string();
    let mut clock: Value = serde_json::from_str(&plain.replace("{{name}}", "{{ .name }}")).unwrap();
    clock["spec"]["goTemplate"] = json!(true);
    clock["spec"]["template"]["spec"]["project"] = json!("d{{ if now }}ev{{ end }}");
    let (status, body) = post(&world, "alice", "", &clock).await;
    assert!(
        status == 400 && body.to_string().contains("`now` gives another project each time"),
        "{body}"
    );
    clock["spec"]["template"]["spec"]["project"] = json!("d{{ if .name }}ev{{ end }}");
    let (status, body) = post(&world, "alice", "", &clock).await;
    assert_eq!(status, 200, "{body}");
}

#[tokio::test]
async fn a_page_of_another_site_cannot_write() {
    let world = start().await;
    let url = format!("http://{}{API}", world.address());
    let request = |origin: &str| {
        reqwest::Client::new()
            .post(&url)
            .header(
                "cookie",
                format!("argocd.token={}", token::session(SESSION_KEY, "alice")),
            )
            .header("origin", origin)
            .json(&set("shop", "dev", &["cart"]))
    };
    let (status, body) = send(request("https://elsewhere.example")).await;
    assert_eq!((status, body["reason"].as_str()), (403, Some("cross_site_request")));
    let (status, body) = send(request(&format!("http://{}", world.address()))).await;
    assert_eq!(status, 200, "{body}");
    let stranger = reqwest::get(format!("{url}/shop")).await.unwrap();
    assert_eq!(stranger.status().as_u16(), 401);
    let body: Value = stranger.json().await.unwrap();
    assert_eq!(body["code"], 16);
}

#[tokio::test]
async fn the_front_is_disabled_by_default() {
    let closed = test_support::world::Setup {
        settings: json!({}),
        ..setup()
    };
    let world = closed.start().await;
    let (status, body) = send(ask(&world, Method::GET, "alice", API)).await;
    assert_eq!((status, body["reason"].as_str()), (404, Some("not_found")));
}

/// Security: to Go, the template's string is one byte long; as UTF-8 it would be longer. Argo CD's
/// controller would render the stored set differently, with its own permissions.
#[tokio::test]
async fn a_template_that_could_be_another_one_to_argo_cd_is_not_stored() {
    let world = start().await;
    let attack = |field: &str| {
        let mut sent = set("shop", "dev", &["cart"]);
        sent["spec"]["goTemplate"] = json!(true);
        let text = |name: &str, own: &str| match name == field {
            true => json!(format!(
                "{{{{ if eq (len \"\\xff\") 1 }}}}prod{{{{ else }}}}{own}{{{{ end }}}}"
            )),
            false => json!(own),
        };
        let template = &mut sent["spec"]["template"];
        template["metadata"]["name"] = text("name", "cart");
        template["spec"]["project"] = text("project", "dev");
        template["spec"]["destination"]["namespace"] = text("namespace", "cart");
        template["spec"]["source"]["path"] = json!("cart");
        sent
    };
    for field in ["name", "project", "namespace"] {
        let answer = post(&world, "alice", "", &attack(field)).await;
        let (status, code, reason, text) = refused(&answer);
        assert_eq!((status, code, reason), (400, 3, "template_failed"), "{}", answer.1);
        assert!(text.contains("Argo CD may render"), "{text}");
        assert!(stored(&world, "ApplicationSet").is_empty());
        assert!(stored(&world, "Application").is_empty());
    }
    made(&world, &attack("none")).await;
    assert_eq!(stored(&world, "Application").len(), 1);
}
