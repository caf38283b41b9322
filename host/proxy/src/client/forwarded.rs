//! Reads what a trusted proxy says of its client: `Forwarded` (RFC 7239), `X-Forwarded-For`,
//! `X-Forwarded-Proto` and `X-Forwarded-Host`.
//!
//! Each proxy adds the address from which it got the request at the end of a chain. So the client is
//! the last address that is not itself a trusted proxy's, and everything before it is what the
//! client claims. If all addresses are of trusted proxies, it is the first one.
//!
//! Security: a proxy may know only one of the two chains, and pass the other on as its client sent
//! it. Where they contradict each other, the request is refused.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use http::{HeaderMap, HeaderName, HeaderValue};

use self::elements::{Element, elements};
use super::peer::Transport;
use tollgate_config::TrustedProxies;

mod elements;
#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;

const FORWARDED: HeaderName = http::header::FORWARDED;
const FORWARDED_FOR: HeaderName = HeaderName::from_static("x-forwarded-for");
const FORWARDED_HOST: HeaderName = HeaderName::from_static("x-forwarded-host");
const FORWARDED_PROTO: HeaderName = HeaderName::from_static("x-forwarded-proto");

/// Most proxies that a request may have come through.
const MAX_HOPS: usize = 32;

/// Why the fields of a trusted proxy are refused. (400)
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Not the form of RFC 7239.
    #[error("`Forwarded` is not a list such as `for=192.0.2.1;proto=https, for=\"[2001:db8::1]:443\"`")]
    Syntax,
    /// More addresses than allowed.
    #[error("`{0}` has more than {MAX_HOPS} addresses")]
    TooManyHops(&'static str),
    /// Where the client's address should be, there is none.
    #[error("`{0}` has no IP address with an optional port where the client's address is expected")]
    NotAnAddress(&'static str),
    /// `unknown`, `_name`, or an element without `for`.
    #[error("`{0}` hides the client's address; a trusted proxy has to send it")]
    Hidden(&'static str),
    /// A scheme that is not one, or several.
    #[error("the client's scheme is not one of `http`, `https`, `ws` and `wss` in `{0}`")]
    Scheme(&'static str),
    /// A host that is not one, or several.
    #[error("the client's host is not one host with an optional port in `{0}`")]
    Host(&'static str),
    /// The two ways to say the same thing say different things.
    #[error(
        "`Forwarded` and `X-Forwarded-*` differ in the client's {0}; the proxy has to remove the one it does not write"
    )]
    Conflict(&'static str),
}

/// What trusted proxies say of their client. Absent parts are as the connection has them.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct ForwardedClient {
    pub(super) address: Option<IpAddr>,
    pub(super) transport: Option<Transport>,
    pub(super) host: Option<HeaderValue>,
}

/// Reads the fields of a request that came from a trusted proxy.
///
/// # Errors
/// [`Error`].
pub(super) fn read(fields: &HeaderMap, trusted: &TrustedProxies) -> Result<ForwardedClient, Error> {
    let standard = match fields.contains_key(FORWARDED) {
        true => by_forwarded(fields, trusted)?,
        false => ForwardedClient::default(),
    };
    let address = by_x_forwarded_for(fields, trusted)?;
    let transport = sole(fields, &FORWARDED_PROTO, Error::Scheme("X-Forwarded-Proto"))?;
    let transport = transport.map(|text| transport_of(text).ok_or(Error::Scheme("X-Forwarded-Proto")));
    let host = sole(fields, &FORWARDED_HOST, Error::Host("X-Forwarded-Host"))?;
    let host = host.map(|text| host_of(text).ok_or(Error::Host("X-Forwarded-Host")));
    Ok(ForwardedClient {
        address: agreed(standard.address, address, "address")?,
        transport: agreed(standard.transport, transport.transpose()?, "scheme")?,
        host: agreed(standard.host, host.transpose()?, "host")?,
    })
}

fn by_forwarded(fields: &HeaderMap, trusted: &TrustedProxies) -> Result<ForwardedClient, Error> {
    const NAME: &str = "Forwarded";
    let mut chain = Chain::new(NAME, trusted);
    for line in fields.get_all(FORWARDED) {
        for element in elements(line.to_str().map_err(|_| Error::Syntax)?) {
            let element = element?;
            chain.push(element.node.map_or(Node::Hidden, Node::of_quoted), element)?;
        }
    }
    let Some((address, Element { proto, host, .. })) = chain.client()? else {
        return Err(Error::Syntax);
    };
    // Of the client's element: those behind it tell how proxies reached each other.
    let transport = proto.map(|text| transport_of(text).ok_or(Error::Scheme(NAME)));
    let host = host.map(|text| host_of(text).ok_or(Error::Host(NAME)));
    Ok(ForwardedClient {
        address: Some(address),
        transport: transport.transpose()?,
        host: host.transpose()?,
    })
}

fn by_x_forwarded_for(fields: &HeaderMap, trusted: &TrustedProxies) -> Result<Option<IpAddr>, Error> {
    const NAME: &str = "X-Forwarded-For";
    let mut chain = Chain::new(NAME, trusted);
    for line in fields.get_all(FORWARDED_FOR) {
        // What a client claims may be anything, and comes before its address.
        for entry in line.as_bytes().split(|byte| *byte == b',') {
            let entry = std::str::from_utf8(entry.trim_ascii());
            chain.push(entry.map_or(Node::Malformed, Node::of_entry), ())?;
        }
    }
    Ok(chain.client()?.map(|(address, ())| address))
}

/// One entry of a chain.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Node {
    Address(IpAddr),
    Hidden,
    Malformed,
}

impl Node {
    /// An entry of `X-Forwarded-For`: as [`Node::of_quoted`], or IPv6 without brackets.
    fn of_entry(text: &str) -> Self {
        match text.parse::<Ipv6Addr>() {
            Ok(address) => Self::Address(IpAddr::V6(address).to_canonical()),
            Err(_) => Self::of_quoted(text),
        }
    }

    /// A node of RFC 7239, section 6: `192.0.2.1`, `[2001:db8::1]`, `unknown` or `_name`, with an
    /// optional port.
    fn of_quoted(text: &str) -> Self {
        let (name, port) = match text.strip_prefix('[').and_then(|rest| rest.split_once(']')) {
            Some((name, "")) => (name, None),
            Some((name, rest)) => match rest.strip_prefix(':') {
                Some(port) => (name, Some(port)),
                None => return Self::Malformed,
            },
            None => text
                .split_once(':')
                .map_or((text, None), |(name, port)| (name, Some(port))),
        };
        if !port.is_none_or(|port| is_port(port) || is_obfuscated(port)) {
            return Self::Malformed;
        }
        if text.starts_with('[') {
            let address = name.parse::<Ipv6Addr>();
            return address.map_or(Self::Malformed, |address| {
                Self::Address(IpAddr::V6(address).to_canonical())
            });
        }
        match name.parse::<Ipv4Addr>() {
            Ok(address) => Self::Address(address.into()),
            Err(_) if name.eq_ignore_ascii_case("unknown") || is_obfuscated(name) => Self::Hidden,
            Err(_) => Self::Malformed,
        }
    }
}

fn is_port(text: &str) -> bool {
    // `parse` alone takes a sign.
    text.bytes().all(|byte| byte.is_ascii_digit()) && text.parse::<u16>().is_ok()
}

/// Source: RFC 7239, section 6.3.
fn is_obfuscated(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'_' | b'-');
    text.strip_prefix('_')
        .is_some_and(|name| !name.is_empty() && name.bytes().all(is_allowed))
}

/// A chain of addresses, from the client to the last proxy but one.
struct Chain<'a, T> {
    field: &'static str,
    trusted: &'a TrustedProxies,
    hops: usize,
    /// The last node that is no trusted proxy's, or else the first node, and what came with it.
    client: Option<(Node, T)>,
}

impl<'a, T> Chain<'a, T> {
    fn new(field: &'static str, trusted: &'a TrustedProxies) -> Self {
        Self {
            field,
            trusted,
            hops: 0,
            client: None,
        }
    }

    fn push(&mut self, node: Node, with: T) -> Result<(), Error> {
        self.hops += 1;
        if self.hops > MAX_HOPS {
            return Err(Error::TooManyHops(self.field));
        }
        let is_proxy = match node {
            Node::Address(address) => self.trusted.contains(address),
            Node::Hidden | Node::Malformed => false,
        };
        // What is before the last untrusted address is the client's claim, and is replaced.
        if !is_proxy || self.client.is_none() {
            self.client = Some((node, with));
        }
        Ok(())
    }

    fn client(self) -> Result<Option<(IpAddr, T)>, Error> {
        match self.client {
            None => Ok(None),
            Some((Node::Address(address), with)) => Ok(Some((address, with))),
            Some((Node::Hidden, _)) => Err(Error::Hidden(self.field)),
            Some((Node::Malformed, _)) => Err(Error::NotAnAddress(self.field)),
        }
    }
}

/// The value of a field that has one line at most.
fn sole<'a>(fields: &'a HeaderMap, name: &HeaderName, error: Error) -> Result<Option<&'a str>, Error> {
    let mut lines = fields.get_all(name).iter();
    match (lines.next(), lines.next()) {
        (None, _) => Ok(None),
        (Some(line), None) => line.to_str().map(|text| Some(text.trim_ascii())).map_err(|_| error),
        (Some(_), Some(_)) => Err(error),
    }
}

/// `ws` and `wss` are what some proxies write for WebSocket.
fn transport_of(scheme: &str) -> Option<Transport> {
    let is = |name: &str| scheme.eq_ignore_ascii_case(name);
    if is("https") || is("wss") {
        Some(Transport::Tls)
    } else if is("http") || is("ws") {
        Some(Transport::Plain)
    } else {
        None
    }
}

fn host_of(text: &str) -> Option<HeaderValue> {
    crate::target::check_authority(text).ok()?;
    // So that two fields that differ only in case do not contradict each other.
    HeaderValue::from_str(&text.to_ascii_lowercase()).ok()
}

fn agreed<T: PartialEq>(standard: Option<T>, other: Option<T>, what: &'static str) -> Result<Option<T>, Error> {
    match (standard, other) {
        (Some(standard), Some(other)) if standard != other => Err(Error::Conflict(what)),
        (Some(one), _) | (None, Some(one)) => Ok(Some(one)),
        (None, None) => Ok(None),
    }
}

#[cfg(test)]
mod tests;
