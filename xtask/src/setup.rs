//! Installs what the tasks need besides the Rust toolchain. Debian packages are installed only if
//! they are missing and the user is root; otherwise the error has the command that installs them.

use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

use crate::{argocd, engines, execute, kubernetes, run};
pub use xtask::cache::folder as cache;
use xtask::postgres;

/// A program and the Debian package that contains it.
#[derive(Clone, Copy, Debug)]
pub struct Tool {
    /// Name on the PATH.
    pub program: &'static str,
    /// Debian package.
    pub package: &'static str,
}

/// Proxy and backend of `compare`, and balancer of the tests of agents.
pub const NGINX: Tool = Tool {
    program: "nginx",
    package: "nginx-light",
};
/// Load generator of `compare`.
pub const WRK: Tool = Tool {
    program: "wrk",
    package: "wrk",
};
/// Makes separate networks for tests of agents.
const IPROUTE: Tool = Tool {
    program: "ip",
    package: "iproute2",
};
/// Gives a program another clock, for tests of agents.
const FAKETIME: Tool = Tool {
    program: "faketime",
    package: "faketime",
};
/// Database of the store's tests. Debian does not put its programs on the PATH.
const POSTGRES: Tool = Tool {
    program: "postgres",
    package: "postgresql",
};

/// Cache of the Argo CD that the tests start.
const REDIS: Tool = Tool {
    program: "redis-server",
    package: "redis-server",
};

/// Creates and serves the repositories of `tests/parts/repository` and
/// `tests/parts/applicationsets`. Argo CD's code in the judge runs it too.
const GIT: Tool = Tool {
    program: "git",
    package: "git",
};

/// Browser of `tests/kubernetes/browser.rs`.
pub const CHROMIUM: Tool = Tool {
    program: "chromium",
    package: "chromium",
};

/// Message bus and keyring of a desktop, in which `tollgate login` keeps credentials.
const DBUS: Tool = Tool {
    program: "dbus-daemon",
    package: "dbus-daemon",
};
const DBUS_SEND: Tool = Tool {
    program: "dbus-send",
    package: "dbus-bin",
};
const KEYRING: Tool = Tool {
    program: "gnome-keyring-daemon",
    package: "gnome-keyring",
};

/// Oldest Go release that builds the peers and Kubernetes.
const GO: (u32, u32) = (1, 26);

/// Installs what the tasks need, except the toolchain of the guests, which `plugins` installs.
pub fn all(root: &Path) -> Result<()> {
    packages(&[WRK])?;
    tests(root)
}

/// Installs what the tests need, and builds their Kubernetes, Argo CD and policy engines.
pub fn tests(root: &Path) -> Result<()> {
    node_modules(&root.join("tests/oidc"))?;
    node_modules(&root.join("tests/accessibility"))?;
    if postgres::folder().is_none() {
        packages(&[POSTGRES])?;
        ensure!(
            postgres::folder().is_some(),
            "PostgreSQL is missing: {}",
            postgres::REMEDY
        );
    }
    packages(&[CHROMIUM, DBUS, DBUS_SEND, FAKETIME, GIT, IPROUTE, KEYRING, NGINX, REDIS])?;
    kubernetes::build(root)?;
    engines::build(root)?;
    argocd::build(root).map(drop)
}

/// Installs what `cargo xtask world` runs besides what it builds.
///
/// # Errors
/// As [`packages`].
pub fn world() -> Result<()> {
    packages(&[GIT, REDIS])
}

/// Installs the Debian packages of those tools that are missing.
///
/// # Errors
/// A tool is missing and there is no apt-get, or the user is not root. The text has the command
/// that installs it.
pub fn packages(tools: &[Tool]) -> Result<()> {
    let missing: Vec<&str> = tools
        .iter()
        .filter(|tool| find(tool.program).is_none())
        .map(|tool| tool.package)
        .collect();
    if missing.is_empty() {
        return Ok(());
    }
    let command = format!("apt-get install {}", missing.join(" "));
    if find("apt-get").is_none() || std::fs::metadata("/proc/self")?.uid() != 0 {
        bail!("tools are missing: run `{command}` as root, or install the same packages of your system");
    }
    apt(&["update"])?;
    let mut arguments = vec!["install", "--yes", "--no-install-recommends"];
    arguments.extend(&missing);
    apt(&arguments).with_context(|| format!("`{command}` failed"))
}

fn apt(arguments: &[&str]) -> Result<()> {
    // With run level 1, invoke-rc.d does not start the installed services.
    execute(
        Command::new("apt-get")
            .args(arguments)
            .env("DEBIAN_FRONTEND", "noninteractive")
            .env("RUNLEVEL", "1"),
    )
}

/// Installs the packages that the folder's `package-lock.json` locks, unless that lock file is
/// already installed. Does nothing if the folder has none.
pub fn node_modules(folder: &Path) -> Result<()> {
    let Ok(lock) = std::fs::read(folder.join("package-lock.json")) else {
        return Ok(());
    };
    let stamp = folder.join("node_modules/.installed-lock.json");
    if std::fs::read(&stamp).is_ok_and(|installed| installed == lock) {
        return Ok(());
    }
    if find("npm").is_none() {
        bail!("npm is missing: install Node.js 20 or later");
    }
    run(folder, "npm", &["ci", "--no-audit", "--no-fund", "--ignore-scripts"])?;
    std::fs::write(&stamp, lock).with_context(|| format!("writing {}", stamp.display()))
}

/// Checks that Go is installed and new enough to build the peers and Kubernetes.
pub fn go() -> Result<()> {
    let hint = format!("install Go {}.{} or later and put it on the PATH", GO.0, GO.1);
    if find("go").is_none() {
        bail!("go is missing: {hint}");
    }
    let output = Command::new("go")
        .args(["env", "GOVERSION"])
        .env("GOTOOLCHAIN", "local")
        .output()?;
    let text = String::from_utf8_lossy(&output.stdout);
    let mut parts = text.trim().trim_start_matches("go").split('.').map(str::parse::<u32>);
    match (parts.next(), parts.next()) {
        (Some(Ok(major)), Some(Ok(minor))) if (major, minor) >= GO => Ok(()),
        _ => bail!("`{}` is too old: {hint}", text.trim()),
    }
}

/// The path of a program on the PATH or in `/usr/sbin`, where Debian puts nginx.
pub fn find(program: &str) -> Option<PathBuf> {
    let path = std::env::var_os("PATH").unwrap_or_default();
    std::env::split_paths(&path)
        .chain([PathBuf::from("/usr/sbin")])
        .map(|folder| folder.join(program))
        .find(|candidate| candidate.is_file())
}
