//! Who sends a request, and what they may do at all: credentials are verified, agents' access is
//! granted, sessions are kept and ended, and everything that enters a cluster is audited.
//!
//! | module | holds |
//! |---|---|
//! | [`authenticate`] | credentials of a request → a principal |
//! | [`access`] | a credential for an agent → access with its roles, from this gateway or a platform |
//! | [`sessions`] | what is open, and the signal that ends it |
//! | [`audit`] | a row for everything that enters a cluster through an agent |
//! | [`revoked_tokens`] | tokens that Argo CD revoked, as its Redis lists them |
//! | [`person`] | whether two names are one person |
//! | [`logins`] | people's logins at the gateway itself |
//! | [`clock`] | the time that decides when credentials expire |

pub mod access;
pub mod audit;
pub mod authenticate;
pub mod clock;
#[cfg(any(test, feature = "fuzz"))]
pub mod fuzz;
mod http_client;
pub mod logins;
pub mod metrics;
pub mod person;
pub mod revoked_tokens;
pub mod sessions;
mod sharded;
