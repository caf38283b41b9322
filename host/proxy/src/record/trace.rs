//! Reads the place in a trace that a request brings (W3C Trace Context).
//!
//! Text that is not valid is ignored.

use http::HeaderMap;

/// What the only `traceparent` field of a request says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Traceparent {
    pub(super) trace: u128,
    pub(super) parent: u64,
    pub(super) is_sampled: bool,
}

impl Traceparent {
    /// Source: W3C Trace Context, section 3.2.2.
    pub(super) fn read(headers: &HeaderMap) -> Option<Self> {
        let mut fields = headers.get_all("traceparent").iter();
        let (Some(field), None) = (fields.next(), fields.next()) else {
            return None;
        };
        let mut parts = field.to_str().ok()?.split('-');
        let (version, trace, parent, flags) = (parts.next()?, parts.next()?, parts.next()?, parts.next()?);
        let further = parts.next().is_some();
        let valid = is_hex(version, 2)
            && version != "ff"
            && !(version == "00" && further)
            && is_hex(trace, 32)
            && is_hex(parent, 16)
            && is_hex(flags, 2);
        if !valid {
            return None;
        }
        let read = Self {
            trace: u128::from_str_radix(trace, 16).ok()?,
            parent: u64::from_str_radix(parent, 16).ok()?,
            is_sampled: u8::from_str_radix(flags, 16).ok()? & 1 == 1,
        };
        (read.trace != 0 && read.parent != 0).then_some(read)
    }
}

/// Returns the `trace-id` of the only `traceparent` field: 32 lower-case hexadecimal digits, not
/// all zero.
pub(super) fn trace_id(headers: &HeaderMap) -> Option<String> {
    Traceparent::read(headers).map(|read| format!("{:032x}", read.trace))
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}
