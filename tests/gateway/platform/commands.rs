//! `tollgate token`, `session`, `agent`, `audit` and `kubeconfig` against a
//! running gateway.

use std::process::{Output, Stdio};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::{TestEnvironment, environment, environment_with};
use test_support::client::PATIENCE;
use test_support::token;
use test_support::world::SESSION_KEY;

/// The built command line as `user`, with no other environment variables.
fn command(environment: &TestEnvironment, user: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command
        .args(arguments)
        .env_clear()
        .env("TOLLGATE_SERVER", format!("http://{}", environment.world.address()));
    if !user.is_empty() {
        command.env("TOLLGATE_AUTH_TOKEN", token::session(SESSION_KEY, user));
    }
    command
}

async fn tollgate(environment: &TestEnvironment, user: &str, arguments: &[&str]) -> Output {
    command(environment, user, arguments).output().await.unwrap()
}

async fn good(environment: &TestEnvironment, user: &str, arguments: &[&str]) -> String {
    let output = tollgate(environment, user, arguments).await;
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Runs a command that must print nothing to standard output. Returns its exit code and standard
/// error.
async fn bad(environment: &TestEnvironment, user: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let output = tollgate(environment, user, arguments).await;
    assert!(output.stdout.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), text)
}

#[tokio::test]
async fn tokens_are_made_listed_and_revoked() {
    let environment = environment().await;
    let bearer = good(
        &environment,
        "alice",
        &["token", "create", "laptop", "--agent", "prod", "-o", "bearer"],
    )
    .await;
    let bearer = bearer.trim();
    assert!(bearer.starts_with("pat:9999:tgpat-"), "{bearer}");
    assert_eq!(environment.enter(bearer).await, 200);
    let listed = good(&environment, "alice", &["token", "list"]).await;
    let lines: Vec<Vec<&str>> = listed.lines().map(|line| line.split_whitespace().collect()).collect();
    let header = ["NAME", "ID", "AGENT", "USER", "AGE", "EXPIRES", "LAST-USED", "STATE"];
    assert_eq!(lines[0], header);
    let row = &lines[1];
    assert_eq!(
        (row[0], row[2], row[3], row[7]),
        ("laptop", "prod", "alice", "active"),
        "{listed}"
    );
    assert!(["29d", "30d"].contains(&row[5]), "{listed}");
    assert!(!listed.contains("tgpat-"));
    let id = row[1];
    let output = good(&environment, "alice", &["token", "revoke", id]).await;
    assert_eq!(output, format!("token {id} revoked\n"));
    assert_eq!(environment.enter(bearer).await, 401);

    let output = good(
        &environment,
        "alice",
        &["token", "create", "desk", "--agent", "9999", "--lifetime", "24h"],
    )
    .await;
    assert!(
        output.contains("desk") && output.contains("shown only now:\npat:9999:tgpat-"),
        "{output}"
    );
    let made = good(
        &environment,
        "carol",
        &[
            "token", "create", "n", "--agent", "prod", "--user", "alice", "-o", "json",
        ],
    )
    .await;
    let made: Value = serde_json::from_str(&made).unwrap();
    assert_eq!(made["token"]["user"]["username"], "alice");
    let all: Value =
        serde_json::from_str(&good(&environment, "carol", &["token", "list", "--all", "-o", "json"]).await).unwrap();
    assert_eq!(all["items"].as_array().unwrap().len(), 3);
    assert_eq!(
        good(&environment, "bob", &["token", "list"]).await,
        "No tokens found.\n"
    );
}

#[tokio::test]
async fn lists_have_every_page() {
    let environment = environment().await;
    super::tokens::many(&environment).await;
    let all = good(&environment, "carol", &["token", "list", "--all"]).await;
    assert_eq!(all.lines().count(), 1 + 1_205);
    let text = good(&environment, "carol", &["token", "list", "--all", "-o", "json"]).await;
    let document: Value = serde_json::from_str(&text).unwrap();
    assert!(document.as_object().unwrap().keys().eq(["items"]));
    let items = document["items"].as_array().unwrap();
    assert_eq!((items.len(), &items[1_204]["name"]), (1_205, &json!("old-4")));
    let mine = good(&environment, "dora", &["token", "list", "--all"]).await;
    assert_eq!(mine.lines().count(), 1 + 5);
}

#[tokio::test]
async fn refusals_are_one_line_with_the_reason() {
    let environment = environment().await;
    for (user, arguments, part) in [
        (
            "bob",
            &["token", "create", "n", "--agent", "prod"][..],
            "agent_not_found: ",
        ),
        ("bob", &["token", "list", "--user", "alice"], "permission_denied: "),
        (
            "bob",
            &["token", "revoke", "0190d4a8-1c1c-7000-8000-000000000001"],
            "token_not_found: ",
        ),
        ("bob", &["session", "revoke", "oidc:x"], "session_not_found: "),
        ("carol", &["agent", "list"], "user_not_linked: "),
        ("bob", &["audit", "--all"], "permission_denied: "),
        ("bob", &["kubeconfig", "--agent", "prod"], "agent_not_found: "),
        (
            "",
            &["agent", "list"],
            "sign in with `tollgate login`, or set `TOLLGATE_AUTH_TOKEN`",
        ),
    ] {
        let (code, text) = bad(&environment, user, arguments).await;
        assert_eq!((code, text.lines().count()), (Some(1), 1), "{arguments:?} {text}");
        assert!(text.contains(part), "{arguments:?} {text}");
    }
    for arguments in [
        &["token", "create", "n"][..],
        &["token", "revoke", "7"],
        &["token", "revoke"],
        &["session", "revoke", "ftp:x"],
        &["token", "list", "--all", "--user", "bob"],
        &["audit", "--limit", "0"],
        &["kubeconfig", "--agent", "prod", "--oidc-issuer", "https://i.example"],
        &["agent", "list", "-o", "xml"],
    ] {
        assert_eq!(bad(&environment, "alice", arguments).await.0, Some(64), "{arguments:?}");
    }
    let (code, text) = bad(
        &environment,
        "alice",
        &["agent", "list", "--server", "http://t.example"],
    )
    .await;
    assert_eq!(code, Some(1));
    assert!(text.starts_with("tollgate: gateway.url: "), "{text}");
}

#[tokio::test]
async fn agents_and_sessions_are_listed() {
    let environment = environment().await;
    let agents = good(&environment, "alice", &["agent", "list"]).await;
    let row: Vec<&str> = agents.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        row,
        ["prod", "9999", "production", "user", "group-1/project-1", "(developer)"]
    );
    let made = environment.made().await;
    assert_eq!(environment.enter(made["bearer"].as_str().unwrap()).await, 200);
    let id = format!("pat:{}", made["token"]["id"].as_str().unwrap());
    let sessions = good(&environment, "alice", &["session", "list"]).await;
    assert!(sessions.contains(&id) && sessions.contains("127.0.0.1"), "{sessions}");
    let yaml = good(
        &environment,
        "carol",
        &["session", "list", "--user", "alice", "-o", "yaml"],
    )
    .await;
    assert!(yaml.contains(&id), "{yaml}");
    assert_eq!(
        good(&environment, "alice", &["session", "revoke", &id]).await,
        format!("session {id} revoked\n")
    );
    assert_eq!(environment.enter(made["bearer"].as_str().unwrap()).await, 401);
    assert_eq!(
        good(&environment, "alice", &["session", "list"]).await,
        "No sessions found.\n"
    );
}

#[tokio::test]
async fn audit_is_shown_and_followed() {
    let environment = environment().await;
    environment.made().await;
    let shown = good(&environment, "alice", &["audit", "--action", "token.created"]).await;
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 2, "{shown}");
    assert!(
        lines[1].contains("token.created") && lines[1].contains("prod"),
        "{shown}"
    );

    // `--follow` does not print the old events that `--limit` left out.
    environment.made().await;
    environment.made().await;
    let before = environment.items("alice", "audit").await;
    let mut following = command(
        &environment,
        "alice",
        &[
            "audit",
            "--follow",
            "--limit",
            "1",
            "-o",
            "json",
            "--action",
            "token.created",
        ],
    )
    .stdout(Stdio::piped())
    .kill_on_drop(true)
    .spawn()
    .unwrap();
    let mut lines = BufReader::new(following.stdout.take().unwrap()).lines();
    let mut seen = Vec::new();
    for nth in 0..2 {
        if nth == 1 {
            environment.made().await;
        }
        let line = tokio::time::timeout(PATIENCE, lines.next_line())
            .await
            .unwrap()
            .unwrap();
        let event: Value = serde_json::from_str(&line.unwrap()).unwrap();
        assert_eq!(event["action"], "token.created");
        seen.push(event["id"].clone());
    }
    let is_old = |id: &Value| before.iter().any(|event| event["id"] == *id);
    assert!(is_old(&seen[0]) && !is_old(&seen[1]), "{seen:?}");
}

#[tokio::test]
async fn a_kubeconfig_is_all_kubectl_needs() {
    let environment = environment_with(json!({"publicURL": "https://t.example/k8s-proxy/"})).await;
    let text = good(
        &environment,
        "alice",
        &["kubeconfig", "--agent", "9999", "--namespace", "shop"],
    )
    .await;
    let config: Value = serde_saphyr::from_str(&text).unwrap();
    assert_eq!(
        (&config["kind"], &config["current-context"]),
        (&json!("Config"), &json!("prod"))
    );
    assert_eq!(
        config["clusters"][0]["cluster"],
        json!({"server": "https://t.example/k8s-proxy/"})
    );
    assert_eq!(
        config["contexts"][0]["context"],
        json!({"cluster": "prod", "user": "prod", "namespace": "shop"})
    );
    let bearer = config["users"][0]["user"]["token"].as_str().unwrap();
    assert_eq!(environment.enter(bearer).await, 200);
    assert_eq!(environment.items("alice", "tokens").await.len(), 1);

    // With a token file, a certificate authority and another URL of the front.
    let file = environment.world.path("token");
    let secret = bearer.strip_prefix("pat:9999:").unwrap();
    std::fs::write(&file, format!("{secret}\n")).unwrap();
    let authority = environment.world.path("ca.pem");
    std::fs::write(&authority, &environment.api.ca_pem).unwrap();
    let [file, authority] = [&file, &authority].map(|path| path.to_str().unwrap());
    let front = "https://other.example/k8s-proxy/";
    let arguments = [
        "kubeconfig",
        "--agent",
        "9999",
        "--token-file",
        file,
        "--front",
        front,
        "-o",
        "json",
    ];
    let arguments = [&arguments[..], &["--certificate-authority", authority]].concat();
    let config: Value = serde_json::from_str(&good(&environment, "", &arguments).await).unwrap();
    assert_eq!(config["users"][0]["user"]["token"], bearer);
    let cluster = &config["clusters"][0]["cluster"];
    assert_eq!(cluster["server"], front);
    assert!(
        cluster["certificate-authority-data"]
            .as_str()
            .is_some_and(|data| !data.is_empty())
    );

    // With an OIDC sign-in, the kubeconfig has no secret.
    let issuer = ["--oidc-issuer", "https://i.example", "--oidc-client-id", "kubectl"];
    let arguments = [&["kubeconfig", "--agent", "prod"][..], &issuer].concat();
    let config: Value = serde_saphyr::from_str(&good(&environment, "alice", &arguments).await).unwrap();
    let user = &config["users"][0]["user"];
    assert_eq!(user["exec"]["command"], "kubectl");
    assert!(user.get("token").is_none());
    assert_eq!(environment.items("alice", "tokens").await.len(), 1);
    std::fs::write(environment.world.path("token"), "pat:9998:tgpat-x").unwrap();
    let (code, text) = bad(
        &environment,
        "",
        &["kubeconfig", "--agent", "9999", "--token-file", file],
    )
    .await;
    assert_eq!(code, Some(1));
    assert!(text.contains("for another agent"), "{text}");
}

#[tokio::test]
async fn a_kubeconfig_in_a_file_is_its_owners_and_has_one_token() {
    use std::os::unix::fs::PermissionsExt as _;

    let environment = environment().await;
    let path = environment.world.path("prod.kubeconfig");
    let file = path.to_str().unwrap();
    let arguments = ["kubeconfig", "--agent", "prod", "--file", file];
    let mut bearers = Vec::new();
    for _ in 0..2 {
        let output = good(&environment, "alice", &arguments).await;
        assert_eq!(output, format!("context prod written to {file}\n"));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let config: Value = serde_saphyr::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let bearer = config["users"][0]["user"]["token"].as_str().unwrap().to_owned();
        assert_eq!(environment.enter(&bearer).await, 200);
        bearers.push(bearer);
    }
    // Replacing the file revoked its first token.
    assert_ne!(bearers[0], bearers[1]);
    assert_eq!(environment.enter(&bearers[0]).await, 401);
    assert_eq!(environment.enter(&bearers[1]).await, 200);

    // A file with other contexts is not overwritten, and no token is created.
    let made = environment.items("alice", "tokens").await.len();
    let mut others: Value = serde_saphyr::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    others["contexts"].as_array_mut().unwrap().push(json!({"name": "mine"}));
    std::fs::write(&path, others.to_string()).unwrap();
    let (code, text) = bad(&environment, "alice", &arguments).await;
    assert_eq!(code, Some(1));
    assert!(
        text.contains("kubeconfig.file: ") && text.contains("would be lost"),
        "{text}"
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), others.to_string());
    assert_eq!(environment.items("alice", "tokens").await.len(), made);
    assert_eq!(environment.enter(&bearers[1]).await, 200);
}

#[tokio::test]
async fn a_token_in_a_file_that_others_can_read_causes_a_warning() {
    use std::os::unix::fs::PermissionsExt as _;

    let environment = environment().await;
    let path = environment.world.path("redirected");
    let sign_in = ["--oidc-issuer", "https://i.example", "--oidc-client-id", "kubectl"];
    for (mode, more, warns) in [(0o644, &[][..], true), (0o600, &[], false), (0o644, &sign_in, false)] {
        let output = std::fs::File::create(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let arguments = [&["kubeconfig", "--agent", "prod"][..], more].concat();
        let mut command = command(&environment, "alice", &arguments);
        let running = command.stdout(output).stderr(Stdio::piped()).spawn().unwrap();
        let done = running.wait_with_output().await.unwrap();
        let text = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.success(), "{text}");
        assert_eq!(text.contains("use `--file`"), warns, "{mode:o} {more:?}: {text}");
        assert!(!text.contains("tgpat-"));
    }
}
