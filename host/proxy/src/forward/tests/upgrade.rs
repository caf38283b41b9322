//! Connections that switch protocols.

use futures_util::{SinkExt as _, StreamExt as _};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio_tungstenite::tungstenite::Message;

use super::ENOUGH_FOR_A_HEAD;
use super::test_server::{TestServer, eventually, request};
use test_support::backend::{Backend, Reply};
use test_support::client::Client;

const SPDY: &str = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n\
                    X-Stream-Protocol-Version: v3.channel.k8s.io\r\nContent-Length: 0\r\n";
const EXEC: &str = "POST /extensions/metrics/exec";

#[tokio::test]
async fn websocket_messages_are_echoed() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (stream, _) = listener.accept().await.unwrap();
        let mut socket = tokio_tungstenite::accept_async(stream).await.unwrap();
        while let Some(Ok(message)) = socket.next().await {
            if message.is_text() || message.is_binary() {
                socket.send(message).await.unwrap();
            }
        }
    });
    let server = TestServer::start(address, |_| {}).await;
    let stream = TcpStream::connect(server.address).await.unwrap();
    let (mut socket, response) = tokio_tungstenite::client_async("ws://gateway/extensions/metrics/live", stream)
        .await
        .unwrap();
    assert_eq!(response.status(), 101);
    for message in [Message::text("hello"), Message::binary(vec![7; 1 << 20])] {
        socket.send(message.clone()).await.unwrap();
        assert_eq!(socket.next().await.unwrap().unwrap(), message);
    }
    assert_eq!(server.open("metrics"), 1, "a tunnel is an open request");
    socket.close(None).await.unwrap();
    while socket.next().await.is_some() {}
    drop(socket);
    server.idle("metrics").await;
}

/// Switches to SPDY and sends back every byte in upper case.
async fn uppercase_echo() -> std::net::SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            tokio::spawn(async move {
                let mut buffer = [0; 4096];
                let length = stream.read(&mut buffer).await.unwrap();
                let head = String::from_utf8_lossy(&buffer[..length]).to_ascii_lowercase();
                assert!(
                    head.contains("upgrade: spdy/3.1\r\n") && head.contains("connection: upgrade\r\n"),
                    "{head}"
                );
                assert!(!head.contains("transfer-encoding"), "{head}");
                assert_eq!(head.matches("x-stream-protocol-version").count(), 2, "{head}");
                let answer = "HTTP/1.1 101 Switching Protocols\r\nconnection: Upgrade\r\nupgrade: SPDY/3.1\r\n\r\n";
                stream.write_all(answer.as_bytes()).await.unwrap();
                while let Ok(length @ 1..) = stream.read(&mut buffer).await {
                    buffer[..length].make_ascii_uppercase();
                    if stream.write_all(&buffer[..length]).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    address
}

#[tokio::test]
async fn bytes_pass_in_a_spdy_tunnel() {
    let server = TestServer::start(uppercase_echo().await, |_| {}).await;
    let mut client = Client::connect(server.address).await;
    let answer = client.exchange(&request(EXEC, SPDY)).await;
    assert_eq!((answer.status, answer.values("upgrade")), (101, vec!["SPDY/3.1"]));
    client.send(b"get / http/1.1\n\r\0 bytes\xff!").await;
    assert_eq!(client.through(b"!").await, b"GET / HTTP/1.1\n\r\0 BYTES\xff!");
    client.stream.shutdown().await.unwrap();
    assert!(client.rest().await.is_empty());
    server.idle("metrics").await;
}

#[tokio::test]
async fn tunnels_end_when_idle_and_after_their_lifetime() {
    for lifetime in [false, true] {
        let server = TestServer::start(uppercase_echo().await, |spec| {
            if lifetime {
                spec.timeouts.upgrade_lifetime = Some(ENOUGH_FOR_A_HEAD);
            } else {
                spec.timeouts.idle = Some(ENOUGH_FOR_A_HEAD);
            }
        })
        .await;
        let mut client = Client::connect(server.address).await;
        assert_eq!(client.exchange(&request(EXEC, SPDY)).await.status, 101);
        client.send(b"a").await;
        assert_eq!(client.rest().await, b"A");
        server.idle("metrics").await;
    }
}

#[tokio::test]
async fn a_stop_closes_tunnels_after_the_drain_timeout() {
    let spec = super::spec("metrics", &format!("http://{}", uppercase_echo().await));
    let short = crate::server::Limits {
        drain: ENOUGH_FOR_A_HEAD,
        ..super::limits()
    };
    let server = TestServer::with(super::Gateway::new(&[spec]).unwrap(), short, None).await;
    let mut client = Client::connect(server.address).await;
    assert_eq!(client.exchange(&request(EXEC, SPDY)).await.status, 101);
    server.stop.cancel();
    client.send(b"a").await;
    assert_eq!(client.rest().await, b"A", "the tunnel works until the drain ends");
    server.done.await.unwrap();
}

#[tokio::test]
async fn only_a_101_opens_a_tunnel() {
    for (reply, status) in [
        ("HTTP/1.1 403 Forbidden\r\ncontent-length: 2\r\n\r\nno", 403),
        ("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok", 200),
        (
            "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n",
            502,
        ),
        ("HTTP/1.1 101 Switching Protocols\r\n\r\n", 502),
    ] {
        let backend = Backend::start(|_| Reply::Bytes(reply.as_bytes().to_vec())).await;
        let server = TestServer::start(backend.address, |_| {}).await;
        let mut client = Client::connect(server.address).await;
        let mut bytes = request(EXEC, SPDY);
        bytes.extend_from_slice(b"GET /extensions/metrics/smuggled HTTP/1.1\r\nHost: gateway\r\n\r\n");
        let answer = client.exchange(&bytes).await;
        assert_eq!(
            (answer.status, answer.values("connection")),
            (status, vec!["close"]),
            "{reply}"
        );
        assert!(client.rest().await.is_empty(), "what follows is not a request");
        assert_eq!(backend.seen().len(), 1);
        server.idle("metrics").await;
    }
}

#[tokio::test]
async fn an_unrequested_101_is_502() {
    let reply = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n";
    let backend = Backend::start(|_| Reply::Bytes(reply.as_bytes().to_vec())).await;
    let server = TestServer::start(backend.address, |_| {}).await;
    let answer = Client::connect(server.address)
        .await
        .exchange(&request("GET /extensions/metrics/x", ""))
        .await;
    assert_eq!(answer.status, 502);
    eventually(|| backend.closed() == 1).await;
}
