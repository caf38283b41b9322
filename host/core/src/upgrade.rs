//! Protocols that an HTTP/1.1 connection may be upgraded to.

/// Protocols a connection may be upgraded to. All others, above all `h2c`, would hide later
/// requests from the gateway; the upgrade is ignored, as RFC 9110, section 7.8 allows.
/// The text is the value of `Upgrade`, which is read in any case.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, strum::IntoStaticStr, strum::EnumString, strum::VariantArray)]
#[strum(ascii_case_insensitive)]
pub enum Protocol {
    /// RFC 6455.
    #[strum(serialize = "websocket")]
    WebSocket,
    /// Streams of `kubectl exec`, `attach` and `port-forward`.
    #[strum(serialize = "SPDY/3.1")]
    Spdy,
}
