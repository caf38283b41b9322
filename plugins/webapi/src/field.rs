//! Checks the header fields that a configuration sets.
//!
//! Security: a configuration cannot set fields that decide where a request goes or how long it is.

use std::collections::BTreeMap;

use tollgate_provider::Error;

/// The media type of forms.
pub(crate) const FORM: &str = "application/x-www-form-urlencoded";

/// Fields that only the gateway may write, in addition to `proxy-*`.
const OWNED: [&str; 11] = [
    "connection",
    "content-length",
    "cookie",
    "cookie2",
    "expect",
    "host",
    "keep-alive",
    "te",
    "trailer",
    "transfer-encoding",
    "upgrade",
];

/// Refuses invalid field names (RFC 9110, section 5.1) and the gateway's own fields.
pub(crate) fn check_name(name: &str) -> Result<(), Error> {
    let token = |byte: u8| byte.is_ascii_alphanumeric() || b"!#$%&'*+-.^_`|~".contains(&byte);
    let fail = |message| Err(Error::config("webapi.header", message));
    if name.is_empty() || name.len() > 256 || !name.bytes().all(token) {
        return fail(format!("`headers`: `{name}` is no name of a header"));
    }
    let lower = name.to_ascii_lowercase();
    if OWNED.contains(&lower.as_str()) || lower.starts_with("proxy-") {
        return fail(format!(
            "`headers`: `{name}` is written by the gateway and cannot be set"
        ));
    }
    Ok(())
}

fn content_type(headers: &BTreeMap<String, String>) -> Option<&str> {
    let mut found = headers
        .iter()
        .filter(|(name, _)| name.eq_ignore_ascii_case("content-type"));
    found.next().map(|(_, value)| value.as_str())
}

/// Whether `written` is the media type `expected`, with any parameters.
fn is_media_type(written: &str, expected: &str) -> bool {
    let without_parameters = written.split(';').next().unwrap_or_default();
    without_parameters.trim().eq_ignore_ascii_case(expected)
}

/// Whether the headers say that the body is a form.
pub(crate) fn is_form(headers: &BTreeMap<String, String>) -> bool {
    content_type(headers).is_some_and(|written| is_media_type(written, FORM))
}

/// Whether the headers set `Content-Type`.
pub(crate) fn has_content_type<T>(headers: &[(String, T)]) -> bool {
    headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("content-type"))
}

/// Refuses a `Content-Type` that contradicts the body's media type.
pub(crate) fn check_content_type(
    headers: &BTreeMap<String, String>,
    media_type: Option<&'static str>,
) -> Result<(), Error> {
    let (Some(written), Some(expected)) = (content_type(headers), media_type) else {
        return Ok(());
    };
    if is_media_type(written, expected) {
        return Ok(());
    }
    let message =
        format!("`headers`: Content-Type is `{written}`, and this body is `{expected}`; leave the header out");
    Err(Error::config("webapi.header", message))
}
