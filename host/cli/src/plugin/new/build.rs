//! Builds the plugin in the folder above into its `target/guests`.

use std::path::Path;

use anyhow::Context as _;

mod plugins;

fn main() -> anyhow::Result<()> {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).parent().context("no folder above this one")?;
    let scratch = root.join("target/guest-build");
    for built in plugins::build_workspace((root, &scratch), &root.join("target/guests"), &[])? {
        println!("{} ({} bytes)", built.component.display(), built.bytes);
        println!("{} (sha256 {})", built.manifest.display(), built.sha256);
    }
    Ok(())
}
