//! Runs the real gateway as a process.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use crate::authority::Authority;
use crate::kubernetes::kubectl::Kubectl;
use crate::kubernetes::network::Network;
use crate::kubernetes::pod::Pod;
use crate::kubernetes::{PATIENCE, eventually};
use crate::record::assert_record;

/// The key that signs the control plane's sessions.
const SESSION_KEY: &str = "a-key-only-tests-know-0123456789abcdef";

/// A running gateway. It ends when the value is dropped.
pub struct Gateway {
    layout: Layout,
    address: SocketAddr,
    admin: SocketAddr,
    process: Child,
}

/// The folder, settings and arguments of a gateway that is not started yet.
pub struct Layout {
    folder: TempDir,
    namespace: String,
    settings: Value,
    arguments: Vec<String>,
    environment: Vec<(String, String)>,
    /// The words before the program's name that put it where it runs.
    surroundings: Vec<String>,
}

impl Layout {
    /// A control plane with these accounts, their permissions (`policy.csv`) and nothing else.
    pub fn new(accounts: &[&str], policy: &str) -> Self {
        Self::new_in("argocd", accounts, policy)
    }

    /// The same for a control plane in another namespace.
    pub fn new_in(namespace: &str, accounts: &[&str], policy: &str) -> Self {
        let folder = tempfile::tempdir().unwrap();
        for name in ["state", "plugins", "policies"] {
            std::fs::create_dir(folder.path().join(name)).unwrap();
        }
        let layout = Self {
            folder,
            namespace: namespace.to_owned(),
            arguments: Vec::new(),
            environment: Vec::new(),
            surroundings: Vec::new(),
            settings: json!({
                "listen": "127.0.0.1:0",
                "admin": {"listen": "127.0.0.1:0"},
                "state": {"directory": "state", "namespace": namespace},
                "policies": {"directory": "policies"},
                "plugins": {"directory": "plugins", "cache": "cache"},
                "authentication": {"argocdSessions": true},
                "decisions": {"file": "decisions.jsonl"},
            }),
        };
        layout.policies("extensions");
        let accounts = accounts.iter().map(|name| (format!("accounts.{name}"), json!("login")));
        layout.object("ConfigMap", "argocd-cm", &json!({}), &accounts.collect());
        layout.object(
            "ConfigMap",
            "argocd-rbac-cm",
            &json!({}),
            &json!({"policy.csv": policy}),
        );
        let key = json!({"server.secretkey": SESSION_KEY});
        layout.object("Secret", "argocd-secret", &json!({}), &key);
        layout
    }

    /// The folder.
    pub fn root(&self) -> &Path {
        self.folder.path()
    }

    /// Adds top-level settings to the default ones.
    pub fn settings(&mut self, more: Value) {
        let Value::Object(more) = more else {
            panic!("not an object: {more}");
        };
        self.settings.as_object_mut().unwrap().extend(more);
    }

    /// Leaves out a setting of the top level.
    pub fn remove_setting(&mut self, name: &str) {
        self.settings.as_object_mut().unwrap().remove(name);
    }

    /// Replaces one setting.
    ///
    /// - `pointer`: JSON Pointer (RFC 6901). The parent of the setting must exist.
    pub fn setting(&mut self, pointer: &str, value: Value) {
        let (above, name) = pointer.rsplit_once('/').unwrap();
        self.settings.pointer_mut(above).unwrap()[name] = value;
    }

    /// Adds flags of `tollgate serve`.
    pub fn arguments(&mut self, more: &[&str]) {
        self.arguments
            .extend(more.iter().map(|argument| (*argument).to_owned()));
    }

    /// Sets an environment variable of the gateway.
    pub fn variable(&mut self, name: &str, value: &str) {
        self.environment.push((name.to_owned(), value.to_owned()));
    }

    /// Runs the gateway in a pod.
    pub fn run_in(&mut self, pod: &Pod) {
        self.surround(pod.command(&crate::tollgate()));
    }

    /// Runs the gateway in a separate network, where it listens at the network's address.
    pub fn run_in_network(&mut self, network: &Network) {
        self.surround(network.command(&crate::tollgate()));
        let address = network.inside().to_string();
        self.tls_for(&["localhost", &address]);
        // Nobody else is there, so it can have the same ports again.
        self.setting("/listen", json!(format!("{address}:8443")));
        self.setting("/admin/listen", json!(format!("{address}:8081")));
    }

    /// Gives the gateway another clock.
    ///
    /// - `shift`: such as `+1d`.
    pub fn run_at(&mut self, shift: &str) {
        self.surroundings.extend(shifted(shift));
    }

    /// - `command`: ends with the program.
    fn surround(&mut self, mut command: Vec<String>) {
        command.pop();
        self.surroundings = command;
    }

    /// A second gateway with the same settings, in a separate folder.
    pub fn replica(&self) -> Self {
        let folder = tempfile::tempdir().unwrap();
        copy(self.root(), folder.path());
        Self {
            folder,
            namespace: self.namespace.clone(),
            settings: self.settings.clone(),
            arguments: self.arguments.clone(),
            environment: self.environment.clone(),
            surroundings: self.surroundings.clone(),
        }
    }

    /// The objects in the state folder so far.
    pub fn objects(&self) -> Vec<Value> {
        let entries = std::fs::read_dir(self.root().join("state")).unwrap();
        let read = |path: PathBuf| serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap();
        entries.map(|entry| read(entry.unwrap().path())).collect()
    }

    /// Undoes [`Self::tls`].
    pub fn without_tls(&mut self) {
        self.remove_setting("tls");
        std::fs::remove_file(self.root().join("gateway-ca.pem")).unwrap();
    }

    /// Copies the shipped policies of a front.
    pub fn policies(&self, front: &str) {
        let shipped = crate::checkout().join("policies").join(front);
        copy(&shipped, &self.root().join("policies").join(front));
    }

    /// Writes a ConfigMap or Secret to the state folder.
    pub fn object(&self, kind: &str, name: &str, labels: &Value, data: &Value) {
        let key = if kind == "Secret" { "stringData" } else { "data" };
        self.write(&json!({
            "apiVersion": "v1", "kind": kind,
            "metadata": {"name": name, "namespace": self.namespace, "labels": labels},
            key: data,
        }));
    }

    /// Writes the Secret of a cluster to the state folder.
    ///
    /// - `data`: `server`, `config` and anything else that the Secret has.
    pub fn cluster(&self, name: &str, data: &Value) {
        let labels = json!({"argocd.argoproj.io/secret-type": "cluster"});
        self.object("Secret", &format!("cluster-{name}"), &labels, data);
    }

    /// Writes an object to the state folder.
    pub fn write(&self, object: &Value) {
        std::fs::write(self.root().join(file_of(object)), object.to_string()).unwrap();
    }

    /// Gives the gateway a certificate. kubectl sends tokens only over TLS.
    pub fn tls(&mut self) {
        self.tls_for(&["127.0.0.1", "localhost"]);
    }

    /// The same for these host names and IP addresses.
    pub fn tls_for(&mut self, names: &[&str]) {
        let authority = Authority::new("gateway");
        let pair = authority.server(names);
        for (name, text) in [
            ("gateway-ca.pem", &authority.pem),
            ("gateway.pem", &pair.certificate),
            ("gateway.key", &pair.key),
        ] {
            std::fs::write(self.root().join(name), text).unwrap();
        }
        self.settings(json!({"tls": {"certificate": "gateway.pem", "key": "gateway.key"}}));
    }

    /// Starts the gateway, which must fail to start, and returns its log.
    pub async fn fail(self) -> String {
        let (mut process, log) = self.spawn();
        let end = tokio::time::timeout(PATIENCE, process.wait()).await;
        let log = std::fs::read_to_string(log).unwrap();
        let status = end
            .unwrap_or_else(|_| panic!("the gateway does not end: {log}"))
            .unwrap();
        assert!(!status.success(), "{log}");
        log
    }

    /// Starts the gateway, which must wait for what it reads, and returns what its log says is missing.
    pub async fn waits_for<T: PartialEq>(self, missing: impl Fn(&str) -> Vec<T>) -> Vec<T> {
        let (_process, log) = self.spawn();
        let mut before = Vec::new();
        // The lines of one report are written one after another.
        eventually("what the gateway waits for", async || {
            let text = std::fs::read_to_string(&log).unwrap();
            let now = missing(&text);
            let is_complete = text.contains("nothing is served yet") && !now.is_empty() && now == before;
            before = now;
            is_complete.then_some(())
        })
        .await;
        before
    }

    /// Starts the gateway and waits until it listens.
    pub async fn start(self) -> Gateway {
        let (process, [address, admin]) = self.listening().await;
        Gateway {
            layout: self,
            address,
            admin,
            process,
        }
    }

    async fn listening(&self) -> (Child, [SocketAddr; 2]) {
        let (mut process, log) = self.spawn();
        let fields = eventually("the gateway listens", async || {
            let text = std::fs::read_to_string(&log).unwrap();
            assert!(process.try_wait().unwrap().is_none(), "the gateway ended: {text}");
            let lines = text.lines().filter_map(|line| serde_json::from_str(line).ok());
            let mut fields = lines.map(|line: Value| line["fields"].clone());
            fields.find(|fields| fields["message"] == "listening")
        })
        .await;
        let address = |key: &str| fields[key].as_str().unwrap().parse().unwrap();
        (process, [address("listen"), address("admin")])
    }

    fn spawn(&self) -> (Child, PathBuf) {
        let settings = self.root().join("tollgate.yaml");
        std::fs::write(&settings, self.settings.to_string()).unwrap();
        let log = self.root().join("log");
        let mut command = self.surroundings.clone();
        command.push(crate::tollgate().display().to_string());
        let process = Command::new(&command[0])
            .args(&command[1..])
            .args(["serve", "--log-json", "--config"])
            .arg(&settings)
            .args(&self.arguments)
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .stdout(Stdio::null())
            .stderr(std::fs::File::create(&log).unwrap())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        (process, log)
    }
}

/// The words before a program that give it another clock.
///
/// They become the program, so that ending the process ends it. `faketime` itself would stay its
/// parent; what it sets is set here. `ld.so` puts the folder of libraries in place of `$LIB`.
pub(super) fn shifted(shift: &str) -> [String; 3] {
    [
        "env".to_owned(),
        "LD_PRELOAD=/usr/$LIB/faketime/libfaketime.so.1".to_owned(),
        format!("FAKETIME={shift}"),
    ]
}

impl Gateway {
    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }

    /// The path of a file or folder of the gateway.
    pub fn path(&self, name: &str) -> PathBuf {
        self.layout.root().join(name)
    }

    /// The objects that `tollgate rbac manifest` prints for its settings.
    pub async fn rbac_manifest(&self, arguments: &[&str], more: &[&str]) -> Vec<Value> {
        let output = Command::new(crate::tollgate())
            .args(["rbac", "manifest"])
            .args(arguments)
            .arg("--config")
            .arg(self.path("tollgate.yaml"))
            .args(more)
            .output()
            .await
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{stderr}");
        let text = String::from_utf8(output.stdout).unwrap();
        let documents = text.split("\n---\n").skip(1);
        documents.map(|text| serde_saphyr::from_str(text).unwrap()).collect()
    }

    /// Number of its process.
    ///
    /// # Panics
    /// It has ended.
    pub fn process(&self) -> u32 {
        self.process.id().unwrap()
    }

    /// Its resident memory in KiB. Source: proc(5), `VmRSS`.
    ///
    /// # Panics
    /// It has ended.
    pub fn memory_kib(&self) -> u64 {
        let status = std::fs::read_to_string(format!("/proc/{}/status", self.process())).unwrap();
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:")).unwrap();
        line.trim().trim_end_matches(" kB").parse().unwrap()
    }

    /// Kills the gateway with SIGKILL and waits until it has ended.
    pub async fn kill(&mut self) {
        self.process.kill().await.unwrap();
    }

    /// Stops the gateway with SIGTERM and waits until it has ended.
    pub async fn stop(&mut self) {
        let process = self.process.id().unwrap().to_string();
        let sent = Command::new("sh").args(["-c", "kill -TERM \"$0\"", &process]).status();
        assert!(sent.await.unwrap().success(), "no process {process}");
        let status = self.process.wait().await.unwrap();
        assert!(status.success(), "{status}");
    }

    /// Starts it again. It has the same address only if its settings name one.
    pub async fn restart(&mut self) {
        (self.process, [self.address, self.admin]) = self.layout.listening().await;
    }

    /// The entries of its log so far.
    pub fn log(&self) -> Vec<Value> {
        lines(&self.path("log"))
    }

    /// Its decision records so far.
    pub fn decisions(&self) -> Vec<Value> {
        lines(&self.path("decisions.jsonl"))
    }

    /// Waits for a decision record. It may be written after its answer was read; the latest counts.
    pub async fn decision(&self, what: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let record = eventually(&format!("the record of {what}"), async || {
            self.decisions().into_iter().rev().find(&wanted)
        })
        .await;
        assert_record(&record);
        record
    }

    /// Waits until it has ended this many exchanges for a reason. Returns when it ended the last of them,
    /// however much later its clients or the test notice.
    pub async fn ended(&self, count: usize, reason: &str) -> jiff::Timestamp {
        let times = eventually(&format!("the records of {count} ends by {reason}"), async || {
            let records = self.decisions();
            let ends = records.iter().map(|record| &record["ended"]);
            let ends = ends.filter(|end| end["reason"] == reason);
            let times: Vec<jiff::Timestamp> = ends.map(|end| end["at"].as_str().unwrap().parse().unwrap()).collect();
            (times.len() >= count).then_some(times)
        })
        .await;
        times.into_iter().max().unwrap()
    }

    /// Replaces an object of its state folder atomically.
    pub fn rewrite(&self, object: &Value) {
        let path = self.path(&file_of(object));
        let partial = path.with_extension("partial");
        std::fs::write(&partial, object.to_string()).unwrap();
        std::fs::rename(partial, path).unwrap();
    }

    /// PEM of the authority of its certificate; `None` without TLS.
    pub fn authority(&self) -> Option<String> {
        std::fs::read_to_string(self.path("gateway-ca.pem")).ok()
    }

    /// `https://127.0.0.1:PORT`, or `http` without TLS.
    pub fn url(&self) -> String {
        let scheme = if self.authority().is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.address)
    }

    /// kubectl for a cluster whose server is reached in tunnels of the gateway, as Argo CD reaches it.
    ///
    /// - `server`: of the cluster.
    /// - `user`: of a kubeconfig.
    pub fn kubectl_through(&self, server: &str, user: &Value) -> Kubectl {
        let cluster = json!({
            "server": server,
            "proxy-url": self.url(),
            "certificate-authority-data": base64(&self.authority().unwrap()),
            "tls-server-name": "localhost",
        });
        Kubectl::with_kubeconfig(&kubeconfig(&cluster, user))
    }

    /// Gets a JSON response of its admin listener.
    pub async fn admin(&self, path: &str) -> Value {
        serde_json::from_str(&self.admin_text(path).await).unwrap()
    }

    /// Gets a response of its admin listener as text.
    pub async fn admin_text(&self, path: &str) -> String {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let answer = client.get(format!("http://{}{path}", self.admin)).send().await.unwrap();
        assert!(answer.status().is_success(), "{path}: {}", answer.status());
        answer.text().await.unwrap()
    }

    /// The status and the text of `/readyz`.
    pub async fn readiness(&self) -> (u16, String) {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let answer = client
            .get(format!("http://{}/readyz", self.admin))
            .send()
            .await
            .unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    }

    /// A client that trusts it and sends no credential.
    pub fn plain_client(&self) -> reqwest::Client {
        self.client_with(reqwest::header::HeaderMap::new())
    }

    /// A client that trusts it and sends a session token of an account of the control plane.
    pub fn client(&self, account: &str) -> reqwest::Client {
        let bearer = format!("Bearer {}", session(account)).parse().unwrap();
        self.client_with([(reqwest::header::AUTHORIZATION, bearer)].into_iter().collect())
    }

    fn client_with(&self, headers: reqwest::header::HeaderMap) -> reqwest::Client {
        let authorities = self.authority();
        let authorities = authorities
            .iter()
            .map(|pem| reqwest::Certificate::from_pem(pem.as_bytes()).unwrap());
        reqwest::Client::builder()
            .no_proxy()
            .tls_certs_only(authorities)
            .default_headers(headers)
            .build()
            .unwrap()
    }
}

/// A kubeconfig with one context.
pub fn kubeconfig(cluster: &Value, user: &Value) -> String {
    json!({
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": "c", "cluster": cluster}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "x", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "x",
    })
    .to_string()
}

/// The file of an object of the state, relative to the gateway's folder.
fn file_of(object: &Value) -> String {
    let (kind, metadata) = (&object["kind"], &object["metadata"]);
    format!("state/{kind}-{}-{}.yaml", metadata["namespace"], metadata["name"]).replace('"', "")
}

/// Parses the complete lines of a file of JSON lines. A missing file has none.
fn lines(path: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(path).unwrap_or_default();
    let whole = text.split_inclusive('\n').filter(|line| line.ends_with('\n'));
    whole.filter_map(|line| serde_json::from_str(line).ok()).collect()
}

/// Copies a folder recursively.
fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let path = entry.unwrap().path();
        let target = to.join(path.file_name().unwrap());
        if path.is_dir() {
            copy(&path, &target);
        } else {
            std::fs::copy(&path, target).unwrap();
        }
    }
}

/// Encodes a text as Base64.
pub fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

/// A session token of an account of the control plane.
pub fn session(user: &str) -> String {
    use jsonwebtoken::{EncodingKey, Header, encode};

    let now = jiff::Timestamp::now().as_second();
    let claims = json!({
        "iss": "argocd", "sub": format!("{user}:login"), "iat": now, "nbf": now, "exp": now + 3600, "jti": "t",
    });
    let key = EncodingKey::from_secret(SESSION_KEY.as_bytes());
    encode(&Header::default(), &claims, &key).unwrap()
}
