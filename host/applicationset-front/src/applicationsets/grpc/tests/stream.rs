//! How streams of events end.

use std::time::Duration;

use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::stream::{self, BoxStream};
use http::HeaderMap;
use http_body_util::BodyExt as _;
use serde_json::{Value, json};
use tokio::time::Instant;

use crate::applicationsets::grpc::call::Call;
use crate::applicationsets::grpc::{MessageCodec, Method, response};
use tollgate_front::grpc::Transport;
use tollgate_proxy::forward::Body;

fn event(kind: &str) -> Value {
    json!({"type": kind, "applicationSet": {"metadata": {"name": "a"}}})
}

fn body(events: BoxStream<'static, Value>, transport: Transport, deadline: Option<Instant>) -> Body {
    let codec = MessageCodec::try_new().expect("descriptors");
    let call = Call {
        method: Method::Watch,
        path: "/applicationset.ApplicationSetService/Watch",
        transport,
        deadline,
    };
    let write = move |event: &Value| codec.encode(call.path, event);
    response::stream(call, events.map(Ok).boxed(), write, None, uuid::Uuid::nil()).into_body()
}

async fn read(mut body: Body) -> (Vec<Bytes>, HeaderMap) {
    let (mut data, mut trailers) = (Vec::new(), HeaderMap::new());
    while let Some(frame) = body.frame().await {
        match frame.expect("a frame").into_data() {
            Ok(bytes) => data.push(bytes),
            Err(frame) => trailers = frame.into_trailers().expect("trailers"),
        }
    }
    (data, trailers)
}

#[tokio::test]
async fn a_stream_ends_with_a_status() {
    let events = stream::iter([event("ADDED"), event("DELETED")]);
    let (data, trailers) = read(body(events.clone().boxed(), Transport::Grpc, None)).await;
    assert_eq!(data.len(), 2);
    assert!(data[0].windows(5).any(|text| text == b"ADDED"));
    assert_eq!(trailers["grpc-status"], "0");
    let (data, trailers) = read(body(events.boxed(), Transport::Web, None)).await;
    assert!(trailers.is_empty());
    assert_eq!(
        data.last().expect("trailers").as_ref(),
        b"\x80\0\0\0\x0fgrpc-status:0\r\n"
    );
}

#[tokio::test]
async fn an_event_that_cannot_be_encoded_ends_a_stream() {
    let events = stream::iter([event("ADDED"), json!({"type": 1}), event("DELETED")]);
    let (data, trailers) = read(body(events.boxed(), Transport::Grpc, None)).await;
    assert_eq!(data.len(), 1);
    assert_eq!(trailers["grpc-status"], "13");
}

#[tokio::test]
async fn a_stream_ends_at_its_deadline() {
    let events = || stream::repeat_with(|| event("ADDED")).take(3).chain(stream::pending());
    let passed = Some(Instant::now());
    let (data, trailers) = read(body(events().boxed(), Transport::Grpc, passed)).await;
    assert_eq!(data, Vec::<Bytes>::new());
    assert_eq!(trailers["grpc-status"], "4");
    // A deadline in the future lets events through.
    let soon = Some(Instant::now() + Duration::from_millis(200));
    let (data, trailers) = read(body(events().boxed(), Transport::Grpc, soon)).await;
    assert_eq!(data.len(), 3);
    assert_eq!(trailers["grpc-status"], "4");
}
