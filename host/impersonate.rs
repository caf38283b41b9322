//! Whom the cluster is told the request is from.
//!
//! In: a permit, the mapping policy. Out: [`Impersonation`]. Refuses: 403. Never:
//! a `system:` name the mapping does not spell out, an empty name, a value that
//! HTTP would change on the way, more groups than allowed.

use crate::access::Identity;

/// Whom to impersonate, or nobody on purpose.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Impersonation {
    /// The cluster's credential acts in its own name.
    Nobody,
    /// This identity, checked by the guard rails.
    As(Identity),
}
