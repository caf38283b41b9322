//! `tollgate plugin new`: creates a folder that builds as it is: crate, manifest, WIT, SDK and
//! build program, all of this version of the gateway. It never overwrites a file.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use super::{Error, at};
use tollgate_core::plugin::World;

/// A file of `plugins/sdk`: its path in a new plugin, and its content.
macro_rules! sdk {
    ($path:literal) => {
        (
            concat!("sdk/", $path),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../plugins/sdk/", $path)),
        )
    };
}

mod filter;
mod generator;
mod provider;

/// All files of the WIT package: a package that lacks one is another package.
const WIT_FILES: &[(&str, &str)] = &[
    ("ambient.wit", include_str!("../../../../wit/ambient.wit")),
    ("clock.wit", include_str!("../../../../wit/clock.wit")),
    ("credentials.wit", include_str!("../../../../wit/credentials.wit")),
    ("crypto.wit", include_str!("../../../../wit/crypto.wit")),
    ("egress.wit", include_str!("../../../../wit/egress.wit")),
    ("generators.wit", include_str!("../../../../wit/generators.wit")),
    ("header-types.wit", include_str!("../../../../wit/header-types.wit")),
    ("headers.wit", include_str!("../../../../wit/headers.wit")),
    ("json-path.wit", include_str!("../../../../wit/json-path.wit")),
    ("log.wit", include_str!("../../../../wit/log.wit")),
    ("memo.wit", include_str!("../../../../wit/memo.wit")),
    ("provider-types.wit", include_str!("../../../../wit/provider-types.wit")),
    ("random.wit", include_str!("../../../../wit/random.wit")),
    ("reveal.wit", include_str!("../../../../wit/reveal.wit")),
    ("secrets.wit", include_str!("../../../../wit/secrets.wit")),
    ("world.wit", include_str!("../../../../wit/world.wit")),
];

const SHARED: &[(&str, &str)] = &[
    ("build/src/plugins.rs", include_str!("../../../../xtask/src/plugins.rs")),
    ("build/src/main.rs", include_str!("new/build.rs")),
    ("build/Cargo.toml", include_str!("new/build.toml")),
    (
        ".cargo/config.toml",
        include_str!("../../../../plugins/.cargo/config.toml"),
    ),
    (".gitignore", "/target\n/build/target\n"),
];

struct Template {
    /// Folder of the SDK's crate.
    sdk: &'static str,
    /// The SDK's own Cargo.toml; it depends on nothing of this repository.
    sdk_manifest: &'static str,
    /// Files to copy as they are, the SDK's among them.
    files: &'static [(&'static str, &'static str)],
    /// Files in which `{{name}}` stands for the plugin's name.
    templated: &'static [(&'static str, &'static str)],
}

fn write(path: &Path, content: &str) -> Result<(), Error> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(at(path))?;
    }
    fs::write(path, content).map_err(at(path))
}

/// Writes the folder `into/name`.
pub(super) fn run(world: World, name: &str, into: &Path, out: &mut dyn Write) -> Result<ExitCode, Error> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    if !first || name.len() > 63 || !name.bytes().all(good) {
        return Err(Error::Name(name.to_owned()));
    }
    let folder = into.join(name);
    if folder.exists() {
        return Err(Error::Exists(folder));
    }
    let template = match world {
        World::HeaderFilter => filter::TEMPLATE,
        World::CredentialProvider => provider::TEMPLATE,
        World::Generator => generator::TEMPLATE,
    };
    let Template {
        sdk,
        sdk_manifest,
        files,
        templated,
    } = template;
    for (file, content) in SHARED.iter().chain(files) {
        write(&folder.join(file), content)?;
    }
    for (file, content) in WIT_FILES {
        write(&folder.join(sdk).join("wit").join(file), content)?;
    }
    for (file, content) in templated {
        write(&folder.join(file), &content.replace("{{name}}", name))?;
    }
    // In this repository the SDK takes its lints from the workspace around it.
    write(
        &folder.join(sdk).join("Cargo.toml"),
        &sdk_manifest.replace("\n[lints]\nworkspace = true\n", ""),
    )?;
    writeln!(out, "{} is ready; build it with\n", folder.display())?;
    writeln!(
        out,
        "    cd {}\n    cargo run --release --manifest-path build/Cargo.toml",
        folder.display()
    )?;
    Ok(ExitCode::SUCCESS)
}
