//! Settings of agents of clusters that connect to the gateway.

use std::net::SocketAddr;

use url::Url;

/// What the gateway remembers of agents, in its store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentSettings {
    /// How replicas share agents; each serves only its own when absent.
    pub peers: Option<PeerSettings>,
}

/// How replicas reach one another.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PeerSettings {
    /// Where this process listens for its peers.
    pub listen: SocketAddr,
    /// Where they reach it, of `https`; the address of `listen` when absent.
    pub url: Option<Url>,
}
