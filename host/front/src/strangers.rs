//! Bounds the requests that are served before anybody is authenticated, and that cost more than an answer:
//! sign-in, which asks issuers and the store, and what argocd-server serves to everybody.
//!
//! Security: a client has its own share, so that it keeps out nobody else. Each door has its own bound, so
//! that requests at one take nothing from another.

use http::StatusCode;
use std::net::IpAddr;
use std::num::NonZeroU32;
use std::sync::Arc;

use crate::Denial;
use tollgate_config::RequestLimits;
use tollgate_core::address::client_network;
use tollgate_objects::extensions::{LimitSpec, PersonLimitSpec};
use tollgate_proxy::forward::{LimitExceeded, LimitKind, LimitPermit, Limiter};
use tollgate_proxy::server::Client;

/// Requests about sign-in that are open at once, of all clients and of one. In IPv6 a client is a /64.
const SIGN_INS: (u32, u32) = (256, 16);
/// The share of `limits.connections` that requests without a credential to argocd-server may have.
const ARGOCD_DIVISOR: usize = 4;

/// A request of a stranger that was refused, because too many are open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum TooMany {
    /// All that one address may have.
    #[error("too many requests of this address are open, try again in a moment")]
    OfAddress,
    /// All that all addresses together may have.
    #[error("too many requests of people who are not signed in are open, try again in a moment")]
    InTotal,
}

impl From<LimitExceeded> for TooMany {
    fn from(error: LimitExceeded) -> Self {
        match error.kind {
            LimitKind::PersonConcurrency | LimitKind::PersonRate => Self::OfAddress,
            LimitKind::ExtensionConcurrency | LimitKind::ExtensionRate => Self::InTotal,
        }
    }
}

/// The bound of one door: requests that are open, of one client and of all.
#[derive(Clone, Debug)]
pub struct Strangers(Arc<Limiter>);

impl Strangers {
    /// For sign-in.
    pub fn at_sign_in() -> Self {
        let (total, of_client) = SIGN_INS;
        Self::new(total, of_client)
    }

    /// For what argocd-server serves without a session, by the settings.
    pub fn at_argocd(limits: &RequestLimits) -> Self {
        let count = |count: usize| u32::try_from(count).unwrap_or(u32::MAX);
        Self::new(
            count(limits.connections / ARGOCD_DIVISOR),
            count(limits.requests_per_person),
        )
    }

    fn new(total: u32, of_client: u32) -> Self {
        Self(Limiter::new(&LimitSpec {
            // Never `None`, which would mean that there is no limit.
            concurrency: NonZeroU32::new(total.max(1)),
            per_person: PersonLimitSpec {
                concurrency: NonZeroU32::new(of_client.max(1)),
                ..PersonLimitSpec::default()
            },
            ..LimitSpec::default()
        }))
    }

    /// Counts a request of the client until the permit is dropped.
    pub fn enter(&self, client: &Client) -> Result<LimitPermit, TooMany> {
        Ok(self.0.acquire(key(client.address()))?)
    }
}

/// A number of a client that no other client has.
fn key(address: IpAddr) -> u64 {
    match client_network(address) {
        // Its upper half is zero, as that of no IPv6 network of a client is.
        IpAddr::V4(address) => u64::from(address.to_bits()),
        IpAddr::V6(network) => u64::try_from(network.to_bits() >> 64).unwrap_or(u64::MAX),
    }
}

impl From<TooMany> for Denial {
    fn from(error: TooMany) -> Self {
        let reason = match error {
            TooMany::OfAddress => "too_many_requests_of_address",
            TooMany::InTotal => "too_many_requests_of_strangers",
        };
        let denial = Self::denied(StatusCode::TOO_MANY_REQUESTS, reason, error.to_string());
        denial.retry_after(Some(1)).caused_by(error)
    }
}

#[cfg(test)]
mod tests {
    use super::{SIGN_INS, Strangers, TooMany, key};

    #[test]
    fn a_client_has_its_own_share_and_all_have_theirs() {
        let strangers = Strangers::at_sign_in();
        let (total, of_client) = SIGN_INS;
        let enter = |address: &str| {
            strangers
                .0
                .acquire(key(address.parse().unwrap()))
                .map_err(TooMany::from)
        };
        let mut held = Vec::new();
        for host in 0..of_client {
            held.push(enter(&format!("2001:db8:0:1::{host:x}")).unwrap());
        }
        // Another address of the same /64.
        assert_eq!(enter("2001:db8:0:1:ffff::1").unwrap_err(), TooMany::OfAddress);
        for client in of_client..total {
            held.push(enter(&format!("192.0.2.{}", client.rem_euclid(200))).unwrap());
        }
        assert_eq!(enter("198.51.100.1").unwrap_err(), TooMany::InTotal);
        // One whose share is used up gets this error, and takes nothing of what is left.
        held.pop();
        assert_eq!(enter("2001:db8:0:1::1").unwrap_err(), TooMany::OfAddress);
        held.push(enter("198.51.100.1").unwrap());
        drop(held);
        enter("2001:db8:0:1::1").unwrap();
    }

    #[test]
    fn clients_are_told_apart() {
        let keys = ["192.0.2.1", "192.0.2.2", "2001:db8::1", "2001:db8:0:1::1"];
        let mut keys = keys.map(|address| key(address.parse().unwrap()));
        assert_eq!(
            key("::ffff:192.0.2.1".parse().unwrap()),
            key("192.0.2.1".parse().unwrap())
        );
        keys.sort_unstable();
        assert!(keys.windows(2).all(|pair| pair[0] != pair[1]));
    }
}
