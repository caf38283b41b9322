//! The gRPC and gRPC-Web transport of the API for ApplicationSets. It decodes calls into the
//! requests that REST makes, too, and encodes responses and refusals as frames and trailers. It
//! decides nothing, and has no call that REST lacks.
//!
//! Source: <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md> and
//! `PROTOCOL-WEB.md` beside it.

use bytes::Bytes;
use http::StatusCode;
use serde_json::{Value, json};

use crate::applicationsets::request::Code;
use tollgate_identity::authenticate::Principal;

mod applicationset_service;
mod call;
mod decode;
mod encode;
mod frame;
pub(crate) mod open;
mod response;
mod schema;
mod wire;

#[cfg(test)]
mod tests;

pub use applicationset_service::request;
pub use call::{Call, Method, Transport, token_as_bearer};
pub use decode::{Error as DecodeError, MAX_VALUES};
pub use encode::Error as EncodeError;
pub use response::{refuse, stream, unary};
pub use schema::Error as SchemaError;

use schema::{MessageId, Schema};

/// Longest content of a call, in bytes: the default of gRPC servers.
pub const CONTENT_BYTES: u64 = 4 * 1024 * 1024;

/// Longest content of a call that unauthenticated callers may make, in bytes.
pub const UNAUTHENTICATED_CONTENT_BYTES: u64 = 1024;

/// Why a call fails. The gRPC status code is in parentheses.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The method does not exist. (Unimplemented)
    #[error("this server has no `{path}`")]
    NoMethod {
        /// As the client named it.
        path: String,
    },
    /// gRPC over HTTP/1.1, which has no trailers for a status. (FailedPrecondition)
    #[error("gRPC needs HTTP/2; gRPC-Web does not")]
    Http1,
    /// More than one `token`, or one that is not text. (Unauthenticated)
    #[error("there may be one `token`, of visible ASCII characters")]
    Token,
    /// `grpc-timeout` is not valid. (InvalidArgument)
    #[error("`grpc-timeout` is not up to eight digits and one of `H`, `M`, `S`, `m`, `u`, `n`")]
    Timeout,
    /// The client's timeout, or the longest timeout allowed, has passed. (DeadlineExceeded)
    #[error("the call did not end in time")]
    Deadline,
    /// The content is not one message in its frame. (InvalidArgument)
    #[error("the content is not one message")]
    Frame,
    /// The message is compressed. (Unimplemented)
    #[error("compressed messages are not read")]
    Compressed,
    /// The message is not valid for the method. (InvalidArgument)
    #[error(transparent)]
    Decode(#[from] DecodeError),
    /// A required field is missing. (InvalidArgument)
    #[error("`{field}` is missing")]
    Missing {
        /// The field.
        field: &'static str,
    },
    /// The stored object does not fit in the method's response. (Internal)
    #[error("the answer has no gRPC form")]
    Encode(#[from] EncodeError),
    /// The response is longer than clients accept. (ResourceExhausted)
    #[error("the answer is longer than {allowed} bytes")]
    AnswerTooLong {
        /// Limit in bytes.
        allowed: usize,
    },
    /// An error in this program. (Internal)
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

impl Error {
    /// The gRPC status code.
    pub fn code(&self) -> Code {
        match self {
            Self::NoMethod { .. } | Self::Compressed => Code::Unimplemented,
            Self::Http1 => Code::FailedPrecondition,
            Self::Token => Code::Unauthenticated,
            Self::Timeout | Self::Frame | Self::Decode(_) | Self::Missing { .. } => Code::InvalidArgument,
            Self::Deadline => Code::DeadlineExceeded,
            Self::AnswerTooLong { .. } => Code::ResourceExhausted,
            Self::Encode(_) | Self::Schema(_) => Code::Internal,
        }
    }

    /// The corresponding HTTP status, for records.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NoMethod { .. } => StatusCode::NOT_FOUND,
            Self::Http1 => StatusCode::HTTP_VERSION_NOT_SUPPORTED,
            Self::Token => StatusCode::UNAUTHORIZED,
            Self::Compressed => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Timeout | Self::Frame | Self::Decode(_) | Self::Missing { .. } => StatusCode::BAD_REQUEST,
            Self::Deadline => StatusCode::GATEWAY_TIMEOUT,
            Self::AnswerTooLong { .. } | Self::Encode(_) | Self::Schema(_) => StatusCode::INTERNAL_SERVER_ERROR,
        }
    }

    /// Stable reason for programs.
    pub fn reason(&self) -> &'static str {
        match self {
            Self::NoMethod { .. } => "not_found",
            Self::Http1 => "wrong_protocol",
            Self::Token => "malformed_token",
            Self::Timeout => "bad_timeout",
            Self::Deadline => "deadline_exceeded",
            Self::Frame | Self::Compressed => "malformed_message",
            Self::Decode(_) | Self::Missing { .. } => "bad_message",
            Self::AnswerTooLong { .. } => "answer_too_long",
            Self::Encode(_) | Self::Schema(_) => "answer_failed",
        }
    }
}

/// Decodes and encodes the messages of all methods.
#[derive(Debug)]
pub struct MessageCodec {
    schema: Schema,
    /// Request and response message of each method, in the order of [`Method::ALL`].
    messages: Vec<(MessageId, MessageId)>,
}

/// A response as a message.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EncodedMessage {
    /// Without its frame.
    pub bytes: Bytes,
    /// Names of fields that the messages in it cannot represent, the first few.
    pub omitted_fields: Vec<String>,
}

impl MessageCodec {
    /// Builds the messages of this program's methods.
    ///
    /// # Errors
    /// [`SchemaError`], which cannot occur in a program that passed its tests.
    pub fn try_new() -> Result<Self, SchemaError> {
        let schema = Schema::try_new()?;
        let messages = Method::ALL.iter().map(|method| {
            let (request_id, response_id) = method.messages();
            Ok((schema.id(request_id)?, schema.id(response_id)?))
        });
        Ok(Self {
            messages: messages.collect::<Result<_, SchemaError>>()?,
            schema,
        })
    }

    /// Decodes a call's message into JSON.
    ///
    /// - `content`: all of it, with its frame.
    ///
    /// # Errors
    /// [`Error::Frame`], [`Error::Compressed`] and [`Error::Decode`].
    pub fn decode(&self, call: &Call, content: &Bytes) -> Result<Value, Error> {
        let message = frame::one_message(call.transport, content)?;
        let (request_id, _) = self.ids(call.method)?;
        Ok(decode::decode(&self.schema, request_id, &message)?)
    }

    /// Encodes a response as the message of a method.
    ///
    /// # Errors
    /// [`Error::Encode`] and [`Error::AnswerTooLong`].
    pub fn encode(&self, method: Method, answer: &Value) -> Result<EncodedMessage, Error> {
        let (_, response_id) = self.ids(method)?;
        let encode::Encoded { bytes, omitted_fields } = encode::encode(&self.schema, response_id, answer)?;
        let allowed = frame::MAX_MESSAGE_BYTES;
        if bytes.len() > allowed {
            return Err(Error::AnswerTooLong { allowed });
        }
        Ok(EncodedMessage {
            bytes: bytes.into(),
            omitted_fields,
        })
    }

    fn ids(&self, method: Method) -> Result<(MessageId, MessageId), SchemaError> {
        let at = Method::ALL.iter().position(|known| *known == method);
        let ids = at.and_then(|at| self.messages.get(at)).copied();
        ids.ok_or_else(|| SchemaError::Missing(method.path().to_owned()))
    }
}

/// The version of the program.
pub fn version() -> Value {
    json!({
        "Version": concat!("tollgate-v", env!("CARGO_PKG_VERSION")),
        "Compiler": "rustc",
        "Platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

/// Who the caller is.
pub fn user_info(principal: &Principal) -> Value {
    json!({
        "loggedIn": true,
        "username": principal.username(),
        "iss": principal.issuer(),
        "groups": principal.groups(),
    })
}
