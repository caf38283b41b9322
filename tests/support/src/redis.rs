//! A real Redis server that ends with the tests, however they end.

use std::path::{Path, PathBuf};

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::net::TcpStream;

use crate::authority::{Authority, Pair};
use crate::kubernetes::daemon::Daemon;
use crate::kubernetes::eventually;
use crate::port::free_port;

/// The password of a server that has one. No log may contain it.
pub const PASSWORD: &str = "redis-hunter2";

/// A server on loopback that stores nothing on disk, as Argo CD's.
pub struct Redis {
    daemon: Option<Daemon>,
    port: u16,
    tls_port: u16,
    password: Option<&'static str>,
    authority: Authority,
    folder: TempDir,
}

impl Redis {
    /// Starts a server without a password, and waits until it listens.
    pub async fn start() -> Self {
        Self::start_with(None).await
    }

    /// Starts a server with [`PASSWORD`], and waits until it listens.
    pub async fn with_password() -> Self {
        Self::start_with(Some(PASSWORD)).await
    }

    async fn start_with(password: Option<&'static str>) -> Self {
        let mut redis = Self::stopped(password);
        redis.restart().await;
        redis
    }

    /// A server that is not started yet. Its ports are free.
    pub fn stopped(password: Option<&'static str>) -> Self {
        let folder = tempfile::Builder::new().prefix("redis-").tempdir().unwrap();
        let authority = Authority::new("redis");
        let Pair { certificate, key } = authority.server(&["127.0.0.1", "argocd-redis"]);
        for (name, text) in [
            ("ca.pem", &authority.pem),
            ("server.pem", &certificate),
            ("server.key", &key),
        ] {
            std::fs::write(folder.path().join(name), text).unwrap();
        }
        Self {
            daemon: None,
            port: free_port(),
            tls_port: free_port(),
            password,
            authority,
            folder,
        }
    }

    /// Kills it with SIGKILL. Everything in it is lost.
    pub fn kill(&mut self) {
        drop(self.daemon.take());
    }

    /// Kills it if it runs, starts it empty on the same ports, and waits until it listens.
    pub async fn restart(&mut self) {
        self.kill();
        let file = |name: &str| self.folder.path().join(name).display().to_string();
        let mut arguments: Vec<String> = [
            ("--port", self.port.to_string()),
            ("--tls-port", self.tls_port.to_string()),
            ("--tls-cert-file", file("server.pem")),
            ("--tls-key-file", file("server.key")),
            ("--tls-ca-cert-file", file("ca.pem")),
            ("--tls-auth-clients", "no".to_owned()),
            ("--bind", "127.0.0.1".to_owned()),
            ("--save", String::new()),
            ("--appendonly", "no".to_owned()),
        ]
        .into_iter()
        .flat_map(|(flag, value)| [flag.to_owned(), value])
        .collect();
        if let Some(password) = self.password {
            arguments.extend(["--requirepass".to_owned(), password.to_owned()]);
        }
        // The daemon removes its folder and then the parent, if that is empty.
        let daemon = self
            .daemon
            .insert(Daemon::run("redis", &program(), self.folder.path(), &arguments));
        let address = ("127.0.0.1", self.port);
        eventually("Redis listens", async || {
            daemon.check();
            TcpStream::connect(address).await.ok().map(drop)
        })
        .await;
    }

    /// `127.0.0.1:PORT`, without TLS.
    pub fn address(&self) -> String {
        format!("127.0.0.1:{}", self.port)
    }

    /// `argocd.redis` for a connection without TLS.
    pub fn settings(&self) -> Value {
        json!({"server": format!("redis://{}", self.address())})
    }

    /// `argocd.redis` for a connection with TLS that trusts only its authority.
    pub fn tls_settings(&self) -> Value {
        let server = format!("rediss://127.0.0.1:{}", self.tls_port);
        json!({"server": server, "ca": self.folder.path().join("ca.pem")})
    }

    /// PEM of the authority of its certificate.
    pub fn authority(&self) -> &str {
        &self.authority.pem
    }

    /// Writes a file beside those of the server, and returns its path.
    pub fn file(&self, name: &str, text: &str) -> PathBuf {
        let path = self.folder.path().join(name);
        std::fs::write(&path, text).unwrap();
        path
    }

    /// Revokes a token as argocd-server does.
    pub async fn revoke(&self, id: &str, seconds: u32) {
        let key = format!("revoked-token|{id}");
        let stored = self.command(&["SET", &key, "", "EX", &seconds.to_string()]).await;
        assert_eq!(stored, "+OK");
        self.command(&["PUBLISH", "new-revoked-token", id]).await;
    }

    /// Sends a command, and returns the first line of the answer.
    pub async fn command(&self, words: &[&str]) -> String {
        let stream = TcpStream::connect(self.address()).await.unwrap();
        let mut stream = BufReader::new(stream);
        if let Some(password) = self.password {
            assert_eq!(exchange(&mut stream, &["AUTH", password]).await, "+OK");
        }
        exchange(&mut stream, words).await
    }
}

async fn exchange(stream: &mut BufReader<TcpStream>, words: &[&str]) -> String {
    let mut request = format!("*{}\r\n", words.len());
    for word in words {
        request.push_str(&format!("${}\r\n{word}\r\n", word.len()));
    }
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut line = String::new();
    stream.read_line(&mut line).await.unwrap();
    line.trim_end().to_owned()
}

/// Debian's `redis-server`.
///
/// # Panics
/// If it is not installed. The text has the command that installs it.
fn program() -> PathBuf {
    let folders = std::env::var_os("PATH").unwrap_or_default();
    let found = std::env::split_paths(&folders).map(|folder| folder.join("redis-server"));
    let found = found.into_iter().find(|program: &PathBuf| Path::is_file(program));
    found.expect("Redis is missing: run `apt-get install redis-server` as root")
}
