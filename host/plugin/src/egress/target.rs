//! Parses a guest's URL for the allow-list, and defines the [`Target`] that it allows.
//!
//! Security: everything that a URL parser would silently repair is refused before the parser sees
//! it, so that no two parsers can understand the same text differently.

use std::net::IpAddr;

use url::{Host, Url};

use super::entry::{AllowedHost, HostPortPattern};
use super::error::{Denied, DenyCode};

/// Bytes of a URL.
const MAX_URL_BYTES: usize = 8 * 1024;

/// Where a request may go. Made by [`super::EgressAllowList::allow`] alone.
#[derive(Clone, Debug)]
pub struct Target {
    pub(super) host: Host<String>,
    pub(super) port: u16,
    pub(super) path: String,
    pub(super) entry: AllowedHost,
}

impl Target {
    /// The host, as A-labels, or an address. The certificate must be valid for it.
    pub fn host(&self) -> &Host<String> {
        &self.host
    }

    /// The port.
    pub fn port(&self) -> u16 {
        self.port
    }

    /// The path, percent-encoded; `/` at least.
    pub fn path(&self) -> &str {
        &self.path
    }

    /// The entry that allowed it.
    pub fn entry(&self) -> &AllowedHost {
        &self.entry
    }

    /// Whether a manifest's pattern matches this target too.
    pub fn matches(&self, pattern: &HostPortPattern) -> bool {
        pattern.matches(&self.host, self.port)
    }

    /// The value of `Host`, without the port if it is 443.
    pub(super) fn authority(&self) -> String {
        match self.port {
            super::entry::HTTPS_PORT => self.host.to_string(),
            port => format!("{}:{port}", self.host),
        }
    }

    /// The host when it is an address.
    pub(super) fn address(&self) -> Option<IpAddr> {
        match &self.host {
            Host::Domain(_) => None,
            Host::Ipv4(address) => Some((*address).into()),
            Host::Ipv6(address) => Some((*address).into()),
        }
    }
}

/// A URL that is well formed, not yet allowed.
pub(super) struct ParsedUrl {
    pub(super) host: Host<String>,
    pub(super) port: u16,
    pub(super) path: String,
}

/// Parses and checks a URL.
///
/// # Errors
/// The first rule it breaks. Source: RFC 3986 and the WHATWG URL standard,
/// whose parser drops tabs and line ends, takes `\` for `/` and decodes
/// percent signs in hosts.
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
    parse(text, authority)
}

/// Parses the URL once. The result is what the client connects to.
fn parse(text: &str, authority: &str) -> Result<ParsedUrl, Denied> {
    let malformed = || Denied::new(DenyCode::Malformed, "the URL cannot be read");
    let url = Url::parse(text).map_err(|_| malformed())?;
    let host = url.host().ok_or_else(malformed)?.to_owned();
    let port = url.port_or_known_default().ok_or_else(malformed)?;
    let written = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => host,
        _ => authority,
    };
    match &host {
        Host::Domain(name) if name.ends_with('.') => {
            return Err(Denied::new(DenyCode::TrailingDot, "the host ends with a dot"));
        }
        // `127.1`, `0x7f.0.0.1` and full-width digits are addresses to some parsers.
        Host::Ipv4(address) if address.to_string() != written => {
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

fn check_authority(authority: &str) -> Result<(), Denied> {
    let deny = |code, message: &str| Err(Denied::new(code, message));
    if authority.contains('@') {
        return deny(DenyCode::Userinfo, "the URL has a user or a password");
    }
    if authority.contains('%') {
        return deny(DenyCode::PercentHost, "the host has a percent sign");
    }
    let host = match authority.rsplit_once(':') {
        Some((host, port)) if !port.contains(']') => host,
        _ => authority,
    };
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
