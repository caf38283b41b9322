//! What leaves the gateway on behalf of a plugin: one HTTPS request, one answer.
//!
//! In: an operator's allow-list ([`Rules`]), a URL, a [`Request`]. Out: a
//! [`Response`], or an [`Error`] that says which rule or which step. Never: a
//! connection to an address that was not checked; a redirect followed, a cookie
//! kept, a proxy of the environment; a query, header value or body in a text.
//!
//! A [`Target`] is made by [`Rules::allow`] alone, and [`Sender::send`] takes
//! nothing else: a request that skipped the rules does not compile. The name is
//! resolved once. One forbidden address among those it has refuses all of them:
//! who can put one such address beside a good one can also reorder them.
//!
//! Each request has a connection of its own. Mints are rare, for tokens are
//! cached, and so nothing is shared between plugins, clusters or certificates,
//! and each request checks address and certificate anew.

mod address;
mod body;
mod entry;
mod error;
mod network;
mod pace;
mod request;
mod rules;
mod sender;
mod target;
mod tls;

pub use address::Reach;
pub use body::{MAX_RESPONSE_BODY_BYTES, Response};
pub use entry::{Entry, EntryError, Pattern};
pub use error::{Denied, DenyCode, Error, Step};
pub use network::{Network, Stream, System};
pub use request::{MAX_REQUEST_BODY_BYTES, Method, Request};
pub use rules::Rules;
pub use sender::Sender;
pub use target::Target;

#[cfg(test)]
mod tests;
