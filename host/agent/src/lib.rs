//! Both ends of the connection by which a cluster's agent serves its API server to the gateway.
//!
//! The agent dials, because it is behind NAT or a firewall, and opens a WebSocket (RFC 6455), which passes proxies and
//! balancers that end TLS. Inside, the roles are the other way round: the gateway is the client of HTTP/2
//! (RFC 9113), and the agent its server. The first request has the agent prove its key ([`key`]). All
//! others are requests for the API server. One that switches protocols is an extended `CONNECT` (RFC 8441).
//!
//! Security: the gateway authenticates the agent by its key, and treats its answers like those of a cluster
//! that it does not trust. The agent authenticates the gateway by TLS, and does not trust it either: it
//! checks whom each request acts as ([`allow`]).

mod accept;
pub mod allow;
pub mod api_server;
mod body;
pub mod connections;
mod dial;
pub mod file;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod health;
pub mod hello;
pub mod key;
mod key_holder;
pub mod peer_listener;
pub mod peers;
pub mod registry;
pub mod request;
mod secret;
mod serve;
pub mod settings;
pub mod status;
pub mod token;
mod traffic;
mod unproved;
mod websocket;
pub mod wire;

#[cfg(test)]
mod tests;

pub use accept::{NotAnAgent, accept};
pub use connections::{AgentClient, Connections};
pub use serve::{Agent, StartError};

/// The WebSocket's subprotocol.
pub const SUBPROTOCOL: &str = "tollgate-agent.v1";

/// Where the gateway accepts agents.
pub const CONNECT_PATH: &str = "/api/v1/tollgate/agents/connect";

/// Settings of HTTP/2 that both ends share.
mod limits {
    use std::time::Duration;

    /// How often each end asks whether the other is there, also while nothing happens. Balancers see it as
    /// traffic, so that they close nothing for being idle.
    pub(crate) const PING_EVERY: Duration = Duration::from_secs(15);

    /// How long the answer may take. With [`PING_EVERY`], a connection that broke without a word ends within
    /// 25 s.
    pub(crate) const PING_WITHIN: Duration = Duration::from_secs(10);

    /// Requests of one connection at a time, watches and terminals among them.
    pub(crate) const STREAMS: u32 = 4_096;

    /// Bytes of a stream that its receiver has room for while nobody reads them.
    pub(crate) const STREAM_WINDOW: u32 = 256 * 1024;

    /// Bytes of all streams: no separate bound, so that streams that nobody reads cannot stop the others.
    /// The largest value of RFC 9113, section 6.9.1.
    pub(crate) const CONNECTION_WINDOW: u32 = (1 << 31) - 1;

    /// Bytes of a frame of content. Fewer and larger ones cost less.
    pub(crate) const FRAME_BYTES: u32 = 64 * 1024;

    /// Bytes of a head. A user may have thousands of groups, a field each.
    pub(crate) const HEAD_BYTES: u32 = 512 * 1024;

    /// Bytes of a stream that its sender keeps until the receiver has room.
    pub(crate) const SEND_BUFFER: usize = 128 * 1024;

    /// Requests that were given up before the other end saw them. People close watches by the hundred.
    pub(crate) const PENDING_RESETS: usize = 4_096;
}
