//! Builds the HTTP message of a plugin's request from a target, query, header values and body, with
//! the secrets filled in. Fields that the host owns and messages that are too large are refused.
//!
//! Security: no value appears in `Debug` or in an error.

use std::time::Duration;

use bytes::Bytes;
use http::header::{HOST, USER_AGENT};
use http::uri::PathAndQuery;
use http::{HeaderMap, HeaderName, HeaderValue, Method};
use http_body_util::Full;
use zeroize::Zeroizing;

use super::error::Error;
use super::target::Target;

const MAX_REQUEST_BODY_BYTES: usize = 64 * 1024;
const MAX_QUERY_BYTES: usize = 16 * 1024;
const MAX_HEADERS: usize = 64;
/// Bytes of all header names and values of a request.
const MAX_HEADER_BYTES: usize = 48 * 1024;
const DEFAULT_USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("tollgate/", env!("CARGO_PKG_VERSION")));

/// One request. Secrets in it are zeroized when it is sent or dropped; copies
/// that hyper and rustls write to the socket live as long as the connection.
#[derive(derive_more::Debug)]
#[debug("Request {{ method: {method:?}, target: {target:?}, headers: {:?}, body_bytes: {:?}, timeout: {timeout:?}, .. }}", self.headers.len(), self.body.len())]
pub(crate) struct Request {
    pub(crate) method: Method,
    pub(crate) target: Target,
    /// Encoded, without `?`; up to 16 KiB.
    pub(crate) query: Option<Zeroizing<String>>,
    /// In order; up to 64 and 48 KiB together. Names of fields the host owns are refused.
    pub(crate) headers: Vec<(String, Zeroizing<Vec<u8>>)>,
    /// Up to [`MAX_REQUEST_BODY_BYTES`].
    pub(crate) body: Zeroizing<Vec<u8>>,
    /// Time for everything from the rate limit to the last byte.
    pub(crate) timeout: Duration,
}

pub(super) struct CheckedRequest {
    pub(super) target: Target,
    /// In the form of HTTP/2.
    pub(super) message: http::Request<Full<Bytes>>,
}

impl Request {
    /// Checks everything that the allow-list does not cover.
    pub(super) fn check(self) -> Result<CheckedRequest, Error> {
        let observed = self.body.len();
        if observed > MAX_REQUEST_BODY_BYTES {
            return Err(invalid(format!(
                "the body has {observed} bytes, {MAX_REQUEST_BODY_BYTES} are allowed"
            )));
        }
        // It would have no meaning, and some servers refuse it (RFC 9110, section 9.3.1).
        if self.method == Method::GET && !self.body.is_empty() {
            return Err(invalid("a GET has no body"));
        }
        let path_and_query = path_and_query(self.target.path(), self.query.as_deref().map(String::as_str))?;
        let mut headers = header_map(self.headers)?;
        headers.entry(USER_AGENT).or_insert(DEFAULT_USER_AGENT);
        let mut message = http::Request::builder()
            .method(self.method)
            .uri(format!("https://{}{path_and_query}", self.target.authority()))
            .body(Full::new(Bytes::from_owner(self.body)))
            .map_err(|error| invalid(error.to_string()))?;
        *message.headers_mut() = headers;
        Ok(CheckedRequest {
            target: self.target,
            message,
        })
    }
}

impl CheckedRequest {
    /// The message in the form of HTTP/1.1, which names the host in a field.
    pub(super) fn into_http1(self) -> Result<http::Request<Full<Bytes>>, Error> {
        let Self { target, mut message } = self;
        let host = HeaderValue::try_from(target.authority()).map_err(|error| invalid(error.to_string()))?;
        message.headers_mut().insert(HOST, host);
        let path = message.uri().path_and_query().cloned();
        *message.uri_mut() = path.unwrap_or_else(|| PathAndQuery::from_static("/")).into();
        Ok(message)
    }
}

fn invalid(reason: impl Into<String>) -> Error {
    Error::InvalidRequest { reason: reason.into() }
}

fn path_and_query(path: &str, query: Option<&str>) -> Result<String, Error> {
    let Some(query) = query else { return Ok(path.to_owned()) };
    // A blank would end the target in the request line, and `#` the query in a URL.
    let plain = query.bytes().all(|byte| (0x21..=0x7e).contains(&byte) && byte != b'#');
    if query.len() > MAX_QUERY_BYTES || !plain {
        return Err(invalid(format!(
            "a query is encoded, without `#`, and has up to {MAX_QUERY_BYTES} bytes"
        )));
    }
    Ok(format!("{path}?{query}"))
}

fn header_map(fields: Vec<(String, Zeroizing<Vec<u8>>)>) -> Result<HeaderMap, Error> {
    let bytes = fields.iter().fold(0_usize, |sum, (name, value)| {
        sum.saturating_add(name.len()).saturating_add(value.len())
    });
    if fields.len() > MAX_HEADERS || bytes > MAX_HEADER_BYTES {
        return Err(invalid(format!(
            "{} header fields of {bytes} bytes; {MAX_HEADERS} of {MAX_HEADER_BYTES} are allowed",
            fields.len()
        )));
    }
    let mut headers = HeaderMap::with_capacity(fields.len());
    for (name, value) in fields {
        let name =
            HeaderName::from_bytes(name.as_bytes()).map_err(|_| invalid("a header name has characters no name has"))?;
        if is_owned_by_host(&name) {
            return Err(invalid(format!("the header `{name}` is the host's")));
        }
        // Not copied: the owner wipes the bytes when the last reference is dropped.
        let mut value = HeaderValue::from_maybe_shared(Bytes::from_owner(value))
            .map_err(|_| invalid(format!("the value of `{name}` has a control character")))?;
        // `Debug` does not show it, and HPACK does not keep it in a table.
        value.set_sensitive(true);
        headers.append(name, value);
    }
    Ok(headers)
}

/// Fields that decide where a message goes, how long it is, or who else sent it.
fn is_owned_by_host(name: &HeaderName) -> bool {
    const NAMES: [&str; 11] = [
        "host",
        "content-length",
        "transfer-encoding",
        "connection",
        "keep-alive",
        "te",
        "trailer",
        "upgrade",
        "expect",
        "cookie",
        "cookie2",
    ];
    NAMES.contains(&name.as_str()) || name.as_str().starts_with("proxy-")
}
