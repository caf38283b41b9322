//! Settings of connectors of clusters, which connect to the gateway.

use std::net::SocketAddr;

use url::Url;

/// What the gateway remembers of connectors, in its store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ConnectorSettings {
    /// How replicas share connectors; each serves only its own when absent.
    pub peers: Option<PeerSettings>,
    /// The hosts under which connectors reach what ends TLS in front of the gateway, in lower case.
    pub hosts: Vec<String>,
    /// Whether connectors are served whose proof is of no connection, as that of earlier versions.
    pub accepts_unbound: bool,
}

/// How replicas reach one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// Where this process listens for its peers.
    pub listen: SocketAddr,
    /// Where they reach it, of `https`; the address of `listen` when absent.
    pub url: Option<Url>,
}
