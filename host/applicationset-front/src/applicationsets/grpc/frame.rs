//! Reads the one message of a call from its frame, and frames messages of responses. Compressed
//! messages, and any number of messages other than one, are refused.
//!
//! Security: the length a frame claims is not trusted.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::Bytes;

use crate::applicationsets::grpc::Error;
use tollgate_front::grpc::Transport;

/// Longest message that clients accept, in bytes: the limit of Argo CD's.
pub(super) const MAX_MESSAGE_BYTES: usize = 200 * 1024 * 1024;

const HEAD_BYTES: usize = 5;

/// Set on frames of gRPC-Web that hold trailers.
const TRAILERS: u8 = 0x80;

pub(super) fn one_message(transport: Transport, content: &Bytes) -> Result<Cow<'_, [u8]>, Error> {
    match transport {
        Transport::Grpc | Transport::Web => Ok(Cow::Borrowed(payload(content)?)),
        Transport::WebText => {
            let mut decoded = decode_base64(content)?;
            // Checks the frame, so that the message can be split off without a copy.
            payload(&decoded)?;
            Ok(Cow::Owned(decoded.split_off(HEAD_BYTES)))
        }
    }
}

fn payload(content: &[u8]) -> Result<&[u8], Error> {
    let ([flag, length @ ..], message) = content.split_first_chunk::<HEAD_BYTES>().ok_or(Error::Frame)?;
    let fits = usize::try_from(u32::from_be_bytes(*length)).is_ok_and(|length| length == message.len());
    match (flag, fits) {
        (0, true) => Ok(message),
        (1, true) => Err(Error::Compressed),
        (_, _) => Err(Error::Frame),
    }
}

/// Decodes base64, which may end and begin anew after any padding.
fn decode_base64(content: &[u8]) -> Result<Vec<u8>, Error> {
    let mut decoded = Vec::with_capacity(content.len() / 4 * 3);
    let mut rest = content;
    while !rest.is_empty() {
        let end = match memchr::memchr(b'=', rest) {
            Some(padding) => padding.saturating_add(1).next_multiple_of(4).min(rest.len()),
            None => rest.len(),
        };
        let (part, after) = rest.split_at_checked(end).ok_or(Error::Frame)?;
        STANDARD.decode_vec(part, &mut decoded).map_err(|_| Error::Frame)?;
        rest = after;
    }
    Ok(decoded)
}

pub(super) fn data(transport: Transport, message: &[u8]) -> Bytes {
    framed(transport, 0, message)
}

pub(super) fn trailers(transport: Transport, text: &str) -> Bytes {
    framed(transport, TRAILERS, text.as_bytes())
}

fn framed(transport: Transport, flag: u8, content: &[u8]) -> Bytes {
    let mut frame = Vec::with_capacity(content.len() + HEAD_BYTES);
    frame.push(flag);
    // The content is never longer than `MAX_MESSAGE_BYTES`.
    frame.extend_from_slice(&u32::try_from(content.len()).unwrap_or(u32::MAX).to_be_bytes());
    frame.extend_from_slice(content);
    match transport {
        Transport::Grpc | Transport::Web => frame.into(),
        Transport::WebText => STANDARD.encode(frame).into(),
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;

    use super::{Error, Transport, data, one_message};

    #[test]
    fn framed_messages_survive_a_round_trip() {
        for transport in [Transport::Grpc, Transport::Web, Transport::WebText] {
            let content = data(transport, b"message");
            let message = one_message(transport, &content).expect("a message");
            assert_eq!(message.as_ref(), b"message");
        }
        // In two pieces: `\0\0\0\0`, `\x01a`.
        let content = Bytes::from_static(b"AAAAAA==AWE=");
        let message = one_message(Transport::WebText, &content).expect("a message");
        assert_eq!(message.as_ref(), b"a");
    }

    #[test]
    fn anything_but_one_message_is_refused() {
        for content in [
            &b""[..],
            b"\0\0\0\0",
            b"\0\0\0\0\x01",
            b"\0\0\0\0\x01ab",
            b"\0\xff\xff\xff\xffa",
            b"\x80\0\0\0\0",
            b"\0\0\0\0\0\0\0\0\0\0",
        ] {
            let content = Bytes::from_static(content);
            let error = one_message(Transport::Grpc, &content).expect_err("no message");
            assert!(matches!(error, Error::Frame), "{error}");
        }
        let compressed = one_message(Transport::Web, &Bytes::from_static(b"\x01\0\0\0\0")).expect_err("compressed");
        assert!(matches!(compressed, Error::Compressed));
        for text in [&b"===="[..], b"AAAA!AAA", b"AAA", b"AAAAAAE="] {
            assert!(one_message(Transport::WebText, &Bytes::from_static(text)).is_err());
        }
    }
}
