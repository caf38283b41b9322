//! Settings of the front that passes requests on to argocd-server, and of Argo CD's Redis.

use std::path::PathBuf;
use std::time::Duration;

use serde::Deserialize;

use url::Url;

/// The argocd-server that gets every request that is not Tollgate's own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgocdServer {
    /// Its address: `http` or `https`, a host and an optional port, without a path.
    pub server: Url,
    /// The path below which it serves HTTP and gRPC-Web (`--rootpath`), such as `/argo-cd`.
    pub root_path: Option<String>,
    /// PEM file with the only authorities trusted for it; the system's if absent.
    pub ca: Option<PathBuf>,
    /// The name its certificate must be for; the host of `server` if absent.
    pub server_name: Option<String>,
}

/// Argo CD's Redis, which has the list of revoked tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ArgocdRedis {
    /// Host name or IP address, without brackets.
    pub host: String,
    /// TCP port.
    pub port: u16,
    /// Number of the database (argocd-server: `--redisdb`).
    pub database: u32,
    /// How TLS is spoken; plain TCP when absent.
    pub tls: Option<RedisTls>,
    /// Name of the Redis user; the default user when absent.
    pub username: Option<String>,
    /// File with the password on its first line; no password when absent.
    pub password_file: Option<PathBuf>,
    /// What happens to tokens that may be on the list while it cannot be read.
    pub when_unavailable: WhenUnavailable,
    /// How long Redis may be silent before [`ArgocdRedis::when_unavailable`] applies.
    pub grace_period: Duration,
}

/// How TLS is spoken with Redis. The certificate is always verified.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct RedisTls {
    /// PEM file with the only authorities trusted; the system's when absent.
    pub ca: Option<PathBuf>,
    /// The name its certificate must be for; the host when absent.
    pub server_name: Option<String>,
}

/// What happens to tokens that may be revoked while the list of revoked tokens cannot be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, schemars::JsonSchema)]
#[serde(rename_all = "camelCase")]
pub enum WhenUnavailable {
    /// Such tokens get 503 `revocations_unavailable`, and what they have open ends.
    #[default]
    Deny,
    /// Such tokens are accepted unless they are known to be revoked.
    Allow,
}
