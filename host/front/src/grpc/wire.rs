//! Reads and writes protobuf's wire format, one field at a time. Groups are not supported: proto3
//! has none, and Kubernetes never had any.
//!
//! Source: protobuf.dev/programming-guides/encoding.

use bytes::Buf;
use prost::encoding::{WireType, decode_key, decode_varint, encode_key, encode_varint};

/// Depth of nested messages that [`Payload::is_zero`] examines.
const ZERO_DEPTH: u8 = 8;

/// The value of a field, by its wire type.
#[expect(missing_docs, reason = "each is the wire type of its name")]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payload<'a> {
    Varint(u64),
    Fixed(u64),
    Bytes(&'a [u8]),
}

/// The fields of a message. `None` for one that is malformed; nothing after it can be read.
pub fn fields(mut rest: &[u8]) -> impl Iterator<Item = Option<(u32, Payload<'_>)>> {
    std::iter::from_fn(move || (!rest.is_empty()).then(|| next(&mut rest)))
}

/// Takes the next field off `rest`. `None` if it is malformed.
fn next<'a>(rest: &mut &'a [u8]) -> Option<(u32, Payload<'a>)> {
    let (number, kind) = decode_key(rest).ok()?;
    let payload = match kind {
        WireType::Varint => Payload::Varint(decode_varint(rest).ok()?),
        WireType::SixtyFourBit => Payload::Fixed(rest.try_get_u64_le().ok()?),
        WireType::ThirtyTwoBit => Payload::Fixed(u64::from(rest.try_get_u32_le().ok()?)),
        WireType::LengthDelimited => {
            let length = usize::try_from(decode_varint(rest).ok()?).ok()?;
            // The length is the sender's claim: nothing is allocated for it.
            let (bytes, after) = rest.split_at_checked(length)?;
            *rest = after;
            Payload::Bytes(bytes)
        }
        WireType::StartGroup | WireType::EndGroup => return None,
    };
    Some((number, payload))
}

impl Payload<'_> {
    /// Whether an unknown field was sent only because Go sends every field that is not a pointer.
    /// Nothing is lost without it.
    pub fn is_zero(self) -> bool {
        self.is_zero_within(ZERO_DEPTH)
    }

    fn is_zero_within(self, depth: u8) -> bool {
        match (self, depth.checked_sub(1)) {
            (Self::Varint(value) | Self::Fixed(value), _) => value == 0,
            (Self::Bytes([]), _) => true,
            // Too deep to tell. It counts as a value, so that nothing is dropped by mistake.
            (Self::Bytes(_), None) => false,
            (Self::Bytes(message), Some(depth)) => {
                fields(message).all(|field| field.is_some_and(|(_, payload)| payload.is_zero_within(depth)))
            }
        }
    }
}

/// Appends a field of the wire type varint.
pub fn put_varint(out: &mut Vec<u8>, number: u32, value: u64) {
    encode_key(number, WireType::Varint, out);
    encode_varint(value, out);
}

/// Appends a field of delimited length.
pub fn put_bytes(out: &mut Vec<u8>, number: u32, bytes: &[u8]) {
    encode_key(number, WireType::LengthDelimited, out);
    encode_varint(u64::try_from(bytes.len()).unwrap_or(u64::MAX), out);
    out.extend_from_slice(bytes);
}

#[cfg(test)]
mod tests {
    use super::{Payload, next, put_bytes, put_varint};

    #[test]
    fn zero_payloads_are_recognized() {
        for (bytes, zero) in [
            (&b""[..], true),
            (b"\x08\x00", true),
            (b"\x08\x01", false),
            (b"\x0a\x00\x12\x02\x08\x00", true),
            (b"\x0a\x01x", false),
            (b"text", false),
            (b"\x0d\x00\x00\x00\x00", true),
        ] {
            assert_eq!(Payload::Bytes(bytes).is_zero(), zero, "{bytes:?}");
        }
    }

    #[test]
    fn fields_survive_a_round_trip() {
        let mut bytes = Vec::new();
        put_varint(&mut bytes, 1, 300);
        put_bytes(&mut bytes, 2, b"ab");
        let mut rest = &bytes[..];
        assert_eq!(next(&mut rest), Some((1, Payload::Varint(300))));
        assert_eq!(next(&mut rest), Some((2, Payload::Bytes(b"ab"))));
        assert!(rest.is_empty());
        for broken in [&b"\x0b"[..], b"\x0a\x05ab", b"\x08", b"\xff"] {
            assert_eq!(next(&mut &broken[..]), None, "{broken:?}");
        }
    }
}
