//! The project's tasks.

use std::path::Path;

use anyhow::Context as _;
use clap::Parser;

mod plugins;

/// The project's tasks.
#[derive(Parser)]
enum Task {
    /// Build the guests into target/guests.
    Plugins,
}

fn main() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"))
        .parent()
        .context("xtask has no parent folder")?;
    match Task::parse() {
        Task::Plugins => {
            for built in plugins::build(root)? {
                let file = built.component.strip_prefix(root).unwrap_or(&built.component);
                #[expect(clippy::print_stdout, reason = "the task's result")]
                {
                    println!(
                        "{}: {} {} bytes sha256 {}",
                        built.name,
                        file.display(),
                        built.bytes,
                        built.sha256
                    );
                }
            }
        }
    }
    Ok(())
}
