//! Reads the query parameters that are for the gateway itself, and removes them from a query.
//!
//! Invariant: every other byte of the query stays as it is.

use std::borrow::Cow;

use percent_encoding::percent_decode_str;

/// Why a parameter cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The parameter occurs this often.
    #[error("occurs {0} times, once is allowed")]
    Repeated(usize),
    /// A broken escape, or bytes that are not UTF-8 when decoded.
    #[error("cannot be decoded")]
    Encoding,
}

/// The form-decoded value of the parameter `name`. A parameter without `=` has an empty one.
///
/// # Errors
/// [`Error`], if it occurs twice or cannot be decoded.
pub fn sole(query: &str, name: &str) -> Result<Option<String>, Error> {
    let mut found = query.split('&').filter(|pair| is_named(pair, name));
    let Some(pair) = found.next() else {
        return Ok(None);
    };
    // Of two values some servers read the first, others the last.
    match found.count() {
        0 => {}
        more => return Err(Error::Repeated(more.saturating_add(1))),
    }
    let value = pair.split_once('=').map_or("", |(_, value)| value);
    decode(value).map(Some).ok_or(Error::Encoding)
}

/// Whether the query has one of the parameters `names`.
pub fn has_any(query: &str, names: &[&str]) -> bool {
    query.split('&').any(|pair| is_any(pair, names))
}

/// Removes the parameters `names` from a query. All other bytes stay as they are and in order;
/// `None` if nothing is left.
///
/// SECURITY: names are compared decoded, as a server behind the gateway would read them, so that no
/// escaped spelling is passed on.
pub fn strip<'a>(query: Option<&'a str>, names: &[&str]) -> Option<Cow<'a, str>> {
    let query = query?;
    if !has_any(query, names) {
        return Some(Cow::Borrowed(query));
    }
    let kept: Vec<&str> = query.split('&').filter(|pair| !is_any(pair, names)).collect();
    (!kept.is_empty()).then(|| Cow::Owned(kept.join("&")))
}

/// Decodes `application/x-www-form-urlencoded` once; `None` for a broken escape
/// or bytes that are not UTF-8.
pub fn decode(text: &str) -> Option<String> {
    let bytes = text.as_bytes();
    let broken = bytes.iter().enumerate().any(|(at, byte)| {
        let digit = |ahead: usize| bytes.get(at.saturating_add(ahead)).is_some_and(u8::is_ascii_hexdigit);
        *byte == b'%' && !(digit(1) && digit(2))
    });
    if broken {
        return None;
    }
    let spaced = text.replace('+', " ");
    let decoded = percent_decode_str(&spaced).decode_utf8().ok()?;
    Some(decoded.into_owned())
}

fn is_any(pair: &str, names: &[&str]) -> bool {
    names.iter().any(|name| is_named(pair, name))
}

fn is_named(pair: &str, name: &str) -> bool {
    let spelled = pair.split_once('=').map_or(pair, |(name, _)| name);
    // The usual spelling needs no decoding.
    spelled == name || (spelled.contains('%') && decode(spelled).is_some_and(|decoded| decoded == name))
}

#[cfg(test)]
mod tests {
    use super::{Error, sole, strip};

    #[test]
    fn a_parameter_is_read_once_and_decoded_once() {
        for (query, expected) in [
            ("", Ok(None)),
            ("b=1", Ok(None)),
            ("a", Ok(Some(""))),
            ("a=", Ok(Some(""))),
            ("x=1&a=b%3Ac+d&y=2", Ok(Some("b:c d"))),
            ("%61=%2561", Ok(Some("%61"))),
            ("aa=1&A=2", Ok(None)),
            ("a=1&a=1", Err(Error::Repeated(2))),
            ("a=1&%61=2&a", Err(Error::Repeated(3))),
            ("a=%", Err(Error::Encoding)),
            ("a=%ff", Err(Error::Encoding)),
        ] {
            let found = sole(query, "a");
            assert_eq!(found, expected.map(|value| value.map(str::to_owned)), "{query}");
        }
    }

    #[test]
    fn only_the_named_parameters_are_removed() {
        for (query, expected) in [
            ("", Some("")),
            ("d=2&&c=%zz", Some("d=2&&c=%zz")),
            ("a=1", None),
            ("a=1&b", None),
            ("x=%31&a=1&y=a&%62=2&", Some("x=%31&y=a&")),
            ("A=1&ab=2&a%=3", Some("A=1&ab=2&a%=3")),
        ] {
            assert_eq!(strip(Some(query), &["a", "b"]).as_deref(), expected, "{query}");
        }
        assert_eq!(strip(None, &["a"]), None);
    }
}
