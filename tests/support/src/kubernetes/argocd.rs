//! A whole Argo CD for a [`Cluster`]: argocd-server, the controllers, the repo-server, Dex and Redis,
//! each a process of the release that the tests pin; and its CLI.

use std::fs;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::Command;
use tokio::time::{Instant, timeout};
use tokio_tungstenite::connect_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use super::cluster::Cluster;
use super::daemon::Daemon;
use super::kubectl::{Credential, Kubectl, Run};
use super::pod::{Pod, PodNetwork};
use super::{PATIENCE, eventually, node};
use crate::authority::{Authority, Pair};
use crate::port::free_port;
use crate::redis::Redis;

mod projects;

/// The namespace of the control plane, which is also the default of Argo CD's clients.
pub const NAMESPACE: &str = "argocd";

/// The components with an account in the cluster, by its name.
const SERVER: &str = "argocd-server";
const CONTROLLER: &str = "argocd-application-controller";
const APPLICATION_SET_CONTROLLER: &str = "argocd-applicationset-controller";

/// Stands for the program that prints the signature of a commit: the repo-server runs it for every
/// manifest, whether or not a project asks for signatures.
const NO_SIGNATURE: &str = "#!/bin/sh\nexit 0\n";

/// Commands that read.
pub const READS: [&[&str]; 11] = [
    &["account", "list"],
    &["account", "can-i", "sync", "applications", "*"],
    &["proj", "list"],
    &["proj", "get", "default"],
    &["repo", "list"],
    &["cluster", "list"],
    &["cluster", "get", "https://kubernetes.default.svc"],
    &["app", "list"],
    &["appset", "list"],
    &["cert", "list"],
    &["gpg", "list"],
];

/// The Pod in the repository. [`Cluster::start_pod`] lets it appear to run.
pub const POD: &str = "web";

/// The e-mail address of the only person whom the form of Dex knows: see [`with_dex`].
pub const PERSON: &str = "kilgore@kilgore.trout";

/// The password of [`PERSON`].
pub const PERSON_PASSWORD: &str = "a-password-of-tests";

/// How argocd-server is reached.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Wire {
    Plain,
    Tls,
}

/// Adds a Dex to the `data` of `argocd-cm`, with a form where [`PERSON`] signs in.
///
/// - `url`: where people reach Argo CD.
pub fn with_dex(settings: &mut Value, url: &str) {
    let person = json!({"username": PERSON, "password": PERSON_PASSWORD});
    let connector = json!({"type": "mockPassword", "id": "form", "name": "Form", "config": person});
    let config = json!({"connectors": [connector]});
    settings["url"] = json!(url);
    settings["dex.config"] = json!(config.to_string());
}

/// Opens a page that leads to the form of Dex, and sends the form with this password. Returns the
/// page after that; `None` if a server on the way is not reached.
pub async fn fill_in_form(browser: &reqwest::Client, page: &str, password: &str) -> Option<reqwest::Response> {
    let shown = browser.get(page).send().await.ok()?;
    let address = shown.url().clone();
    let text = shown.text().await.ok()?;
    assert!(text.contains("name=\"password\""), "{address} has no form: {text}");
    let mut form = url::form_urlencoded::Serializer::new(String::new());
    let content = form
        .append_pair("login", PERSON)
        .append_pair("password", password)
        .finish();
    let request = browser.post(address).body(content);
    let kind = "application/x-www-form-urlencoded";
    request.header("content-type", kind).send().await.ok()
}

/// A running Argo CD. It ends when the value is dropped.
pub struct ArgoCd {
    address: String,
    authority: Option<String>,
    password: String,
    repository: String,
    // They end in this order.
    server: Option<Daemon>,
    controller: Option<Daemon>,
    _others: Vec<Daemon>,
    redis: Redis,
    layout: Layout,
}

impl ArgoCd {
    /// Starts it in the namespace [`NAMESPACE`] of `cluster`, which has none yet.
    ///
    /// - `settings`: `data` of `argocd-cm`. With `dex.config`, a Dex runs too.
    /// - `session_key`: signs the sessions.
    ///
    /// # Panics
    /// If a program is missing, or does not start. The text has the command that provides it, or
    /// its last log lines.
    pub async fn start(cluster: &Cluster, wire: Wire, settings: &Value, session_key: &str) -> Self {
        Self::start_with_dex(cluster, wire, (settings, session_key), None).await
    }

    /// The same, with argocd-server and the application controller as in pods of the cluster.
    ///
    /// - `authorities`: PEM of those that the pods trust.
    pub async fn start_in_pods(
        cluster: &Cluster,
        settings: &Value,
        session_key: &str,
        pods: (&PodNetwork, &str),
    ) -> Self {
        Self::start_components(cluster, Wire::Plain, (settings, session_key), None, Some(pods)).await
    }

    /// The same with another Dex at this address, which gets what is below `/api/dex/`.
    pub async fn start_with_dex(cluster: &Cluster, wire: Wire, settings: (&Value, &str), dex: Option<&str>) -> Self {
        Self::start_components(cluster, wire, settings, dex, None).await
    }

    async fn start_components(
        cluster: &Cluster,
        wire: Wire,
        (settings, session_key): (&Value, &str),
        dex: Option<&str>,
        pods: Option<(&PodNetwork, &str)>,
    ) -> Self {
        let folder = tempfile::Builder::new().prefix("argocd-").tempdir().unwrap();
        cluster.with_crds().await;
        cluster.admin().succeed(&["create", "namespace", NAMESPACE]).await;
        let authority = Authority::new("argocd-server");
        let Pair { certificate, key } = authority.server(&["127.0.0.1", "localhost"]);
        let secrets = json!({"server.secretkey": session_key, "tls.crt": certificate, "tls.key": key});
        let empty = json!({});
        for object in [
            object("ConfigMap", "argocd-cm", "data", settings),
            object("ConfigMap", "argocd-ssh-known-hosts-cm", "data", &empty),
            object("ConfigMap", "argocd-tls-certs-cm", "data", &empty),
            object("ConfigMap", "argocd-gpg-keys-cm", "data", &empty),
            object("Secret", "argocd-secret", "stringData", &secrets),
        ] {
            cluster.admin().apply(&object.to_string()).await;
        }
        fs::create_dir(folder.path().join("assets")).unwrap();
        let repository = folder.path().join("repository");
        create_repository(&repository).await;
        let redis = Redis::with_password().await;
        let dex_port = free_port();
        let layout = Layout {
            folder,
            accounts: create_accounts(cluster, pods).await,
            redis: redis.address(),
            repo: free_port(),
            dex: dex.map_or_else(|| format!("http://127.0.0.1:{dex_port}"), str::to_owned),
            port: free_port(),
            wire,
        };
        let mut others = layout.start_others();
        if dex.is_none() && settings.get("dex.config").is_some() {
            others.push(layout.start_dex(dex_port).await);
        }
        let mut argocd = Self {
            address: format!("127.0.0.1:{}", layout.port),
            authority: (wire == Wire::Tls).then_some(authority.pem),
            password: String::new(),
            repository: format!("file://{}", repository.display()),
            server: None,
            controller: Some(layout.start_controller()),
            _others: others,
            redis,
            layout,
        };
        argocd.start_server().await;
        argocd.password = initial_password(cluster).await;
        argocd
    }

    /// Kills argocd-server with SIGKILL.
    pub fn kill_server(&mut self) {
        drop(self.server.take());
    }

    /// Starts argocd-server, and waits until it listens.
    pub async fn start_server(&mut self) {
        let server = self.server.insert(self.layout.start_server());
        let address = &self.address;
        eventually("argocd-server listens", async || {
            server.check();
            std::net::TcpStream::connect(address).ok().map(drop)
        })
        .await;
    }

    /// Kills the application controller, and starts another one.
    pub fn restart_controller(&mut self) {
        self.stop_controller();
        self.controller = Some(self.layout.start_controller());
    }

    /// Ends the application controller.
    pub fn stop_controller(&mut self) {
        drop(self.controller.take());
    }

    /// Sets the authorities that argocd-server and the application controller trust, if they are in pods.
    pub fn trust(&self, authorities: &str) {
        let pods = self.layout.accounts.iter().filter_map(|account| account.pod.as_ref());
        pods.for_each(|pod| pod.trust(authorities));
    }

    /// `127.0.0.1:PORT` of argocd-server.
    pub fn address(&self) -> &str {
        &self.address
    }

    /// `http://127.0.0.1:PORT`, or `https` with TLS.
    pub fn url(&self) -> String {
        let scheme = if self.authority.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// PEM of the authority of its certificate; `None` without TLS.
    pub fn authority(&self) -> Option<&str> {
        self.authority.as_deref()
    }

    /// Its Redis, which has [`crate::redis::PASSWORD`].
    pub fn redis(&mut self) -> &mut Redis {
        &mut self.redis
    }

    /// Replaces the RBAC of Argo CD; groups and e-mail addresses are subjects.
    pub async fn permit(cluster: &Cluster, policy: &str) {
        let data = json!({"policy.csv": policy, "scopes": "[groups, email]"});
        let object = object("ConfigMap", "argocd-rbac-cm", "data", &data);
        cluster.admin().apply(&object.to_string()).await;
    }

    /// The password of `admin`.
    pub fn password(&self) -> &str {
        &self.password
    }

    /// Writes a file that argocd-server serves at `/NAME`, as one of its UI.
    pub fn asset(&self, name: &str, content: &str) {
        fs::write(self.layout.assets().join(name), content).unwrap();
    }

    /// URL of a git repository whose folder `app` has a ConfigMap `hello`, and whose folder `pod`
    /// has the Pod [`POD`].
    pub fn repository(&self) -> &str {
        &self.repository
    }
}

/// What the terminal of Argo CD's pages shows after a command was typed that prints `<$POD>`, where POD
/// is namespace and name of the pod.
///
/// - `server`: `127.0.0.1:PORT`.
/// - `session`: a session of Argo CD.
/// - The last are an Application with the Pod [`POD`], its project, and the namespace of the Pod.
pub async fn terminal(server: &str, session: &str, (application, project, namespace): (&str, &str, &str)) -> String {
    let query = format!("pod={POD}&container=main&appName={application}&projectName={project}&namespace={namespace}");
    let query = format!("{query}&shell=sh&appNamespace={NAMESPACE}");
    let mut request = format!("ws://{server}/terminal?{query}").into_client_request().unwrap();
    // As a browser sends them.
    for (name, value) in [
        ("cookie", format!("argocd.token={session}")),
        ("origin", format!("http://{server}")),
    ] {
        request.headers_mut().insert(name, value.parse().unwrap());
    }
    let (mut socket, _) = connect_async(request).await.unwrap();
    let typed = json!({"operation": "stdin", "data": "echo \"<$POD>\"; exit\r"});
    socket.send(Message::text(typed.to_string())).await.unwrap();
    let mut shown = String::new();
    let reading = async {
        while let Some(Ok(message)) = socket.next().await {
            let Message::Text(text) = message else { continue };
            let message: Value = serde_json::from_str(&text).unwrap();
            shown.push_str(message["data"].as_str().unwrap_or_default());
        }
    };
    // The shell ends it.
    timeout(PATIENCE, reading).await.unwrap();
    shown
}

/// Argo CD's CLI with its own home.
pub struct Cli {
    home: TempDir,
    server: String,
    flags: Vec<&'static str>,
}

impl Cli {
    /// The CLI for a server at `127.0.0.1:PORT`.
    ///
    /// - `flags`: how to connect, such as `--plaintext`.
    pub fn new(server: &str, flags: &[&'static str]) -> Self {
        Self {
            home: tempfile::tempdir().unwrap(),
            server: server.to_owned(),
            flags: flags.to_vec(),
        }
    }

    /// Signs in with a password.
    pub async fn login(&self, user: &str, password: &str) -> Run {
        self.execute(&["login", &self.server, "--username", user, "--password", password])
            .await
    }

    /// Signs in with the single sign-on of Argo CD. The CLI listens on port 8085 of loopback for
    /// the redirect, the only one that Argo CD registers at Dex, so one at a time can do this.
    ///
    /// - `visit`: opens the page that the CLI shows.
    pub async fn login_by_browser(&self, visit: impl AsyncFnOnce(String)) -> Run {
        let flags = ["--sso", "--sso-launch-browser=false"];
        let mut command = self.command(&[&["login", &self.server][..], &flags].concat());
        let mut process = command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(process.stdout.take().unwrap()).lines();
        let mut stdout = String::new();
        let mut visit = Some(visit);
        let reading = async {
            while let Some(line) = lines.next_line().await.unwrap() {
                stdout.push_str(&line);
                stdout.push('\n');
                if let Some((_, page)) = line.split_once("preferred browser: ")
                    && let Some(visit) = visit.take()
                {
                    visit(page.trim().to_owned()).await;
                }
            }
        };
        timeout(PATIENCE, reading).await.expect("the sign-in ends");
        let output = process.wait_with_output().await.unwrap();
        Run {
            status: output.status,
            stdout,
            stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
        }
    }

    /// Runs a command as the person who signed in.
    pub async fn run(&self, arguments: &[&str]) -> Run {
        let server = ["--server", &self.server];
        self.execute(&[arguments, &server].concat()).await
    }

    /// Asserts that a command prints the same here as with `other`. What it prints may change
    /// meanwhile: controllers write the state of a cluster, for example.
    ///
    /// # Panics
    /// If the outputs go on to differ.
    pub async fn assert_same_output(&self, other: &Self, command: &[&str]) {
        let mut outputs = [String::new(), String::new()];
        let end = Instant::now() + PATIENCE;
        while Instant::now() < end {
            outputs = [self.succeed(command).await, other.succeed(command).await];
            if outputs[0] == outputs[1] {
                return;
            }
        }
        let [here, there] = outputs;
        panic!("argocd {command:?} differs:\n{here}\n{there}");
    }

    /// Runs a command, which must succeed, and returns the standard output.
    pub async fn succeed(&self, arguments: &[&str]) -> String {
        let run = self.run(arguments).await;
        assert!(
            run.status.success(),
            "argocd {arguments:?}: {}{}",
            run.stdout,
            run.stderr
        );
        run.stdout
    }

    fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(program());
        command
            .args(arguments)
            .args(&self.flags)
            .env_clear()
            .env("HOME", self.home.path())
            // `app diff` runs `diff`.
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdin(Stdio::null())
            .kill_on_drop(true);
        command
    }

    async fn execute(&self, arguments: &[&str]) -> Run {
        let mut command = self.command(arguments);
        // Commands that wait end by themselves after as long as `--timeout` says.
        let ended = timeout(2 * PATIENCE, command.output()).await;
        let output = ended
            .unwrap_or_else(|_| panic!("argocd {arguments:?} does not end"))
            .unwrap();
        let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
        Run {
            status: output.status,
            stdout: text(output.stdout),
            stderr: text(output.stderr),
        }
    }
}

/// Argo CD in one program.
///
/// # Panics
/// If it is not built. The text has the command that builds it.
pub fn program() -> PathBuf {
    let found = crate::programs::Argocd::find(crate::checkout()).unwrap().cli;
    assert!(found.is_file(), "no {}: run `cargo xtask argocd`", found.display());
    found
}

fn object(kind: &str, name: &str, field: &str, data: &Value) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": NAMESPACE,
            // Without the label, Argo CD does not see the object.
            "labels": {"app.kubernetes.io/part-of": "argocd"},
        },
        field: data,
    })
}

/// Creates an account of the cluster for each component that needs one. They may do everything, as
/// Argo CD's manifests have it for a controller.
async fn create_accounts(cluster: &Cluster, pods: Option<(&PodNetwork, &str)>) -> Vec<Account> {
    let binding = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": "argocd"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{
            "apiGroup": "rbac.authorization.k8s.io", "kind": "Group",
            "name": format!("system:serviceaccounts:{NAMESPACE}"),
        }],
    });
    cluster.admin().apply(&binding.to_string()).await;
    let mut accounts = Vec::new();
    for name in [SERVER, CONTROLLER, APPLICATION_SET_CONTROLLER] {
        let token = cluster.service_account(NAMESPACE, name).await;
        // The ApplicationSet controller never enters clusters.
        let pods = pods.filter(|_| name != APPLICATION_SET_CONTROLLER);
        accounts.push(Account {
            name,
            pod: pods.map(|(network, authorities)| network.pod(name, &token, authorities)),
            kubectl: Kubectl::new(cluster.url(), cluster.authority(), Credential::Token(token)),
        });
    }
    accounts
}

/// A component with an account in the cluster.
struct Account {
    name: &'static str,
    /// kubectl as that account.
    kubectl: Kubectl,
    /// The pod in which the component runs, if it runs in one.
    pod: Option<Pod>,
}

/// What the components share.
struct Layout {
    folder: TempDir,
    accounts: Vec<Account>,
    redis: String,
    repo: u16,
    dex: String,
    port: u16,
    wire: Wire,
}

impl Layout {
    fn start_server(&self) -> Daemon {
        let server = [
            format!("--port={}", self.port),
            format!("--insecure={}", self.wire == Wire::Plain),
            format!("--dex-server={}", self.dex),
            format!("--staticassets={}", self.assets().display()),
        ];
        self.component(
            SERVER,
            &[
                &server[..],
                &self.backends(),
                &self.cluster(SERVER),
                &listen(free_port()),
            ]
            .concat(),
        )
    }

    /// The folder of files that argocd-server serves as those of its UI.
    fn assets(&self) -> PathBuf {
        self.folder.path().join("assets")
    }

    fn start_controller(&self) -> Daemon {
        let metrics = [format!("--metrics-port={}", free_port())];
        let arguments = [&self.backends()[..], &self.cluster(CONTROLLER), &metrics].concat();
        self.component(CONTROLLER, &arguments)
    }

    /// Starts everything but argocd-server, the application controller, Dex and Redis.
    fn start_others(&self) -> Vec<Daemon> {
        let sets = [
            format!("--argocd-repo-server=127.0.0.1:{}", self.repo),
            "--webhook-addr=127.0.0.1:0".to_owned(),
            "--metrics-addr=127.0.0.1:0".to_owned(),
            "--probe-addr=127.0.0.1:0".to_owned(),
        ];
        vec![
            self.component(
                APPLICATION_SET_CONTROLLER,
                &[&sets[..], &self.cluster(APPLICATION_SET_CONTROLLER)].concat(),
            ),
            self.component(
                "argocd-repo-server",
                &[
                    &[format!("--port={}", self.repo), format!("--redis={}", self.redis)][..],
                    &listen(free_port()),
                ]
                .concat(),
            ),
        ]
    }

    /// Starts Dex with the configuration that Argo CD makes for it.
    async fn start_dex(&self, port: u16) -> Daemon {
        let configuration = self.folder.path().join("dex.yaml");
        let file = format!("--out={}", configuration.display());
        let mut command = Command::new(program());
        command
            .env("ARGOCD_BINARY_NAME", "argocd-dex")
            .args(["gendexcfg", "--disable-tls", &file])
            .args(self.cluster(SERVER));
        let output = command.output().await.unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let program = crate::programs::dex(crate::checkout()).unwrap();
        assert!(program.is_file(), "no {}: run `cargo xtask argocd`", program.display());
        let arguments = [
            "serve".to_owned(),
            configuration.display().to_string(),
            format!("--web-http-addr=127.0.0.1:{port}"),
            "--grpc-addr=127.0.0.1:0".to_owned(),
            "--telemetry-addr=127.0.0.1:0".to_owned(),
        ];
        let mut dex = Daemon::run("dex", &program, self.folder.path(), &arguments);
        eventually("Dex listens", async || {
            dex.check();
            std::net::TcpStream::connect(("127.0.0.1", port)).ok().map(drop)
        })
        .await;
        dex
    }

    fn account(&self, component: &str) -> Option<&Account> {
        self.accounts.iter().find(|account| account.name == component)
    }

    /// How a component finds the cluster. In a pod it does so by itself.
    fn cluster(&self, component: &str) -> Vec<String> {
        let account = self.account(component).unwrap();
        let file = format!("--kubeconfig={}", account.kubectl.kubeconfig().display());
        let file = account.pod.is_none().then_some(file);
        file.into_iter().chain([format!("--namespace={NAMESPACE}")]).collect()
    }

    fn backends(&self) -> [String; 2] {
        [
            format!("--redis={}", self.redis),
            format!("--repo-server=127.0.0.1:{}", self.repo),
        ]
    }

    fn component(&self, name: &'static str, arguments: &[String]) -> Daemon {
        let folder = self.folder.path().join(name);
        let path = |name: &str| folder.join(name).display().to_string();
        let mut environment = vec![
            ("ARGOCD_BINARY_NAME", name.to_owned()),
            ("ARGOCD_GPG_ENABLED", "false".to_owned()),
            ("REDIS_PASSWORD", crate::redis::PASSWORD.to_owned()),
            ("ARGOCD_SYNC_WAVE_DELAY", "0".to_owned()),
            ("ARGOCD_CLUSTER_CACHE_EVENTS_PROCESSING_INTERVAL", "1ms".to_owned()),
            ("ARGOCD_ASK_PASS_SOCK", path("ask-pass")),
            ("ARGOCD_PLUGINSOCKFILEPATH", path("")),
            ("HOME", path("")),
            ("TMPDIR", path("")),
        ];
        let mut command = vec![program().display().to_string()];
        match self.account(name) {
            Some(Account { pod: Some(pod), .. }) => {
                environment.extend(Pod::environment());
                command = pod.command(&program());
            }
            Some(Account { kubectl, .. }) => environment.extend([
                // The cluster of the kubeconfig is `https://kubernetes.default.svc`.
                ("ARGOCD_FAKE_IN_CLUSTER", "true".to_owned()),
                // The ApplicationSet controller reads the kubeconfig from here.
                ("KUBECONFIG", kubectl.kubeconfig().display().to_string()),
            ]),
            None => {}
        }
        let arguments = [&command[1..], arguments].concat();
        Daemon::run_with(
            name,
            Path::new(&command[0]),
            self.folder.path(),
            (&arguments, &environment),
            |folder| {
                let wrapper = folder.join("git-verify-wrapper.sh");
                fs::write(&wrapper, NO_SIGNATURE).unwrap();
                fs::set_permissions(&wrapper, fs::Permissions::from_mode(0o755)).unwrap();
            },
        )
    }
}

fn listen(metrics: u16) -> [String; 2] {
    ["--address=127.0.0.1".to_owned(), format!("--metrics-port={metrics}")]
}

/// argocd-server writes it on its first start.
async fn initial_password(cluster: &Cluster) -> String {
    use base64::Engine as _;

    let get = ["get", "secret", "argocd-initial-admin-secret", "--namespace", NAMESPACE];
    let get = [&get[..], &["--output=jsonpath={.data.password}"]].concat();
    let encoded = eventually("the password of `admin`", async || {
        let run = cluster.admin().run(&get).await;
        (run.status.success() && !run.stdout.is_empty()).then_some(run.stdout)
    })
    .await;
    let bytes = base64::engine::general_purpose::STANDARD.decode(encoded).unwrap();
    String::from_utf8(bytes).unwrap()
}

async fn create_repository(folder: &Path) {
    let app = folder.join("app");
    fs::create_dir_all(&app).unwrap();
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hello"}, "data": {"a": "1"}});
    fs::write(app.join("hello.yaml"), map.to_string()).unwrap();
    let pod = folder.join("pod");
    fs::create_dir(&pod).unwrap();
    fs::write(pod.join("pod.yaml"), node::pod(POD).to_string()).unwrap();
    let identity = ["-c", "user.name=tests", "-c", "user.email=tests@example.com"];
    for arguments in [
        &["init", "--quiet", "--initial-branch=main"][..],
        &["add", "."],
        &[&identity[..], &["commit", "--quiet", "--message=one"]].concat(),
    ] {
        let status = Command::new("git").args(arguments).current_dir(folder).status().await;
        assert!(status.unwrap().success(), "git {arguments:?}");
    }
}
