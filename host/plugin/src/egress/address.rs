//! Decides which addresses a plugin's request may go to, and names the range of a refused one.

use std::net::IpAddr;

use super::error::DenyCode;
use tollgate_core::address::SpecialPurposeRange;

/// The address ranges that an allow-list entry permits.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum AddressScope {
    /// Global unicast addresses only.
    #[default]
    Public,
    /// RFC 1918 and unique local addresses as well.
    Private,
    /// 127/8 and ::1 as well.
    Loopback,
}

/// Tests one address.
///
/// # Errors
/// The range that refuses it.
pub(super) fn check(address: IpAddr, scope: AddressScope) -> Result<(), DenyCode> {
    match (SpecialPurposeRange::classify(address), scope) {
        (None, _)
        | (Some(SpecialPurposeRange::Private), AddressScope::Private)
        | (Some(SpecialPurposeRange::Loopback), AddressScope::Loopback) => Ok(()),
        (Some(range), _) => Err(DenyCode::Address(range)),
    }
}
