use super::{Error, FIXED_BYTES, MAX_BYTES, SIGNATURE, Source, read};

/// A header with the command, the family, and what follows the length.
fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [SIGNATURE.as_slice(), &[command, family], &length, rest].concat()
}

const V4: [u8; 12] = [203, 0, 113, 7, 10, 0, 0, 1, 0x12, 0x67, 1, 187];

fn v6() -> Vec<u8> {
    let address = |text: &str| text.parse::<std::net::Ipv6Addr>().unwrap().octets();
    [
        &address("2001:db8::7")[..],
        &address("2001:db8::1"),
        &[0x12, 0x67, 1, 187],
    ]
    .concat()
}

#[tokio::test]
async fn the_client_is_the_source_and_nothing_more_is_read() {
    let client = |text: &str| Source::Client(text.parse().unwrap());
    let with_tlvs = [&V4[..], &[4, 0, 1, 42], &[0xee; 300]].concat();
    let long = [&V4[..], &vec![0; MAX_BYTES - V4.len()]].concat();
    for (header, expected) in [
        (header(0x21, 0x11, &V4), client("203.0.113.7:4711")),
        (header(0x21, 0x11, &with_tlvs), client("203.0.113.7:4711")),
        (header(0x21, 0x11, &long), client("203.0.113.7:4711")),
        (header(0x21, 0x21, &v6()), client("[2001:db8::7]:4711")),
        // A connection that the proxy opened itself, regardless of the addresses in its header.
        (header(0x20, 0x00, b""), Source::Unspecified),
        (header(0x20, 0x11, &V4), Source::Unspecified),
        (header(0x21, 0x00, b""), Source::Unspecified),
        (header(0x21, 0x00, &[0xee; 7]), Source::Unspecified),
        (header(0x21, 0x31, &[b'/'; 216]), Source::Unspecified),
    ] {
        let bytes = [&header[..], &header, b"GET"].concat();
        let mut rest = bytes.as_slice();
        assert_eq!(read(&mut rest).await.unwrap(), expected, "{header:?}");
        assert_eq!(rest.len(), header.len() + 3, "{header:?}");
    }
}

#[tokio::test]
async fn anything_else_is_refused() {
    let error = async |bytes: &[u8]| read(&mut &bytes[..]).await.unwrap_err();
    for bytes in [
        b"GET / HTTP/1.1\r\nHost: a\r\n\r\n".as_slice(),
        b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 443\r\n",
        b"\r\n\r\n\0\r\nQUIT\r\n\x21\x11\0\x0c",
        b"\x16\x03\x01\x02\0\x01\0\x01\xfc\x03\x03aaaaaaaa",
    ] {
        assert!(matches!(error(bytes).await, Error::Signature), "{bytes:?}");
    }
    for (command, family) in [
        (0x11, 0x11),
        (0x31, 0x11),
        (0x22, 0x11),
        (0x21, 0x13),
        (0x21, 0x41),
        (0x21, 0x01),
    ] {
        let found = error(&header(command, family, &V4)).await;
        assert!(matches!(found, Error::Malformed), "{command:x} {family:x}: {found}");
    }
    for (family, rest) in [
        (0x11, &V4[..11]),
        (0x11, &V4[..0]),
        (0x21, &V4[..]),
        (0x31, &[0; 215][..]),
    ] {
        let found = error(&header(0x21, family, rest)).await;
        assert!(matches!(found, Error::Malformed), "{family:x}: {found}");
    }
    assert!(matches!(error(&header(0x21, 0x12, &V4)).await, Error::Datagram));
    let too_long = vec![0; MAX_BYTES + 1];
    let found = error(&header(0x21, 0x11, &too_long)).await;
    assert!(matches!(found, Error::TooLong { bytes } if bytes == MAX_BYTES + 1));
    let whole = header(0x21, 0x11, &V4);
    for length in [0, 1, 12, FIXED_BYTES, whole.len() - 1] {
        assert!(matches!(error(&whole[..length]).await, Error::Read(_)), "{length}");
    }
}
