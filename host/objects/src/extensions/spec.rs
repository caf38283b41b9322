//! The types of a checked extension configuration. They can be compared, to find what a reload
//! changes.
//!
//! Security: `Debug` shows no secrets.

use std::num::NonZeroU32;
use std::time::Duration;

use http::{HeaderName, HeaderValue};
use secrecy::{ExposeSecret, SecretString};

use crate::Cluster;
use tollgate_core::diagnostic::Location;

/// One extension, checked. Equal specs need no new backend after a reload.
#[derive(Clone, Debug, PartialEq)]
pub struct ExtensionSpec {
    /// Name in the path, `[A-Za-z0-9_-]+`, unique.
    pub name: String,
    /// What a request to it is about.
    pub scope: Scope,
    /// Where it runs, at least one.
    pub services: Vec<ServiceSpec>,
    /// Connections to the services.
    pub connection: ConnectionSpec,
    /// Limits on the time of one request.
    pub timeouts: TimeoutSpec,
    /// Limits on concurrency and rate.
    pub limits: LimitSpec,
    /// How the services are reached over TLS.
    pub tls: TlsSpec,
    /// How the services learn who calls.
    pub identity: IdentitySpec,
    /// Where the extension is configured.
    pub location: Location,
}

/// What a request to an extension is about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, strum::AsRefStr, strum::VariantArray)]
#[strum(serialize_all = "lowercase")]
pub enum Scope {
    /// One Application; the application and project headers are required.
    #[default]
    Application,
    /// One project; the project header is required.
    Project,
    /// Neither.
    Global,
}

/// One backend service.
#[derive(Clone, Debug, PartialEq)]
pub struct ServiceSpec {
    /// `http` or `https` URL with a host, without user, query and fragment; its
    /// path is put before the path of requests.
    pub url: url::Url,
    /// The cluster whose Applications it serves; all when absent.
    pub cluster: Option<ClusterRef>,
    /// Headers set on every request to it; values from secrets are sensitive.
    pub headers: Vec<(HeaderName, HeaderValue)>,
    /// Where the service is configured.
    pub location: Location,
}

/// A cluster by name, by server, or both; empty means not set, never both empty.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterRef {
    /// Cluster name.
    pub name: String,
    /// API server URL.
    pub server: String,
}

/// Connections to a service.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectionSpec {
    /// Longest wait for a TCP connection.
    pub connect_timeout: Duration,
    /// Silence before the first TCP keep-alive probe. Further ones follow every 5 s, or as often as this.
    pub keep_alive: Duration,
    /// How long an unused connection is kept.
    pub idle_connection_timeout: Duration,
    /// Unused connections kept, at most.
    pub max_idle_connections: usize,
}

impl Default for ConnectionSpec {
    /// Argo CD's defaults.
    fn default() -> Self {
        Self {
            connect_timeout: Duration::from_secs(2),
            keep_alive: Duration::from_secs(15),
            idle_connection_timeout: Duration::from_secs(60),
            max_idle_connections: 30,
        }
    }
}

/// Limits on the time of one request. An absent limit does not apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeoutSpec {
    /// Longest silence of the service: 408 before the response head, the
    /// response is broken off after it.
    pub idle: Option<Duration>,
    /// Longest request, response body included: 504 before the response head.
    pub total: Option<Duration>,
    /// Longest life of an upgraded connection such as a WebSocket.
    pub upgrade_lifetime: Option<Duration>,
}

/// Limits on concurrency and rate. An absent limit does not apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct LimitSpec {
    /// Requests open at once.
    pub concurrency: Option<NonZeroU32>,
    /// Requests started per second, on average.
    pub requests_per_second: Option<NonZeroU32>,
    /// Requests that may start at the same moment; `requests_per_second` when absent.
    pub burst: Option<NonZeroU32>,
    /// The same for each person.
    pub per_person: PersonLimitSpec,
}

/// Limits on the requests of one person. An absent limit does not apply.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct PersonLimitSpec {
    /// Requests open at once.
    pub concurrency: Option<NonZeroU32>,
    /// Requests started per second, on average.
    pub requests_per_second: Option<NonZeroU32>,
    /// Requests that may start at the same moment; `requests_per_second` when absent.
    pub burst: Option<NonZeroU32>,
}

/// How services are reached over TLS.
#[derive(Clone, Default, derive_more::Debug)]
// Says which parts are present, never what they contain.
#[debug("TlsSpec {{ ca_pem: {:?}, client_certificate_pem: {:?}, client_key_pem: {:?}, server_name: {server_name:?} }}", self.ca_pem.is_some(), self.client_certificate_pem.is_some(), self.client_key_pem.is_some())]
pub struct TlsSpec {
    /// PEM certificates a service's certificate must lead to; the system's
    /// roots when absent.
    pub ca_pem: Option<String>,
    /// PEM certificate chain the gateway shows, leaf first.
    pub client_certificate_pem: Option<String>,
    /// PEM key of that certificate; present exactly when it is.
    pub client_key_pem: Option<SecretString>,
    /// Name asked for and checked instead of the URL's host.
    pub server_name: Option<String>,
}

impl TlsSpec {
    fn compared(&self) -> [Option<&str>; 4] {
        let Self {
            ca_pem,
            client_certificate_pem,
            client_key_pem,
            server_name,
        } = self;
        let key = client_key_pem.as_ref().map(SecretString::expose_secret);
        [
            ca_pem.as_deref(),
            client_certificate_pem.as_deref(),
            key,
            server_name.as_deref(),
        ]
    }
}

impl PartialEq for TlsSpec {
    fn eq(&self, other: &Self) -> bool {
        self.compared() == other.compared()
    }
}

/// How services learn who calls, besides the `Argocd-*` headers.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct IdentitySpec {
    /// `X-Remote-User`, `X-Remote-Group` and `X-Remote-Extra-*`, as Kubernetes
    /// sends them to aggregated API servers; only with a client certificate.
    pub request_header: bool,
    /// A signed statement of who calls.
    pub assertion: Option<AssertionSpec>,
    /// The only client fields that pass, besides those the content needs. If absent, all pass
    /// except those that somebody could take for an identity.
    pub allow_headers: Option<Vec<HeaderName>>,
}

/// A signed statement of who calls.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AssertionSpec {
    /// `aud`, 1 to 256 visible ASCII characters.
    pub audience: String,
    /// `exp` after `iat`, 1 second to 5 minutes.
    pub lifetime: Duration,
}

impl ExtensionSpec {
    /// The service for Applications of `cluster`. An empty name or server is unknown and matches
    /// nothing.
    ///
    /// A single service serves every cluster, regardless of its `cluster`, as in Argo CD. Of
    /// several services, one that has both name and server wins over one that has only the server,
    /// which wins over one that has only the name. A service whose name or server differs from a
    /// known one is not chosen.
    pub fn service_for(&self, cluster: &Cluster) -> Option<&ServiceSpec> {
        if let [only] = self.services.as_slice() {
            return Some(only);
        }
        let ranked = self.services.iter().filter_map(|service| {
            let rank = service.cluster.as_ref()?.rank(cluster)?;
            Some((rank, service))
        });
        ranked.max_by_key(|(rank, _)| *rank).map(|(_, service)| service)
    }
}

impl ClusterRef {
    /// Whether this refers to the cluster.
    pub fn refers_to(&self, cluster: &Cluster) -> bool {
        self.rank(cluster).is_some()
    }

    /// How closely the cluster matches: 3 by name and server, 2 by server, 1 by name.
    fn rank(&self, cluster: &Cluster) -> Option<u8> {
        let (server, known) = (self.server.trim_end_matches('/'), cluster.server.trim_end_matches('/'));
        // Nothing is known of a field that one side has not set.
        let has_name = !self.name.is_empty() && !cluster.name.is_empty();
        let has_server = !server.is_empty() && !known.is_empty();
        if (has_name && self.name != cluster.name) || (has_server && server != known) {
            return None;
        }
        match (has_name, has_server) {
            (true, true) => Some(3),
            (false, true) => Some(2),
            (true, false) => Some(1),
            (false, false) => None,
        }
    }
}
