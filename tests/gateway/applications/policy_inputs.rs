//! The input of a decision about a request through an Application.

use reqwest::Method;
use serde_json::{Value, json};

use super::{CART, api, good, setup, shop};
use crate::clusters::ask;
use crate::policy_inputs::{id, input_of, policy, text};

#[tokio::test]
async fn a_decision_about_an_application_is_made_again_from_its_id() {
    let api = api(good).await;
    let world = setup(&api, "true", shop(&json!({}))).start().await;
    for (path, status, decision, restriction) in [
        (
            "configmaps",
            200,
            json!({"allow": true, "reason": "allowed"}),
            json!({"permitted": true, "reason": ""}),
        ),
        ("secrets", 403, Value::Null, Value::Null),
    ] {
        let target = format!("{CART}/api/v1/namespaces/cart/{path}");
        let answer = ask(&world, Method::POST, "alice", &target)
            .body("{}")
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), status);
        let id = id(&answer);
        let record: Value = serde_json::from_str(&world.admin(&format!("/decisions/{id}")).await).unwrap();
        let shown = input_of(&world, &id).await;
        let input = &shown["input"];
        assert_eq!(
            (&shown["front"], &shown["left_out"]),
            (&json!("applications"), &json!([]))
        );
        assert_eq!(shown["policy_sha256"], record["policy_sha256"]);
        assert_eq!(input["time"], record["timestamp"]);
        assert_eq!(input["principal"]["username"], "alice");
        let request = json!({
            "verb": "create", "verbs": ["create"], "resourceRequest": true, "apiGroup": "", "apiVersion": "v1",
            "resource": path, "namespace": "cart", "path": format!("/api/v1/namespaces/cart/{path}"),
        });
        assert_eq!(input["request"], request);
        assert_eq!(
            (&input["access"], &input["operation"]),
            (&json!("write"), &json!("other"))
        );
        assert_eq!(
            input["identity"]["acting"]["user"],
            "system:serviceaccount:cart:deployer"
        );
        assert_eq!(input["rbac"]["applications_override"]["allow"], true);
        if !restriction.is_null() {
            assert_eq!(input["restriction"], restriction);
        }
        assert!(!shown.to_string().contains("cluster-token"), "{shown}");
        let output = policy(&world, ["eval", "applications", &id], &["-o", "json"]).await;
        let again: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert_eq!(text(&output.stderr), "");
        match decision {
            // What the project's list refuses, the bundle refuses with the list's reason.
            Value::Null => {
                let reason = &input["restriction"]["reason"];
                assert_eq!(
                    (&input["restriction"]["permitted"], &again["reason"]),
                    (&json!(false), reason)
                );
                assert_eq!(again["allow"], false);
            }
            decision => assert_eq!(again, decision),
        }
    }
    // A caller who may not see the Application is refused before the policy is asked.
    let target = format!("{CART}/api/v1/namespaces/cart/configmaps");
    let answer = ask(&world, Method::GET, "bob", &target).send().await.unwrap();
    let (status, message) = crate::policy_inputs::page(&world, &id(&answer)).await;
    assert!(status == 404 && message.contains("no policy was asked"), "{message}");
}
