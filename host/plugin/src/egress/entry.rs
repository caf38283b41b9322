//! One entry of an allow-list: `host`, `host:port`, or an object with `host`, `port`, `private`,
//! `loopback` and `ca`. Entries that are wider than their author may think are refused.
//!
//! Security: an entry with authorities of its own trusts no others.

use std::fmt;
use std::net::IpAddr;
use std::path::PathBuf;
use std::sync::Arc;

use url::Host;

use super::address::{self, AddressScope};
use super::error::DenyCode;
use super::tls;
use tollgate_config::EgressEntry;
use tollgate_core::address::SpecialPurposeRange;

/// The port of an entry that names none.
pub(super) const HTTPS_PORT: u16 = 443;
/// Bytes of a host, RFC 1035 section 2.3.4.
const MAX_HOST_BYTES: usize = 253;

/// Why an entry cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum EntryError {
    /// A bare `*`, which would allow every host.
    #[error("`*` alone is not an entry; name a host, or `*.` and a suffix")]
    BareWildcard,
    /// A `*` elsewhere than as the whole first label.
    #[error("`{entry}`: `*` stands for exactly one label and only at the start, as in `*.example.com`")]
    Wildcard {
        /// The entry.
        entry: String,
    },
    /// A URL instead of a host.
    #[error("`{entry}`: an entry is a host and a port, without {part}")]
    Part {
        /// The entry; without what stands before an `@`.
        entry: String,
        /// The part that does not belong there.
        part: &'static str,
    },
    /// No host.
    #[error("an entry has no host")]
    Empty,
    /// Not a host.
    #[error("`{entry}` is not a host: {reason}")]
    Host {
        /// The entry.
        entry: String,
        /// Why.
        reason: String,
    },
    /// Not a port.
    #[error("`{entry}`: a port is 1 to 65535")]
    Port {
        /// The entry.
        entry: String,
    },
    /// One port in the text and a different one in the field.
    #[error("`{entry}` has a port, and `port` says another one")]
    TwoPorts {
        /// The entry.
        entry: String,
    },
    /// `loopback` on a name.
    #[error("`{entry}`: `loopback` is for addresses and `localhost`; any other name can be pointed there by others")]
    LoopbackName {
        /// The entry.
        entry: String,
    },
    /// Both `private` and `loopback`.
    #[error("`{entry}`: `private` and `loopback` exclude each other")]
    ConflictingScopes {
        /// The entry.
        entry: String,
    },
    /// An address to which no request could pass the check.
    #[error("`{entry}` is refused as `{}`{}", code.as_str(), advice(*code))]
    Address {
        /// The entry.
        entry: String,
        /// The range.
        code: DenyCode,
    },
    /// The authority's file cannot be read.
    #[error("`{entry}`: cannot read the authorities in `{}`", path.display())]
    Read {
        /// The entry.
        entry: String,
        /// The file.
        path: PathBuf,
        /// Why.
        #[source]
        source: std::io::Error,
    },
    /// The authority is not usable.
    #[error("`{entry}`: `ca` cannot be used")]
    Authority {
        /// The entry.
        entry: String,
        /// Why.
        #[source]
        source: crate::certificates::Error,
    },
}

fn advice(code: DenyCode) -> &'static str {
    match code {
        DenyCode::Address(SpecialPurposeRange::Private) => "; `private: true` permits it",
        DenyCode::Address(SpecialPurposeRange::Loopback) => "; `loopback: true` permits it",
        _ => "; no entry permits it",
    }
}

/// A host pattern with a port, of an allow-list entry or of a manifest.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HostPortPattern {
    host: HostPattern,
    port: Option<u16>,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
enum HostPattern {
    Exact(Host<String>),
    /// Exactly one label, then this, which begins with a dot.
    Suffix(String),
}

impl HostPortPattern {
    /// Reads `host`, `host:port`, `*.suffix`, `*.suffix:port`, an IPv4 address,
    /// or an IPv6 address in brackets. Names are compared as A-labels, so
    /// capitals and Unicode spellings do not matter.
    ///
    /// # Errors
    /// What is wrong with the text, see [`EntryError`].
    pub fn parse(text: &str) -> Result<Self, EntryError> {
        refuse_url_parts(text)?;
        let (host, port) = split_port(text)?;
        if host == "*" {
            return Err(EntryError::BareWildcard);
        }
        let host = match host.strip_prefix("*.") {
            Some(suffix) => match read_host(text, suffix)? {
                Host::Domain(suffix) => HostPattern::Suffix(format!(".{suffix}")),
                Host::Ipv4(_) | Host::Ipv6(_) => return Err(EntryError::Wildcard { entry: text.to_owned() }),
            },
            None => HostPattern::Exact(read_host(text, host)?),
        };
        Ok(Self { host, port })
    }

    /// Whether the pattern matches the host, regardless of the port.
    pub fn matches_host(&self, host: &Host<String>) -> bool {
        match (&self.host, host) {
            (HostPattern::Exact(expected), _) => expected == host,
            (HostPattern::Suffix(suffix), Host::Domain(name)) => name
                .strip_suffix(suffix.as_str())
                .is_some_and(|label| !label.is_empty() && !label.contains('.')),
            (HostPattern::Suffix(_), Host::Ipv4(_) | Host::Ipv6(_)) => false,
        }
    }

    /// Whether the pattern matches host and port. The port is 443 if the pattern names none.
    pub fn matches(&self, host: &Host<String>, port: u16) -> bool {
        self.port() == port && self.matches_host(host)
    }

    /// The port, 443 when none was written.
    pub fn port(&self) -> u16 {
        self.port.unwrap_or(HTTPS_PORT)
    }

    fn address(&self) -> Option<IpAddr> {
        match &self.host {
            HostPattern::Exact(Host::Ipv4(address)) => Some((*address).into()),
            HostPattern::Exact(Host::Ipv6(address)) => Some((*address).into()),
            HostPattern::Exact(Host::Domain(_)) | HostPattern::Suffix(_) => None,
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
#[derive(Clone)]
pub struct AllowedHost {
    pattern: HostPortPattern,
    address_scope: AddressScope,
    /// `None`: the system's authorities.
    tls: Option<Arc<rustls::ClientConfig>>,
}

impl fmt::Debug for AllowedHost {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("AllowedHost")
            .field("pattern", &self.pattern.to_string())
            .field("reach", &self.address_scope)
            .field("own_authorities", &self.tls.is_some())
            .finish()
    }
}

impl AllowedHost {
    /// Checks an entry; reads the file `ca` names.
    ///
    /// # Errors
    /// What is wrong, see [`EntryError`].
    pub fn new(spec: &EgressEntry) -> Result<Self, EntryError> {
        let entry = || spec.host.clone();
        let mut pattern = HostPortPattern::parse(&spec.host)?;
        match (pattern.port, spec.port) {
            (_, Some(0)) => return Err(EntryError::Port { entry: entry() }),
            (Some(one), Some(other)) if one != other => return Err(EntryError::TwoPorts { entry: entry() }),
            (None, Some(port)) => pattern.port = Some(port),
            (_, None) | (Some(_), Some(_)) => {}
        }
        let localhost = HostPattern::Exact(Host::Domain("localhost".to_owned()));
        let address_scope = match (spec.private, spec.loopback) {
            (false, false) => AddressScope::Public,
            (true, false) => AddressScope::Private,
            (true, true) => return Err(EntryError::ConflictingScopes { entry: entry() }),
            (false, true) if pattern.address().is_some() || pattern.host == localhost => AddressScope::Loopback,
            (false, true) => return Err(EntryError::LoopbackName { entry: entry() }),
        };
        if let Some(address) = pattern.address() {
            address::check(address, address_scope).map_err(|code| EntryError::Address { entry: entry(), code })?;
        }
        let tls = spec.ca.as_deref().map(|ca| authorities(&spec.host, ca)).transpose()?;
        Ok(Self {
            pattern,
            address_scope,
            tls,
        })
    }

    /// What it allows.
    pub fn pattern(&self) -> &HostPortPattern {
        &self.pattern
    }

    /// The address ranges it permits.
    pub fn address_scope(&self) -> AddressScope {
        self.address_scope
    }

    /// The trusted authorities, if they are not the system's.
    pub(super) fn tls(&self) -> Option<&Arc<rustls::ClientConfig>> {
        self.tls.as_ref()
    }
}

fn authorities(entry: &str, ca: &str) -> Result<Arc<rustls::ClientConfig>, EntryError> {
    let pem = if ca.contains("-----BEGIN") {
        ca.to_owned()
    } else {
        std::fs::read_to_string(ca).map_err(|source| EntryError::Read {
            entry: entry.to_owned(),
            path: PathBuf::from(ca),
            source,
        })?
    };
    tls::with_authorities(&pem).map_err(|source| EntryError::Authority {
        entry: entry.to_owned(),
        source,
    })
}

/// Refuses the parts of a URL that an entry cannot have, and names the part.
fn refuse_url_parts(text: &str) -> Result<(), EntryError> {
    // What stands before an `@` may be a password.
    let shown = text.rsplit('@').next().unwrap_or_default();
    let part = if text.contains('@') {
        "user or password"
    } else if text.contains("://") {
        "a scheme; it is always https"
    } else if text.contains('/') || text.contains('\\') {
        "a path"
    } else if text.contains('?') {
        "a query"
    } else if text.contains('#') {
        "a fragment"
    } else if text.contains('%') {
        "percent signs"
    } else if text.chars().any(|c| c.is_whitespace() || c.is_control()) {
        "white space"
    } else {
        return Ok(());
    };
    Err(EntryError::Part {
        entry: shown.to_owned(),
        part,
    })
}

/// Splits at the colon before the port. A colon inside brackets does not count.
fn split_port(text: &str) -> Result<(&str, Option<u16>), EntryError> {
    let Some((host, port)) = text.rsplit_once(':').filter(|(_, port)| !port.contains(']')) else {
        return Ok((text, None));
    };
    let bare_v6 = host.contains(':') && !host.starts_with('[');
    if bare_v6 {
        return Err(EntryError::Host {
            entry: text.to_owned(),
            reason: "an IPv6 address stands in brackets".to_owned(),
        });
    }
    let digits = !port.is_empty() && port.bytes().all(|byte| byte.is_ascii_digit());
    match port.parse::<u16>() {
        Ok(number) if digits && number > 0 => Ok((host, Some(number))),
        _ => Err(EntryError::Port { entry: text.to_owned() }),
    }
}

fn read_host(entry: &str, text: &str) -> Result<Host<String>, EntryError> {
    let refused = |reason: &str| EntryError::Host {
        entry: entry.to_owned(),
        reason: reason.to_owned(),
    };
    if text.is_empty() {
        return Err(EntryError::Empty);
    }
    if text.contains('*') {
        return Err(EntryError::Wildcard {
            entry: entry.to_owned(),
        });
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
