//! Encodes the guest's own text for requests, exactly as the host encodes secrets.

use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD;

/// application/x-www-form-urlencoded: a space becomes `+`, `A-Za-z0-9-_.~` stay.
pub fn form(text: &str) -> String {
    escape(text, "+")
}

/// RFC 3986: as [`form`], but a space becomes `%20`. Suitable for path segments.
pub fn percent(text: &str) -> String {
    escape(text, "%20")
}

fn escape(text: &str, space: &str) -> String {
    let mut out = String::with_capacity(text.len());
    for byte in text.bytes() {
        match byte {
            b'A'..=b'Z' | b'a'..=b'z' | b'0'..=b'9' | b'-' | b'_' | b'.' | b'~' => out.push(char::from(byte)),
            b' ' => out.push_str(space),
            other => out.push_str(&format!("%{other:02X}")),
        }
    }
    out
}

/// Decodes [`form`]. Invalid escapes stay as they are, and invalid UTF-8 is replaced.
pub fn unform(text: &str) -> String {
    let mut out = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        let escape = tail
            .split_first_chunk::<2>()
            .filter(|(hex, _)| *first == b'%' && hex.iter().all(u8::is_ascii_hexdigit));
        let byte = escape.and_then(|(hex, _)| u8::from_str_radix(core::str::from_utf8(hex).ok()?, 16).ok());
        match (byte, first) {
            (Some(byte), _) => {
                out.push(byte);
                rest = tail.get(2..).unwrap_or_default();
            }
            (None, b'+') => out.push(b' '),
            (None, other) => out.push(*other),
        }
    }
    String::from_utf8_lossy(&out).into_owned()
}

/// base64url (RFC 4648, section 5), without padding.
pub fn base64url(bytes: &[u8]) -> String {
    URL_SAFE_NO_PAD.encode(bytes)
}

/// Lower-case hex.
pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_is_written_as_the_host_writes_secrets() {
        assert_eq!(form("p@ss:w+r d/\u{e9}~"), "p%40ss%3Aw%2Br+d%2F%C3%A9~");
        assert_eq!(percent("a b/c"), "a%20b%2Fc");
        assert_eq!(unform("p%40ss%3Aw%2Br+d%2F%C3%A9~%zz%4"), "p@ss:w+r d/\u{e9}~%zz%4");
        assert_eq!(base64url(&[0xfb, 0xff]), "-_8");
        assert_eq!(hex(&[0, 0xab]), "00ab");
    }
}
