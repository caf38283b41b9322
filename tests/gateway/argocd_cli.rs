//! Argo CD's own command line against the gateway: `argocd appset` over gRPC and gRPC-Web, with and
//! without TLS.
//!
//! The tests need the program: `cargo xtask argocd`.

mod flags;

use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;

use test_support::authority::{Authority, Pair};
use test_support::kubernetes::argocd::program;
use test_support::token;
use test_support::world::{CONTROL_PLANE, SESSION_KEY, Setup, World, map, object};

/// In `shop`, alice may do everything; carol may read sets; dave may write sets, but not the
/// Applications that the tests generate. bob has no permissions.
const POLICY: &str = "\
p, alice, applicationsets, *, shop/*, allow
p, alice, applications, *, shop/*, allow
p, carol, applicationsets, get, shop/*, allow
p, dave, applicationsets, *, shop/*, allow
p, dave, applications, get, shop/*, allow
p, dave, applications, create, shop/other, allow
";

/// How long a command may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How the command line connects to the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Transport {
    Plain,
    PlainWeb,
    Tls,
    TlsWeb,
}

impl Transport {
    const ALL: [Self; 4] = [Self::Plain, Self::PlainWeb, Self::Tls, Self::TlsWeb];

    fn flags(self) -> &'static [&'static str] {
        match self {
            Self::Plain => &["--plaintext"],
            Self::PlainWeb => &["--plaintext", "--grpc-web"],
            Self::Tls => &["--insecure"],
            Self::TlsWeb => &["--insecure", "--grpc-web"],
        }
    }

    fn is_encrypted(self) -> bool {
        matches!(self, Self::Tls | Self::TlsWeb)
    }
}

/// A gateway, and the home folder of a user of the command line.
struct CliSetup {
    world: World,
    transport: Transport,
    home: tempfile::TempDir,
}

/// The result of a command.
#[derive(Debug)]
struct CommandResult {
    code: Option<i32>,
    out: String,
    err: String,
}

impl CommandResult {
    /// Panics unless the command succeeded.
    #[track_caller]
    fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Panics unless the command failed and its standard error contains all of these.
    #[track_caller]
    fn failed(self, parts: &[&str]) {
        assert_ne!(self.code, Some(0), "{self:?}");
        for part in parts {
            assert!(self.err.contains(part), "no `{part}`: {self:?}");
        }
    }

    fn json(&self) -> Value {
        serde_json::from_str(&self.out).unwrap_or_else(|error| panic!("{error}: {self:?}"))
    }
}

impl CliSetup {
    async fn start(transport: Transport) -> Self {
        Self::start_with(transport, &json!({})).await
    }

    /// - `settings`: those of `applicationSets`.
    async fn start_with(transport: Transport, settings: &Value) -> Self {
        let home = tempfile::tempdir().unwrap();
        let spec = json!({
            "sourceRepos": ["https://github.com/argoproj/argocd-example-apps.git"],
            "destinations": [{"server": "https://kubernetes.default.svc", "namespace": "guestbook-*"}],
            "sourceNamespaces": ["team"],
        });
        let mut settings = json!({ "applicationSets": settings });
        if transport.is_encrypted() {
            let Pair { certificate, key } = Authority::new("tests").server(&["127.0.0.1"]);
            let path = |name: &str| home.path().join(name);
            std::fs::write(path("tls.crt"), certificate).unwrap();
            std::fs::write(path("tls.key"), key).unwrap();
            settings["tls"] = json!({"certificate": path("tls.crt"), "key": path("tls.key")});
        }
        let accounts = ["alice", "bob", "carol", "dave"];
        let setup = Setup {
            argocd_cm: accounts
                .map(|name| (format!("accounts.{name}"), "login".to_owned()))
                .into_iter()
                .collect(),
            rbac_cm: map(&[("policy.csv", POLICY)]),
            objects: vec![object(
                "argoproj.io/v1alpha1",
                "AppProject",
                "shop",
                CONTROL_PLANE,
                json!({"spec": spec}),
            )],
            settings,
            ..Setup::default()
        };
        Self {
            world: setup.start().await,
            transport,
            home,
        }
    }

    /// Runs `argocd appset` as a user.
    async fn appset(&self, user: &str, arguments: &[&str]) -> CommandResult {
        let server = self.world.address().to_string();
        let mut command = Command::new(program());
        command
            .args(["--server", &server, "--auth-token", &token::session(SESSION_KEY, user)])
            .args(self.transport.flags())
            .arg("appset")
            .args(arguments)
            .env_clear()
            .env("HOME", self.home.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let ended = tokio::time::timeout(PATIENCE, command.output()).await;
        let Output { status, stdout, stderr } = ended.expect("the command ends").unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        CommandResult {
            code: status.code(),
            out: text(stdout),
            err: text(stderr),
        }
    }

    /// Writes a set for these environments to a file, and returns its path.
    fn file(&self, name: &str, environments: &[&str]) -> String {
        let path = self.home.path().join(format!("{name}.yaml"));
        std::fs::write(&path, set(name, environments).to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Names of the sets that a user sees.
    async fn names(&self, user: &str) -> Vec<String> {
        let listed = self.appset(user, &["list", "--output", "name"]).await.succeeded();
        listed.out.lines().map(str::to_owned).collect()
    }

    /// Names of the Applications in the state folder.
    fn applications(&self) -> Vec<String> {
        let mut names = Vec::new();
        for entry in std::fs::read_dir(self.world.path("state")).unwrap() {
            let text = std::fs::read_to_string(entry.unwrap().path()).unwrap_or_default();
            let documents: Vec<Value> = serde_saphyr::from_multiple(&text).unwrap_or_default();
            let named = documents.iter().filter(|document| document["kind"] == "Application");
            names.extend(named.map(|document| document["metadata"]["name"].as_str().unwrap().to_owned()));
        }
        names.sort();
        names
    }

    /// Waits until the gateway lists exactly these sets.
    async fn until_listed(&self, names: &[&str]) {
        self.world
            .until("the sets to be listed", async || self.names("alice").await == names)
            .await;
    }
}

/// A set with an Application for each environment.
fn set(name: &str, environments: &[&str]) -> Value {
    let elements: Vec<Value> = environments.iter().map(|env| json!({ "env": env })).collect();
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet",
        "metadata": {"name": name},
        "spec": {
            "goTemplate": true,
            "generators": [{"list": {"elements": elements}}],
            "template": {
                "metadata": {"name": "guestbook-{{ .env }}"},
                "spec": {
                    "project": "shop",
                    "source": {
                        "repoURL": "https://github.com/argoproj/argocd-example-apps.git",
                        "targetRevision": "HEAD", "path": "guestbook",
                    },
                    "destination": {
                        "server": "https://kubernetes.default.svc", "namespace": "guestbook-{{ .env }}",
                    },
                },
            },
        },
    })
}

/// Creates, reads, updates and deletes a set.
async fn assert_life_cycle(transport: Transport) {
    let cli = CliSetup::start(transport).await;
    let large = cli.file("guestbooks", &["dev", "prod"]);
    let generated = cli.appset("alice", &["generate", &large, "--output", "json"]).await;
    let text = generated.succeeded().out;
    assert!(
        text.contains("guestbook-dev") && text.contains("guestbook-prod"),
        "{text}"
    );
    let dry = ["create", "--dry-run", &large, "--output", "json"];
    let dry = cli.appset("alice", &dry).await.succeeded();
    assert!(
        dry.err.contains("ApplicationSet 'guestbooks' created (dry-run)"),
        "{dry:?}"
    );
    assert_eq!(dry.json()["status"]["resources"].as_array().map(Vec::len), Some(2));
    assert_eq!((cli.names("alice").await, cli.applications()), (Vec::new(), Vec::new()));

    let small = cli.file("guestbooks", &["dev"]);
    let created = cli.appset("alice", &["create", &small]).await.succeeded();
    assert!(
        created.err.contains("ApplicationSet 'guestbooks' created"),
        "{created:?}"
    );
    assert_eq!(cli.applications(), ["guestbook-dev"]);
    cli.until_listed(&["argocd/guestbooks"]).await;
    let same = cli.appset("alice", &["create", &small]).await.succeeded();
    assert!(same.err.contains("ApplicationSet 'guestbooks' unchanged"), "{same:?}");
    let shown = cli
        .appset("alice", &["get", "guestbooks", "--output", "json"])
        .await
        .succeeded();
    assert_eq!(
        shown.json()["spec"]["generators"][0]["list"]["elements"][0]["env"],
        "dev"
    );
    assert!(
        cli.appset("alice", &["get", "argocd/guestbooks"])
            .await
            .succeeded()
            .out
            .contains("guestbooks")
    );

    let large = cli.file("guestbooks", &["dev", "prod"]);
    cli.appset("alice", &["create", &large])
        .await
        .failed(&["InvalidArgument", "use upsert flag to force update"]);
    assert_eq!(cli.applications(), ["guestbook-dev"]);
    let updated = cli.appset("alice", &["create", "--upsert", &large]).await.succeeded();
    assert!(
        updated.err.contains("ApplicationSet 'guestbooks' updated"),
        "{updated:?}"
    );
    assert_eq!(cli.applications(), ["guestbook-dev", "guestbook-prod"]);

    cli.appset("alice", &["delete", "guestbooks", "--yes"])
        .await
        .succeeded();
    cli.until_listed(&[]).await;
    assert_eq!(cli.applications(), Vec::<String>::new());
    cli.appset("alice", &["get", "guestbooks"])
        .await
        .failed(&["NotFound", "guestbooks"]);
}

/// Runs commands that the gateway must refuse.
async fn assert_refusals(transport: Transport) {
    let cli = CliSetup::start(transport).await;
    let file = cli.file("guestbooks", &["dev", "prod"]);
    for arguments in [
        &["create", &file][..],
        &["create", "--upsert", &file],
        &["create", "--dry-run", &file],
        &["generate", &file],
    ] {
        let refused = cli.appset("bob", arguments).await;
        refused.failed(&["PermissionDenied", "applicationsets"]);
    }
    // dave may write the set, but none of the Applications that it generates.
    let refused = cli.appset("dave", &["create", &file]).await;
    refused.failed(&["PermissionDenied", "shop/guestbook-dev", "shop/guestbook-prod"]);
    assert_eq!((cli.names("alice").await, cli.applications()), (Vec::new(), Vec::new()));

    cli.appset("alice", &["create", &file]).await.succeeded();
    cli.until_listed(&["argocd/guestbooks"]).await;
    assert_eq!(cli.names("bob").await, Vec::<String>::new());
    assert_eq!(cli.names("carol").await, ["argocd/guestbooks"]);
    // A caller who may not see a set gets the same answer as if it did not exist.
    for arguments in [&["get", "guestbooks"][..], &["delete", "guestbooks", "--yes"]] {
        cli.appset("bob", arguments).await.failed(&["NotFound", "not found"]);
    }
    for (user, arguments) in [
        ("carol", &["delete", "guestbooks", "--yes"][..]),
        ("carol", &["create", "--upsert", &file]),
        ("dave", &["delete", "guestbooks", "--yes"]),
    ] {
        cli.appset(user, arguments).await.failed(&["PermissionDenied"]);
    }
    let stranger = Command::new(program())
        .args(["--server", &cli.world.address().to_string(), "--auth-token", "x.y.z"])
        .args(transport.flags())
        .args(["appset", "list"])
        .env_clear()
        .env("HOME", cli.home.path())
        .output()
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&stranger.stderr);
    assert!(!stranger.status.success() && text.contains("Unauthenticated"), "{text}");
    assert_eq!(cli.names("alice").await, ["argocd/guestbooks"]);
    assert_eq!(cli.applications(), ["guestbook-dev", "guestbook-prod"]);
}

#[tokio::test]
async fn sets_are_created_updated_and_deleted_over_every_transport() {
    for transport in Transport::ALL {
        assert_life_cycle(transport).await;
    }
}

#[tokio::test]
async fn refusals_are_reported_over_every_transport() {
    for transport in Transport::ALL {
        assert_refusals(transport).await;
    }
}

/// The command line detects gRPC-Web by itself.
#[tokio::test]
async fn the_version_command_shows_the_servers_version() {
    let cli = CliSetup::start(Transport::Plain).await;
    let output = Command::new(program())
        .args(["--server", &cli.world.address().to_string(), "--plaintext"])
        .args(["version", "--output", "json"])
        .env_clear()
        .env("HOME", cli.home.path())
        .output()
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&output.stdout);
    let versions: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert!(versions["server"]["Version"].is_string(), "{versions}");
}
