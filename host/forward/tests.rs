use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

#[path = "../../tests/gateway/support/attack.rs"]
pub(crate) mod attack;
#[path = "../../tests/gateway/support/authority.rs"]
mod authority;
#[path = "../../tests/gateway/support/backend.rs"]
pub(crate) mod backend;
#[path = "../../tests/gateway/support/client.rs"]
pub(crate) mod client;
mod tls;
mod upgrade;
pub(crate) mod world;

use backend::Reply;
use client::{Answer, Client};
use world::{Gateway, World, eventually, limits, request, spec};

const GET: &str = "GET /extensions/metrics/x";
const SHORT: Duration = Duration::from_millis(150);

async fn get(world: &World) -> Answer {
    Client::connect(world.address).await.exchange(&request(GET, "")).await
}

fn text(answer: &Answer) -> &str {
    std::str::from_utf8(&answer.content).unwrap()
}

#[tokio::test]
async fn responses_arrive_as_they_were_sent() {
    let backend = backend::Backend::start(|_| {
        let fields = "connection: x-hop\r\nx-hop: 1\r\nx-kept: 2\r\nset-cookie: argocd.token=x\r\nset-cookie: a=b\r\n";
        Reply::Bytes(format!("HTTP/1.1 201 Created\r\n{fields}content-length: 2\r\n\r\nok").into_bytes())
    })
    .await;
    let world = World::start(backend.address, |_| {}).await;
    let answer = get(&world).await;
    assert_eq!((answer.status, text(&answer)), (201, "ok"));
    assert_eq!(answer.values("set-cookie"), ["a=b"]);
    assert_eq!(answer.values("x-kept"), ["2"]);
    assert!(answer.values("x-hop").is_empty());
    assert_eq!(backend.seen()[0].values("host"), [backend.address.to_string()]);
}

#[tokio::test]
async fn responses_without_content_keep_their_fields() {
    let backend = backend::Backend::start(|seen| {
        Reply::Bytes(if seen.line().starts_with("HEAD") {
            b"HTTP/1.1 200 OK\r\ncontent-length: 1234\r\n\r\n".to_vec()
        } else if seen.line().contains("/304") {
            b"HTTP/1.1 304 Not Modified\r\netag: \"a\"\r\n\r\n".to_vec()
        } else {
            b"HTTP/1.1 204 No Content\r\n\r\n".to_vec()
        })
    })
    .await;
    let world = World::start(backend.address, |_| {}).await;
    let mut client = Client::connect(world.address).await;
    client.send(&request("HEAD /extensions/metrics/x", "")).await;
    let head = client.head().await.unwrap();
    assert_eq!((head.status, head.values("content-length")), (200, vec!["1234"]));
    let unmodified = client.exchange(&request("GET /extensions/metrics/304", "")).await;
    assert_eq!((unmodified.status, unmodified.values("etag")), (304, vec!["\"a\""]));
    let empty = client.exchange(&request(GET, "")).await;
    assert_eq!((empty.status, empty.values("content-length").len()), (204, 0));
    assert_eq!(backend.connections(), 1, "one connection serves them all");
}

#[tokio::test]
async fn the_pool_keeps_as_many_connections_as_configured() {
    let backend = backend::Backend::start(|_| Reply::ok("x")).await;
    let world = World::start(backend.address, |_| {}).await;
    let mut client = Client::connect(world.address).await;
    for _ in 0..20 {
        assert_eq!(client.exchange(&request(GET, "")).await.status, 200);
    }
    assert_eq!(backend.connections(), 1);
    let none = World::start(backend.address, |spec| spec.connection.max_idle_connections = 0).await;
    for _ in 0..5 {
        assert_eq!(get(&none).await.status, 200);
    }
    assert_eq!(backend.connections(), 6, "no idle connection is kept");
}

#[tokio::test]
async fn idle_connections_are_closed_in_time() {
    let backend = backend::Backend::start(|_| Reply::ok("x")).await;
    let world = World::start(backend.address, |spec| spec.connection.idle_connection_timeout = SHORT).await;
    assert_eq!(get(&world).await.status, 200);
    assert_eq!(backend.closed(), 0);
    eventually(|| backend.closed() == 1).await;
}

#[tokio::test]
async fn unreachable_and_broken_backends_are_502() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let world = World::start(closed, |_| {}).await;
    let answer = get(&world).await;
    assert_eq!((answer.status, text(&answer)), (502, "the backend cannot be reached"));
    for reply in [&b""[..], b"HTTP/1.1 2", b"nonsense\r\n\r\n"] {
        let backend = backend::Backend::start(|_| Reply::Last(reply.to_vec())).await;
        let world = World::start(backend.address, |_| {}).await;
        let answer = get(&world).await;
        assert_eq!(
            (answer.status, text(&answer)),
            (502, "the backend broke off before its response")
        );
        world.idle("metrics").await;
    }
}

#[tokio::test]
async fn requests_a_backend_may_have_seen_are_not_repeated() {
    let backend = backend::Backend::start(|_| Reply::Last(Vec::new())).await;
    let world = World::start(backend.address, |_| {}).await;
    for line in ["POST /extensions/metrics/x", GET] {
        let answer = Client::connect(world.address)
            .await
            .exchange(&request(line, "Content-Length: 0\r\n"))
            .await;
        assert_eq!(answer.status, 502);
    }
    assert_eq!(backend.seen().len(), 2);
}

#[tokio::test]
async fn silence_before_the_head_is_408() {
    let backend = backend::Backend::start(|_| Reply::Stall(Vec::new())).await;
    let world = World::start(backend.address, |spec| spec.timeouts.idle = Some(SHORT)).await;
    let start = Instant::now();
    assert_eq!(get(&world).await.status, 408);
    assert!(start.elapsed() >= SHORT);
    eventually(|| backend.closed() == 1).await;
    world.idle("metrics").await;
}

#[tokio::test]
async fn the_whole_before_the_head_is_504() {
    let backend = backend::Backend::start(|_| Reply::Stall(Vec::new())).await;
    let edit = |spec: &mut crate::front::extensions::config::ExtensionSpec| {
        spec.timeouts.idle = Some(Duration::from_secs(60));
        spec.timeouts.total = Some(SHORT);
    };
    let world = World::start(backend.address, edit).await;
    assert_eq!(get(&world).await.status, 504);
    eventually(|| backend.closed() == 1).await;
}

#[tokio::test]
async fn silence_after_the_head_aborts() {
    for total in [false, true] {
        let start = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n";
        let backend = backend::Backend::start(|_| Reply::Stall(start.to_vec())).await;
        let world = World::start(backend.address, |spec| {
            let bound = if total {
                &mut spec.timeouts.total
            } else {
                &mut spec.timeouts.idle
            };
            *bound = Some(SHORT);
        })
        .await;
        let mut client = Client::connect(world.address).await;
        client.send(&request(GET, "")).await;
        assert_eq!(client.head().await.unwrap().status, 200);
        let rest = client.rest().await;
        assert_eq!(rest, b"1\r\na\r\n", "no last chunk: the client sees the break");
        eventually(|| backend.closed() == 1).await;
        world.idle("metrics").await;
    }
}

#[tokio::test]
async fn content_on_its_way_up_is_not_silence() {
    let backend = backend::Backend::start(|seen| Reply::ok(&seen.content.len().to_string())).await;
    let world = World::start(backend.address, |spec| spec.timeouts.idle = Some(SHORT * 2)).await;
    let mut client = Client::connect(world.address).await;
    client
        .send(&request("POST /extensions/metrics/x", "Content-Length: 6\r\n"))
        .await;
    let mut ticks = tokio::time::interval(SHORT);
    for _ in 0..6 {
        ticks.tick().await;
        client.send(b"x").await;
    }
    let answer = client.answer().await.unwrap();
    assert_eq!((answer.status, text(&answer)), (200, "6"));
}

#[tokio::test]
async fn a_client_that_leaves_takes_its_request_along() {
    let backend = backend::Backend::start(|_| Reply::Stall(Vec::new())).await;
    let world = World::start(backend.address, |_| {}).await;
    let mut client = Client::connect(world.address).await;
    client.send(&request(GET, "")).await;
    eventually(|| backend.seen().len() == 1).await;
    assert_eq!(world.open("metrics"), 1);
    drop(client);
    eventually(|| backend.closed() == 1).await;
    world.idle("metrics").await;
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
    let world = World::start(address, |_| {}).await;
    let mut client = Client::connect(world.address).await;
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
async fn a_hundred_megabytes_come_down() {
    let (address, _) = firehose(LARGE).await;
    let world = World::start(address, |_| {}).await;
    let mut client = Client::connect(world.address).await;
    client.send(&request(GET, "Connection: close\r\n")).await;
    assert_eq!(
        client.head().await.unwrap().values("content-length"),
        [LARGE.to_string()]
    );
    assert_eq!(client.rest().await.len(), LARGE);
}

#[tokio::test]
async fn a_client_that_does_not_read_holds_the_backend_back() {
    let (address, sent) = firehose(10 * LARGE).await;
    let world = World::start(address, |_| {}).await;
    let mut client = Client::connect(world.address).await;
    client.send(&request(GET, "")).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    // Runs until nothing moves any more: what is on its way is in the kernel's
    // buffers and a few of ours.
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
async fn a_hundred_megabytes_go_up() {
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
    let world = World::start(address, |_| {}).await;
    let mut client = Client::connect(world.address).await;
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
    let world = World::with(Gateway::new(&specs).unwrap(), small, None).await;
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
            Client::connect(world.address).await.exchange(&bytes).await.status,
            status
        );
    }
    assert_eq!(backend.seen().len(), 2);
}

#[tokio::test]
async fn the_client_is_told_to_continue() {
    let backend = backend::Backend::start(|_| Reply::ok("x")).await;
    let world = World::start(backend.address, |_| {}).await;
    let mut client = Client::connect(world.address).await;
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
    // Who is refused is not asked for content.
    let mut client = Client::connect(world.address).await;
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
    let world = World::start(backend.address, |_| {}).await;
    let mut client = Client::connect(world.address).await;
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
async fn permits_last_as_long_as_the_content() {
    let start = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\na";
    let backend = backend::Backend::start(|_| Reply::Stall(start.to_vec())).await;
    let world = World::start(backend.address, |spec| {
        spec.limits.concurrency = std::num::NonZeroU32::new(1)
    })
    .await;
    let mut first = Client::connect(world.address).await;
    first.send(&request(GET, "")).await;
    assert_eq!(first.head().await.unwrap().status, 200);
    let refused = get(&world).await;
    assert_eq!((refused.status, refused.values("retry-after")), (429, vec!["1"]));
    drop(first);
    world.idle("metrics").await;
    let mut third = Client::connect(world.address).await;
    third.send(&request(GET, "")).await;
    assert_eq!(third.head().await.unwrap().status, 200);
}

#[tokio::test]
async fn a_backend_that_hangs_slows_no_other() {
    let slow = backend::Backend::start(|_| Reply::Stall(Vec::new())).await;
    let fast = backend::Backend::start(|_| Reply::ok("x")).await;
    let specs = [
        spec("slow", &format!("http://{}", slow.address)),
        spec("fast", &format!("http://{}", fast.address)),
    ];
    let world = World::with(Gateway::new(&specs).unwrap(), limits(), None).await;
    let mut hanging = Vec::new();
    for _ in 0..50 {
        let mut client = Client::connect(world.address).await;
        client.send(&request("GET /extensions/slow/x", "")).await;
        hanging.push(client);
    }
    eventually(|| slow.seen().len() == 50).await;
    let mut client = Client::connect(world.address).await;
    for _ in 0..50 {
        assert_eq!(
            client.exchange(&request("GET /extensions/fast/x", "")).await.status,
            200
        );
    }
    assert_eq!(world.open("slow"), 50);
}

#[tokio::test]
async fn a_request_goes_only_where_it_was_sealed_for() {
    let backend = backend::Backend::start(|_| Reply::ok("x")).await;
    let spec = spec("metrics", &format!("http://{}", backend.address));
    let (one, other) = (
        Backend::build(&spec, &spec.services[0]).unwrap(),
        Backend::build(&spec, &spec.services[0]).unwrap(),
    );
    let address = "127.0.0.1:1".parse().unwrap();
    let peer = Arc::new(crate::server::Peer::for_test(address, crate::server::Transport::Plain));
    let identity = crate::headers::Identity::default();
    let own = crate::headers::Own {
        identity: &identity,
        namespace: "argocd",
        application: None,
        project: None,
        cluster: None,
        assertion: None,
    };
    let sealed = || {
        let head = http::Request::get("/x")
            .header("host", "gateway")
            .body(())
            .unwrap()
            .into_parts()
            .0;
        let path = crate::route::join("/", "/x", None).unwrap();
        crate::headers::clean(head)
            .unwrap()
            .seal((one.upstream(), path), &own, &peer)
            .unwrap()
    };
    assert!(matches!(
        other.forward(sealed(), Body::empty()).await,
        Err(Error::OtherBackend)
    ));
    assert_eq!(one.forward(sealed(), Body::empty()).await.unwrap().status(), 200);
}

#[test]
fn settings_that_would_not_hold_are_refused() {
    let build = |url: &str, edit: &dyn Fn(&mut crate::front::extensions::config::ExtensionSpec)| {
        let mut spec = spec("metrics", url);
        edit(&mut spec);
        Backend::build(&spec, &spec.services[0])
            .map(|_| ())
            .map_err(|error| error.to_string())
    };
    assert_eq!(build("http://backend:8080/base", &|_| {}), Ok(()));
    assert!(build("ftp://backend", &|_| {}).unwrap_err().contains("`ftp`"));
    for url in ["http://a:b@backend", "http://backend?x", "http://backend/#x"] {
        assert!(build(url, &|_| {}).unwrap_err().contains("user, password"), "{url}");
    }
    assert!(build("http://backend/a%2e", &|_| {}).unwrap_err().contains("path"));
    let header = |name: &'static str| {
        build("http://backend", &move |spec| {
            let value = http::HeaderValue::from_static("x");
            spec.services[0].headers = vec![(http::HeaderName::from_static(name), value)];
        })
    };
    assert_eq!(header("authorization"), Ok(()));
    assert!(header("argocd-username").unwrap_err().contains("`argocd-username`"));
    assert!(build("http://backend", &|spec| spec.identity.request_header = true).is_err());
}
