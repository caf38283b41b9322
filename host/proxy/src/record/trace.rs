//! Finds the id of the trace a request belongs to, from its header fields.
//!
//! Text that is not a valid trace id is ignored.

use http::HeaderMap;

/// Returns the `trace-id` of the only `traceparent` field: 32 lower-case hexadecimal digits, not
/// all zero.
///
/// Source: W3C Trace Context, section 3.2.2.
pub fn trace_id(headers: &HeaderMap) -> Option<String> {
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
        && !is_zero(trace)
        && is_hex(parent, 16)
        && !is_zero(parent)
        && is_hex(flags, 2);
    valid.then(|| trace.to_owned())
}

fn is_hex(text: &str, digits: usize) -> bool {
    text.len() == digits && text.bytes().all(|byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f'))
}

fn is_zero(text: &str) -> bool {
    text.bytes().all(|byte| byte == b'0')
}
