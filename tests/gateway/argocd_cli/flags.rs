//! Every flag of `argocd appset`, with its command.

use std::time::Instant;

use serde_json::{Value, json};

use super::{CliSetup, Transport, set};

/// What a command prints, and whether it succeeds.
enum Printed<'a> {
    /// It succeeds, and its standard output has all of these.
    Shows(&'a [&'a str]),
    /// It succeeds, and prints exactly these lines.
    Lines(&'a [&'a str]),
    /// It fails, and its standard error has all of these.
    Fails(&'a [&'a str]),
}

use Printed::{Fails, Lines, Shows};

impl CliSetup {
    /// Writes a set to a file, and returns its path.
    fn file_of(&self, set: &Value) -> String {
        let name = set["metadata"]["name"].as_str().unwrap();
        let path = self.home.path().join(format!("{name}.yaml"));
        std::fs::write(&path, set.to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    async fn assert_prints(&self, user: &str, arguments: &[&str], expected: Printed<'_>) {
        let result = self.appset(user, arguments).await;
        match expected {
            Shows(parts) => {
                let result = result.succeeded();
                for part in parts {
                    assert!(result.out.contains(part), "{arguments:?}: no `{part}`: {result:?}");
                }
            }
            Lines(lines) => assert_eq!(
                result.succeeded().out.lines().collect::<Vec<_>>(),
                lines,
                "{arguments:?}"
            ),
            Fails(parts) => result.failed(parts),
        }
    }
}

/// A set with a label, and with parameters of Helm.
fn labelled(name: &str, environment: &str) -> Value {
    let mut set = set(name, &[environment]);
    set["metadata"]["labels"] = json!({"tier": name});
    let parameters = json!([{"name": "replicas", "value": "two"}]);
    set["spec"]["template"]["spec"]["source"]["helm"] = json!({ "parameters": parameters });
    set
}

async fn start() -> CliSetup {
    let cli = CliSetup::start_with(Transport::Plain, &json!({"namespaces": ["team"]})).await;
    for (name, environment) in [("one", "dev"), ("two", "prod")] {
        let file = cli.file_of(&labelled(name, environment));
        cli.appset("alice", &["create", &file]).await.succeeded();
    }
    cli.until_listed(&["argocd/one", "argocd/two"]).await;
    cli
}

#[tokio::test]
async fn the_flags_of_list_and_get() {
    let cli = start().await;
    let file = cli.file_of(&labelled("three", "test"));
    cli.appset("alice", &["create", "-N", "team", &file]).await.succeeded();
    cli.until_listed(&["argocd/one", "team/three", "argocd/two"]).await;
    let columns = [
        "NAME",
        "PROJECT",
        "SYNCPOLICY",
        "HEALTH",
        "CONDITIONS",
        "REPO",
        "PATH",
        "TARGET",
    ];
    for (arguments, expected) in [
        (&["list"][..], Shows(&columns)),
        (
            &["list", "-o", "wide"],
            Shows(&["argocd/one", "shop", "argocd-example-apps.git", "guestbook", "HEAD"]),
        ),
        (
            &["list", "-o", "json"],
            Shows(&["\"name\": \"one\"", "\"name\": \"two\""]),
        ),
        (&["list", "-o", "yaml"], Shows(&["name: one", "name: two"])),
        (&["list", "-o", "table"], Fails(&["unknown output format: table"])),
        (&["list", "-o", "name", "-l", "tier=one"], Lines(&["argocd/one"])),
        (
            &["list", "-o", "name", "--selector", "tier!=one"],
            Lines(&["team/three", "argocd/two"]),
        ),
        (
            &["list", "-o", "name", "-l", "tier in (one,two)"],
            Lines(&["argocd/one", "argocd/two"]),
        ),
        (&["list", "-l", "=="], Fails(&["InvalidArgument"])),
        (
            &["list", "-o", "name", "-p", "shop", "-N", "argocd"],
            Lines(&["argocd/one", "argocd/two"]),
        ),
        (
            &[
                "list",
                "-o",
                "name",
                "--project",
                "other",
                "--project",
                "shop",
                "-l",
                "tier=two",
            ],
            Lines(&["argocd/two"]),
        ),
        (&["list", "-o", "name", "-p", "other"], Lines(&[])),
        (
            &["list", "-o", "name", "--appset-namespace", "team"],
            Lines(&["team/three"]),
        ),
        (&["list", "-o", "name", "-N", "elsewhere"], Lines(&[])),
        (
            &["get", "one"],
            Shows(&["argocd/one", "https://kubernetes.default.svc", "SyncPolicy:"]),
        ),
        (
            &["get", "one", "-o", "wide"],
            Shows(&["argocd/one", "guestbook-{{ .env }}"]),
        ),
        (
            &["get", "one", "-o", "json"],
            Shows(&["\"name\": \"one\"", "\"tier\": \"one\""]),
        ),
        (&["get", "one", "-o", "yaml"], Shows(&["name: one", "tier: one"])),
        (&["get", "one", "-o", "table"], Fails(&["unknown output format: table"])),
        (&["get", "one", "--show-params"], Shows(&["replicas", "two"])),
        (&["get", "three", "-N", "team"], Shows(&["team/three"])),
        (
            &["get", "three", "--appset-namespace", "argocd"],
            Fails(&["NotFound", "three"]),
        ),
        // A qualified name takes precedence.
        (&["get", "team/three", "-N", "argocd"], Shows(&["team/three"])),
        (&["get", "three"], Fails(&["NotFound", "three"])),
        (
            &["get", "three", "-N", "elsewhere"],
            Fails(&["PermissionDenied", "namespace 'elsewhere' is not permitted"]),
        ),
    ] {
        cli.assert_prints("alice", arguments, expected).await;
    }
    for (arguments, expected) in [
        (&["list", "-o", "name", "-l", "tier=one"][..], Lines(&[])),
        (&["list", "-o", "name", "-p", "shop", "-N", "team"], Lines(&[])),
        (
            &["get", "three", "-N", "team", "--show-params"],
            Fails(&["NotFound", "three"]),
        ),
    ] {
        cli.assert_prints("bob", arguments, expected).await;
    }
}

#[tokio::test]
async fn the_flags_of_create_and_generate() {
    let cli = start().await;
    let file = cli.file_of(&labelled("three", "test"));
    let mut placed = labelled("placed", "placed");
    placed["metadata"]["namespace"] = json!("team");
    let placed = cli.file_of(&placed);
    let json = ["\"kind\": \"Application\"", "\"name\": \"guestbook-test\""];
    for (arguments, expected) in [
        (
            &["generate", &file][..],
            Shows(&["NAME", "argocd/guestbook-test", "shop"]),
        ),
        (
            &["generate", &file, "-o", "wide"],
            Shows(&["argocd/guestbook-test", "argocd-example-apps.git"]),
        ),
        (&["generate", &file, "-o", "json"], Shows(&json)),
        (
            &["generate", &file, "-o", "yaml"],
            Shows(&["kind: Application", "name: guestbook-test"]),
        ),
        (
            &["generate", &file, "-o", "table"],
            Fails(&["unknown output format: table"]),
        ),
        (&["generate", &file, "-N", "team"], Shows(&["team/guestbook-test"])),
        (
            &["generate", &file, "--appset-namespace", "elsewhere"],
            Fails(&["namespace 'elsewhere' is not permitted"]),
        ),
        // The file's namespace takes precedence.
        (
            &["generate", &placed, "-N", "elsewhere"],
            Shows(&["team/guestbook-placed"]),
        ),
        (
            &["create", &file, "--dry-run", "-o", "json"],
            Shows(&["\"name\": \"three\"", "\"name\": \"guestbook-test\""]),
        ),
        // A dry run waits for nothing.
        (
            &["create", &file, "--dry-run", "--wait", "-o", "wide"],
            Shows(&["argocd/three"]),
        ),
        (&["create", &file, "-o", "yaml"], Shows(&["name: three", "tier: three"])),
        (&["create", &file, "-o", "wide"], Shows(&["argocd/three"])),
        (
            &["create", &file, "-N", "team"],
            Fails(&["PermissionDenied", "shop/team/three"]),
        ),
        (
            &["create", &placed, "-N", "elsewhere", "-o", "json"],
            Shows(&["\"namespace\": \"team\""]),
        ),
    ] {
        // dave may write sets there, but no Application.
        if arguments == ["create", &file, "-N", "team"] {
            cli.assert_prints("dave", arguments, expected).await;
        } else {
            cli.assert_prints("alice", arguments, expected).await;
        }
    }
    let mut changed = labelled("three", "test");
    changed["metadata"]["labels"] = json!({"tier": "changed"});
    let changed = cli.file_of(&changed);
    cli.assert_prints("alice", &["create", &changed], Fails(&["use upsert flag"]))
        .await;
    cli.assert_prints("carol", &["create", &changed, "--upsert"], Fails(&["PermissionDenied"]))
        .await;
    cli.assert_prints(
        "alice",
        &["create", &changed, "--upsert", "-o", "json"],
        Shows(&["\"tier\": \"changed\""]),
    )
    .await;
}

#[tokio::test]
async fn the_flags_of_delete() {
    let cli = start().await;
    for (name, environment) in [("three", "test"), ("four", "four")] {
        let file = cli.file_of(&labelled(name, environment));
        cli.appset("alice", &["create", "--appset-namespace", "team", &file])
            .await
            .succeeded();
    }
    cli.until_listed(&["team/four", "argocd/one", "team/three", "argocd/two"])
        .await;
    for (user, arguments, expected) in [
        ("carol", &["delete", "one", "-y"][..], Fails(&["PermissionDenied"])),
        ("bob", &["delete", "one", "--yes", "--wait"], Fails(&["NotFound"])),
        ("alice", &["delete", "three", "-y"], Fails(&["NotFound"])),
        (
            "alice",
            &["delete", "three", "-y", "-N", "elsewhere"],
            Fails(&["namespace 'elsewhere' is not permitted"]),
        ),
        (
            "alice",
            &["delete", "three", "-y", "-N", "team"],
            Lines(&["applicationset 'three' deleted"]),
        ),
        // A qualified name takes precedence.
        (
            "alice",
            &["delete", "team/four", "--yes", "--appset-namespace", "argocd"],
            Lines(&["applicationset 'team/four' deleted"]),
        ),
        // Nobody is asked without a terminal.
        (
            "alice",
            &["delete", "one", "two", "--wait"],
            Lines(&["applicationset 'one' deleted", "applicationset 'two' deleted"]),
        ),
    ] {
        cli.assert_prints(user, arguments, expected).await;
    }
    cli.until_listed(&[]).await;
    assert_eq!(cli.applications(), Vec::<String>::new());
}

/// `create --wait` waits for a condition that only a controller writes, and none writes into a
/// folder.
#[tokio::test]
async fn waiting_ends_if_no_controller_runs() {
    for transport in [Transport::Plain, Transport::PlainWeb] {
        let cli = CliSetup::start_with(transport, &json!({"controllerTimeout": "1s"})).await;
        let file = cli.file("guestbooks", &["dev"]);
        let begun = Instant::now();
        let waited = cli.appset("alice", &["create", &file, "--wait"]).await;
        assert!(begun.elapsed().as_millis() >= 1_000, "{waited:?}");
        assert!(waited.err.contains("ApplicationSet 'guestbooks' created"), "{waited:?}");
        waited.failed(&[
            "watch stream closed for ApplicationSet",
            "before reaching ResourcesUpToDate",
        ]);
        assert_eq!(cli.applications(), ["guestbook-dev"]);
    }
}
