//! Addresses that a name must not lead to.
//!
//! In: an address. Out: what it is, if only an entry with that very host may open
//! it. Never: an IPv4 address believed inside an IPv6 one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

/// Public addresses that answer inside each machine of a cloud: Azure's wire server
/// and Alibaba's metadata.
const METADATA_V4: [Ipv4Addr; 2] = [Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(100, 100, 100, 200)];

/// AWS and GCE, within fc00::/7.
const METADATA_V6: [[u16; 2]; 2] = [[0xfd00, 0x0ec2], [0xfd20, 0x00ce]];

/// What the address is, unless a repository may be there without being named.
/// Private networks may: that is where people keep repositories.
pub(super) fn special(address: IpAddr) -> Option<&'static str> {
    match address.to_canonical() {
        IpAddr::V4(v4) if METADATA_V4.contains(&v4) => Some("it is at a cloud's metadata service"),
        IpAddr::V4(v4) if v4.is_loopback() => Some("it is on the gateway's own machine"),
        IpAddr::V4(v4) if v4.is_link_local() => Some("it is at a link-local address, where metadata services are"),
        IpAddr::V4(v4) if v4.octets().first() == Some(&0) || v4.is_multicast() || v4.octets().first() >= Some(&240) => {
            Some("it is at an address no server has")
        }
        IpAddr::V4(_) => None,
        IpAddr::V6(v6) => special_v6(v6),
    }
}

fn special_v6(address: Ipv6Addr) -> Option<&'static str> {
    let [first, second, ..] = address.segments();
    match first {
        _ if METADATA_V6.contains(&[first, second]) => Some("it is at a cloud's metadata service"),
        _ if address.is_loopback() => Some("it is on the gateway's own machine"),
        0xfe80..=0xfebf => Some("it is at a link-local address, where metadata services are"),
        0xff00..=0xffff => Some("it is at an address no server has"),
        // Unspecified, and IPv4 addresses in disguise: mapped ones are looked at as
        // IPv4; NAT64, 6to4, Teredo and compatible ones lead anywhere.
        0 | 0x64 | 0x2002 => Some("it is at an address that stands for another"),
        0x2001 if second == 0 => Some("it is at an address that stands for another"),
        _ => None,
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
