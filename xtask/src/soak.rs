//! `cargo xtask soak`: a gateway at the size of a large installation, for some time, with changes all
//! the time. Stand-ins answer for the API server and for all upstreams, in this process.
//!
//! Invariant: every bound is read from the gateway's own metrics, which operators have as well.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use tokio::time::{Instant, MissedTickBehavior, interval, sleep};

use crate::{compare, demo};

mod api_server;
mod gateway;
mod http;
mod objects;
mod streams;
mod upstream;

use api_server::ApiServer;
use gateway::{Gateway, Metrics};
use objects::Size;
use streams::{Stream, Target};

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
/// How much memory may grow after ten minutes.
const GROWTH: f64 = 1.1;
const FLAT_AFTER: Duration = Duration::from_secs(600);
/// Open files of this process, and of the gateway.
const FILES: u64 = 65_536;

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
}

/// What one half of a run showed.
#[derive(Debug)]
struct Half {
    seconds: f64,
    reloads: f64,
    snapshots: f64,
    busy: String,
    lag: String,
    /// From the change at the API server to the end of the stream.
    withdrawals: Vec<Duration>,
    calls: usize,
    memory_mib: f64,
}

/// Bounds of times, in seconds, each the bound of a bucket of its metric.
struct Bounds {
    /// How long a thread may be busy without a pause.
    busy: f64,
    /// From the start of a load until everything that it does not permit has ended.
    lag: f64,
}

impl Soak {
    /// The one of a test run: a fifth of the size for a minute.
    pub(crate) fn of_a_test_run() -> Self {
        Self {
            minutes: 1.0,
            divide: 5,
            built: true,
        }
    }

    /// Runs the task.
    ///
    /// # Errors
    /// A bound does not hold.
    pub async fn run(self, root: &Path) -> Result<()> {
        let binary = match self.built {
            true => demo::target(root).join("debug/tollgate"),
            false => compare::build_gateway(root)?,
        };
        // As root, above the limit that this process has got.
        if rlimit::setrlimit(rlimit::Resource::NOFILE, FILES, FILES).is_err() {
            rlimit::increase_nofile_limit(u64::MAX)?;
        }
        let size = Size::FULL.divided_by(usize::try_from(self.divide)?);
        let half = Duration::from_secs_f64(self.minutes * 30.0);
        println!("{size:?}, twice {half:?}");
        let mut world = World::start(root, binary, size).await?;
        let halves = [world.soak(half).await?, world.soak_after_restart(half).await?];
        println!("| | first half | after the restart |\n|---|---:|---:|");
        let row = |name: &str, value: &dyn Fn(&Half) -> String| {
            println!("| {name} | {} |", halves.each_ref().map(value).join(" | "));
        };
        row("reloads a second", &|half| {
            format!("{:.2}", half.reloads / half.seconds)
        });
        row("most snapshots in memory", &|half| half.snapshots.to_string());
        row("longest time a thread is busy, s at most", &|half| half.busy.clone());
        row("longest lag of withdrawal, s at most", &|half| half.lag.clone());
        row("people whose access was withdrawn", &|half| {
            half.withdrawals.len().to_string()
        });
        row("longest from a change to the end of a stream", &|half| {
            format!("{:.2?}", half.withdrawals.iter().max().copied().unwrap_or_default())
        });
        row("calls", &|half| half.calls.to_string());
        row("resident memory, MiB", &|half| format!("{:.0}", half.memory_mib));
        let stop = world.gateway.stop().await?;
        println!("the gateway stopped in {stop:.1?}");
        for half in &halves {
            half.check(&self.bounds())?;
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

impl Half {
    fn check(&self, bounds: &Bounds) -> Result<()> {
        // One may have begun before, and one ends right after it began.
        ensure!(
            self.reloads <= self.seconds + 2.0,
            "{} reloads in {:.0} s: at most one a second is allowed",
            self.reloads,
            self.seconds
        );
        ensure!(self.reloads > 0.0, "no change took effect");
        ensure!(
            self.snapshots <= SNAPSHOTS,
            "{} snapshots in memory, {SNAPSHOTS} are allowed",
            self.snapshots
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
        Ok(())
    }
}

/// Everything that runs.
struct World {
    api: Arc<ApiServer>,
    gateway: Gateway,
    upstream: std::net::SocketAddr,
    target: Target,
    /// Streams that must stay open.
    streams: Vec<Stream>,
    disabled: Vec<usize>,
    changes: Arc<AtomicUsize>,
    _folder: tempfile::TempDir,
}

impl World {
    async fn start(root: &Path, binary: PathBuf, size: Size) -> Result<Self> {
        let folder = tempfile::tempdir()?;
        let upstream = http::serve(Arc::new(upstream::Upstream)).await?;
        let api = Arc::new(ApiServer::new());
        objects::create(&api, size, upstream)?;
        api.set_page_time(PAGE);
        let address = api.start().await?;
        let mut gateway = Gateway::new(root, folder.path(), binary, address, upstream)?;
        let took = gateway.start().await?;
        println!("the gateway was ready after {took:.1?}");
        let target = Target {
            address: gateway.address,
            size,
        };
        let mut world = Self {
            api,
            gateway,
            upstream,
            target,
            streams: Vec::new(),
            disabled: Vec::new(),
            changes: Arc::default(),
            _folder: folder,
        };
        world.open().await?;
        Ok(world)
    }

    async fn open(&mut self) -> Result<()> {
        let start = Instant::now();
        let people = (0..self.target.size.streams).filter(|person| !self.disabled.contains(person));
        self.streams = self.target.open(people).await?;
        println!("{} streams were open after {:.1?}", self.streams.len(), start.elapsed());
        Ok(())
    }

    /// Stops the gateway while objects change, and starts it with slow lists.
    async fn soak_after_restart(&mut self, time: Duration) -> Result<Half> {
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
        let (size, upstream) = (self.target.size, self.upstream);
        tokio::spawn(async move {
            let mut ticks = interval(Duration::from_secs(1) / u32::try_from(CHANGES)?);
            ticks.set_missed_tick_behavior(MissedTickBehavior::Burst);
            loop {
                ticks.tick().await;
                objects::change(&api, changes.fetch_add(1, Ordering::Relaxed), size, upstream)?;
            }
        })
    }

    async fn soak(&mut self, time: Duration) -> Result<Half> {
        sleep(SETTLE).await;
        let start = Instant::now();
        let before = self.gateway.metrics().await?;
        let load = self.change_all_the_time();
        let is_over = Arc::new(AtomicBool::new(false));
        let calls = tokio::spawn(call_all_the_time(self.target.clone(), Arc::clone(&is_over)));
        let mut snapshots = 0.0;
        let mut flat_from = None;
        let mut withdrawals = Vec::new();
        let mut next_withdrawal = start + BETWEEN_WITHDRAWALS;
        while start.elapsed() < time {
            sleep(Duration::from_millis(500)).await;
            ensure!(!load.is_finished(), "changes stopped");
            let metrics = self.gateway.metrics().await?;
            snapshots = metrics.sum("tollgate_snapshots_in_memory")?.max(snapshots);
            if start.elapsed() > FLAT_AFTER && flat_from.is_none() {
                flat_from = Some(resident(&metrics)?);
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
        let closed = self
            .streams
            .iter_mut()
            .filter_map(|stream| (!stream.is_open()).then_some(stream.person));
        let closed: Vec<usize> = closed.collect();
        ensure!(closed.is_empty(), "streams ended that are permitted: {closed:?}");
        let memory_mib = resident(&after)?;
        if let Some(from) = flat_from {
            ensure!(
                memory_mib <= from * GROWTH,
                "memory grew from {from:.0} to {memory_mib:.0} MiB after {FLAT_AFTER:?}"
            );
        }
        let generation = "tollgate_snapshot_generation";
        Ok(Half {
            seconds: start.elapsed().as_secs_f64(),
            reloads: after.sum(generation)? - before.sum(generation)?,
            snapshots,
            busy: after.most_since(&before, "tollgate_thread_busy_seconds")?,
            lag: after.most_since(&before, "tollgate_withdrawal_lag_seconds")?,
            withdrawals,
            calls,
            memory_mib,
        })
    }

    /// Disables the account of somebody who has a stream. Returns how long the stream stayed open.
    async fn withdraw(&mut self) -> Result<Duration> {
        let at = self.streams.iter().position(Stream::is_of_an_account);
        let mut stream = self.streams.remove(at.context("no stream is left")?);
        ensure!(stream.is_open(), "the stream of p{} ended before", stream.person);
        self.disabled.push(stream.person);
        let changed = objects::argocd_cm(self.target.size, self.upstream, &self.disabled);
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

fn resident(metrics: &Metrics) -> Result<f64> {
    Ok(metrics.sum("process_resident_memory_bytes")? / f64::from(1 << 20))
}
