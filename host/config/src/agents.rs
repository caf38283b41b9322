//! Settings of agents of clusters that connect to the gateway.

use std::net::SocketAddr;

use url::Url;

/// What the gateway remembers of agents, in its store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentSettings {
    /// How replicas share agents; each serves only its own when absent.
    pub peers: Option<PeerSettings>,
    /// The hosts under which agents reach what ends TLS in front of the gateway, in lower case.
    pub hosts: Vec<String>,
    /// Whether agents are served whose proof is of no connection, as that of earlier versions.
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
