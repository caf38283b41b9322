//! Argo CD's own command line against the gateway: `argocd appset`, as its users type
//! it, by gRPC and by gRPC-Web, with TLS and without.
//!
//! Needs the program: `cargo xtask argocd`.

use std::path::{Path, PathBuf};
use std::process::{Output, Stdio};
use std::time::Duration;

use serde_json::{Value, json};
use tokio::process::Command;

use test_support::authority::{Authority, Pair};
use test_support::programs::Argocd;
use test_support::token;
use test_support::world::{CONTROL_PLANE, SESSION_KEY, Setup, World, map, object};

/// alice may all of `shop`; carol may look at its sets and preview; bob may nothing;
/// dave may write sets and nothing they would generate.
const POLICY: &str = "\
p, alice, applicationsets, *, shop/*, allow
p, alice, applications, *, shop/*, allow
p, carol, applicationsets, get, shop/*, allow
p, dave, applicationsets, *, shop/*, allow
p, dave, applications, get, shop/*, allow
p, dave, applications, create, shop/other, allow
";

/// Longest a command may take.
const PATIENCE: Duration = Duration::from_secs(60);

/// How the command line reaches the gateway.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Plain,
    PlainWeb,
    Tls,
    TlsWeb,
}

impl Way {
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

/// A gateway, and a user's home beside it.
struct Desk {
    world: World,
    way: Way,
    home: tempfile::TempDir,
}

/// What a command came to.
#[derive(Debug)]
struct Said {
    code: Option<i32>,
    out: String,
    err: String,
}

impl Said {
    /// Panics unless the command succeeded.
    #[track_caller]
    fn succeeded(self) -> Self {
        assert_eq!(self.code, Some(0), "{self:?}");
        self
    }

    /// Panics unless the command failed and said all of these.
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

impl Desk {
    async fn start(way: Way) -> Self {
        let home = tempfile::tempdir().unwrap();
        let spec = json!({
            "sourceRepos": ["https://github.com/argoproj/argocd-example-apps.git"],
            "destinations": [{"server": "https://kubernetes.default.svc", "namespace": "guestbook-*"}],
        });
        let mut settings = json!({"applicationSets": {}});
        if way.is_encrypted() {
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
            way,
            home,
        }
    }

    /// Runs `argocd appset` as a user.
    async fn appset(&self, user: &str, arguments: &[&str]) -> Said {
        let server = self.world.address().to_string();
        let mut command = Command::new(program());
        command
            .args(["--server", &server, "--auth-token", &token::session(SESSION_KEY, user)])
            .args(self.way.flags())
            .arg("appset")
            .args(arguments)
            .env_clear()
            .env("HOME", self.home.path())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        let ended = tokio::time::timeout(PATIENCE, command.output()).await;
        let Output { status, stdout, stderr } = ended.expect("the command ends").unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Said {
            code: status.code(),
            out: text(stdout),
            err: text(stderr),
        }
    }

    /// A file with the set of these environments.
    fn file(&self, name: &str, environments: &[&str]) -> String {
        let path = self.home.path().join(format!("{name}.yaml"));
        std::fs::write(&path, set(name, environments).to_string()).unwrap();
        path.to_str().unwrap().to_owned()
    }

    /// Names of the sets a user sees.
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

    /// Waits until the gateway shows the set the way it was written.
    async fn until_listed(&self, names: &[&str]) {
        self.world
            .until("the sets to be listed", async || self.names("alice").await == names)
            .await;
    }
}

/// What is built; the text of a panic says how.
fn program() -> PathBuf {
    let found = Argocd::find(Path::new(env!("CARGO_MANIFEST_DIR"))).unwrap().cli;
    assert!(
        found.is_file(),
        "{} is missing: run `cargo xtask argocd`",
        found.display()
    );
    found
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

/// The whole life of a set, as its writer sees it.
async fn lives(way: Way) {
    let desk = Desk::start(way).await;
    let large = desk.file("guestbooks", &["dev", "prod"]);
    let generated = desk.appset("alice", &["generate", &large, "--output", "json"]).await;
    let text = generated.succeeded().out;
    assert!(
        text.contains("guestbook-dev") && text.contains("guestbook-prod"),
        "{text}"
    );
    let dry = ["create", "--dry-run", &large, "--output", "json"];
    let dry = desk.appset("alice", &dry).await.succeeded();
    assert!(
        dry.err.contains("ApplicationSet 'guestbooks' created (dry-run)"),
        "{dry:?}"
    );
    assert_eq!(dry.json()["status"]["resources"].as_array().map(Vec::len), Some(2));
    assert_eq!(
        (desk.names("alice").await, desk.applications()),
        (Vec::new(), Vec::new())
    );

    let small = desk.file("guestbooks", &["dev"]);
    let created = desk.appset("alice", &["create", &small]).await.succeeded();
    assert!(
        created.err.contains("ApplicationSet 'guestbooks' created"),
        "{created:?}"
    );
    assert_eq!(desk.applications(), ["guestbook-dev"]);
    desk.until_listed(&["argocd/guestbooks"]).await;
    let same = desk.appset("alice", &["create", &small]).await.succeeded();
    assert!(same.err.contains("ApplicationSet 'guestbooks' unchanged"), "{same:?}");
    let shown = desk
        .appset("alice", &["get", "guestbooks", "--output", "json"])
        .await
        .succeeded();
    assert_eq!(
        shown.json()["spec"]["generators"][0]["list"]["elements"][0]["env"],
        "dev"
    );
    assert!(
        desk.appset("alice", &["get", "argocd/guestbooks"])
            .await
            .succeeded()
            .out
            .contains("guestbooks")
    );

    let large = desk.file("guestbooks", &["dev", "prod"]);
    desk.appset("alice", &["create", &large])
        .await
        .failed(&["InvalidArgument", "use upsert flag to force update"]);
    assert_eq!(desk.applications(), ["guestbook-dev"]);
    let updated = desk.appset("alice", &["create", "--upsert", &large]).await.succeeded();
    assert!(
        updated.err.contains("ApplicationSet 'guestbooks' updated"),
        "{updated:?}"
    );
    assert_eq!(desk.applications(), ["guestbook-dev", "guestbook-prod"]);

    desk.appset("alice", &["delete", "guestbooks", "--yes"])
        .await
        .succeeded();
    desk.until_listed(&[]).await;
    assert_eq!(desk.applications(), Vec::<String>::new());
    desk.appset("alice", &["get", "guestbooks"])
        .await
        .failed(&["NotFound", "guestbooks"]);
}

/// What those hear who may not.
async fn refuses(way: Way) {
    let desk = Desk::start(way).await;
    let file = desk.file("guestbooks", &["dev", "prod"]);
    for arguments in [
        &["create", &file][..],
        &["create", "--upsert", &file],
        &["create", "--dry-run", &file],
        &["generate", &file],
    ] {
        let refused = desk.appset("bob", arguments).await;
        refused.failed(&["PermissionDenied", "applicationsets"]);
    }
    // dave may write the set, and none of what it makes.
    let refused = desk.appset("dave", &["create", &file]).await;
    refused.failed(&["PermissionDenied", "shop/guestbook-dev", "shop/guestbook-prod"]);
    assert_eq!(
        (desk.names("alice").await, desk.applications()),
        (Vec::new(), Vec::new())
    );

    desk.appset("alice", &["create", &file]).await.succeeded();
    desk.until_listed(&["argocd/guestbooks"]).await;
    assert_eq!(desk.names("bob").await, Vec::<String>::new());
    assert_eq!(desk.names("carol").await, ["argocd/guestbooks"]);
    // Who may not see a set hears what he would without it.
    for arguments in [&["get", "guestbooks"][..], &["delete", "guestbooks", "--yes"]] {
        desk.appset("bob", arguments).await.failed(&["NotFound", "not found"]);
    }
    for (user, arguments) in [
        ("carol", &["delete", "guestbooks", "--yes"][..]),
        ("carol", &["create", "--upsert", &file]),
        ("dave", &["delete", "guestbooks", "--yes"]),
    ] {
        desk.appset(user, arguments).await.failed(&["PermissionDenied"]);
    }
    let stranger = Command::new(program())
        .args(["--server", &desk.world.address().to_string(), "--auth-token", "x.y.z"])
        .args(way.flags())
        .args(["appset", "list"])
        .env_clear()
        .env("HOME", desk.home.path())
        .output()
        .await
        .unwrap();
    let said = String::from_utf8_lossy(&stranger.stderr);
    assert!(!stranger.status.success() && said.contains("Unauthenticated"), "{said}");
    assert_eq!(desk.names("alice").await, ["argocd/guestbooks"]);
    assert_eq!(desk.applications(), ["guestbook-dev", "guestbook-prod"]);
}

#[tokio::test]
async fn a_set_lives_by_every_way_in() {
    for way in Way::ALL {
        lives(way).await;
    }
}

#[tokio::test]
async fn who_may_not_is_told_by_every_way_in() {
    for way in Way::ALL {
        refuses(way).await;
    }
}

/// The command line finds gRPC-Web out by itself, and the server's version.
#[tokio::test]
async fn the_version_is_told() {
    let desk = Desk::start(Way::Plain).await;
    let said = Command::new(program())
        .args(["--server", &desk.world.address().to_string(), "--plaintext"])
        .args(["version", "--output", "json"])
        .env_clear()
        .env("HOME", desk.home.path())
        .output()
        .await
        .unwrap();
    let text = String::from_utf8_lossy(&said.stdout);
    let versions: Value = serde_json::from_str(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    assert!(versions["server"]["Version"].is_string(), "{versions}");
}
