//! Encodes responses for clients of gRPC and gRPC-Web: messages, or an error, followed by a
//! status.
//!
//! Invariant: a response without messages has its status in the headers, because some clients of
//! gRPC-Web do not read the trailers then.

use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use http::{HeaderMap, HeaderName, HeaderValue, Response};
use http_body::Frame;
use jiff::Timestamp;
use tokio::time::{Instant, sleep_until};
use uuid::Uuid;

use crate::applicationsets::grpc::call::Call;
use crate::applicationsets::grpc::{EncodedMessage, Error, frame};
use crate::applicationsets::request::Code;
use tollgate_front::grpc::{MESSAGE, STATUS, Transport, head, percent_encoded};
use tollgate_proxy::forward::Body;

const OMITTED_FIELDS: HeaderName = HeaderName::from_static("tollgate-left-out");

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
    expires_at: Option<Timestamp>,
    decision: Uuid,
) -> Response<Body> {
    let frames = stream::unfold(Some((events, write)), move |open| async move {
        let (mut events, write) = open?;
        let event = tokio::select! {
            // The deadline comes first. Otherwise a stream that always has an event could outlive it.
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
