//! Checked settings of proxy extensions.
//!
//! In: Argo CD's `extension.config`. Out: one [`ExtensionSpec`] each. Never: a
//! secret in `Debug`.

use std::num::NonZeroU32;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

use crate::diagnostic::Location;

/// What a request to the extension is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scope {
    /// One application.
    Application,
    /// One project.
    Project,
    /// The whole control plane.
    Global,
}

/// One extension.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtensionSpec {
    /// `[A-Za-z0-9_-]+`.
    pub name: String,
    /// What requests are about.
    pub scope: Scope,
    /// At least one.
    pub services: Vec<ServiceSpec>,
    /// Connections to the services.
    pub connection: ConnectionSpec,
    /// Bounds on waiting.
    pub timeouts: TimeoutSpec,
    /// Bounds on use.
    pub limits: LimitSpec,
    /// TLS to the services.
    pub tls: TlsSpec,
    /// How the services learn who calls.
    pub identity: IdentitySpec,
    /// Where it is configured.
    pub location: Location,
}

/// One backend of an extension.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceSpec {
    /// Scheme, host, port and base path.
    pub url: url::Url,
    /// Cluster it serves.
    pub cluster: Option<ClusterRef>,
    /// Fields set on each request.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Where it is configured.
    pub location: Location,
}

/// A cluster by name, server or both; empty means not given.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClusterRef {
    /// Cluster name.
    pub name: String,
    /// API server URL.
    pub server: String,
}

/// Connections to a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionSpec {
    /// Bound on TCP and TLS set-up.
    pub connect_timeout: Duration,
    /// TCP keep-alive interval.
    pub keep_alive: Duration,
    /// Idle pooled connections are closed after this.
    pub idle_connection_timeout: Duration,
    /// Idle pooled connections kept.
    pub max_idle_connections: usize,
}

/// Bounds on waiting.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeoutSpec {
    /// Longest silence of the backend.
    pub idle: Option<Duration>,
    /// Longest exchange.
    pub total: Option<Duration>,
    /// Longest life of an upgraded connection.
    pub upgrade_lifetime: Option<Duration>,
}

/// Bounds on use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitSpec {
    /// Requests open at once.
    pub concurrency: Option<NonZeroU32>,
    /// Requests a second.
    pub requests_per_second: Option<NonZeroU32>,
    /// Requests at once above the rate.
    pub burst: Option<NonZeroU32>,
    /// The same for one person.
    pub per_person: PersonLimitSpec,
}

/// Bounds on one person's use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PersonLimitSpec {
    /// Requests open at once.
    pub concurrency: Option<NonZeroU32>,
    /// Requests a second.
    pub requests_per_second: Option<NonZeroU32>,
    /// Requests at once above the rate.
    pub burst: Option<NonZeroU32>,
}

/// TLS to the services.
#[derive(Clone, Debug, Default)]
pub struct TlsSpec {
    /// PEM of the only authorities trusted; the system's when absent.
    pub ca_pem: Option<String>,
    /// PEM chain of the gateway's own certificate.
    pub client_certificate_pem: Option<String>,
    /// PEM of its key.
    pub client_key_pem: Option<SecretString>,
    /// Name the certificate must be for, when not the URL's host.
    pub server_name: Option<String>,
}

impl PartialEq for TlsSpec {
    fn eq(&self, other: &Self) -> bool {
        let Self {
            ca_pem,
            client_certificate_pem,
            client_key_pem,
            server_name,
        } = self;
        *ca_pem == other.ca_pem
            && *client_certificate_pem == other.client_certificate_pem
            && *server_name == other.server_name
            && client_key_pem.as_ref().map(ExposeSecret::expose_secret)
                == other.client_key_pem.as_ref().map(ExposeSecret::expose_secret)
    }
}

/// How the services learn who calls, besides `Argocd-*` fields.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentitySpec {
    /// `X-Remote-*`, only with a client certificate.
    pub request_header: bool,
    /// A signed assertion.
    pub assertion: Option<AssertionSpec>,
}

/// A signed assertion.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssertionSpec {
    /// `aud`.
    pub audience: String,
    /// `exp` minus `iat`, at most five minutes.
    pub lifetime: Duration,
}
