//! Settings of the front that passes requests on to argocd-server.

use std::path::PathBuf;

use url::Url;

/// The argocd-server that gets every request that is not Tollgate's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgocdServer {
    /// Its address: `http` or `https`, a host and an optional port, without a path.
    pub server: Url,
    /// PEM file with the only authorities trusted for it; the system's if absent.
    pub ca: Option<PathBuf>,
    /// The name its certificate must be for; the host of `server` if absent.
    pub server_name: Option<String>,
}
