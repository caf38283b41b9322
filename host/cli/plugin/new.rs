//! `tollgate plugin new`: a folder that builds as it is.
//!
//! In: a name. Out: crate, manifest, WIT, SDK and build program, all of this
//! version of the gateway. Never: a file over one that is there.

use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use super::{Error, write};

/// Files that are the same in every new plugin.
const SHARED: &[(&str, &str)] = &[
    ("sdk/wit/world.wit", include_str!("../../../wit/world.wit")),
    (
        "sdk/wit/header-types.wit",
        include_str!("../../../wit/header-types.wit"),
    ),
    ("sdk/wit/headers.wit", include_str!("../../../wit/headers.wit")),
    ("sdk/wit/log.wit", include_str!("../../../wit/log.wit")),
    ("sdk/wit/clock.wit", include_str!("../../../wit/clock.wit")),
    ("sdk/wit/random.wit", include_str!("../../../wit/random.wit")),
    ("sdk/src/lib.rs", include_str!("../../../plugins/sdk/src/lib.rs")),
    (
        "sdk/src/adapter.rs",
        include_str!("../../../plugins/sdk/src/adapter.rs"),
    ),
    ("sdk/src/arena.rs", include_str!("../../../plugins/sdk/src/arena.rs")),
    ("build/src/plugins.rs", include_str!("../../../xtask/src/plugins.rs")),
    ("build/src/main.rs", include_str!("new/build.rs")),
    ("build/Cargo.toml", include_str!("new/build.toml")),
    (
        ".cargo/config.toml",
        include_str!("../../../plugins/.cargo/config.toml"),
    ),
    ("src/lib.rs", include_str!("new/filter.rs")),
    ("request.yaml", include_str!("new/request.yaml")),
    (".gitignore", "/target\n/build/target\n"),
];

/// Files with the plugin's name in them, as `{{name}}`.
const NAMED: &[(&str, &str)] = &[
    ("Cargo.toml", include_str!("new/Cargo.toml.txt")),
    ("manifest.yaml", include_str!("new/manifest.yaml")),
    ("README.md", include_str!("new/README.md")),
];

/// The SDK's own Cargo.toml; it depends on nothing of this repository.
const SDK: &str = include_str!("../../../plugins/sdk/Cargo.toml");

/// Writes the folder `into/name`.
pub(super) fn run(name: &str, into: &Path, out: &mut dyn Write) -> Result<ExitCode, Error> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    if !first || name.len() > 63 || !name.bytes().all(good) {
        return Err(Error::Name(name.to_owned()));
    }
    let folder = into.join(name);
    if folder.exists() {
        return Err(Error::Exists(folder));
    }
    for (file, content) in SHARED {
        write(&folder.join(file), content)?;
    }
    for (file, content) in NAMED {
        write(&folder.join(file), &content.replace("{{name}}", name))?;
    }
    // In this repository the SDK takes its lints from the workspace around it.
    write(
        &folder.join("sdk/Cargo.toml"),
        &SDK.replace("\n[lints]\nworkspace = true\n", ""),
    )?;
    writeln!(out, "{} is ready; build it with\n", folder.display())?;
    writeln!(
        out,
        "    cd {}\n    cargo run --release --manifest-path build/Cargo.toml",
        folder.display()
    )?;
    Ok(ExitCode::SUCCESS)
}
