//! What a whole request costs: through the gateway, beside a direct call of the
//! same backend by the same client.
//!
//! In: a gateway as tests start it, with the shipped policies, and the built
//! guests (`cargo xtask plugins`). Out: time of one request on one connection,
//! and requests a second over 32. Never: an answer that is not checked.
//!
//! Client, gateway and backend share the machine, so that the difference to
//! `direct` is what the gateway takes of it, a second hop over loopback
//! included.

#![expect(clippy::expect_used, reason = "a bench that cannot run should say so and end")]

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
use tollgate_cli::serve::WORKER_STACK_BYTES;

use test_support::token;
use test_support::world::{self, Setup, World};

/// Connections that are kept busy for the throughput.
const CONNECTIONS: usize = 32;
/// What the backend answers with.
const CONTENT: &[u8] = &[b'x'; 1024];

/// The kinds of gateway that are measured.
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

/// A request that is sent again and again, and what must come of it.
#[derive(Clone, Debug)]
struct Question {
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

/// Answers everything with [`CONTENT`], and says which tenant it was told.
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
        // Written only where an operator asks for it.
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

/// Sends the question and reads the whole answer.
async fn ask(connection: &mut Connection, question: &Question) -> Response<Bytes> {
    let mut request = Request::get(question.path.as_str())
        .header("host", "gateway.example.org")
        .header("accept", "application/json")
        .header("user-agent", "bench")
        .header("x-api-key", "0123456789abcdef")
        .header("argocd-application-name", "argocd:cart")
        .header("argocd-project-name", "shop");
    if let Some(authorization) = &question.authorization {
        request = request.header("authorization", authorization);
    }
    let request = request.body(Empty::new()).expect("a request");
    connection.ready().await.expect("a free connection");
    let answer = connection.send_request(request).await.expect("an answer");
    assert_eq!(answer.status(), question.status);
    let (head, body) = answer.into_parts();
    Response::from_parts(head, body.collect().await.expect("content").to_bytes())
}

/// Time for `iterations` requests over `connections` that are kept busy.
fn busy(runtime: &Runtime, question: &Question, connections: usize, iterations: u64) -> Duration {
    let each = iterations.div_ceil(u64::try_from(connections).unwrap_or(1));
    runtime.block_on(async {
        let mut open = Vec::new();
        for _ in 0..connections {
            open.push(connect(question.to).await);
        }
        let started = Instant::now();
        let asked = open.into_iter().map(|mut connection| {
            let question = question.clone();
            tokio::spawn(async move {
                for _ in 0..each {
                    ask(&mut connection, &question).await;
                }
            })
        });
        for task in asked.collect::<Vec<_>>() {
            task.await.expect("answers");
        }
        let total = each * u64::try_from(connections).unwrap_or(1);
        scaled(started.elapsed(), iterations, total)
    })
}

/// Criterion asked for `wanted` requests; `sent` is up to a round more.
fn scaled(took: Duration, wanted: u64, sent: u64) -> Duration {
    #[expect(clippy::cast_precision_loss, reason = "far below 2^52 requests")]
    took.mul_f64(wanted as f64 / sent as f64)
}

fn measure(criterion: &mut Criterion, runtime: &Runtime, name: &str, question: &Question) {
    let mut group = criterion.benchmark_group("request");
    group.sample_size(20);
    group.bench_function(format!("1 connection, {name}"), |bencher| {
        bencher.iter_custom(|iterations| busy(runtime, question, 1, iterations));
    });
    group.throughput(Throughput::Elements(1));
    group.bench_function(format!("{CONNECTIONS} connections, {name}"), |bencher| {
        bencher.iter_custom(|iterations| busy(runtime, question, CONNECTIONS, iterations));
    });
    group.finish();
}

/// Asks once and gives the fields the backend was told.
fn once(runtime: &Runtime, question: &Question) -> [Option<String>; 3] {
    let answer = runtime.block_on(async { ask(&mut connect(question.to).await, question).await });
    if question.status == StatusCode::OK {
        assert_eq!(answer.body(), CONTENT);
    }
    ["argocd-username", "x-scope-orgid", "x-api-key"].map(|name| {
        let value = answer.headers().get(name)?;
        Some(value.to_str().expect("a text").to_owned())
    })
}

fn requests(criterion: &mut Criterion) {
    let runtime = runtime();
    let backend = runtime.block_on(backend());
    let direct = Question {
        to: backend,
        path: "/api/series?range=1h".to_owned(),
        authorization: None,
        status: StatusCode::OK,
    };
    let key = Some("0123456789abcdef".to_owned());
    assert_eq!(once(&runtime, &direct), [None, None, key.clone()]);
    measure(criterion, &runtime, "direct", &direct);
    for kind in &KINDS {
        let world = runtime.block_on(start(kind, backend));
        let by = |user: &str, status| Question {
            to: world.address(),
            path: "/api/v1/extensions/echo/api/series?range=1h".to_owned(),
            authorization: Some(format!("Bearer {}", token::session(world::SESSION_KEY, user))),
            status,
        };
        let (allowed, denied) = (by("alice", StatusCode::OK), by("bob", StatusCode::FORBIDDEN));
        // What the backend was told shows which plugins really ran.
        let runs = |plugin| kind.plugins.contains(&plugin);
        let expected = [
            Some("alice".to_owned()),
            runs("tenant-router").then(|| "shop-tenant".to_owned()),
            key.clone().filter(|_| !runs("baseline")),
        ];
        assert_eq!(once(&runtime, &allowed), expected, "{}", kind.name);
        assert_eq!(once(&runtime, &denied), [None, None, None], "{}", kind.name);
        measure(criterion, &runtime, kind.name, &allowed);
        if kind.plugins.is_empty() {
            measure(criterion, &runtime, "gateway, denied", &denied);
        }
        runtime.block_on(world.running.stop()).expect("an orderly end");
    }
}

criterion_group!(benches, requests);
criterion_main!(benches);
