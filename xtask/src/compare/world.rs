//! Writes the folder of Kubernetes objects that both Tollgate and Argo CD's proxy read, and
//! Tollgate's settings: one file for each front that is measured.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{Build, micro, servers};
use crate::certificate::Certificate;

/// The account whose session the requests carry.
pub(super) const ACCOUNT: &str = "alice";

/// Rows of the RBAC policy. Its size does not matter, because Argo CD answers the repeated request
/// from its cache.
const ROWS: usize = 100;

/// A folder with everything that both proxies read.
#[derive(Debug)]
pub(super) struct World {
    /// Folder of Kubernetes YAML.
    pub(super) state: PathBuf,
    folder: PathBuf,
}

/// A settings file of Tollgate.
#[derive(Debug)]
pub(super) struct Settings {
    pub(super) file: PathBuf,
    /// Where Tollgate listens.
    pub(super) address: SocketAddr,
}

impl World {
    /// Writes the objects below `folder`.
    pub(super) fn create(folder: &Path, backend: SocketAddr) -> Result<Self> {
        let state = folder.join("state");
        fs::create_dir_all(&state).with_context(|| format!("creating {}", state.display()))?;
        let mut files = vec![
            ("argocd-cm.yaml", config_map(backend)),
            ("argocd-rbac-cm.yaml", rbac_config_map()),
            ("argocd-secret.yaml", SECRET.to_owned()),
            ("cluster.yaml", CLUSTER.to_owned()),
            ("project.yaml", PROJECT.to_owned()),
            ("application.yaml", APPLICATION.to_owned()),
        ];
        for (name, text) in files.drain(..) {
            fs::write(state.join(name), text).with_context(|| format!("writing {name}"))?;
        }
        Ok(Self {
            state,
            folder: folder.to_owned(),
        })
    }

    /// Settings in which Tollgate serves extensions.
    pub(super) fn extensions(&self, build: &Build) -> Result<Settings> {
        self.settings(build, "extensions", "")
    }

    /// Settings in which Tollgate passes Argo CD's API on to `server`, without TLS.
    pub(super) fn argocd(&self, build: &Build, server: SocketAddr) -> Result<Settings> {
        self.settings(build, "argocd", &format!("argocd:\n  server: http://{server}\n"))
    }

    /// Settings in which Tollgate passes Argo CD's API on to `server`, with TLS on both sides.
    pub(super) fn argocd_with_tls(
        &self,
        build: &Build,
        server: SocketAddr,
        certificate: &Certificate,
    ) -> Result<Settings> {
        let write = |name: &str, text: &str| {
            let file = self.folder.join(name);
            fs::write(&file, text).with_context(|| format!("writing {name}"))?;
            anyhow::Ok(file)
        };
        let ca = write("ca.pem", &certificate.ca_pem)?;
        let pem = write("tls.pem", &certificate.pem())?;
        let key = write("tls.key", &certificate.key_pem())?;
        let (ca, pem, key) = (ca.display(), pem.display(), key.display());
        let more =
            format!("argocd:\n  server: https://{server}\n  ca: {ca}\ntls:\n  certificate: {pem}\n  key: {key}\n");
        self.settings(build, "argocd-tls", &more)
    }

    /// Writes a settings file.
    ///
    /// - `more`: YAML that only this file has.
    fn settings(&self, build: &Build, name: &str, more: &str) -> Result<Settings> {
        let [address, admin] = servers::free_addresses()?;
        let (state, policies) = (self.state.display(), build.policies.display());
        // All connections of a run belong to one person and come from one address.
        let text = format!(
            "listen: {address}\nadmin:\n  listen: {admin}\nstate:\n  directory: {state}\n  namespace: argocd\n\
             policies:\n  directory: {policies}\nauthentication:\n  argocdSessions: true\n\
             limits:\n  requestsPerPerson: 10000\n  connectionsPerAddress: 10000\n{more}"
        );
        let file = self.folder.join(format!("{name}-{}.yaml", address.port()));
        fs::write(&file, text).with_context(|| format!("writing {}", file.display()))?;
        Ok(Settings { file, address })
    }
}

fn config_map(backend: SocketAddr) -> String {
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: argocd-cm\n  namespace: argocd\n  labels:\n    \
         app.kubernetes.io/part-of: argocd\ndata:\n  accounts.{ACCOUNT}: login\n  extension.config.metrics: |\n    \
         connectionTimeout: 2s\n    keepAlive: 15s\n    idleConnectionTimeout: 60s\n    maxIdleConnections: 64\n    \
         services:\n      - url: http://{backend}\n"
    )
}

fn rbac_config_map() -> String {
    let rows = micro::policy(ROWS);
    let own = format!("p, role:r5, extensions, invoke, metrics, allow\ng, {ACCOUNT}, role:r5\n");
    let indented: String = rows
        .lines()
        .chain(own.lines())
        .map(|row| format!("    {row}\n"))
        .collect();
    format!(
        "apiVersion: v1\nkind: ConfigMap\nmetadata:\n  name: argocd-rbac-cm\n  namespace: argocd\n  labels:\n    \
         app.kubernetes.io/part-of: argocd\ndata:\n  policy.csv: |\n{indented}"
    )
}

/// The key is only used on loopback during a run, and protects nothing.
const SECRET: &str = "\
apiVersion: v1
kind: Secret
metadata:
  name: argocd-secret
  namespace: argocd
  labels:
    app.kubernetes.io/part-of: argocd
type: Opaque
stringData:
  server.secretkey: measured-on-loopback-only-0123456789
  admin.password: unused
  admin.passwordMtime: '2026-01-01T00:00:00Z'
";

const CLUSTER: &str = "\
apiVersion: v1
kind: Secret
metadata:
  name: cluster-prod
  namespace: argocd
  labels:
    argocd.argoproj.io/secret-type: cluster
type: Opaque
stringData:
  name: prod
  server: https://prod.example:6443
  config: '{}'
";

const PROJECT: &str = "\
apiVersion: argoproj.io/v1alpha1
kind: AppProject
metadata:
  name: proj5
  namespace: argocd
spec:
  destinations:
    - name: '*'
      namespace: 'cart-*'
      server: https://prod.example:6443
  sourceRepos:
    - '*'
";

const APPLICATION: &str = "\
apiVersion: argoproj.io/v1alpha1
kind: Application
metadata:
  name: cart
  namespace: argocd
spec:
  project: proj5
  source:
    repoURL: https://git.example/cart
    path: deploy
  destination:
    server: https://prod.example:6443
    namespace: cart-live
";
