//! Encodes responses for clients of gRPC and gRPC-Web: messages, or an error, followed by a
//! status.
//!
//! Invariant: a response without messages has its status in the headers, because some clients of
//! gRPC-Web do not read the trailers then.

use std::fmt::Write as _;

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use http::header::{CONTENT_TYPE, HeaderName};
use http::{HeaderMap, HeaderValue, Response};
use http_body::Frame;
use jiff::Timestamp;
use percent_encoding::{AsciiSet, CONTROLS, utf8_percent_encode};
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use crate::applicationsets::grpc::call::{Call, Transport};
use crate::applicationsets::grpc::{EncodedMessage, Error, frame};
use crate::applicationsets::request::Code;
use tollgate_front::Denial;
use tollgate_proxy::forward::Body;

const STATUS: HeaderName = HeaderName::from_static("grpc-status");
const MESSAGE: HeaderName = HeaderName::from_static("grpc-message");
const OMITTED_FIELDS: HeaderName = HeaderName::from_static("tollgate-left-out");

/// Longest status message, in bytes. Clients bound the size of heads.
const MAX_STATUS_MESSAGE_BYTES: usize = 4096;

/// Bytes that a status message must percent-encode on the wire.
const PERCENT_ENCODED: &AsciiSet = &CONTROLS.add(b'%');

pub(crate) fn unary(transport: Transport, message: &EncodedMessage, decision: Uuid) -> Response<Body> {
    let data = frame::data(transport, &message.bytes);
    let body = match transport {
        Transport::Grpc => {
            let frames = [Frame::data(data), final_frame(transport, None)];
            Body::generated(stream::iter(frames), None, decision)
        }
        Transport::Web | Transport::WebText => {
            let trailers = frame::trailers(transport, &trailers_text(None));
            Body::from(Bytes::from([data, trailers].concat()))
        }
    };
    let mut response = head(transport, body);
    if !message.omitted_fields.is_empty()
        && let Ok(value) = HeaderValue::try_from(message.omitted_fields.join(", "))
    {
        response.headers_mut().insert(OMITTED_FIELDS, value);
    }
    response
}

/// The messages of a call, and its status once they end.
pub(crate) fn stream<E: Send + 'static>(
    call: Call,
    events: BoxStream<'static, Result<E, FinalStatus>>,
    write: impl Fn(&E) -> Result<EncodedMessage, Error> + Send + 'static,
    (expires_at, decision): (Option<Timestamp>, Uuid),
) -> Response<Body> {
    let frames = stream::unfold(Some((events, write)), move |open| async move {
        let (mut events, write) = open?;
        let event = tokio::select! {
            biased;
            () = deadline_passed(call.deadline) => Err(FinalStatus::from(&Error::Deadline)),
            event = events.next() => event.transpose(),
        };
        let encode = |event: E| write(&event).map_err(|error| FinalStatus::from(&error));
        let message = event.and_then(|event| event.map(encode).transpose());
        Some(match message {
            Ok(Some(message)) => {
                let data = Frame::data(frame::data(call.transport, &message.bytes));
                (data, Some((events, write)))
            }
            Ok(None) => (final_frame(call.transport, None), None),
            Err(status) => (final_frame(call.transport, Some(&status)), None),
        })
    });
    head(call.transport, Body::generated(frames, expires_at, decision))
}

/// The status of a call that failed after its first message.
#[derive(Clone, Debug)]
pub(crate) struct FinalStatus {
    pub(crate) code: Code,
    pub(crate) message: String,
}

impl From<&Error> for FinalStatus {
    fn from(error: &Error) -> Self {
        Self {
            code: error.answer().0,
            message: error.to_string(),
        }
    }
}

async fn deadline_passed(deadline: Option<Instant>) {
    match deadline {
        // A timer fires only at its next tick, but a deadline that has passed must end the stream
        // now.
        Some(deadline) if deadline <= Instant::now() => {}
        Some(deadline) => sleep_until(deadline).await,
        None => std::future::pending().await,
    }
}

pub(crate) fn refuse(transport: Transport, denial: &Denial) -> Response<Body> {
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

fn percent_encoded(message: &str) -> String {
    let mut text = String::with_capacity(message.len());
    let mut characters = [0; 4];
    for character in message.chars() {
        let before = text.len();
        text.extend(utf8_percent_encode(
            character.encode_utf8(&mut characters),
            PERCENT_ENCODED,
        ));
        if text.len() > MAX_STATUS_MESSAGE_BYTES {
            text.truncate(before);
            break;
        }
    }
    text
}

fn head(transport: Transport, body: Body) -> Response<Body> {
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, transport.content_type());
    response
}

/// The last frame of a stream, with the status.
///
/// - `error`: how the call failed, if it did.
fn final_frame(transport: Transport, error: Option<&FinalStatus>) -> Frame<Bytes> {
    match transport {
        Transport::Grpc => {
            let status = HeaderValue::from(u16::from(number(error)));
            let mut trailers = HeaderMap::from_iter([(STATUS, status)]);
            let message = error.map(|error| HeaderValue::try_from(percent_encoded(&error.message)));
            if let Some(Ok(message)) = message {
                trailers.insert(MESSAGE, message);
            }
            Frame::trailers(trailers)
        }
        Transport::Web | Transport::WebText => Frame::data(frame::trailers(transport, &trailers_text(error))),
    }
}

fn trailers_text(error: Option<&FinalStatus>) -> String {
    let status = format!("grpc-status:{}\r\n", number(error));
    match error {
        Some(error) => format!("{status}grpc-message:{}\r\n", percent_encoded(&error.message)),
        None => status,
    }
}

fn number(error: Option<&FinalStatus>) -> u8 {
    error.map_or(0, |error| error.code.number())
}

#[cfg(test)]
mod tests {
    use http::StatusCode;

    use super::{MAX_STATUS_MESSAGE_BYTES, percent_encoded, refuse};
    use crate::applicationsets::grpc::Transport;
    use serde_json::Value;
    use tollgate_front::{Denial, Refusal};

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
