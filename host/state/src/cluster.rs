//! How a cluster is reached: what its Secret says beside name and server.
//!
//! In: decoded cluster Secrets. Out: [`ClusterConfig`]. Never: a value of the
//! Secret in `Debug`, also not of a provider's configuration.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use secrecy::SecretString;
use serde_json::Value;

use tollgate_core::diagnostic::Location;

/// A cluster's connection settings.
#[derive(Clone, Debug)]
pub struct ClusterConfig {
    /// Where its credential comes from.
    pub auth: ClusterAuth,
    /// How its server is believed.
    pub tls: ClusterTls,
    /// The Secret's other values, which a provider may be granted: all but
    /// `name`, `server`, `config`, `project`, `namespaces`, `clusterResources`
    /// and `shard`.
    pub values: BTreeMap<String, SecretString>,
    /// The Secret's labels.
    pub labels: BTreeMap<String, String>,
    /// The Secret's annotations. That in which kubectl keeps what it applied is
    /// empty: it has the Secret's values.
    pub annotations: BTreeMap<String, String>,
    /// The Secret's name; `None` for the control plane's own cluster without one.
    pub object: Option<String>,
    /// The Secret's `metadata.resourceVersion`, where it has one.
    pub resource_version: Option<String>,
    /// Where the Secret starts.
    pub location: Option<Location>,
}

/// One way of authentication. There is never a second one beside it.
#[derive(Clone)]
pub enum ClusterAuth {
    /// None: the server is asked without a credential.
    Anonymous,
    /// The control plane's own cluster, by the pod's ServiceAccount token and
    /// the authority mounted beside it.
    InCluster,
    /// A token: not empty, bytes 0x21 to 0x7e.
    Bearer(SecretString),
    /// User and password, RFC 7617.
    Basic {
        /// Without `:` and control characters; not empty.
        username: SecretString,
        /// Without control characters; may be empty.
        password: SecretString,
    },
    /// A certificate for TLS.
    ClientCertificate {
        /// The chain, the own certificate first.
        chain_pem: String,
        /// Its key.
        key_pem: SecretString,
    },
    /// A plugin mints it.
    Provider {
        /// Plugin name.
        name: String,
        /// What the plugin's schema describes; an object. It may hold secrets.
        config: Value,
        /// Values of the Secret that the operator says are none
        /// (`publicValues`): the plugin may read them as text.
        public: BTreeSet<String>,
    },
    /// The settings cannot be used; requests to this cluster are refused.
    Unusable {
        /// Why, without values.
        reason: String,
    },
}

impl ClusterAuth {
    /// The way's name, for listings and metrics.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Anonymous => "anonymous",
            Self::InCluster => "in-cluster",
            Self::Bearer(_) => "bearer",
            Self::Basic { .. } => "basic",
            Self::ClientCertificate { .. } => "client-certificate",
            Self::Provider { .. } => "provider",
            Self::Unusable { .. } => "unusable",
        }
    }
}

impl fmt::Debug for ClusterAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Provider {
                name,
                config: _,
                public: _,
            } => f.debug_tuple("Provider").field(name).finish(),
            Self::Unusable { reason } => f.debug_tuple("Unusable").field(reason).finish(),
            Self::Anonymous
            | Self::InCluster
            | Self::Bearer(_)
            | Self::Basic { .. }
            | Self::ClientCertificate { .. } => f.write_str(self.as_str()),
        }
    }
}

/// `tlsClientConfig` without the client's own certificate.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ClusterTls {
    /// Whether the server's certificate is verified.
    pub verification: Verification,
    /// The name the certificate must be for; the server's host when absent.
    pub server_name: Option<String>,
    /// The only authorities believed; the system's when absent.
    pub ca_pem: Option<String>,
}

/// Whether a cluster's certificate is verified.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Verification {
    /// It is.
    #[default]
    On,
    /// It is not: `insecure: true`.
    Off,
}
