//! Protocols that an HTTP/1.1 connection may be upgraded to.

/// Protocols a connection may be upgraded to. All others, above all `h2c`, would hide later
/// requests from the gateway; the upgrade is ignored, as RFC 9110, section 7.8 allows.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protocol {
    /// RFC 6455.
    WebSocket,
    /// Streams of `kubectl exec`, `attach` and `port-forward`.
    Spdy,
}

impl Protocol {
    /// The value of `Upgrade`.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::WebSocket => "websocket",
            Self::Spdy => "SPDY/3.1",
        }
    }

    /// Reads the value of `Upgrade`, in any case.
    pub fn parse(value: &str) -> Option<Self> {
        match value.trim() {
            value if value.eq_ignore_ascii_case("websocket") => Some(Self::WebSocket),
            value if value.eq_ignore_ascii_case("spdy/3.1") => Some(Self::Spdy),
            _ => None,
        }
    }
}
