//! How a cluster is reached: what its Secret says besides name and server.
//!
//! Security: `Debug` shows no value of the Secret and no configuration of a provider.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use rustls::pki_types::CertificateDer;
use rustls::pki_types::pem::PemObject as _;
use secrecy::SecretString;
use serde_json::Value;

use tollgate_core::agent::ClusterAgent;
use tollgate_core::diagnostic::Location;

/// A cluster's connection settings.
#[derive(Clone, Debug, Default)]
pub struct ClusterConfig {
    /// Where its credential comes from.
    pub auth: ClusterAuth,
    /// How its server is verified.
    pub tls: ClusterTls,
    /// The Secret's other values, which a provider may be granted: all but
    /// `name`, `server`, `config`, `project`, `namespaces`, `clusterResources`
    /// and `shard`.
    pub values: BTreeMap<String, SecretString>,
    /// The Secret's labels.
    pub labels: BTreeMap<String, String>,
    /// The Secret's annotations. The one in which kubectl keeps what it applied is emptied, because
    /// it contains the Secret's values.
    pub annotations: BTreeMap<String, String>,
    /// The Secret's name; `None` for the control plane's own cluster if it has no Secret.
    pub secret_name: Option<String>,
    /// The Secret's `metadata.resourceVersion`, if it has one.
    pub resource_version: Option<String>,
    /// Where the Secret starts.
    pub location: Option<Location>,
    /// Whether Argo CD reaches the cluster through the gateway: its Secret has a `proxyUrl`. What
    /// else is in `config` there is for the gateway; the cluster's own credential is in a Secret of
    /// the gateway's.
    pub is_enrolled: bool,
    /// Whether a Secret of the gateway's says how the gateway reaches it. Those who may write Argo CD's
    /// cluster Secrets cannot write that one.
    pub has_own_secret: bool,
}

/// How the gateway authenticates. A cluster has exactly one authentication.
#[derive(Clone, Default, strum::AsRefStr, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub enum ClusterAuth {
    /// Requests are sent without a credential.
    #[default]
    Anonymous,
    /// The control plane's own cluster: with the pod's ServiceAccount token and the certificate
    /// authority mounted beside it.
    InCluster,
    /// A token, not empty, of bytes 0x21 to 0x7e.
    Bearer(SecretString),
    /// Username and password, RFC 7617.
    Basic {
        /// Without `:` and control characters; not empty.
        username: SecretString,
        /// Without control characters; may be empty.
        password: SecretString,
    },
    /// A TLS client certificate.
    ClientCertificate {
        /// The chain, leaf first.
        chain_pem: String,
        /// Its key.
        key_pem: SecretString,
    },
    /// The cluster's agent connects to the gateway and has its own credential.
    Agent(ClusterAgent),
    /// A plugin mints the credential.
    Provider {
        /// Plugin name.
        name: String,
        /// The configuration that the plugin's schema describes: an object. It may hold secrets.
        config: Value,
        /// Values of the Secret that the operator declares not secret (`publicValues`). The plugin
        /// may read them as text.
        public: BTreeSet<String>,
    },
    /// The settings cannot be used; requests to this cluster are refused.
    Unusable {
        /// The reason, without values of the Secret.
        reason: String,
    },
}

impl fmt::Debug for ClusterAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Provider { name, .. } => f.debug_tuple("Provider").field(name).finish(),
            Self::Unusable { reason } => f.debug_tuple("Unusable").field(reason).finish(),
            Self::Anonymous
            | Self::InCluster
            | Self::Bearer(_)
            | Self::Basic { .. }
            | Self::ClientCertificate { .. }
            | Self::Agent(_) => f.write_str(self.as_ref()),
        }
    }
}

/// `tlsClientConfig` without the client's own certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterTls {
    /// Whether the server's certificate is verified.
    pub verification: TlsVerification,
    /// The name the certificate must be for; the server's host when absent.
    pub server_name: Option<String>,
    /// The only authorities trusted; the system's when absent.
    pub ca_pem: Option<String>,
}

/// Whether a text holds PEM certificates, and at least one.
pub fn are_certificates(pem: &str) -> bool {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(pem.as_bytes()).collect();
    found.is_ok_and(|found| !found.is_empty())
}

/// Whether a server's certificate is verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum TlsVerification {
    /// It is verified.
    #[default]
    On,
    /// It is not verified: `insecure: true`.
    Off,
}
