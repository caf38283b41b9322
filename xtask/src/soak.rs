//! `cargo xtask soak`: a gateway at the size of a large installation, for some time, with changes all
//! the time. Stand-ins answer for the API server, in this process, and for all upstreams.
//!
//! Invariant: every bound is read from the gateway's own metrics, which operators have as well.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, bail, ensure};
use tokio::process::Child;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::certificate::Certificate;
use crate::{compare, demo};

mod api_server;
mod gateway;
mod objects;
mod streams;
mod upstream;

use api_server::ApiServer;
use gateway::{Agent, Gateway, Metrics};
use objects::{Size, Special};
use streams::{Stream, Target};
use upstream::Upstreams;

/// Changes a second.
const CHANGES: u64 = 10;
/// Time between two people whose access is withdrawn.
const BETWEEN_WITHDRAWALS: Duration = Duration::from_secs(3);
/// Calls that people make each second.
const CALLS: u64 = 10;
/// What each page of a list takes, as at an API server with objects of 30 KB.
const PAGE: Duration = Duration::from_millis(350);
/// How much slower lists are at the restart in the middle.
const SLOW: u32 = 3;
/// Time in which what the start left behind is finished.
const SETTLE: Duration = Duration::from_secs(3);
/// Most generations of the configuration in memory: the one in force, the next one, those that wait
/// for the next time that unused ones are freed, and one of a request that waits for the processor.
const SNAPSHOTS: f64 = 5.0;
/// Clusters that have an agent.
const AGENTS: usize = 3;
/// Reloads that may follow one another at once after a quiet time. In the long run there is one a second.
const RELOAD_BURST: f64 = 3.0;
/// The part of the time before the restart.
const BEFORE_RESTART: f64 = 0.8;
/// How much the most memory may grow from the first half of the time after ten minutes to the second.
const GROWTH: f64 = 1.1;
const FLAT_AFTER: Duration = Duration::from_secs(600);
/// Time between two lines about memory.
const BETWEEN_LINES: Duration = Duration::from_secs(60);
/// Open files of this process, and of the gateway.
const FILES: u64 = 65_536;

const BUSY: &str = "tollgate_thread_busy_seconds";
const GENERATION: &str = "tollgate_snapshot_generation";

/// Runs a gateway at full size for a while, and checks its bounds.
#[derive(Debug, clap::Args)]
pub struct Soak {
    /// How long the load lasts, in minutes.
    #[arg(long, default_value_t = 15.0)]
    minutes: f64,
    /// Divides the number of everything.
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1_000))]
    divide: u32,
    /// Use the build that tests made, instead of an optimized one.
    #[arg(long)]
    built: bool,
    /// Only answer for all upstreams, with this certificate and key.
    #[arg(long, hide = true, num_args = 2)]
    upstreams: Option<Vec<PathBuf>>,
}

/// What was measured before the restart, or after it.
#[derive(Debug)]
struct Measurements {
    seconds: f64,
    reloads: f64,
    busy: String,
    lag: String,
    /// From the change at the API server to the end of the stream.
    withdrawals: Vec<Duration>,
    calls: usize,
    samples: Vec<Sample>,
}

/// What is in memory at a time.
#[derive(Clone, Copy, Debug)]
struct Sample {
    after: Duration,
    resident_mib: f64,
    snapshots: f64,
}

/// Bounds of times, in seconds, each the bound of a bucket of its metric.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// How long a thread may be busy without a pause.
    busy: f64,
    /// From the start of a load until everything that it does not permit has ended.
    lag: f64,
}

impl Soak {
    /// Runs the task.
    ///
    /// # Errors
    /// A bound does not hold.
    pub async fn run(self, root: &Path) -> Result<()> {
        // As root, above the limit that this process has got.
        if rlimit::setrlimit(rlimit::Resource::NOFILE, FILES, FILES).is_err() {
            rlimit::increase_nofile_limit(u64::MAX)?;
        }
        if let Some([certificate, key]) = self.upstreams.as_deref() {
            return upstream::run(certificate, key).await;
        }
        let binary = match self.built {
            true => demo::target(root).join("debug/tollgate"),
            false => compare::build_gateway(root)?,
        };
        let size = Size::FULL.divided_by(usize::try_from(self.divide)?);
        let all = Duration::from_secs_f64(self.minutes * 60.0);
        let before = all.mul_f64(BEFORE_RESTART);
        println!(
            "{size:?}, {before:?} before the restart and {:?} after it",
            all - before
        );
        let mut installation = Installation::start(root, binary, size, self.bounds()).await?;
        let measured = installation.measure(before, all - before).await;
        let measured = measured.with_context(|| format!("the gateway's log ends: {}", installation.gateway.log()))?;
        println!("| | before the restart | after it |\n|---|---:|---:|");
        let row = |name: &str, value: &dyn Fn(&Measurements) -> String| {
            println!("| {name} | {} |", measured.each_ref().map(value).join(" | "));
        };
        row("reloads a second", &|part| {
            format!("{:.2}", part.reloads / part.seconds)
        });
        row("most snapshots in memory", &|part| part.most_snapshots().to_string());
        row("longest time a thread is busy, s at most", &|part| part.busy.clone());
        row("longest lag of withdrawal, s at most", &|part| part.lag.clone());
        row("people whose access was withdrawn", &|part| {
            part.withdrawals.len().to_string()
        });
        row("longest from a change to the end of a stream", &|part| {
            format!("{:.2?}", part.withdrawals.iter().max().copied().unwrap_or_default())
        });
        row("calls", &|part| part.calls.to_string());
        row("most resident memory, MiB", &|part| {
            format!("{:.0}", most(&part.samples, |sample| sample.resident_mib))
        });
        let stop = installation.gateway.stop().await?;
        println!("the gateway stopped in {stop:.1?}");
        for part in &measured {
            part.check(&installation.bounds)?;
        }
        Ok(())
    }

    fn bounds(&self) -> Bounds {
        match self.built {
            // A build for tests takes some four times as long, and a machine of CI may have one processor.
            true => Bounds { busy: 0.05, lag: 5.0 },
            false => Bounds { busy: 0.02, lag: 1.0 },
        }
    }
}

impl Measurements {
    fn most_snapshots(&self) -> f64 {
        most(&self.samples, |sample| sample.snapshots)
    }

    fn check(&self, bounds: &Bounds) -> Result<()> {
        ensure!(
            self.reloads <= self.seconds + RELOAD_BURST,
            "{} reloads in {:.0} s: one a second is allowed, and {RELOAD_BURST} more",
            self.reloads,
            self.seconds
        );
        ensure!(self.reloads > 0.0, "no change took effect");
        ensure!(
            self.most_snapshots() <= SNAPSHOTS,
            "{} snapshots in memory, {SNAPSHOTS} are allowed",
            self.most_snapshots()
        );
        for (what, seen, bound) in [
            ("a thread was busy", &self.busy, bounds.busy),
            ("withdrawal took", &self.lag, bounds.lag),
        ] {
            let is_within = seen.parse::<f64>().is_ok_and(|seen| seen <= bound);
            ensure!(is_within, "{what} for up to {seen} s, and {bound} s are allowed");
        }
        ensure!(!self.withdrawals.is_empty(), "nobody's access was withdrawn");
        ensure!(self.calls > 0, "nobody made a call");
        self.check_flat()
    }

    /// Checks that memory does not grow any more after [`FLAT_AFTER`], if this went on for that long.
    fn check_flat(&self) -> Result<()> {
        let at = self.samples.partition_point(|sample| sample.after < FLAT_AFTER);
        let late = self.samples.get(at..).unwrap_or_default();
        let (first, second) = late.split_at(late.len() / 2);
        if first.is_empty() {
            return Ok(());
        }
        let [from, to] = [first, second].map(|samples| most(samples, |sample| sample.resident_mib));
        ensure!(
            to <= from * GROWTH,
            "memory grew from {from:.0} to {to:.0} MiB after {FLAT_AFTER:?}"
        );
        Ok(())
    }
}

fn most(samples: &[Sample], value: impl Fn(&Sample) -> f64) -> f64 {
    samples.iter().map(value).fold(0.0, f64::max)
}

/// Everything that runs.
struct Installation {
    api: Arc<ApiServer>,
    gateway: Gateway,
    upstreams: Upstreams,
    _agents: Vec<Agent>,
    _upstream_process: Child,
    target: Target,
    /// Streams that must stay open.
    streams: Vec<Stream>,
    disabled: Vec<usize>,
    changes: Arc<AtomicUsize>,
    bounds: Bounds,
    _folder: tempfile::TempDir,
}

impl Installation {
    async fn start(root: &Path, binary: PathBuf, size: Size, bounds: Bounds) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let certificate = Certificate::issue()?;
        gateway::write_certificate(folder.path(), &certificate)?;
        let [file, key] = [gateway::CERTIFICATE, gateway::KEY].map(|name| folder.path().join(name));
        let (upstreams, upstream_process) = upstream::start(&file, &key).await?;
        let mut agents = Vec::new();
        for number in 0..AGENTS {
            agents.push(Agent::new(folder.path(), &binary, number).await?);
        }
        let keys: Vec<String> = agents.iter().map(|agent| agent.key.clone()).collect();
        let api = Arc::new(ApiServer::new());
        let special = Special {
            agent_keys: &keys,
            authority: &certificate.ca_pem,
        };
        objects::create(&api, size, upstreams, special)?;
        api.set_page_time(PAGE);
        let address = api.start().await?;
        let mut gateway = Gateway::new(root, folder.path(), binary, address, upstreams)?;
        let took = gateway.start().await?;
        println!("the gateway was ready after {took:.1?}");
        for agent in &mut agents {
            agent.start(&gateway, upstreams)?;
        }
        let target = Target {
            address: gateway.address,
            size,
            agents: AGENTS,
            enrolled: upstreams.tls,
            tls: streams::connector(&certificate.ca_pem)?,
        };
        let mut installation = Self {
            api,
            gateway,
            upstreams,
            _agents: agents,
            _upstream_process: upstream_process,
            target,
            streams: Vec::new(),
            disabled: Vec::new(),
            changes: Arc::default(),
            bounds,
            _folder: folder,
        };
        installation.open().await?;
        Ok(installation)
    }

    async fn open(&mut self) -> Result<()> {
        self.gateway.await_agents(AGENTS).await?;
        let start = Instant::now();
        let people = (0..self.target.size.streams).filter(|person| !self.disabled.contains(person));
        self.streams = self.target.open(people).await?;
        println!("{} streams were open after {:.1?}", self.streams.len(), start.elapsed());
        Ok(())
    }

    async fn measure(&mut self, before: Duration, after: Duration) -> Result<[Measurements; 2]> {
        Ok([self.soak(before).await?, self.soak_after_restart(after).await?])
    }

    /// Stops the gateway while objects change, and starts it with slow lists.
    async fn soak_after_restart(&mut self, time: Duration) -> Result<Measurements> {
        let load = self.change_all_the_time();
        let stop = self.gateway.stop().await?;
        for stream in self.streams.drain(..) {
            stream.end().await?;
        }
        self.api.set_page_time(PAGE * SLOW);
        let start = self.gateway.start().await?;
        println!("the gateway stopped in {stop:.1?} and was ready after {start:.1?}");
        load.abort();
        self.open().await?;
        self.soak(time).await
    }

    fn change_all_the_time(&self) -> tokio::task::JoinHandle<Result<()>> {
        let (api, changes) = (Arc::clone(&self.api), Arc::clone(&self.changes));
        let (size, upstreams) = (self.target.size, self.upstreams);
        tokio::spawn(async move {
            let mut ticks = interval(Duration::from_secs(1) / u32::try_from(CHANGES)?);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            loop {
                ticks.tick().await;
                objects::change(&api, changes.fetch_add(1, Ordering::Relaxed), size, upstreams)?;
            }
        })
    }

    async fn soak(&mut self, time: Duration) -> Result<Measurements> {
        sleep(SETTLE).await;
        let start = Instant::now();
        let before = self.gateway.metrics().await?;
        let load = self.change_all_the_time();
        let is_over = Arc::new(AtomicBool::new(false));
        let calls = tokio::spawn(call_all_the_time(self.target.clone(), Arc::clone(&is_over)));
        let mut samples = Vec::new();
        let mut last = self.gateway.metrics().await?;
        let mut next_line = start;
        let mut withdrawals = Vec::new();
        let mut next_withdrawal = start + BETWEEN_WITHDRAWALS;
        while start.elapsed() < time {
            sleep(Duration::from_millis(500)).await;
            ensure!(!load.is_finished(), "changes stopped");
            let metrics = self.gateway.metrics().await?;
            let sample = Sample::of(&metrics, start.elapsed())?;
            self.print_busy(&metrics, &last, sample.after)?;
            last = metrics;
            samples.push(sample);
            if Instant::now() >= next_line {
                println!("{sample:.0?}");
                self.check_open()?;
                next_line += BETWEEN_LINES;
            }
            if Instant::now() >= next_withdrawal {
                withdrawals.push(self.withdraw().await?);
                next_withdrawal = Instant::now() + BETWEEN_WITHDRAWALS;
            }
        }
        load.abort();
        is_over.store(true, Ordering::Relaxed);
        let calls = calls.await??;
        let after = self.gateway.metrics().await?;
        self.check_open()?;
        Ok(Measurements {
            seconds: start.elapsed().as_secs_f64(),
            reloads: after.sum(GENERATION)? - before.sum(GENERATION)?,
            busy: after.most_since(&before, BUSY)?,
            lag: after.most_since(&before, "tollgate_withdrawal_lag_seconds")?,
            withdrawals,
            calls,
            samples,
        })
    }

    /// Says when a thread was busy for longer than the bound, since what it did is over when the bound
    /// is checked.
    fn print_busy(&self, metrics: &Metrics, last: &Metrics, after: Duration) -> Result<()> {
        let busy = metrics.most_since(last, BUSY)?;
        if busy.parse::<f64>().is_ok_and(|busy| busy <= self.bounds.busy) {
            return Ok(());
        }
        let generations = metrics.sum(GENERATION)? - last.sum(GENERATION)?;
        println!("a thread was busy for up to {busy} s before {after:.1?}, with {generations} reloads");
        Ok(())
    }

    fn check_open(&mut self) -> Result<()> {
        let streams = self.streams.iter_mut();
        let closed: Vec<String> = streams.filter_map(Stream::unexpected_end).collect();
        ensure!(
            closed.is_empty(),
            "streams ended that are permitted: {}",
            closed.join(", ")
        );
        Ok(())
    }

    /// Disables the account of somebody who has a stream. Returns how long the stream stayed open.
    async fn withdraw(&mut self) -> Result<Duration> {
        let at = self.streams.iter().position(Stream::is_of_an_account);
        let mut stream = self.streams.remove(at.context("no stream is left")?);
        if let Some(ended) = stream.unexpected_end() {
            bail!("a stream ended that is permitted: {ended}");
        }
        self.disabled.push(stream.person);
        let changed = objects::argocd_cm(self.target.size, self.upstreams, &self.disabled);
        let start = Instant::now();
        self.api.put("configmaps", changed)?;
        Ok(stream.end().await?.duration_since(start))
    }
}

/// People whose access is not withdrawn call an extension all the time.
async fn call_all_the_time(target: Target, is_over: Arc<AtomicBool>) -> Result<usize> {
    let mut ticks = interval(Duration::from_secs(1) / u32::try_from(CALLS)?);
    let mut calls = 0;
    while !is_over.load(Ordering::Relaxed) {
        ticks.tick().await;
        target
            .ask(target.size.people - 1 - calls % (target.size.people / 4))
            .await?;
        calls += 1;
    }
    Ok(calls)
}

impl Sample {
    fn of(metrics: &Metrics, after: Duration) -> Result<Self> {
        Ok(Self {
            after,
            resident_mib: metrics.sum("process_resident_memory_bytes")? / f64::from(1 << 20),
            snapshots: metrics.sum("tollgate_snapshots_in_memory")?,
        })
    }
}
