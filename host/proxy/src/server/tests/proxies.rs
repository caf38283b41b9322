//! Behind proxies: the PROXY protocol, and header fields of single requests.

use super::*;

/// A header of version 2 with the command, the family, and what follows the length.
fn header(command: u8, family: u8, rest: &[u8]) -> Vec<u8> {
    let length = u16::try_from(rest.len()).unwrap().to_be_bytes();
    [b"\r\n\r\n\0\r\nQUIT\n", [command, family].as_slice(), &length, rest].concat()
}

/// The header of a connection of this IPv4 address.
fn of(client: [u8; 4]) -> Vec<u8> {
    header(0x21, 0x11, &[&client[..], &[10, 0, 0, 1, 0x12, 0x67, 1, 187]].concat())
}

const CLIENT: [u8; 4] = [203, 0, 113, 7];

/// The test's own address and that of an ingress behind the load balancer.
fn proxies() -> TrustedProxies {
    TrustedProxies::try_new(["127.0.0.1", "10.0.0.0/8"]).unwrap()
}

/// A server that requires the PROXY protocol, and its backend.
async fn required(limits: Limits, tls: Option<Arc<Certificates>>) -> (TestServer, Backend) {
    let backend = Backend::start(|seen| match seen.line().contains("/stall") {
        true => Reply::Stall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\na".to_vec()),
        false => Reply::ok("x"),
    })
    .await;
    let specs = [spec("metrics", &format!("http://{}/base", backend.address))];
    let gateway = Gateway::new(&specs).unwrap();
    let server = TestServer::changed(gateway, limits, tls, |server| {
        server.behind(proxies(), ProxyProtocol::Required)
    });
    (server.await, backend)
}

#[tokio::test]
async fn the_client_is_the_one_that_the_header_names() {
    let (server, backend) = required(limits(), None).await;
    let v6 = "2001:db8::7".parse::<std::net::Ipv6Addr>().unwrap().octets();
    let v6 = header(0x21, 0x21, &[&v6[..], &v6, &[0x12, 0x67, 1, 187]].concat());
    let forged = "X-Forwarded-For: 198.51.100.1\r\nForwarded: for=198.51.100.1\r\nX-Forwarded-Proto: https\r\n";
    for (header, fields, client) in [
        (of(CLIENT), "", "203.0.113.7"),
        (v6, "", "2001:db8::7"),
        // What a client says of itself counts as little as without the protocol.
        (of(CLIENT), forged, "203.0.113.7"),
        // An ingress behind the load balancer says who its client is.
        (of([10, 1, 2, 3]), "X-Forwarded-For: 198.51.100.1\r\n", "198.51.100.1"),
        // A connection of the load balancer's own, or of somebody it does not know.
        (header(0x20, 0, b""), "", "127.0.0.1"),
        (header(0x20, 0, b""), forged, "127.0.0.1"),
        (header(0x21, 0, b""), forged, "127.0.0.1"),
    ] {
        let mut client_side = Client::connect(server.address).await;
        client_side.send(&[header.clone(), request(GET, fields)].concat()).await;
        let answer = client_side.answer().await.unwrap();
        assert_eq!(answer.status, 200, "{header:?} {fields}");
        let seen = backend.seen().pop().unwrap();
        assert_eq!(seen.values("x-forwarded-for"), [client], "{header:?} {fields}");
        assert_eq!(seen.values("x-forwarded-proto"), ["http"], "{header:?} {fields}");
        // The header belongs to the connection, not to its first request.
        let answer = client_side.exchange(&request(GET, "")).await;
        assert_eq!(answer.status, 200);
    }
}

#[tokio::test]
async fn a_header_may_come_in_pieces_before_http2_too() {
    let (server, backend) = required(limits(), None).await;
    let mut stream = TcpStream::connect(server.address).await.unwrap();
    stream.set_nodelay(true).unwrap();
    for piece in of(CLIENT).chunks(5) {
        stream.write_all(piece).await.unwrap();
        tokio::task::yield_now().await;
    }
    let handshake = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut send, connection) = handshake.await.unwrap();
    tokio::spawn(connection);
    let get = http::Request::get("http://gateway/extensions/metrics/x");
    let get = get.body(Empty::<Bytes>::new()).unwrap();
    assert_eq!(send.send_request(get).await.unwrap().status(), StatusCode::OK);
    assert_eq!(backend.seen()[0].values("x-forwarded-for"), ["203.0.113.7"]);
}

#[tokio::test]
async fn a_connection_without_its_header_is_closed() {
    let (server, backend) = required(limits(), None).await;
    let get = request(GET, "");
    let v1 = b"PROXY TCP4 203.0.113.7 10.0.0.1 4711 443\r\n".to_vec();
    let too_long = header(0x21, 0x11, &vec![0; 5000]);
    for before in [
        b"".to_vec(),
        v1,
        too_long,
        // A version, command, family or address that does not exist, and a datagram's.
        header(0x11, 0x11, &[1; 12]),
        header(0x22, 0x11, &[1; 12]),
        header(0x21, 0x51, &[1; 12]),
        header(0x21, 0x11, &[1; 11]),
        header(0x21, 0x12, &[1; 12]),
        b"\r\n\r\n\0\r\nQUIT\r\n".to_vec(),
        b"\r\n".to_vec(),
    ] {
        let mut client = Client::connect(server.address).await;
        client.send(&[before.clone(), get.clone()].concat()).await;
        assert_eq!(client.rest().await, b"", "{before:?}");
    }
    // The second header is no request.
    let mut client = Client::connect(server.address).await;
    client
        .send(&[of(CLIENT), of([198, 51, 100, 1]), get.clone()].concat())
        .await;
    assert_eq!(client.answer().await.unwrap().status, 400);
    assert!(client.rest().await.is_empty());
    // Only trusted proxies may connect, regardless of what is sent.
    let socket = tokio::net::TcpSocket::new_v4().unwrap();
    socket.bind("127.0.0.2:0".parse().unwrap()).unwrap();
    let mut other = socket.connect(server.address).await.unwrap();
    let _ = other.write_all(&[of(CLIENT), get].concat()).await;
    let mut answer = Vec::new();
    let _ = other.read_to_end(&mut answer).await;
    assert_eq!(answer, b"");
    assert!(backend.seen().is_empty());
}

#[tokio::test]
async fn a_header_that_does_not_end_in_time_is_not_waited_for() {
    let (server, backend) = required(
        Limits {
            header_timeout: SHORT,
            ..limits()
        },
        None,
    )
    .await;
    for begun in [&[][..], &of(CLIENT)[..12], &of(CLIENT)[..20]] {
        let mut client = Client::connect(server.address).await;
        client.send(begun).await;
        assert_eq!(client.rest().await, b"", "{begun:?}");
    }
    assert!(backend.seen().is_empty());
}

#[tokio::test]
async fn connections_are_counted_for_the_client_of_the_header() {
    let (server, _backend) = required(
        Limits {
            connections_per_address: 2,
            ..limits()
        },
        None,
    )
    .await;
    let stall = async |client: [u8; 4]| {
        let mut connection = Client::connect(server.address).await;
        let bytes = [of(client), request("GET /extensions/metrics/stall", "")].concat();
        connection.send(&bytes).await;
        let status = connection.head().await.map(|answer| answer.status);
        (status, connection)
    };
    let [first, second] = [stall(CLIENT).await, stall(CLIENT).await];
    assert_eq!((first.0, second.0), (Some(200), Some(200)));
    assert_eq!(stall(CLIENT).await.0, None);
    // Others come from the same proxy.
    let others = [stall([203, 0, 113, 8]).await, stall([203, 0, 113, 9]).await];
    assert!(others.iter().all(|(status, _)| *status == Some(200)));
    drop(first);
    while stall(CLIENT).await.0.is_none() {
        // Until the gateway has noticed that the first connection is closed.
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn the_header_comes_before_tls() {
    let directory = tempfile::tempdir().unwrap();
    let (files, certificate) = write_certificate(directory.path());
    let certificates = Arc::new(Certificates::load(files, None).unwrap());
    let (server, backend) = required(limits(), Some(Arc::clone(&certificates))).await;
    for protocols in [&[b"h2".as_slice()][..], &[]] {
        let (status, _) = over_tls_after(&of(CLIENT), server.address, &certificate, protocols)
            .await
            .unwrap();
        assert_eq!(status, StatusCode::OK);
        let seen = backend.seen().pop().unwrap();
        assert_eq!(seen.values("x-forwarded-for"), ["203.0.113.7"]);
        assert_eq!(seen.values("x-forwarded-proto"), ["https"]);
    }
    let twice = [of(CLIENT), of(CLIENT)].concat();
    for before in [&b""[..], &twice] {
        assert!(
            over_tls_after(before, server.address, &certificate, &[]).await.is_err(),
            "{before:?}"
        );
    }
    assert_eq!(backend.seen().len(), 2);
}

#[tokio::test]
async fn without_the_setting_a_header_is_no_request() {
    let directory = tempfile::tempdir().unwrap();
    let (files, certificate) = write_certificate(directory.path());
    let certificates = Arc::new(Certificates::load(files, None).unwrap());
    for tls in [None, Some(certificates)] {
        let is_plain = tls.is_none();
        let backend = Backend::start(|_| Reply::ok("x")).await;
        let specs = [spec("metrics", &format!("http://{}/base", backend.address))];
        let server = TestServer::changed(Gateway::new(&specs).unwrap(), limits(), tls, |server| {
            server.behind(proxies(), ProxyProtocol::Absent)
        });
        let server = server.await;
        if is_plain {
            let mut client = Client::connect(server.address).await;
            client.send(&[of(CLIENT), request(GET, "")].concat()).await;
            assert_eq!(client.answer().await.unwrap().status, 400);
            assert!(client.rest().await.is_empty());
        } else {
            let sent = over_tls_after(&of(CLIENT), server.address, &certificate, &[]).await;
            assert!(sent.is_err());
        }
        assert!(backend.seen().is_empty());
    }
}

#[tokio::test]
async fn requests_of_one_http2_connection_may_have_different_clients() {
    let backend = Backend::start(|_| Reply::ok("x")).await;
    let specs = [spec("metrics", &format!("http://{}/base", backend.address))];
    let server = TestServer::changed(Gateway::new(&specs).unwrap(), limits(), None, |server| {
        server.behind(proxies(), ProxyProtocol::Absent)
    });
    let server = server.await;
    let mut send = http2(server.address).await;
    for (client, host) in [("203.0.113.7", "a.example"), ("2001:db8::7", "b.example")] {
        let get = http::Request::get("http://gateway/extensions/metrics/x")
            .header("x-forwarded-for", client)
            .header("x-forwarded-host", host)
            .body(Empty::<Bytes>::new())
            .unwrap();
        assert_eq!(send.send_request(get).await.unwrap().status(), StatusCode::OK);
        let seen = backend.seen().pop().unwrap();
        assert_eq!(seen.values("x-forwarded-for"), [client]);
        assert_eq!(seen.values("x-forwarded-host"), [host]);
    }
}
