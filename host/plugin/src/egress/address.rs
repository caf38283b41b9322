//! Decides which addresses a plugin's request may go to, and names the range of a refused one.

use std::net::IpAddr;

use super::error::DenyCode;
use tollgate_core::address::Range;

/// How far an entry reaches beyond the public internet.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Reach {
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
pub(super) fn check(address: IpAddr, reach: Reach) -> Result<(), DenyCode> {
    match (Range::of(address), reach) {
        (None, _) | (Some(Range::Private), Reach::Private) | (Some(Range::Loopback), Reach::Loopback) => Ok(()),
        (Some(range), _) => Err(DenyCode::Address(range)),
    }
}
