//! Credentials that the gateway presents to clusters, and the sources that make them. A source
//! returns a [`Credential`] that may be used now, or the reason why there is none.
//!
//! Security: a secret never reaches an error, a log, a metric or the disk.

pub mod cache;
pub mod exec;
mod metrics;

use std::fmt;
use std::time::Duration;

use futures_util::future::BoxFuture;
use http::{HeaderName, HeaderValue};
use jiff::Timestamp;
use secrecy::{ExposeSecret, SecretString};
use serde::{Deserialize, Serialize};
use zeroize::Zeroize as _;

pub use metrics::{Metrics, duration_histogram};
use tollgate_core::diagnostic::one_line;

/// Maximum bytes of a token. Go's server, and so a Kubernetes API server, accepts 1 MiB of header
/// fields by default; proxies in between accept far less.
pub const MAX_TOKEN_BYTES: usize = 64 * 1024;

/// Longest [`MintError::message`], in bytes.
pub const MAX_MESSAGE_BYTES: usize = 512;

/// Longest [`MintError::code`], in bytes.
pub const MAX_CODE_BYTES: usize = 64;

/// Longest wait that an identity provider may ask for.
pub const MAX_RETRY_AFTER: Duration = Duration::from_secs(600);

/// Why a text is not a bearer token. The error contains no part of the text.
#[derive(Debug, thiserror::Error)]
#[cfg_attr(test, derive(PartialEq))]
pub enum TokenError {
    /// There is no token.
    #[error("the token is empty")]
    Empty,
    /// The token has this number of bytes, more than [`MAX_TOKEN_BYTES`].
    #[error("the token has {0} bytes, of {MAX_TOKEN_BYTES} allowed")]
    TooLong(usize),
    /// The byte at this position, from 0, is not visible ASCII: a header field would end or change.
    #[error("byte {0} of the token is not visible ASCII")]
    InvalidByte(usize),
}

/// A bearer token: 1 to [`MAX_TOKEN_BYTES`] bytes of visible ASCII (0x21 to
/// 0x7e). Zeroized on drop.
#[derive(Clone, derive_more::Debug)]
#[debug("Token(redacted)")]
pub struct Token(SecretString);

impl Token {
    /// Takes a token over. A refused text is zeroized.
    ///
    /// # Errors
    /// [`TokenError`]: empty, too long, or with a byte that is not visible
    /// ASCII.
    pub fn parse(mut text: String) -> Result<Self, TokenError> {
        let refused = if text.is_empty() {
            Some(TokenError::Empty)
        } else if text.len() > MAX_TOKEN_BYTES {
            Some(TokenError::TooLong(text.len()))
        } else {
            text.bytes()
                .position(|byte| !byte.is_ascii_graphic())
                .map(TokenError::InvalidByte)
        };
        if let Some(refused) = refused {
            text.zeroize();
            return Err(refused);
        }
        Ok(Self(SecretString::from(text)))
    }

    /// The token itself, for sending it.
    pub fn expose(&self) -> &str {
        self.0.expose_secret()
    }

    /// `Bearer <token>`, marked sensitive. The value is a copy that hyper does
    /// not zeroize: make it per request and let it go.
    pub fn to_authorization(&self) -> Option<HeaderValue> {
        sensitive_header_value("Bearer ", self.expose())
    }
}

/// A header value made of a prefix and a secret, without leaving a copy in memory. `None` if a
/// header cannot carry it.
pub fn sensitive_header_value(prefix: &str, secret: &str) -> Option<HeaderValue> {
    let mut text = zeroize::Zeroizing::new(Vec::with_capacity(prefix.len() + secret.len()));
    text.extend_from_slice(prefix.as_bytes());
    text.extend_from_slice(secret.as_bytes());
    let mut value = HeaderValue::from_bytes(&text).ok()?;
    value.set_sensitive(true);
    Some(value)
}

/// A TLS client certificate and its key.
#[derive(Clone, derive_more::Debug)]
#[debug("ClientCertificate(redacted)")]
pub struct ClientCertificate {
    /// The certificate and its issuers in PEM, the certificate first.
    pub chain_pem: String,
    /// The private key in PEM.
    pub key_pem: SecretString,
}

/// User and password of a cluster Secret that names them itself. No provider
/// mints these.
#[derive(Clone, derive_more::Debug)]
#[debug("Basic(redacted)")]
pub struct BasicAuth {
    /// The user.
    pub username: String,
    /// The password.
    pub password: SecretString,
}

/// A credential that was minted, or read from a cluster Secret.
#[derive(Clone)]
pub struct Credential {
    /// Sent as `Authorization: Bearer`.
    pub token: Option<Token>,
    /// Shown in the TLS handshake.
    pub certificate: Option<ClientCertificate>,
    /// Sent with every request beside the token.
    pub headers: Vec<(HeaderName, SecretString)>,
    /// Sent as `Authorization: Basic`; of static cluster secrets only.
    pub basic: Option<BasicAuth>,
    /// When it expires: the earliest time known. `None` if unknown.
    pub expires_at: Option<Timestamp>,
    /// Whether it may serve more than one request.
    pub cacheable: bool,
    /// What [`Mint::revoke`] needs to revoke it.
    pub revocation: Option<SecretString>,
    /// Warnings of the provider for the operator. They contain no secret.
    pub warnings: Vec<String>,
}

impl Credential {
    /// A cacheable credential that is only a token, without a known expiry.
    pub fn from_token(token: Token) -> Self {
        Self {
            token: Some(token),
            ..Self::anonymous()
        }
    }

    /// An anonymous credential: it presents nothing to the cluster.
    pub fn anonymous() -> Self {
        Self {
            token: None,
            certificate: None,
            headers: Vec::new(),
            basic: None,
            expires_at: None,
            cacheable: true,
            revocation: None,
            warnings: Vec::new(),
        }
    }

    /// Whether both present the same to the cluster. Expiry, revocation and warnings are ignored.
    pub(crate) fn authenticates_like(&self, other: &Self) -> bool {
        fn headers(of: &Credential) -> impl Iterator<Item = (&HeaderName, &str)> {
            of.headers.iter().map(|(name, value)| (name, value.expose_secret()))
        }
        fn basic(of: &Credential) -> Option<(&str, &str)> {
            let BasicAuth { username, password } = of.basic.as_ref()?;
            Some((username, password.expose_secret()))
        }
        self.token.as_ref().map(Token::expose) == other.token.as_ref().map(Token::expose)
            && same_certificate(self, other)
            && headers(self).eq(headers(other))
            && basic(self) == basic(other)
    }
}

impl fmt::Debug for Credential {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Credential")
            .field("token", &self.token.is_some())
            .field("certificate", &self.certificate.is_some())
            .field(
                "headers",
                &self.headers.iter().map(|(name, _)| name).collect::<Vec<_>>(),
            )
            .field("basic", &self.basic.is_some())
            .field("expires_at", &self.expires_at)
            .field("cacheable", &self.cacheable)
            .field("revocation", &self.revocation.is_some())
            .field("warnings", &self.warnings.len())
            .finish()
    }
}

/// The class of a mint's failure. It decides how long to wait before the next attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, strum::AsRefStr, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
#[serde(rename_all = "lowercase")]
pub enum MintErrorClass {
    /// A temporary failure: an answer of 429 or 5xx, or a lost connection.
    Retryable,
    /// The identity provider refused: a person or a new secret is needed.
    Denied,
    /// The configuration, the manifest or the grant is wrong.
    Config,
    /// The provider answered something unusable, or the plugin failed.
    Permanent,
}

/// Why a mint returned no credential. Contains no secret: the code that makes it redacts it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, thiserror::Error)]
#[error("{code}: {message}")]
pub struct MintError {
    /// The kind of failure.
    pub class: MintErrorClass,
    /// A word for machines, such as `plugin.trap` or `invalid_grant`.
    pub code: String,
    /// A sentence for people, up to [`MAX_MESSAGE_BYTES`] bytes.
    pub message: String,
    /// Status of the identity provider's response, if there was one.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub http_status: Option<u16>,
    /// How long the identity provider asked to wait, up to [`MAX_RETRY_AFTER`]. Not serialized:
    /// operators see the time of the next attempt.
    #[serde(skip)]
    pub retry_after: Option<Duration>,
    /// The identity provider's own name for the request.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation: Option<String>,
}

impl MintError {
    /// An error of a class. Both texts are cut to their limits, and control
    /// characters become spaces.
    pub fn new(class: MintErrorClass, code: &str, message: &str) -> Self {
        Self {
            class,
            code: one_line(code, MAX_CODE_BYTES),
            message: one_line(message, MAX_MESSAGE_BYTES),
            http_status: None,
            retry_after: None,
            correlation: None,
        }
    }
}

/// Why a mint runs.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum MintReason {
    /// There is no usable credential.
    #[default]
    Initial,
    /// The current credential expires soon.
    Refresh,
    /// The cluster answered 401 to the current credential.
    Unauthorized,
}

/// The parameters of a mint.
#[derive(Clone, Copy, Debug)]
pub struct MintRequest {
    /// Why it runs.
    pub reason: MintReason,
    /// When the previous credential expires, if there is one with a known expiry.
    pub previous_expiry: Option<Timestamp>,
    /// How long it may take; a longer one is dropped.
    pub budget: Duration,
}

/// Makes credentials of one cluster and one configuration.
pub trait Mint: Send + Sync + 'static {
    /// Makes a credential. The future is dropped when its budget is over or
    /// the gateway stops.
    fn mint(&self, request: MintRequest) -> BoxFuture<'static, Result<Credential, MintError>>;

    /// Revokes a credential. Best effort: it is called once, and nobody waits long for it.
    fn revoke(&self, revocation: SecretString) -> BoxFuture<'static, Result<(), MintError>>;

    /// The cluster, as operators know it: for the log.
    fn label(&self) -> &str {
        ""
    }
}

/// Whether both show the same certificate in a handshake, or none.
pub fn same_certificate(one: &Credential, other: &Credential) -> bool {
    fn certificate(of: &Credential) -> Option<(&str, &str)> {
        let ClientCertificate { chain_pem, key_pem } = of.certificate.as_ref()?;
        Some((chain_pem, key_pem.expose_secret()))
    }
    certificate(one) == certificate(other)
}

#[cfg(test)]
mod tests;
