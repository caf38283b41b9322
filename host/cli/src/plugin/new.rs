//! `tollgate plugin new`: creates a folder that builds as it is: crate, manifest, WIT, SDK and
//! build program, all of this version of the gateway. It never overwrites a file.

use std::fs;
use std::io::Write;
use std::path::Path;
use std::process::ExitCode;

use super::{Error, NewWorld, at};

/// A file of `plugins/sdk`: its path in a new plugin, and its content.
macro_rules! sdk {
    ($path:literal) => {
        (
            concat!("sdk/", $path),
            include_str!(concat!(env!("CARGO_MANIFEST_DIR"), "/../../plugins/sdk/", $path)),
        )
    };
}

/// A template, with its own files in `new/$folder`.
macro_rules! template {
    ($folder:literal, $sdk:literal, $files:expr) => {
        Template {
            sdk: $sdk,
            sdk_manifest: include_str!(concat!(
                env!("CARGO_MANIFEST_DIR"),
                "/../../plugins/",
                $sdk,
                "/Cargo.toml"
            )),
            files: $files,
            templated: &[
                ("Cargo.toml", include_str!(concat!("new/", $folder, "/Cargo.toml.txt"))),
                (
                    "manifest.yaml",
                    include_str!(concat!("new/", $folder, "/manifest.yaml")),
                ),
                ("README.md", include_str!(concat!("new/", $folder, "/README.md"))),
            ],
        }
    };
}

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

const FILTER: Template = template!(
    "filter",
    "sdk",
    &[
        sdk!("src/lib.rs"),
        sdk!("src/adapter.rs"),
        sdk!("src/arena.rs"),
        ("src/lib.rs", include_str!("new/filter/lib.rs.txt")),
        ("request.yaml", include_str!("new/filter/request.yaml")),
    ]
);

const PROVIDER: Template = template!(
    "provider",
    "sdk/provider",
    &[
        // The SDKs share the allocator, which keeps its path.
        sdk!("src/arena.rs"),
        sdk!("provider/src/adapter.rs"),
        sdk!("provider/src/aws.rs"),
        sdk!("provider/src/classify.rs"),
        sdk!("provider/src/encoding.rs"),
        sdk!("provider/src/error.rs"),
        sdk!("provider/src/expiry.rs"),
        sdk!("provider/src/json.rs"),
        sdk!("provider/src/jwt.rs"),
        sdk!("provider/src/kubernetes.rs"),
        sdk!("provider/src/lib.rs"),
        sdk!("provider/src/oauth.rs"),
        sdk!("provider/src/request.rs"),
        sdk!("provider/src/secret.rs"),
        sdk!("provider/src/sigv4.rs"),
        sdk!("provider/src/sigv4/tests.rs"),
        sdk!("provider/src/sigv4/text.rs"),
        ("src/lib.rs", include_str!("new/provider/lib.rs.txt")),
        ("transcript.yaml", include_str!("new/provider/transcript.yaml")),
    ]
);

const GENERATOR: Template = template!(
    "generator",
    "sdk/generator",
    &[
        // Files that the SDKs share keep their paths.
        sdk!("src/arena.rs"),
        sdk!("provider/src/classify.rs"),
        sdk!("provider/src/encoding.rs"),
        sdk!("provider/src/error.rs"),
        sdk!("provider/src/json.rs"),
        sdk!("provider/src/request.rs"),
        sdk!("provider/src/secret.rs"),
        sdk!("generator/src/adapter.rs"),
        sdk!("generator/src/lib.rs"),
        ("src/lib.rs", include_str!("new/generator/lib.rs.txt")),
    ]
);

fn write(path: &Path, content: &str) -> Result<(), Error> {
    if let Some(parent) = path.parent() {
        fs::create_dir_all(parent).map_err(at(path))?;
    }
    fs::write(path, content).map_err(at(path))
}

/// Writes the folder `into/name`.
pub(super) fn run(world: NewWorld, name: &str, into: &Path, out: &mut dyn Write) -> Result<ExitCode, Error> {
    let good = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    let first = name.bytes().next().is_some_and(|byte| byte.is_ascii_lowercase());
    if !first || name.len() > 63 || !name.bytes().all(good) {
        let rule = "1 to 63 lower-case letters, digits and `-`, a letter first";
        return Err(Error::Input(format!("`{name}` is not a plugin name: {rule}")));
    }
    let folder = into.join(name);
    if folder.exists() {
        return Err(Error::Input(format!("`{}` exists already", folder.display())));
    }
    let template = match world {
        NewWorld::HeaderFilter => FILTER,
        NewWorld::Provider => PROVIDER,
        NewWorld::Generator => GENERATOR,
    };
    for (file, content) in SHARED.iter().chain(template.files) {
        write(&folder.join(file), content)?;
    }
    let sdk = folder.join(template.sdk);
    for (file, content) in WIT_FILES {
        write(&sdk.join("wit").join(file), content)?;
    }
    for (file, content) in template.templated {
        write(&folder.join(file), &content.replace("{{name}}", name))?;
    }
    // In this repository the SDK takes its lints from the workspace around it.
    let sdk_manifest = template.sdk_manifest.replace("\n[lints]\nworkspace = true\n", "");
    write(&sdk.join("Cargo.toml"), &sdk_manifest)?;
    writeln!(out, "{} is ready; build it with\n", folder.display())?;
    writeln!(
        out,
        "    cd {}\n    cargo run --release --manifest-path build/Cargo.toml",
        folder.display()
    )?;
    Ok(ExitCode::SUCCESS)
}
