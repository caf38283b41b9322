//! The real kubectl, with nothing of the user's.

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

/// What kubectl shows a server.
pub enum Credential {
    /// A client certificate.
    Certificate(Pair),
    /// A bearer token.
    Token(String),
}

/// kubectl with one kubeconfig and a home of its own.
pub struct Kubectl {
    program: PathBuf,
    home: PathBuf,
    environment: Vec<(String, String)>,
    _owned: Option<TempDir>,
}

/// How streams of exec, attach and port-forward travel.
#[derive(Clone, Copy, Debug)]
pub enum Protocol {
    /// What kubectl does unless told otherwise.
    WebSocket,
    /// What it did before, and does when WebSockets do not get through.
    Spdy,
}

/// What a run of kubectl left.
#[derive(Debug)]
pub struct Run {
    /// How it ended.
    pub status: ExitStatus,
    /// Its output.
    pub stdout: String,
    /// Its complaints.
    pub stderr: String,
}

impl Kubectl {
    /// One for the server at `url`, which must show a certificate of `authority`.
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

    /// This one, at home in a folder that somebody else removes.
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

    /// This one, with one protocol for its streams.
    ///
    /// It still falls back from WebSockets to SPDY: who asserts the first looks at
    /// what arrived.
    pub fn speak(mut self, protocol: Protocol) -> Self {
        let websockets = matches!(protocol, Protocol::WebSocket).to_string();
        for name in ["KUBECTL_REMOTE_COMMAND_WEBSOCKETS", "KUBECTL_PORT_FORWARD_WEBSOCKETS"] {
            self.environment.push((name.to_owned(), websockets.clone()));
        }
        self
    }

    /// One with a whole kubeconfig, YAML or JSON.
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

    /// Another program in this one's home, with its kubeconfig; for as long as this
    /// one lives.
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
            // A command that reads no input may be gone already.
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

    /// A run that goes on beside the test.
    pub fn start(&self, arguments: &[&str]) -> Running {
        Running::new(self.command(arguments))
    }

    /// A run at a terminal, of `script` (Debian's bsdutils).
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

    fn command(&self, arguments: &[&str]) -> Command {
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

    /// Where it runs.
    pub fn home(&self) -> &Path {
        &self.home
    }

    /// Runs it.
    pub async fn run(&self, arguments: &[&str]) -> Run {
        self.run_with(arguments, "").await
    }

    /// Runs what must succeed; gives the output.
    pub async fn succeed(&self, arguments: &[&str]) -> String {
        let run = self.run(arguments).await;
        assert!(run.status.success(), "{} {arguments:?}: {}", self.name(), run.stderr);
        run.stdout
    }

    /// Runs what must fail; gives the complaint.
    pub async fn fail(&self, arguments: &[&str]) -> String {
        let run = self.run(arguments).await;
        let name = self.name();
        assert!(!run.status.success(), "{name} {arguments:?} succeeds: {}", run.stdout);
        run.stderr
    }

    fn name(&self) -> std::borrow::Cow<'_, str> {
        self.program.file_name().unwrap_or_default().to_string_lossy()
    }

    /// Runs what must succeed with `--output=json`.
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

/// A run that has not ended; dropped it is killed.
pub struct Running {
    child: Child,
    stdin: Option<ChildStdin>,
    stdout: BufReader<ChildStdout>,
    stderr: JoinHandle<String>,
}

impl Running {
    fn new(mut command: Command) -> Self {
        let mut child = command.spawn().unwrap();
        let mut complaints = child.stderr.take().unwrap();
        Self {
            stdin: child.stdin.take(),
            stdout: BufReader::new(child.stdout.take().unwrap()),
            stderr: tokio::spawn(async move {
                let mut text = Vec::new();
                complaints.read_to_end(&mut text).await.unwrap();
                String::from_utf8_lossy(&text).into_owned()
            }),
            child,
        }
    }

    /// The next line of its output that has `word`; none when the output ends before.
    ///
    /// # Panics
    /// There is neither in time.
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
            .unwrap_or_else(|_| panic!("neither `{word}` nor an end of the output"))
    }

    /// Types something.
    pub async fn say(&mut self, text: &str) {
        self.stdin.as_mut().unwrap().write_all(text.as_bytes()).await.unwrap();
    }

    /// Closes its input.
    pub fn hang_up(&mut self) {
        self.stdin = None;
    }

    /// Whether it still runs.
    pub fn runs(&mut self) -> bool {
        self.child.try_wait().unwrap().is_none()
    }

    /// Waits for its end; gives what output was not read, with the rest.
    ///
    /// # Panics
    /// It does not end in time.
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
