//! `tollgate token`, `session`, `agent`, `audit` and `kubeconfig` against a
//! running gateway.

use std::process::{Output, Stdio};

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;

use super::{Place, place, place_with};
use test_support::client::PATIENCE;
use test_support::token;
use test_support::world::SESSION_KEY;

/// The built command line as `user`, in an environment of its own.
fn command(place: &Place, user: &str, arguments: &[&str]) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_tollgate"));
    command
        .args(arguments)
        .env_clear()
        .env("TOLLGATE_SERVER", format!("http://{}", place.world.address()));
    if !user.is_empty() {
        command.env("TOLLGATE_AUTH_TOKEN", token::session(SESSION_KEY, user));
    }
    command
}

async fn tollgate(place: &Place, user: &str, arguments: &[&str]) -> Output {
    command(place, user, arguments).output().await.unwrap()
}

async fn good(place: &Place, user: &str, arguments: &[&str]) -> String {
    let output = tollgate(place, user, arguments).await;
    assert!(output.status.success() && output.stderr.is_empty(), "{output:?}");
    String::from_utf8(output.stdout).unwrap()
}

/// Exit code and the one line of standard error.
async fn bad(place: &Place, user: &str, arguments: &[&str]) -> (Option<i32>, String) {
    let output = tollgate(place, user, arguments).await;
    assert!(output.stdout.is_empty(), "{output:?}");
    let text = String::from_utf8(output.stderr).unwrap();
    (output.status.code(), text)
}

#[tokio::test]
async fn tokens_are_made_listed_and_revoked() {
    let place = place().await;
    let bearer = good(
        &place,
        "alice",
        &["token", "create", "laptop", "--agent", "prod", "-o", "bearer"],
    )
    .await;
    let bearer = bearer.trim();
    assert!(bearer.starts_with("pat:9999:tgpat-"), "{bearer}");
    assert_eq!(place.enter(bearer).await, 200);
    let listed = good(&place, "alice", &["token", "list"]).await;
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
    let told = good(&place, "alice", &["token", "revoke", id]).await;
    assert_eq!(told, format!("token {id} revoked\n"));
    assert_eq!(place.enter(bearer).await, 401);

    let told = good(
        &place,
        "alice",
        &["token", "create", "desk", "--agent", "9999", "--lifetime", "24h"],
    )
    .await;
    assert!(
        told.contains("desk") && told.contains("shown only now:\npat:9999:tgpat-"),
        "{told}"
    );
    let made = good(
        &place,
        "carol",
        &[
            "token", "create", "n", "--agent", "prod", "--user", "alice", "-o", "json",
        ],
    )
    .await;
    let made: Value = serde_json::from_str(&made).unwrap();
    assert_eq!(made["token"]["user"]["username"], "alice");
    let all: Value =
        serde_json::from_str(&good(&place, "carol", &["token", "list", "--all", "-o", "json"]).await).unwrap();
    assert_eq!(all["items"].as_array().unwrap().len(), 3);
    assert_eq!(good(&place, "bob", &["token", "list"]).await, "No tokens found.\n");
}

#[tokio::test]
async fn lists_have_every_page() {
    let place = place().await;
    super::tokens::many(&place).await;
    let all = good(&place, "carol", &["token", "list", "--all"]).await;
    assert_eq!(all.lines().count(), 1 + 1_205);
    let text = good(&place, "carol", &["token", "list", "--all", "-o", "json"]).await;
    let document: Value = serde_json::from_str(&text).unwrap();
    assert!(document.as_object().unwrap().keys().eq(["items"]));
    let items = document["items"].as_array().unwrap();
    assert_eq!((items.len(), &items[1_204]["name"]), (1_205, &json!("old-4")));
    let mine = good(&place, "dora", &["token", "list", "--all"]).await;
    assert_eq!(mine.lines().count(), 1 + 5);
}

#[tokio::test]
async fn refusals_say_what_helps() {
    let place = place().await;
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
        ("", &["agent", "list"], "set `TOLLGATE_AUTH_TOKEN`"),
    ] {
        let (code, text) = bad(&place, user, arguments).await;
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
        assert_eq!(bad(&place, "alice", arguments).await.0, Some(64), "{arguments:?}");
    }
    let (code, text) = bad(&place, "alice", &["agent", "list", "--server", "http://t.example"]).await;
    assert_eq!(code, Some(1));
    assert!(text.starts_with("tollgate: gateway.url: "), "{text}");
}

#[tokio::test]
async fn agents_and_sessions_are_listed() {
    let place = place().await;
    let agents = good(&place, "alice", &["agent", "list"]).await;
    let row: Vec<&str> = agents.lines().nth(1).unwrap().split_whitespace().collect();
    assert_eq!(
        row,
        ["prod", "9999", "production", "user", "group-1/project-1", "(developer)"]
    );
    let made = place.made().await;
    assert_eq!(place.enter(made["bearer"].as_str().unwrap()).await, 200);
    let id = format!("pat:{}", made["token"]["id"].as_str().unwrap());
    let sessions = good(&place, "alice", &["session", "list"]).await;
    assert!(sessions.contains(&id) && sessions.contains("127.0.0.1"), "{sessions}");
    let yaml = good(&place, "carol", &["session", "list", "--user", "alice", "-o", "yaml"]).await;
    assert!(yaml.contains(&id), "{yaml}");
    assert_eq!(
        good(&place, "alice", &["session", "revoke", &id]).await,
        format!("session {id} revoked\n")
    );
    assert_eq!(place.enter(made["bearer"].as_str().unwrap()).await, 401);
    assert_eq!(
        good(&place, "alice", &["session", "list"]).await,
        "No sessions found.\n"
    );
}

#[tokio::test]
async fn audit_is_shown_and_followed() {
    let place = place().await;
    place.made().await;
    let shown = good(&place, "alice", &["audit", "--action", "token.created"]).await;
    let lines: Vec<&str> = shown.lines().collect();
    assert_eq!(lines.len(), 2, "{shown}");
    assert!(
        lines[1].contains("token.created") && lines[1].contains("prod"),
        "{shown}"
    );

    // What `--limit` leaves out does not come later as if it were new.
    place.made().await;
    place.made().await;
    let before = place.items("alice", "audit").await;
    let mut following = command(
        &place,
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
            place.made().await;
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
    let place = place_with(json!({"publicURL": "https://t.example/k8s-proxy/"})).await;
    let text = good(
        &place,
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
    assert_eq!(place.enter(bearer).await, 200);
    assert_eq!(place.items("alice", "tokens").await.len(), 1);

    // A token of one's own, an authority, another front.
    let file = place.world.path("token");
    let secret = bearer.strip_prefix("pat:9999:").unwrap();
    std::fs::write(&file, format!("{secret}\n")).unwrap();
    let authority = place.world.path("ca.pem");
    std::fs::write(&authority, &place.api.ca_pem).unwrap();
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
    let config: Value = serde_json::from_str(&good(&place, "", &arguments).await).unwrap();
    assert_eq!(config["users"][0]["user"]["token"], bearer);
    let cluster = &config["clusters"][0]["cluster"];
    assert_eq!(cluster["server"], front);
    assert!(
        cluster["certificate-authority-data"]
            .as_str()
            .is_some_and(|data| !data.is_empty())
    );

    // A sign-in keeps no secret.
    let issuer = ["--oidc-issuer", "https://i.example", "--oidc-client-id", "kubectl"];
    let arguments = [&["kubeconfig", "--agent", "prod"][..], &issuer].concat();
    let config: Value = serde_saphyr::from_str(&good(&place, "alice", &arguments).await).unwrap();
    let user = &config["users"][0]["user"];
    assert_eq!(user["exec"]["command"], "kubectl");
    assert!(user.get("token").is_none());
    assert_eq!(place.items("alice", "tokens").await.len(), 1);
    std::fs::write(place.world.path("token"), "pat:9998:tgpat-x").unwrap();
    let (code, text) = bad(&place, "", &["kubeconfig", "--agent", "9999", "--token-file", file]).await;
    assert_eq!(code, Some(1));
    assert!(text.contains("for another agent"), "{text}");
}

#[tokio::test]
async fn a_kubeconfig_in_a_file_is_its_owners_and_has_one_token() {
    use std::os::unix::fs::PermissionsExt as _;

    let place = place().await;
    let path = place.world.path("prod.kubeconfig");
    let file = path.to_str().unwrap();
    let arguments = ["kubeconfig", "--agent", "prod", "--file", file];
    let mut bearers = Vec::new();
    for _ in 0..2 {
        let said = good(&place, "alice", &arguments).await;
        assert_eq!(said, format!("context prod written to {file}\n"));
        assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let config: Value = serde_saphyr::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
        let bearer = config["users"][0]["user"]["token"].as_str().unwrap().to_owned();
        assert_eq!(place.enter(&bearer).await, 200);
        bearers.push(bearer);
    }
    // The first one ended with the file that had it.
    assert_ne!(bearers[0], bearers[1]);
    assert_eq!(place.enter(&bearers[0]).await, 401);
    assert_eq!(place.enter(&bearers[1]).await, 200);

    // Where somebody keeps other contexts, nothing is written, and no token is made.
    let made = place.items("alice", "tokens").await.len();
    let mut others: Value = serde_saphyr::from_str(&std::fs::read_to_string(&path).unwrap()).unwrap();
    others["contexts"].as_array_mut().unwrap().push(json!({"name": "mine"}));
    std::fs::write(&path, others.to_string()).unwrap();
    let (code, text) = bad(&place, "alice", &arguments).await;
    assert_eq!(code, Some(1));
    assert!(
        text.contains("kubeconfig.file: ") && text.contains("would be lost"),
        "{text}"
    );
    assert_eq!(std::fs::read_to_string(&path).unwrap(), others.to_string());
    assert_eq!(place.items("alice", "tokens").await.len(), made);
    assert_eq!(place.enter(&bearers[1]).await, 200);
}

#[tokio::test]
async fn a_token_in_a_file_that_others_read_is_said() {
    use std::os::unix::fs::PermissionsExt as _;

    let place = place().await;
    let path = place.world.path("redirected");
    let sign_in = ["--oidc-issuer", "https://i.example", "--oidc-client-id", "kubectl"];
    for (mode, more, said) in [(0o644, &[][..], true), (0o600, &[], false), (0o644, &sign_in, false)] {
        let output = std::fs::File::create(&path).unwrap();
        std::fs::set_permissions(&path, std::fs::Permissions::from_mode(mode)).unwrap();
        let arguments = [&["kubeconfig", "--agent", "prod"][..], more].concat();
        let mut command = command(&place, "alice", &arguments);
        let running = command.stdout(output).stderr(Stdio::piped()).spawn().unwrap();
        let done = running.wait_with_output().await.unwrap();
        let text = String::from_utf8(done.stderr).unwrap();
        assert!(done.status.success(), "{text}");
        assert_eq!(text.contains("use `--file`"), said, "{mode:o} {more:?}: {text}");
        assert!(!text.contains("tgpat-"));
    }
}
