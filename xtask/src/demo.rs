//! `cargo xtask demo`: runs a gateway, two echo backends and a fake cluster on loopback, and
//! prints requests to try. It copies `deploy/demo`, the policies and the built guests to
//! `target/demo`, so that edits do not change the checkout.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};
use tokio::signal::unix::{SignalKind, signal};

mod backend;
mod check;
mod cluster;
mod readme;
pub(crate) mod token;
mod world;

pub use world::World;

/// Starts the demo and waits for ctrl-c, or checks it and exits.
#[derive(Debug, clap::Args)]
pub struct Demo {
    /// Send the requests, check the responses, and exit.
    #[arg(long)]
    check: bool,
    /// Port of the gateway; the admin listener uses the next one. 0 picks two free ports.
    #[arg(long, default_value_t = 8080)]
    port: u16,
}

impl Demo {
    /// The demo that checks itself.
    pub fn checked() -> Self {
        Self { check: true, port: 0 }
    }

    /// Runs the task.
    pub async fn run(self, root: &Path) -> Result<()> {
        build(root)?;
        self.run_built(root).await
    }

    /// Runs the task with the last build of the gateway and the guests.
    pub async fn run_built(self, root: &Path) -> Result<()> {
        let binary = target(root).join("debug").join("tollgate");
        let port = if self.check { 0 } else { self.port };
        let mut world = World::start(root, &binary, port).await?;
        if self.check {
            let outcome = readme::run(root, &binary).await;
            world.stop().await?;
            outcome?;
            // Its requests begin with what nobody has changed.
            let mut world = World::start(root, &binary, port).await?;
            let outcome = check::run(&mut world).await;
            let stopped = world.stop().await;
            outcome?;
            return stopped;
        }
        print!("{}", world.instructions());
        let mut terminated = signal(SignalKind::terminate())?;
        tokio::select! {
            _ = tokio::signal::ctrl_c() => {}
            _ = terminated.recv() => {}
            status = world.gateway_ended() => anyhow::bail!("the gateway ended by itself: {status}"),
        }
        println!();
        world.stop().await
    }
}

/// Builds the gateway and the guests.
fn build(root: &Path) -> Result<()> {
    crate::plugins::build(root, &crate::languages::names())?;
    crate::run(root, "cargo", &["build", "--bin", "tollgate"])
}

/// Cargo's target folder.
pub fn target(root: &Path) -> PathBuf {
    match std::env::var_os("CARGO_TARGET_DIR") {
        Some(folder) => root.join(folder),
        None => root.join("target"),
    }
}

/// Calls `attempt` until it succeeds, for at most 30 s.
pub async fn until<T, F>(what: &str, mut attempt: impl FnMut() -> F) -> Result<T>
where
    F: Future<Output = Result<T>>,
{
    let started = tokio::time::Instant::now();
    loop {
        match attempt().await {
            Ok(value) => return Ok(value),
            Err(error) if started.elapsed() > Duration::from_secs(30) => {
                return Err(error).with_context(|| format!("waited 30 s for {what}"));
            }
            Err(_) => tokio::time::sleep(Duration::from_millis(50)).await,
        }
    }
}
