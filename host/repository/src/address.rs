//! Special IP addresses that a host name must not resolve to, unless an entry of the settings or a
//! Secret names that very host.

use std::net::IpAddr;

use reqwest::dns::{Addrs, Name, Resolve, Resolving};
use url::{Host, Url};

use tollgate_core::address::SpecialPurposeRange;
use tollgate_runtime::name_lookup;

/// The kind of special address this is; `None` for addresses where a repository may be without an
/// entry naming them. Private networks are not special, because people keep repositories there.
pub(crate) fn special(address: IpAddr) -> Option<&'static str> {
    match SpecialPurposeRange::classify(address)? {
        SpecialPurposeRange::Private | SpecialPurposeRange::SharedSpace => None,
        SpecialPurposeRange::Metadata => Some("it is at a cloud's metadata service"),
        SpecialPurposeRange::Loopback => Some("it is on the gateway's own machine"),
        SpecialPurposeRange::LinkLocal => Some("it is at a link-local address, where metadata services are"),
        SpecialPurposeRange::Embedded => Some("it is at an address that stands for another"),
        SpecialPurposeRange::Unspecified
        | SpecialPurposeRange::Multicast
        | SpecialPurposeRange::Broadcast
        | SpecialPurposeRange::Documentation
        | SpecialPurposeRange::Reserved => Some("it is at an address no server has"),
    }
}

/// The kind of special address that a URL's host literally is.
pub(crate) fn special_host(url: &Url) -> Option<&'static str> {
    match url.host() {
        Some(Host::Ipv4(address)) => special(IpAddr::V4(address)),
        Some(Host::Ipv6(address)) => special(IpAddr::V6(address)),
        Some(Host::Domain(name)) if name == "localhost" || name.ends_with(".localhost") => {
            Some("it is on the gateway's own machine")
        }
        Some(Host::Domain(_)) | None => None,
    }
}

/// Resolves names. A name with any special address is refused altogether: anyone who can place such
/// an address beside a good one can also reorder them.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Resolver {
    /// The host itself is listed and may be special, such as `localhost`.
    pub(crate) allows_special: bool,
}

/// A name resolves to a forbidden address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub(crate) struct ForbiddenAddress(pub(crate) &'static str);

impl Resolve for Resolver {
    fn resolve(&self, name: Name) -> Resolving {
        let allows_special = self.allows_special;
        Box::pin(async move {
            let found = name_lookup::lookup(name.as_str(), 0).await?;
            let forbidden = found.iter().find_map(|address| special(address.ip()));
            match forbidden {
                Some(what) if !allows_special => Err(ForbiddenAddress(what).into()),
                Some(_) | None => Ok(Box::new(found.into_iter()) as Addrs),
            }
        })
    }
}
