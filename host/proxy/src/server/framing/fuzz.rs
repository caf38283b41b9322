//! Fuzz target: the validator together with hyper, the parser that reads what the validator passed
//! on.

use std::convert::Infallible;
use std::sync::{Arc, Mutex, PoisonError};

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;

use super::{FramingValidator, State};
use tollgate_fuzz::{Target, inputs, strings};

pub(crate) const TARGETS: &[Target] = &[Target {
    name: "request_guard",
    run: request_guard,
    seeds,
}];

/// Longest line the validator checks; short, so that inputs exceed it.
const LINE_BYTES: usize = 256;

fn seeds() -> Vec<Vec<u8>> {
    let mut seeds = inputs(strings(
        &["tests/data/attacks.yaml"],
        &["bytes", "request", "raw", "send"],
    ));
    seeds.extend(inputs([
        "GET / HTTP/1.1\r\nHost: a\r\n\r\nGET /b HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabcGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "POST / HTTP/1.1\r\nHost: a\r\nTransfer-Encoding: chunked\r\n\r\n3;x=y\r\nabc\r\n0\r\nDigest: x\r\n\r\nGET / HTTP/1.1\r\n\r\n",
        "POST / HTTP/1.1\r\nContent-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n",
        "GET / HTTP/1.1\r\nHost: a\r\nConnection: upgrade\r\nUpgrade: websocket\r\n\r\n",
        "CONNECT a:443 HTTP/1.1\r\nHost: a:443\r\n\r\nGET / HTTP/1.1\r\nHost: a\r\n\r\n",
        "GET / HTTP/1.0\r\nContent-Length: 1\r\n\r\nx",
        "PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
        "\r\n\r\nGET / HTTP/1.1\r\nA:b\r\n c\r\n\r\n",
    ]));
    seeds
}

#[derive(Debug, Default, PartialEq, Eq)]
struct Seen {
    heads: usize,
    /// Bytes of content of each request whose content ended.
    contents: Vec<u64>,
}

/// What the validator reads, byte by byte; how many bytes it passes on; and whether it checked all
/// of them.
fn by_validator(data: &[u8]) -> (Seen, usize, bool) {
    let mut validator = FramingValidator::new(LINE_BYTES);
    let mut seen = Seen::default();
    let mut content = 0;
    for (at, byte) in data.iter().enumerate() {
        let before = validator.state;
        let heads = validator.heads;
        if validator.scan(std::slice::from_ref(byte)).is_err() {
            return (seen, at, true);
        }
        if validator.heads > heads {
            seen.heads += 1;
            content = 0;
        }
        if matches!(before, State::Content(_) | State::Chunk(_)) {
            content += 1;
        }
        let began = validator.state == State::RequestLine && validator.partial.is_empty();
        if began && (before != State::RequestLine) {
            seen.contents.push(content);
        }
        if validator.state == State::Unchecked {
            return (seen, data.len(), false);
        }
    }
    (seen, data.len(), true)
}

fn by_hyper(data: &[u8]) -> Seen {
    let seen = Arc::new(Mutex::new(Seen::default()));
    let of_service = Arc::clone(&seen);
    let service = service_fn(move |request: Request<Incoming>| {
        let seen = Arc::clone(&of_service);
        async move {
            seen.lock().unwrap_or_else(PoisonError::into_inner).heads += 1;
            if let Ok(content) = request.into_body().collect().await {
                let length = u64::try_from(content.to_bytes().len()).unwrap_or(u64::MAX);
                seen.lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .contents
                    .push(length);
            }
            Ok::<_, Infallible>(Response::new(Empty::<Bytes>::new()))
        }
    });
    let runtime = tokio::runtime::Builder::new_current_thread().build();
    let Ok(runtime) = runtime else { return Seen::default() };
    runtime.block_on(async {
        let (mut client, server) = tokio::io::duplex(data.len() + 1);
        let (mut answers, mut requests) = tokio::io::split(&mut client);
        let serving = hyper::server::conn::http1::Builder::new().serve_connection(TokioIo::new(server), service);
        let sending = async {
            // A server that closes early has read what it wants.
            let _ = requests.write_all(data).await;
            let _ = requests.shutdown().await;
        };
        let mut sink = tokio::io::sink();
        let reading = tokio::io::copy(&mut answers, &mut sink);
        let ((), _, _) = tokio::join!(sending, serving, reading);
    });
    drop(runtime);
    Arc::try_unwrap(seen)
        .map(|seen| seen.into_inner().unwrap_or_else(PoisonError::into_inner))
        .unwrap_or_default()
}

/// hyper finds exactly the requests and ends of requests that the validator found, so nothing can
/// hide behind a request. It may refuse more, and then reads no further.
fn request_guard(data: &[u8]) {
    let (seen, passed, checked) = by_validator(data);
    let mut whole = FramingValidator::new(LINE_BYTES);
    let at_once = whole.scan(data);
    assert_eq!(at_once.is_ok(), passed == data.len(), "pieces change the verdict");
    if !checked {
        return;
    }
    let read = by_hyper(data.get(..passed).unwrap_or_default());
    assert!(read.heads <= seen.heads, "guard {seen:?}, hyper {read:?}");
    let agreed = read
        .contents
        .iter()
        .zip(&seen.contents)
        .all(|(read, seen)| read == seen);
    assert!(
        agreed && read.contents.len() <= seen.contents.len(),
        "guard {seen:?}, hyper {read:?}"
    );
}
