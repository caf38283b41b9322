//! Edits of configuration files while the gateway runs.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;

use crate::wire::{
    admin, bare, check, findings, get, once, put, put_argocd_cm, put_policy, put_secrets, read_head, reason, status,
    uninstall, wait_broken,
};
use test_support::backend::{Backend, Reply};
use test_support::client::Client;
use test_support::token;
use test_support::world::{SESSION_KEY, Setup, World, map};

/// The default `policy.csv` of [`Setup`].
const POLICY: &str = "p, alice, applications, get, shop/*, allow\np, alice, extensions, invoke, *, allow\n";

async fn hello() -> Backend {
    Backend::start(|_| Reply::ok("hello")).await
}

async fn generation(world: &World) -> u64 {
    let page: Value = serde_json::from_slice(&admin(world, "/configuration").await.content).unwrap();
    page["generation"].as_u64().unwrap()
}

/// Asserts that the mistakes of a file are found at these places, that the last good configuration
/// stays in force, and that `tollgate check` reports the same places.
async fn assert_broken(world: &World, part: &str, places: &[&str]) {
    let before = generation(world).await;
    wait_broken(world, part, true).await;
    world
        .until("the findings", || async { !findings(world).await.is_empty() })
        .await;
    let found = findings(world).await;
    for place in places {
        assert!(
            found.iter().any(|line| line.starts_with(place)),
            "no finding at {place}: {found:#?}"
        );
    }
    assert_eq!(
        status(world, "echo/", "alice").await,
        200,
        "the last good configuration stays"
    );
    assert_eq!(status(world, "echo/", "bob").await, 403, "it still refuses bob");
    if part == "policies" {
        // A refused policy changes nothing. A refused load of objects can still take permissions
        // away, and so make a new generation.
        assert_eq!(generation(world).await, before, "nothing took effect");
    }
    assert!(
        admin(world, "/readyz").await.status == 200,
        "a broken file does not take the gateway out of service"
    );
    let output = check(world).await;
    let text = String::from_utf8(output.stdout).unwrap();
    assert_eq!(output.status.code(), Some(1), "{text}");
    for place in places {
        let (file, line) = place.trim_end_matches(':').rsplit_once(':').unwrap();
        let named = |text: &str| text.contains(&format!("/{file},line={line}")) || (line == "0" && text.contains(file));
        assert!(
            text.lines().any(|text| text.starts_with("::error ") && named(text)),
            "{place} is not in:\n{text}"
        );
    }
}

/// Asserts that the files are valid again and take effect.
async fn assert_mended(world: &World, part: &str) {
    wait_broken(world, part, false).await;
    world
        .until("no findings", || async { findings(world).await.is_empty() })
        .await;
    let output = check(world).await;
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stdout)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_policy_keeps_the_old_one() {
    let backend = hello().await;
    let world = Setup::with_backend(backend.address).start().await;
    let file = "policies/extensions/policy.rego";
    let good = std::fs::read_to_string(world.path(file)).unwrap();
    let lines = good.lines().count();

    put(
        &world,
        file,
        format!("{good}\npermitted if {{\n\tinput.principal.id ==\n}}\n"),
    );
    assert_broken(&world, "policies", &[&format!("policy.rego:{}:", lines + 4)]).await;

    // A correct policy that decides otherwise takes effect.
    let closed = good.replace("\tpermitted\n}", "\tpermitted\n\tinput.request.path != \"/closed\"\n}");
    assert_ne!(closed, good);
    put(&world, file, closed);
    assert_mended(&world, "policies").await;
    assert_eq!(status(&world, "echo/", "alice").await, 200);
    assert_eq!(status(&world, "echo/closed", "alice").await, 403);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failing_case_keeps_the_old_policy() {
    let backend = hello().await;
    let world = Setup::with_backend(backend.address).start().await;
    let file = "policies/extensions/cases.yaml";
    let good = std::fs::read_to_string(world.path(file)).unwrap();
    let line = good.lines().count() + 1;
    put(
        &world,
        file,
        format!("{good}  - note: nobody passes\n    want: {{allow: false}}\n    reason: closed\n"),
    );
    assert_broken(&world, "policies", &[&format!("cases.yaml:{line}:")]).await;
    put(&world, file, good);
    assert_mended(&world, "policies").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn all_mistakes_of_the_state_are_reported() {
    let backend = hello().await;
    let world = Setup::with_backend(backend.address).start().await;
    let objects = "apiVersion: v1\nkind: Secret\nmetadata:\n  name: a\n  namespace: argocd\ndata: everywhere\n---\n\
                   apiVersion: v1\nkind: ConfigMap\nmetadata:\n  namespace: argocd\ndata: {}\n";
    put(&world, "state/100.yaml", objects);
    put(&world, "state/101.yaml", "kind: ConfigMap\nmetadata: {name: [\n");
    assert_broken(&world, "state", &["100.yaml:6:", "100.yaml:11:", "101.yaml:2:"]).await;

    std::fs::remove_file(world.path("state/100.yaml")).unwrap();
    std::fs::remove_file(world.path("state/101.yaml")).unwrap();
    assert_mended(&world, "state").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_plugin_keeps_its_last_version() {
    let backend =
        Backend::start(|_| Reply::Bytes(b"HTTP/1.1 200 OK\r\nx-tenant-debug: 1\r\ncontent-length: 0\r\n\r\n".to_vec()))
            .await;
    let mut setup = Setup::with_backend(backend.address);
    setup.plugins = vec!["tenant-router"];
    setup.settings = json!({"plugins": {"grants": {"tenant-router": {"config": {"fallback": "t1"}, "time": "10s"}}}});
    let world = setup.start().await;
    let good = std::fs::read(world.path("plugins/tenant-router.wasm")).unwrap();
    put(&world, "plugins/tenant-router.wasm", b"\0asm is not all it takes");
    assert_broken(&world, "plugins", &["tenant-router.yaml:4:"]).await;
    let answer = once(&world, &get("echo/", "alice")).await;
    assert!(
        answer.values("x-tenant-debug").is_empty(),
        "the plugin still applies: {}",
        answer.head
    );
    assert_eq!(backend.seen().last().unwrap().values("x-scope-orgid"), ["t1"]);
    put(&world, "plugins/tenant-router.wasm", good);
    assert_mended(&world, "plugins").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_required_plugin_that_goes_away_closes_the_gateway() {
    let backend = hello().await;
    let mut setup = Setup::with_backend(backend.address);
    setup.plugins = vec!["tenant-router"];
    let grant = json!({"config": {"fallback": "t1"}, "time": "10s"});
    setup.settings = json!({"plugins": {"required": ["tenant-router"], "grants": {"tenant-router": grant}}});
    let world = setup.start().await;
    assert_eq!(status(&world, "echo/", "alice").await, 200);
    assert_eq!(admin(&world, "/readyz").await.status, 200);
    let files: Vec<_> = ["wasm", "yaml"]
        .map(|ending| format!("plugins/tenant-router.{ending}"))
        .into();
    let kept: Vec<_> = files
        .iter()
        .map(|file| std::fs::read(world.path(file)).unwrap())
        .collect();

    uninstall(&world, "tenant-router");
    wait_broken(&world, "plugins", true).await;
    let served = backend.seen().len();
    world
        .until("refusals", || async { status(&world, "echo/", "alice").await == 503 })
        .await;
    let refused = once(&world, &get("echo/", "alice")).await;
    assert_eq!((refused.status, reason(&refused).as_str()), (503, "plugin_missing"));
    assert!(
        backend.seen().len() <= served + 1,
        "no refused request reaches the backend"
    );
    let ready = admin(&world, "/readyz").await;
    assert_eq!(ready.status, 503);
    assert!(String::from_utf8(ready.content).unwrap().contains("tenant-router"));

    for (file, bytes) in files.iter().zip(kept) {
        put(&world, file, bytes);
    }
    assert_mended(&world, "plugins").await;
    assert_eq!(status(&world, "echo/", "alice").await, 200);
    assert_eq!(admin(&world, "/readyz").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_edited_policy_csv_takes_effect_on_open_connections() {
    let backend = hello().await;
    let world = Setup::with_backend(backend.address).start().await;
    let mut alice = Client::connect(world.address()).await;
    let mut bob = Client::connect(world.address()).await;
    assert_eq!(alice.exchange(&get("echo/", "alice")).await.status, 200);
    assert_eq!(bob.exchange(&get("echo/", "bob")).await.status, 403);
    let before = generation(&world).await;
    put_policy(&world, &POLICY.replace("alice", "bob"));
    world
        .until("the policy", || async { generation(&world).await > before })
        .await;
    assert_eq!(alice.exchange(&get("echo/", "alice")).await.status, 403);
    assert_eq!(bob.exchange(&get("echo/", "bob")).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_rotated_secret_is_picked_up_and_an_unknown_one_refused() {
    let backend = hello().await;
    let block = |key: &str| {
        format!(
            "{{services: [{{url: 'http://{}', headers: [{{name: X-Token, value: '${key}'}}]}}]}}",
            backend.address
        )
    };
    let mut setup = Setup::with_extension(&block("echo.token"));
    setup.secrets = map(&[("echo.token", "first")]);
    let accounts = setup.argocd_cm.clone();
    let world = setup.start().await;
    assert_eq!(status(&world, "echo/", "alice").await, 200);
    assert_eq!(backend.seen().last().unwrap().values("x-token"), ["first"]);

    put_secrets(&world, &map(&[("echo.token", "second")]));
    let second = || async {
        status(&world, "echo/", "alice").await == 200 && backend.seen().last().unwrap().values("x-token") == ["second"]
    };
    world.until("the second secret", second).await;

    let mut unknown = accounts.clone();
    unknown.insert("extension.config.echo".to_owned(), block("echo.nothing"));
    put_argocd_cm(&world, &unknown);
    assert_broken(&world, "state", &["000.yaml:1:"]).await;
    assert_eq!(
        backend.seen().last().unwrap().values("x-token"),
        ["second"],
        "never the reference itself"
    );
    let found = findings(&world).await.join("\n");
    assert!(found.contains("echo.nothing") && !found.contains("second"), "{found}");
    put_argocd_cm(&world, &accounts);
    assert_mended(&world, "state").await;
}

/// A token of `accounts.alice.tokens`.
fn issued(id: &str) -> String {
    let now = jiff::Timestamp::now().as_second();
    let claims = json!({"iss": "argocd", "sub": "alice:apiKey", "iat": now, "nbf": now, "exp": now + 3600, "jti": id});
    token::sign(SESSION_KEY, &claims)
}

#[tokio::test(flavor = "multi_thread")]
async fn revocations_count_at_once_on_open_connections() {
    let backend = hello().await;
    let mut setup = Setup::with_backend(backend.address);
    setup
        .argocd_cm
        .insert("accounts.alice".to_owned(), "login, apiKey".to_owned());
    let tokens = |ids: &[&str]| {
        let list: Vec<_> = ids.iter().map(|id| json!({"id": id, "iat": 1, "exp": 0})).collect();
        map(&[("accounts.alice.tokens", &Value::from(list).to_string())])
    };
    setup.secrets = tokens(&["one", "two"]);
    let cm = setup.argocd_cm.clone();
    let world = setup.start().await;
    let bearer = |id: &str| bare("GET", "echo/", &format!("authorization: Bearer {}\r\n", issued(id)));
    let (one, two, session) = (bearer("one"), bearer("two"), get("echo/", "alice"));
    let mut client = Client::connect(world.address()).await;
    for request in [&one, &two, &session] {
        assert_eq!(client.exchange(request).await.status, 200);
    }

    let before = generation(&world).await;
    put_secrets(&world, &tokens(&["two"]));
    world
        .until("the revocation", || async { generation(&world).await > before })
        .await;
    let refused = client.exchange(&one).await;
    assert_eq!((refused.status, reason(&refused).as_str()), (401, "token_revoked"));
    assert_eq!(client.exchange(&two).await.status, 200);

    let before = generation(&world).await;
    let mut disabled = cm.clone();
    disabled.insert("accounts.alice.enabled".to_owned(), "false".to_owned());
    put_argocd_cm(&world, &disabled);
    world
        .until("the account to be disabled", || async {
            generation(&world).await > before
        })
        .await;
    assert_eq!(client.exchange(&session).await.status, 401);
    assert_eq!(client.exchange(&two).await.status, 401);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_removed_last_extension_is_gone() {
    let backend = hello().await;
    let setup = Setup::with_backend(backend.address);
    let cm = setup.argocd_cm.clone();
    let world = setup.start().await;
    let mut client = Client::connect(world.address()).await;
    assert_eq!(client.exchange(&get("echo/", "alice")).await.status, 200);
    let without: BTreeMap<_, _> = cm
        .into_iter()
        .filter(|(key, _)| !key.starts_with("extension.config"))
        .collect();
    let before = generation(&world).await;
    put_argocd_cm(&world, &without);
    world
        .until("the removal", || async { generation(&world).await > before })
        .await;
    let answer = client.exchange(&get("echo/", "alice")).await;
    assert_eq!((answer.status, reason(&answer).as_str()), (404, "extension_not_found"));
    assert_eq!(backend.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_stream_survives_reloads_that_are_not_about_it() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let setup = Setup::with_backend(listener.local_addr().unwrap());
    let cm = setup.argocd_cm.clone();
    let world = setup.start().await;
    let mut client = Client::connect(world.address()).await;
    client.send(&get("echo/events", "alice")).await;
    let (mut backend, _) = listener.accept().await.unwrap();
    read_head(&mut backend).await;
    backend
        .write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n5\r\nfirst\r\n")
        .await
        .unwrap();
    assert_eq!(client.head().await.unwrap().status, 200);
    client.through(b"first").await;

    // An unrelated change leaves the stream open; a change that removes its extension ends it.
    let before = generation(&world).await;
    put_policy(&world, &format!("{POLICY}p, bob, applications, get, shop/*, allow\n"));
    world
        .until("the policy", || async { generation(&world).await > before })
        .await;
    backend.write_all(b"6\r\nsecond\r\n").await.unwrap();
    client.through(b"second").await;
    let without: BTreeMap<_, _> = cm
        .into_iter()
        .filter(|(key, _)| !key.starts_with("extension.config"))
        .collect();
    let before = generation(&world).await;
    put_argocd_cm(&world, &without);
    world
        .until("the removal", || async { generation(&world).await > before })
        .await;
    let rest = client.rest().await;
    assert!(!rest.ends_with(b"0\r\n\r\n"), "the client must see that it was cut");
}

/// Each reload drops what was cached for the snapshot before, so frequent changes are read together.
#[tokio::test]
async fn frequent_changes_are_read_together() {
    /// Reloads that may follow each other after a quiet time.
    const BURST: u64 = 2;
    let backend = hello().await;
    let world = Setup::with_backend(backend.address).start().await;
    let before = generation(&world).await;
    let start = std::time::Instant::now();
    let mut number = 0;
    while start.elapsed() < std::time::Duration::from_secs(5) {
        number += 1;
        put_policy(
            &world,
            &format!("{POLICY}p, dave{number}, applications, get, shop/*, allow\n"),
        );
        // Longer than the quiet time, so that each change is signaled by itself.
        tokio::time::sleep(std::time::Duration::from_millis(300)).await;
    }
    let reloads = generation(&world).await - before;
    let allowed = start.elapsed().as_secs() + BURST;
    assert!(number > allowed, "{number} changes show nothing");
    assert!(
        (2..=allowed).contains(&reloads),
        "{reloads} reloads, at most {allowed} are allowed"
    );
}
