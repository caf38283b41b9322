//! The gateway as a process, and what its metrics say.

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use serde_json::json;
use tokio::process::{Child, Command};
use tokio::time::{Instant, sleep, timeout};

use super::objects::{CONTROLLER, CREDENTIALS, cluster_of_agent};
use super::upstream::Upstreams;
use crate::certificate::Certificate;

/// Authority of the gateway and of all upstreams, in the folder of a run.
const AUTHORITY: &str = "authority.pem";
/// Their certificate and its key, there too.
pub(super) const CERTIFICATE: &str = "gateway.pem";
pub(super) const KEY: &str = "gateway.key";
/// How long a start may take.
const START: Duration = Duration::from_secs(900);
/// How long a stop may take: the drain and what comes after it.
const STOP: Duration = Duration::from_secs(75);

/// Writes a certificate for the gateway and all upstreams.
pub(super) fn write_certificate(folder: &Path, certificate: &Certificate) -> Result<()> {
    fs::write(folder.join(AUTHORITY), &certificate.ca_pem)?;
    fs::write(folder.join(CERTIFICATE), certificate.pem())?;
    fs::write(folder.join(KEY), certificate.key_pem())?;
    Ok(())
}

/// A gateway that can be started many times.
#[derive(Debug)]
pub(super) struct Gateway {
    binary: PathBuf,
    folder: PathBuf,
    pub(super) address: SocketAddr,
    admin: SocketAddr,
    process: Option<Child>,
}

/// The process of a cluster's agent. It is killed when the value is dropped.
#[derive(Debug)]
pub(super) struct Agent {
    folder: PathBuf,
    /// The public half of its key.
    pub(super) key: String,
    process: Option<Child>,
}

impl Agent {
    /// Makes the key of an agent.
    pub(super) async fn new(folder: &Path, binary: &Path, number: usize) -> Result<Self> {
        let folder = folder.join(cluster_of_agent(number));
        fs::create_dir(&folder)?;
        let output = Command::new(binary)
            .args(["connector", "key"])
            .arg(folder.join("key.pem"))
            .output()
            .await?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(Self {
            folder,
            key: String::from_utf8(output.stdout)?.trim().to_owned(),
            process: None,
        })
    }

    /// Connects it to the gateway, and to an API server behind it.
    pub(super) fn start(&mut self, gateway: &Gateway, upstreams: Upstreams) -> Result<()> {
        let authority = gateway.folder.join(AUTHORITY);
        fs::write(self.folder.join("token"), "of-the-agent")?;
        let settings = json!({
            "gateway": format!("https://{}", gateway.address), "certificateAuthority": authority,
            "cluster": self.folder.file_name().and_then(|name| name.to_str()), "key": "key.pem",
            "apiServer": {
                "url": format!("https://{}", upstreams.tls), "certificateAuthority": authority, "token": "token",
            },
            "ownAccount": "everything",
        });
        let file = self.folder.join("agent.yaml");
        fs::write(&file, settings.to_string())?;
        let process = Command::new(&gateway.binary)
            .args(["connector", "run", "--config"])
            .arg(file)
            .stderr(File::create(self.folder.join("log"))?)
            .kill_on_drop(true)
            .spawn()
            .context("starting an agent")?;
        self.process = Some(process);
        Ok(())
    }
}

/// The text of `/metrics`.
#[derive(Debug)]
pub(super) struct Metrics(String);

impl Gateway {
    /// Writes the settings.
    pub(super) fn new(
        root: &Path,
        folder: &Path,
        binary: PathBuf,
        api: SocketAddr,
        upstreams: Upstreams,
    ) -> Result<Self> {
        let [address, admin] = crate::compare::free_addresses()?;
        let kubeconfig = json!({
            "apiVersion": "v1", "kind": "Config", "current-context": "soak",
            "clusters": [{"name": "soak", "cluster": {"server": format!("http://{api}")}}],
            "users": [{"name": "soak", "user": {}}],
            "contexts": [{"name": "soak", "context": {"cluster": "soak", "user": "soak"}}],
        });
        let file = folder.join("kubeconfig");
        fs::write(&file, kubeconfig.to_string())?;
        let settings = json!({
            "listen": address,
            "tls": {"certificate": folder.join(CERTIFICATE), "key": folder.join(KEY)},
            "admin": {"listen": admin},
            "state": {"kubernetes": {"kubeconfig": file}, "namespace": "argocd"},
            "policies": {"directory": root.join("policies")},
            "authentication": {"argocdSessions": true},
            // Everybody comes from one address, and everything that the control plane watches is of one caller.
            "limits": {"connections": 20_000, "connectionsPerAddress": 20_000, "requestsPerPerson": 20_000},
            "drain": "5s",
            "applications": {},
            "applicationSets": {},
            "argocd": {"server": format!("http://{}", upstreams.plain)},
            "controlPlane": {
                "callers": [{"issuer": "argocd", "user": CONTROLLER}], "reader": "tollgate:reader",
                "credentialsNamespace": CREDENTIALS,
            },
            "clusters": {"forward": true},
            "kubernetes": {"users": [{"issuer": "argocd", "is": "username"}]},
        });
        fs::write(folder.join("tollgate.yaml"), settings.to_string())?;
        Ok(Self {
            binary,
            folder: folder.to_owned(),
            address,
            admin,
            process: None,
        })
    }

    /// Starts it, and waits until it is ready. Returns how long that took.
    ///
    /// # Errors
    /// It ends by itself.
    pub(super) async fn start(&mut self) -> Result<Duration> {
        let log = File::options()
            .create(true)
            .append(true)
            .open(self.folder.join("log"))?;
        let process = Command::new(&self.binary)
            .args(["serve", "--config"])
            .arg(self.folder.join("tollgate.yaml"))
            .stdout(Stdio::null())
            .stderr(log)
            .kill_on_drop(true)
            .spawn()
            .context("starting the gateway")?;
        let start = Instant::now();
        let process = self.process.insert(process);
        let url = format!("http://{}/readyz", self.admin);
        loop {
            if let Some(status) = process.try_wait()? {
                bail!("the gateway ended at its start with {status}: {}", self.log());
            }
            let answer = reqwest::get(&url).await;
            if answer.is_ok_and(|answer| answer.status() == 200) {
                return Ok(start.elapsed());
            }
            ensure!(
                start.elapsed() < START,
                "the gateway is not ready after {START:?}: {}",
                self.log()
            );
            sleep(Duration::from_millis(50)).await;
        }
    }

    /// Stops it as an operator does.
    pub(super) async fn stop(&mut self) -> Result<Duration> {
        let mut process = self.process.take().context("it does not run")?;
        let id = process.id().context("it ended by itself")?;
        let start = Instant::now();
        Command::new("kill").args(["-TERM", &id.to_string()]).status().await?;
        let status = timeout(STOP, process.wait())
            .await
            .context("the gateway does not stop")??;
        ensure!(status.success(), "the gateway stopped with {status}: {}", self.log());
        Ok(start.elapsed())
    }

    /// Waits until this many agents are connected.
    pub(super) async fn await_agents(&self, count: usize) -> Result<()> {
        let start = Instant::now();
        while self.metrics().await?.sum("tollgate_connectors_connected")? < count as f64 {
            ensure!(start.elapsed() < START, "the agents do not connect: {}", self.log());
            sleep(Duration::from_millis(100)).await;
        }
        Ok(())
    }

    pub(super) async fn metrics(&self) -> Result<Metrics> {
        let answer = reqwest::get(format!("http://{}/metrics", self.admin)).await?;
        Ok(Metrics(answer.error_for_status()?.text().await?))
    }

    /// The last lines of its log.
    pub(super) fn log(&self) -> String {
        let text = fs::read_to_string(self.folder.join("log")).unwrap_or_default();
        let lines: Vec<&str> = text.lines().rev().take(20).collect();
        lines.into_iter().rev().collect::<Vec<_>>().join("\n")
    }
}

impl Metrics {
    /// The sum of all series that begin like this.
    ///
    /// # Errors
    /// There is none.
    pub(super) fn sum(&self, start: &str) -> Result<f64> {
        let values: Vec<f64> = self
            .0
            .lines()
            .filter(|line| line.starts_with(start))
            .filter_map(|line| line.rsplit_once(' ')?.1.parse().ok())
            .collect();
        ensure!(!values.is_empty(), "no metric `{start}`");
        Ok(values.iter().sum())
    }

    /// How many observations of a histogram are above this bound of a bucket.
    pub(super) fn above(&self, histogram: &str, bound: &str) -> Result<f64> {
        Ok(self.sum(&format!("{histogram}_count"))? - self.sum(&format!("{histogram}_bucket{{le=\"{bound}\"}}"))?)
    }

    /// The least bound of a bucket that no observation after `before` exceeds.
    pub(super) fn most_since(&self, before: &Self, histogram: &str) -> Result<String> {
        let start = format!("{histogram}_bucket{{le=\"");
        let bounds = self
            .0
            .lines()
            .filter_map(|line| line.strip_prefix(&start)?.split('"').next());
        for bound in bounds.filter(|bound| *bound != "+Inf") {
            if self.above(histogram, bound)? <= before.above(histogram, bound)? {
                return Ok(bound.to_owned());
            }
        }
        Ok("above all bounds".to_owned())
    }
}
