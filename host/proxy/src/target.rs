//! Checks of request targets: the authority, and the raw path. Anything that two readers could
//! read differently is refused.
//!
//! Security: a path is never decoded and encoded again. An upstream gets, byte for byte, what was
//! checked.

use std::net::Ipv6Addr;

use http::header::{CONTENT_LENGTH, HOST, TRANSFER_ENCODING};
use http::uri::{Authority, PathAndQuery};
use http::{HeaderMap, Method, Uri};
use rustls::pki_types::ServerName;

use tollgate_core::attributes::Attributes;

/// Longest target of a `CONNECT`.
const CONNECT_TARGET_BYTES: usize = 255;

/// Why a request's target is refused. Each is the client's mistake (400).
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// `CONNECT` where no tunnel may be opened, or in another version than HTTP/1.1.
    #[error("method `CONNECT` is not served")]
    Connect,
    /// The target of a `CONNECT` is not `host:port`.
    #[error("target of `CONNECT` is not a DNS name or IP address and a port from 1 to 65535, of at most 255 bytes")]
    ConnectTarget,
    /// A `CONNECT` with `Transfer-Encoding`, or a `Content-Length` other than `0`.
    #[error("`CONNECT` has content, which is not allowed")]
    ConnectContent,
    /// Neither a path nor an absolute URI with a path, such as `*`.
    #[error("request target is not a path")]
    Target,
    /// An absolute URI whose scheme is not `http` or `https`.
    #[error("request target has a scheme other than `http` and `https`")]
    Scheme,
    /// Neither `Host` nor `:authority`.
    #[error("`Host` is missing")]
    HostMissing,
    /// More than one `Host`, or one that differs from the target's authority.
    #[error("`Host` is given more than once or differs from the request target")]
    HostAmbiguous,
    /// Not `host[:port]`.
    #[error("`Host` is not a host and an optional port")]
    HostInvalid,
    /// `%` without two hexadecimal digits.
    #[error("path has an incomplete percent encoding")]
    Encoding,
    /// An encoded percent sign that would decode to another encoding.
    #[error("path is percent-encoded twice")]
    DoubleEncoding,
    /// `.` or `..` as a segment, also before `;` or a blank.
    #[error("path has a dot segment")]
    DotSegment,
    /// `%2e`: dots never need encoding.
    #[error("path has an encoded dot")]
    EncodedDot,
    /// An encoded letter, digit, `-`, `_` or `~`.
    #[error("path encodes characters that need no encoding")]
    NeedlessEncoding,
    /// A backslash, plain or encoded.
    #[error("path has a backslash")]
    Backslash,
    /// A control character or blank, plain or encoded control.
    #[error("path has a control character")]
    Control,
    /// Bytes above ASCII that are not encoded, or that decode to invalid UTF-8.
    #[error("path is not UTF-8, percent-encoded")]
    NotUtf8,
    /// Two slashes in a row.
    #[error("path has an empty segment")]
    EmptySegment,
    /// A colon at the end, which argocd-server takes off.
    #[error("path ends with a colon")]
    TrailingColon,
    /// The name of an extension has other characters than `A-Za-z0-9_-`.
    #[error("extension name is empty, too long or has characters outside `A-Za-z0-9_-`")]
    ExtensionName,
    /// The name of a cluster, decoded, is empty, too long or a dot segment.
    #[error("cluster name is empty or too long")]
    ClusterName,
    /// Namespace or name of an Application is none Kubernetes can have.
    #[error("namespace or name of the application is not one Kubernetes can have")]
    ApplicationName,
    /// Base path and rest do not make a path.
    #[error("path is too long")]
    TooLong,
}

/// Checks the form of a request's target and returns the one authority that the client named.
///
/// A client may send `Host`, an absolute URI or `:authority`, and several when
/// all are equal. Anything a server behind the gateway could read differently
/// is refused.
///
/// # Errors
/// [`Error`], by the first rule broken. Source: RFC 9112, section 3.2; RFC
/// 9113, section 8.3.1.
pub fn authority<'a>(method: &Method, uri: &'a Uri, headers: &'a HeaderMap) -> Result<&'a str, Error> {
    if method == Method::CONNECT {
        return Err(Error::Connect);
    }
    if !uri.path().starts_with('/') {
        return Err(Error::Target);
    }
    if uri
        .scheme_str()
        .is_some_and(|scheme| scheme != "http" && scheme != "https")
    {
        return Err(Error::Scheme);
    }
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts
        .next()
        .map(|value| value.to_str().map_err(|_| Error::HostInvalid))
        .transpose()?;
    if hosts.next().is_some() {
        return Err(Error::HostAmbiguous);
    }
    let named = match (host, uri.authority()) {
        (Some(host), Some(authority)) if host.eq_ignore_ascii_case(authority.as_str()) => host,
        // RFC 9112, section 3.2.2, lets the target win. A reader that takes `Host` would see another one.
        (Some(_), Some(_)) => return Err(Error::HostAmbiguous),
        (Some(host), None) => host,
        (None, Some(authority)) => authority.as_str(),
        (None, None) => return Err(Error::HostMissing),
    };
    check_authority(named)?;
    Ok(named)
}

/// Checks the head of a `CONNECT` and returns its target, with the host in lower case.
///
/// The target is a DNS name, an IPv4 address or an IPv6 address in brackets, and a port from 1 to
/// 65535 without leading zeros, in at most 255 bytes. `Host` is required once, and is the target
/// with or without its port: the RFC's own example omits the port. Content is refused, because one
/// reader could take it for the first bytes of the tunnel.
///
/// # Errors
/// [`Error::ConnectTarget`], [`Error::HostMissing`], [`Error::HostAmbiguous`] and
/// [`Error::ConnectContent`]. Source: RFC 9110, section 9.3.6; RFC 9112, section 3.2.3.
pub(crate) fn connect_authority(uri: &Uri, headers: &HeaderMap) -> Result<Authority, Error> {
    let is_authority_form = uri.scheme().is_none() && uri.path_and_query().is_none();
    let target = uri
        .authority()
        .filter(|target| is_authority_form && is_connect_target(target))
        .ok_or(Error::ConnectTarget)?;
    let mut hosts = headers.get_all(HOST).iter();
    let host = hosts.next().ok_or(Error::HostMissing)?.as_bytes();
    let is_same = |text: &str| host.eq_ignore_ascii_case(text.as_bytes());
    if hosts.next().is_some() || !(is_same(target.as_str()) || is_same(target.host())) {
        return Err(Error::HostAmbiguous);
    }
    let is_empty = headers.get_all(CONTENT_LENGTH).iter().all(|length| length == "0");
    // Both fields, because one reader frames content by the first, and another by the second.
    if !is_empty || headers.contains_key(TRANSFER_ENCODING) {
        return Err(Error::ConnectContent);
    }
    let target = Authority::try_from(target.as_str().to_ascii_lowercase());
    target.map_err(|_| Error::ConnectTarget)
}

fn is_connect_target(target: &Authority) -> bool {
    let host = target.host();
    let Some(port) = target.port_u16().filter(|port| *port > 0) else {
        return false;
    };
    // Nothing else is in the target, such as a user or zeros before the port.
    if target.as_str().len() > CONNECT_TARGET_BYTES || format!("{host}:{port}") != target.as_str() {
        return false;
    }
    match host.strip_prefix('[') {
        Some(v6) => v6.strip_suffix(']').is_some_and(|v6| v6.parse::<Ipv6Addr>().is_ok()),
        None => !host.contains(':') && ServerName::try_from(host).is_ok(),
    }
}

/// Checks that `text` is a host and an optional port.
pub(crate) fn check_authority(text: &str) -> Result<(), Error> {
    let mut colon = None;
    let mut bracket = false;
    for (at, byte) in text.bytes().enumerate() {
        match byte {
            b':' => colon = colon.or(Some(at)),
            b'[' | b']' => bracket = true,
            b'.' | b'-' | b'_' => {}
            _ if byte.is_ascii_alphanumeric() => {}
            _ => return Err(Error::HostInvalid),
        }
    }
    if !bracket {
        // Most are a plain name or IPv4 address.
        let (host, port) = text.split_at_checked(colon.unwrap_or(text.len())).unwrap_or_default();
        let valid = !host.is_empty() && (port.is_empty() || port.get(1..).is_some_and(is_port));
        return if valid { Ok(()) } else { Err(Error::HostInvalid) };
    }
    let parsed: Authority = text.parse().map_err(|_| Error::HostInvalid)?;
    let tail = text.strip_prefix(parsed.host()).ok_or(Error::HostInvalid)?;
    match (parsed.host().is_empty(), tail.strip_prefix(':')) {
        (true, _) => Err(Error::HostInvalid),
        (false, None) if tail.is_empty() => Ok(()),
        (false, Some(port)) if is_port(port) => Ok(()),
        (false, _) => Err(Error::HostInvalid),
    }
}

fn is_port(text: &str) -> bool {
    text.parse::<u16>().is_ok()
}

/// Whose reading of encoded slashes and percent signs counts.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reader {
    /// Encoded slashes are separators: no segment between them is empty.
    Gateway,
    /// As [`Self::Gateway`], except that an encoded slash may be a whole segment, as the names of
    /// some backends are.
    Backend,
    /// Encoded slashes are text: a segment may be a whole URL, such as `https:%2F%2Fa.example`,
    /// also encoded once more.
    Argocd,
}

/// Checks a raw path for everything that two readers could read differently.
///
/// Kept: single encoded slashes (`%2F`), `;`, trailing slashes. Refused: dot
/// segments (also next to an encoded slash, and `..;x`), any `%2e`, backslashes,
/// control characters, empty segments, `%25` before two hexadecimal digits,
/// incomplete encodings, bytes that are not UTF-8 when decoded.
///
/// # Errors
/// [`Error`], for the first byte that breaks a rule.
pub fn check_path(path: &str) -> Result<(), Error> {
    check(path, Reader::Gateway)
}

/// As [`check_path`], for the path of a backend, where an encoded slash may be a whole segment
/// after the first one: the default virtual host of a message broker is named `/`.
///
/// # Errors
/// [`Error`], for the first byte that breaks a rule.
pub fn check_backend_path(path: &str) -> Result<(), Error> {
    check(path, Reader::Backend)
}

/// As [`check_path`], for the path of an API server. What follows the subresource `proxy` is the
/// path of a backend, and is judged by [`check_backend_path`].
///
/// # Errors
/// [`Error`], for the first byte that breaks a rule.
pub fn check_cluster_path(path: &str) -> Result<(), Error> {
    // SECURITY: before `proxy`, an API server's router and its authorizer need not agree on what
    // an empty segment stands for.
    let mut slashes = path.match_indices("/%2").map(|(at, _)| path.split_at(at));
    let first = slashes.find(|(_, rest)| whole_encoded_slash(rest.as_bytes().get(1..).unwrap_or_default()).is_some());
    let reader = match first {
        Some((head, _)) if is_proxied(head) => Reader::Backend,
        Some(_) | None => Reader::Gateway,
    };
    check(path, reader)
}

/// Whether a path is one below the subresource `proxy`.
fn is_proxied(path: &str) -> bool {
    let is_subresource = Attributes::read(&Method::GET, path, None, None).subresource.as_deref() == Some("proxy");
    is_subresource && !path.ends_with("/proxy")
}

/// As [`check_path`], for a path of argocd-server, whose segments may be URLs: encoded slashes may
/// be next to each other, and a percent sign may be encoded. argocd-server decodes a path once to
/// find the handler; some handlers decode a name again. In turn, nothing may be encoded that
/// needs no encoding, so that a decoded path is under the same prefixes as the raw one.
///
/// # Errors
/// [`Error`], for the first byte that breaks a rule.
pub fn check_argocd_path(path: &str) -> Result<(), Error> {
    check(path, Reader::Argocd)
}

fn check(path: &str, reader: Reader) -> Result<(), Error> {
    let mut bytes = path.as_bytes();
    if bytes.first() != Some(&b'/') {
        return Err(Error::Target);
    }
    let mut segment = Segment::default();
    let mut first = true;
    let mut encoded_high = false;
    // Whether the slash before the current segment is encoded.
    let mut encoded_slash = false;
    while let Some((&byte, rest)) = bytes.split_first() {
        bytes = rest;
        if let Some(rest) = whole_encoded_slash(bytes).filter(|_| reader == Reader::Backend && byte == b'/' && !first) {
            segment.end()?;
            bytes = rest;
            segment = Segment::default();
            segment.push(b'%');
            continue;
        }
        let decoded = match byte {
            b'%' => {
                let (value, rest) = parse_hex_pair(bytes)?;
                bytes = rest;
                encoded_high |= value >= 0x80;
                check_encoded(value)?;
                if reader == Reader::Argocd && is_unreserved(value) {
                    return Err(Error::NeedlessEncoding);
                }
                match value {
                    b'%' => encoded_percent(&mut bytes, reader)?,
                    value => value,
                }
            }
            // Readers that follow the URL Standard take it for a slash.
            b'\\' => return Err(Error::Backslash),
            0..=0x20 | 0x7f => return Err(Error::Control),
            0x80.. => return Err(Error::NotUtf8),
            plain => plain,
        };
        if decoded == b'/' {
            let is_encoded = byte == b'%';
            // Of text, only what is between two raw slashes must not be empty.
            let may_be_empty = reader == Reader::Argocd && (is_encoded || encoded_slash);
            let is_checked = !first && (segment.length > 0 || !may_be_empty);
            (first, encoded_slash) = (false, is_encoded);
            if is_checked {
                segment.end()?;
            }
            segment = Segment::default();
        } else {
            segment.push(decoded);
        }
    }
    if segment.length > 0 {
        segment.end()?;
    }
    // Only encoded bytes can break UTF-8 here, so most paths need no decoding.
    let utf8 = !encoded_high || percent_encoding::percent_decode_str(path).decode_utf8().is_ok();
    if utf8 { Ok(()) } else { Err(Error::NotUtf8) }
}

/// What follows an encoded slash that is a whole segment.
fn whole_encoded_slash(bytes: &[u8]) -> Option<&[u8]> {
    let rest = bytes.strip_prefix(b"%2F").or_else(|| bytes.strip_prefix(b"%2f"))?;
    (rest.is_empty() || rest.starts_with(b"/")).then_some(rest)
}

/// The value of an encoded percent sign and what follows it.
// SECURITY: argocd-server decodes once to find the handler. What further readers would make of the
// rest is judged as if it stood there: it is no dot, and no separator of a dot segment.
fn encoded_percent(bytes: &mut &[u8], reader: Reader) -> Result<u8, Error> {
    let mut value = b'%';
    while value == b'%'
        && let Ok((next, rest)) = parse_hex_pair(bytes)
    {
        if reader != Reader::Argocd || check_encoded(next).is_err() {
            return Err(Error::DoubleEncoding);
        }
        (value, *bytes) = (next, rest);
    }
    Ok(value)
}

/// The value of two hexadecimal digits and what follows them.
pub fn parse_hex_pair(bytes: &[u8]) -> Result<(u8, &[u8]), Error> {
    let Some(([high, low], rest)) = bytes.split_first_chunk::<2>() else {
        return Err(Error::Encoding);
    };
    match (char::from(*high).to_digit(16), char::from(*low).to_digit(16)) {
        (Some(high), Some(low)) => Ok((u8::try_from(high * 16 + low).map_err(|_| Error::Encoding)?, rest)),
        _ => Err(Error::Encoding),
    }
}

/// Refuses encoded bytes that need no encoding or mean something once decoded.
fn check_encoded(value: u8) -> Result<(), Error> {
    match value {
        b'.' => Err(Error::EncodedDot),
        b'\\' => Err(Error::Backslash),
        0..0x20 | 0x7f => Err(Error::Control),
        _ => Ok(()),
    }
}

/// Source: RFC 3986, section 2.3. An encoded dot is refused everywhere.
fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'_' | b'~')
}

#[derive(Clone, Copy, Default)]
struct Segment {
    length: usize,
    /// Dots before anything else.
    dots: usize,
    /// Something else than dots came before a `;` or blank.
    named: bool,
    /// A `;` or blank came; what follows is a parameter to some servers.
    parameter: bool,
}

impl Segment {
    fn push(&mut self, byte: u8) {
        self.length += 1;
        match byte {
            b';' | b' ' => self.parameter = true,
            _ if self.parameter => {}
            b'.' => self.dots += 1,
            _ => self.named = true,
        }
    }

    fn end(self) -> Result<(), Error> {
        match self {
            Self { length: 0, .. } => Err(Error::EmptySegment),
            Self {
                named: false,
                dots: 1 | 2,
                ..
            } => Err(Error::DotSegment),
            _ => Ok(()),
        }
    }
}

/// Appends a client's rest and query to the path of a service's URL.
///
/// The result is the base without trailing slash, then the unchanged rest. An empty rest gives the
/// base as configured, and at least `/`.
///
/// - `base`: the URL's path, `/` or more.
/// - `rest`: empty or from `/` on, checked by [`check_path`].
///
/// # Errors
/// [`Error::TooLong`] when the result is no valid path, in practice above 64 KiB.
pub fn join(base: &str, rest: &str, query: Option<&str>) -> Result<PathAndQuery, Error> {
    let base = if rest.is_empty() {
        base
    } else {
        base.strip_suffix('/').unwrap_or(base)
    };
    let mut path = String::with_capacity(base.len() + rest.len() + query.map_or(0, str::len) + 2);
    path.push_str(base);
    path.push_str(rest);
    if path.is_empty() {
        path.push('/');
    }
    if let Some(query) = query {
        path.push('?');
        path.push_str(query);
    }
    PathAndQuery::from_maybe_shared(bytes::Bytes::from(path)).map_err(|_| Error::TooLong)
}

#[cfg(test)]
mod tests;
