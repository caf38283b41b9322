//! Exchanges that an end signal terminates.

use std::sync::Mutex;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::net::TcpStream;

use super::*;
use tollgate_identity::sessions::{EndReason, EndSignal};

const EVENT: &[u8] = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n";
const END_REASONS: [(EndReason, &str); 2] = [
    (EndReason::Revoked, "the caller's session was revoked"),
    (EndReason::Expired, "the caller's credential ended"),
];

#[tokio::test]
async fn the_end_signal_ends_the_wait_for_a_head() {
    for (reason, message) in END_REASONS {
        let backend = backend::Backend::start(|_| Reply::Stall(Vec::new())).await;
        let (end, signal) = EndSignal::for_test();
        let server = TestServer::ended_by(backend.address, signal).await;
        let mut client = Client::connect(server.address).await;
        client.send(&request(GET, "")).await;
        eventually(|| backend.seen().len() == 1).await;
        end(reason);
        let answer = client.answer().await.unwrap();
        assert_eq!((answer.status, text(&answer)), (401, message));
        eventually(|| backend.closed() == 1).await;
        server.idle("metrics").await;
    }
}

#[tokio::test]
async fn no_request_is_sent_after_the_end_signal() {
    let backend = backend::Backend::start(|_| Reply::ok("x")).await;
    let (end, signal) = EndSignal::for_test();
    let server = TestServer::ended_by(backend.address, signal).await;
    assert_eq!(get(&server).await.status, 200, "requests pass before the end signal");
    end(EndReason::Revoked);
    assert_eq!(get(&server).await.status, 401);
    assert_eq!(backend.seen().len(), 1);
}

#[tokio::test]
async fn the_end_signal_truncates_a_response() {
    for (reason, _) in END_REASONS {
        let backend = backend::Backend::start(|_| Reply::Stall(EVENT.to_vec())).await;
        let (end, signal) = EndSignal::for_test();
        let server = TestServer::ended_by(backend.address, signal).await;
        let mut client = Client::connect(server.address).await;
        client.send(&request(GET, "")).await;
        assert_eq!(client.head().await.unwrap().status, 200);
        client.through(b"a\r\n").await;
        assert_eq!((backend.closed(), server.open("metrics")), (0, 1), "open until the end");
        end(reason);
        assert_eq!(client.rest().await, b"", "no last chunk: the response is truncated");
        eventually(|| backend.closed() == 1).await;
        server.idle("metrics").await;
    }
}

#[tokio::test]
async fn the_end_signal_truncates_a_response_that_never_pauses() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let stopped = Arc::new(AtomicUsize::new(0));
    let count = stopped.clone();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; 4096];
        assert!(stream.read(&mut head).await.unwrap() > 0);
        let _ = stream.write_all(EVENT).await;
        while stream.write_all(b"1\r\na\r\n").await.is_ok() {}
        count.fetch_add(1, Ordering::SeqCst);
    });
    let (end, signal) = EndSignal::for_test();
    let server = TestServer::ended_by(address, signal).await;
    let mut client = Client::connect(server.address).await;
    client.send(&request(GET, "")).await;
    client.through(b"a\r\n1\r\na\r\n1\r\na\r\n").await;
    end(EndReason::Revoked);
    assert!(!client.rest().await.ends_with(b"0\r\n\r\n"));
    eventually(|| stopped.load(Ordering::SeqCst) == 1).await;
}

#[tokio::test]
async fn the_end_signal_stops_an_upload_before_and_during_the_response() {
    for early in [&b""[..], EVENT] {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (arrived, ended) = (Arc::new(Mutex::new(Vec::new())), Arc::new(AtomicUsize::new(0)));
        let counts = (arrived.clone(), ended.clone());
        tokio::spawn(async move {
            let (mut stream, _) = listener.accept().await.unwrap();
            let mut buffer = [0; 4096];
            while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                let first = counts.0.lock().unwrap().is_empty();
                counts.0.lock().unwrap().extend_from_slice(&buffer[..length]);
                if first {
                    stream.write_all(early).await.unwrap();
                }
            }
            counts.1.fetch_add(1, Ordering::SeqCst);
        });
        let (end, signal) = EndSignal::for_test();
        let server = TestServer::ended_by(address, signal).await;
        let mut client = Client::connect(server.address).await;
        client
            .send(&request("POST /extensions/metrics/x", "Content-Length: 1000\r\n"))
            .await;
        client.send(b"some").await;
        eventually(|| arrived.lock().unwrap().ends_with(b"some")).await;
        if !early.is_empty() {
            assert_eq!(client.head().await.unwrap().status, 200);
            client.through(b"a\r\n").await;
            client.send(b"more").await;
            eventually(|| arrived.lock().unwrap().ends_with(b"more")).await;
        }
        assert_eq!(ended.load(Ordering::SeqCst), 0);
        end(EndReason::Revoked);
        if early.is_empty() {
            let answer = client.answer().await.unwrap();
            assert_eq!(
                (answer.status, text(&answer)),
                (401, "the caller's session was revoked")
            );
        } else {
            assert_eq!(client.rest().await, b"", "no last chunk: the response is truncated");
        }
        eventually(|| ended.load(Ordering::SeqCst) == 1).await;
    }
}

#[tokio::test]
async fn the_end_signal_closes_a_tunnel_on_both_sides() {
    let spdy = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nContent-Length: 0\r\n";
    for (reason, _) in END_REASONS {
        let tunnel = b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: SPDY/3.1\r\n\r\nhello";
        let backend = backend::Backend::start(|_| Reply::Stall(tunnel.to_vec())).await;
        let (end, signal) = EndSignal::for_test();
        let server = TestServer::ended_by(backend.address, signal).await;
        let mut client = Client::connect(server.address).await;
        client.send(&request("POST /extensions/metrics/exec", spdy)).await;
        assert_eq!(client.head().await.unwrap().status, 101);
        client.through(b"hello").await;
        assert_eq!((backend.closed(), server.open("metrics")), (0, 1));
        end(reason);
        assert_eq!(client.rest().await, b"");
        eventually(|| backend.closed() == 1).await;
        server.idle("metrics").await;
    }
}

async fn over_http2(
    server: &TestServer,
    window: u32,
) -> (http2::SendRequest<Empty<Bytes>>, tokio::task::JoinHandle<()>) {
    let stream = TcpStream::connect(server.address).await.unwrap();
    let handshake = http2::Builder::new(TokioExecutor::new())
        .initial_stream_window_size(window)
        .handshake(TokioIo::new(stream))
        .await;
    let (send, connection) = handshake.unwrap();
    let ended = tokio::spawn(async move {
        let _ = connection.await;
    });
    (send, ended)
}

fn http2_get(path: &str) -> http::Request<Empty<Bytes>> {
    let url = format!("http://gateway/extensions/metrics/{path}");
    http::Request::get(url).body(Empty::new()).unwrap()
}

#[tokio::test]
async fn the_end_signal_resets_only_its_own_http2_stream() {
    let backend = backend::Backend::start(|_| Reply::Stall(EVENT.to_vec())).await;
    let (end, signal) = EndSignal::for_test();
    let server = TestServer::ended_by(backend.address, signal).await;
    let (mut send, _connection) = over_http2(&server, 65_535).await;
    let mut bodies = Vec::new();
    for path in ["x", "spared"] {
        let mut body = send.send_request(http2_get(path)).await.unwrap().into_body();
        assert_eq!(body.frame().await.unwrap().unwrap().into_data().unwrap(), "a");
        bodies.push(body);
    }
    end(EndReason::Revoked);
    let error = bodies[0].frame().await.expect("no clean end").unwrap_err();
    assert!(
        error.to_string().contains("reset") || format!("{error:?}").contains("Reset"),
        "{error:?}"
    );
    eventually(|| backend.closed() == 1).await;
    let spared = tokio::time::timeout(SHORT, bodies[1].frame()).await;
    assert!(spared.is_err(), "the other stream was ended too");
    assert_eq!(server.open("metrics"), 1);
}

#[tokio::test]
async fn an_http2_client_that_reads_nothing_is_disconnected_after_the_end_signal() {
    for ended in [true, false] {
        let backend = backend::Backend::start(|_| Reply::Stall(EVENT.to_vec())).await;
        let (end, signal) = EndSignal::for_test();
        let short = crate::server::Limits {
            write_stall: SHORT,
            ..limits()
        };
        let server = TestServer::ended_within(backend.address, signal, short).await;
        let (mut send, connection) = over_http2(&server, 0).await;
        let response = send.send_request(http2_get("x")).await.unwrap();
        assert_eq!(response.status(), 200);
        if ended {
            end(EndReason::Revoked);
            tokio::time::timeout(Duration::from_secs(20), connection)
                .await
                .expect("the connection ends in time")
                .unwrap();
            server.idle("metrics").await;
        } else {
            // Without an end signal, the connection stays open.
            assert!(tokio::time::timeout(SHORT * 6, connection).await.is_err());
            assert_eq!(server.open("metrics"), 1);
        }
    }
}
