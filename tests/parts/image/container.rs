//! Runs the image's program with the image's files and nothing else, as a container runtime would: as
//! its user, with `/proc` and `/dev`, and with settings and `/etc/hosts` put in from outside.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

use serde_json::{Value, json};
use tempfile::{NamedTempFile, TempDir};
use tokio::process::{Child, Command};

use super::{Layout, guests, sources};
use test_support::api_server::Api;
use test_support::backend::{Backend, Reply};
use test_support::checkout;
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::{self, base64, session};
use test_support::world::{application, copy_tree, project};
use xtask::image::{Contents, Sources, write};

/// Folders of libraries, for a program that is linked dynamically.
const LIBRARIES: [&str; 3] = ["/lib", "/lib64", "/usr/lib"];

/// Enters the folder `$1` with what the runtime specification of OCI gives every container on Linux, as
/// the user of the image. A static program reads `/dev/urandom`.
const ENTER: &str = r#"
    root=$1; shift
    for folder in /proc /dev $LIBRARIES; do mount --rbind "$folder" "$root$folder"; done
    exec chroot --userspec=65532:65532 "$root" "$@"
"#;

/// Gives a user who is not root separate users, by `/etc/subuid`.
const USERS: [&str; 3] = ["--user", "--map-root-user", "--map-auto"];

/// An unpacked image.
struct Container {
    root: TempDir,
    entrypoint: Vec<String>,
    command: Vec<String>,
    environment: Vec<String>,
    libraries: &'static [&'static str],
}

impl Container {
    /// Unpacks the gateway's image that `TOLLGATE_IMAGE` names, or one of the program of these tests.
    fn gateway() -> Self {
        static IMAGE: OnceLock<TempDir> = OnceLock::new();
        let make = || image_of(&test_support::tollgate(), Contents::Gateway { guests: &guests() });
        Self::unpack("TOLLGATE_IMAGE", || IMAGE.get_or_init(make).path())
    }

    /// Unpacks the connector's image that `TOLLGATE_CONNECTOR_IMAGE` names, or one of the program of these
    /// tests.
    fn connector() -> Self {
        static IMAGE: OnceLock<TempDir> = OnceLock::new();
        let make = || image_of(&test_support::connector(), Contents::Connector);
        Self::unpack("TOLLGATE_CONNECTOR_IMAGE", || IMAGE.get_or_init(make).path())
    }

    /// Unpacks the image in the folder that the environment variable `given` names, or else one of this build.
    fn unpack(given: &str, of_this_build: impl FnOnce() -> &'static Path) -> Self {
        check_users();
        let given = std::env::var_os(given).map(PathBuf::from);
        let layout = given
            .as_deref()
            .map_or_else(|| Layout::read(of_this_build()), Layout::read);
        let config = &layout.configuration["config"];
        assert_eq!(config["User"], "65532:65532");
        let words = |key: &str| serde_json::from_value(config[key].clone()).unwrap();
        let container = Self {
            root: tempfile::tempdir().unwrap(),
            entrypoint: words("Entrypoint"),
            command: words("Cmd"),
            environment: words("Env"),
            libraries: if given.is_some() { &[] } else { &LIBRARIES },
        };
        tar::Archive::new(&*layout.archive())
            .unpack(container.root.path())
            .unwrap();
        fs::set_permissions(container.root.path(), fs::Permissions::from_mode(0o755)).unwrap();
        container.folder("proc");
        container.folder("dev");
        for library in container.libraries {
            container.folder(library.trim_start_matches('/'));
        }
        container
    }

    fn path(&self, name: &str) -> PathBuf {
        self.root.path().join(name)
    }

    fn folder(&self, name: &str) -> PathBuf {
        let path = self.path(name);
        fs::create_dir_all(&path).unwrap();
        path
    }

    /// A folder that everybody may write to, such as a volume.
    fn volume(&self, name: &str) -> PathBuf {
        let path = self.folder(name);
        fs::set_permissions(&path, fs::Permissions::from_mode(0o777)).unwrap();
        path
    }

    /// The entrypoint with these arguments.
    fn run(&self, arguments: &[String]) -> Command {
        let mut command = Command::new("unshare");
        command
            .args(if is_root() { &[][..] } else { &USERS })
            .args(["--mount", "sh", "-euc", ENTER, "sh"])
            .arg(self.root.path())
            .args(&self.entrypoint)
            .args(arguments)
            .env_clear()
            .envs(self.environment.iter().map(|line| line.split_once('=').unwrap()))
            // For `unshare` and `mount`.
            .env("PATH", std::env::var_os("PATH").unwrap())
            .env("LIBRARIES", self.libraries.join(" "))
            .kill_on_drop(true);
        command
    }

    async fn output(&self, arguments: &[&str]) -> String {
        let arguments: Vec<String> = arguments.iter().map(|&argument| argument.to_owned()).collect();
        let output = self.run(&arguments).output().await.unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {stderr}");
        String::from_utf8(output.stdout).unwrap()
    }
}

fn is_root() -> bool {
    fs::metadata("/proc/self").unwrap().uid() == 0
}

/// Checks that this machine lets these tests be several users, as `chroot --userspec` needs.
fn check_users() {
    if is_root() {
        return;
    }
    let probe = std::process::Command::new("unshare").args(USERS).arg("true").output();
    let probe = probe.expect("`unshare` of util-linux");
    assert!(
        probe.status.success(),
        "{}these tests run the image as the user 65532: run them as root, or give yourself users with \
         `sudo usermod --add-subuids 100000-165535 --add-subgids 100000-165535 \"$(id -un)\"`",
        String::from_utf8_lossy(&probe.stderr)
    );
}

/// A layout with a program of these tests.
fn image_of(program: &Path, contents: Contents<'_>) -> TempDir {
    let folder = tempfile::tempdir().unwrap();
    let stripped = folder.path().join("program");
    // Without what only debuggers read, which is most of it.
    let status = std::process::Command::new("strip")
        .arg(program)
        .arg("-o")
        .arg(&stripped)
        .status();
    assert!(status.unwrap().success());
    let layout = folder.path().join("image");
    let sources = Sources {
        contents,
        ..sources(&stripped, Path::new("/nowhere"))
    };
    write(sources, &layout).unwrap();
    let image = tempfile::tempdir().unwrap();
    copy_tree(&layout, image.path());
    image
}

#[tokio::test]
async fn the_program_runs_and_gives_a_copy_of_itself() {
    let container = Container::gateway();
    let version = container.output(&["--version"]).await;
    assert_eq!(version, format!("tollgate {}\n", env!("CARGO_PKG_VERSION")));
    let shared = container.volume("shared");
    container.output(&["install", "/shared"]).await;
    let copy = fs::read(shared.join("tollgate")).unwrap();
    assert!(copy == fs::read(container.path("usr/bin/tollgate")).unwrap());
    let licenses = fs::read_to_string(container.path("usr/share/doc/tollgate/THIRD_PARTY_LICENSES")).unwrap();
    assert!(licenses.contains("licensed under the Apache License"), "{licenses}");
    // It is no root that could write elsewhere.
    let refused = container
        .run(&["install".to_owned(), "/usr".to_owned()])
        .output()
        .await
        .unwrap();
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("Permission denied"), "{stderr}");
}

/// A gateway in an image's files.
struct Running {
    gateway: String,
    admin: String,
    client: reqwest::Client,
    /// It ends with this.
    _process: Child,
    _log: NamedTempFile,
}

impl Running {
    /// Starts the image's command, with the settings of `deploy/kubernetes` but for what needs a cluster.
    ///
    /// - `configure`: changes the settings.
    async fn start(container: &Container, state: &gateway::Layout, configure: impl FnOnce(&mut Value)) -> Self {
        let settings = checkout().join("deploy/kubernetes/base/tollgate.yaml");
        let mut settings: Value = serde_saphyr::from_str(&fs::read_to_string(settings).unwrap()).unwrap();
        settings.as_object_mut().unwrap().remove("tls").unwrap();
        settings["listen"] = json!("127.0.0.1:0");
        settings["admin"]["listen"] = json!("127.0.0.1:0");
        settings["state"] = json!({"directory": "/etc/tollgate/state", "namespace": "argocd"});
        configure(&mut settings);
        let folder = container.folder("etc/tollgate/settings");
        fs::write(folder.join("tollgate.yaml"), settings.to_string()).unwrap();
        copy_tree(&state.root().join("state"), &container.folder("etc/tollgate/state"));
        // The gateway makes `plugins.cache` in it.
        container.volume("var/cache/tollgate");

        let log = NamedTempFile::new().unwrap();
        let mut process = container
            .run(&container.command)
            .stderr(Stdio::from(log.reopen().unwrap()))
            .spawn()
            .unwrap();
        let fields = eventually("the gateway listens", async || {
            let text = fs::read_to_string(log.path()).unwrap();
            assert!(process.try_wait().unwrap().is_none(), "the gateway ended: {text}");
            let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
            let mut fields = lines.map(|line| line["fields"].clone());
            fields.find(|fields| fields["message"] == "listening")
        })
        .await;
        let url = |key: &str| format!("http://{}", fields[key].as_str().unwrap());
        Self {
            gateway: url("listen"),
            admin: url("admin"),
            client: reqwest::Client::builder().no_proxy().build().unwrap(),
            _process: process,
            _log: log,
        }
    }

    /// Status and body of the answer to a person, or to nobody.
    async fn ask(&self, user: Option<&str>, path: &str) -> (u16, String) {
        let mut request = self
            .client
            .get(format!("{}{path}", self.gateway))
            .header("Argocd-Application-Name", "argocd:cart")
            .header("Argocd-Project-Name", "shop");
        if let Some(user) = user {
            request = request.bearer_auth(session(user));
        }
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    async fn admin(&self, path: &str) -> String {
        let answer = self.client.get(format!("{}{path}", self.admin)).send().await.unwrap();
        assert_eq!(answer.status(), 200, "{path}");
        answer.text().await.unwrap()
    }
}

#[tokio::test]
async fn the_gateway_answers_with_the_policies_and_plugins_of_the_image() {
    let container = Container::gateway();
    let backend = Backend::start(|_| Reply::ok("hello")).await;
    let port = backend.address.port();
    fs::write(container.path("etc/hosts"), "127.0.0.1 backend.internal\n").unwrap();
    let policy = "p, alice, applications, get, shop/*, allow\np, alice, extensions, invoke, *, allow\n";
    let state = gateway::Layout::new(&[], policy);
    let service = |host: &str| format!("{{services: [{{url: 'http://{host}:{port}'}}]}}");
    let config = json!({
        "accounts.alice": "login",
        "accounts.bob": "login",
        "extension.config.echo": service("backend.internal"),
        "extension.config.lost": service("other.internal"),
    });
    state.object("ConfigMap", "argocd-cm", &json!({}), &config);
    state.write(&project("shop", json!([{"server": "*", "namespace": "*"}])));
    state.write(&application("cart", "shop"));
    let running = Running::start(&container, &state, |_| {}).await;

    let echo = "/api/v1/extensions/echo/";
    assert_eq!(running.ask(None, echo).await.0, 401);
    let (status, text) = running.ask(Some("bob"), echo).await;
    assert!(status == 403 && text.contains("permission_denied"), "{status}: {text}");
    assert_eq!(backend.seen().len(), 0);
    assert_eq!(running.ask(Some("alice"), echo).await, (200, "hello".to_owned()));
    assert_eq!(backend.seen()[0].values("argocd-username"), ["alice"]);
    // The twin: a name that is in no file of the image.
    let (status, text) = running.ask(Some("alice"), "/api/v1/extensions/lost/").await;
    assert_eq!((status, backend.seen().len()), (502, 1), "{text}");

    assert_eq!(running.admin("/healthz").await, "ok\n");
    assert_eq!(running.admin("/readyz").await, "ok\n");
    let text = running.admin("/configuration").await;
    for plugin in xtask::image::PLUGINS {
        assert!(text.contains(plugin), "{plugin}: {text}");
    }
}

/// A plugin of the image gets a token for a cluster, by the name of the issuer.
#[tokio::test]
async fn the_gateway_mints_through_a_plugin_of_the_image() {
    let container = Container::gateway();
    fs::write(container.path("etc/hosts"), "127.0.0.1 localhost\n").unwrap();
    let json = |body: Value| {
        (
            200,
            vec![("content-type", "application/json".to_owned())],
            body.to_string(),
        )
    };
    let issuer = Api::start(move |seen| match seen.value("authorization") {
        Some("Bearer r0bot-t0ken") => json(json!({"token": "minted", "expires_in": 3600})),
        _ => (401, Vec::new(), String::new()),
    })
    .await;
    let api = Api::start(|seen| match seen.value("authorization") {
        Some("Bearer minted") => (200, Vec::new(), "welcome".to_owned()),
        _ => (401, Vec::new(), "who?".to_owned()),
    })
    .await;
    fs::write(
        container.folder("etc/tollgate/settings").join("issuer.pem"),
        &issuer.ca_pem,
    )
    .unwrap();
    let port = issuer.address.port();
    let cluster = |name: &str, server: &str, robot: &str| {
        let config = json!({
            "webAPIProviderConfig": {
                "method": "POST", "url": format!("https://localhost:{port}/token"), "tokenPath": "$.token",
                "headers": {"Authorization": "Bearer {{.robot}}"},
                "expiry": {"path": "$.expires_in", "format": "seconds"},
            },
            "tlsClientConfig": {"caData": base64(&api.ca_pem)},
        });
        json!({"name": name, "server": server, "config": config.to_string(), "robot": robot})
    };
    let policy = "p, alice, clusters, get, *, allow\np, alice, clusters, connect, *, allow\n";
    let state = gateway::Layout::new(&["alice", "bob"], policy);
    state.cluster("prod", &cluster("prod", &api.url(), "r0bot-t0ken"));
    state.cluster("stale", &cluster("stale", "https://127.0.0.1:1", "of-yesterday"));
    let host = json!({"host": "localhost", "port": port, "loopback": true, "ca": "/etc/tollgate/settings/issuer.pem"});
    let running = Running::start(&container, &state, |settings| {
        settings["clusters"] = json!({"forward": true});
        settings["plugins"]["grants"]["webapi"]["hosts"] = json!([host]);
    })
    .await;

    let (prod, stale) = ("/clusters/prod/k8s/api", "/clusters/stale/k8s/api");
    let (status, text) = running.ask(Some("bob"), prod).await;
    assert!(status == 403 && text.contains("permission_denied"), "{status}: {text}");
    assert_eq!((issuer.seen().len(), api.seen().len()), (0, 0));
    assert_eq!(running.ask(Some("alice"), prod).await, (200, "welcome".to_owned()));
    assert_eq!((issuer.seen().len(), api.seen().len()), (1, 1));
    // The twin: the issuer refuses.
    let (status, text) = running.ask(Some("alice"), stale).await;
    assert!(status == 502 && text.contains("credential"), "{status}: {text}");
    assert_eq!((issuer.seen().len(), api.seen().len()), (2, 1));
    let minted: Value = serde_json::from_str(&running.admin("/decisions?most=10").await).unwrap();
    let minted = minted.as_array().unwrap().iter().find(|record| record["status"] == 200);
    let provider = minted.unwrap()["credential"]["provider"].as_str().unwrap();
    assert!(provider.starts_with("webapi@sha256:"), "{provider}");
}

/// The connector makes its key, reads its settings, and tries the gateway, with the image's files only.
#[tokio::test]
async fn the_connector_runs_with_the_files_of_its_image() {
    let container = Container::connector();
    let version = container.output(&["--version"]).await;
    assert_eq!(version, format!("tollgate-connector {}\n", env!("CARGO_PKG_VERSION")));
    container.volume("keys");
    let public = container.output(&["key", "/keys/connector.pem"]).await;
    assert!(!public.trim().is_empty());
    let settings = container.folder("etc/tollgate").join("agent.yaml");
    let mut text = json!({
        "gateway": "https://127.0.0.1:1",
        "cluster": "prod",
        "key": "/keys/connector.pem",
        "apiServer": {
            "url": "https://127.0.0.1:2",
            "token": "/etc/tollgate/token",
            "certificateAuthority": "/etc/ssl/certs/ca-certificates.crt",
        },
    });
    fs::write(container.path("etc/tollgate/token"), "of-the-account").unwrap();
    fs::write(&settings, text.to_string()).unwrap();
    let log = NamedTempFile::new().unwrap();
    let mut process = container
        .run(&container.command)
        .stderr(Stdio::from(log.reopen().unwrap()))
        .spawn()
        .unwrap();
    eventually("the connector tries the gateway", async || {
        let text = fs::read_to_string(log.path()).unwrap();
        assert!(process.try_wait().unwrap().is_none(), "the connector ended: {text}");
        let mut lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines.find(|line| {
            line["fields"]["message"] == "the gateway cannot be reached"
                && line["fields"]["gateway"]
                    .as_str()
                    .unwrap()
                    .starts_with("https://127.0.0.1:1")
        })
    })
    .await;
    drop(process);
    // The twin: settings with a key that does not exist.
    text["gatway"] = json!("https://127.0.0.1:1");
    fs::write(&settings, text.to_string()).unwrap();
    let refused = container.run(&container.command).output().await.unwrap();
    let stderr = String::from_utf8_lossy(&refused.stderr);
    assert_eq!(refused.status.code(), Some(1), "{stderr}");
    assert!(stderr.contains("gatway"), "{stderr}");
}
