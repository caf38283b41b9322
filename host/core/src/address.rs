//! Classifies IP addresses by special-purpose range. Every outgoing connection to a host that
//! somebody else chose is checked against this one table.
//!
//! Security: an IPv6 address that embeds an IPv4 address is never classified by the IPv4 part.
//!
//! Source: the IANA special-purpose registries (RFC 6890 and its successors) and the
//! clouds' metadata services.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

/// A range of addresses that are not global unicast.
/// Its text is the word in the reason of a refusal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case", prefix = "address-")]
pub enum SpecialPurposeRange {
    /// A cloud's metadata service.
    Metadata,
    /// 169.254/16 or fe80::/10.
    LinkLocal,
    /// 127/8 or ::1.
    Loopback,
    /// RFC 1918 or fc00::/7.
    Private,
    /// 100.64/10.
    #[strum(serialize = "shared")]
    SharedSpace,
    /// IPv4 inside IPv6: mapped, compatible, NAT64, 6to4, Teredo.
    Embedded,
    /// 0/8 or ::.
    Unspecified,
    /// 224/4 or ff00::/8.
    Multicast,
    /// 255.255.255.255.
    Broadcast,
    /// Documentation and benchmarks.
    Documentation,
    /// Any other range that is not global.
    Reserved,
}

/// Metadata addresses outside 169.254/16: Azure's wire server and Alibaba's metadata service. They
/// answer inside each machine of the cloud.
const METADATA_V4: [Ipv4Addr; 2] = [Ipv4Addr::new(168, 63, 129, 16), Ipv4Addr::new(100, 100, 100, 200)];

/// Metadata services within fc00::/7: AWS (IMDS, time, DNS and Pod Identity live in
/// fd00:ec2::/32) and GCE.
const METADATA_V6: [[u16; 2]; 2] = [[0xfd00, 0x0ec2], [0xfd20, 0x00ce]];

/// The client that an address counts for, in every bound for each address. In IPv6 it is a /64 network,
/// because one machine may have all of its addresses.
pub fn client_network(address: IpAddr) -> IpAddr {
    match address.to_canonical() {
        // All of IPv4 is in one /64 as mapped addresses, which is how a dual-stack listener reports its clients.
        IpAddr::V4(v4) => IpAddr::V4(v4),
        IpAddr::V6(v6) => IpAddr::V6(Ipv6Addr::from_bits(v6.to_bits() & !u128::from(u64::MAX))),
    }
}

impl SpecialPurposeRange {
    /// The special-purpose range of an address; `None` for global unicast.
    pub fn classify(address: IpAddr) -> Option<Self> {
        match address {
            IpAddr::V4(v4) => of_v4(v4),
            IpAddr::V6(v6) => of_v6(v6),
        }
    }
}

fn of_v4(address: Ipv4Addr) -> Option<SpecialPurposeRange> {
    let range = match address.octets() {
        // Before the ranges, as 100.64/10 and 169.254/16 contain some of these.
        _ if METADATA_V4.contains(&address) => SpecialPurposeRange::Metadata,
        // The metadata of most clouds; credentials of ECS tasks, and of EKS Pod Identity.
        [169, 254, 169, 254] | [169, 254, 170, 2 | 23] => SpecialPurposeRange::Metadata,
        [255, 255, 255, 255] => SpecialPurposeRange::Broadcast,
        [0, ..] => SpecialPurposeRange::Unspecified,
        [10, ..] | [172, 16..=31, ..] | [192, 168, ..] => SpecialPurposeRange::Private,
        [100, 64..=127, ..] => SpecialPurposeRange::SharedSpace,
        [127, ..] => SpecialPurposeRange::Loopback,
        [169, 254, ..] => SpecialPurposeRange::LinkLocal,
        [192, 0, 2, _] | [198, 51, 100, _] | [203, 0, 113, _] | [198, 18..=19, ..] => {
            SpecialPurposeRange::Documentation
        }
        // 192.88.99/24 was the relay of 6to4.
        [192, 88, 99, _] => SpecialPurposeRange::Embedded,
        [192, 0, 0, _] | [240..=255, ..] => SpecialPurposeRange::Reserved,
        [224..=239, ..] => SpecialPurposeRange::Multicast,
        _ => return None,
    };
    Some(range)
}

fn of_v6(address: Ipv6Addr) -> Option<SpecialPurposeRange> {
    let [a, b, c, ..] = address.segments();
    if METADATA_V6.contains(&[a, b]) {
        return Some(SpecialPurposeRange::Metadata);
    }
    let range = match (a, b, c) {
        _ if address.is_unspecified() => SpecialPurposeRange::Unspecified,
        _ if address.is_loopback() => SpecialPurposeRange::Loopback,
        // ::/96, ::ffff:0:0/96 and ::ffff:0:0:0/96 (RFC 4291, RFC 2765).
        (0, 0, 0) => SpecialPurposeRange::Embedded,
        (0x64, 0xff9b, _) | (0x2002, _, _) | (0x2001, 0, _) => SpecialPurposeRange::Embedded,
        (0x2001, 0x0db8, _) | (0x2001, 2, 0) | (0x3fff, 0..=0x0fff, _) => SpecialPurposeRange::Documentation,
        // 2001::/23 is for IETF protocol assignments.
        (0x2001, 0..=0x01ff, _) => SpecialPurposeRange::Reserved,
        (0xfc00..=0xfdff, _, _) => SpecialPurposeRange::Private,
        (0xfe80..=0xfebf, _, _) => SpecialPurposeRange::LinkLocal,
        (0xff00..=0xffff, _, _) => SpecialPurposeRange::Multicast,
        // IANA assigns global unicast from 2000::/3 only. Anything else is reserved, until this table says otherwise.
        (0x2000..=0x3fff, _, _) => return None,
        _ => SpecialPurposeRange::Reserved,
    };
    Some(range)
}
