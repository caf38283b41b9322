//! Sends one HTTPS `Request` for a plugin and returns one `Response`, or an `Error` that
//! names the rule or the stage that failed. `EgressAllowList` is the operator's allow-list.
//!
//! Only `EgressAllowList::allow` makes a `Target`, and `EgressClient::send` takes nothing
//! else, so a request that skipped the allow-list does not compile.
//!
//! Each request has its own connection. Mints are rare, because tokens are cached. So plugins,
//! clusters and certificates share nothing, and every request checks address and certificate anew.
//!
//! Security: the name is resolved once, and only a checked address is connected to. One forbidden
//! address among those of a name refuses all of them, because anyone who can add such an address
//! can also reorder them. Redirects are not followed, cookies are not kept, and the environment's
//! proxy is ignored. No log line or error contains a query, header value or body.

mod address;
mod allow_list;
mod body;
mod client;
mod entry;
mod error;
mod network;
mod rate_limit;
mod request;
mod target;
mod tls;

pub(crate) use address::address_of;
pub(crate) use allow_list::EgressAllowList;
pub(crate) use body::Response;
pub use client::EgressClient;
pub(crate) use entry::{EntryError, HostPortPattern};
pub(crate) use error::Error;
pub(crate) use network::RecordedAnswers;
pub use network::{Network, Stream};
pub(crate) use request::Request;
pub(crate) use target::Target;

#[cfg(test)]
mod tests;
