//! Decides which addresses a plugin's request may go to, and names the range of a refused one.

use std::net::IpAddr;

use url::Host;

use super::error::DenyCode;
use tollgate_core::address::SpecialPurposeRange;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AddressScope {
    /// Global unicast addresses only.
    Public,
    /// RFC 1918 and unique local addresses as well.
    Private,
    /// 127/8 and ::1 as well.
    Loopback,
}

/// The error names the range that refuses the address.
pub(super) fn check(address: IpAddr, scope: AddressScope) -> Result<(), DenyCode> {
    match (SpecialPurposeRange::classify(address), scope) {
        (None, _)
        | (Some(SpecialPurposeRange::Private), AddressScope::Private)
        | (Some(SpecialPurposeRange::Loopback), AddressScope::Loopback) => Ok(()),
        (Some(range), _) => Err(DenyCode::Address(range)),
    }
}

pub(crate) fn address_of<S>(host: &Host<S>) -> Option<IpAddr> {
    match host {
        Host::Domain(_) => None,
        Host::Ipv4(address) => Some((*address).into()),
        Host::Ipv6(address) => Some((*address).into()),
    }
}
