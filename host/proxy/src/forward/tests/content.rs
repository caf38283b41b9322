//! Content that is large, slow or too long, and trailers.

use super::*;

#[tokio::test]
async fn a_slow_upload_does_not_hit_the_idle_timeout() {
    const IDLE: Duration = Duration::from_secs(2);
    const BYTES: u32 = 8;
    let backend = backend::Backend::start(|seen| Reply::ok(&seen.content.len().to_string())).await;
    let server = TestServer::start(backend.address, |spec| spec.timeouts.idle = Some(IDLE)).await;
    let mut client = Client::connect(server.address).await;
    let length = format!("Content-Length: {BYTES}\r\n");
    client.send(&request("POST /extensions/metrics/x", &length)).await;
    // All of it takes longer than the timeout, and each pause is much shorter.
    let mut ticks = tokio::time::interval(IDLE / 5);
    for _ in 0..BYTES {
        ticks.tick().await;
        client.send(b"x").await;
    }
    let answer = client.answer().await.unwrap();
    assert_eq!((answer.status, text(&answer).to_owned()), (200, BYTES.to_string()));
}

#[tokio::test]
async fn events_arrive_one_by_one() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let (next, mut wanted) = tokio::sync::mpsc::channel::<()>(1);
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; 4096];
        assert!(stream.read(&mut head).await.unwrap() > 0);
        stream
            .write_all(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\n")
            .await
            .unwrap();
        let mut number = 0;
        while wanted.recv().await.is_some() {
            stream
                .write_all(format!("data: {number}\n\n").as_bytes())
                .await
                .unwrap();
            number += 1;
        }
    });
    let server = TestServer::start(address, |_| {}).await;
    let mut client = Client::connect(server.address).await;
    client.send(&request(GET, "")).await;
    assert_eq!(
        client.head().await.unwrap().values("content-type"),
        ["text/event-stream"]
    );
    for number in 0..3 {
        // The next event is made only after the last one arrived.
        next.send(()).await.unwrap();
        let event = String::from_utf8(client.through(b"\n\n").await).unwrap();
        assert!(event.contains(&format!("data: {number}")), "{event}");
    }
}

/// Takes a request and sends `size` bytes as fast as it may, counting.
async fn firehose(size: usize) -> (std::net::SocketAddr, Arc<AtomicUsize>) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let sent = Arc::new(AtomicUsize::new(0));
    let count = sent.clone();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let mut head = [0; 4096];
        assert!(stream.read(&mut head).await.unwrap() > 0);
        let _ = stream
            .write_all(format!("HTTP/1.1 200 OK\r\ncontent-length: {size}\r\n\r\n").as_bytes())
            .await;
        let block = vec![b'x'; 64 * 1024];
        while count.load(Ordering::SeqCst) < size && stream.write_all(&block).await.is_ok() {
            count.fetch_add(block.len(), Ordering::SeqCst);
        }
    });
    (address, sent)
}

const LARGE: usize = 100 * 1024 * 1024;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_response_of_a_hundred_megabytes_arrives() {
    let (address, _) = firehose(LARGE).await;
    let server = TestServer::start(address, |_| {}).await;
    let mut client = Client::connect(server.address).await;
    client.send(&request(GET, "Connection: close\r\n")).await;
    assert_eq!(
        client.head().await.unwrap().values("content-length"),
        [LARGE.to_string()]
    );
    assert_eq!(client.rest().await.len(), LARGE);
}

#[tokio::test]
async fn a_client_that_does_not_read_applies_back_pressure() {
    let (address, sent) = firehose(10 * LARGE).await;
    let server = TestServer::start(address, |_| {}).await;
    let mut client = Client::connect(server.address).await;
    client.send(&request(GET, "")).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    // Runs until no more bytes move: those in transit are in the kernel's buffers and a few of
    // ours.
    let mut before = usize::MAX;
    while before != sent.load(Ordering::SeqCst) {
        before = sent.load(Ordering::SeqCst);
        for _ in 0..5_000 {
            tokio::task::yield_now().await;
        }
    }
    assert!(
        before < 3 * LARGE,
        "{before} bytes were taken for a client that reads none"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_request_of_a_hundred_megabytes_arrives() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        let (mut buffer, mut total, mut head) = (vec![0; 64 * 1024], 0, Vec::new());
        while total < LARGE {
            let length = stream.read(&mut buffer).await.unwrap();
            if head.ends_with(b"\r\n\r\n") {
                total += length;
                continue;
            }
            head.extend_from_slice(&buffer[..length]);
            let end = head
                .windows(4)
                .position(|window| window == b"\r\n\r\n")
                .map_or(head.len(), |at| at + 4);
            total += head.len() - end;
            head.truncate(end);
        }
        stream
            .write_all(format!("HTTP/1.1 200 OK\r\n\r\n{total}").as_bytes())
            .await
            .unwrap();
    });
    let server = TestServer::start(address, |_| {}).await;
    let mut client = Client::connect(server.address).await;
    client
        .send(&request(
            "PUT /extensions/metrics/x",
            &format!("Content-Length: {LARGE}\r\n"),
        ))
        .await;
    let block = vec![b'x'; 1024 * 1024];
    for _ in 0..LARGE / block.len() {
        client.send(&block).await;
    }
    let answer = client.answer().await.unwrap();
    assert_eq!((answer.status, text(&answer).to_owned()), (200, LARGE.to_string()));
}

#[tokio::test]
async fn content_above_the_bound_is_413() {
    let backend = backend::Backend::start(|_| Reply::ok("x")).await;
    let small = crate::server::Limits {
        body_bytes: 10,
        ..limits()
    };
    let specs = [spec("metrics", &format!("http://{}", backend.address))];
    let server = TestServer::with(Gateway::new(&specs).unwrap(), small, None).await;
    let post = |lines: &str, content: &str| {
        let mut bytes = request("POST /extensions/metrics/x", lines);
        bytes.extend_from_slice(content.as_bytes());
        bytes
    };
    for (status, bytes) in [
        (200, post("Content-Length: 10\r\n", "0123456789")),
        (413, post("Content-Length: 11\r\n", "0123456789a")),
        (
            200,
            post("Transfer-Encoding: chunked\r\n", "A\r\n0123456789\r\n0\r\n\r\n"),
        ),
        (
            413,
            post("Transfer-Encoding: chunked\r\n", "B\r\n0123456789a\r\n0\r\n\r\n"),
        ),
    ] {
        assert_eq!(
            Client::connect(server.address).await.exchange(&bytes).await.status,
            status
        );
    }
    assert_eq!(backend.seen().len(), 2);
}

#[tokio::test]
async fn the_client_gets_100_continue() {
    let backend = backend::Backend::start(|_| Reply::ok("x")).await;
    let server = TestServer::start(backend.address, |_| {}).await;
    let mut client = Client::connect(server.address).await;
    client
        .send(&request(
            "POST /extensions/metrics/x",
            "Content-Length: 1\r\nExpect: 100-continue\r\n",
        ))
        .await;
    assert_eq!(client.head().await.unwrap().status, 100);
    client.send(b"y").await;
    assert_eq!(client.answer().await.unwrap().status, 200);
    assert_eq!(backend.seen()[0].content, b"y");
    assert!(backend.seen()[0].values("expect").is_empty());
    // A client whose request is refused is not asked for its content.
    let mut client = Client::connect(server.address).await;
    client
        .send(&request(
            "POST /extensions/none/x",
            "Content-Length: 1\r\nExpect: 100-continue\r\n",
        ))
        .await;
    assert_eq!(client.head().await.unwrap().status, 404);
}

#[tokio::test]
async fn trailers_pass_both_ways() {
    let backend = backend::Backend::start(|_| {
        let head = "HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\ntrailer: x-sum\r\n\r\n";
        Reply::Bytes(format!("{head}1\r\na\r\n0\r\nx-sum: 1\r\n\r\n").into_bytes())
    })
    .await;
    let server = TestServer::start(backend.address, |_| {}).await;
    let mut client = Client::connect(server.address).await;
    let lines = "TE: trailers\r\nTransfer-Encoding: chunked\r\nTrailer: x-up, Argocd-Username\r\nConnection: close\r\n";
    let mut bytes = request("POST /extensions/metrics/x", lines);
    bytes.extend_from_slice(b"1\r\nb\r\n0\r\nx-up: 2\r\nArgocd-Username: root\r\n\r\n");
    client.send(&bytes).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    assert!(
        String::from_utf8(client.rest().await)
            .unwrap()
            .ends_with("0\r\nx-sum: 1\r\n\r\n")
    );
    let seen = &backend.seen()[0];
    assert_eq!(String::from_utf8_lossy(&seen.content), "1\r\nb\r\n0\r\nx-up: 2\r\n\r\n");
    assert_eq!(seen.values("argocd-username"), ["ada"]);
}

#[tokio::test]
async fn trailers_can_be_dropped() {
    let backend = backend::Backend::start(|_| Reply::ok("x")).await;
    let server = TestServer::start(backend.address, |_| {}).await;
    let lines = "Transfer-Encoding: chunked\r\nTrailer: x-up\r\nConnection: close\r\n";
    for (path, trailer) in [("x", "x-up: 2\r\n"), ("without-trailers", "")] {
        let mut client = Client::connect(server.address).await;
        let mut bytes = request(&format!("POST /extensions/metrics/{path}"), lines);
        bytes.extend_from_slice(b"1\r\nb\r\n0\r\nx-up: 2\r\n\r\n");
        client.send(&bytes).await;
        assert_eq!(client.answer().await.unwrap().status, 200);
        let seen = backend.seen().pop().unwrap();
        let content = String::from_utf8_lossy(&seen.content);
        assert_eq!(content, format!("1\r\nb\r\n0\r\n{trailer}\r\n"), "{path}");
    }
}

#[tokio::test]
async fn permits_last_as_long_as_the_content() {
    let start = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\na";
    let backend = backend::Backend::start(|_| Reply::Stall(start.to_vec())).await;
    let server = TestServer::start(backend.address, |spec| {
        spec.limits.concurrency = std::num::NonZeroU32::new(1)
    })
    .await;
    let mut first = Client::connect(server.address).await;
    first.send(&request(GET, "")).await;
    assert_eq!(first.head().await.unwrap().status, 200);
    let refused = get(&server).await;
    assert_eq!((refused.status, refused.values("retry-after")), (429, vec!["1"]));
    drop(first);
    server.idle("metrics").await;
    let mut third = Client::connect(server.address).await;
    third.send(&request(GET, "")).await;
    assert_eq!(third.head().await.unwrap().status, 200);
}
