//! Real kubectl with the credential helper: through a token's end, offline, after a logout, and with a
//! keyring that is locked. The person is in no directory; a group of the issuer lets them in.

use std::path::PathBuf;
use std::process::Stdio;

use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};
use tokio::process::Command;

use super::command_line::Home;
use super::{Browser, CLIENT, issuer};
use crate::access::fixture::Fixture;
use test_support::kubernetes::kubectl::Kubectl;
use test_support::oidc::Provider;
use test_support::port::free_port;

/// A gateway in front of a real cluster, and a person who is signed in on the command line.
struct Helper {
    fixture: Fixture,
    home: Home,
    _provider: Provider,
    console: String,
    browser: Browser,
    authority: PathBuf,
    kubectl: Kubectl,
}

impl Helper {
    async fn start() -> Self {
        let mut provider = Provider::start();
        let port = free_port();
        let console = format!("https://localhost:{port}");
        provider.ask(&format!("register {CLIENT} {console}"));
        let secret = provider.token(&format!("secret {CLIENT}"));
        let fixture = Fixture::start_with(|layout| {
            std::fs::write(layout.root().join("secret"), &secret).unwrap();
            layout.settings(json!({
                "listen": format!("127.0.0.1:{port}"),
                "console": {"url": console},
                "authentication": {"argocdSessions": true, "jwt": [issuer(&provider.issuer, CLIENT, "sub:")]},
            }));
            layout.setting(
                "/kubernetes/users",
                json!([{"issuer": provider.issuer, "claim": "sub", "is": "username"}, {"issuer": "argocd", "is": "username"}]),
            );
            // The provider's groups are `dev` and `ops`.
            layout.setting(
                "/kubernetes/memberships",
                json!([{"issuer": provider.issuer, "oidcGroup": "corp:dev", "group": "group-2", "role": "developer"}]),
            );
        })
        .await;
        let authority = fixture.gateway.path("gateway-ca.pem");
        let mut browser = Browser::new();
        browser.sign_in(&console, CLIENT, "ann").await;
        Self {
            fixture,
            home: Home::new(),
            _provider: provider,
            console,
            browser,
            authority,
            kubectl: Kubectl::with_kubeconfig("{}"),
        }
    }

    async fn log_in(&mut self, more: &[&str]) {
        let authority = self.authority.to_str().unwrap();
        let more = [&["--certificate-authority", authority], more].concat();
        self.home.log_in_with(&self.console, &mut self.browser, &more).await;
    }

    /// The lines of `tollgate session list` about logins.
    async fn sessions(&self) -> Vec<String> {
        let text = self.home.run(&["session", "list"]).await;
        let lines = text.lines().filter(|line| line.contains("login:"));
        lines.map(str::to_owned).collect()
    }

    async fn write_kubeconfig(&self) {
        self.home
            .run(&["kubeconfig", "--agent", "agent-people", "--write"])
            .await;
    }

    /// Runs kubectl as the person, with their own kubeconfig.
    async fn kubectl(&self, arguments: &[&str]) -> (bool, String, String) {
        let output = self.kubectl_command(arguments).output().await.unwrap();
        (
            output.status.success(),
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
        )
    }

    fn kubectl_command(&self, arguments: &[&str]) -> Command {
        let program = test_support::tollgate();
        let programs = format!("{}:/usr/bin:/bin", program.parent().unwrap().display());
        let person = self.home.command(&[]);
        let mut command = self.kubectl.command(arguments);
        for (name, value) in person.as_std().get_envs() {
            command.env(name, value.unwrap_or_default());
        }
        command
            .arg(format!("--namespace={}", self.fixture.home))
            .env("PATH", programs)
            .env_remove("KUBECONFIG")
            .stdin(Stdio::null());
        command
    }

    /// The file in which the helper keeps its token, and what is in it.
    fn kept(&self) -> (PathBuf, Value) {
        let folder = self.home.path(".cache/tollgate");
        let mut entries = std::fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
        let path = entries.find(|path| path.extension().is_none()).unwrap();
        let text = std::fs::read_to_string(&path).unwrap();
        (path, serde_json::from_str(&text).unwrap())
    }

    /// Has the kept token end `seconds` from now, as far as the helper can tell.
    fn ends_in(&self, seconds: i64) {
        let (path, mut kept) = self.kept();
        let at = Timestamp::now() + SignedDuration::from_secs(seconds);
        kept["expiresAt"] = json!(at);
        std::fs::write(path, kept.to_string()).unwrap();
    }
}

#[tokio::test]
async fn kubectl_gets_tokens_by_the_login_and_renews_them() {
    use std::os::unix::fs::PermissionsExt as _;

    let mut helper = Helper::start().await;
    helper.log_in(&[]).await;
    // Her browser's login and this one, though neither entered a cluster yet.
    let sessions = helper.sessions().await;
    assert_eq!(sessions.len(), 2, "{sessions:?}");
    helper.write_kubeconfig().await;
    let config = helper.home.path(".kube/config");
    let text = std::fs::read_to_string(&config).unwrap();
    assert!(
        !text.contains("tgkube-") && !text.contains("tglogin-") && !text.contains("token:"),
        "{text}"
    );

    let (_, pods, errors) = helper.kubectl(&["get", "pods"]).await;
    assert!(pods.contains("pod"), "{pods} {errors}");
    let (_, who, _) = helper.kubectl(&["auth", "whoami"]).await;
    assert!(
        who.contains("gitlab:user:sub:ann") && who.contains("gitlab:group_role:2:developer"),
        "{who}"
    );
    // What she may not do in the cluster is the cluster's to say.
    let (done, _, errors) = helper.kubectl(&["get", "nodes"]).await;
    assert!(
        !done && errors.contains("nodes is forbidden: User \"gitlab:user:sub:ann\""),
        "{errors}"
    );

    // In the console it is hers, and nobody else's.
    let decisions = format!("{}/api/v1/decisions?front=kubernetes", helper.console);
    let hers = helper.browser.open(&decisions).await.text;
    assert!(
        hers.contains("\"username\":\"sub:ann\"") && hers.contains("\"resource\":\"nodes\""),
        "{hers}"
    );
    let mut bens = Browser::new();
    bens.sign_in(&helper.console, CLIENT, "ben").await;
    assert_eq!(bens.open(&decisions).await.text, "{\"items\":[]}");

    let (path, first) = helper.kept();
    assert_eq!(std::fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
    // It is used again until a minute before its end, and then renewed.
    helper.ends_in(120);
    assert!(helper.kubectl(&["get", "pods"]).await.0);
    assert_eq!(helper.kept().1["bearer"], first["bearer"]);
    helper.ends_in(30);
    assert!(helper.kubectl(&["get", "pods"]).await.0);
    let second = helper.kept().1;
    assert_ne!(second["bearer"], first["bearer"]);
    let lifetime = second["expiresAt"].as_str().unwrap().parse::<Timestamp>().unwrap() - Timestamp::now();
    let lifetime = lifetime.total(jiff::Unit::Second).unwrap();
    assert!((840.0..=900.0).contains(&lifetime), "{lifetime}");

    // It is for this one agent, and not for the API.
    let client = helper.fixture.gateway.plain_client();
    let bearer = second["bearer"].as_str().unwrap();
    let api = client
        .get(format!("{}/api/v1/agents", helper.console))
        .bearer_auth(bearer);
    assert_ne!(api.send().await.unwrap().status(), 200);
    let other = bearer.replacen("9999", "10000", 1);
    let other = client
        .get(format!("{}/k8s-proxy/api", helper.console))
        .bearer_auth(other);
    assert_eq!(other.send().await.unwrap().status(), 401);

    // What entered the cluster is listed once, with its agent.
    let used = helper.sessions().await;
    assert_eq!(used.len(), 2, "{used:?}");
    let at_work: Vec<_> = used.iter().filter(|line| line.contains("agent-people")).collect();
    let id = at_work[0]
        .split_whitespace()
        .find(|word| word.starts_with("login:"))
        .unwrap();
    assert!(
        at_work.len() == 1 && sessions.iter().any(|line| line.contains(id)),
        "{used:?} {sessions:?}"
    );

    // Nobody but she sees or ends her browser's login.
    let ben = Home::new();
    let authority = ["--certificate-authority", helper.authority.to_str().unwrap()];
    ben.log_in_with(&helper.console, &mut bens, &authority).await;
    assert!(ben.fail(&["session", "revoke", id]).await.contains("session_not_found"));
    let seen = ben.run(&["session", "list"]).await;
    assert!(
        seen.matches("login:").count() == 2 && sessions.iter().all(|line| !seen.contains(line)),
        "{seen}"
    );
    let other = sessions.iter().find(|line| !line.contains(id)).unwrap();
    let other = other
        .split_whitespace()
        .find(|word| word.starts_with("login:"))
        .unwrap();
    helper.home.run(&["session", "revoke", other]).await;
    assert_eq!(helper.sessions().await.len(), 1);
    let unknown = "login:00000000-0000-7000-8000-000000000000";
    assert!(
        helper
            .home
            .fail(&["session", "revoke", unknown])
            .await
            .contains("session_not_found")
    );

    // The login ends, and with it what kubectl has open and every token.
    let mut watching = helper.kubectl_command(&["get", "pods", "--watch"]);
    let mut watching = watching.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
    tokio::time::sleep(std::time::Duration::from_secs(1)).await;
    assert!(watching.try_wait().unwrap().is_none());
    helper.home.run(&["logout"]).await;
    tokio::time::timeout(std::time::Duration::from_secs(5), watching.wait())
        .await
        .expect("the watch goes on")
        .unwrap();
    let (done, _, errors) = helper.kubectl(&["get", "pods"]).await;
    assert!(!done && errors.contains("`tollgate login` makes one"), "{errors}");
    let late = client
        .get(format!("{}/k8s-proxy/api", helper.console))
        .bearer_auth(bearer);
    assert_eq!(late.send().await.unwrap().status(), 401);
}

#[tokio::test]
async fn offline_kubectl_says_why_it_has_no_token() {
    let mut helper = Helper::start().await;
    helper.log_in(&[]).await;
    helper.write_kubeconfig().await;
    assert!(helper.kubectl(&["get", "pods"]).await.0);
    helper.fixture.gateway.stop().await;
    // The last minute of a token is better than nothing.
    helper.ends_in(30);
    let (done, _, errors) = helper.kubectl(&["get", "pods"]).await;
    assert!(
        !done && errors.contains("was refused") && !errors.contains("exec"),
        "{errors}"
    );
    helper.ends_in(-1);
    let (done, _, errors) = helper.kubectl(&["get", "pods"]).await;
    assert!(
        !done && errors.contains("cannot be reached: Connection refused"),
        "{errors}"
    );
}

/// With a real keyring, that of GNOME, on a separate message bus.
#[tokio::test]
async fn a_locked_keyring_is_named() {
    let mut helper = Helper::start().await;
    let bus = Bus::start(&helper.home);
    bus.unlock("a password").await;
    helper.log_in(&["--store", "keyring"]).await;
    assert!(!helper.home.path(".config/tollgate/credentials").exists());
    helper.write_kubeconfig().await;
    let (done, _, errors) = helper.kubectl(&["get", "pods"]).await;
    assert!(done, "{errors}");
    bus.lock().await;
    let (done, _, errors) = helper.kubectl(&["get", "pods"]).await;
    assert!(
        !done && errors.contains("the keyring") && errors.contains("unlock it"),
        "{errors}"
    );
}

/// A session bus with GNOME's keyring. Commands of the person use it.
struct Bus {
    _daemon: tokio::process::Child,
    address: String,
    home: PathBuf,
}

impl Bus {
    fn start(home: &Home) -> Self {
        let socket = home.path("bus");
        let address = format!("unix:path={}", socket.display());
        let daemon = Command::new("dbus-daemon")
            .args(["--session", "--nofork", "--nopidfile", "--address", &address])
            .kill_on_drop(true)
            .spawn()
            .expect("dbus-daemon is missing: run `cargo xtask setup`");
        std::fs::write(
            home.path("environment"),
            format!("DBUS_SESSION_BUS_ADDRESS={address}\n"),
        )
        .unwrap();
        while !socket.exists() {
            std::thread::sleep(std::time::Duration::from_millis(20));
        }
        Self {
            _daemon: daemon,
            address,
            home: home.path(""),
        }
    }

    fn command(&self, program: &str) -> Command {
        let mut command = Command::new(program);
        command
            .env("DBUS_SESSION_BUS_ADDRESS", &self.address)
            .env("HOME", &self.home)
            .env("XDG_RUNTIME_DIR", &self.home)
            .kill_on_drop(true);
        command
    }

    /// Starts the keyring, or unlocks it.
    async fn unlock(&self, password: &str) {
        use tokio::io::AsyncWriteExt as _;

        let mut keyring = self.command("gnome-keyring-daemon");
        let mut keyring = keyring
            .args(["--unlock", "--components=secrets"])
            .stdin(Stdio::piped())
            .stdout(Stdio::null())
            .spawn()
            .expect("gnome-keyring-daemon is missing: run `cargo xtask setup`");
        keyring
            .stdin
            .take()
            .unwrap()
            .write_all(password.as_bytes())
            .await
            .unwrap();
        assert!(keyring.wait().await.unwrap().success());
    }

    async fn lock(&self) {
        let locked = self
            .command("dbus-send")
            .args([
                "--session",
                "--print-reply",
                "--dest=org.freedesktop.secrets",
                "/org/freedesktop/secrets",
            ])
            .args([
                "org.freedesktop.Secret.Service.Lock",
                "array:objpath:/org/freedesktop/secrets/collection/login",
            ])
            .output()
            .await
            .unwrap();
        assert!(locked.status.success(), "{locked:?}");
    }
}
