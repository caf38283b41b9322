//! Plugins that edit, refuse or fail real requests.

use serde_json::{Value, json};

use crate::wire::{admin, get, install, many, once, read_head, reason, request, uninstall};
use test_support::backend::{Backend, Reply};
use test_support::client::Client;
use test_support::world::{Setup, World};

/// A misbehavior of the guest `hostile`, and the status and reason that the caller gets.
const HOSTILE: [(&str, u16, &str); 8] = [
    ("loop", 500, "plugin_failed"),
    ("trap", 500, "plugin_failed"),
    ("recurse", 500, "plugin_failed"),
    ("memoryBomb", 500, "plugin_failed"),
    ("forbiddenHeader", 500, "plugin_failed"),
    ("badHeaderValue", 500, "plugin_failed"),
    ("refuseWithOk", 500, "plugin_failed"),
    ("refuse", 451, "refused_by_plugin"),
];

/// A gateway with one extension per name, all at `backend`, and with grants.
async fn world(backend: &Backend, extensions: &[String], grants: Value) -> World {
    let mut setup = Setup::with_backend(backend.address);
    for name in extensions {
        let block = format!("{{services: [{{url: 'http://{}'}}]}}", backend.address);
        setup.argocd_cm.insert(format!("extension.config.{name}"), block);
    }
    setup.settings = json!({"plugins": {"grants": grants}});
    setup.start().await
}

/// Names of the plugins in force.
async fn loaded(world: &World) -> Vec<String> {
    let page: Value = serde_json::from_slice(&admin(world, "/configuration").await.content).unwrap();
    let plugins = page["plugins"].as_array().unwrap().iter();
    plugins
        .map(|plugin| plugin["name"].as_str().unwrap().to_owned())
        .collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hostile_plugin_harms_only_its_own_calls() {
    const GOOD: usize = 10_000;
    let backend = Backend::start(|seen| Reply::ok(seen.line())).await;
    let names: Vec<String> = HOSTILE.iter().map(|(behavior, ..)| behavior.to_lowercase()).collect();
    let sides = [("request", ""), ("response", "-out")];
    let mut extensions = Vec::new();
    let mut grants = serde_json::Map::new();
    for (side, suffix) in sides {
        for ((behavior, ..), name) in HOSTILE.iter().zip(&names) {
            let name = format!("{name}{suffix}");
            let time = if *behavior == "loop" { "50ms" } else { "10s" };
            let grant = json!({"extensions": [name], "config": {side: behavior}, "time": time});
            grants.insert(name.clone(), grant);
            extensions.push(name);
        }
    }
    let world = world(&backend, &extensions, Value::Object(grants)).await;
    for name in &extensions {
        install(&world, "hostile", name);
    }
    world
        .until("all plugins", || async {
            loaded(&world).await.len() == extensions.len()
        })
        .await;

    let hostile = async {
        for (at, name) in extensions.iter().enumerate() {
            let (_, wanted, why) = HOSTILE[at % HOSTILE.len()];
            let answer = once(&world, &get(&format!("{name}/x"), "alice")).await;
            assert_eq!((answer.status, reason(&answer).as_str()), (wanted, why), "{name}");
            assert!(answer.values("x-calls-before").is_empty(), "{name}: {}", answer.head);
        }
    };
    let (seen, ()) = tokio::join!(many(&world, "echo/", "alice", GOOD), hostile);
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [(200, GOOD)]);
    // Calls that fail on the way back reached the backend; calls that fail before did not.
    let asked = backend
        .seen()
        .iter()
        .filter(|seen| seen.line() == "GET /x HTTP/1.1")
        .count();
    assert_eq!(asked, HOSTILE.len());
    assert_eq!(admin(&world, "/readyz").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn plugins_come_change_and_go_without_a_restart() {
    let backend = Backend::start(|seen| match seen.line().contains("/held") {
        true => Reply::Stall(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n".to_vec()),
        false => Reply::ok(""),
    })
    .await;
    let grant = json!({"edit": {"config": {"fallback": "t1"}, "time": "10s"}});
    let world = world(&backend, &[], grant).await;
    let mut client = Client::connect(world.address()).await;
    let untouched = client.exchange(&get("echo/", "alice")).await;
    assert_eq!((untouched.status, untouched.values("x-calls-before").len()), (200, 0));

    install(&world, "tenant-router", "edit");
    world
        .until("the plugin to come", || async { loaded(&world).await == ["edit"] })
        .await;
    assert_eq!(client.exchange(&get("echo/", "alice")).await.status, 200);
    assert_eq!(backend.seen().last().unwrap().values("x-scope-orgid"), ["t1"]);

    install(&world, "hostile", "edit");
    let replaced = || async {
        let answer = once(&world, &get("echo/", "alice")).await;
        assert_eq!(answer.status, 200, "no request fails while a plugin is replaced");
        !answer.values("x-calls-before").is_empty()
    };
    world.until("the plugin to change", replaced).await;
    let seen = backend.seen().last().unwrap().clone();
    assert_eq!(
        (seen.values("x-scope-orgid").len(), seen.values("x-calls-before")),
        (0, vec!["0"])
    );

    uninstall(&world, "edit");
    world
        .until("the plugin to go", || async { loaded(&world).await.is_empty() })
        .await;
    let untouched = client.exchange(&get("echo/", "alice")).await;
    assert_eq!((untouched.status, untouched.values("x-calls-before").len()), (200, 0));
    assert!(backend.seen().last().unwrap().values("x-calls-before").is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_call_ends_with_the_plugin_it_began_with() {
    let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
    let mut setup = Setup::with_backend(listener.local_addr().unwrap());
    setup.plugins = vec!["hostile"];
    setup.settings = json!({"plugins": {"grants": {"hostile": {"time": "10s"}}}});
    let world = setup.start().await;
    let mut client = Client::connect(world.address()).await;
    client.send(&get("echo/", "alice")).await;
    let (mut backend, _) = listener.accept().await.unwrap();
    read_head(&mut backend).await;
    uninstall(&world, "hostile");
    world
        .until("the plugin to go", || async { loaded(&world).await.is_empty() })
        .await;
    tokio::io::AsyncWriteExt::write_all(&mut backend, b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n")
        .await
        .unwrap();
    let answer = client.answer().await.unwrap();
    assert_eq!(
        (answer.status, answer.values("x-calls-before")),
        (200, vec!["0"]),
        "{}",
        answer.head
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn no_plugin_writes_what_the_gateway_owns() {
    let backend = Backend::start(|_| Reply::ok("")).await;
    let extensions = ["sets", "removes", "good"].map(str::to_owned);
    let grant =
        |name: &str, behavior: &str| json!({"extensions": [name], "config": {"request": behavior}, "time": "10s"});
    let grants = json!({
        "sets": grant("sets", "forbiddenHeader"),
        "removes": grant("removes", "forbiddenRemoval"),
        "good": grant("good", "good"),
    });
    let world = world(&backend, &extensions, grants).await;
    for name in &extensions {
        install(&world, "hostile", name);
    }
    world
        .until("all plugins", || async { loaded(&world).await.len() == 3 })
        .await;
    let spoofed = "argocd-username: admin\r\nargocd-user-groups: admins\r\nx-remote-user: admin\r\n\
                   impersonate-user: admin\r\nx-forwarded-for: 1.2.3.4\r\naccept: */*\r\n";
    for name in ["sets", "removes"] {
        let answer = once(&world, &request("GET", &format!("{name}/"), "alice", spoofed)).await;
        assert_eq!(
            (answer.status, reason(&answer).as_str()),
            (500, "plugin_failed"),
            "{name}"
        );
    }
    assert_eq!(backend.connections(), 0, "a spoiled request reaches no backend");

    let answer = once(&world, &request("GET", "good/", "alice", spoofed)).await;
    assert_eq!(answer.status, 200);
    let seen = backend.seen();
    let mut lines: Vec<&str> = seen[0].head.trim_end().split("\r\n").collect();
    lines[1..].sort_unstable();
    let host = format!("host: {}", backend.address);
    let mut wanted = vec![
        "GET / HTTP/1.1",
        "accept: */*",
        "argocd-application-name: argocd:cart",
        "argocd-namespace: argocd",
        "argocd-project-name: shop",
        "argocd-target-cluster-name: in-cluster",
        "argocd-target-cluster-url: https://kubernetes.default.svc",
        "argocd-user-id: alice",
        "argocd-username: alice",
        host.as_str(),
        "via: 1.1 tollgate",
        "x-calls-before: 0",
        "x-forwarded-for: 127.0.0.1",
        "x-forwarded-host: gateway.test",
        "x-forwarded-proto: http",
    ];
    wanted[1..].sort_unstable();
    assert_eq!(lines, wanted);
}

/// The output lines of `tollgate check` that contain `text`, and its exit code.
async fn check(world: &World, text: &str) -> (Vec<String>, Option<i32>) {
    let output = crate::wire::check(world).await;
    let all = String::from_utf8(output.stdout).unwrap();
    let lines = all.lines().filter(|line| line.contains(text)).map(str::to_owned);
    (lines.collect(), output.status.code())
}

#[tokio::test]
async fn a_grant_of_an_unknown_extension_is_reported_at_the_settings() {
    let backend = Backend::start(|_| Reply::ok("")).await;
    for (extensions, lines) in [(json!(["echo", "nope"]), 1), (json!(["echo"]), 0)] {
        let world = world(&backend, &[], json!({"baseline": {"extensions": extensions}})).await;
        install(&world, "baseline", "baseline");
        let (found, code) = check(&world, "plugins.grants.baseline.extensions").await;
        assert_eq!((found.len(), code), (lines, Some(0)), "{found:?}");
        for line in found {
            assert!(
                line.starts_with("::warning ") && line.contains("tollgate.yaml"),
                "{line}"
            );
            assert!(line.contains("names `nope`"), "{line}");
        }
    }
}

#[tokio::test]
async fn mistakes_in_a_grants_config_are_reported_at_the_settings() {
    let backend = Backend::start(|_| Reply::ok("")).await;
    for (guest, wrong, right) in [
        ("tenant-router", json!({"fallback": 5}), json!({"fallback": "t"})),
        (
            "plugin-generator",
            json!({"servers": {}}),
            json!({"servers": {"a": {"baseUrl": "https://a.example"}}}),
        ),
    ] {
        let about = format!("plugins.grants.{guest}.config");
        for (config, is_wrong) in [(wrong, true), (right, false)] {
            let world = world(&backend, &[], json!({guest: {"config": config}})).await;
            install(&world, guest, guest);
            let (found, _) = check(&world, &about).await;
            assert_eq!(found.len(), usize::from(is_wrong), "{guest}: {found:?}");
            for line in found {
                assert!(line.starts_with("::error ") && line.contains("tollgate.yaml"), "{line}");
                assert!(!line.contains(&format!("{guest}.yaml")), "{line}");
            }
        }
    }
}

#[tokio::test]
async fn the_log_says_when_configuration_took_effect_without_a_plugin() {
    const WITHOUT: &str = "configuration took effect without what was refused";
    let backend = Backend::start(|_| Reply::ok("")).await;
    let world = world(&backend, &[], json!({"tenant-router": {"config": {"fallback": 5}}})).await;
    let process = crate::memory::Process::start(&world).await;
    install(&world, "baseline", "baseline");
    let wait = async |text: &str| {
        world.until(text, || async { process.log().contains(text) }).await;
    };
    // The twin: all of the configuration takes effect.
    wait("configuration took effect").await;
    assert!(!process.log().contains(WITHOUT), "{}", process.log());
    install(&world, "tenant-router", "tenant-router");
    install(&world, "baseline", "another");
    wait(WITHOUT).await;
    let log = process.log();
    assert!(log.contains("plugins.grants.tenant-router.config"), "{log}");
}
