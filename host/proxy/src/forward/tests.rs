use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use super::*;

mod content;
mod ending;
mod objects;
pub(crate) mod test_server;
mod tls;
mod upgrade;

use test_server::{Gateway, TestServer, eventually, limits, request, spec};
use test_support::backend::{self, Reply};
use test_support::client::{Answer, Client};

const GET: &str = "GET /extensions/metrics/x";
const SHORT: Duration = Duration::from_millis(150);
/// Enough time for a response head even on a busy machine.
const ENOUGH_FOR_A_HEAD: Duration = Duration::from_secs(1);

async fn get(server: &TestServer) -> Answer {
    Client::connect(server.address).await.exchange(&request(GET, "")).await
}

fn text(answer: &Answer) -> &str {
    std::str::from_utf8(&answer.content).unwrap()
}

#[tokio::test]
async fn responses_arrive_as_they_were_sent() {
    let backend = backend::Backend::start(|_| {
        let fields = "connection: x-hop\r\nx-hop: 1\r\nx-kept: 2\r\nset-cookie: argocd.token=x\r\n\
                      set-cookie: metrics=b; Path=/extensions/metrics\r\n";
        Reply::Bytes(format!("HTTP/1.1 201 Created\r\n{fields}content-length: 2\r\n\r\nok").into_bytes())
    })
    .await;
    let server = TestServer::start(backend.address, |_| {}).await;
    let answer = get(&server).await;
    assert_eq!((answer.status, text(&answer)), (201, "ok"));
    assert_eq!(answer.values("set-cookie"), ["metrics=b; Path=/extensions/metrics"]);
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
    let server = TestServer::start(backend.address, |_| {}).await;
    let mut client = Client::connect(server.address).await;
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
    let server = TestServer::start(backend.address, |_| {}).await;
    let mut client = Client::connect(server.address).await;
    for _ in 0..20 {
        assert_eq!(client.exchange(&request(GET, "")).await.status, 200);
    }
    assert_eq!(backend.connections(), 1);
    let none = TestServer::start(backend.address, |spec| spec.connection.max_idle_connections = 0).await;
    for _ in 0..5 {
        assert_eq!(get(&none).await.status, 200);
    }
    assert_eq!(backend.connections(), 6, "no idle connection is kept");
}

#[tokio::test]
async fn idle_connections_are_closed_in_time() {
    let backend = backend::Backend::start(|_| Reply::ok("x")).await;
    let server = TestServer::start(backend.address, |spec| spec.connection.idle_connection_timeout = SHORT).await;
    assert_eq!(get(&server).await.status, 200);
    assert_eq!(backend.closed(), 0);
    eventually(|| backend.closed() == 1).await;
}

#[tokio::test]
async fn unreachable_and_broken_backends_are_502() {
    let closed = TcpListener::bind("127.0.0.1:0").await.unwrap().local_addr().unwrap();
    let server = TestServer::start(closed, |_| {}).await;
    let answer = get(&server).await;
    assert_eq!((answer.status, text(&answer)), (502, "the backend cannot be reached"));
    for reply in [&b""[..], b"HTTP/1.1 2", b"nonsense\r\n\r\n"] {
        let backend = backend::Backend::start(|_| Reply::Last(reply.to_vec())).await;
        let server = TestServer::start(backend.address, |_| {}).await;
        let answer = get(&server).await;
        assert_eq!(
            (answer.status, text(&answer)),
            (502, "the backend closed the connection before its response")
        );
        server.idle("metrics").await;
    }
}

#[tokio::test]
async fn requests_a_backend_may_have_seen_are_not_repeated() {
    let backend = backend::Backend::start(|_| Reply::Last(Vec::new())).await;
    let server = TestServer::start(backend.address, |_| {}).await;
    for line in ["POST /extensions/metrics/x", GET] {
        let answer = Client::connect(server.address)
            .await
            .exchange(&request(line, "Content-Length: 0\r\n"))
            .await;
        assert_eq!(answer.status, 502);
    }
    assert_eq!(backend.seen().len(), 2);
}

#[tokio::test]
async fn the_idle_timeout_before_the_head_is_408() {
    let backend = backend::Backend::start(|_| Reply::Stall(Vec::new())).await;
    let server = TestServer::start(backend.address, |spec| spec.timeouts.idle = Some(SHORT)).await;
    let start = Instant::now();
    assert_eq!(get(&server).await.status, 408);
    assert!(start.elapsed() >= SHORT);
    eventually(|| backend.closed() == 1).await;
    server.idle("metrics").await;
}

#[tokio::test]
async fn the_total_timeout_before_the_head_is_504() {
    let backend = backend::Backend::start(|_| Reply::Stall(Vec::new())).await;
    let edit = |spec: &mut tollgate_objects::extensions::ExtensionSpec| {
        spec.timeouts.idle = Some(Duration::from_secs(60));
        spec.timeouts.total = Some(SHORT);
    };
    let server = TestServer::start(backend.address, edit).await;
    assert_eq!(get(&server).await.status, 504);
    eventually(|| backend.closed() == 1).await;
}

#[tokio::test]
async fn a_timeout_after_the_head_truncates_the_response() {
    for total in [false, true] {
        let start = b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n1\r\na\r\n";
        let backend = backend::Backend::start(|_| Reply::Stall(start.to_vec())).await;
        let server = TestServer::start(backend.address, |spec| {
            let bound = if total {
                &mut spec.timeouts.total
            } else {
                &mut spec.timeouts.idle
            };
            *bound = Some(ENOUGH_FOR_A_HEAD);
        })
        .await;
        let mut client = Client::connect(server.address).await;
        client.send(&request(GET, "")).await;
        assert_eq!(client.head().await.unwrap().status, 200);
        let rest = client.rest().await;
        assert_eq!(rest, b"1\r\na\r\n", "no last chunk: the response is truncated");
        eventually(|| backend.closed() == 1).await;
        server.idle("metrics").await;
    }
}

#[tokio::test]
async fn a_disconnected_client_cancels_its_request() {
    let backend = backend::Backend::start(|_| Reply::Stall(Vec::new())).await;
    let server = TestServer::start(backend.address, |_| {}).await;
    let mut client = Client::connect(server.address).await;
    client.send(&request(GET, "")).await;
    eventually(|| backend.seen().len() == 1).await;
    assert_eq!(server.open("metrics"), 1);
    drop(client);
    eventually(|| backend.closed() == 1).await;
    server.idle("metrics").await;
}

#[tokio::test]
async fn a_hanging_backend_does_not_slow_others() {
    let slow = backend::Backend::start(|_| Reply::Stall(Vec::new())).await;
    let fast = backend::Backend::start(|_| Reply::ok("x")).await;
    let specs = [
        spec("slow", &format!("http://{}", slow.address)),
        spec("fast", &format!("http://{}", fast.address)),
    ];
    let server = TestServer::with(Gateway::new(&specs).unwrap(), limits(), None).await;
    let mut hanging = Vec::new();
    for _ in 0..50 {
        let mut client = Client::connect(server.address).await;
        client.send(&request("GET /extensions/slow/x", "")).await;
        hanging.push(client);
    }
    eventually(|| slow.seen().len() == 50).await;
    let mut client = Client::connect(server.address).await;
    for _ in 0..50 {
        assert_eq!(
            client.exchange(&request("GET /extensions/fast/x", "")).await.status,
            200
        );
    }
    assert_eq!(server.open("slow"), 50);
}

#[tokio::test]
async fn a_request_is_sent_only_to_the_backend_it_was_sealed_for() {
    let backend = backend::Backend::start(|_| Reply::ok("x")).await;
    let spec = spec("metrics", &format!("http://{}", backend.address));
    let (one, other) = (
        Backend::build(&spec, &spec.services[0]).unwrap(),
        Backend::build(&spec, &spec.services[0]).unwrap(),
    );
    let address = "127.0.0.1:1".parse().unwrap();
    let client = Arc::new(crate::client::Client::for_test(
        address,
        crate::client::Transport::Plain,
    ));
    let identity = crate::headers::IdentityHeaders::default();
    let resource = crate::headers::ResourceHeaders::new(&crate::headers::ResourceNames {
        namespace: "argocd",
        application: None,
        project: None,
        cluster: None,
    });
    let resource = resource.unwrap();
    let host_headers = crate::headers::HostHeaders {
        identity: &identity,
        groups: crate::headers::GroupEncoding::Escaped,
        resource: &resource,
        assertion: None,
    };
    let sealed = || {
        let head = http::Request::get("/x")
            .header("host", "gateway")
            .body(())
            .unwrap()
            .into_parts()
            .0;
        let path = crate::target::join("/", "/x", None).unwrap();
        crate::headers::clean(head)
            .unwrap()
            .seal(&one.upstream, path, &host_headers, &client)
            .unwrap()
    };
    assert!(matches!(
        other.forward(sealed(), Body::empty()).await,
        Err(Error::WrongBackend)
    ));
    assert_eq!(one.forward(sealed(), Body::empty()).await.unwrap().status(), 200);
}

#[test]
fn invalid_backend_settings_are_refused() {
    let build = |url: &str, edit: &dyn Fn(&mut tollgate_objects::extensions::ExtensionSpec)| {
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
