//! Costs of a whole request through the gateway, compared with a direct request of the same client
//! to the same backend: time on one connection, and throughput over 32.
//!
//! The gateway runs in this process with the shipped policies. Needs the built guests: `cargo
//! xtask plugins`. Client, gateway and backend share the machine, so the difference to `direct` is
//! the gateway's work plus a second hop over loopback.

#![expect(clippy::expect_used, reason = "a bench that cannot run panics")]

use std::net::SocketAddr;
use std::time::{Duration, Instant};

use bytes::Bytes;
use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use http::{Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty, Full};
use hyper::client::conn::http1::SendRequest;
use hyper_util::rt::{TokioIo, TokioTimer};
use serde_json::json;
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;
use tollgate_rego::WORKER_STACK_BYTES;

use test_support::token;
use test_support::world::{self, Setup, World};

/// Number of busy connections when throughput is measured.
const CONNECTIONS: usize = 32;
/// Body of the backend's response.
const CONTENT: &[u8] = &[b'x'; 1024];

/// The configurations of the gateway that are measured.
const KINDS: [Kind; 3] = [
    Kind {
        name: "gateway",
        plugins: &[],
    },
    Kind {
        name: "gateway, static plan",
        plugins: &["baseline"],
    },
    Kind {
        name: "gateway, static plan and per-request plugin",
        plugins: &["baseline", "tenant-router"],
    },
];

struct Kind {
    name: &'static str,
    plugins: &'static [&'static str],
}

/// A request that is sent repeatedly, and its expected status.
#[derive(Clone, Debug)]
struct RequestSpec {
    to: SocketAddr,
    path: String,
    authorization: Option<String>,
    status: StatusCode,
}

type Connection = SendRequest<Empty<Bytes>>;

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .thread_stack_size(WORKER_STACK_BYTES)
        .enable_all()
        .build()
        .expect("a runtime")
}

/// Starts a backend that answers every request with [`CONTENT`], and repeats some of its header
/// fields in the response.
async fn backend() -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = listener.local_addr().expect("an address");
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            stream.set_nodelay(true).expect("a socket option");
            let answer = hyper::service::service_fn(|request: Request<hyper::body::Incoming>| async move {
                let mut answer = Response::new(Full::new(Bytes::from_static(CONTENT)));
                for name in ["x-scope-orgid", "argocd-username", "x-api-key"] {
                    if let Some(value) = request.headers().get(name) {
                        answer.headers_mut().insert(name, value.clone());
                    }
                }
                Ok::<_, std::convert::Infallible>(answer)
            });
            let serving = hyper::server::conn::http1::Builder::new()
                .timer(TokioTimer::new())
                .serve_connection(TokioIo::new(stream), answer);
            tokio::spawn(serving);
        }
    });
    address
}

async fn start(kind: &Kind, backend: SocketAddr) -> World {
    let mut setup = Setup::with_backend(backend);
    setup.plugins = kind.plugins.to_vec();
    setup.settings = json!({
        "plugins": {"grants": {"tenant-router": {"config": {"projects": {"shop": "shop-tenant"}}}}},
        // No decision file, as by default.
        "decisions": {"file": null},
    });
    setup.start().await
}

async fn connect(to: SocketAddr) -> Connection {
    let stream = TcpStream::connect(to).await.expect("a connection");
    stream.set_nodelay(true).expect("a socket option");
    let (sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream))
        .await
        .expect("a handshake");
    tokio::spawn(connection);
    sender
}

/// Sends the request and reads the whole response.
async fn send(connection: &mut Connection, spec: &RequestSpec) -> Response<Bytes> {
    let mut request = Request::get(spec.path.as_str())
        .header("host", "gateway.example.org")
        .header("accept", "application/json")
        .header("user-agent", "bench")
        .header("x-api-key", "0123456789abcdef")
        .header("argocd-application-name", "argocd:cart")
        .header("argocd-project-name", "shop");
    if let Some(authorization) = &spec.authorization {
        request = request.header("authorization", authorization);
    }
    let request = request.body(Empty::new()).expect("a request");
    connection.ready().await.expect("a free connection");
    let response = connection.send_request(request).await.expect("a response");
    assert_eq!(response.status(), spec.status);
    let (head, body) = response.into_parts();
    Response::from_parts(head, body.collect().await.expect("content").to_bytes())
}

/// Time for `iterations` requests over `connections` busy connections.
fn time_requests(runtime: &Runtime, spec: &RequestSpec, connections: usize, iterations: u64) -> Duration {
    let each = iterations.div_ceil(u64::try_from(connections).unwrap_or(1));
    runtime.block_on(async {
        let mut open = Vec::new();
        for _ in 0..connections {
            open.push(connect(spec.to).await);
        }
        let started = Instant::now();
        let tasks = open.into_iter().map(|mut connection| {
            let spec = spec.clone();
            tokio::spawn(async move {
                for _ in 0..each {
                    send(&mut connection, &spec).await;
                }
            })
        });
        for task in tasks.collect::<Vec<_>>() {
            task.await.expect("responses");
        }
        let total = each * u64::try_from(connections).unwrap_or(1);
        scaled(started.elapsed(), iterations, total)
    })
}

/// Scales the time of `sent` requests to the `wanted` ones of Criterion. Rounding up to a multiple
/// of the connections makes `sent` larger.
fn scaled(took: Duration, wanted: u64, sent: u64) -> Duration {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 requests")]
    took.mul_f64(wanted as f64 / sent as f64)
}

fn measure(criterion: &mut Criterion, runtime: &Runtime, name: &str, spec: &RequestSpec) {
    let mut group = criterion.benchmark_group("request");
    group.sample_size(20);
    group.bench_function(format!("1 connection, {name}"), |bencher| {
        bencher.iter_custom(|iterations| time_requests(runtime, spec, 1, iterations));
    });
    group.throughput(Throughput::Elements(1));
    group.bench_function(format!("{CONNECTIONS} connections, {name}"), |bencher| {
        bencher.iter_custom(|iterations| time_requests(runtime, spec, CONNECTIONS, iterations));
    });
    group.finish();
}

/// Sends one request and returns header fields that the backend received.
fn received_fields(runtime: &Runtime, spec: &RequestSpec) -> [Option<String>; 3] {
    let response = runtime.block_on(async { send(&mut connect(spec.to).await, spec).await });
    if spec.status == StatusCode::OK {
        assert_eq!(response.body(), CONTENT);
    }
    ["argocd-username", "x-scope-orgid", "x-api-key"].map(|name| {
        let value = response.headers().get(name)?;
        Some(value.to_str().expect("a text").to_owned())
    })
}

fn requests(criterion: &mut Criterion) {
    let runtime = runtime();
    let backend = runtime.block_on(backend());
    let direct = RequestSpec {
        to: backend,
        path: "/api/series?range=1h".to_owned(),
        authorization: None,
        status: StatusCode::OK,
    };
    let key = Some("0123456789abcdef".to_owned());
    assert_eq!(received_fields(&runtime, &direct), [None, None, key.clone()]);
    measure(criterion, &runtime, "direct", &direct);
    for kind in &KINDS {
        let world = runtime.block_on(start(kind, backend));
        let by = |user: &str, status| RequestSpec {
            to: world.address(),
            path: "/api/v1/extensions/echo/api/series?range=1h".to_owned(),
            authorization: Some(format!("Bearer {}", token::session(world::SESSION_KEY, user))),
            status,
        };
        let (allowed, denied) = (by("alice", StatusCode::OK), by("bob", StatusCode::FORBIDDEN));
        // The fields that the backend received show which plugins ran.
        let runs = |plugin| kind.plugins.contains(&plugin);
        let expected = [
            Some("alice".to_owned()),
            runs("tenant-router").then(|| "shop-tenant".to_owned()),
            key.clone().filter(|_| !runs("baseline")),
        ];
        assert_eq!(received_fields(&runtime, &allowed), expected, "{}", kind.name);
        assert_eq!(received_fields(&runtime, &denied), [None, None, None], "{}", kind.name);
        measure(criterion, &runtime, kind.name, &allowed);
        if kind.plugins.is_empty() {
            measure(criterion, &runtime, "gateway, denied", &denied);
        }
        runtime.block_on(world.running.stop()).expect("a clean shutdown");
    }
}

criterion_group!(benches, requests);
criterion_main!(benches);
