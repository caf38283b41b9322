//! Header fields a configuration may set.
//!
//! In: names and values as written. Out: yes, or why not. Never: a field that
//! decides where a request goes or how long it is.

use std::collections::BTreeMap;

use tollgate_provider::Error;

/// The media type of forms.
pub(crate) const FORM: &str = "application/x-www-form-urlencoded";

/// Fields the gateway writes itself, besides `proxy-*`.
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

/// Refuses what is no field name (RFC 9110, section 5.1) and the gateway's own.
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

/// Whether `written` is the media type `wanted`, whatever its parameters.
fn is(written: &str, wanted: &str) -> bool {
    let bare = written.split(';').next().unwrap_or_default();
    bare.trim().eq_ignore_ascii_case(wanted)
}

/// Whether the headers say that the body is a form.
pub(crate) fn is_form(headers: &BTreeMap<String, String>) -> bool {
    content_type(headers).is_some_and(|written| is(written, FORM))
}

/// Whether the headers leave `Content-Type` to the body.
pub(crate) fn has_content_type<T>(headers: &[(String, T)]) -> bool {
    headers
        .iter()
        .any(|(name, _)| name.eq_ignore_ascii_case("content-type"))
}

/// Refuses a `Content-Type` that contradicts the body.
pub(crate) fn agree(headers: &BTreeMap<String, String>, media_type: Option<&'static str>) -> Result<(), Error> {
    let (Some(written), Some(wanted)) = (content_type(headers), media_type) else {
        return Ok(());
    };
    if is(written, wanted) {
        return Ok(());
    }
    let message = format!("`headers`: Content-Type is `{written}`, and this body is `{wanted}`; leave the header out");
    Err(Error::config("webapi.header", message))
}
