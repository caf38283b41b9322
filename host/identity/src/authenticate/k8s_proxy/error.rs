//! Why a request has no usable credential for an agent.

/// Why a request has no usable credential.
///
/// The caller may see every message; they concern the form only.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Nothing was sent. (401)
    #[error("no credential was sent")]
    NoCredential,
    /// Something was sent that cannot be a credential. (400)
    #[error("malformed credential: {0}")]
    Malformed(#[from] MalformedAgentCredential),
    /// A scheme or a kind of token that is unknown here. (401)
    #[error("the kind of credential is not known")]
    UnknownKind,
}

/// What is wrong with the form of a credential.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum MalformedAgentCredential {
    /// More than one credential; choosing one would be a guess.
    #[error("several credentials, send one")]
    Several,
    #[error("`{name}` occurs {observed} times, once is allowed")]
    Repeated { name: &'static str, observed: usize },
    #[error("{0} is missing")]
    Missing(&'static str),
    /// Not a scheme, one blank and a value without blanks.
    #[error("`Authorization` is not `Bearer`, one blank and a token")]
    Authorization,
    /// Not a positive 64-bit number in canonical decimal.
    #[error("the agent id is not a positive whole number")]
    Agent,
    /// The token has dots, but not the three parts of a signed JWT; it may be an encrypted one.
    #[error("the token is not a signed JWT in compact form")]
    Jwt,
    #[error("{0} cannot be decoded")]
    Encoding(&'static str),
    #[error("{part} has {observed} bytes, {allowed} are allowed")]
    TooLong {
        part: &'static str,
        observed: usize,
        allowed: usize,
    },
    /// The token is the only WebSocket subprotocol. Without another one, the cluster has none to
    /// answer with.
    #[error("a token in `Sec-WebSocket-Protocol` needs another subprotocol beside it")]
    OnlySubprotocol,
}
