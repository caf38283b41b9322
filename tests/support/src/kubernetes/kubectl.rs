//! Runs the real kubectl, isolated from the configuration and environment of the user.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{ExitStatus, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::process::{Child, ChildStdin, ChildStdout, Command};
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::PATIENCE;
use crate::authority::Pair;

/// The credential that kubectl sends.
pub enum Credential {
    /// A client certificate.
    Certificate(Pair),
    /// A bearer token.
    Token(String),
}

/// kubectl with one kubeconfig and its own home.
pub struct Kubectl {
    program: PathBuf,
    home: PathBuf,
    environment: Vec<(String, String)>,
    _owned: Option<TempDir>,
}

/// The protocol of the streams of exec, attach and port-forward.
#[derive(Clone, Copy, Debug)]
pub enum Protocol {
    /// The default of kubectl.
    WebSocket,
    /// The default of older releases, and the fallback when WebSockets fail.
    Spdy,
}

/// The result of a run of kubectl.
#[derive(Debug)]
pub struct Run {
    /// How it ended.
    pub status: ExitStatus,
    /// Its standard output.
    pub stdout: String,
    /// Its standard error.
    pub stderr: String,
}

impl Kubectl {
    /// kubectl for the server at `url`, whose certificate must be of `authority`.
    pub fn new(url: &str, authority: &str, credential: Credential) -> Self {
        let user = match credential {
            Credential::Certificate(Pair { certificate, key }) => json!({
                "client-certificate-data": base64(&certificate),
                "client-key-data": base64(&key),
            }),
            Credential::Token(token) => json!({"token": token}),
        };
        let kubeconfig = json!({
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "test", "cluster": {
                "server": url,
                "certificate-authority-data": base64(authority),
            }}],
            "users": [{"name": "test", "user": user}],
            "contexts": [{"name": "test", "context": {"cluster": "test", "user": "test"}}],
            "current-context": "test",
        });
        Self::with_kubeconfig(&kubeconfig.to_string())
    }

    /// Moves it to the new home folder `home`, which it does not remove.
    pub fn settle(self, home: PathBuf) -> Self {
        fs::create_dir(&home).unwrap();
        fs::copy(self.kubeconfig(), home.join("kubeconfig")).unwrap();
        Self {
            program: self.program,
            home,
            environment: self.environment,
            _owned: None,
        }
    }

    /// Sets the protocol of its streams.
    ///
    /// It still falls back from WebSockets to SPDY. A test of WebSockets must check which protocol
    /// the server received.
    pub fn speak(mut self, protocol: Protocol) -> Self {
        let websockets = matches!(protocol, Protocol::WebSocket).to_string();
        for name in ["KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS"] {
            self.environment.push((name.to_owned(), websockets.clone()));
        }
        self
    }

    /// kubectl with this kubeconfig, YAML or JSON.
    pub fn with_kubeconfig(kubeconfig: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("kubeconfig"), kubeconfig).unwrap();
        Self {
            program: super::programs().join("kubectl"),
            home: home.path().to_owned(),
            environment: Vec::new(),
            _owned: Some(home),
        }
    }

    /// Another program with the same home and kubeconfig. It must not outlive this value, which
    /// removes the home.
    pub fn beside(&self, program: PathBuf) -> Self {
        Self {
            program,
            home: self.home.clone(),
            environment: self.environment.clone(),
            _owned: None,
        }
    }

    /// The kubeconfig, for other clients.
    pub fn kubeconfig(&self) -> PathBuf {
        self.home.join("kubeconfig")
    }

    /// Runs it with `input` as its standard input.
    pub async fn run_with(&self, arguments: &[&str], input: &str) -> Run {
        let mut child = self.command(arguments).spawn().unwrap();
        let mut stdin = child.stdin.take().unwrap();
        let whole = async {
            // A command that reads no input may have ended already.
            let _ = stdin.write_all(input.as_bytes()).await;
            drop(stdin);
            child.wait_with_output().await.unwrap()
        };
        let output = timeout(PATIENCE, whole)
            .await
            .unwrap_or_else(|_| panic!("kubectl {arguments:?} does not end"));
        Run {
            status: output.status,
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Starts a run in the background.
    pub fn start(&self, arguments: &[&str]) -> Running {
        Running::new(self.command(arguments))
    }

    /// Starts a run at a terminal of the program `script` (Debian's bsdutils).
    pub fn start_at_terminal(&self, arguments: &[&str]) -> Running {
        let mut line = self.program.display().to_string();
        for argument in arguments {
            assert!(!argument.contains('\''), "{argument} cannot be quoted");
            line.push_str(&format!(" '{argument}'"));
        }
        let mut command = Command::new("script");
        command.args(["--quiet", "--return", "--command", &line, "/dev/null"]);
        Running::new(self.prepare(command))
    }

    /// A run that has not begun. Its standard streams are pipes, and it is killed when it is dropped.
    pub fn command(&self, arguments: &[&str]) -> Command {
        let mut command = Command::new(&self.program);
        command.args(arguments);
        self.prepare(command)
    }

    fn prepare(&self, mut command: Command) -> Command {
        command
            .env_clear()
            .env("HOME", &self.home)
            .env("KUBECONFIG", self.kubeconfig())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .current_dir(&self.home)
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true);
        command
    }

    /// The folder it runs in.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Runs it.
    pub async fn run(&self, arguments: &[&str]) -> Run {
        self.run_with(arguments, "").await
    }

    /// Runs it, which must succeed, and returns the standard output.
    pub async fn succeed(&self, arguments: &[&str]) -> String {
        let run = self.run(arguments).await;
        assert!(run.status.success(), "{} {arguments:?}: {}", self.name(), run.stderr);
        run.stdout
    }

    /// Runs it, which must fail, and returns the standard error.
    pub async fn fail(&self, arguments: &[&str]) -> String {
        let run = self.run(arguments).await;
        let name = self.name();
        assert!(!run.status.success(), "{name} {arguments:?} succeeds: {}", run.stdout);
        run.stderr
    }

    fn name(&self) -> std::borrow::Cow<'_, str> {
        self.program.file_name().unwrap_or_default().to_string_lossy()
    }

    /// Runs it with `--output=json`, which must succeed.
    pub async fn json(&self, arguments: &[&str]) -> Value {
        let arguments: Vec<&str> = arguments.iter().copied().chain(["--output=json"]).collect();
        serde_json::from_str(&self.succeed(&arguments).await).unwrap()
    }

    /// Applies objects, YAML or JSON.
    pub async fn apply(&self, objects: &str) {
        let run = self.run_with(&["apply", "--filename=-"], objects).await;
        assert!(run.status.success(), "kubectl apply: {}\n{objects}", run.stderr);
    }
}

/// A run in the background. It is killed when the value is dropped.
pub struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    stderr: JoinHandle<String>,
}

impl Running {
    fn new(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut stderr = child.stderr.take().unwrap();
        Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            stderr: tokio::spawn(async move {
                let mut text = Vec::new();
                stderr.read_to_end(&mut text).await.unwrap();
                String::from_utf8_lossy(&text).into_owned()
            }),
            child,
        }
    }

    /// Reads up to the next line of its output that contains `word`; `None` if the output ends
    /// first.
    ///
    /// # Panics
    /// If neither happens in time.
    pub async fn line(&mut self, word: &str) -> Option<String> {
        let look = async {
            loop {
                let mut line = Vec::new();
                self.stdout.read_until(b'\n', &mut line).await.unwrap();
                let line = String::from_utf8_lossy(&line).into_owned();
                if line.is_empty() || line.contains(word) {
                    return Some(line).filter(|line| !line.is_empty());
                }
            }
        };
        timeout(PATIENCE, look)
            .await
            .unwrap_or_else(|_| panic!("the output has no `{word}` and does not end"))
    }

    /// Writes to its standard input.
    pub async fn say(&mut self, text: &str) {
        self.stdin.as_mut().unwrap().write_all(text.as_bytes()).await.unwrap();
    }

    /// Closes its standard input.
    pub fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits until it ends. The result has only the output that was not read before.
    ///
    /// # Panics
    /// If it does not end in time.
    pub async fn end(mut self) -> Run {
        let whole = async {
            let mut rest = Vec::new();
            self.stdout.read_to_end(&mut rest).await.unwrap();
            (rest, self.child.wait().await.unwrap())
        };
        let (rest, status) = timeout(PATIENCE, whole).await.expect("kubectl ends");
        Run {
            status,
            stdout: String::from_utf8_lossy(&rest).into_owned(),
            stderr: self.stderr.await.unwrap(),
        }
    }
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}
