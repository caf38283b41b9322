//! Agents of clusters, as processes.

use std::path::{Path, PathBuf};
use std::process::Stdio;

use serde_json::{Value, json};
use tokio::process::{Child, Command};

use super::eventually;
use super::gateway::{Gateway, shifted};

/// A process of an agent. It is killed when the value is dropped.
pub struct AgentProcess {
    pub process: Child,
    log: PathBuf,
}

/// How an agent reaches its API server.
#[derive(Clone, Copy, Debug)]
pub struct ApiServer<'a> {
    pub url: &'a str,
    /// PEM.
    pub authority: &'a str,
    pub token: &'a str,
}

/// Makes a key in the file `key.pem` of a folder, and returns its public half.
pub async fn make_key(folder: &Path) -> String {
    let key = Command::new(crate::connector())
        .args(["key"])
        .arg(folder.join("key.pem"))
        .output();
    let output = key.await.unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

impl AgentProcess {
    /// Starts an agent with the key `key.pem` of a folder.
    ///
    /// - `more`: further settings.
    pub fn with_key(folder: &Path, gateway: &Gateway, api: ApiServer<'_>, more: &Value) -> Self {
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        write("token", api.token);
        write("api.pem", api.authority);
        write("gateway.pem", &gateway.authority().unwrap());
        let mut settings = json!({
            "gateway": gateway.url(), "certificateAuthority": "gateway.pem", "cluster": "destination", "key": "key.pem",
            "apiServer": {"url": api.url, "certificateAuthority": "api.pem", "token": "token"},
        });
        for (key, value) in more.as_object().unwrap() {
            settings[key] = value.clone();
        }
        write("agent.yaml", &settings.to_string());
        Self::start(folder)
    }

    /// Starts an agent with the settings `agent.yaml` of a folder.
    pub fn start(folder: &Path) -> Self {
        Self::spawn(Command::new(crate::connector()), folder)
    }

    /// The same with another clock.
    ///
    /// - `shift`: such as `+1d`.
    pub fn start_at(shift: &str, folder: &Path) -> Self {
        let [program, arguments @ ..] = shifted(shift);
        let mut command = Command::new(program);
        command.args(arguments).arg(crate::connector());
        Self::spawn(command, folder)
    }

    fn spawn(mut command: Command, folder: &Path) -> Self {
        let log = folder.join("log");
        let process = command
            .args(["run", "--log", "info,tollgate_agent=debug", "--config"])
            .arg(folder.join("agent.yaml"))
            .stderr(Stdio::from(std::fs::File::create(&log).unwrap()))
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        Self { process, log }
    }

    /// What it wrote so far.
    pub fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    /// Waits until it wrote this.
    pub async fn until_logged(&self, text: &str) {
        eventually(&format!("the agent logs `{text}`"), async || {
            self.log().contains(text).then_some(())
        })
        .await;
    }
}
