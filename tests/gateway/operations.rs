//! The API about the gateway itself: what callers learn about their decisions and permissions, and what
//! needs a right.

use reqwest::Method;
use serde_json::{Value, json};

use crate::clusters::ask;
use test_support::world::{Setup, World, application, map, project};

/// alice has every right here; bob has a role, and none of these rights.
const POLICY: &str = "p, alice, decisions, get, *, allow\np, alice, rbac, get, *, allow\n\
                      p, alice, plugins, get, *, allow\np, alice, system, get, *, allow\n\
                      p, alice, policies, *, *, allow\np, role:shop, extensions, invoke, metrics, allow\n\
                      p, role:shop, projects, get, shop, allow\np, role:shop, applications, get, shop/cart, allow\n\
                      p, role:ops, applications, sync, shop/*, allow\ng, bob, role:shop\n";

async fn start() -> World {
    let accounts = ["alice", "bob"].map(|name| (format!("accounts.{name}"), "login".to_owned()));
    let setup = Setup {
        argocd_cm: accounts.into_iter().chain(extensions()).collect(),
        rbac_cm: map(&[("policy.csv", POLICY)]),
        objects: vec![
            project("shop", json!([{"server": "*", "namespace": "*"}])),
            application("cart", "shop"),
            application("hidden", "shop"),
        ],
        settings: json!({"applications": {}}),
        ..Setup::default()
    };
    setup.start().await
}

fn extensions() -> [(String, String); 1] {
    let config = "extensions:\n- name: metrics\n  backend:\n    scope: project\n    services:\n    - url: http://127.0.0.1:1/\n      \
                  headers: [{name: X-Key, value: kept-secret}]\n- name: other\n  backend: {services: [{url: 'http://127.0.0.1:1/'}]}\n";
    [("extension.config".to_owned(), config.to_owned())]
}

async fn get(world: &World, user: &str, path: &str) -> (u16, Value) {
    send(ask(world, Method::GET, user, path)).await
}

async fn send(request: reqwest::RequestBuilder) -> (u16, Value) {
    let answer = request.send().await.unwrap();
    (answer.status().as_u16(), answer.json().await.unwrap_or_default())
}

#[tokio::test]
async fn what_is_about_others_needs_a_right() {
    let world = start().await;
    for (path, resource) in [
        ("/api/v1/decisions?user=*", "decisions"),
        ("/api/v1/decisions?user=alice", "decisions"),
        ("/api/v1/rbac/explain?resource=projects&action=get&user=alice", "rbac"),
        ("/api/v1/rbac/who-can?resource=projects&action=get", "rbac"),
        ("/api/v1/policies", "policies"),
        ("/api/v1/policies/extensions", "policies"),
        ("/api/v1/plugins", "plugins"),
        ("/api/v1/system", "system"),
    ] {
        let (status, body) = get(&world, "bob", path).await;
        assert_eq!(
            (status, &body["reason"]),
            (403, &json!("permission_denied")),
            "{path}: {body}"
        );
        assert!(
            body["error"].as_str().unwrap().contains(&format!("`{resource}, get`")),
            "{body}"
        );
        let (status, body) = get(&world, "alice", path).await;
        assert_eq!(status, 200, "{path}: {body}");
        // Nobody is let in without a credential.
        let answer = reqwest::get(format!("http://{}{path}", world.address())).await.unwrap();
        assert_eq!(answer.status(), 401, "{path}");
    }
    let (_, system) = get(&world, "alice", "/api/v1/system").await;
    assert_eq!(system["ready"], true);
    // The warning of `tollgate check`.
    let found = system["findings"].as_array().unwrap();
    let [found] = found.as_slice() else { panic!("{found:?}") };
    assert_eq!(found["severity"], "warning");
    let message = found["message"].as_str().unwrap();
    assert!(message.starts_with("impersonation is off"), "{message}");
}

#[tokio::test]
async fn own_decisions_are_listed_without_what_operators_know() {
    let world = start().await;
    assert_eq!(get(&world, "bob", "/api/v1/system").await.0, 403);
    assert_eq!(get(&world, "alice", "/api/v1/system").await.0, 200);
    let (_, mine) = get(&world, "bob", "/api/v1/decisions?outcome=denied").await;
    let items = mine["items"].as_array().unwrap();
    assert_eq!(items.len(), 1, "{mine}");
    let check = json!({"resource": "system", "action": "get", "object": "*", "allowed": false});
    assert_eq!(
        (&items[0]["reason"], &items[0]["checks"]),
        (&json!("permission_denied"), &json!([check]))
    );
    assert_eq!(items[0].get("client"), None, "{mine}");
    let (_, all) = get(&world, "alice", "/api/v1/decisions?user=*&limit=1000").await;
    let all = all["items"].as_array().unwrap().clone();
    assert!(
        all.iter()
            .any(|item| item["principal"]["username"] == "bob" && item.get("client").is_some()),
        "{all:?}"
    );
    let id = items[0]["decision_id"].as_str().unwrap();
    // Each decision is on one page; to ask about bob adds none of his.
    let about_bob = "/api/v1/decisions?user=bob";
    let (_, whole) = get(&world, "alice", about_bob).await;
    let (mut paged, mut path) = (Vec::new(), format!("{about_bob}&limit=1"));
    loop {
        let (status, page) = get(&world, "alice", &path).await;
        assert_eq!(status, 200, "{page}");
        paged.extend(page["items"].as_array().unwrap().clone());
        let Some(next) = page["continue"].as_str() else { break };
        path = format!("{about_bob}&limit=1&continue={next}");
    }
    assert!(paged.len() > 1, "{whole}");
    assert_eq!(whole, json!({"items": paged}));
    assert_eq!(get(&world, "bob", &format!("/api/v1/decisions/{id}")).await.0, 200);
    assert_eq!(get(&world, "alice", &format!("/api/v1/decisions/{id}")).await.0, 200);
    let own = all
        .iter()
        .find(|item| item["principal"]["username"] == "alice")
        .unwrap();
    let own = own["decision_id"].as_str().unwrap();
    assert_eq!(get(&world, "bob", &format!("/api/v1/decisions/{own}")).await.0, 404);
    for (query, part) in [
        ("limit=0", "a `limit` outside of 1 to 1000"),
        ("pages=maybe", "neither `true` nor `false`"),
        ("since=now", "other than `user`, `outcome`"),
        ("outcome=", "of 0 bytes"),
    ] {
        let (status, body) = get(&world, "bob", &format!("/api/v1/decisions?{query}")).await;
        assert_eq!((status, &body["reason"]), (400, &json!("bad_query")), "{query}");
        assert!(body["error"].as_str().unwrap().contains(part), "{query}: {body}");
    }
}

#[tokio::test]
async fn permissions_are_explained_without_rows_of_others() {
    let world = start().await;
    let question = "/api/v1/rbac/explain?resource=applications&action=sync&object=shop/cart";
    let (status, own) = get(&world, "bob", question).await;
    assert_eq!(
        (status, &own["allowed"], &own["why"]),
        (200, &json!(false), &json!("no_rule")),
        "{own}"
    );
    // bob's role has a row with another action; the row of `role:ops` is not his to see.
    let misses = own["near_misses"].as_array().unwrap();
    assert!(
        misses
            .iter()
            .all(|miss| miss["rule"]["text"].as_str().unwrap().contains("role:shop")),
        "{own}"
    );
    assert!(!own.to_string().contains("role:ops"), "{own}");
    // Nor where the policy is.
    assert!(misses.iter().all(|miss| miss["rule"]["location"] == ""), "{own}");
    let allowed = "/api/v1/rbac/explain?resource=applications&action=get&object=shop/cart";
    let (_, by_row) = get(&world, "bob", allowed).await;
    assert!(
        by_row["allowed"] == true && by_row["rule"]["text"] != "" && !by_row.to_string().contains(".yaml"),
        "{by_row}"
    );
    let (_, by_row) = get(&world, "alice", &format!("{allowed}&user=bob")).await;
    assert!(
        by_row["rule"]["location"].as_str().unwrap().contains(".yaml:"),
        "{by_row}"
    );
    let (_, all) = get(&world, "alice", &format!("{question}&user=bob")).await;
    assert_eq!((&all["user"], &all["allowed"]), (&json!("bob"), &json!(false)));
    assert!(all.to_string().contains("role:ops"), "{all}");
    let (_, with_group) = get(&world, "alice", &format!("{question}&user=x&group=role:ops")).await;
    assert_eq!(with_group["user"], "x");
    for (query, part) in [
        ("resource=projects", "lacks `resource` or `action`"),
        ("resource=projects&action=get&group=a", "a `group` but no `user`"),
    ] {
        let (status, body) = get(&world, "alice", &format!("/api/v1/rbac/explain?{query}")).await;
        assert_eq!(status, 400, "{body}");
        assert!(body["error"].as_str().unwrap().contains(part), "{body}");
    }
}

#[tokio::test]
async fn who_can_is_told_by_names_and_by_who_was_seen() {
    let world = start().await;
    assert_eq!(get(&world, "bob", "/api/v1/decisions").await.0, 200);
    let (status, found) = get(
        &world,
        "alice",
        "/api/v1/rbac/who-can?resource=applications&action=get&object=shop/cart",
    )
    .await;
    assert_eq!(status, 200, "{found}");
    let names: Vec<_> = found["allowed"]
        .as_array()
        .unwrap()
        .iter()
        .map(|holder| holder["name"].as_str().unwrap())
        .collect();
    assert!(names.contains(&"bob") && names.contains(&"role:shop"), "{found}");
    assert!(!names.contains(&"alice") && !names.contains(&"role:ops"), "{found}");
    assert_eq!(found["seen"][0]["username"], "bob", "{found}");
    let (status, refused) = get(&world, "alice", "/api/v1/rbac/who-can?resource=applications").await;
    assert_eq!((status, &refused["reason"]), (400, &json!("bad_query")));
}

#[tokio::test]
async fn extensions_are_listed_to_who_may_invoke_them_and_operators_see_where_they_run() {
    let world = start().await;
    let (_, own) = get(&world, "bob", "/api/v1/tollgate/extensions").await;
    let item = json!({"name": "metrics", "scope": "project", "mayInvoke": true});
    assert_eq!(own, json!({"items": [item]}));
    let (_, all) = get(&world, "alice", "/api/v1/tollgate/extensions").await;
    let all = all["items"].as_array().unwrap();
    assert_eq!((all.len(), &all[0]["mayInvoke"]), (2, &json!(false)), "{all:?}");
    let service = &all[0]["operations"]["services"][0];
    assert_eq!(
        (&service["url"], &service["headers"]),
        (&json!("http://127.0.0.1:1/"), &json!(["x-key"]))
    );
    assert!(!format!("{all:?}").contains("kept-secret"), "{all:?}");
    // A backend that fails is counted, for operators alone.
    let call = ask(&world, Method::GET, "bob", "/extensions/metrics/x")
        .header("argocd-project-name", "shop")
        .send();
    assert_eq!(call.await.unwrap().status(), 502);
    let (_, all) = get(&world, "alice", "/api/v1/tollgate/extensions").await;
    assert_eq!(all["items"][0]["operations"]["failures"], 1, "{all}");
    let (_, own) = get(&world, "bob", "/api/v1/tollgate/extensions?project=shop").await;
    assert_eq!(own["items"].as_array().unwrap().len(), 1, "{own}");
}

#[tokio::test]
async fn identities_have_pages_of_what_the_caller_may_see() {
    let policy = "p, carol, applications, get, shop/*, allow\np, dan, applications, get, shop/app-7, allow\n";
    let accounts = ["carol", "dan", "eve"].map(|name| (format!("accounts.{name}"), "login".to_owned()));
    let names: Vec<String> = (0..600).map(|number| format!("app-{number}")).collect();
    let mut objects = vec![project("shop", json!([{"server": "*", "namespace": "*"}]))];
    objects.extend(names.iter().map(|name| application(name, "shop")));
    objects.push(application("lost", "nowhere"));
    let setup = Setup {
        argocd_cm: accounts.into_iter().collect(),
        rbac_cm: map(&[("policy.csv", policy)]),
        objects,
        settings: json!({"applications": {}}),
        ..Setup::default()
    };
    let world = setup.start().await;
    let (mut seen, mut path) = (Vec::new(), "/api/v1/tollgate/applications?limit=250".to_owned());
    loop {
        let (status, page) = get(&world, "carol", &path).await;
        assert_eq!(status, 200, "{page}");
        let items = page["items"].as_array().unwrap();
        assert!(items.len() <= 250);
        seen.extend(items.iter().map(|item| item["name"].as_str().unwrap().to_owned()));
        let Some(next) = page["continue"].as_str() else { break };
        path = format!("/api/v1/tollgate/applications?limit=250&continue={next}");
    }
    let mut all = names.clone();
    all.sort();
    assert_eq!(seen, all);
    let (_, one) = get(&world, "dan", "/api/v1/tollgate/applications?limit=1").await;
    assert_eq!((&one["items"][0]["name"], one.get("continue")), (&json!("app-7"), None));
    assert_eq!(one["items"][0]["project"], "shop");
    let (_, none) = get(&world, "eve", "/api/v1/tollgate/applications").await;
    assert_eq!(none["items"], json!([]));
    let (_, some) = get(
        &world,
        "carol",
        "/api/v1/tollgate/applications?name=APP-59&refused=false",
    )
    .await;
    assert_eq!(some["items"].as_array().unwrap().len(), 11, "{some}");
    let (status, _) = get(&world, "carol", "/api/v1/tollgate/applications?continue=x").await;
    assert_eq!(status, 400);
}

#[tokio::test]
async fn projects_are_summarized_page_by_page() {
    let names: Vec<String> = (0..600).map(|number| format!("team-{number}")).collect();
    let mut sorted = names.clone();
    sorted.sort();
    let accounts = ["carol", "dan"].map(|name| (format!("accounts.{name}"), "login".to_owned()));
    let setup = Setup {
        argocd_cm: accounts.into_iter().collect(),
        rbac_cm: map(&[(
            "policy.csv",
            "p, carol, projects, get, team-*, allow\np, dan, projects, get, team-7, allow\n",
        )]),
        objects: names
            .iter()
            .map(|name| project(name, json!([])))
            .chain([project("hidden", json!([]))])
            .collect(),
        ..Setup::default()
    };
    let world = setup.start().await;
    let start = "/api/v1/tollgate/projects?summary=true&limit=250";
    let (mut seen, mut path) = (Vec::new(), start.to_owned());
    loop {
        let (status, page) = get(&world, "carol", &path).await;
        assert_eq!(status, 200, "{page}");
        let items = page["items"].as_array().unwrap();
        seen.extend(items.iter().map(|item| item["name"].as_str().unwrap().to_owned()));
        let Some(next) = page["continue"].as_str() else { break };
        path = format!("{start}&continue={next}");
    }
    assert_eq!(seen, sorted);
    let (_, one) = get(&world, "dan", "/api/v1/tollgate/projects?summary=true").await;
    assert_eq!(one, json!({"items": [{"name": "team-7", "accounts": 0}]}));
    let (_, found) = get(&world, "carol", "/api/v1/tollgate/projects?summary=true&name=AM-59").await;
    assert_eq!(found["items"].as_array().unwrap().len(), 11, "{found}");
    for query in [
        "summary=false",
        "summary=true&limit=0",
        "summary=true&continue=x",
        "summary=true&other=1",
    ] {
        let (status, body) = get(&world, "carol", &format!("/api/v1/tollgate/projects?{query}")).await;
        assert_eq!((status, &body["reason"]), (400, &json!("bad_query")), "{query}");
    }
}

#[tokio::test]
async fn policies_are_tried_in_a_child_process_and_nothing_is_stored() {
    let world = start().await;
    let folder = world.path("policies/extensions");
    let file = std::fs::read_to_string(folder.join("policy.rego")).unwrap();
    let (_, list) = get(&world, "alice", "/api/v1/policies").await;
    let fronts: Vec<_> = list["items"]
        .as_array()
        .unwrap()
        .iter()
        .map(|item| &item["front"])
        .collect();
    assert_eq!(fronts, ["extensions", "applications"], "{list}");
    // The metric says of each whether it is suspended.
    let metrics = world.admin("/metrics").await;
    let stuck = metrics.lines().filter(|line| line.starts_with("tollgate_policy_stuck"));
    let mut stuck: Vec<_> = stuck.collect();
    stuck.sort_unstable();
    let expected = ["applications", "extensions"].map(|front| format!("tollgate_policy_stuck{{bundle=\"{front}\"}} 0"));
    assert_eq!(stuck, expected);
    let (_, bundle) = get(&world, "alice", "/api/v1/policies/extensions").await;
    assert_eq!(bundle["digest"], bundle["filesDigest"], "{bundle}");
    let stored = bundle["files"].as_array().unwrap();
    let stored = stored.iter().find(|one| one["name"] == "policy.rego").unwrap();
    assert_eq!(stored["text"], json!(file));
    // A request is decided, and asked again by its decision.
    let call = ask(&world, Method::GET, "bob", "/extensions/metrics/x").header("argocd-project-name", "shop");
    let answer = call.send().await.unwrap();
    let id = answer.headers()["tollgate-decision-id"].to_str().unwrap().to_owned();
    let post = |user: &'static str, action: &str, content: Value| {
        let path = format!("/api/v1/policies/extensions/{action}");
        send(ask(&world, Method::POST, user, &path).json(&content))
    };
    let (status, report) = post("alice", "eval", json!({"decision": id})).await;
    assert_eq!(
        (status, &report["evaluation"]["allow"]),
        (200, &json!(true)),
        "{report}"
    );
    // With a changed file, for this question alone.
    let deny = "package tollgate.extensions\n\ndecision := {\"allow\": false, \"reason\": \"closed for a while\"}\n";
    let (_, report) = post("alice", "eval", json!({"decision": id, "files": {"policy.rego": deny}})).await;
    assert_eq!(report["evaluation"]["reason"], "closed for a while", "{report}");
    let (_, report) = post("alice", "test", json!({"files": {"policy.rego": deny}})).await;
    let failed = |case: &&Value| case["outcome"].get("fail").is_some();
    assert!(
        report["cases"].as_array().unwrap().iter().any(|case| failed(&case)),
        "{report}"
    );
    let (_, report) = post("alice", "test", json!({})).await;
    assert!(
        report["cases"]
            .as_array()
            .unwrap()
            .iter()
            .all(|case| case["outcome"] == "pass"),
        "{report}"
    );
    assert!(
        report["coverage"][0]["covered"].as_array().unwrap().len() > 1,
        "{report}"
    );
    assert_eq!(report["coverage"][0]["file"], "policy.rego");
    // What is no file of a bundle is refused, wherever it would lead.
    for name in [
        "../../state/x.rego",
        "data/../../x.yaml",
        "policy.sh",
        "/etc/x.rego",
        ".x.rego",
        "data/.x.yaml",
    ] {
        let (status, report) = post("alice", "test", json!({"files": {name: deny}})).await;
        let message = report["diagnostics"][0]["message"].as_str().unwrap();
        assert!(
            status == 200 && message.contains("is not the name of a file of a bundle"),
            "{name}: {report}"
        );
    }
    // A policy that never ends is ended.
    let endless = "package tollgate.extensions\n\ndecision := {\"allow\": count([1 | numbers.range(1, 99999999)[_]]) > 1, \"reason\": \"x\"}\n";
    let (status, report) = post(
        "alice",
        "eval",
        json!({"decision": id, "files": {"policy.rego": endless}}),
    )
    .await;
    assert_eq!(status, 200, "{report}");
    assert_ne!(report["evaluation"]["allow"], true, "{report}");
    for (content, part) in [
        (json!({}), "exactly one of `input` and `decision`"),
        (
            json!({"input": {}, "decision": id}),
            "exactly one of `input` and `decision`",
        ),
        (json!({"inputs": {}}), "unknown field"),
    ] {
        let (status, refused) = post("alice", "eval", content).await;
        assert_eq!(status, 400, "{refused}");
        assert!(refused["error"].as_str().unwrap().contains(part), "{refused}");
    }
    let (status, refused) = post("bob", "eval", json!({"decision": id})).await;
    assert_eq!(
        (status, &refused["reason"]),
        (403, &json!("permission_denied")),
        "{refused}"
    );
    // The input is for who may try policies, and may see the decision.
    let input = format!("/api/v1/decisions/{id}/input");
    assert_eq!(get(&world, "alice", &input).await.1["front"], "extensions");
    assert_eq!(get(&world, "bob", &input).await.0, 403);
    let unknown = format!("/api/v1/decisions/{}/input", uuid::Uuid::now_v7());
    assert_eq!(get(&world, "alice", &unknown).await.0, 404);
    assert_eq!(get(&world, "alice", "/api/v1/policies/kubernetes").await.0, 404);
    assert_eq!(std::fs::read_to_string(folder.join("policy.rego")).unwrap(), file);
    assert_eq!(get(&world, "bob", "/api/v1/decisions").await.0, 200);
}

#[tokio::test]
async fn a_preview_shows_what_the_caller_may_see_and_writes_nothing() {
    let world = start().await;
    let before: Vec<_> = std::fs::read_dir(world.path("state"))
        .unwrap()
        .map(|entry| entry.unwrap().path())
        .collect();
    let contents = || {
        before
            .iter()
            .map(|file| std::fs::read(file).unwrap())
            .collect::<Vec<_>>()
    };
    let stored = contents();
    let path = "/api/v1/tollgate/projects/shop/preview";
    let (status, now) = get(&world, "bob", path).await;
    assert_eq!(status, 200, "{now}");
    assert_eq!((&now["changing"], &now["unchanged"]), (&json!(0), &json!(1)), "{now}");
    let entries = json!({"destinationServiceAccounts": [
        {"server": "*", "namespace": "other", "defaultServiceAccount": "none"},
        {"server": "*", "namespace": "*", "defaultServiceAccount": "deployer"},
    ]});
    let (status, then) = send(ask(&world, Method::POST, "bob", path).json(&entries)).await;
    assert_eq!((status, &then["changing"]), (200, &json!(1)), "{then}");
    let application = &then["applications"][0];
    assert_eq!(
        (&application["name"], &application["then"]),
        (&json!("cart"), &json!({"account": "cart:deployer", "entry": 1}))
    );
    assert_eq!(
        application["tried"][0],
        json!({"entry": 0, "why": "the namespace does not match"})
    );
    assert!(!then.to_string().contains("hidden"), "{then}");
    let wrong = json!({"destinationServiceAccounts": [{"server": "*", "namespace": "*", "defaultServiceAccount": ""}]});
    let (status, refused) = send(ask(&world, Method::POST, "bob", path).json(&wrong)).await;
    assert_eq!(
        (status, &refused["reason"]),
        (400, &json!("project_invalid")),
        "{refused}"
    );
    let many = json!({"destinationServiceAccounts": vec![&entries["destinationServiceAccounts"][0]; 1_001]});
    let (status, refused) = send(ask(&world, Method::POST, "bob", path).json(&many)).await;
    assert_eq!(status, 400, "{refused}");
    assert!(
        refused["error"]
            .as_str()
            .unwrap()
            .contains("a list of at most 1,000 entries"),
        "{refused}"
    );
    let (status, refused) = send(ask(&world, Method::POST, "alice", path).json(&entries)).await;
    assert_eq!(
        (status, &refused["reason"]),
        (403, &json!("permission_denied")),
        "{refused}"
    );
    assert_eq!(contents(), stored);
}
