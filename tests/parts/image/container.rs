//! Runs the image's program with the image's files and nothing else, as a container runtime would: as
//! its user, with `/proc` and `/dev`, and with settings and `/etc/hosts` put in from outside.

use std::fs;
use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _};
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::sync::OnceLock;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use super::{Layout, guests, sources};
use test_support::backend::{Backend, Reply};
use test_support::checkout;
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::{self, session};
use test_support::world::{application, copy_tree, project};
use xtask::image::write;

/// Folders of libraries, for a program that is linked dynamically.
const LIBRARIES: [&str; 3] = ["/lib", "/lib64", "/usr/lib"];

/// Enters the folder `$1` with what the runtime specification of OCI gives every container on Linux, as
/// the user of the image. A static program reads `/dev/urandom`.
const ENTER: &str = r#"
    root=$1; shift
    for folder in /proc /dev $LIBRARIES; do mount --rbind "$folder" "$root$folder"; done
    exec chroot --userspec=65532:65532 "$root" "$@"
"#;

/// Gives whoever is not root users of their own, by `/etc/subuid`.
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
    /// Unpacks the image of `TOLLGATE_IMAGE`, or one of the program of these tests.
    fn unpack() -> Self {
        let given = std::env::var_os("TOLLGATE_IMAGE").map(PathBuf::from);
        let layout = Layout::read(given.as_deref().unwrap_or_else(|| image_of_this_build()));
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
        let is_root = fs::metadata("/proc/self").unwrap().uid() == 0;
        let mut command = Command::new("unshare");
        command
            .args(if is_root { &[][..] } else { &USERS })
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

/// A layout with the program of these tests.
fn image_of_this_build() -> &'static Path {
    static IMAGE: OnceLock<TempDir> = OnceLock::new();
    IMAGE
        .get_or_init(|| {
            let folder = tempfile::tempdir().unwrap();
            let program = folder.path().join("program");
            // Without what only debuggers read, which is most of it.
            let stripped = std::process::Command::new("strip")
                .arg(test_support::tollgate())
                .arg("-o")
                .arg(&program)
                .status();
            assert!(stripped.unwrap().success());
            let layout = folder.path().join("image");
            write(sources(&program, &guests()), &layout).unwrap();
            let image = tempfile::tempdir().unwrap();
            copy_tree(&layout, image.path());
            image
        })
        .path()
}

#[tokio::test]
async fn the_program_runs_and_gives_a_copy_of_itself() {
    let container = Container::unpack();
    let version = container.output(&["--version"]).await;
    assert_eq!(version, format!("tollgate {}\n", env!("CARGO_PKG_VERSION")));
    let shared = container.volume("shared");
    container.output(&["install", "/shared"]).await;
    let copy = fs::read(shared.join("tollgate")).unwrap();
    assert!(copy == fs::read(container.path("usr/bin/tollgate")).unwrap());
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

/// With the settings of `deploy/kubernetes`, but for what needs a cluster.
#[tokio::test]
async fn the_gateway_answers_with_the_policies_and_plugins_of_the_image() {
    let container = Container::unpack();
    let backend = Backend::start(|_| Reply::ok("hello")).await;
    let port = backend.address.port();
    fs::write(container.path("etc/hosts"), "127.0.0.1 backend.internal\n").unwrap();
    let settings = checkout().join("deploy/kubernetes/base/tollgate.yaml");
    let mut settings: Value = serde_saphyr::from_str(&fs::read_to_string(settings).unwrap()).unwrap();
    settings.as_object_mut().unwrap().remove("tls").unwrap();
    settings["listen"] = json!("127.0.0.1:0");
    settings["admin"]["listen"] = json!("127.0.0.1:0");
    settings["state"] = json!({"directory": "/etc/tollgate/state", "namespace": "argocd"});
    let folder = container.folder("etc/tollgate/settings");
    fs::write(folder.join("tollgate.yaml"), settings.to_string()).unwrap();
    // The gateway makes `plugins.cache` in it.
    container.volume("var/cache/tollgate");

    let policy = "p, alice, applications, get, shop/*, allow\np, alice, extensions, invoke, echo, allow\n";
    let state = gateway::Layout::new(&[], policy);
    let echo = format!("{{services: [{{url: 'http://backend.internal:{port}'}}]}}");
    let config = json!({"accounts.alice": "login", "accounts.bob": "login", "extension.config.echo": echo});
    state.object("ConfigMap", "argocd-cm", &json!({}), &config);
    state.write(&project("shop", json!([{"server": "*", "namespace": "*"}])));
    state.write(&application("cart", "shop"));
    copy_tree(&state.root().join("state"), &container.folder("etc/tollgate/state"));

    let log = tempfile::NamedTempFile::new().unwrap();
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
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let ask = async |user: Option<&str>| {
        let url = format!("http://{}/api/v1/extensions/echo/", fields["listen"].as_str().unwrap());
        let mut request = client
            .get(url)
            .header("Argocd-Application-Name", "argocd:cart")
            .header("Argocd-Project-Name", "shop");
        if let Some(user) = user {
            request = request.bearer_auth(session(user));
        }
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    assert_eq!(ask(None).await.0, 401);
    let (status, text) = ask(Some("bob")).await;
    assert!(status == 403 && text.contains("permission_denied"), "{status}: {text}");
    assert_eq!(backend.seen().len(), 0);
    assert_eq!(ask(Some("alice")).await, (200, "hello".to_owned()));
    assert_eq!(backend.seen()[0].values("argocd-username"), ["alice"]);

    let admin = format!("http://{}/configuration", fields["admin"].as_str().unwrap());
    let configuration: Value = client.get(admin).send().await.unwrap().json().await.unwrap();
    let text = configuration.to_string();
    for plugin in xtask::image::PLUGINS {
        assert!(text.contains(plugin), "{plugin}: {text}");
    }
}
