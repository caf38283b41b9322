//! `cargo xtask compare`: measures Tollgate and its peers on the same machine in the same run,
//! prints tables and writes them between the markers of docs/performance.md.
//!
//! It has three parts: proxies under load ([`load`]), single decisions of the peers ([`micro`]),
//! and our criterion benches, which answer the same questions ([`criterion`]).
//!
//! Security: the measured servers listen only on loopback.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::setup;

mod criterion;
mod load;
mod machine;
mod micro;
mod peers;
mod report;
mod servers;
mod world;

/// Measures Tollgate and its peers.
#[derive(Debug, clap::Args)]
pub struct Compare {
    /// Use short rounds and few sizes: shows that everything works, not how fast it is.
    #[arg(long)]
    quick: bool,
    /// Use the existing criterion results instead of running the benches.
    #[arg(long)]
    reuse_benches: bool,
    /// Measure only the peers and write nothing: checks the setup without building the gateway.
    #[arg(long)]
    peers_only: bool,
}

/// How long and how often to measure.
#[derive(Clone, Copy, Debug)]
struct Effort {
    /// Rounds over all proxies. The result is the median of the rounds.
    rounds: usize,
    /// How long to load one proxy in one round.
    load: Duration,
    /// How long to ask each single question.
    question: Duration,
    /// Sizes of the RBAC policy.
    rows: &'static [usize],
}

impl Effort {
    const FULL: Self = Self {
        rounds: 3,
        load: Duration::from_secs(8),
        question: Duration::from_secs(2),
        rows: &[10, 1_000, 10_000, 100_000],
    };
    const QUICK: Self = Self {
        rounds: 1,
        load: Duration::from_secs(2),
        question: Duration::from_millis(200),
        rows: &[10, 10_000],
    };
}

/// All measurements of one run.
#[derive(Debug)]
struct Findings {
    proxies: Vec<load::Measured>,
    peers: Vec<micro::Answer>,
    benches: Vec<criterion::Bench>,
}

impl Compare {
    /// Runs the task.
    ///
    /// # Errors
    /// A tool is missing, a peer does not build, a proxy sends a wrong response, or a bench that
    /// the tables need has no result.
    pub async fn run(self, root: &Path) -> Result<()> {
        setup::packages(&[setup::NGINX, setup::WRK])?;
        setup::go()?;
        let effort = if self.quick { Effort::QUICK } else { Effort::FULL };
        let gateway = match self.peers_only {
            true => None,
            false => Some(build_gateway(root)?),
        };
        let binaries = peers::build(root, gateway)?;
        let folder = tempfile::tempdir()?;
        let findings = Findings {
            proxies: proxies(root, &binaries, folder.path(), effort).await?,
            peers: micro::ask(root, &binaries, folder.path(), effort)?,
            benches: self.benches(root)?,
        };
        let machine = machine::describe(root)?;
        let report = report::Report::new(&findings, &machine, self.command());
        println!("{}", report.text());
        if self.peers_only {
            return Ok(());
        }
        let missing = report.missing();
        ensure!(
            missing.is_empty(),
            "no criterion result for {}: --reuse-benches needs an earlier run of the benches",
            missing.join(", ")
        );
        report.write(&root.join("docs/performance.md"))
    }

    fn benches(&self, root: &Path) -> Result<Vec<criterion::Bench>> {
        if !self.reuse_benches && !self.peers_only {
            criterion::run(root, self.quick)?;
        }
        criterion::read(&target(root).join("criterion"))
    }

    /// The command that makes this table again.
    fn command(&self) -> &'static str {
        match (self.quick, self.reuse_benches) {
            (false, false) => "cargo xtask compare",
            (false, true) => "cargo xtask compare --reuse-benches",
            (true, false) => "cargo xtask compare --quick",
            (true, true) => "cargo xtask compare --quick --reuse-benches",
        }
    }
}

/// Starts the backend and the proxies, and loads each in turn.
async fn proxies(
    root: &Path,
    binaries: &peers::Binaries,
    folder: &Path,
    effort: Effort,
) -> Result<Vec<load::Measured>> {
    let backend = servers::Server::backend(folder)?;
    let world = world::World::create(folder, root, backend.address)?;
    let argocd = servers::Server::argocd(&binaries.argocd, &world)?;
    let nginx = servers::Server::nginx(folder, backend.address)?;
    let token = argocd
        .token
        .clone()
        .context("Argo CD's proxy printed no session token")?;
    let mut proxies = vec![
        load::Target::direct(backend.address),
        load::Target::unauthenticated(report::NGINX, nginx),
    ];
    if let Some(binary) = &binaries.gateway {
        let server = servers::Server::gateway(binary, &world)?;
        proxies.push(load::Target::authenticated(report::TOLLGATE, server, &token));
    }
    proxies.push(load::Target::authenticated(report::ARGOCD, argocd, &token));
    load::measure(&proxies, effort).await
}

/// Builds the gateway with the profile of releases.
fn build_gateway(root: &Path) -> Result<PathBuf> {
    let build = ["build", "--profile", "dist", "--locked", "--bin", "tollgate"];
    crate::run(root, "cargo", &build)?;
    Ok(target(root).join("dist/tollgate"))
}

/// The target folder cargo uses.
fn target(root: &Path) -> PathBuf {
    root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}
