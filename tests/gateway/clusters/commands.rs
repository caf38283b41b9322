//! `tollgate credential …` with a running gateway, and with only its settings.

use std::process::Output;

use serde_json::{Value, json};
use tokio::process::Command;

use super::cluster;
use super::minted::{ROBOT, cluster_of, issuer, world};
use test_support::token;
use test_support::world::{SESSION_KEY, World};

/// Runs the built command line with only these environment variables.
async fn tollgate(arguments: &[&str], environment: &[(&str, &str)]) -> Output {
    Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(arguments)
        .env_clear()
        .envs(environment.iter().copied())
        .output()
        .await
        .unwrap()
}

fn out(output: &Output) -> String {
    String::from_utf8(output.stdout.clone()).unwrap()
}

/// The only line of standard error of a failed command.
fn line(output: &Output) -> String {
    let text = String::from_utf8(output.stderr.clone()).unwrap();
    assert_eq!(text.lines().count(), 1, "{text}");
    assert!(output.stdout.is_empty());
    assert_eq!(output.status.code(), Some(1));
    text.trim().to_owned()
}

fn server(world: &World) -> String {
    format!("http://{}", world.address())
}

#[tokio::test]
async fn credentials_come_from_a_running_gateway() {
    let (issuer, api) = (issuer().await, cluster_of(|_| true).await);
    let (setup, _folder) = world(&issuer, &api);
    let world = setup.start().await;
    let server = server(&world);
    let [alice, carol] = ["alice", "carol"].map(|user| token::session(SESSION_KEY, user));
    let environment = [("TOLLGATE_AUTH_TOKEN", &*alice), ("TOLLGATE_SERVER", &*server)];
    let got = tollgate(&["credential", "get", "prod"], &environment).await;
    assert_eq!(out(&got), "minted-1\n", "{got:?}");
    let got = tollgate(&["credential", "get", "prod", "-o", "yaml"], &environment).await;
    assert!(out(&got).contains("token: minted-1"), "{got:?}");
    for version in ["v1", "v1beta1"] {
        let api_version = format!("client.authentication.k8s.io/{version}");
        let info =
            json!({"kind": "ExecCredential", "apiVersion": api_version, "spec": {"interactive": false}}).to_string();
        let mut environment = environment.to_vec();
        environment.push(("KUBERNETES_EXEC_INFO", &info));
        let got = tollgate(&["credential", "exec", "prod"], &environment).await;
        assert!(got.status.success() && got.stderr.is_empty(), "{got:?}");
        let body: Value = serde_json::from_str(&out(&got)).unwrap();
        assert_eq!(body["apiVersion"], api_version.as_str());
        assert_eq!(body["status"]["token"], "minted-1");
    }
    // The twins: without permission, without a token, an unknown cluster, and a refused URL.
    let refused = tollgate(&["credential", "exec", "prod", "--auth-token", &carol], &environment).await;
    assert!(
        line(&refused).starts_with("tollgate: permission_denied: "),
        "{refused:?}"
    );
    let refused = tollgate(&["credential", "exec", "prod", "--server", &server], &[]).await;
    assert!(line(&refused).contains("TOLLGATE_AUTH_TOKEN"), "{refused:?}");
    let refused = tollgate(&["credential", "exec", "none"], &environment).await;
    assert!(
        line(&refused).starts_with("tollgate: cluster_not_found: "),
        "{refused:?}"
    );
    let refused = tollgate(
        &["credential", "exec", "prod", "--server", "http://gateway.example"],
        &environment,
    )
    .await;
    assert!(line(&refused).starts_with("tollgate: gateway.url: "), "{refused:?}");
    assert_eq!(issuer.seen().len(), 1);
}

#[tokio::test]
async fn credentials_come_from_settings_alone() {
    let (issuer, api) = (issuer().await, cluster_of(|_| true).await);
    let (setup, _folder) = world(&issuer, &api);
    let world = setup.start().await;
    let settings = world.path("tollgate.yaml");
    let settings = settings.to_str().unwrap();
    let got = tollgate(&["credential", "exec", "prod", "--config", settings], &[]).await;
    let body: Value = serde_json::from_str(&out(&got)).unwrap_or_else(|_| panic!("{got:?}"));
    assert_eq!(body["status"]["token"], "minted-1");
    assert!(body["status"]["expirationTimestamp"].is_string());
    let refused = tollgate(&["credential", "exec", "none", "--config", settings], &[]).await;
    assert!(
        line(&refused).starts_with("tollgate: cluster_not_found: "),
        "{refused:?}"
    );
    let refused = tollgate(&["credential", "get", "in-cluster", "--config", settings], &[]).await;
    assert!(
        line(&refused).starts_with("tollgate: ambient.unavailable: "),
        "{refused:?}"
    );
    let explained = tollgate(
        &["credential", "explain", "prod", "--config", settings, "-o", "json"],
        &[],
    )
    .await;
    assert!(explained.status.success(), "{explained:?}");
    let body: Value = serde_json::from_str(&out(&explained)).unwrap();
    assert_eq!((&body["result"], &body["kind"]), (&json!("ok"), &json!("token")));
    let request = &body["requests"][0];
    assert_eq!(
        (&request["method"], &request["path"], &request["status"]),
        (&json!("POST"), &json!("/token/prod"), &json!(200))
    );
    assert_eq!(body["key"].as_str().unwrap().len(), 8);
    assert!(body["usedUntil"].as_str() < body["expiresAt"].as_str());
    let table = tollgate(&["credential", "explain", "prod", "--config", settings], &[]).await;
    let table = out(&table);
    for part in ["METHOD", "/token/prod", "200", "result    ok (token)", "used till"] {
        assert!(table.contains(part), "{table}");
    }
    for text in [&table, &out(&explained)] {
        assert!(!text.contains("minted-") && !text.contains(ROBOT), "{text}");
    }
    let explained = tollgate(&["credential", "explain", "in-cluster", "--config", settings], &[]).await;
    assert_eq!(explained.status.code(), Some(1));
    assert!(
        out(&explained).contains("result    config ambient.unavailable: "),
        "{explained:?}"
    );
}

#[tokio::test]
async fn check_names_the_secret_a_plugin_refuses() {
    let (issuer, api) = (issuer().await, cluster_of(|_| true).await);
    let (mut setup, _folder) = world(&issuer, &api);
    let config = json!({"webAPIProviderConfig": {
        "method": "POST", "url": "https://127.0.0.1/", "tokenPath": "{.token}",
    }});
    setup
        .objects
        .push(cluster("wrong", "https://wrong.example", &config, &[]));
    let world = setup.start().await;
    let settings = world.path("tollgate.yaml");
    let checked = tollgate(&["check", "-o", "json", "--config", settings.to_str().unwrap()], &[]).await;
    assert!(
        checked.status.success(),
        "one cluster does not stop the others: {checked:?}"
    );
    let body: Value = serde_json::from_str(&out(&checked)).unwrap();
    let found = body["diagnostics"].as_array().unwrap().iter();
    let found: Vec<&Value> = found
        .filter(|one| one["message"].as_str().unwrap().contains("`wrong` cannot be used"))
        .collect();
    let [finding] = found.as_slice() else { panic!("{body}") };
    assert!(
        finding["location"]["file"]
            .as_str()
            .unwrap()
            .ends_with("state/004.yaml")
    );
    assert_eq!(
        (&finding["location"]["line"], &finding["severity"]),
        (&json!(1), &json!("warning"))
    );
    assert!(finding["message"].as_str().unwrap().contains("`$.token`"), "{finding}");
    assert!(issuer.seen().is_empty(), "a check sends nothing");
}
