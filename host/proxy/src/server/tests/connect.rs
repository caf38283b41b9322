//! Tunnels that `CONNECT` opens.

use std::sync::Mutex;

use http::Method;
use rustls::pki_types::CertificateDer;
use tokio::io::{AsyncRead, AsyncWrite, DuplexStream};
use tokio::sync::Notify;
use tokio_rustls::client::TlsStream;

use super::*;
use crate::client::Client as Caller;

/// Answers with what the server says of the request.
#[derive(Default)]
struct Probe {
    /// Paths of the requests that were handled.
    seen: Mutex<Vec<String>>,
    refused: Mutex<Vec<RequestReadError>>,
    arrived: Notify,
    /// Lets a request of `/wait` end.
    release: Notify,
}

impl Handler for Probe {
    async fn handle(&self, request: Request<Body>, client: &Arc<Caller>) -> Response<Body> {
        self.seen.lock().unwrap().push(request.uri().path().to_owned());
        if request.uri().path() == "/wait" {
            self.arrived.notify_one();
            self.release.notified().await;
        }
        let authority = client
            .connect_authority()
            .map_or("none", |authority| authority.as_str());
        let scheme = client.scheme();
        Response::new(Body::from(format!("{authority} {} {scheme}", client.address())))
    }

    fn refuse(
        &self,
        refusal: RequestReadError,
        _head: Option<&request::Parts>,
        client: &Arc<Caller>,
    ) -> Response<Body> {
        self.refused.lock().unwrap().push(refusal);
        let authority = client
            .connect_authority()
            .map_or("none", |authority| authority.as_str());
        Response::new(Body::from(authority.to_owned()))
    }

    fn accepts_connect(&self) -> bool {
        true
    }
}

struct Listening {
    address: std::net::SocketAddr,
    certificate: CertificateDer<'static>,
    probe: Arc<Probe>,
    stop: CancellationToken,
    done: tokio::task::JoinHandle<()>,
    _directory: tempfile::TempDir,
}

impl Listening {
    async fn start(limits: Limits) -> Self {
        Self::changed(limits, |server| server).await
    }

    async fn changed(limits: Limits, change: impl FnOnce(Server) -> Server) -> Self {
        let directory = tempfile::tempdir().unwrap();
        let (files, certificate) = write_certificate(directory.path());
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let certificates = Arc::new(Certificates::load(files, None).unwrap());
        let server = change(Server::new(listener, Some(certificates), limits));
        let (probe, stop) = (Arc::new(Probe::default()), CancellationToken::new());
        let done = tokio::spawn(server.serve(Arc::clone(&probe), stop.clone()));
        Self {
            address,
            certificate,
            probe,
            stop,
            done,
            _directory: directory,
        }
    }

    /// A connection without a tunnel.
    async fn outer(&self, protocols: &[&[u8]]) -> TlsStream<TcpStream> {
        let stream = TcpStream::connect(self.address).await.unwrap();
        let connector = connector(&self.certificate, protocols);
        connector.connect(localhost(), stream).await.unwrap()
    }

    /// A connection in a tunnel for `target`.
    async fn inner(&self, target: &str, protocols: &[&[u8]], first: FirstBytes) -> TlsStream<DuplexStream> {
        let connect = connect(target, "");
        let carried = carry(self.outer(&[]).await, connect, first);
        let connector = connector(&self.certificate, protocols);
        connector.connect(localhost(), carried).await.unwrap()
    }

    fn seen(&self) -> Vec<String> {
        self.probe.seen.lock().unwrap().clone()
    }

    fn refused(&self) -> Vec<RequestReadError> {
        self.probe.refused.lock().unwrap().clone()
    }
}

/// When a client sends the first bytes of a tunnel.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum FirstBytes {
    AfterResponse,
    WithConnect,
}

fn connect(target: &str, lines: &str) -> Vec<u8> {
    format!("CONNECT {target} HTTP/1.1\r\nHost: {target}\r\n{lines}\r\n").into_bytes()
}

/// Opens a tunnel on `outer` as soon as something is written to the result, and copies bytes
/// between both.
fn carry(mut outer: TlsStream<TcpStream>, connect: Vec<u8>, first: FirstBytes) -> DuplexStream {
    let (near, mut far) = tokio::io::duplex(1 << 16);
    tokio::spawn(async move {
        let mut bytes = Vec::new();
        far.read_buf(&mut bytes).await.unwrap();
        match first {
            FirstBytes::AfterResponse => {
                outer.write_all(&connect).await.unwrap();
                opened(&mut outer).await;
                outer.write_all(&bytes).await.unwrap();
            }
            FirstBytes::WithConnect => {
                outer.write_all(&[connect, bytes].concat()).await.unwrap();
                opened(&mut outer).await;
            }
        }
        let _ = tokio::io::copy_bidirectional(&mut outer, &mut far).await;
    });
    near
}

/// Reads a response head, which opens the tunnel.
async fn opened(outer: &mut TlsStream<TcpStream>) {
    let head = head(outer).await.to_ascii_lowercase();
    assert!(head.starts_with("http/1.1 200 "), "{head}");
    for field in ["content-length", "transfer-encoding", "connection"] {
        assert!(!head.contains(field), "{head}");
    }
}

async fn head(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut head = Vec::new();
    while !head.ends_with(b"\r\n\r\n") {
        head.push(stream.read_u8().await.unwrap());
    }
    String::from_utf8(head).unwrap()
}

/// Everything until the server ends the connection.
async fn rest(stream: &mut (impl AsyncRead + Unpin)) -> String {
    let mut rest = Vec::new();
    let end = timeout(Duration::from_secs(20), stream.read_to_end(&mut rest)).await;
    let _ = end.expect("the connection ends in time");
    String::from_utf8_lossy(&rest).into_owned()
}

/// Sends bytes and returns everything until the server ends the connection.
async fn sent(stream: &mut (impl AsyncRead + AsyncWrite + Unpin), bytes: &[u8]) -> String {
    let _ = stream.write_all(bytes).await;
    let _ = stream.flush().await;
    rest(stream).await
}

fn last(path: &str) -> Vec<u8> {
    request(&format!("GET {path}"), "Connection: close\r\n")
}

async fn http2_on<S: AsyncRead + AsyncWrite + Send + Unpin + 'static>(
    stream: S,
) -> hyper::client::conn::http2::SendRequest<Empty<Bytes>> {
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (send, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    send
}

#[tokio::test]
async fn only_unambiguous_targets_open_a_tunnel() {
    let server = Listening::start(limits()).await;
    let text = |text: &str| text.as_bytes().to_vec();
    for (request, status) in [
        (connect("prod.example:6443", ""), 200),
        (connect("[2001:db8::1]:6443", ""), 200),
        (connect("prod.example:6443", "Content-Length: 0\r\n"), 200),
        (
            text("CONNECT prod.example:6443 HTTP/1.1\r\nHost: prod.example\r\n\r\n"),
            200,
        ),
        (connect("prod.example:6443", "Content-Length: 3\r\n"), 400),
        (connect("prod.example:6443", "Transfer-Encoding: chunked\r\n"), 400),
        (connect("prod.example:6443", "Host: prod.example:6443\r\n"), 400),
        (connect("prod.example:6443", " folded\r\n"), 400),
        (connect("prod.example", ""), 400),
        (connect("prod.example:0", ""), 400),
        (connect("user@prod.example:6443", ""), 400),
        (connect("http://prod.example:6443", ""), 400),
        (connect("/prod.example:6443", ""), 400),
        (connect("prod.example:6443/", ""), 400),
        (connect("::1:6443", ""), 400),
        (connect("[fe80::1%25eth0]:6443", ""), 400),
        (connect("prod%2eexample:6443", ""), 400),
        (connect("*", ""), 400),
        (
            text("CONNECT prod.example:6443 HTTP/1.1\r\nHost: other.example\r\n\r\n"),
            400,
        ),
        (text("CONNECT prod.example:6443 HTTP/1.1\r\n\r\n"), 400),
        (
            text("CONNECT prod.example:6443 HTTP/1.0\r\nHost: prod.example:6443\r\n\r\n"),
            400,
        ),
        (
            text("connect prod.example:6443 HTTP/1.1\r\nHost: prod.example:6443\r\n\r\n"),
            400,
        ),
    ] {
        let mut outer = server.outer(&[]).await;
        outer.write_all(&request).await.unwrap();
        let shown = String::from_utf8_lossy(&request);
        let head = head(&mut outer).await;
        assert!(
            head.starts_with(&format!("HTTP/1.1 {status} ")) || head.starts_with("HTTP/1.0 400 "),
            "{shown} {head}"
        );
        // A refused one has a record and ends the connection.
        let refusals = std::mem::take(&mut *server.probe.refused.lock().unwrap());
        assert_eq!(refusals.len(), usize::from(status == 400), "{shown} {refusals:?}");
        assert!(
            refusals.iter().all(|refusal| refusal.status() == status),
            "{shown} {refusals:?}"
        );
        if status == 400 {
            assert!(!sent(&mut outer, &last("/hidden")).await.contains("HTTP/"), "{shown}");
        }
    }
    assert_eq!(server.seen(), [""; 0]);
}

#[tokio::test]
async fn a_tunnel_carries_both_versions_with_its_target() {
    let server = Listening::start(limits()).await;
    let expected = "prod.example:6443 127.0.0.1 https";
    for first in [FirstBytes::AfterResponse, FirstBytes::WithConnect] {
        let mut inner = server.inner("PROD.example:6443", &[b"http/1.1"], first).await;
        inner.write_all(&request("GET /a", "")).await.unwrap();
        assert!(head(&mut inner).await.starts_with("HTTP/1.1 200 "));
        inner.read_exact(&mut vec![0; expected.len()]).await.unwrap();
        // Framing is checked inside as outside.
        let smuggled = "Content-Length: 3\r\nTransfer-Encoding: chunked\r\n";
        let ambiguous = sent(&mut inner, &request("POST /b", smuggled)).await;
        assert!(ambiguous.starts_with("HTTP/1.1 400 "), "{first:?} {ambiguous}");
        assert!(ambiguous.ends_with("prod.example:6443"), "{first:?} {ambiguous}");

        let inner = server.inner("prod.example:6443", &[b"h2"], first).await;
        assert_eq!(inner.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
        let mut send = http2_on(inner).await;
        for path in ["/c", "/d"] {
            let get = http::Request::get(format!("https://gateway{path}"))
                .body(Empty::new())
                .unwrap();
            let response = send.send_request(get).await.unwrap();
            assert_eq!(
                response.into_body().collect().await.unwrap().to_bytes(),
                expected,
                "{first:?}"
            );
        }
    }
    assert_eq!(server.seen(), ["/a", "/c", "/d", "/a", "/c", "/d"]);
    // Requests before a tunnel are not in it.
    let mut outer = server.outer(&[]).await;
    outer.write_all(&request("GET /before", "")).await.unwrap();
    assert!(head(&mut outer).await.starts_with("HTTP/1.1 200 "));
    let mut content = vec![0; "none 127.0.0.1 https".len()];
    outer.read_exact(&mut content).await.unwrap();
    assert_eq!(content, b"none 127.0.0.1 https");
    let carried = carry(outer, connect("a:1", ""), FirstBytes::WithConnect);
    let connector = connector(&server.certificate, &[]);
    let mut inner = connector.connect(localhost(), carried).await.unwrap();
    assert!(sent(&mut inner, &last("/after")).await.ends_with("a:1 127.0.0.1 https"));
}

#[tokio::test]
async fn a_client_that_agreed_on_http2_may_open_a_tunnel_with_http1() {
    let server = Listening::start(Limits {
        header_timeout: ENOUGH_FOR_A_HEAD,
        ..limits()
    })
    .await;
    let outer = server.outer(&[b"h2", b"http/1.1"]).await;
    assert_eq!(outer.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
    let carried = carry(outer, connect("prod.example:6443", ""), FirstBytes::AfterResponse);
    let inner = connector(&server.certificate, &[b"h2"])
        .connect(localhost(), carried)
        .await
        .unwrap();
    let get = http::Request::get("https://gateway/").body(Empty::new()).unwrap();
    let response = http2_on(inner).await.send_request(get).await.unwrap();
    let content = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(content, "prod.example:6443 127.0.0.1 https");
    // Nothing else is read as HTTP/1.1, and the wait for the first bytes is bounded.
    for (bytes, answer) in [(&last("/hidden")[..], None), (b"", Some("")), (b"CONNE", Some(""))] {
        let mut outer = server.outer(&[b"h2"]).await;
        let got = sent(&mut outer, bytes).await;
        assert!(!got.contains("HTTP/1.1"), "{got}");
        assert!(answer.is_none_or(|answer| answer == got), "{got}");
    }
    assert_eq!(server.seen(), ["/"]);
}

#[tokio::test]
async fn what_follows_a_connect_is_no_request_of_its_connection() {
    let server = Listening::start(limits()).await;
    for before in [
        connect("prod.example:6443", ""),
        connect("prod.example", ""),
        connect(
            "prod.example:6443",
            &format!("Content-Length: {}\r\n", last("/hidden").len()),
        ),
        connect("prod.example:6443", "Upgrade: websocket\r\nConnection: upgrade\r\n"),
    ] {
        // In one packet with the head, and after the response.
        let mut outer = server.outer(&[]).await;
        let answer = sent(&mut outer, &[before.clone(), last("/hidden")].concat()).await;
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 1, "{answer}");
        let mut outer = server.outer(&[]).await;
        outer.write_all(&before).await.unwrap();
        head(&mut outer).await;
        let answer = sent(&mut outer, &last("/hidden")).await;
        assert_eq!(answer.matches("HTTP/1.1 ").count(), 0, "{answer}");
    }
    assert_eq!(server.seen(), [""; 0]);
}

#[tokio::test]
async fn tunnels_are_opened_only_once_by_http1_over_tls_where_the_handler_agrees() {
    let server = Listening::start(limits()).await;
    // Inside a tunnel.
    let mut inner = server.inner("prod.example:6443", &[], FirstBytes::AfterResponse).await;
    let answer = sent(&mut inner, &connect("prod.example:6443", "")).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
    // In HTTP/2, outside of a tunnel and inside.
    let outer = http2_on(server.outer(&[b"h2"]).await).await;
    let inner = server
        .inner("prod.example:6443", &[b"h2"], FirstBytes::AfterResponse)
        .await;
    for mut send in [outer, http2_on(inner).await] {
        let connect = http::Request::builder()
            .method(Method::CONNECT)
            .uri("prod.example:6443");
        let response = send.send_request(connect.body(Empty::new()).unwrap()).await.unwrap();
        assert_eq!(response.status(), StatusCode::BAD_REQUEST);
    }
    let refusal = RequestReadError::Target(crate::target::Error::Connect);
    assert_eq!(server.refused(), [refusal; 3]);
    // In plain text, and where the handler does not agree.
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let probe = Arc::new(Probe::default());
    tokio::spawn(Server::new(listener, None, limits()).serve(Arc::clone(&probe), CancellationToken::new()));
    let mut plain = Client::connect(address).await;
    assert_eq!(plain.exchange(&connect("prod.example:6443", "")).await.status, 400);
    assert!(plain.rest().await.is_empty());
    assert_eq!(probe.refused.lock().unwrap().as_slice(), [refusal]);
    let (server, _backend) = start(limits()).await;
    let mut plain = Client::connect(server.address).await;
    assert_eq!(plain.exchange(&connect("prod.example:6443", "")).await.status, 400);
    let directory = tempfile::tempdir().unwrap();
    let (files, certificate) = write_certificate(directory.path());
    let certificates = Arc::new(Certificates::load(files, None).unwrap());
    let server = TestServer::with(Gateway::new(&[]).unwrap(), limits(), Some(certificates)).await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let mut outer = connector(&certificate, &[]).connect(localhost(), stream).await.unwrap();
    let answer = sent(&mut outer, &connect("prod.example:6443", "")).await;
    assert!(answer.starts_with("HTTP/1.1 400 "), "{answer}");
}

#[tokio::test]
async fn silent_and_idle_tunnels_are_closed() {
    let bounds = Limits {
        header_timeout: ENOUGH_FOR_A_HEAD,
        ..limits()
    };
    let server = Listening::start(bounds).await;
    let without_tls = async |begun: &[u8]| {
        let mut outer = server.outer(&[]).await;
        outer.write_all(&connect("prod.example:6443", "")).await.unwrap();
        opened(&mut outer).await;
        sent(&mut outer, begun).await
    };
    let with_tls = async |server: &Listening, bytes: &[u8]| {
        let mut inner = server.inner("prod.example:6443", &[], FirstBytes::AfterResponse).await;
        sent(&mut inner, bytes).await
    };
    let (nothing, hello, silent, begun) = tokio::join!(
        without_tls(b""),
        without_tls(b"\x16\x03\x01"),
        // That the connection sent a request, the `CONNECT`, does not extend this.
        with_tls(&server, b""),
        with_tls(&server, b"GET / HT"),
    );
    assert_eq!([nothing.as_str(), &hello, &silent], [""; 3]);
    assert!(begun.starts_with("HTTP/1.1 408 "), "{begun}");
    assert_eq!(server.refused(), [RequestReadError::HeadTimeout(ENOUGH_FOR_A_HEAD)]);

    let server = Listening::start(Limits {
        keep_alive: SHORT,
        ..bounds
    })
    .await;
    let answered = with_tls(&server, &request("GET /", "")).await;
    assert!(answered.ends_with("prod.example:6443 127.0.0.1 https"), "{answered}");
}

#[tokio::test]
async fn a_stop_ends_tunnels_and_lets_their_requests_finish() {
    let server = Listening::start(limits()).await;
    let mut outer = server.outer(&[]).await;
    outer.write_all(&connect("prod.example:6443", "")).await.unwrap();
    opened(&mut outer).await;
    let mut idle = server.inner("prod.example:6443", &[], FirstBytes::AfterResponse).await;
    let mut open = server.inner("prod.example:6443", &[], FirstBytes::AfterResponse).await;
    open.write_all(&request("GET /wait", "")).await.unwrap();
    server.probe.arrived.notified().await;
    server.stop.cancel();
    assert_eq!(rest(&mut outer).await, "");
    assert_eq!(rest(&mut idle).await, "");
    assert!(!server.done.is_finished());
    server.probe.release.notify_one();
    let answer = rest(&mut open).await;
    assert!(answer.ends_with("prod.example:6443 127.0.0.1 https"), "{answer}");
    timeout(Duration::from_secs(20), server.done)
        .await
        .expect("the server ends in time")
        .unwrap();
}

#[tokio::test]
async fn requests_in_tunnels_are_cut_after_the_drain_timeout() {
    let server = Listening::start(Limits {
        drain: SHORT,
        ..limits()
    })
    .await;
    let mut open = server.inner("prod.example:6443", &[], FirstBytes::AfterResponse).await;
    open.write_all(&request("GET /wait", "")).await.unwrap();
    server.probe.arrived.notified().await;
    server.stop.cancel();
    assert_eq!(rest(&mut open).await, "");
    timeout(Duration::from_secs(20), server.done)
        .await
        .expect("the server ends in time")
        .unwrap();
}

#[tokio::test]
async fn a_tunnel_holds_the_place_of_its_connection() {
    for bound in [
        Limits {
            connections: 1,
            ..limits()
        },
        Limits {
            connections_per_address: 1,
            ..limits()
        },
    ] {
        let server = Listening::start(bound).await;
        // Idle tunnels give way, before TLS and after it.
        let mut outer = server.outer(&[]).await;
        outer.write_all(&connect("prod.example:6443", "")).await.unwrap();
        opened(&mut outer).await;
        let mut idle = server.inner("prod.example:6443", &[], FirstBytes::AfterResponse).await;
        assert_eq!(rest(&mut outer).await, "");
        let mut open = server.inner("prod.example:6443", &[], FirstBytes::AfterResponse).await;
        assert_eq!(rest(&mut idle).await, "");
        // One with a request does not.
        open.write_all(&request("GET /wait", "")).await.unwrap();
        server.probe.arrived.notified().await;
        let connected = async {
            let stream = TcpStream::connect(server.address).await.unwrap();
            connector(&server.certificate, &[]).connect(localhost(), stream).await
        };
        let refused = timeout(SHORT * 2, connected).await;
        assert!(!matches!(refused, Ok(Ok(_))), "a connection above the bound");
        server.probe.release.notify_one();
        assert!(head(&mut open).await.starts_with("HTTP/1.1 200 "));
        drop(open);
        let again = async {
            loop {
                // Until the gateway has noticed that the tunnel is closed.
                let stream = TcpStream::connect(server.address).await.unwrap();
                if let Ok(mut outer) = connector(&server.certificate, &[]).connect(localhost(), stream).await {
                    break sent(&mut outer, &last("/")).await;
                }
            }
        };
        let answer = timeout(Duration::from_secs(20), again)
            .await
            .expect("a connection in time");
        assert!(answer.ends_with("none 127.0.0.1 https"), "{answer}");
    }
}

#[tokio::test]
async fn a_proxy_is_believed_in_its_connect_and_not_inside() {
    let server = Listening::changed(limits(), |server| {
        let trusted = TrustedProxies::try_new(["127.0.0.1"]).unwrap();
        server.behind(trusted, ProxyProtocol::Absent)
    })
    .await;
    let forged = "X-Forwarded-For: 198.51.100.1\r\nX-Forwarded-Proto: http\r\nConnection: close\r\n";
    for (fields, address) in [
        ("", "127.0.0.1"),
        (
            "X-Forwarded-For: 203.0.113.7\r\nX-Forwarded-Proto: http\r\n",
            "203.0.113.7",
        ),
    ] {
        let connect = connect("prod.example:6443", fields);
        let carried = carry(server.outer(&[]).await, connect, FirstBytes::AfterResponse);
        let connector = connector(&server.certificate, &[]);
        let mut inner = connector.connect(localhost(), carried).await.unwrap();
        let answer = sent(&mut inner, &request("GET /", forged)).await;
        let expected = format!("prod.example:6443 {address} https");
        assert!(answer.ends_with(&expected), "{answer}");
    }
}
