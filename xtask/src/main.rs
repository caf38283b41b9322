//! The project's tasks: `cargo xtask TASK`.
//!
//! Tasks write to the checkout, its target folder and the tool cache. Some also install Debian
//! packages, as root, or add a target to the Rust toolchain.

use std::path::{Path, PathBuf};
use std::process::{Command, ExitCode};

use anyhow::{Context, Result, ensure};
use clap::Parser;

mod argocd;
mod build_image;
mod certificate;
mod compare;
mod demo;
mod differential;
mod engines;
mod fuzz;
mod go;
mod kubernetes;
mod languages;
mod lint;
mod nightly;
mod notices;
mod plugins;
mod quick;
mod setup;
mod soak;
mod surface;
mod test;
mod world;
mod write_manifests;
mod write_reference;

/// The project's tasks.
#[derive(Debug, Parser)]
#[command(name = "cargo xtask", bin_name = "cargo xtask")]
enum Task {
    /// Start the demo and print requests to try.
    Demo(demo::Demo),
    /// Start a whole Argo CD with the gateway in front, and print how to use it.
    World(world::World),
    /// Take the pictures of docs/pictures anew, in that world.
    Pictures,
    /// Check formatting and lints, and run the unit tests: two minutes, without root and network.
    Quick,
    /// Run every check and test, as CI does.
    Test(test::Test),
    /// Run what no test run has the time for: every test many times, millions of comparisons, fuzzing.
    Nightly(nightly::Nightly),
    /// Build the plugins (guests) into target/guests.
    Plugins {
        /// Build only those in Rust.
        #[arg(long)]
        rust: bool,
    },
    /// Build the container image as an OCI image layout, without a container engine.
    Image(build_image::BuildImage),
    /// Write the licenses and notices of the third-party code in a program, as its image has them.
    Notices(notices::Notices),
    /// Render deploy/kubernetes and deploy/monitoring from the Helm chart.
    Manifests(write_manifests::WriteManifests),
    /// Build etcd, kube-apiserver and kubectl, unless cached, and print their folder; also helm and a kubelet.
    Kubernetes,
    /// Build the Argo CD CLI and the judge that runs its code, unless cached, and print their paths.
    Argocd,
    /// Compare decisions with those of Argo CD and Kubernetes, and print a table.
    Differential(differential::Differential),
    /// Measure Tollgate and its peers in one run, and write the tables of docs/performance.md.
    Compare(compare::Compare),
    /// Run a gateway at the size of a large installation, and check its bounds.
    Soak(soak::Soak),
    /// Write the size of the crates and their circles into ARCHITECTURE.md.
    Figures,
    /// Write docs/reference from the program: settings, commands, metrics, inputs of policies, reasons of denials.
    Reference(write_reference::WriteReference),
    /// Write what other programs rely on into a folder: settings, commands, schemas, metrics.
    Surface(surface::Surface),
    /// Run the fuzz targets under libFuzzer.
    Fuzz(fuzz::Fuzz),
    /// Check formatting, lints, documentation, licenses and sources.
    Lint(lint::Lint),
    /// Install what the tasks need on a fresh machine.
    Setup,
}

#[tokio::main]
async fn main() -> ExitCode {
    match perform().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error:#}");
            ExitCode::FAILURE
        }
    }
}

async fn perform() -> Result<()> {
    let root = root()?;
    match Task::parse() {
        Task::Demo(task) => task.run(&root).await,
        Task::World(task) => task.run(&root),
        Task::Pictures => {
            world::take_pictures(&root)?;
            xtask::pictures::replace(&root)
        }
        Task::Quick => quick::quick(&root),
        Task::Test(task) => task.run(&root).await,
        Task::Nightly(task) => task.run(&root),
        Task::Plugins { rust } => {
            let mut guests = plugins::build(&root, &languages::names())?;
            if !rust {
                guests.extend(languages::build(&root)?);
            }
            for built in guests {
                println!("{} {} bytes, sha256 {}", built.name, built.bytes, built.sha256);
            }
            Ok(())
        }
        Task::Image(task) => task.run(&root),
        Task::Notices(task) => task.run(&root),
        Task::Manifests(task) => task.run(&root),
        Task::Kubernetes => {
            println!("{}", kubernetes::build(&root)?.folder().display());
            Ok(())
        }
        Task::Argocd => {
            let built = argocd::build(&root)?;
            println!(
                "{}\n{}\n{}",
                built.cli.display(),
                built.judge.display(),
                built.files.display()
            );
            Ok(())
        }
        Task::Differential(task) => task.run(&root),
        Task::Compare(task) => task.run(&root).await,
        Task::Soak(task) => task.run(&root).await,
        Task::Figures => xtask::figures::write(&root),
        Task::Reference(task) => task.run(&root),
        Task::Surface(task) => task.run(&root),
        Task::Fuzz(task) => task.run(&root),
        Task::Lint(task) => task.run(&root),
        Task::Setup => setup::all(&root),
    }
}

/// The checkout that this program was built from.
fn root() -> Result<PathBuf> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("xtask has no parent folder")?;
    Ok(root.to_owned())
}

/// Runs a program in the checkout, with our standard output and standard error.
///
/// # Errors
/// It cannot be started, or exits with a status other than 0.
fn run(root: &Path, program: &str, arguments: &[&str]) -> Result<()> {
    execute(Command::new(program).args(arguments).current_dir(root))
}

/// Runs a prepared command.
///
/// # Errors
/// It cannot be started, or exits with a status other than 0.
fn execute(command: &mut Command) -> Result<()> {
    let status = command.status().with_context(|| format!("starting {command:?}"))?;
    ensure!(status.success(), "{command:?} ended with {status}");
    Ok(())
}

/// The first line of a command's standard output.
///
/// # Errors
/// It cannot be started, or exits with a status other than 0.
fn output(command: &mut Command) -> Result<String> {
    let output = command.output().with_context(|| format!("starting {command:?}"))?;
    ensure!(output.status.success(), "{command:?} ended with {}", output.status);
    let text = String::from_utf8(output.stdout)?;
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
