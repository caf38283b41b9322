//! Builds the guests: modules by cargo, components by `wit-component`, and the
//! manifests with the digests.
//!
//! In: a workspace whose members have a `manifest.yaml` beside `Cargo.toml`.
//! Out: `<name>.wasm` and `<name>.yaml` in one folder. Never: a component whose
//! manifest has another digest.
//!
//! This file uses nothing of the other tasks: `tollgate plugin new` copies it.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use sha2::{Digest as _, Sha256};

/// What guests are compiled for.
const TARGET: &str = "wasm32-unknown-unknown";

/// Debian packages that together can build guests where rustup has no server.
const DEBIAN_PACKAGES: &[&str] = &["rustc-web", "cargo-web", "rust-web-src", "lld-19"];

/// How long rustup may take to fetch the target's standard library.
const RUSTUP_TIMEOUT: Duration = Duration::from_secs(120);

/// One plugin, built.
#[derive(Debug)]
pub struct Built {
    /// Plugin name, which is also the file name.
    pub name: String,
    /// The component.
    pub component: PathBuf,
    /// The manifest with its digest.
    pub manifest: PathBuf,
    /// Digest of the component, lower-case hex.
    pub sha256: String,
    /// Size of the component.
    pub bytes: usize,
}

/// Builds every guest of the repository at `root` that is written in Rust into
/// `target/guests`. Files of the plugins in `kept` stay.
///
/// # Errors
/// No toolchain that can build guests (the text names the command that gets
/// one), a guest that does not compile, or a manifest without a name.
pub fn build(root: &Path, kept: &[&str]) -> anyhow::Result<Vec<Built>> {
    let scratch = root.join("target/guest-build");
    build_workspace((&root.join("plugins"), &scratch), &root.join("target/guests"), kept)
}

/// Builds every guest of `workspace` into `output`, with `scratch` as cargo's
/// target folder. Files of guests that are gone are removed from `output`, but for
/// those of the plugins in `kept`, which somebody else builds.
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
    /// Its `manifest.yaml`.
    manifest: PathBuf,
}

/// What can compile for [`TARGET`].
enum Toolchain {
    /// The toolchain at hand, which has the target's standard library.
    AtHand,
    /// Debian's, which has the standard library as source.
    Debian,
}

impl Toolchain {
    /// The first that works; gets what is missing where it can.
    fn find() -> anyhow::Result<Self> {
        if has_target() || (rustup_adds_target() && has_target()) {
            return Ok(Self::AtHand);
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

    /// Cargo, so set up that it finds the right compiler and linker.
    fn cargo(&self) -> Command {
        match self {
            Self::AtHand => {
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

    /// Each toolchain has an own scratch folder, so that neither throws away
    /// what the other compiled.
    fn folder(&self) -> &'static str {
        match self {
            Self::AtHand => "at-hand",
            Self::Debian => "debian",
        }
    }
}

/// Takes away what an outer cargo set for the host's own build.
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

/// Whether the compiler at hand has the target's standard library.
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

/// Asks rustup for the target; false where it is missing or offline.
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
                // Either already gone, or it is now.
                let _ = child.kill();
                let _ = child.wait();
                return false;
            }
        }
    }
}

/// Whether Debian's compiler, cargo, sources and linker are all there.
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

/// Installs Debian's packages, as root; else names the commands.
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

/// The members of `workspace` that are plugins, by package name.
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

/// Makes the module of `member` a component and writes it with its manifest.
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

/// Writes a component and the manifest at `source` with its digest, both under the
/// plugin's name.
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

/// The manifest with the digest below its name.
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

/// Writes a file so that nobody sees half of it; leaves an equal one alone.
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
