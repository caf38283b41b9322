//! `cargo xtask compare`: measures Tollgate and its peers on the same machine in the same run,
//! prints tables and writes them between the markers of docs/performance.md and benches/medians.md.
//!
//! It has six parts: proxies under load ([`load`]), open streams ([`streams`]), Argo CD's controllers
//! with and without the gateway ([`controllers`]), clusters behind an agent ([`agents`]), single decisions of the peers ([`micro`]), and our
//! criterion benches, which answer the same questions ([`criterion`]).
//!
//! Security: the measured servers listen only on loopback.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result, ensure};

use crate::setup;

mod agents;
mod controllers;
mod criterion;
mod exchange;
mod load;
mod machine;
mod micro;
mod peers;
mod report;
mod servers;
mod streams;
mod world;

use exchange::Exchange;
use load::Target;
use servers::Server;
pub(crate) use servers::free_addresses;
use world::{Settings, World};

/// Measures Tollgate and its peers.
#[derive(Debug, clap::Args)]
pub struct Compare {
    /// Use short rounds and few sizes, and write nothing: shows that everything works, not how fast it is.
    #[arg(long)]
    quick: bool,
    /// Use the existing criterion results instead of running the benches.
    #[arg(long)]
    reuse_benches: bool,
    /// Measure only one part, and write nothing.
    #[arg(long, value_name = "PART", conflicts_with = "reuse_benches")]
    only: Option<Part>,
    /// Measure the gateway of another checkout, such as one of the last release, in the same rounds. Write nothing.
    #[arg(long, value_name = "CHECKOUT", requires = "only")]
    beside: Option<PathBuf>,
}

/// A build of the gateway.
#[derive(Debug)]
struct Build {
    /// Of its row.
    name: &'static str,
    program: PathBuf,
    /// Its shipped policies.
    policies: PathBuf,
}

impl Build {
    /// Builds the gateway of a checkout.
    fn new(name: &'static str, root: &Path) -> Result<Self> {
        Ok(Self {
            name,
            program: build_gateway(root)?,
            policies: root.join("policies"),
        })
    }
}

/// A part that can be measured alone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
enum Part {
    /// Proxies without the gateway, and decisions of the peers: checks the setup without building the
    /// gateway.
    Peers,
    /// Running proxies, under load and with open streams.
    Servers,
    /// Argo CD's controllers.
    Controllers,
    /// Clusters behind an agent.
    Agents,
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
    /// Streams of each kind that are open at once.
    streams: usize,
}

impl Effort {
    const FULL: Self = Self {
        rounds: 3,
        load: Duration::from_secs(8),
        question: Duration::from_secs(2),
        rows: &[10, 1_000, 10_000, 100_000],
        streams: 5_000,
    };
    const QUICK: Self = Self {
        rounds: 1,
        load: Duration::from_secs(2),
        question: Duration::from_millis(200),
        rows: &[10, 10_000],
        streams: 200,
    };
}

/// All measurements of one run.
#[derive(Debug, Default)]
struct Findings {
    servers: Servers,
    controllers: Vec<controllers::Measured>,
    agents: Vec<agents::Measured>,
    peers: Vec<micro::Answer>,
    benches: Vec<criterion::Bench>,
}

/// Measurements of running servers.
#[derive(Debug, Default)]
struct Servers {
    /// Proxies of calls of an extension.
    extensions: Vec<load::Measured>,
    /// Proxies of lists of applications.
    applications: Vec<load::Measured>,
    /// Open streams of the argocd front.
    streams: Vec<streams::Measured>,
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
        let needs_gateway = [Part::Servers, Part::Controllers, Part::Agents];
        let mut builds = Vec::new();
        if needs_gateway.into_iter().any(|part| self.measures(part)) {
            builds.push(Build::new(report::TOLLGATE, root)?);
            if let Some(other) = &self.beside {
                let other = std::path::absolute(other)?;
                builds.push(Build::new(report::OTHER, &other)?);
            }
        }
        let mut findings = self.measure_peers(root, &builds, effort).await?;
        for build in &builds {
            if self.measures(Part::Controllers) {
                findings
                    .controllers
                    .extend(controllers::measure(root, build, self.quick)?);
            }
            if self.measures(Part::Agents) {
                findings.agents.extend(agents::measure(root, build, self.quick)?);
            }
        }
        let machine = machine::describe(root)?;
        let report = report::Report::new(&findings, &machine, self.command());
        println!("{}", report.text());
        if self.only.is_some() {
            return Ok(());
        }
        let missing = report.missing();
        ensure!(
            missing.is_empty(),
            "no criterion result for {}: --reuse-benches needs an earlier run of the benches",
            missing.join(", ")
        );
        if self.quick {
            return Ok(());
        }
        report.write(root)
    }

    fn measures(&self, part: Part) -> bool {
        self.only.is_none_or(|only| only == part)
    }

    /// Everything but controllers and agents.
    async fn measure_peers(&self, root: &Path, builds: &[Build], effort: Effort) -> Result<Findings> {
        if matches!(self.only, Some(Part::Controllers | Part::Agents)) {
            return Ok(Findings::default());
        }
        let binaries = peers::build(root)?;
        let folder = tempfile::tempdir()?;
        Ok(Findings {
            servers: measure_servers(&binaries, builds, folder.path(), effort).await?,
            controllers: Vec::new(),
            agents: Vec::new(),
            peers: match self.measures(Part::Peers) {
                true => micro::ask(root, &binaries, folder.path(), effort)?,
                false => Vec::new(),
            },
            benches: self.benches(root)?,
        })
    }

    fn benches(&self, root: &Path) -> Result<Vec<criterion::Bench>> {
        if self.only == Some(Part::Servers) {
            return Ok(Vec::new());
        }
        if !self.reuse_benches && self.only.is_none() {
            criterion::run(root, self.quick)?;
        }
        criterion::read(&target(root).join("criterion"))
    }

    /// The command that makes this table again.
    fn command(&self) -> &'static str {
        match self.reuse_benches {
            false => "cargo xtask compare",
            true => "cargo xtask compare --reuse-benches",
        }
    }
}

/// Starts the backend and the proxies, and measures them in turn.
async fn measure_servers(
    binaries: &peers::Binaries,
    builds: &[Build],
    folder: &Path,
    effort: Effort,
) -> Result<Servers> {
    let (extension, applications) = (Exchange::extension(), Exchange::applications());
    let backend = Server::backend(folder, &extension, &applications)?;
    let world = World::create(folder, backend.address)?;
    let argocd = Server::argocd(&binaries.argocd, &world)?;
    let nginx = Server::nginx(folder, backend.address)?;
    let token = argocd
        .token
        .as_deref()
        .context("Argo CD's proxy printed no session token")?;
    let start = |build: &Build, settings: Settings| Server::gateway(&build.program, &settings);
    let (mut extensions, mut passing) = (Vec::new(), Vec::new());
    for build in builds {
        extensions.push((build.name, start(build, world.extensions(build)?)?));
        passing.push((build.name, start(build, world.argocd(build, backend.address)?)?));
    }
    let targets = |gateways: &[(&'static str, Server)]| {
        let mut targets = vec![
            Target::unauthenticated(report::DIRECT, &backend),
            Target::unauthenticated(report::NGINX, &nginx),
        ];
        let gateways = gateways.iter();
        targets.extend(gateways.map(|(name, server)| Target::authenticated(name, server, token)));
        targets
    };
    let mut proxies = targets(&extensions);
    proxies.push(Target::authenticated(report::ARGOCD, &argocd, token));
    let mut found = Servers {
        extensions: load::measure(&extension, &proxies, effort).await?,
        applications: load::measure(&applications, &targets(&passing), effort).await?,
        streams: Vec::new(),
    };
    for build in builds {
        found
            .streams
            .extend(streams::measure(build, &world, token, effort.streams).await?);
    }
    Ok(found)
}

/// Builds the gateway with the profile of releases.
pub(crate) fn build_gateway(root: &Path) -> Result<PathBuf> {
    let build = ["build", "--profile", "dist", "--locked", "--bin", "tollgate"];
    crate::run(root, "cargo", &build)?;
    Ok(target(root).join("dist/tollgate"))
}

/// The target folder cargo uses.
fn target(root: &Path) -> PathBuf {
    root.join(std::env::var_os("CARGO_TARGET_DIR").unwrap_or_else(|| "target".into()))
}
