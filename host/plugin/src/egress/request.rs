//! Builds the HTTP message of a plugin's request from a target, query, header values and body, with
//! the secrets filled in. Fields that the host owns and messages that are too large are refused.
//!
//! Security: no value appears in `Debug` or in an error.

use std::fmt;
use std::time::Duration;

use bytes::Bytes;
use http::header::USER_AGENT;
use http::{HeaderMap, HeaderName, HeaderValue};
use http_body_util::Full;
use zeroize::Zeroizing;

use super::error::Error;
use super::target::Target;

/// Bytes of a request's body.
pub const MAX_REQUEST_BODY_BYTES: usize = 64 * 1024;
/// Bytes of a query.
const MAX_QUERY_BYTES: usize = 16 * 1024;
/// Header fields of a request.
const MAX_HEADERS: usize = 64;
/// Bytes of all header names and values of a request.
const MAX_HEADER_BYTES: usize = 48 * 1024;
/// The `User-Agent` if the plugin sets none.
const DEFAULT_USER_AGENT: HeaderValue = HeaderValue::from_static(concat!("tollgate/", env!("CARGO_PKG_VERSION")));

/// The methods token endpoints have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Method {
    /// GET.
    Get,
    /// POST.
    Post,
    /// PUT.
    Put,
}

impl Method {
    /// The word on the wire.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Get => "GET",
            Self::Post => "POST",
            Self::Put => "PUT",
        }
    }
}

/// One request. Secrets in it are zeroized when it is sent or dropped; copies
/// that hyper and rustls write to the socket live as long as the connection.
pub struct Request {
    /// Method.
    pub method: Method,
    /// Host, port and path.
    pub target: Target,
    /// The encoded query without `?`; up to 16 KiB; none when absent.
    pub query: Option<Zeroizing<String>>,
    /// Header fields in order; up to 64 and 48 KiB together. Names of fields
    /// the host owns are refused.
    pub headers: Vec<(String, Zeroizing<Vec<u8>>)>,
    /// Body, up to [`MAX_REQUEST_BODY_BYTES`].
    pub body: Zeroizing<Vec<u8>>,
    /// Time for everything from the rate limit to the last byte.
    pub timeout: Duration,
}

impl fmt::Debug for Request {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Request")
            .field("method", &self.method)
            .field("target", &self.target)
            .field("headers", &self.headers.len())
            .field("body_bytes", &self.body.len())
            .field("timeout", &self.timeout)
            .finish_non_exhaustive()
    }
}

/// A checked request and its target.
pub(super) struct CheckedRequest {
    pub(super) target: Target,
    method: http::Method,
    path_and_query: String,
    headers: HeaderMap,
    body: Bytes,
}

impl Request {
    /// Checks everything that the allow-list does not cover.
    ///
    /// # Errors
    /// [`Error::InvalidRequest`], naming the part.
    pub(super) fn check(self) -> Result<CheckedRequest, Error> {
        let invalid = |reason: String| Err(Error::InvalidRequest { reason });
        if self.body.len() > MAX_REQUEST_BODY_BYTES {
            return invalid(format!(
                "the body has {} bytes, {MAX_REQUEST_BODY_BYTES} are allowed",
                self.body.len()
            ));
        }
        if self.method == Method::Get && !self.body.is_empty() {
            return invalid("a GET has no body".to_owned());
        }
        let path_and_query = path_and_query(self.target.path(), self.query.as_deref().map(String::as_str))?;
        Ok(CheckedRequest {
            method: match self.method {
                Method::Get => http::Method::GET,
                Method::Post => http::Method::POST,
                Method::Put => http::Method::PUT,
            },
            path_and_query,
            headers: header_map(self.headers)?,
            body: Bytes::from_owner(self.body),
            target: self.target,
        })
    }
}

impl CheckedRequest {
    /// Converts it to the form of the negotiated HTTP version.
    pub(super) fn into_http(self, version: http::Version) -> Result<http::Request<Full<Bytes>>, Error> {
        let invalid = |error: &dyn fmt::Display| Error::InvalidRequest {
            reason: error.to_string(),
        };
        let authority = self.target.authority();
        let mut headers = self.headers;
        headers.entry(USER_AGENT).or_insert(DEFAULT_USER_AGENT);
        let uri = match version {
            http::Version::HTTP_2 => format!("https://{authority}{}", self.path_and_query),
            _ => {
                let host = HeaderValue::from_str(&authority).map_err(|error| invalid(&error))?;
                headers.insert(http::header::HOST, host);
                self.path_and_query
            }
        };
        let mut message = http::Request::builder()
            .method(self.method)
            .uri(uri)
            .body(Full::new(self.body))
            .map_err(|error| invalid(&error))?;
        *message.headers_mut() = headers;
        Ok(message)
    }
}

fn path_and_query(path: &str, query: Option<&str>) -> Result<String, Error> {
    let Some(query) = query else { return Ok(path.to_owned()) };
    let plain = query.bytes().all(|byte| (0x21..=0x7e).contains(&byte) && byte != b'#');
    if query.len() > MAX_QUERY_BYTES || !plain {
        return Err(Error::InvalidRequest {
            reason: format!("a query is encoded, without `#`, and has up to {MAX_QUERY_BYTES} bytes"),
        });
    }
    Ok(format!("{path}?{query}"))
}

fn header_map(fields: Vec<(String, Zeroizing<Vec<u8>>)>) -> Result<HeaderMap, Error> {
    let invalid = |reason: String| Error::InvalidRequest { reason };
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
        let name = HeaderName::from_bytes(name.as_bytes())
            .map_err(|_| invalid("a header name has characters no name has".to_owned()))?;
        if is_owned_by_host(&name) {
            return Err(invalid(format!("the header `{name}` is the host's")));
        }
        let mut value = HeaderValue::from_maybe_shared(Bytes::from_owner(value))
            .map_err(|_| invalid(format!("the value of `{name}` has a control character")))?;
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
