//! Which addresses a plugin's request may go to.
//!
//! In: an address. Out: nothing, or the range that refuses it. Never: an
//! IPv4 address believed inside an IPv6 one.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::error::DenyCode;

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
/// The range that refuses it. Source: the IANA special-purpose registries
/// (RFC 6890 and its successors) and the clouds' metadata services.
pub(super) fn check(address: IpAddr, reach: Reach) -> Result<(), DenyCode> {
    let refused = match address {
        IpAddr::V4(v4) => range_v4(v4),
        IpAddr::V6(v6) => range_v6(v6),
    };
    match (refused, reach) {
        (None, _) | (Some(DenyCode::Private), Reach::Private) | (Some(DenyCode::Loopback), Reach::Loopback) => Ok(()),
        (Some(code), _) => Err(code),
    }
}

/// Azure's wire server, a public address that answers inside each machine.
const AZURE_WIRE_SERVER: Ipv4Addr = Ipv4Addr::new(168, 63, 129, 16);

/// Metadata services within fc00::/7, which `private` would else open: AWS
/// (IMDS, time, DNS and Pod Identity live in fd00:ec2::/32) and GCE.
const METADATA_V6: [[u16; 2]; 2] = [[0xfd00, 0x0ec2], [0xfd20, 0x00ce]];

fn range_v4(address: Ipv4Addr) -> Option<DenyCode> {
    let code = match address.octets() {
        _ if address == AZURE_WIRE_SERVER => DenyCode::Metadata,
        [169, 254, 169, 254] | [169, 254, 170, 2 | 23] => DenyCode::Metadata,
        [255, 255, 255, 255] => DenyCode::Broadcast,
        [0, ..] => DenyCode::Unspecified,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => DenyCode::Private,
        [100, 64..=127, ..] => DenyCode::SharedSpace,
        [127, ..] => DenyCode::Loopback,
        [169, 254, ..] => DenyCode::LinkLocal,
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] | [198, 18..=19, ..] => DenyCode::Documentation,
        // 192.88.99/24 was the relay of 6to4.
        [192, 88, 99, _] => DenyCode::Embedded,
        [192, 0, 0, _] | [240..=255, ..] => DenyCode::Reserved,
        [224..=239, ..] => DenyCode::Multicast,
        _ => return None,
    };
    Some(code)
}

fn range_v6(address: Ipv6Addr) -> Option<DenyCode> {
    let [a, b, c, ..] = address.segments();
    if METADATA_V6.contains(&[a, b]) {
        return Some(DenyCode::Metadata);
    }
    let code = match (a, b, c) {
        _ if address.is_unspecified() => DenyCode::Unspecified,
        _ if address.is_loopback() => DenyCode::Loopback,
        // ::/96, ::ffff:0:0/96 and ::ffff:0:0:0/96 (RFC 4291, RFC 2765).
        (0, 0, 0) => DenyCode::Embedded,
        (0x64, 0xff9b, _) | (0x2002, _, _) | (0x2001, 0, _) => DenyCode::Embedded,
        (0x2001, 0x0db8, _) | (0x2001, 2, 0) | (0x3fff, 0..=0x0fff, _) => DenyCode::Documentation,
        // 2001::/23 is the IETF's.
        (0x2001, 0..=0x01ff, _) => DenyCode::Reserved,
        (0xfc00..=0xfdff, _, _) => DenyCode::Private,
        (0xfe80..=0xfebf, _, _) => DenyCode::LinkLocal,
        (0xff00..=0xffff, _, _) => DenyCode::Multicast,
        (0x2000..=0x3fff, _, _) => return None,
        _ => DenyCode::Reserved,
    };
    Some(code)
}
