//! Rows about an extension in a project: `p, role, extensions, invoke, project/extension, allow`.

use serde_json::json;

use super::{backend, refusal, status};
use test_support::world::{Setup, World, map};

const GET: &str = "p, alice, applications, get, shop/*, allow\n";

async fn world(rows: &[&str], compat: &str) -> (World, test_support::backend::Backend) {
    let backend = backend().await;
    let mut setup = Setup::with_backend(backend.address);
    let rows: Vec<String> = rows
        .iter()
        .map(|row| format!("p, alice, extensions, {row}\n"))
        .collect();
    setup.rbac_cm = map(&[("policy.csv", &format!("{GET}{}", rows.concat()))]);
    if !compat.is_empty() {
        setup.settings = json!({"extensions": {"compat": compat}});
    }
    (setup.start().await, backend)
}

#[tokio::test]
async fn a_row_may_name_the_project_of_the_extension() {
    for (rows, allowed) in [
        (&["*, shop/echo, allow"][..], true),
        (&["*, other/echo, allow"], false),
        (&["invoke, */echo, allow"], true),
        (&["invoke, */other, allow"], false),
        (&["*, */*, allow"], true),
        // About extensions whose names begin so, not about the project `shop`.
        (&["invoke, s*, allow"], false),
        (&["invoke, *, allow", "invoke, shop/echo, deny"], false),
        (&["invoke, *, allow", "invoke, other/echo, deny"], true),
    ] {
        let (world, backend) = world(rows, "").await;
        let answer = world.get("alice", "/x").send().await.unwrap();
        let record = world.decision(&answer).await;
        assert_eq!(backend.seen().len(), usize::from(allowed), "{rows:?}");
        assert_eq!(record["checks"][1]["allowed"], allowed, "{rows:?}: {record}");
        if allowed {
            assert_eq!(answer.status(), 200, "{rows:?}");
            let rule = record["checks"][1]["rule"].as_str().unwrap();
            assert!(rule.ends_with(rows[0]), "{rule}");
        } else {
            let (status, body) = refusal(answer).await;
            let expected = json!("you may not invoke this extension");
            assert_eq!((status, &body["error"]), (403, &expected), "{rows:?}");
            assert_eq!(body["reason"], "permission_denied");
        }
        // The twin, without the project's row.
        assert_eq!(status(world.get("bob", "/x")).await, 403);
    }
}

/// Argo CD's enforcer asks about the plain name only.
#[tokio::test]
async fn such_rows_do_not_count_for_argo_cd() {
    for (rows, expected) in [
        (&["*, shop/echo, allow"][..], 401),
        (&["invoke, echo, allow", "invoke, shop/echo, deny"], 200),
    ] {
        let (world, backend) = world(rows, "argocd").await;
        let token = test_support::token::session(test_support::world::SESSION_KEY, "alice");
        let request = format!(
            "GET /extensions/echo/x HTTP/1.1\r\nHost: gateway\r\nCookie: argocd.token={token}\r\n\
             Argocd-Application-Name: argocd:cart\r\nArgocd-Project-Name: shop\r\n\r\n"
        );
        let mut client = test_support::client::Client::connect(world.address()).await;
        let answer = client.exchange(request.as_bytes()).await;
        assert_eq!(answer.status, expected, "{rows:?}");
        assert_eq!(backend.seen().len(), usize::from(expected == 200), "{rows:?}");
    }
}

#[tokio::test]
async fn a_policy_sees_such_rows() {
    for (rows, text) in [
        (&["invoke, echo, allow", "*, shop/*, allow"][..], "shop/*"),
        (&["invoke, echo, allow", "*, other/*, allow"], ""),
    ] {
        let backend = backend().await;
        let mut setup = Setup::with_backend(backend.address);
        let rows: Vec<String> = rows
            .iter()
            .map(|row| format!("p, alice, extensions, {row}\n"))
            .collect();
        setup.rbac_cm = map(&[("policy.csv", &format!("{GET}{}", rows.concat()))]);
        let world = setup.start().await;
        let file = |name: &str| world.path(&format!("policies/extensions/{name}"));
        let denial = "\ndeny contains concat(\" \", {row.object | some row in input.rbac.candidates; \
                      contains(row.object, \"/\"); row.resource == \"extensions\"}) if {\n\tinput.request.method == \"PUT\"\n}\n";
        let policy = std::fs::read_to_string(file("policy.rego")).unwrap() + denial;
        std::fs::write(file("policy.rego"), policy).unwrap();
        let put = || world.request(reqwest::Method::PUT, "alice", "/x");
        world
            .until("the edited policy", async || status(put()).await == 403)
            .await;
        let (_, body) = refusal(put().send().await.unwrap()).await;
        assert_eq!(body["error"], text, "{rows:?}");
        assert_eq!(status(world.get("alice", "/x")).await, 200);
    }
}
