//! Starts the servers of one run on free loopback ports. Dropping a [`Server`] stops its process.

use std::io::{BufRead, BufReader};
use std::net::{SocketAddr, TcpListener};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result};

use super::exchange::Exchange;
use super::world::{ACCOUNT, Settings, World};
use crate::setup;

const BACKEND: &str = include_str!("../../../benches/peers/nginx/backend.conf");
const PROXY: &str = include_str!("../../../benches/peers/nginx/proxy.conf");

/// How long a server may take to answer its first request.
pub(super) const START: Duration = Duration::from_secs(30);
/// CPU core of the load generator and the backend.
pub(super) const LOAD_CORE: &str = "0";
/// CPU core of the proxy under load.
const PROXY_CORE: &str = "1";

/// A running server.
#[derive(Debug)]
pub(super) struct Server {
    /// Where it listens.
    pub(super) address: SocketAddr,
    /// Session token that it printed; only Argo CD's proxy does.
    pub(super) token: Option<String>,
    child: Child,
}

impl Drop for Server {
    fn drop(&mut self) {
        // SIGTERM, so that nginx stops its workers too.
        let stopped = Command::new("kill")
            .args(["-TERM", &self.child.id().to_string()])
            .status();
        if !stopped.is_ok_and(|status| status.success()) {
            let _ = self.child.kill();
        }
        let _ = self.child.wait();
    }
}

impl Server {
    /// The backend behind every proxy: nginx with fixed responses.
    pub(super) fn backend(folder: &Path, extension: &Exchange, applications: &Exchange) -> Result<Self> {
        let file = folder.join("applications.json");
        std::fs::write(&file, &applications.content).with_context(|| format!("writing {}", file.display()))?;
        Self::start_nginx(folder, "backend", LOAD_CORE, |listen| {
            BACKEND
                .replace("@LISTEN@", listen)
                .replace("@BODY@", &extension.content)
                .replace("@APPLICATIONS@", &file.to_string_lossy())
        })
    }

    /// nginx as a proxy.
    pub(super) fn nginx(folder: &Path, backend: SocketAddr) -> Result<Self> {
        Self::start_nginx(folder, "proxy", PROXY_CORE, |listen| {
            PROXY
                .replace("@LISTEN@", listen)
                .replace("@BACKEND@", &backend.to_string())
        })
    }

    /// Argo CD's extension proxy. It logs each request at its default level; the log is discarded.
    pub(super) fn argocd(binary: &Path, world: &World) -> Result<Self> {
        let mut command = pinned(PROXY_CORE, binary);
        command
            .args(["extension-proxy", "-account", ACCOUNT, "-state"])
            .arg(&world.state);
        let mut child = command
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .context("starting Argo CD's proxy")?;
        let mut lines = BufReader::new(child.stdout.take().context("no standard output")?).lines();
        let mut line = || {
            lines
                .next()
                .context("Argo CD's proxy ended at start")?
                .context("reading its output")
        };
        let (address, token) = (line(), line());
        let placeholder = SocketAddr::from(([127, 0, 0, 1], 0));
        let mut server = Self {
            address: placeholder,
            token: None,
            child,
        };
        server.address = address?.parse()?;
        server.token = Some(token?);
        Ok(server)
    }

    /// Tollgate.
    pub(super) fn gateway(binary: &Path, settings: &Settings) -> Result<Self> {
        let mut command = pinned(PROXY_CORE, binary);
        command.args(["serve", "--config"]).arg(&settings.file);
        let child = command.stdout(Stdio::null()).spawn().context("starting tollgate")?;
        Ok(Self {
            address: settings.address,
            token: None,
            child,
        })
    }

    /// Resident memory of the process, in bytes. Source: proc(5), `VmRSS`.
    pub(super) fn resident_bytes(&self) -> Result<u64> {
        let file = format!("/proc/{}/status", self.child.id());
        let status = std::fs::read_to_string(&file).with_context(|| format!("reading {file}"))?;
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let number = line.and_then(|line| line.trim().strip_suffix(" kB"));
        let kibibytes: u64 = number.with_context(|| format!("no `VmRSS` in {file}"))?.parse()?;
        Ok(kibibytes << 10)
    }

    fn start_nginx(folder: &Path, name: &str, core: &str, text: impl Fn(&str) -> String) -> Result<Self> {
        let prefix = folder.join(name);
        std::fs::create_dir_all(&prefix).with_context(|| format!("creating {}", prefix.display()))?;
        let [address, _] = free_addresses()?;
        let file = prefix.join("nginx.conf");
        std::fs::write(&file, text(&address.to_string())).with_context(|| format!("writing {}", file.display()))?;
        let binary = setup::find("nginx").context("nginx is missing")?;
        let mut command = pinned(core, &binary);
        command
            .arg("-p")
            .arg(&prefix)
            .arg("-c")
            .arg(&file)
            .args(["-e", "stderr", "-g", "daemon off;"]);
        let child = command.stdout(Stdio::null()).spawn().context("starting nginx")?;
        Ok(Self {
            address,
            token: None,
            child,
        })
    }
}

/// A command pinned to one CPU core, so that the proxy under load does not share its core with the
/// load generator or the backend. Not pinned on a machine with a single core.
pub(super) fn pinned(core: &str, binary: &Path) -> Command {
    let alone = std::thread::available_parallelism().is_ok_and(|cores| cores.get() == 1);
    if alone {
        return Command::new(binary);
    }
    let mut command = Command::new("taskset");
    command.args(["-c", core]).arg(binary);
    command
}

/// Two different free loopback addresses.
pub(crate) fn free_addresses() -> Result<[SocketAddr; 2]> {
    let (one, two) = (TcpListener::bind("127.0.0.1:0")?, TcpListener::bind("127.0.0.1:0")?);
    Ok([one.local_addr()?, two.local_addr()?])
}
