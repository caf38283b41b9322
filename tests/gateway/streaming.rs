//! Bodies, events and tunnels through the whole gateway.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::{Duration, Instant};

use futures_util::{SinkExt as _, StreamExt as _};
use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpSocket, TcpStream};
use tokio::sync::Notify;
use tokio::time::timeout;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use crate::wire::{admin, bare, discard, get, many, once, read_head, reason, request, status};
use test_support::backend::{Backend, Reply};
use test_support::client::{Client, PATIENCE};
use test_support::token;
use test_support::world::{SESSION_KEY, Setup, World};

/// Bytes of a large body.
const LARGE: usize = 100 << 20;
/// More bytes than four kernel buffers of loopback sockets and the gateway's own windows hold
/// together.
const IN_FLIGHT: usize = 40 << 20;
/// A writer that makes no progress for this long is held back.
const HELD_BACK: Duration = Duration::from_millis(500);

/// The listener of a backend whose connections the test serves itself.
pub(crate) async fn bare_backend() -> (TcpListener, SocketAddr) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    (listener, address)
}

/// Writes at most `most` bytes, until the peer takes no more. Returns how many it took.
async fn write_until_held_back(stream: &mut TcpStream, most: usize) -> usize {
    let piece = vec![b'x'; 1 << 16];
    let mut written = 0;
    while written < most {
        let next = &piece[..piece.len().min(most - written)];
        match timeout(HELD_BACK, stream.write(next)).await {
            Ok(length) => written += length.unwrap(),
            Err(_) => break,
        }
    }
    written
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_waits_for_a_backend_that_does_not_read() {
    let (listener, address) = bare_backend().await;
    let world = Setup::with_backend(address).start().await;
    let mut client = TcpStream::connect(world.address()).await.unwrap();
    let head = request("POST", "echo/up", "alice", &format!("content-length: {LARGE}\r\n"));
    client.write_all(&head).await.unwrap();
    let (mut backend, _) = listener.accept().await.unwrap();
    let (seen, behind) = read_head(&mut backend).await;
    assert!(seen.starts_with("POST /up HTTP/1.1\r\n"), "{seen}");

    let accepted = write_until_held_back(&mut client, LARGE).await;
    assert!(
        accepted < IN_FLIGHT,
        "{accepted} bytes were taken for a backend that reads none"
    );

    let reading = tokio::spawn(async move {
        discard(&mut backend, LARGE - behind.len()).await;
        backend.write_all(b"HTTP/1.1 204 No Content\r\n\r\n").await.unwrap();
        backend
    });
    let rest = vec![b'x'; LARGE - accepted];
    timeout(PATIENCE, client.write_all(&rest))
        .await
        .expect("the rest in time")
        .unwrap();
    let (answer, _) = read_head(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 204 "), "{answer}");
    reading.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_download_waits_for_a_client_that_does_not_read() {
    let (listener, address) = bare_backend().await;
    let world = Setup::with_backend(address).start().await;
    let mut client = TcpStream::connect(world.address()).await.unwrap();
    client.write_all(&get("echo/down", "alice")).await.unwrap();
    let (mut backend, _) = listener.accept().await.unwrap();
    read_head(&mut backend).await;
    let head = format!("HTTP/1.1 200 OK\r\ncontent-length: {LARGE}\r\n\r\n");
    backend.write_all(head.as_bytes()).await.unwrap();

    let accepted = write_until_held_back(&mut backend, LARGE).await;
    assert!(
        accepted < IN_FLIGHT,
        "{accepted} bytes were taken for a client that reads none"
    );

    let writing = tokio::spawn(async move {
        let rest = vec![b'x'; LARGE - accepted];
        timeout(PATIENCE, backend.write_all(&rest))
            .await
            .expect("the rest in time")
            .unwrap();
        backend
    });
    let (answer, behind) = read_head(&mut client).await;
    assert!(answer.starts_with("HTTP/1.1 200 "), "{answer}");
    discard(&mut client, LARGE - behind.len()).await;
    writing.await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn events_arrive_one_by_one() {
    let (listener, address) = bare_backend().await;
    let world = Setup::with_backend(address).start().await;
    let mut client = Client::connect(world.address()).await;
    client.send(&get("echo/events", "alice")).await;
    let (mut backend, _) = listener.accept().await.unwrap();
    read_head(&mut backend).await;
    let head = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n";
    backend.write_all(head.as_bytes()).await.unwrap();
    let answer = client.head().await.unwrap();
    assert_eq!(answer.values("content-type"), ["text/event-stream"]);
    for count in 0..5 {
        // The next event is written only after this one has arrived.
        let event = format!("data: {count}\n\n");
        let chunk = format!("{:x}\r\n{event}\r\n", event.len());
        backend.write_all(chunk.as_bytes()).await.unwrap();
        let arrived = client.through(b"\n\n\r\n").await;
        assert!(arrived.ends_with(format!("{event}\r\n").as_bytes()), "{arrived:?}");
    }
    backend.write_all(b"0\r\n\r\n").await.unwrap();
    client.through(b"0\r\n\r\n").await;
}

/// Starts a WebSocket server that echoes messages.
async fn websocket_echo() -> SocketAddr {
    let (listener, address) = bare_backend().await;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
                while let Some(Ok(message)) = socket.next().await {
                    if message.is_text() || message.is_binary() {
                        socket.send(message).await.unwrap();
                    }
                }
            });
        }
    });
    address
}

#[tokio::test(flavor = "multi_thread")]
async fn websockets_carry_messages_both_ways() {
    let world = Setup::with_backend(websocket_echo().await).start().await;
    let mut opening = format!("ws://{}/api/v1/extensions/echo/socket", world.address())
        .into_client_request()
        .unwrap();
    let bearer = format!("Bearer {}", token::session(SESSION_KEY, "alice"));
    for (name, value) in [
        ("authorization", bearer.as_str()),
        ("argocd-application-name", "argocd:cart"),
        ("argocd-project-name", "shop"),
    ] {
        opening.headers_mut().insert(name, value.parse().unwrap());
    }
    let stream = TcpStream::connect(world.address()).await.unwrap();
    let (mut socket, answer) = tokio_tungstenite::client_async(opening, stream).await.unwrap();
    assert_eq!(answer.status(), 101);
    for message in [Message::text("hello"), Message::binary(vec![7; 300_000])] {
        socket.send(message.clone()).await.unwrap();
        let echo = timeout(PATIENCE, socket.next())
            .await
            .expect("an echo in time")
            .unwrap()
            .unwrap();
        assert_eq!(echo, message);
    }
    socket.close(None).await.unwrap();
}

/// Fields of a WebSocket handshake with the session in a cookie.
fn cookie_handshake(origin: &str) -> Vec<u8> {
    let token = token::session(SESSION_KEY, "alice");
    let fields = format!(
        "cookie: argocd.token={token}\r\norigin: {origin}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    );
    bare("GET", "echo/socket", &fields)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_page_of_another_site_cannot_open_a_websocket_with_the_cookie() {
    let world = Setup::with_backend(websocket_echo().await).start().await;
    let refused = once(&world, &cookie_handshake("https://evil.example")).await;
    assert_eq!(refused.status, 403, "{}", refused.head);
    assert_eq!(reason(&refused), "cross_site_request");
    let opened = once(&world, &cookie_handshake("http://gateway.test")).await;
    assert_eq!(opened.status, 101, "{}", opened.head);
}

/// Two extensions: `slow` at one backend, `echo` at the other.
async fn slow_and_echo(slow: SocketAddr, echo: SocketAddr) -> World {
    let mut setup = Setup::with_backend(echo);
    let block = format!("{{services: [{{url: 'http://{slow}'}}]}}");
    setup.argocd_cm.insert("extension.config.slow".to_owned(), block);
    setup.start().await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_hanging_backend_slows_nobody_else() {
    const HANGING: usize = 50;
    let slow = Backend::start(|_| Reply::Stall(Vec::new())).await;
    let echo = Backend::start(|_| Reply::ok("quick")).await;
    let world = slow_and_echo(slow.address, echo.address).await;
    let mut hanging = Vec::new();
    for _ in 0..HANGING {
        let mut client = Client::connect(world.address()).await;
        client.send(&get("slow/", "alice")).await;
        hanging.push(client);
    }
    world
        .until("all to hang", || async { slow.seen().len() == HANGING })
        .await;
    let seen = many(&world, "echo/", "alice", 1_000).await;
    assert_eq!(seen.into_iter().collect::<Vec<_>>(), [(200, 1_000)]);
    assert_eq!((slow.seen().len(), slow.closed()), (HANGING, 0), "all still hang");
}

/// A gateway whose extension `echo` has this backend and these further settings.
async fn bounded(address: SocketAddr, settings: &str) -> World {
    Setup::with_extension(&format!("{{services: [{{url: 'http://{address}'}}], {settings}}}"))
        .start()
        .await
}

#[tokio::test(flavor = "multi_thread")]
async fn a_silent_backend_is_408_before_the_head_and_breaks_the_stream_after() {
    let backend = Backend::start(|seen| match seen.line().contains("/headless") {
        true => Reply::Stall(Vec::new()),
        false => Reply::Stall(b"HTTP/1.1 200 OK\r\ncontent-length: 10\r\n\r\nhalf".to_vec()),
    })
    .await;
    let world = bounded(backend.address, "timeouts: {idle: 1s}").await;
    let refused = once(&world, &get("echo/headless", "alice")).await;
    assert_eq!((refused.status, reason(&refused).as_str()), (408, "backend_silent"));

    let mut client = Client::connect(world.address()).await;
    client.send(&get("echo/half", "alice")).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    assert_eq!(
        client.rest().await,
        b"half",
        "the connection ends with the content cut short"
    );
    world
        .until("both to be given up", || async { backend.closed() == 2 })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn the_total_time_is_504_before_the_head_and_breaks_the_stream_after() {
    let (listener, address) = bare_backend().await;
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let (head, _) = read_head(&mut stream).await;
                if head.contains("/headless") {
                    let _ = stream.read_u8().await;
                    return;
                }
                let _ = stream
                    .write_all(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n")
                    .await;
                // Sends without a pause and without an end.
                while stream.write_all(b"1\r\nx\r\n").await.is_ok() {
                    tokio::time::sleep(Duration::from_millis(10)).await;
                }
            });
        }
    });
    let world = bounded(address, "timeouts: {total: 1s}").await;
    let refused = once(&world, &get("echo/headless", "alice")).await;
    assert_eq!((refused.status, reason(&refused).as_str()), (504, "backend_too_slow"));

    let mut client = Client::connect(world.address()).await;
    client.send(&get("echo/endless", "alice")).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    let rest = client.rest().await;
    assert!(!rest.is_empty() && !rest.ends_with(b"0\r\n\r\n"), "{rest:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_does_not_take_connections_is_502_in_time() {
    let socket = TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.1:0".parse().unwrap()).unwrap();
    let listener = socket.listen(1).unwrap();
    let address = listener.local_addr().unwrap();
    // Once its queue is full, the kernel accepts no more connections.
    let mut queued = Vec::new();
    while let Ok(stream) = timeout(Duration::from_millis(200), TcpStream::connect(address)).await {
        queued.push(stream.unwrap());
    }
    let world = bounded(address, "connectionTimeout: 300ms").await;
    let begun = Instant::now();
    let refused = once(&world, &get("echo/", "alice")).await;
    assert_eq!(
        (refused.status, reason(&refused).as_str()),
        (502, "backend_unreachable")
    );
    let taken = begun.elapsed();
    assert!(taken >= Duration::from_millis(300), "{taken:?}");
    assert!(
        taken < Duration::from_secs(2),
        "{taken:?}: the default of 2 s applied instead of the setting"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_ends_with_its_lifetime() {
    let world = bounded(websocket_echo().await, "timeouts: {upgradeLifetime: 1s}").await;
    let mut client = Client::connect(world.address()).await;
    let begun = Instant::now();
    client.send(&cookie_handshake("http://gateway.test")).await;
    assert_eq!(client.head().await.unwrap().status, 101);
    client.rest().await;
    let taken = begun.elapsed();
    assert!(taken >= Duration::from_secs(1), "{taken:?}");
}

/// A session token of alice that ends within three seconds.
pub(crate) fn ending_session() -> String {
    let now = jiff::Timestamp::now().as_second();
    let claims = json!({"iss": "argocd", "sub": "alice:login", "iat": now, "nbf": now, "exp": now + 3, "jti": "1"});
    token::sign(SESSION_KEY, &claims)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_ends_with_the_callers_token() {
    let world = Setup::with_backend(websocket_echo().await).start().await;
    let token = ending_session();
    let handshake = format!(
        "authorization: Bearer {token}\r\nconnection: upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n"
    );
    let mut client = Client::connect(world.address()).await;
    client.send(&bare("GET", "echo/", &handshake)).await;
    assert_eq!(client.head().await.unwrap().status, 101);
    let begun = Instant::now();
    client.rest().await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_leaves_cancels_its_request() {
    let backend = Backend::start(|_| Reply::Stall(Vec::new())).await;
    let world = Setup::with_backend(backend.address).start().await;
    let mut client = Client::connect(world.address()).await;
    client.send(&get("echo/", "alice")).await;
    world
        .until("the backend to see it", || async { backend.seen().len() == 1 })
        .await;
    assert_eq!(backend.closed(), 0);
    drop(client);
    world
        .until("the backend's connection to end", || async { backend.closed() == 1 })
        .await;
    let cancelled = || async {
        let page = admin(&world, "/decisions?outcome=cancelled").await;
        String::from_utf8(page.content).unwrap().contains("\"status\":499")
    };
    world.until("the record", cancelled).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_lets_open_requests_end() {
    let (listener, address) = bare_backend().await;
    let world = Setup::with_backend(address).start().await;
    let gateway = world.address();
    let mut client = Client::connect(gateway).await;
    client.send(&get("echo/slow", "alice")).await;
    let (mut backend, _) = listener.accept().await.unwrap();
    read_head(&mut backend).await;

    let stopped = Arc::new(Notify::new());
    let stopping = tokio::spawn({
        let stopped = stopped.clone();
        let World { running, .. } = world;
        async move {
            running.stop().await.unwrap();
            stopped.notify_one();
        }
    });
    let refuses = async { while TcpStream::connect(gateway).await.is_ok() {} };
    timeout(PATIENCE, refuses).await.expect("no new connections");
    assert!(!stopping.is_finished(), "the stop waits for an open request");
    backend
        .write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 4\r\n\r\ndone")
        .await
        .unwrap();
    let answer = client.answer().await.unwrap();
    assert_eq!((answer.status, answer.content.as_slice()), (200, b"done".as_slice()));
    timeout(PATIENCE, stopped.notified())
        .await
        .expect("the stop ends with the last request");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_what_does_not_end_in_time() {
    let backend = Backend::start(|_| Reply::Stall(Vec::new())).await;
    let mut setup = Setup::with_backend(backend.address);
    setup.settings = json!({"drain": "300ms"});
    let world = setup.start().await;
    let mut client = Client::connect(world.address()).await;
    client.send(&get("echo/", "alice")).await;
    world
        .until("the backend to see it", || async { backend.seen().len() == 1 })
        .await;
    timeout(PATIENCE, world.running.stop())
        .await
        .expect("the stop does not wait forever")
        .unwrap();
    let answer = String::from_utf8(client.rest().await).unwrap();
    let is_refused = answer.starts_with("HTTP/1.1 503 ") && answer.contains("\"reason\":\"gateway_stopping\"");
    assert!(is_refused, "{answer}");
}

/// A watch never ends by itself, so it has its end, and its record the reason, before the drain is over.
#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_streams_before_it_cuts_connections() {
    let backend =
        Backend::start(|_| Reply::Stall(b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n".to_vec()))
            .await;
    let mut setup = Setup::with_backend(backend.address);
    setup.settings = json!({"drain": "2s"});
    let world = setup.start().await;
    let mut client = Client::connect(world.address()).await;
    client.send(&get("echo/stream", "alice")).await;
    let head = client.head().await.expect("a head");
    assert_eq!(head.status, 200, "{}", head.head);
    let decision = head.values("tollgate-decision-id")[0].to_owned();
    let records = world.path("decisions.jsonl");
    timeout(PATIENCE, world.running.stop())
        .await
        .expect("the stop does not wait for the stream")
        .unwrap();
    // The client sees that it is not complete: there is no last chunk.
    assert_eq!(client.rest().await, b"1\r\na\r\n");
    let lines = std::fs::read_to_string(records).unwrap();
    let lines = lines
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap());
    // The other line is of the decision.
    let ended: Vec<_> = lines
        .filter(|line| line["decision_id"] == decision.as_str() && line.get("ended").is_some())
        .map(|line| line["ended"]["reason"].clone())
        .collect();
    assert_eq!(ended, ["gateway_stopping"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn refused_calls_do_not_reach_the_backend() {
    let backend = Backend::start(|_| Reply::ok("never")).await;
    let world = Setup::with_backend(backend.address).start().await;
    assert_eq!(status(&world, "echo/", "bob").await, 403);
    assert_eq!((backend.connections(), backend.seen().len()), (0, 0));
    assert_eq!(status(&world, "echo/", "alice").await, 200);
}
