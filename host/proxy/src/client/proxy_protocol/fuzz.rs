//! Fuzz target: a header has the address that its bytes have, and nothing after it is read.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use futures_util::FutureExt as _;

use super::{FIXED_BYTES, MAX_BYTES, SIGNATURE, Source, read};
use tollgate_fuzz::Target;

pub(crate) const TARGETS: &[Target] = &[Target {
    name: "proxy_protocol",
    run: proxy_protocol,
    seeds,
}];

fn seeds() -> Vec<Vec<u8>> {
    let header = |rest: &[u8]| [SIGNATURE.as_slice(), rest, b"GET / HTTP/1.1\r\n\r\n"].concat();
    vec![
        header(&[0x20, 0, 0, 0]),
        header(b"\x21\x11\x00\x0c\xcb\x00\x71\x07\x0a\x00\x00\x01\x12\x67\x01\xbb"),
        header(b"\x21\x11\x00\x10\xcb\x00\x71\x07\x0a\x00\x00\x01\x12\x67\x01\xbb\x04\x00\x01\x2a"),
        header(&[&[0x21, 0x21, 0, 36][..], &[0x20; 36]].concat()),
        header(&[&[0x21, 0x31, 0, 216][..], &[b'a'; 216]].concat()),
        header(&[0x21, 0x12, 0, 0]),
        b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 443\r\nGET / HTTP/1.1\r\n\r\n".to_vec(),
    ]
}

fn proxy_protocol(data: &[u8]) {
    let mut rest = data;
    // A slice is always ready.
    let Some(Ok(source)) = read(&mut rest).now_or_never() else {
        return;
    };
    let (header, after) = data.split_at(data.len() - rest.len());
    assert_eq!(after, rest);
    assert!(header.starts_with(&SIGNATURE) && header.len() <= FIXED_BYTES + MAX_BYTES);
    assert_eq!(Some(source), by_layout(header), "{header:?}");
}

/// The source by the places of the bytes. `None` for a header that must be refused.
fn by_layout(header: &[u8]) -> Option<Source> {
    let client = |address: IpAddr, port: [u8; 2]| Source::Client(SocketAddr::new(address, u16::from_be_bytes(port)));
    match bytes(header, 12)? {
        [0x21, 0x11] => {
            let address = Ipv4Addr::from(bytes::<4>(header, 16)?);
            Some(client(address.into(), bytes(header, 24)?))
        }
        [0x21, 0x21] => {
            let address = Ipv6Addr::from(bytes::<16>(header, 16)?);
            Some(client(address.into(), bytes(header, 48)?))
        }
        [0x21, 0 | 0x31 | 0x32] | [0x20, _] => Some(Source::Unspecified),
        _ => None,
    }
}

fn bytes<const N: usize>(header: &[u8], at: usize) -> Option<[u8; N]> {
    header.get(at..)?.first_chunk().copied()
}
