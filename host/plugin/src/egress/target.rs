//! Parses a guest's URL for the allow-list, and defines the [`Target`] that it allows.
//!
//! Security: everything that a URL parser would silently repair is refused before the parser sees
//! it, so that no two parsers can understand the same text differently.

use url::{Host, Url};

use super::entry::{AllowedHost, HTTPS_PORT};
use super::error::{Denied, DenyCode};

const MAX_URL_BYTES: usize = 8 * 1024;

/// Where a request may go. Made by [`super::EgressAllowList::allow`] alone.
#[derive(Clone, Debug)]
pub(crate) struct Target {
    pub(super) host: Host<String>,
    pub(super) port: u16,
    pub(super) path: String,
    pub(super) entry: AllowedHost,
}

impl Target {
    /// The host, as A-labels, or an address. The certificate must be valid for it.
    pub(crate) fn host(&self) -> &Host<String> {
        &self.host
    }

    pub(crate) fn port(&self) -> u16 {
        self.port
    }

    /// The path, percent-encoded; `/` at least.
    pub(crate) fn path(&self) -> &str {
        &self.path
    }

    /// The host, with a port other than 443.
    pub(crate) fn authority(&self) -> String {
        match self.port {
            HTTPS_PORT => self.host.to_string(),
            port => format!("{}:{port}", self.host),
        }
    }
}

pub(super) struct ParsedUrl {
    pub(super) host: Host<String>,
    pub(super) port: u16,
    pub(super) path: String,
}

/// The error is the first rule that the URL breaks. Source: RFC 3986 and the WHATWG URL standard,
/// whose parser drops tabs and line ends, takes `\` for `/` and decodes percent signs in hosts.
pub(super) fn parse_url(text: &str) -> Result<ParsedUrl, Denied> {
    let deny = |code, message: &str| Err(Denied::new(code, message));
    if text.len() > MAX_URL_BYTES {
        return deny(DenyCode::Malformed, "the URL is over 8192 bytes");
    }
    if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        return deny(DenyCode::Control, "the URL has white space or a control character");
    }
    if text.contains('\\') {
        return deny(DenyCode::Backslash, "the URL has a backslash");
    }
    let Some(rest) = after_scheme(text) else {
        return deny(DenyCode::Scheme, "the URL does not begin with `https://`");
    };
    if rest.contains('#') {
        return deny(DenyCode::Fragment, "the URL has a fragment");
    }
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    check_authority(authority)?;
    if rest.contains('?') {
        return deny(
            DenyCode::Query,
            "the URL has a query; it belongs in the request's own field",
        );
    }
    let path = rest.strip_prefix(authority).unwrap_or_default();
    if path.split('/').any(is_dot_segment) {
        return deny(DenyCode::DotSegment, "the path has a `.` or `..` segment");
    }
    parse(text, host_of(authority))
}

/// Parses the URL once. The result is what the client connects to.
fn parse(text: &str, written_host: &str) -> Result<ParsedUrl, Denied> {
    let malformed = || Denied::new(DenyCode::Malformed, "the URL cannot be read");
    let url = Url::parse(text).map_err(|_| malformed())?;
    let host = url.host().ok_or_else(malformed)?.to_owned();
    let port = url.port_or_known_default().ok_or_else(malformed)?;
    match &host {
        // Again, because the parser turns other full stops, such as `。`, into dots.
        Host::Domain(name) if name.ends_with('.') => {
            return Err(Denied::new(DenyCode::TrailingDot, "the host ends with a dot"));
        }
        // `127.1`, `0x7f.0.0.1` and full-width digits are addresses to some parsers.
        Host::Ipv4(address) if address.to_string() != written_host => {
            let message = "the host is an address in an unusual form";
            return Err(Denied::new(DenyCode::NonCanonicalIp, message));
        }
        Host::Domain(_) | Host::Ipv4(_) | Host::Ipv6(_) => {}
    }
    if port == 0 {
        return Err(Denied::new(DenyCode::Malformed, "the port is 0"));
    }
    Ok(ParsedUrl {
        host,
        port,
        path: url.path().to_owned(),
    })
}

/// The text after `https://`, in upper or lower case. A third slash means an empty host.
fn after_scheme(text: &str) -> Option<&str> {
    let (scheme, rest) = text.split_once("://")?;
    scheme.eq_ignore_ascii_case("https").then_some(rest)
}

/// The host of an authority without a user.
fn host_of(authority: &str) -> &str {
    match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => host,
        _ => authority,
    }
}

fn check_authority(authority: &str) -> Result<(), Denied> {
    let deny = |code, message: &str| Err(Denied::new(code, message));
    if authority.contains('@') {
        return deny(DenyCode::Userinfo, "the URL has a user or a password");
    }
    if authority.contains('%') {
        return deny(DenyCode::PercentHost, "the host has a percent sign");
    }
    let host = host_of(authority);
    if host.is_empty() {
        return deny(DenyCode::EmptyHost, "the URL has no host");
    }
    if host.ends_with('.') {
        return deny(DenyCode::TrailingDot, "the host ends with a dot");
    }
    Ok(())
}

/// `.` and `..`, also with `%2e`, which the WHATWG parser resolves as well.
fn is_dot_segment(segment: &str) -> bool {
    let plain = segment.to_ascii_lowercase().replace("%2e", ".");
    plain == "." || plain == ".."
}
