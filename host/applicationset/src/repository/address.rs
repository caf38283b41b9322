//! Addresses that a name must not lead to.
//!
//! In: an address. Out: what it is, if only an entry with that very host may open
//! it.

use std::net::{IpAddr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use tollgate_core::address::Range;

/// What the address is, unless a repository may be there without being named.
/// Private networks may: that is where people keep repositories.
pub(super) fn special(address: IpAddr) -> Option<&'static str> {
    match Range::of(address)? {
        Range::Private | Range::SharedSpace => None,
        Range::Metadata => Some("it is at a cloud's metadata service"),
        Range::Loopback => Some("it is on the gateway's own machine"),
        Range::LinkLocal => Some("it is at a link-local address, where metadata services are"),
        Range::Embedded => Some("it is at an address that stands for another"),
        Range::Unspecified | Range::Multicast | Range::Broadcast | Range::Documentation | Range::Reserved => {
            Some("it is at an address no server has")
        }
    }
}

/// What the host of a URL is as it stands there.
pub(super) fn special_host(url: &Url) -> Option<&'static str> {
    match url.host() {
        Some(Host::Ipv4(address)) => special(IpAddr::V4(address)),
        Some(Host::Ipv6(address)) => special(IpAddr::V6(address)),
        Some(Host::Domain(name)) if name == "localhost" || name.ends_with(".localhost") => {
            Some("it is on the gateway's own machine")
        }
        Some(Host::Domain(_)) | None => None,
    }
}

/// Resolves names, and refuses all addresses of one that leads somewhere special:
/// who can put one such address beside a good one can also reorder them.
#[derive(Clone, Copy, Debug)]
pub(super) struct Resolver {
    /// The host itself is listed and special, as `localhost`.
    pub(super) named: bool,
}

/// A name leads where it must not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(super) struct Forbidden(pub(super) &'static str);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let named = self.named;
        Box::pin(async move {
            let found: Vec<SocketAddr> = tokio::net::lookup_host((name.as_str(), 0)).await?.collect();
            let forbidden = found.iter().find_map(|address| special(address.ip()));
            match forbidden {
                Some(what) if !named => Err(Forbidden(what).into()),
                Some(_) | None => Ok(Box::new(found.into_iter()) as Addrs),
            }
        })
    }
}
