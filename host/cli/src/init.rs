//! `tollgate init`: reads an Argo CD, from a cluster or a folder, and writes settings, policies and
//! objects with which a gateway in front of it runs.
//!
//! Everything is read before anything is written, and only into a folder that is new or empty. No secret
//! of Argo CD is written.

use std::fs::{self, OpenOptions};
use std::io::Write;
use std::net::{Ipv4Addr, SocketAddr};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::{Path, PathBuf};
use std::process::ExitCode;
use std::sync::Arc;

use clap::Args;
use url::Url;

use crate::check;
use tollgate_client::failure::Failure;
use tollgate_client::kubeconfig_path;
use tollgate_config::{ApplicationNamespaces, KubernetesState};
use tollgate_core::diagnostic::Diagnostic;
use tollgate_objects::Resources;
use tollgate_state::directory;
use tollgate_state::kubernetes;
use tollgate_state::source::{FIRST_LOAD_TIMEOUT, KubernetesSource, Source as _};

mod address;
mod certificate;
mod found;
mod objects;
mod policies;
mod settings;

use address::Reserved;
use found::Found;
use settings::Source;

const PUBLIC_PORT: u16 = 8443;
const ADMIN_PORT: u16 = 8081;

const OTHER_SOURCE: &str = "name one with `--kubeconfig FILE`, or a folder of objects with `--state FOLDER`";

/// What a file is for, and whether only its owner may read it.
struct NewFile {
    path: &'static str,
    purpose: &'static str,
    content: String,
    is_private: bool,
}

struct Addresses {
    listen: SocketAddr,
    admin: SocketAddr,
}

#[derive(Args, Debug)]
pub(crate) struct Init {
    /// Folder to create
    #[arg(default_value = "tollgate")]
    directory: PathBuf,
    /// Folder with Argo CD's objects, as `kubectl get -o yaml` writes them, instead of a cluster
    #[arg(long, value_name = "FOLDER", conflicts_with_all = ["kubeconfig", "context"])]
    state: Option<PathBuf>,
    /// Kubeconfig for the cluster that Argo CD runs in; if omitted, the one that kubectl uses
    #[arg(long, value_name = "FILE")]
    kubeconfig: Option<PathBuf>,
    /// Context of the kubeconfig; if omitted, its current one
    #[arg(long, value_name = "NAME")]
    context: Option<String>,
    /// Namespace of Argo CD
    #[arg(long, default_value = "argocd")]
    namespace: String,
    /// URL at which this machine reaches argocd-server; if omitted, `url` of `argocd-cm` if it is https
    #[arg(long, value_name = "URL", value_parser = server_url)]
    argocd_server: Option<Url>,
    /// Address and port for the gateway; if omitted, 127.0.0.1:8443, or the next port that is free
    #[arg(long, value_name = "ADDRESS:PORT")]
    listen: Option<SocketAddr>,
}

impl Init {
    pub(crate) fn run(&self, out: &mut dyn Write) -> ExitCode {
        match self.write(out) {
            Ok(code) => code,
            Err(failure) => tollgate_client::to_exit_code(Err(failure)),
        }
    }

    fn write(&self, out: &mut dyn Write) -> Result<ExitCode, Failure> {
        require_new(&self.directory)?;
        let source = self.source()?;
        let resources = self.read(&source, out)?;
        let found = Found::of(&resources, &self.namespace, self.argocd_server.as_ref())?;
        let names = found.describe();
        writeln!(out, "Found {names}.\n")?;
        let objects = objects::agents(&found);
        let Addresses { listen, admin } = self.addresses(out)?;
        let certificate = certificate::for_address(listen.ip())?;
        let settings = settings::Settings {
            found: &found,
            listen,
            admin,
            source: source.absolute()?,
        };
        let mut files = vec![
            public(
                "tollgate.yaml",
                "the settings; each line says what it is for",
                settings.text(),
            ),
            public(
                "tls/ca.pem",
                "certificate authority of the gateway, for clients",
                certificate.authority,
            ),
            public("tls/tls.crt", "certificate of the gateway", certificate.certificate),
            NewFile {
                is_private: true,
                ..public("tls/tls.key", "its key", certificate.key)
            },
        ];
        files.extend(
            found
                .argocd_certificate
                .clone()
                .map(|pem| public("argocd-server-ca.pem", "certificate that argocd-server has", pem)),
        );
        files.extend(objects.map(|text| public(objects::FILE, "people, and who of them reaches which cluster", text)));
        self.write_files(&files, out)?;
        let config = self.directory.join("tollgate.yaml");
        writeln!(out, "\ntollgate check --config {}", config.display())?;
        let code = check::run_on(&config, out)?;
        self.next_steps(&found, listen.port(), out)?;
        Ok(code)
    }

    /// Where the gateway will listen. Says so where that is not the default.
    fn addresses(&self, out: &mut dyn Write) -> Result<Addresses, Failure> {
        let default = |port| SocketAddr::from((Ipv4Addr::LOCALHOST, port));
        let listen = match self.listen {
            Some(address) => {
                let (named, is_used) = Reserved::named(address);
                if is_used {
                    writeln!(out, "{address} is in use on this machine: the gateway needs it free.\n")?;
                }
                named
            }
            None => Reserved::from(default(PUBLIC_PORT)),
        };
        let admin = Reserved::from(default(ADMIN_PORT));
        let (listen, admin) = (listen.address, admin.address);
        for (chosen, port, what) in [(listen, PUBLIC_PORT, "gateway"), (admin, ADMIN_PORT, "admin listener")] {
            if chosen.port() != port && self.listen != Some(chosen) {
                let usual = default(port);
                writeln!(out, "{usual} is in use on this machine, so the {what} gets {chosen}.\n")?;
            }
        }
        Ok(Addresses { listen, admin })
    }

    /// What to read.
    fn source(&self) -> Result<Source<'_>, Failure> {
        if let Some(folder) = &self.state {
            return Ok(Source::Folder(folder.clone()));
        }
        let file = match &self.kubeconfig {
            Some(file) => file.clone(),
            None => kubeconfig_path()?,
        };
        match file.is_file() {
            true => Ok(Source::Kubeconfig(file, self.context.as_deref())),
            false => Err(Failure::new(
                "init.kubeconfig",
                format_args!("there is no kubeconfig `{}`", file.display()),
            )
            .with_hint(OTHER_SOURCE)),
        }
    }

    fn read(&self, source: &Source<'_>, out: &mut dyn Write) -> Result<Arc<Resources>, Failure> {
        let loaded = match source {
            Source::Folder(folder) => {
                writeln!(out, "Reading `{}` …", folder.display())?;
                directory::load(folder, &self.namespace).map(Arc::new)
            }
            Source::Kubeconfig(file, context) => {
                writeln!(out, "Reading namespace `{}` by `{}` …", self.namespace, file.display())?;
                let settings = KubernetesState {
                    kubeconfig: Some(file.to_owned()),
                    context: context.map(str::to_owned),
                    applications: ApplicationNamespaces::ControlPlane,
                    credentials_namespace: None,
                };
                let checked = kubernetes::check_kubeconfig(&settings);
                checked.map_err(|reason| Failure::new("init.kubeconfig", reason).with_hint(OTHER_SOURCE))?;
                KubernetesSource::start(settings, &self.namespace, FIRST_LOAD_TIMEOUT).load()
            }
        };
        loaded.value.ok_or_else(|| {
            let errors = loaded.diagnostics.iter().filter(|finding| finding.is_error());
            let texts: Vec<String> = errors.map(Diagnostic::to_string).collect();
            Failure::new("init.state", texts.join("\n")).with_hint("nothing was written")
        })
    }

    fn write_files(&self, files: &[NewFile], out: &mut dyn Write) -> Result<(), Failure> {
        let bundles = policies::FILES
            .iter()
            .map(|(path, content)| (Path::new("policies").join(path), *content, false));
        let others = files
            .iter()
            .map(|file| (PathBuf::from(file.path), file.content.as_str(), file.is_private));
        for (path, content, is_private) in others.chain(bundles) {
            let path = self.directory.join(path);
            let failed = |error| Failure::new("init.write", format_args!("`{}`: {error}", path.display()));
            path.parent().map_or(Ok(()), fs::create_dir_all).map_err(failed)?;
            let mode = if is_private { 0o600 } else { 0o644 };
            let mut options = OpenOptions::new();
            let file = options.write(true).create_new(true).mode(mode).open(&path);
            file.and_then(|mut file| file.write_all(content.as_bytes()))
                .map_err(failed)?;
        }
        let width = files.iter().map(|file| file.path.len()).max().unwrap_or_default();
        writeln!(out, "Wrote, in `{}`:", self.directory.display())?;
        for file in files {
            writeln!(out, "  {:width$}  {}", file.path, file.purpose)?;
        }
        writeln!(
            out,
            "  {:width$}  who may do what, with tests; read again on each change",
            "policies/"
        )?;
        Ok(())
    }

    fn next_steps(&self, found: &Found, port: u16, out: &mut dyn Write) -> Result<(), Failure> {
        let folder = self.directory.display();
        writeln!(out, "\nNext:")?;
        writeln!(out, "  tollgate serve --config {folder}/tollgate.yaml")?;
        if found.server.is_none() {
            writeln!(
                out,
                "  # People sign in when `argocd.server` and `console` of tollgate.yaml are set.\n\
                 \x20 # `tollgate init --argocd-server URL` does that."
            )?;
            return Ok(());
        }
        writeln!(
            out,
            "  tollgate login --server https://localhost:{port} --certificate-authority {folder}/tls/ca.pem"
        )?;
        let Some(cluster) = found.clusters.first() else {
            writeln!(
                out,
                "  # No cluster Secret of this Argo CD can be used from here, so kubectl has no cluster yet:\n\
                 \x20 # `argocd cluster add` makes one; then write an Agent for it (docs/kubernetes-access.md)."
            )?;
            return Ok(());
        };
        match &self.state {
            Some(state) => writeln!(
                out,
                "  cp {folder}/{} {}/   # people and agents; look at it first",
                objects::FILE,
                state.display()
            )?,
            None => {
                let flag = self
                    .kubeconfig
                    .as_ref()
                    .map(|file| format!(" --kubeconfig {}", file.display()));
                let context = self.context.as_ref().map(|name| format!(" --context {name}"));
                let (flag, context) = (flag.unwrap_or_default(), context.unwrap_or_default());
                writeln!(
                    out,
                    "  kubectl{flag}{context} apply -f {folder}/{}   # people and agents; look at it first",
                    objects::FILE
                )?;
            }
        }
        writeln!(
            out,
            "  tollgate kubeconfig --agent {agent} --write\n\
             \x20 kubectl --context {agent} get pods   # `Forbidden` until the cluster grants it: see {folder}/{file}\n\
             \x20 tollgate decisions --config {folder}/tollgate.yaml   # why something was refused\n\n\
             In a browser: https://localhost:{port}/ to sign in here, https://127.0.0.1:{port}/ for Argo CD.",
            agent = cluster.agent,
            file = objects::FILE,
        )?;
        Ok(())
    }
}

fn server_url(text: &str) -> Result<Url, String> {
    let url = Url::parse(text)
        .ok()
        .filter(|url| matches!(url.scheme(), "http" | "https") && url.has_host());
    url.ok_or_else(|| "write it with `https://` or `http://` in front, such as `https://argocd.example.com`".to_owned())
}

fn public(path: &'static str, purpose: &'static str, content: String) -> NewFile {
    NewFile {
        path,
        purpose,
        content,
        is_private: false,
    }
}

/// Refuses a folder that has something in it.
fn require_new(folder: &Path) -> Result<(), Failure> {
    let refused = |why: &dyn std::fmt::Display| {
        Failure::new("init.directory", format_args!("`{}` {why}", folder.display()))
            .with_hint("name a new folder: `tollgate init FOLDER`")
    };
    match fs::read_dir(folder) {
        Ok(mut entries) => match entries.next() {
            None => Ok(()),
            Some(_) => Err(refused(&"is not empty, and nothing in it is overwritten")),
        },
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(refused(&format_args!("cannot be used: {error}"))),
    }
}

#[cfg(test)]
mod tests;
