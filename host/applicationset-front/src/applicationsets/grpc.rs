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
use tollgate_front::Denial;
use tollgate_front::grpc::CallError;
use tollgate_identity::authenticate::Principal;

mod applicationset_service;
mod call;
mod decode;
mod encode;
mod frame;
pub(crate) mod open;
mod response;
mod schema;

#[cfg(test)]
mod tests;

pub(crate) use applicationset_service::request;
pub(crate) use call::{Call, Method};
pub(crate) use decode::{Error as DecodeError, MAX_VALUES};
pub(crate) use encode::{EncodedMessage, Error as EncodeError};
pub(crate) use response::{FinalStatus, stream, unary};
pub(crate) use schema::Error as SchemaError;

use schema::Schema;

/// Longest content of a call, in bytes: the default of gRPC servers.
pub(crate) const CONTENT_BYTES: u64 = 4 * 1024 * 1024;

/// Longest content of a call that unauthenticated callers may make, in bytes.
pub(crate) const UNAUTHENTICATED_CONTENT_BYTES: u64 = 1024;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Head(#[from] CallError),
    #[error("`grpc-timeout` is not up to eight digits and one of `H`, `M`, `S`, `m`, `u`, `n`")]
    Timeout,
    #[error("the call did not end in time")]
    Deadline,
    #[error("the content is not one message")]
    Frame,
    #[error("compressed messages are not read")]
    Compressed,
    #[error(transparent)]
    Decode(#[from] DecodeError),
    #[error("`{field}` is missing")]
    Missing { field: &'static str },
    #[error("the answer has no gRPC form")]
    Encode(#[from] EncodeError),
    #[error("the answer is longer than {allowed} bytes")]
    AnswerTooLong { allowed: usize },
    #[error(transparent)]
    Schema(#[from] SchemaError),
}

impl Error {
    /// The gRPC status code, the corresponding HTTP status for records, and the stable reason for
    /// programs.
    pub(crate) fn answer(&self) -> (Code, StatusCode, &'static str) {
        match self {
            Self::Head(error) => error.answer(),
            Self::Timeout => (Code::InvalidArgument, StatusCode::BAD_REQUEST, "bad_timeout"),
            Self::Deadline => (Code::DeadlineExceeded, StatusCode::GATEWAY_TIMEOUT, "deadline_exceeded"),
            Self::Frame => (Code::InvalidArgument, StatusCode::BAD_REQUEST, "malformed_message"),
            Self::Compressed => (
                Code::Unimplemented,
                StatusCode::UNSUPPORTED_MEDIA_TYPE,
                "malformed_message",
            ),
            Self::Decode(_) | Self::Missing { .. } => (Code::InvalidArgument, StatusCode::BAD_REQUEST, "bad_message"),
            Self::AnswerTooLong { .. } => (
                Code::ResourceExhausted,
                StatusCode::INTERNAL_SERVER_ERROR,
                "answer_too_long",
            ),
            Self::Encode(_) | Self::Schema(_) => (Code::Internal, StatusCode::INTERNAL_SERVER_ERROR, "answer_failed"),
        }
    }
}

impl From<Error> for Denial {
    fn from(error: Error) -> Self {
        let (code, status, reason) = error.answer();
        let mut denial = Self::of_api(status, reason, error.to_string());
        denial.grpc = Some(code);
        denial.caused_by(error)
    }
}

#[derive(Debug)]
pub(crate) struct MessageCodec(Schema);

impl MessageCodec {
    pub(crate) fn try_new() -> Result<Self, SchemaError> {
        let schema = Schema::try_new()?;
        // A method that the descriptors lack fails the start rather than a call.
        for (path, _) in Method::PATHS {
            schema.method(path)?;
        }
        Ok(Self(schema))
    }

    /// - `content`: all of it, with its frame.
    pub(crate) fn decode(&self, call: &Call, content: &Bytes) -> Result<Value, Error> {
        let message = frame::one_message(call.transport, content)?;
        let (request_id, _) = self.0.method(call.path)?;
        Ok(decode::decode(&self.0, request_id, &message)?)
    }

    /// - `path`: that of the method.
    pub(crate) fn encode(&self, path: &str, answer: &Value) -> Result<EncodedMessage, Error> {
        let (_, response_id) = self.0.method(path)?;
        let message = encode::encode(&self.0, response_id, answer)?;
        let allowed = frame::MAX_MESSAGE_BYTES;
        if message.bytes.len() > allowed {
            return Err(Error::AnswerTooLong { allowed });
        }
        Ok(message)
    }
}

pub(crate) fn version() -> Value {
    json!({
        "Version": concat!("tollgate-v", env!("CARGO_PKG_VERSION")),
        "Compiler": "rustc",
        "Platform": format!("{}/{}", std::env::consts::OS, std::env::consts::ARCH),
    })
}

pub(crate) fn user_info(principal: &Principal) -> Value {
    json!({
        "loggedIn": true,
        "username": principal.username(),
        "iss": principal.issuer(),
        "groups": principal.groups(),
    })
}
