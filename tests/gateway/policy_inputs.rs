//! The inputs of recent decisions: what the admin listener shows, and `tollgate policy eval` and `explain`
//! of them.

use std::process::Output;

use reqwest::Response;
use serde_json::{Value, json};
use tokio::process::Command;

use test_support::backend::{Backend, Reply};
use test_support::token;
use test_support::world::{SESSION_KEY, Setup, World};

/// A secret of a caller, wherever a request can have one.
const SECRET: &str = "a-secret-of-the-caller";

async fn world(backend: &Backend) -> World {
    let mut setup = Setup::with_backend(backend.address);
    setup.settings = json!({"argocd": {"server": format!("http://{}", backend.address)}});
    setup.start().await
}

/// The id of the decision about a request.
pub(crate) fn id(answer: &Response) -> String {
    answer.headers()["tollgate-decision-id"].to_str().unwrap().to_owned()
}

/// Status and body of the page of an input.
pub(crate) async fn page(world: &World, id: &str) -> (u16, String) {
    let url = format!("http://{}/decisions/{id}/input", world.running.admin_address());
    let answer = reqwest::get(url).await.unwrap();
    (answer.status().as_u16(), answer.text().await.unwrap())
}

/// The page of the input of a decision.
pub(crate) async fn input_of(world: &World, id: &str) -> Value {
    let (status, text) = page(world, id).await;
    assert_eq!(status, 200, "{text}");
    serde_json::from_str(&text).unwrap()
}

/// `tollgate policy COMMAND BUNDLE --decision ID …` with the gateway's own bundles.
pub(crate) async fn policy(world: &World, [command, front, id]: [&str; 3], more: &[&str]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["policy", command])
        .arg(world.path(&format!("policies/{front}")))
        .args(["--decision", id, "--admin"])
        .arg(format!("http://{}", world.running.admin_address()))
        .args(more)
        .env_clear()
        .output()
        .await
        .unwrap()
}

pub(crate) fn text(bytes: &[u8]) -> String {
    String::from_utf8(bytes.to_vec()).unwrap()
}

/// The digest of the bundle that decided, which the record has too.
async fn digest(world: &World, id: &str) -> Value {
    let record: Value = serde_json::from_str(&world.admin(&format!("/decisions/{id}")).await).unwrap();
    record["policy_sha256"].clone()
}

async fn timestamp(world: &World, id: &str) -> Value {
    let record: Value = serde_json::from_str(&world.admin(&format!("/decisions/{id}")).await).unwrap();
    record["timestamp"].clone()
}

const QUERY: &str = "a query may hold secrets";
const CANDIDATES: &str = "the policy that decided does not read it, so it was not looked up";

#[tokio::test]
async fn a_decision_about_an_extension_is_made_again_from_its_id() {
    let backend = Backend::start(|_| Reply::ok("x")).await;
    let world = world(&backend).await;
    for (user, status, decision) in [
        (
            "bob",
            403,
            json!({"allow": false, "reason": "you may not see this application"}),
        ),
        ("alice", 200, json!({"allow": true, "reason": "allowed"})),
        // The gateway does not evaluate the policy again, and keeps the input all the same.
        ("alice", 200, json!({"allow": true, "reason": "allowed"})),
    ] {
        let request = world
            .request(reqwest::Method::POST, user, &format!("/api/x?token={SECRET}"))
            .header("X-Api-Key", SECRET)
            .header("Cookie", format!("session={SECRET}"))
            .body(SECRET);
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), status);
        let id = id(&answer);
        let shown = input_of(&world, &id).await;
        let verdict = |resource: &str| match user {
            "alice" if resource == "applications" => {
                json!({"allow": true, "why": "allowed", "rule": "state/001.yaml:1: p, alice, applications, get, shop/*, allow"})
            }
            "alice" => {
                json!({"allow": true, "why": "allowed", "rule": "state/001.yaml:1: p, alice, extensions, invoke, *, allow"})
            }
            _ => json!({"allow": false, "why": "no-rule"}),
        };
        let mut expected = json!({
            "decision_id": id,
            "front": "extensions",
            "policy_sha256": digest(&world, &id).await,
            "input": {
                "principal": {"id": user, "username": user, "groups": [], "issuer": "argocd", "kind": "local"},
                "time": timestamp(&world, &id).await,
                "request": {"method": "POST", "path": "/api/x", "project": "shop"},
                "extension": {"name": "echo", "scope": "application"},
                "rbac": {
                    "applications_get": verdict("applications"),
                    "extensions_invoke": verdict("extensions"),
                    "candidates": [],
                },
                "project": {
                    "name": "shop",
                    "destinations": [{"name": "", "server": "*", "namespace": "*"}],
                    "source_namespaces": [],
                },
                "application": {
                    "namespace": "argocd", "name": "cart", "project": "shop", "labels": {},
                    "destination": {"name": "in-cluster", "server": "", "namespace": "cart"},
                },
                "destination": {
                    "name": "in-cluster", "server": "https://kubernetes.default.svc", "namespace": "cart",
                    "permitted": true,
                },
            },
            "left_out": [
                {"field": "request.query", "why": QUERY},
                {"field": "rbac.candidates", "why": CANDIDATES},
            ],
        });
        if user == "alice" {
            // Which line of which file is not what this is about.
            for check in ["applications_get", "extensions_invoke"] {
                let rule = &shown["input"]["rbac"][check]["rule"];
                assert!(rule.as_str().unwrap().contains("p, alice, "), "{shown}");
                expected["input"]["rbac"][check]["rule"] = rule.clone();
            }
        }
        assert_eq!(shown, expected);
        assert!(!shown.to_string().contains(SECRET));

        let output = policy(&world, ["eval", "extensions", &id], &["-o", "json"]).await;
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        assert_eq!(serde_json::from_slice::<Value>(&output.stdout).unwrap(), decision);
        let lacks = |field: &str, why: &str| format!("tollgate: the input of the decision lacks `{field}`: {why}\n");
        let both = lacks("request.query", QUERY) + &lacks("rbac.candidates", CANDIDATES);
        assert_eq!(text(&output.stderr), both);
        let output = policy(&world, ["explain", "extensions", &id], &["-o", "json"]).await;
        let explained: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(
            (&explained["decision"], &explained["input"]),
            (&decision, &shown["input"])
        );
    }
}

/// What the policy does not read is not kept from those who try one that reads it.
#[tokio::test]
async fn an_edited_policy_is_tried_with_the_input_of_a_decision() {
    let backend = Backend::start(|_| Reply::ok("x")).await;
    let world = world(&backend).await;
    let answer = world.get("alice", "/plain").send().await.unwrap();
    let id = id(&answer);
    assert_eq!(
        input_of(&world, &id).await["left_out"],
        json!([{"field": "rbac.candidates", "why": CANDIDATES}])
    );
    let edited = tempfile::tempdir().unwrap();
    let bundle = edited.path().join("extensions");
    test_support::world::copy_tree(&world.path("policies/extensions"), &bundle);
    let rules = std::fs::read_to_string(bundle.join("policy.rego")).unwrap();
    let denial =
        "deny contains \"not at that time\" if {\n\tinput.time > \"2020\"\n\tinput.request.path == \"/plain\"\n}\n";
    std::fs::write(bundle.join("policy.rego"), format!("{rules}\n{denial}")).unwrap();
    for (path, expected) in [
        (
            world.path("policies/extensions"),
            json!({"allow": true, "reason": "allowed"}),
        ),
        (bundle, json!({"allow": false, "reason": "not at that time"})),
    ] {
        let admin = format!("http://{}", world.running.admin_address());
        let output = Command::new(env!("CARGO_BIN_EXE_tollgate"))
            .args([
                "policy",
                "eval",
                path.to_str().unwrap(),
                "--decision",
                &id,
                "--admin",
                &admin,
                "-o",
                "json",
            ])
            .output()
            .await
            .unwrap();
        assert_eq!(
            serde_json::from_slice::<Value>(&output.stdout).unwrap(),
            expected,
            "{output:?}"
        );
    }
}

#[tokio::test]
async fn a_decision_about_the_api_of_argo_cd_is_made_again_from_its_id() {
    let backend = Backend::start(|_| Reply::ok("synced")).await;
    let world = world(&backend).await;
    let sync = async |reason: &str| {
        let url = format!("http://{}/api/v1/applications/cart/sync", world.address());
        let request = reqwest::Client::new()
            .post(url)
            .bearer_auth(token::session(SESSION_KEY, "alice"))
            .header("Tollgate-Reason", reason)
            .header("X-Api-Key", SECRET)
            .json(&json!({"revision": SECRET}));
        id(&request.send().await.unwrap())
    };
    let expected = async |id: &str, of_content: Value, left_out: Value| {
        let mut expected = json!({
            "decision_id": id,
            "front": "argocd",
            "policy_sha256": digest(&world, id).await,
            "input": {
                "principal": {"id": "alice", "username": "alice", "groups": [], "issuer": "argocd", "kind": "local"},
                "time": timestamp(&world, id).await,
                "reason": "the shop is down",
                "request": {
                    "known": true, "service": "application.ApplicationService", "method": "Sync", "verb": "POST",
                    "resource": "applications", "action": "sync",
                },
            },
            "left_out": left_out,
        });
        for (key, value) in of_content.as_object().unwrap() {
            match key.as_str() {
                "application" => expected["input"]["request"]["application"] = value.clone(),
                key => expected["input"][key] = value.clone(),
            }
        }
        expected
    };
    let id = sync("the shop is down").await;
    let fields = [
        "request.project",
        "request.application",
        "request.namespace",
        "request.action",
        "application",
    ];
    let why = "the policy that decided reads nothing of the content, so it was not read";
    let left_out: Vec<Value> = fields.iter().map(|field| json!({"field": field, "why": why})).collect();
    let whole = expected(&id, json!({}), left_out.into()).await;
    assert_eq!(input_of(&world, &id).await, whole);

    // With a policy that reads the content, the input has what it says, and no more.
    let file = world.path("policies/argocd/policy.rego");
    let rules = std::fs::read_to_string(&file).unwrap();
    let denial = "deny contains \"not cart\" if input.application.name == \"cart\"\n";
    std::fs::write(&file, format!("{rules}\n{denial}")).unwrap();
    world
        .until("the policy is in force", async || {
            let id = sync("the shop is down").await;
            input_of(&world, &id).await["left_out"] == json!([])
        })
        .await;
    let id = sync("the shop is down").await;
    let shown = input_of(&world, &id).await;
    assert_eq!(shown["input"]["request"]["application"], "cart");
    assert_eq!(shown["input"]["application"]["project"], "shop");
    assert!(!shown.to_string().contains(SECRET), "{shown}");
    let output = policy(&world, ["eval", "argocd", &id], &["-o", "json"]).await;
    let decision: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(decision, json!({"allow": false, "reason": "not cart"}), "{output:?}");
    assert_eq!(text(&output.stderr), "");
}

#[tokio::test]
async fn a_decision_without_an_input_says_why_and_what_to_do() {
    let backend = Backend::start(|_| Reply::ok("x")).await;
    let world = world(&backend).await;
    // Nobody is signed in, so no policy was asked.
    let url = world.echo("/x");
    let unknown_caller = reqwest::get(&url).await.unwrap();
    assert_eq!(unknown_caller.status(), 401);
    let unasked = id(&unknown_caller);
    let reason: Value = unknown_caller.json().await.unwrap();
    let reason = reason["reason"].as_str().unwrap().to_owned();
    let never = "00000000-0000-0000-0000-000000000001";
    let unknown = format!(
        "this replica has no decision `{never}`: it keeps the latest ones in memory (`decisions.keep`) and loses them \
         when it restarts; ask the replica that decided, or send the request again and use the id of that decision"
    );
    let no_policy = format!(
        "decision `{unasked}` has no input, because no policy was asked: the request ended with `{reason}` before"
    );
    for (id, message) in [(never, &unknown), (&unasked, &no_policy)] {
        assert_eq!(page(&world, id).await, (404, format!("{message}\n")));
        let output = policy(&world, ["eval", "extensions", id], &[]).await;
        let server = format!("http://{}", world.running.admin_address());
        let expected =
            format!("tollgate: gateway.refused: the admin listener at `{server}` says 404 Not Found: {message}\n");
        assert_eq!((output.status.code(), text(&output.stderr)), (Some(1), expected));
        assert!(output.stdout.is_empty());
    }
    assert_eq!(
        page(&world, "mine").await,
        (400, "`mine` is not the id of a decision\n".to_owned())
    );

    // The input of one front is none for the bundle of another one.
    let denied = id(&world.get("bob", "/x").send().await.unwrap());
    let output = policy(&world, ["explain", "kubernetes", &denied], &[]).await;
    let bundle = world.path("policies/kubernetes");
    let expected = format!(
        "tollgate: decision `{denied}` is of `extensions`, and `{}` is a bundle for `kubernetes`\n",
        bundle.display()
    );
    assert_eq!((output.status.code(), text(&output.stderr)), (Some(64), expected));
    // Without a bundle it is that of the settings, for the decision's front.
    let by_settings = |settings: std::path::PathBuf| {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(["policy", "explain", "--decision", &denied, "--admin"]);
        command.arg(format!("http://{}", world.running.admin_address()));
        command.arg("--config").arg(settings);
        command
    };
    let with_bundle = policy(&world, ["explain", "extensions", &denied], &[]).await;
    let without = by_settings(world.path("tollgate.yaml"))
        .env_clear()
        .output()
        .await
        .unwrap();
    assert_eq!(without.status.code(), Some(0), "{without:?}");
    assert_eq!(text(&without.stdout), text(&with_bundle.stdout));
    let missing = by_settings(world.path("missing.yaml"))
        .env_clear()
        .output()
        .await
        .unwrap();
    assert_eq!(missing.status.code(), Some(1), "{missing:?}");
    assert!(
        text(&missing.stderr).contains("missing.yaml` does not exist or cannot be used"),
        "{missing:?}"
    );
    // Both sources of an input, or none, are a mistake.
    for more in [&["--input", "x.yaml"][..], &[]] {
        let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
        command.args(["policy", "eval"]).arg(&bundle).args(more);
        if !more.is_empty() {
            command.args(["--decision", &denied]);
        }
        let output = command.env_clear().output().await.unwrap();
        assert_eq!(output.status.code(), Some(64), "{output:?}");
    }
}

/// Pages of other sites cannot read inputs, as they cannot read decisions.
#[tokio::test]
async fn inputs_are_shown_only_to_who_calls_the_listener_by_its_address() {
    let backend = Backend::start(|_| Reply::ok("x")).await;
    let world = Setup::with_backend(backend.address).start().await;
    let id = id(&world.get("alice", "/x").send().await.unwrap());
    let url = format!("http://{}/decisions/{id}/input", world.running.admin_address());
    let ask = async |host: &str| {
        let request = reqwest::Client::new().get(&url).header("Host", host);
        request.send().await.unwrap().status().as_u16()
    };
    assert_eq!((ask("localhost").await, ask("evil.example").await), (200, 421));
    // Nor does the public listener have them.
    let public = format!("http://{}/decisions/{id}/input", world.address());
    assert_ne!(reqwest::get(public).await.unwrap().status(), 200);
}
