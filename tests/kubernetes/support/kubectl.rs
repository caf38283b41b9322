//! The real kubectl, with nothing of the user's.

use std::fs;
use std::path::PathBuf;
use std::process::{ExitStatus, Stdio};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::AsyncWriteExt as _;
use tokio::process::Command;
use tokio::time::timeout;

use super::PATIENCE;
use super::authority::Pair;

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
    _owned: Option<TempDir>,
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
            _owned: None,
        }
    }

    /// One with a whole kubeconfig, YAML or JSON.
    pub fn with_kubeconfig(kubeconfig: &str) -> Self {
        let home = tempfile::tempdir().unwrap();
        fs::write(home.path().join("kubeconfig"), kubeconfig).unwrap();
        Self {
            program: super::programs().join("kubectl"),
            home: home.path().to_owned(),
            _owned: Some(home),
        }
    }

    /// The kubeconfig, for other clients.
    pub fn kubeconfig(&self) -> PathBuf {
        self.home.join("kubeconfig")
    }

    /// Runs it with `input` as its standard input.
    pub async fn run_with(&self, arguments: &[&str], input: &str) -> Run {
        let mut child = Command::new(&self.program)
            .args(arguments)
            .env_clear()
            .env("HOME", &self.home)
            .env("KUBECONFIG", self.kubeconfig())
            .env("PATH", std::env::var_os("PATH").unwrap_or_default())
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped())
            .kill_on_drop(true)
            .spawn()
            .unwrap();
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

    /// Runs it.
    pub async fn run(&self, arguments: &[&str]) -> Run {
        self.run_with(arguments, "").await
    }

    /// Runs what must succeed; gives the output.
    pub async fn succeed(&self, arguments: &[&str]) -> String {
        let run = self.run(arguments).await;
        assert!(run.status.success(), "kubectl {arguments:?}: {}", run.stderr);
        run.stdout
    }

    /// Runs what must fail; gives the complaint.
    pub async fn fail(&self, arguments: &[&str]) -> String {
        let run = self.run(arguments).await;
        assert!(!run.status.success(), "kubectl {arguments:?} succeeds: {}", run.stdout);
        run.stderr
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

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}
