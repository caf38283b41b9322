//! Who is inside: sessions with their open requests and streams.
//!
//! In: [`crate::access::Access`], revocations of the store, time. Out: a signal
//! that ends what a session has open. Never: a session that is revoked or has
//! expired and still has something open a second later.

/// Why an exchange ends before its time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ending {
    /// Somebody revoked the session.
    Revoked,
    /// The credential expired.
    Expired,
}
