//! Reasons why a plugin's request got no response: a stable code, and a sentence for operators.
//!
//! Security: neither contains a path, query, header value or body.

use std::net::IpAddr;
use std::time::Duration;

use tollgate_core::address::SpecialPurposeRange;

/// The rule that refused a URL or an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum DenyCode {
    /// Text no URL parser accepts, or that is too long.
    Malformed,
    /// White space or a control character, which parsers drop silently.
    Control,
    /// A backslash, which parsers read as a slash.
    Backslash,
    /// Another scheme than https, or not followed by exactly two slashes.
    Scheme,
    /// A user or a password before the host.
    Userinfo,
    /// No host.
    EmptyHost,
    /// A percent sign in the host.
    PercentHost,
    /// A host that ends with a dot.
    TrailingDot,
    /// A fragment.
    Fragment,
    /// A query inside the URL's text.
    Query,
    /// A `.` or `..` segment in the path, also written with percent signs.
    DotSegment,
    /// An address as the host that no entry lists.
    IpLiteral,
    /// An address in another form than the usual one, such as `127.1`.
    NonCanonicalIp,
    /// No entry for this host.
    Host,
    /// The host is listed, but not with this port.
    Port,
    /// An address in a range that is not global unicast.
    Address(SpecialPurposeRange),
}

impl DenyCode {
    /// The word for metrics, egress logs and guests; it does not change.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Malformed => "malformed",
            Self::Control => "control-character",
            Self::Backslash => "backslash",
            Self::Scheme => "scheme",
            Self::Userinfo => "userinfo",
            Self::EmptyHost => "empty-host",
            Self::PercentHost => "percent-host",
            Self::TrailingDot => "trailing-dot",
            Self::Fragment => "fragment",
            Self::Query => "query",
            Self::DotSegment => "dot-segment",
            Self::IpLiteral => "ip-literal",
            Self::NonCanonicalIp => "ip-form",
            Self::Host => "host",
            Self::Port => "port",
            Self::Address(SpecialPurposeRange::Metadata) => "address-metadata",
            Self::Address(SpecialPurposeRange::LinkLocal) => "address-link-local",
            Self::Address(SpecialPurposeRange::Loopback) => "address-loopback",
            Self::Address(SpecialPurposeRange::Private) => "address-private",
            Self::Address(SpecialPurposeRange::SharedSpace) => "address-shared",
            Self::Address(SpecialPurposeRange::Embedded) => "address-embedded",
            Self::Address(SpecialPurposeRange::Unspecified) => "address-unspecified",
            Self::Address(SpecialPurposeRange::Multicast) => "address-multicast",
            Self::Address(SpecialPurposeRange::Broadcast) => "address-broadcast",
            Self::Address(SpecialPurposeRange::Documentation) => "address-documentation",
            Self::Address(SpecialPurposeRange::Reserved) => "address-reserved",
        }
    }
}

/// A refusal by the egress rules. Trying again changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub struct Denied {
    /// Which rule.
    pub code: DenyCode,
    /// What is wrong, for operators.
    pub message: String,
}

impl Denied {
    pub(super) fn new(code: DenyCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    /// A host that resolves to a forbidden address.
    pub(super) fn address(code: DenyCode, host: &str, address: IpAddr) -> Self {
        let advice = match code {
            DenyCode::Address(SpecialPurposeRange::Private) => "; `private: true` on the entry permits it",
            DenyCode::Address(SpecialPurposeRange::Loopback) => {
                "; `loopback: true` on an entry for an address or `localhost` permits it"
            }
            DenyCode::Address(SpecialPurposeRange::Metadata | SpecialPurposeRange::LinkLocal) => {
                "; no entry permits it"
            }
            _ => "",
        };
        let rule = code.as_str();
        Self::new(
            code,
            format!("`{host}` leads to `{address}`, refused as `{rule}`{advice}"),
        )
    }
}

/// The stage at which the time ran out.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EgressStage {
    /// Waiting for the rate limit of the host.
    RateLimit,
    /// Asking for the host's addresses.
    Resolve,
    /// Connecting.
    Connect,
    /// Agreeing on TLS.
    Tls,
    /// Sending the request and waiting for the head of the response.
    Head,
    /// Reading the response's body.
    Body,
}

impl EgressStage {
    /// The words for error texts.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::RateLimit => "waiting for the rate limit of this host",
            Self::Resolve => "resolving the name",
            Self::Connect => "connecting",
            Self::Tls => "agreeing on TLS",
            Self::Head => "waiting for the answer",
            Self::Body => "reading the answer",
        }
    }
}

/// Why there is no response. Names hosts and stages; never a query, a header value or a body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// The egress rules refuse; never retry.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// The request itself cannot be sent.
    #[error("the request cannot be sent: {reason}")]
    InvalidRequest {
        /// Which part, without its value.
        reason: String,
    },
    /// The host has no address.
    #[error("`{host}` does not resolve: {reason}")]
    Dns {
        /// The host.
        host: String,
        /// What the resolver said.
        reason: String,
    },
    /// No connection, or none that speaks HTTP.
    #[error("no connection to `{host}`: {reason}")]
    Connect {
        /// The host.
        host: String,
        /// What the system said.
        reason: String,
    },
    /// The TLS handshake failed, most often because the certificate is not trusted.
    #[error("no TLS with `{host}`: {reason}")]
    Tls {
        /// The host.
        host: String,
        /// What the TLS library said.
        reason: String,
    },
    /// The time ran out.
    #[error("no answer within {} ms, while {}", allowed.as_millis(), stage.as_str())]
    Timeout {
        /// The stage it reached.
        stage: EgressStage,
        /// The time limit.
        allowed: Duration,
    },
    /// The connection ended before the response did.
    #[error("the answer of `{host}` is cut short")]
    Truncated {
        /// The host.
        host: String,
    },
    /// The response is longer than allowed.
    #[error("the {what} of the answer is over {allowed} bytes")]
    TooLarge {
        /// `head` or `body`.
        what: &'static str,
        /// The limit.
        allowed: usize,
    },
}

impl Error {
    /// The word for error codes; it does not change.
    pub fn as_str(&self) -> &'static str {
        match self {
            Self::Denied(_) => "denied",
            Self::InvalidRequest { .. } => "invalid-request",
            Self::Dns { .. } => "dns",
            Self::Connect { .. } => "connect",
            Self::Tls { .. } => "tls",
            Self::Timeout { .. } => "timeout",
            Self::Truncated { .. } => "truncated",
            Self::TooLarge { .. } => "too-large",
        }
    }
}
