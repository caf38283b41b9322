//! One entry of an allow-list: `host`, `host:port`, or an object with `host`, `port`, `private`,
//! `loopback` and `ca`. Entries that are wider than their author may think are refused.
//!
//! Security: an entry with its own authorities trusts no others.

use std::fmt;
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;

use url::Host;

use super::address::{self, AddressScope, address_of};
use super::error::DenyCode;
use super::tls;
use tollgate_config::EgressEntry;
use tollgate_runtime::followed::AuthorityFile;

pub(super) const HTTPS_PORT: u16 = 443;
/// Bytes of a host, RFC 1035 section 2.3.4.
const MAX_HOST_BYTES: usize = 253;

/// Why an entry cannot be used. The first field is the entry.
#[derive(Debug, thiserror::Error)]
pub(crate) enum EntryError {
    #[error("`*` alone is not an entry; name a host, or `*.` and a suffix")]
    BareWildcard,
    #[error("`{0}`: `*` stands for exactly one label and only at the start, as in `*.example.com`")]
    Wildcard(String),
    /// A URL instead of a host. The entry is without what stands before an `@`.
    #[error("`{0}`: an entry is a host and a port, without {1}")]
    Part(String, &'static str),
    #[error("an entry has no host")]
    Empty,
    #[error("`{0}` is not a host: {1}")]
    Host(String, String),
    #[error("`{0}`: a port is 1 to 65535")]
    Port(String),
    #[error("`{0}` names a port, and `port` is another one; write the port once")]
    TwoPorts(String),
    #[error("`{0}`: `loopback` is for addresses and `localhost`; any other name can be pointed there by others")]
    LoopbackName(String),
    #[error("`{0}`: `private` and `loopback` exclude each other")]
    ConflictingScopes(String),
    /// An address to which no request could pass the check.
    #[error("`{0}` is refused as `{code}`; {advice}", code = <&str>::from(*.1), advice = .1.advice())]
    Address(String, DenyCode),
    #[error("`{0}`: {1}")]
    File(String, String),
    #[error("`{0}`: `ca` cannot be used")]
    Authority(String, #[source] tollgate_runtime::certificates::Error),
}

/// A host pattern with a port, of an allow-list entry or of a manifest.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct HostPortPattern {
    host: HostPattern,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
enum HostPattern {
    Exact(Host<String>),
    /// Exactly one label, then this, which begins with a dot.
    Suffix(String),
}

impl HostPortPattern {
    /// Reads `host`, `host:port`, `*.suffix`, `*.suffix:port`, an IPv4 address,
    /// or an IPv6 address in brackets. Names are compared as A-labels, so
    /// capitals and Unicode spellings do not matter.
    pub(crate) fn parse(text: &str) -> Result<Self, EntryError> {
        refuse_url_parts(text)?;
        let (host, port) = split_port(text)?;
        if host == "*" {
            return Err(EntryError::BareWildcard);
        }
        let host = match host.strip_prefix("*.") {
            Some(suffix) => match read_host(text, suffix)? {
                Host::Domain(suffix) => HostPattern::Suffix(format!(".{suffix}")),
                Host::Ipv4(_) | Host::Ipv6(_) => return Err(EntryError::Wildcard(text.to_owned())),
            },
            None => HostPattern::Exact(read_host(text, host)?),
        };
        Ok(Self { host, port })
    }

    pub(super) fn matches_host(&self, host: &Host<String>) -> bool {
        match (&self.host, host) {
            (HostPattern::Exact(expected), _) => expected == host,
            (HostPattern::Suffix(suffix), Host::Domain(name)) => name
                .strip_suffix(suffix.as_str())
                .is_some_and(|label| !label.is_empty() && !label.contains('.')),
            (HostPattern::Suffix(_), Host::Ipv4(_) | Host::Ipv6(_)) => false,
        }
    }

    pub(crate) fn matches(&self, host: &Host<String>, port: u16) -> bool {
        self.port() == port && self.matches_host(host)
    }

    /// 443 when none was written.
    pub(super) fn port(&self) -> u16 {
        self.port.unwrap_or(HTTPS_PORT)
    }

    fn address(&self) -> Option<IpAddr> {
        match &self.host {
            HostPattern::Exact(host) => address_of(host),
            HostPattern::Suffix(_) => None,
        }
    }
}

impl fmt::Display for HostPortPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.host {
            HostPattern::Exact(host) => write!(f, "{host}")?,
            HostPattern::Suffix(suffix) => write!(f, "*{suffix}")?,
        }
        match self.port() {
            HTTPS_PORT => Ok(()),
            port => write!(f, ":{port}"),
        }
    }
}

/// An allow-list entry with its roots of trust. Cheap to clone.
#[derive(Clone, Debug)]
pub(crate) struct AllowedHost {
    pub(super) pattern: HostPortPattern,
    pub(super) address_scope: AddressScope,
    /// `None`: the system's authorities.
    pub(super) tls: Option<Arc<rustls::ClientConfig>>,
}

impl AllowedHost {
    pub(crate) fn new(spec: &EgressEntry) -> Result<Self, EntryError> {
        let entry = || spec.host.clone();
        let mut pattern = HostPortPattern::parse(&spec.host)?;
        match (pattern.port, spec.port) {
            (_, Some(0)) => return Err(EntryError::Port(entry())),
            (Some(one), Some(other)) if one != other => return Err(EntryError::TwoPorts(entry())),
            (None, Some(port)) => pattern.port = Some(port),
            (_, None) | (Some(_), Some(_)) => {}
        }
        let localhost = HostPattern::Exact(Host::Domain("localhost".to_owned()));
        let address_scope = match (spec.private, spec.loopback) {
            (false, false) => AddressScope::Public,
            (true, false) => AddressScope::Private,
            (true, true) => return Err(EntryError::ConflictingScopes(entry())),
            (false, true) if pattern.address().is_some() || pattern.host == localhost => AddressScope::Loopback,
            (false, true) => return Err(EntryError::LoopbackName(entry())),
        };
        if let Some(address) = pattern.address() {
            address::check(address, address_scope).map_err(|code| EntryError::Address(entry(), code))?;
        }
        let tls = spec.ca.as_deref().map(|ca| authorities(&spec.host, ca)).transpose()?;
        Ok(Self {
            pattern,
            address_scope,
            tls,
        })
    }
}

fn authorities(entry: &str, ca: &str) -> Result<Arc<rustls::ClientConfig>, EntryError> {
    let unusable = |source| EntryError::Authority(entry.to_owned(), source);
    if ca.contains("-----BEGIN") {
        return tls::with_authorities(ca).map_err(unusable);
    }
    let file = AuthorityFile::open("plugins.grants.hosts.ca", Path::new(ca));
    let file = file.map_err(|why| EntryError::File(entry.to_owned(), why))?;
    tls::with_file(&file).map_err(unusable)
}

/// Refuses the parts of a URL that an entry cannot have, and names the part.
fn refuse_url_parts(text: &str) -> Result<(), EntryError> {
    const PARTS: [(&str, &str); 7] = [
        ("@", "user or password"),
        ("://", "a scheme; it is always https"),
        ("/", "a path"),
        ("\\", "a path"),
        ("?", "a query"),
        ("#", "a fragment"),
        ("%", "percent signs"),
    ];
    let blank = |c: char| c.is_whitespace() || c.is_control();
    let part = PARTS.into_iter().find(|(mark, _)| text.contains(mark));
    let part = part
        .map(|(_, part)| part)
        .or(text.contains(blank).then_some("white space"));
    // What stands before an `@` may be a password.
    let shown = text.rsplit('@').next().unwrap_or_default();
    part.map_or(Ok(()), |part| Err(EntryError::Part(shown.to_owned(), part)))
}

/// Splits at the colon before the port. A colon inside brackets does not count.
fn split_port(text: &str) -> Result<(&str, Option<u16>), EntryError> {
    let Some((host, port)) = text.rsplit_once(':').filter(|(_, port)| !port.contains(']')) else {
        return Ok((text, None));
    };
    if host.contains(':') && !host.starts_with('[') {
        let reason = "an IPv6 address stands in brackets".to_owned();
        return Err(EntryError::Host(text.to_owned(), reason));
    }
    // `parse` alone takes a sign.
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    match port.parse::<u16>() {
        Ok(number) if digits && number > 0 => Ok((host, Some(number))),
        _ => Err(EntryError::Port(text.to_owned())),
    }
}

fn read_host(entry: &str, text: &str) -> Result<Host<String>, EntryError> {
    let refused = |reason: &str| EntryError::Host(entry.to_owned(), reason.to_owned());
    if text.is_empty() {
        return Err(EntryError::Empty);
    }
    if text.contains('*') {
        return Err(EntryError::Wildcard(entry.to_owned()));
    }
    if text.ends_with('.') {
        return Err(refused("it ends with a dot"));
    }
    let host = Host::parse(text).map_err(|error| refused(&error.to_string()))?;
    match &host {
        Host::Domain(name) => {
            let labels_ok = name.split('.').all(|label| (1..=63).contains(&label.len()));
            if name.len() > MAX_HOST_BYTES || !labels_ok {
                return Err(refused("a label has 1 to 63 bytes, a name up to 253"));
            }
        }
        // `127.1` and `0x7f000001` are addresses to some parsers only.
        Host::Ipv4(address) if address.to_string() != text => {
            return Err(refused("an IPv4 address has four decimal numbers"));
        }
        Host::Ipv4(_) | Host::Ipv6(_) => {}
    }
    Ok(host)
}
