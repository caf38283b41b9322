//! Carries HTTP requests: the listener, checks of request targets, the header fields that may
//! leave, forwarding to upstreams, and the record of each request. It knows no front.
//!
//! Security: [`forward`] takes only a [`headers::Outbound`], which is sealed from a permit.
//!
//! | module | holds |
//! |---|---|
//! | [`server`] | a socket → a request and the client that sent it |
//! | [`target`] | a request target → its authority, and a path with one reading |
//! | [`headers`], [`assertion`] | a client's fields and a permit → the request that may leave |
//! | [`forward`] | the request that may leave → the upstream's response |
//! | [`record`], [`metrics`] | how the request ended → its record and count |

pub mod agents;
pub mod assertion;
mod client;
pub mod forward;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
pub mod headers;
pub mod metrics;
pub mod record;
pub mod server;
pub mod target;
mod tls;
