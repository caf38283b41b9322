//! Reasons why a plugin's request got no response: a stable code, and a sentence for operators.
//!
//! Security: neither contains a path, query, header value or body.

use std::net::IpAddr;
use std::time::Duration;

use tollgate_core::address::SpecialPurposeRange;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum DenyCode {
    /// Text no URL parser accepts, or that is too long.
    Malformed,
    /// White space or a control character, which parsers drop silently.
    Control,
    /// A backslash, which parsers read as a slash.
    Backslash,
    /// Another scheme than https, or not followed by exactly two slashes.
    Scheme,
    Userinfo,
    EmptyHost,
    PercentHost,
    TrailingDot,
    Fragment,
    Query,
    /// A `.` or `..` segment in the path, also written with percent signs.
    DotSegment,
    /// An address as the host that no entry lists.
    IpLiteral,
    /// An address in another form than the usual one, such as `127.1`.
    NonCanonicalIp,
    Host,
    /// The host is listed, but not with this port.
    Port,
    Address(SpecialPurposeRange),
}

impl DenyCode {
    /// The word for metrics, egress logs and guests; it does not change.
    pub(crate) fn as_str(self) -> &'static str {
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

    /// The key of an entry that permits an address.
    pub(super) fn advice(self) -> &'static str {
        match self {
            Self::Address(SpecialPurposeRange::Private) => "`private: true` permits it",
            Self::Address(SpecialPurposeRange::Loopback) => {
                "`loopback: true` permits it, on an entry for an address or `localhost`"
            }
            _ => "no entry permits it",
        }
    }
}

/// A refusal by the egress rules. Trying again changes nothing.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{message}")]
pub(crate) struct Denied {
    pub(crate) code: DenyCode,
    pub(crate) message: String,
}

impl Denied {
    pub(super) fn new(code: DenyCode, message: impl Into<String>) -> Self {
        Self {
            code,
            message: message.into(),
        }
    }

    pub(super) fn address(code: DenyCode, host: &str, address: IpAddr) -> Self {
        let (rule, advice) = (code.as_str(), code.advice());
        let message = format!("`{host}` leads to `{address}`, refused as `{rule}`; {advice}");
        Self { code, message }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum EgressStage {
    #[error("waiting for the rate limit of this host")]
    RateLimit,
    #[error("resolving the name")]
    Resolve,
    #[error("connecting")]
    Connect,
    #[error("agreeing on TLS")]
    Tls,
    /// Sending the request and waiting for the head of the response.
    #[error("waiting for the answer")]
    Head,
    #[error("reading the answer")]
    Body,
}

/// Why there is no response. Names hosts and stages; never a query, a header value or a body.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The egress rules refuse; never retry.
    #[error(transparent)]
    Denied(#[from] Denied),
    /// `reason` names the part, without its value.
    #[error("the request cannot be sent: {reason}")]
    InvalidRequest { reason: String },
    #[error("`{host}` does not resolve: {reason}")]
    Dns { host: String, reason: String },
    /// No connection, or none that speaks HTTP.
    #[error("no connection to `{host}`: {reason}")]
    Connect { host: String, reason: String },
    /// Most often, the certificate is not trusted.
    #[error("the TLS handshake with `{host}` failed: {reason}")]
    Tls { host: String, reason: String },
    #[error("no answer within {} ms, while {stage}", allowed.as_millis())]
    Timeout { stage: EgressStage, allowed: Duration },
    /// The connection ended before the response did.
    #[error("the connection to `{host}` ended before its response was complete")]
    Truncated { host: String },
    /// `what` is `head` or `body`.
    #[error("the {what} of the answer has more than the `{allowed}` bytes allowed")]
    TooLarge { what: &'static str, allowed: usize },
}
