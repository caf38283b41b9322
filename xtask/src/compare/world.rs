//! Writes the folder of Kubernetes objects that both Tollgate and Argo CD's proxy read, and
//! Tollgate's settings.

use std::fs;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};

use super::{micro, servers};

/// The account whose session the requests carry.
pub(super) const ACCOUNT: &str = "alice";
/// Request headers that name the application and the project.
pub(super) const SCOPE: [(&str, &str); 2] = [
    ("Argocd-Application-Name", "argocd:cart"),
    ("Argocd-Project-Name", "proj5"),
];
/// Path of the request, the same on each proxy.
pub(super) const PATH: &str = "/extensions/metrics/api/series?range=1h&step=15s";

/// Rows of the RBAC policy. Its size does not matter, because Argo CD answers the repeated request
/// from its cache.
const ROWS: usize = 100;

/// A folder with everything that both proxies read.
#[derive(Debug)]
pub(super) struct World {
    /// Folder of Kubernetes YAML.
    pub(super) state: PathBuf,
    /// Tollgate's settings file.
    pub(super) settings: PathBuf,
    /// Where Tollgate listens.
    pub(super) gateway: SocketAddr,
}

impl World {
    /// Writes the objects and the settings below `folder`.
    pub(super) fn create(folder: &Path, root: &Path, backend: SocketAddr) -> Result<Self> {
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
        let [gateway, admin] = servers::free_addresses()?;
        let settings = folder.join("tollgate.yaml");
        fs::write(&settings, settings_text(root, &state, gateway, admin)).context("writing tollgate.yaml")?;
        Ok(Self {
            state,
            settings,
            gateway,
        })
    }
}

fn settings_text(root: &Path, state: &Path, gateway: SocketAddr, admin: SocketAddr) -> String {
    let policies = root.join("policies");
    let (state, policies) = (state.display(), policies.display());
    // All connections of the load generator belong to one person.
    format!(
        "listen: {gateway}\nadmin:\n  listen: {admin}\nstate:\n  directory: {state}\n  namespace: argocd\n\
         policies:\n  directory: {policies}\nauthentication:\n  argocdSessions: true\n\
         limits:\n  requestsPerPerson: 1000\n"
    )
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
