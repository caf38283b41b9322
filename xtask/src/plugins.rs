//! Builds the guests of a Rust workspace: cargo compiles modules, `wit-component` makes components
//! of them, and each manifest gets its component's digest.
//!
//! Members with a `manifest.yaml` beside `Cargo.toml` are guests. Each becomes `<name>.wasm` and
//! `<name>.yaml` in one folder.
//!
//! Invariant: this file uses no other module, because `tollgate plugin new` copies it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use sha2::{Digest as _, Sha256};

/// Compilation target of guests.
const TARGET: &str = "wasm32-unknown-unknown";

/// Debian packages that can build guests where rustup is missing or offline.
const DEBIAN_PACKAGES: &[&str] = &["rustc-web", "cargo-web", "rust-web-src", "lld-19"];

/// Time limit for rustup to fetch the target's standard library.
const RUSTUP_TIMEOUT: Duration = Duration::from_secs(120);

/// A plugin that was built.
#[derive(Debug)]
pub struct Built {
    /// Plugin name, which is also the file name.
    pub name: String,
    /// Path of the component.
    pub component: PathBuf,
    /// Path of the manifest, which has the component's digest.
    pub manifest: PathBuf,
    /// SHA-256 digest of the component, lower-case hex.
    pub sha256: String,
    /// Size of the component in bytes.
    pub bytes: usize,
}

/// Builds every Rust guest of the repository at `root` into `target/guests`. Files of the plugins
/// in `kept` stay.
///
/// # Errors
/// There is no toolchain that can build guests (the text has the command that installs one), a
/// guest does not compile, or a manifest has no name.
pub fn build(root: &Path, kept: &[&str]) -> anyhow::Result<Vec<Built>> {
    let scratch = root.join("target/guest-build");
    build_workspace((&root.join("plugins"), &scratch), &root.join("target/guests"), kept)
}

/// Builds every guest of `workspace` into `output`, with cargo's target folder below `scratch`.
/// Removes the files of all other plugins from `output`, except those in `kept`, which are built
/// elsewhere.
///
/// # Errors
/// As [`build`].
pub fn build_workspace(
    (workspace, scratch): (&Path, &Path),
    output: &Path,
    kept: &[&str],
) -> anyhow::Result<Vec<Built>> {
    let toolchain = Toolchain::find()?;
    let scratch = scratch.join(toolchain.folder());
    let mut cargo = toolchain.cargo();
    cargo
        .current_dir(workspace)
        .args(["build", "--release", "--target", TARGET, "--target-dir"])
        .arg(&scratch);
    let status = cargo.status().with_context(|| format!("cannot start {cargo:?}"))?;
    ensure!(status.success(), "guests do not compile: {cargo:?} ended with {status}");

    fs::create_dir_all(output).with_context(|| format!("cannot create {}", output.display()))?;
    let modules = scratch.join(TARGET).join("release");
    let mut built = Vec::new();
    for member in members(&toolchain, workspace)? {
        built.push(finish(&member, &modules, output)?);
    }
    ensure!(
        !built.is_empty(),
        "no member of {} has a manifest.yaml",
        workspace.display()
    );
    remove_others(output, &built, kept)?;
    Ok(built)
}

/// A member of the workspace that is a plugin.
struct Member {
    /// Package name.
    package: String,
    /// Path of its `manifest.yaml`.
    manifest: PathBuf,
}

/// A toolchain that can compile for [`TARGET`].
enum Toolchain {
    /// The toolchain on the PATH, which has the target's standard library.
    OnPath,
    /// Debian's, which has the standard library as source.
    Debian,
}

impl Toolchain {
    /// The first toolchain that works. Installs what is missing if it can.
    fn find() -> anyhow::Result<Self> {
        if has_target() || (rustup_adds_target() && has_target()) {
            return Ok(Self::OnPath);
        }
        if !debian_complete() {
            install_debian()?;
            ensure!(
                debian_complete(),
                "{} are installed but do not work together",
                DEBIAN_PACKAGES.join(", ")
            );
        }
        Ok(Self::Debian)
    }

    /// The command `cargo`, set to use this toolchain's compiler and linker.
    fn cargo(&self) -> Command {
        match self {
            Self::OnPath => {
                let mut cargo = Command::new("cargo");
                clean(&mut cargo);
                cargo
            }
            Self::Debian => {
                let mut cargo = Command::new("/usr/bin/cargo");
                clean(&mut cargo);
                cargo
                    .env("RUSTC", "/usr/bin/rustc")
                    .env("RUSTC_BOOTSTRAP", "1")
                    .env("CARGO_TARGET_WASM32_UNKNOWN_UNKNOWN_LINKER", "wasm-ld-19")
                    .env("CARGO_UNSTABLE_BUILD_STD", "std,panic_abort")
                    .env_remove("RUSTUP_TOOLCHAIN");
                cargo
            }
        }
    }

    /// Each toolchain has its own scratch folder, so that neither discards what the other compiled.
    fn folder(&self) -> &'static str {
        match self {
            Self::OnPath => "at-hand",
            Self::Debian => "debian",
        }
    }
}

/// Removes variables that an outer cargo set for the build of the host.
fn clean(command: &mut Command) {
    for name in [
        "CARGO_TARGET_DIR",
        "CARGO_ENCODED_RUSTFLAGS",
        "RUSTFLAGS",
        "RUSTC_WRAPPER",
        "RUSTC_WORKSPACE_WRAPPER",
    ] {
        command.env_remove(name);
    }
}

/// Whether the compiler on the PATH has the target's standard library.
fn has_target() -> bool {
    let output = Command::new("rustc")
        .args(["--print", "target-libdir", "--target", TARGET])
        .output();
    output.is_ok_and(|output| {
        let folder = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
        let core = |entry: fs::DirEntry| entry.file_name().to_string_lossy().starts_with("libcore-");
        output.status.success() && fs::read_dir(folder).is_ok_and(|entries| entries.flatten().any(core))
    })
}

/// Adds the target with rustup. False if rustup is missing, offline or too slow.
fn rustup_adds_target() -> bool {
    let mut rustup = Command::new("rustup");
    rustup
        .args(["target", "add", TARGET])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    let Ok(mut child) = rustup.spawn() else { return false };
    let deadline = Instant::now() + RUSTUP_TIMEOUT;
    loop {
        match child.try_wait() {
            Ok(Some(status)) => return status.success(),
            Ok(None) if Instant::now() < deadline => std::thread::sleep(Duration::from_millis(50)),
            Ok(None) | Err(_) => {
                // An error means that it has already ended.
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}

/// Whether Debian's compiler, cargo, sources and linker are all installed.
fn debian_complete() -> bool {
    let output = Command::new("/usr/bin/rustc")
        .args(["--print", "sysroot"])
        .env_remove("RUSTUP_TOOLCHAIN")
        .output();
    let Ok(output) = output else { return false };
    let sysroot = PathBuf::from(String::from_utf8_lossy(&output.stdout).trim());
    let linker = Command::new("wasm-ld-19").arg("--version").output();
    sysroot.join("lib/rustlib/src/rust/library/std/Cargo.toml").exists()
        && Path::new("/usr/bin/cargo").exists()
        && linker.is_ok_and(|output| output.status.success())
}

/// Installs Debian's packages if the user is root; otherwise the error has the commands.
fn install_debian() -> anyhow::Result<()> {
    let packages = DEBIAN_PACKAGES.join(" ");
    let advice = format!(
        "no toolchain for {TARGET}: run `rustup target add {TARGET}`, or on Debian, as root, \
         `apt-get install --no-install-recommends {packages}`"
    );
    let root = Command::new("id")
        .arg("-u")
        .output()
        .is_ok_and(|output| output.stdout.trim_ascii() == b"0");
    if !root || Command::new("apt-get").arg("--version").output().is_err() {
        bail!(advice);
    }
    for arguments in [
        vec!["update"],
        [
            vec!["install", "-y", "--no-install-recommends"],
            DEBIAN_PACKAGES.to_vec(),
        ]
        .concat(),
    ] {
        let mut apt = Command::new("apt-get");
        apt.args(&arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .stdin(Stdio::null());
        let status = apt.status().with_context(|| format!("cannot start {apt:?}"))?;
        ensure!(status.success(), "{apt:?} ended with {status}; {advice}");
    }
    Ok(())
}

/// The members of `workspace` that are plugins, sorted by package name.
fn members(toolchain: &Toolchain, workspace: &Path) -> anyhow::Result<Vec<Member>> {
    let mut cargo = toolchain.cargo();
    cargo
        .current_dir(workspace)
        .args(["metadata", "--no-deps", "--format-version", "1"]);
    let output = cargo
        .stderr(Stdio::inherit())
        .output()
        .with_context(|| format!("cannot start {cargo:?}"))?;
    ensure!(output.status.success(), "{cargo:?} ended with {}", output.status);
    let metadata: serde_json::Value = serde_json::from_slice(&output.stdout).context("cargo metadata is not JSON")?;
    let packages = metadata
        .get("packages")
        .and_then(serde_json::Value::as_array)
        .context("metadata without packages")?;
    let mut members = Vec::new();
    for package in packages {
        let text = |key: &str| package.get(key).and_then(serde_json::Value::as_str);
        let (Some(name), Some(file)) = (text("name"), text("manifest_path")) else {
            continue;
        };
        let manifest = Path::new(file).with_file_name("manifest.yaml");
        if manifest.exists() {
            members.push(Member {
                package: name.to_owned(),
                manifest,
            });
        }
    }
    members.sort_by(|a, b| a.package.cmp(&b.package));
    Ok(members)
}

/// Makes a component of the module of `member` and writes it with its manifest.
fn finish(member: &Member, modules: &Path, output: &Path) -> anyhow::Result<Built> {
    let module = modules.join(format!("{}.wasm", member.package.replace('-', "_")));
    let bytes = fs::read(&module).with_context(|| format!("cannot read {}", module.display()))?;
    let encoded = wit_component::ComponentEncoder::default()
        .module(&bytes)
        .and_then(|encoder| {
            let mut encoder = encoder.validate(true);
            encoder.encode()
        });
    let component = encoded.with_context(|| format!("cannot make a component of {}", module.display()))?;
    write(&component, &member.manifest, output)
}

/// Writes to `output`, under the plugin's name, a component and the manifest at `source` with the
/// component's digest.
///
/// # Errors
/// The manifest has no line `name: …`, or a file cannot be read or written.
pub fn write(component: &[u8], source: &Path, output: &Path) -> anyhow::Result<Built> {
    let sha256 = hex(&Sha256::digest(component));
    let text = fs::read_to_string(source).with_context(|| format!("cannot read {}", source.display()))?;
    let name = text
        .lines()
        .find_map(|line| line.strip_prefix("name:"))
        .map(str::trim)
        .unwrap_or_default()
        .to_owned();
    ensure!(!name.is_empty(), "{}: no line `name: …`", source.display());
    let manifest = with_digest(&text, &sha256);

    let component_file = output.join(format!("{name}.wasm"));
    let manifest_file = output.join(format!("{name}.yaml"));
    replace(&component_file, component)?;
    replace(&manifest_file, manifest.as_bytes())?;
    Ok(Built {
        name,
        component: component_file,
        manifest: manifest_file,
        sha256,
        bytes: component.len(),
    })
}

/// The manifest with the digest in the line after its name.
fn with_digest(text: &str, sha256: &str) -> String {
    let mut result = String::with_capacity(text.len() + 80);
    for line in text.lines().filter(|line| !line.starts_with("sha256:")) {
        result.push_str(line);
        result.push('\n');
        if line.starts_with("name:") {
            result.push_str(&format!("sha256: {sha256}\n"));
        }
    }
    result
}

/// Writes a file atomically, unless it already has this content.
fn replace(path: &Path, content: &[u8]) -> anyhow::Result<()> {
    if fs::read(path).is_ok_and(|present| present == content) {
        return Ok(());
    }
    let temporary = path.with_extension("new");
    fs::write(&temporary, content).with_context(|| format!("cannot write {}", temporary.display()))?;
    fs::rename(&temporary, path).with_context(|| format!("cannot write {}", path.display()))
}

/// Removes files of plugins that are neither built nor `kept`.
fn remove_others(output: &Path, built: &[Built], kept: &[&str]) -> anyhow::Result<()> {
    for entry in fs::read_dir(output).with_context(|| format!("cannot read {}", output.display()))? {
        let path = entry?.path();
        let ours = built
            .iter()
            .any(|plugin| plugin.component == path || plugin.manifest == path)
            || path
                .file_stem()
                .is_some_and(|stem| kept.iter().any(|name| stem == *name));
        let plugin = path
            .extension()
            .is_some_and(|extension| extension == "wasm" || extension == "yaml");
        if plugin && !ours {
            fs::remove_file(&path).with_context(|| format!("cannot remove {}", path.display()))?;
        }
    }
    Ok(())
}

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}
