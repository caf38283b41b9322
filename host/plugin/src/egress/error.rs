//! Reasons why a plugin's request got no response: a stable code, and a sentence for operators.
//!
//! Security: neither contains a path, query, header value or body.

use std::net::IpAddr;
use std::time::Duration;

use tollgate_core::address::SpecialPurposeRange;

/// Its text is the word for metrics, egress logs and guests; it does not change.
#[derive(Clone, Copy, Debug, PartialEq, Eq, strum::IntoStaticStr)]
#[strum(serialize_all = "kebab-case")]
pub(crate) enum DenyCode {
    /// Text no URL parser accepts, or that is too long.
    Malformed,
    /// White space or a control character, which parsers drop silently.
    #[strum(serialize = "control-character")]
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
    #[strum(serialize = "ip-form")]
    NonCanonicalIp,
    Host,
    /// The host is listed, but not with this port.
    Port,
    #[strum(transparent)]
    Address(SpecialPurposeRange),
}

impl DenyCode {
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
        let (rule, advice): (&str, _) = (code.into(), code.advice());
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
