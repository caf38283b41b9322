use bytes::Bytes;
use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use rustls::pki_types::pem::PemObject as _;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;

use super::*;
use crate::forward::tests::test_server::{Gateway, TestServer, eventually, limits, request, spec};
use test_support::authority::{Authority, Pair};
use test_support::backend::{Backend, Reply};
use test_support::client::Client;

mod connect;
mod proxies;

const GET: &str = "GET /extensions/metrics/x";
const SHORT: Duration = Duration::from_millis(150);

async fn start(limits: Limits) -> (TestServer, Backend) {
    let backend = Backend::start(|_| Reply::ok("x")).await;
    let specs = [spec("metrics", &format!("http://{}/base", backend.address))];
    (
        TestServer::with(Gateway::new(&specs).unwrap(), limits, None).await,
        backend,
    )
}

#[tokio::test]
async fn slow_heads_are_408_and_silent_connections_close() {
    let (server, backend) = start(Limits {
        header_timeout: SHORT,
        ..limits()
    })
    .await;
    let mut slow = Client::connect(server.address).await;
    slow.send(b"GET /extensions/metrics/x HTTP/1.1\r\nHost: gateway\r\n")
        .await;
    let mut silent = Client::connect(server.address).await;
    let mut begun = Client::connect(server.address).await;
    begun.send(b"PRI * HT").await;
    let mut second = Client::connect(server.address).await;
    assert_eq!(second.exchange(&request(GET, "")).await.status, 200);
    second.send(b"GET /").await;
    assert_eq!(slow.answer().await.unwrap().status, 408);
    assert_eq!(second.answer().await.unwrap().status, 408);
    // It is unknown whether this was to be HTTP/2: a method may start with `PRI`.
    assert_eq!(begun.answer().await.unwrap().status, 408);
    for client in [&mut slow, &mut silent, &mut begun, &mut second] {
        assert!(client.rest().await.is_empty());
    }
    assert_eq!(backend.seen().len(), 1);
}

#[tokio::test]
async fn a_slow_head_does_not_extend_its_timeout() {
    let (server, backend) = start(Limits {
        header_timeout: SHORT * 2,
        ..limits()
    })
    .await;
    let client = Client::connect(server.address).await;
    let mut ticks = tokio::time::interval(SHORT / 3);
    let (mut read, mut write) = client.stream.into_split();
    let drip = async move {
        let _ = write.write_all(b"GET /extensions/metrics/x HTTP/1.1\r\n").await;
        for number in 0..1000 {
            ticks.tick().await;
            if write.write_all(format!("X-{number}: y\r\n").as_bytes()).await.is_err() {
                break;
            }
        }
    };
    let drip = tokio::spawn(drip);
    let mut answer = Vec::new();
    let _ = tokio::io::AsyncReadExt::read_to_end(&mut read, &mut answer).await;
    drip.abort();
    assert!(
        answer.starts_with(b"HTTP/1.1 408 "),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    assert!(backend.seen().is_empty());
}

#[tokio::test]
async fn idle_connections_are_closed() {
    let (server, _backend) = start(Limits {
        keep_alive: SHORT,
        ..limits()
    })
    .await;
    let mut client = Client::connect(server.address).await;
    assert_eq!(client.exchange(&request(GET, "")).await.status, 200);
    assert!(client.rest().await.is_empty());
}

#[tokio::test]
async fn slow_content_is_408() {
    let (server, backend) = start(Limits {
        body_idle: SHORT,
        ..limits()
    })
    .await;
    let mut client = Client::connect(server.address).await;
    client
        .send(&request("POST /extensions/metrics/x", "Content-Length: 5\r\n"))
        .await;
    client.send(b"x").await;
    assert_eq!(client.answer().await.unwrap().status, 408);
    assert!(backend.seen().is_empty());
    server.idle("metrics").await;
}

#[tokio::test]
async fn pipelined_requests_are_answered_in_order() {
    let (server, backend) = start(limits()).await;
    let mut client = Client::connect(server.address).await;
    let bytes: Vec<u8> = (0..10)
        .flat_map(|n| request(&format!("GET /extensions/metrics/{n}"), ""))
        .collect();
    client.send(&bytes).await;
    for _ in 0..10 {
        assert_eq!(client.answer().await.unwrap().status, 200);
    }
    let lines: Vec<_> = backend.seen().iter().map(|seen| seen.line().to_owned()).collect();
    assert_eq!(
        lines,
        (0..10).map(|n| format!("GET /base/{n} HTTP/1.1")).collect::<Vec<_>>()
    );
}

/// A server whose backend starts every response, and never ends those to `/stall`.
async fn stalling(limits: Limits) -> TestServer {
    let backend = Backend::start(|seen| match seen.line().contains("/stall") {
        true => Reply::Stall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\na".to_vec()),
        false => Reply::ok("x"),
    })
    .await;
    let specs = [spec("metrics", &format!("http://{}/base", backend.address))];
    TestServer::with(Gateway::new(&specs).unwrap(), limits, None).await
}

#[tokio::test]
async fn connections_above_the_bound_wait_for_those_that_are_answered() {
    let server = stalling(Limits {
        connections: 1,
        ..limits()
    })
    .await;
    let mut first = Client::connect(server.address).await;
    first.send(&request("GET /extensions/metrics/stall", "")).await;
    assert_eq!(first.head().await.unwrap().status, 200);
    let mut second = Client::connect(server.address).await;
    second.send(&request(GET, "")).await;
    let early = timeout(SHORT * 3, second.answer()).await;
    assert!(early.is_err(), "answered above the bound");
    assert_eq!(first.through(b"a").await, b"a", "the first goes on");
    drop(first);
    assert_eq!(second.answer().await.unwrap().status, 200);
}

#[tokio::test]
async fn idle_connections_give_way_whatever_they_began_with() {
    let (server, _backend) = start(Limits {
        connections: 8,
        ..limits()
    })
    .await;
    let mut idle_clients = Vec::new();
    for begins in [
        b"".as_slice(),
        b"PRI * HT",
        b"GET /extensions/metrics/x HTTP/1.1\r\nHost: gateway\r\n",
        b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0",
    ] {
        for answered in [false, true] {
            let mut client = Client::connect(server.address).await;
            if answered {
                assert_eq!(client.exchange(&request("GET /none", "")).await.status, 404);
            }
            client.send(begins).await;
            idle_clients.push(client);
        }
    }
    // More clients connect than the limit allows: each is answered, and idle ones are closed.
    let mut clients = Vec::new();
    for _ in 0..20 {
        let mut client = Client::connect(server.address).await;
        assert_eq!(client.exchange(&request(GET, "")).await.status, 200);
        clients.push(client);
    }
    for client in &mut idle_clients {
        client.rest().await;
    }
}

#[tokio::test]
async fn connections_are_counted_and_each_bound_that_acts() {
    let counters = ConnectionCounters::default();
    let limits = Limits {
        connections: 4,
        connections_per_address: 2,
        ..limits()
    };
    let counted = counters.clone();
    let server = TestServer::changed(Gateway::new(&[]).unwrap(), limits, None, |server| {
        server.counted_by(counted)
    });
    let server = server.await;
    let counts = || (counters.open.get(), counters.of_address.get(), counters.in_total.get());
    let connect = async |address: &str| {
        let socket = tokio::net::TcpSocket::new_v4().unwrap();
        socket.bind(format!("{address}:0").parse().unwrap()).unwrap();
        let mut stream = socket.connect(server.address).await.unwrap();
        stream.write_all(&request("GET /none", "")).await.unwrap();
        let mut answer = [0; 12];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(&answer, b"HTTP/1.1 404");
        stream
    };
    let mut open = vec![connect("127.0.0.1").await, connect("127.0.0.1").await];
    assert_eq!((counts(), counters.limit.get()), ((2, 0, 0), 4));
    open.push(connect("127.0.0.1").await);
    eventually(|| counts() == (2, 1, 0)).await;
    for address in ["127.0.0.2", "127.0.0.3", "127.0.0.4"] {
        open.push(connect(address).await);
    }
    assert!(counters.open.get() <= 4);
    assert_eq!(counters.of_address.get(), 1);
    assert!(counters.in_total.get() >= 1);
    drop(open);
    eventually(|| counters.open.get() == 0).await;
    assert_eq!(counters.not_accepted.get(), 0);
}

#[tokio::test]
async fn one_address_cannot_have_every_connection() {
    let server = stalling(Limits {
        connections: 10,
        connections_per_address: 2,
        ..limits()
    })
    .await;
    let mut busy = Vec::new();
    for _ in 0..2 {
        let mut client = Client::connect(server.address).await;
        client.send(&request("GET /extensions/metrics/stall", "")).await;
        assert_eq!(client.head().await.unwrap().status, 200);
        busy.push(client);
    }
    let mut third = Client::connect(server.address).await;
    assert!(third.rest().await.is_empty(), "closed at once");
    // Another address has its own limit.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = socket.connect(server.address).await.unwrap();
    other.write_all(&request(GET, "Connection: close\r\n")).await.unwrap();
    let mut answer = Vec::new();
    other.read_to_end(&mut answer).await.unwrap();
    assert!(
        answer.starts_with(b"HTTP/1.1 200"),
        "{}",
        String::from_utf8_lossy(&answer)
    );
    // Only open connections count.
    drop(busy.pop());
    let mut again = Client::connect(server.address).await;
    loop {
        again.send(&request(GET, "")).await;
        // Until the gateway has noticed that the other connection is closed.
        match again.answer().await {
            Some(answer) => break assert_eq!(answer.status, 200),
            None => again = Client::connect(server.address).await,
        }
    }
}

#[tokio::test]
async fn a_stop_lets_open_requests_finish() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (arrived, release) = (
        Arc::new(tokio::sync::Notify::new()),
        Arc::new(tokio::sync::Notify::new()),
    );
    let (tell, wait) = (arrived.clone(), release.clone());
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; 4096];
        assert!(tokio::io::AsyncReadExt::read(&mut stream, &mut head).await.unwrap() > 0);
        tell.notify_one();
        wait.notified().await;
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\nlate")
            .await
            .unwrap();
    });
    let server = TestServer::start(address, |_| {}).await;
    let mut idle = Client::connect(server.address).await;
    assert_eq!(idle.exchange(&request("GET /none", "")).await.status, 404);
    let mut open = Client::connect(server.address).await;
    open.send(&request(GET, "")).await;
    arrived.notified().await;
    server.stop.cancel();
    assert!(idle.rest().await.is_empty(), "an idle connection is closed at once");
    assert!(!server.done.is_finished());
    release.notify_one();
    let answer = open.answer().await.unwrap();
    assert_eq!((answer.status, answer.content.as_slice()), (200, b"late".as_slice()));
    assert!(open.rest().await.is_empty());
    server.done.await.unwrap();
    assert!(
        TcpStream::connect(server.address).await.is_err(),
        "the listener is closed"
    );
}

#[tokio::test]
async fn connections_are_closed_after_the_drain_timeout() {
    let backend = Backend::start(|_| Reply::Stall(Vec::new())).await;
    let specs = [spec("metrics", &format!("http://{}", backend.address))];
    let server = TestServer::with(
        Gateway::new(&specs).unwrap(),
        Limits {
            drain: SHORT,
            ..limits()
        },
        None,
    )
    .await;
    let mut open = Client::connect(server.address).await;
    open.send(&request(GET, "")).await;
    crate::forward::tests::test_server::eventually(|| backend.seen().len() == 1).await;
    server.stop.cancel();
    assert!(open.answer().await.is_none());
    timeout(Duration::from_secs(20), server.done)
        .await
        .expect("the connection ends in time")
        .unwrap();
}

async fn http2(address: std::net::SocketAddr) -> hyper::client::conn::http2::SendRequest<Empty<Bytes>> {
    let stream = TcpStream::connect(address).await.unwrap();
    let (send, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    send
}

#[tokio::test]
async fn http2_without_tls_obeys_the_same_rules() {
    let (server, backend) = start(limits()).await;
    let mut send = http2(server.address).await;
    let get = |edit: fn(http::request::Builder) -> http::request::Builder| {
        edit(http::Request::get("http://gateway/extensions/metrics/x"))
            .body(Empty::new())
            .unwrap()
    };
    let forged = get(|request| {
        request
            .header("argocd-username", "root")
            .header("x-forwarded-for", "10.0.0.1")
    });
    let response = send.send_request(forged).await.unwrap();
    assert_eq!(response.status(), 200);
    assert_eq!(response.into_body().collect().await.unwrap().to_bytes(), "x");
    let seen = &backend.seen()[0];
    assert_eq!(seen.line(), "GET /base/x HTTP/1.1");
    assert_eq!(seen.values("argocd-username"), ["ada"]);
    assert_eq!(seen.values("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(seen.values("x-forwarded-host"), ["gateway"]);
    assert_eq!(seen.values("host"), [backend.address.to_string()]);
    let other = send
        .send_request(get(|request| request.header("host", "other")))
        .await
        .unwrap();
    assert_eq!(other.status(), 400);
    let many = get(|request| (0..101).fold(request, |request, n| request.header(format!("x-{n}"), "y")));
    assert_eq!(send.send_request(many).await.unwrap().status(), 431);
    let dots = http::Request::get("http://gateway/extensions/metrics/%2e%2e/x")
        .body(Empty::new())
        .unwrap();
    assert_eq!(send.send_request(dots).await.unwrap().status(), 400);
    assert_eq!(backend.seen().len(), 1);
}

#[tokio::test]
async fn http2_connections_without_requests_are_closed() {
    let (server, _backend) = start(Limits {
        keep_alive: SHORT,
        ..limits()
    })
    .await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream)).await;
    let (_send, connection): (hyper::client::conn::http2::SendRequest<Empty<Bytes>>, _) = handshake.unwrap();
    timeout(Duration::from_secs(20), connection)
        .await
        .expect("the connection ends in time")
        .unwrap();
}

/// A certificate for `localhost` in two files of `directory`.
fn write_certificate(
    directory: &std::path::Path,
) -> (tollgate_config::Tls, rustls::pki_types::CertificateDer<'static>) {
    let signed = rcgen::generate_simple_self_signed(vec!["localhost".to_owned()]).unwrap();
    let files = tollgate_config::Tls {
        certificate: directory.join("tls.crt"),
        key: directory.join("tls.key"),
    };
    std::fs::write(&files.certificate, signed.cert.pem()).unwrap();
    std::fs::write(&files.key, signed.signing_key.serialize_pem()).unwrap();
    (files, signed.cert.der().clone())
}

fn connector(trusted: &rustls::pki_types::CertificateDer<'static>, protocols: &[&[u8]]) -> tokio_rustls::TlsConnector {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = protocols.iter().map(|protocol| protocol.to_vec()).collect();
    tokio_rustls::TlsConnector::from(Arc::new(config))
}

fn localhost() -> rustls::pki_types::ServerName<'static> {
    "localhost".try_into().unwrap()
}

/// Sends one request over TLS; returns the status and the protocol that ALPN chose.
async fn over_tls(
    address: std::net::SocketAddr,
    trusted: &rustls::pki_types::CertificateDer<'static>,
    protocols: &[&[u8]],
) -> std::io::Result<(StatusCode, Option<Vec<u8>>)> {
    over_tls_after(b"", address, trusted, protocols).await
}

/// As [`over_tls`], after some bytes in plain text.
async fn over_tls_after(
    before: &[u8],
    address: std::net::SocketAddr,
    trusted: &rustls::pki_types::CertificateDer<'static>,
    protocols: &[&[u8]],
) -> std::io::Result<(StatusCode, Option<Vec<u8>>)> {
    let mut stream = TcpStream::connect(address).await?;
    stream.write_all(before).await?;
    let stream = connector(trusted, protocols).connect(localhost(), stream).await?;
    let chosen = stream.get_ref().1.alpn_protocol().map(<[u8]>::to_vec);
    let get = http::Request::get("https://localhost/extensions/metrics/x").header("host", "localhost");
    let get = get.body(Empty::<Bytes>::new()).unwrap();
    let status = if chosen.as_deref() == Some(b"h2") {
        let (mut send, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        send.send_request(get).await.unwrap().status()
    } else {
        let (mut send, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
            .await
            .unwrap();
        tokio::spawn(connection);
        send.send_request(get).await.unwrap().status()
    };
    Ok((status, chosen))
}

#[tokio::test]
async fn tls_serves_both_versions_and_follows_its_files() {
    let directory = tempfile::tempdir().unwrap();
    let (files, first) = write_certificate(directory.path());
    let certificates = Arc::new(Certificates::load(files.clone(), None).unwrap());
    let backend = Backend::start(|_| Reply::ok("x")).await;
    let specs = [spec("metrics", &format!("http://{}", backend.address))];
    let server = TestServer::with(Gateway::new(&specs).unwrap(), limits(), Some(certificates.clone())).await;
    // A client that sends nothing does not delay others.
    let _silent = TcpStream::connect(server.address).await.unwrap();
    let (status, version) = over_tls(server.address, &first, &[b"h2", b"http/1.1"]).await.unwrap();
    assert_eq!((status, version.as_deref()), (StatusCode::OK, Some(b"h2".as_slice())));
    let (status, version) = over_tls(server.address, &first, &[]).await.unwrap();
    assert_eq!((status, version), (StatusCode::OK, None));
    assert_eq!(backend.seen()[0].values("x-forwarded-proto"), ["https"]);

    std::fs::write(&files.certificate, "broken").unwrap();
    assert!(certificates.reload().is_err());
    over_tls(server.address, &first, &[])
        .await
        .expect("the last good certificate stays");
    let (_, second) = write_certificate(directory.path());
    assert!(certificates.reload().unwrap());
    assert!(!certificates.reload().unwrap());
    over_tls(server.address, &second, &[])
        .await
        .expect("the new certificate is used");
    assert!(
        over_tls(server.address, &first, &[]).await.is_err(),
        "the old one is not"
    );
    let mut plain = Client::connect(server.address).await;
    plain.send(&request(GET, "")).await;
    assert!(plain.answer().await.is_none(), "nothing is served in plain text");
}

/// Enough time for a response head even on a busy machine.
const ENOUGH_FOR_A_HEAD: Duration = Duration::from_secs(1);

/// A server whose extension allows `total` for an exchange.
async fn hurried(backend: &Backend, total: Duration, limits: Limits) -> TestServer {
    let mut spec = spec("metrics", &format!("http://{}/base", backend.address));
    spec.timeouts.total = Some(total);
    TestServer::with(Gateway::new(&[spec]).unwrap(), limits, None).await
}

#[tokio::test]
async fn a_truncated_response_never_looks_complete() {
    let begun = b"HTTP/1.1 200 OK\r\n\r\npart of it".to_vec();
    let backend = Backend::start(move |_| Reply::Stall(begun.clone())).await;
    let server = hurried(&backend, ENOUGH_FOR_A_HEAD, limits()).await;
    for (version, expected) in [
        // Only the end of the connection marks the end of this response.
        ("1.0", Err(std::io::ErrorKind::ConnectionReset)),
        // The last chunk is missing.
        ("1.1", Ok(())),
    ] {
        let mut stream = TcpStream::connect(server.address).await.unwrap();
        let head = format!("{GET} HTTP/{version}\r\nHost: gateway\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        let mut read = Vec::new();
        let mut end = Ok(());
        loop {
            match timeout(Duration::from_secs(20), stream.read_buf(&mut read))
                .await
                .unwrap()
            {
                Ok(0) => break,
                Ok(_) => {}
                Err(error) => {
                    end = Err(error.kind());
                    break;
                }
            }
        }
        assert_eq!(end, expected, "{version}");
        let text = String::from_utf8_lossy(&read);
        assert!(!text.ends_with("0\r\n\r\n"), "{text}");
        assert!(text.contains("part of it"), "{text}");
    }
}

#[tokio::test]
async fn an_http2_client_that_opens_no_window_loses_its_connection() {
    let large = vec![b'x'; 1 << 20];
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {}\r\n\r\n", large.len());
    let answer = [head.as_bytes(), &large].concat();
    let backend = Backend::start(move |_| Reply::Bytes(answer.clone())).await;
    for (total, closed) in [(ENOUGH_FOR_A_HEAD, true), (Duration::from_secs(3600), false)] {
        let short = Limits {
            write_stall: SHORT,
            ..limits()
        };
        let server = hurried(&backend, total, short).await;
        let stream = TcpStream::connect(server.address).await.unwrap();
        let handshake = hyper::client::conn::http2::Builder::new(TokioExecutor::new())
            .initial_stream_window_size(0)
            .handshake(TokioIo::new(stream))
            .await;
        let (mut send, connection): (hyper::client::conn::http2::SendRequest<Empty<Bytes>>, _) = handshake.unwrap();
        let ended = tokio::spawn(connection);
        let request = http::Request::get("http://gateway/extensions/metrics/x");
        let response = send.send_request(request.body(Empty::new()).unwrap()).await.unwrap();
        assert_eq!(response.status(), 200);
        assert_eq!(server.open("metrics"), 1);
        if closed {
            let _ = timeout(Duration::from_secs(20), ended)
                .await
                .expect("the connection ends in time");
            server.idle("metrics").await;
        } else {
            // The exchange has not timed out, so the connection stays open.
            assert!(timeout(SHORT * 6, ended).await.is_err());
            assert_eq!(server.open("metrics"), 1);
        }
        drop(response);
    }
}

/// Whether a request with this client certificate is answered.
async fn is_accepted(address: std::net::SocketAddr, server: &Authority, client: &Pair) -> bool {
    let mut roots = rustls::RootCertStore::empty();
    let parse = |pem: &str| rustls::pki_types::CertificateDer::from_pem_slice(pem.as_bytes()).unwrap();
    roots.add(parse(&server.pem)).unwrap();
    let key = rustls::pki_types::PrivateKeyDer::from_pem_slice(client.key.as_bytes()).unwrap();
    let config = rustls::ClientConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_client_auth_cert(vec![parse(&client.certificate)], key)
        .unwrap();
    let connector = tokio_rustls::TlsConnector::from(Arc::new(config));
    let stream = TcpStream::connect(address).await.unwrap();
    let Ok(mut stream) = connector.connect(localhost(), stream).await else {
        return false;
    };
    // In TLS 1.3 the server refuses a client after the client's part of the handshake.
    let request = b"GET /extensions/metrics/x HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n";
    let mut answer = Vec::new();
    stream.write_all(request).await.is_ok()
        && stream.read_to_end(&mut answer).await.is_ok()
        && answer.starts_with(b"HTTP/1.1 200")
}

#[tokio::test]
async fn authorities_of_clients_are_followed() {
    let directory = tempfile::tempdir().unwrap();
    let (server, first, second) = (
        Authority::new("server"),
        Authority::new("first"),
        Authority::new("second"),
    );
    let pair = server.server(&["localhost"]);
    let files = tollgate_config::Tls {
        certificate: directory.path().join("tls.crt"),
        key: directory.path().join("tls.key"),
    };
    let clients = directory.path().join("clients.crt");
    std::fs::write(&files.certificate, &pair.certificate).unwrap();
    std::fs::write(&files.key, &pair.key).unwrap();
    std::fs::write(&clients, &first.pem).unwrap();
    let certificates = Arc::new(Certificates::load(files.clone(), Some(&clients)).unwrap());
    let backend = Backend::start(|_| Reply::ok("x")).await;
    let specs = [spec("metrics", &format!("http://{}", backend.address))];
    let server_under_test = TestServer::with(Gateway::new(&specs).unwrap(), limits(), Some(certificates.clone())).await;
    let address = server_under_test.address;
    let (old, new) = (first.client("api", None), second.client("api", None));
    let accepted = async || {
        [
            is_accepted(address, &server, &old).await,
            is_accepted(address, &server, &new).await,
        ]
    };
    assert_eq!(accepted().await, [true, false]);

    // A rotation: both, then the new one alone.
    std::fs::write(&clients, format!("{}{}", first.pem, second.pem)).unwrap();
    assert!(certificates.reload().unwrap());
    assert!(!certificates.reload().unwrap());
    assert_eq!(accepted().await, [true, true]);
    std::fs::write(&clients, &second.pem).unwrap();
    assert!(certificates.reload().unwrap());
    assert_eq!(accepted().await, [false, true]);

    // A file that cannot be used changes nothing, and does not hold up another one.
    let renewed = server.server(&["localhost"]);
    std::fs::write(&files.certificate, &renewed.certificate).unwrap();
    std::fs::write(&files.key, &renewed.key).unwrap();
    std::fs::write(&clients, "broken").unwrap();
    let before = certificates.chain();
    assert!(certificates.reload().is_err());
    assert_ne!(certificates.chain(), before);
    assert_eq!(accepted().await, [false, true]);
}

#[tokio::test]
async fn a_handshake_that_fails_says_why() {
    let directory = tempfile::tempdir().unwrap();
    let (files, trusted) = write_certificate(directory.path());
    let clients = Authority::new("clients");
    let file = directory.path().join("clients.crt");
    std::fs::write(&file, &clients.pem).unwrap();
    let certificates = Certificates::load(files, Some(&file)).unwrap();
    let failure = async |client: tokio_rustls::TlsConnector, sends_other: bool| {
        let (near, far) = tokio::io::duplex(16 * 1024);
        let client = async move {
            let mut near = near;
            if sends_other {
                near.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            } else if let Ok(mut stream) = client.connect(localhost(), near).await {
                let _ = stream.read_u8().await;
            }
        };
        let (accepted, ()) = tokio::join!(certificates.acceptor().accept(far), client);
        HandshakeFailure::of(&accepted.err().unwrap())
    };
    let without = connector(&trusted, &[]);
    assert_eq!(
        failure(without.clone(), false).await,
        HandshakeFailure::ClientCertificateMissing
    );
    assert_eq!(failure(without, true).await, HandshakeFailure::Other);
    let (_, other) = write_certificate(tempfile::tempdir().unwrap().path());
    assert_eq!(
        failure(connector(&other, &[]), false).await,
        HandshakeFailure::ServerCertificateRefused
    );
    let elapsed = tokio::time::timeout(Duration::ZERO, std::future::pending::<()>())
        .await
        .unwrap_err();
    assert_eq!(HandshakeFailure::of(&elapsed.into()), HandshakeFailure::Timeout);
}
