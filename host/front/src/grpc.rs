//! What the fronts that serve calls of gRPC and gRPC-Web share.
//!
//! Source: <https://github.com/grpc/grpc/blob/master/doc/PROTOCOL-HTTP2.md> and `PROTOCOL-WEB.md` beside it.

use std::fmt::Write as _;

use http::header::CONTENT_TYPE;
use http::{HeaderMap, HeaderName, HeaderValue, Method, Response};
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};

use crate::Denial;
use tollgate_proxy::forward::Body;

mod call;
mod code;
pub mod wire;

pub use call::{CallError, token_as_bearer};
pub use code::Code;

/// The status of a call.
pub const STATUS: HeaderName = HeaderName::from_static("grpc-status");
/// The text of a status other than success, percent-encoded.
pub const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");

/// Longest status message, in bytes. Clients bound the size of heads.
const MAX_STATUS_MESSAGE_BYTES: usize = 4096;

/// Bytes that a status message must percent-encode on the wire.
const PERCENT_ENCODED: &AsciiSet = &CONTROLS.add(b'%');

/// How a call of gRPC or gRPC-Web carries frames.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Transport {
    /// In content that ends with trailers, over HTTP/2.
    Grpc,
    /// gRPC-Web: the trailers are the last frame.
    Web,
    /// gRPC-Web in base64.
    WebText,
}

impl Transport {
    /// How a request carries frames. `None` if it is not a call.
    ///
    /// No other front serves a path of the form `/package.Service/Method`.
    pub fn of(method: &Method, path: &str, fields: &HeaderMap) -> Option<Self> {
        let (service, name) = path.strip_prefix('/')?.split_once('/')?;
        if *method != Method::POST || !service.contains('.') || name.is_empty() || name.contains('/') {
            return None;
        }
        let kind = fields.get(CONTENT_TYPE)?.to_str().ok()?;
        let kind = kind.split(';').next()?.trim().to_ascii_lowercase();
        // Not `+json`: the gateway reads messages of protobuf alone.
        match kind.strip_suffix("+proto").unwrap_or(&kind) {
            "application/grpc" => Some(Self::Grpc),
            "application/grpc-web" => Some(Self::Web),
            "application/grpc-web-text" => Some(Self::WebText),
            _ => None,
        }
    }

    /// The media type of responses.
    pub fn content_type(self) -> HeaderValue {
        HeaderValue::from_static(match self {
            Self::Grpc => "application/grpc+proto",
            Self::Web => "application/grpc-web+proto",
            Self::WebText => "application/grpc-web-text+proto",
        })
    }
}

/// The head of a response to a call.
pub fn head(transport: Transport, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, transport.content_type());
    response
}

/// The response that refuses a call. Its status is in the headers, because some clients of gRPC-Web do not read
/// trailers without a message.
pub fn refuse(transport: Transport, denial: &Denial) -> Response<Body> {
    let mut response = head(transport, Body::empty());
    let fields = response.headers_mut();
    fields.insert(STATUS, HeaderValue::from(u16::from(denial.grpc().number())));
    if let Ok(message) = HeaderValue::try_from(percent_encoded(&status_message(denial))) {
        fields.insert(MESSAGE, message);
    }
    response
}

/// The status message: all refusals in one line, because clients print it as it is.
fn status_message(denial: &Denial) -> String {
    let mut omitted = denial.more_refusals;
    let mut message = String::new();
    for refusal in &denial.refusals {
        let text = &refusal.text;
        // Half, because percent-encoding lengthens the text, and the count at its end must not be cut off.
        if !message.is_empty() && message.len() + text.len() > MAX_STATUS_MESSAGE_BYTES / 2 {
            omitted = omitted.saturating_add(1);
            continue;
        }
        let between = if message.is_empty() { "" } else { "; " };
        message.push_str(between);
        message.push_str(text);
    }
    if message.is_empty() {
        return denial.message.clone().into_owned();
    }
    if omitted > 0 {
        // Writing to a string does not fail.
        let _ = write!(message, "; and {omitted} more");
    }
    message
}

/// The text of a status as it is sent: percent-encoded and bounded.
pub fn percent_encoded(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    let mut characters = [0; 4];
    for character in message.chars() {
        let before = text.len();
        text.extend(utf8_percent_encode(
            character.encode_utf8(&mut characters),
            PERCENT_ENCODED,
        ));
        if text.len() > MAX_STATUS_MESSAGE_BYTES {
            // Never inside an escape, which a client could not decode.
            text.truncate(before);
            break;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::{MAX_STATUS_MESSAGE_BYTES, Transport, percent_encoded, refuse};
    use crate::{Denial, Refusal};
    use serde_json::Value;

    #[test]
    fn status_messages_are_encoded_and_truncated() {
        assert_eq!(percent_encoded("50% of 'ä'\n"), "50%25 of '%C3%A4'%0A");
        let long = percent_encoded(&"ä".repeat(MAX_STATUS_MESSAGE_BYTES));
        assert!(
            long.len() <= MAX_STATUS_MESSAGE_BYTES && long.ends_with("%A4"),
            "{}",
            long.len()
        );
    }

    #[test]
    fn every_refusal_is_listed() {
        let refusal = |name: &str| Refusal {
            text: format!("application `{name}`: not permitted (applications, create)"),
            object: Value::Null,
        };
        let mut error = Denial::not_found();
        error.refusals = vec![refusal("one"), refusal("two")];
        error.more_refusals = 3;
        let response = refuse(Transport::Web, &error);
        assert_eq!(response.status(), StatusCode::OK);
        assert_eq!(response.headers()["grpc-status"], "5");
        assert_eq!(response.headers()["content-type"], "application/grpc-web+proto");
        let text = response.headers()["grpc-message"].to_str().expect("text");
        assert!(
            text.contains("one") && text.contains("two") && text.ends_with("; and 3 more"),
            "{text}"
        );
        error.refusals = vec![refusal(&"n".repeat(100)); 100];
        let response = refuse(Transport::Grpc, &error);
        let text = response.headers()["grpc-message"].to_str().expect("text");
        assert!(
            text.len() <= MAX_STATUS_MESSAGE_BYTES && text.ends_with(" more"),
            "{text}"
        );
        error.refusals.clear();
        let response = refuse(Transport::Grpc, &error);
        assert_eq!(response.headers()["grpc-message"], "nothing is served here");
    }
}
