//! The same requests through the gateway and straight to argocd-server: REST by HTTP/2, WebSockets,
//! and an argocd-server with a root path.

use std::net::SocketAddr;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use reqwest::{Certificate, ClientBuilder, Method, Version};
use serde_json::json;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::{Fixture, SESSION_KEY, Setup, Through};
use test_support::client::Client;
use test_support::kubernetes::argocd::{Cli, NAMESPACE, READS, Wire, program};
use test_support::kubernetes::daemon::Daemon;
use test_support::kubernetes::{PATIENCE, eventually};
use test_support::port::free_port;
use test_support::redis::PASSWORD;
use test_support::token;

impl Fixture {
    fn address(&self, through: Through) -> SocketAddr {
        match through {
            Through::Gateway => self.gateway.address(),
            Through::Nothing => self.argocd.address().parse().unwrap(),
        }
    }

    fn url(&self, through: Through) -> String {
        match through {
            Through::Gateway => self.gateway.url(),
            Through::Nothing => self.argocd.url(),
        }
    }

    /// A client that trusts both servers.
    fn client(&self, configure: impl FnOnce(ClientBuilder) -> ClientBuilder) -> reqwest::Client {
        let authorities = [self.gateway.authority(), self.argocd.authority().map(str::to_owned)];
        let authorities = authorities.into_iter().flatten();
        let authorities = authorities.map(|pem| Certificate::from_pem(pem.as_bytes()).unwrap());
        let client = reqwest::Client::builder().no_proxy().tls_certs_only(authorities);
        configure(client).build().unwrap()
    }
}

/// A request of REST.
#[derive(Clone, Copy, Debug)]
struct Call {
    method: &'static str,
    path: &'static str,
    /// Content and its type.
    content: Option<(&'static str, &'static str)>,
}

const fn get(path: &'static str) -> Call {
    Call {
        method: "GET",
        path,
        content: None,
    }
}

const fn with_content(method: &'static str, path: &'static str, content: (&'static str, &'static str)) -> Call {
    Call {
        method,
        path,
        content: Some(content),
    }
}

/// Calls whose answers do not change by themselves, and the status of each for `admin`.
const CALLS: [(Call, u16); 19] = [
    (get("/api/version"), 200),
    (get("/api/v1/settings"), 200),
    (get("/api/v1/session/userinfo"), 200),
    (get("/api/v1/account"), 200),
    (get("/api/v1/account/ci"), 200),
    (get("/api/v1/account/can-i/applications/sync/*"), 200),
    (get("/api/v1/projects/default"), 200),
    (get("/api/v1/projects?fields=items.metadata.name"), 200),
    (
        get("/api/v1/clusters/https%3A%2F%2Fkubernetes.default.svc?id.type=url"),
        200,
    ),
    (get("/api/v1/clusters/https%3A%2F%2Fnowhere.test"), 403),
    (get("/api/v1/applications"), 200),
    (get("/api/v1/applications/none"), 403),
    (get("/api/v1/nothing"), 404),
    (get("/swagger.json"), 200),
    (get("/healthz"), 200),
    (with_content("POST", "/api/v1/projects", ("{", "application/json")), 400),
    (with_content("POST", "/api/v1/projects", ("{}", "text/plain")), 415),
    (
        with_content("PUT", "/api/v1/account/password", ("{}", "application/json")),
        400,
    ),
    (
        with_content("DELETE", "/api/v1/projects/none", ("", "application/json")),
        404,
    ),
];

/// Status, content type and content of an answer, and the version by which it came.
async fn answer(fixture: &Fixture, through: Through, call: Call, client: &reqwest::Client) -> (Version, [String; 3]) {
    let method = Method::from_bytes(call.method.as_bytes()).unwrap();
    let mut request = client.request(method, format!("{}{}", fixture.url(through), call.path));
    request = request.bearer_auth(token::session(SESSION_KEY, "admin"));
    if let Some((content, kind)) = call.content {
        request = request.header("content-type", kind).body(content);
    }
    let answer = request.send().await.unwrap();
    let (version, status) = (answer.version(), answer.status().as_u16().to_string());
    let kind = answer.headers().get("content-type");
    let kind = kind.map(|kind| kind.to_str().unwrap().to_owned());
    (
        version,
        [status, kind.unwrap_or_default(), answer.text().await.unwrap()],
    )
}

async fn assert_rest_by_http2(wire: Wire) {
    let fixture = Fixture::start(wire).await;
    // With TLS, the client and the gateway agree on it.
    let http2 = fixture.client(|client| match wire {
        Wire::Plain => client.http2_prior_knowledge(),
        Wire::Tls => client,
    });
    let http1 = fixture.client(ClientBuilder::http1_only);
    for (call, status) in CALLS {
        eventually(&format!("{call:?} has the same answer"), async || {
            let (direct_version, direct) = answer(&fixture, Through::Nothing, call, &http1).await;
            let (version, passed) = answer(&fixture, Through::Gateway, call, &http2).await;
            assert_eq!(
                (version, direct_version),
                (Version::HTTP_2, Version::HTTP_11),
                "{call:?}"
            );
            assert_eq!(passed[0], status.to_string(), "{call:?}: {passed:?}");
            (passed == direct).then_some(())
        })
        .await;
    }
    // What is written arrives, and events come while their stream is open.
    let session = token::session(SESSION_KEY, "admin");
    let url = |path: &str| format!("{}{path}", fixture.gateway.url());
    let application = json!({"metadata": {"name": "hello"}, "spec": {
        "project": "default",
        "source": {"repoURL": fixture.argocd.repository(), "path": "app"},
        "destination": {"server": "https://kubernetes.default.svc", "namespace": "default"},
    }});
    let create = http2
        .post(url("/api/v1/applications"))
        .bearer_auth(&session)
        .json(&application);
    assert_eq!(create.send().await.unwrap().status().as_u16(), 200);
    let stream = http2.get(url("/api/v1/stream/applications")).bearer_auth(&session);
    let mut events = stream.header("accept", "text/event-stream").send().await.unwrap();
    assert_eq!(events.version(), Version::HTTP_2);
    let first = timeout(PATIENCE, events.chunk()).await.unwrap().unwrap().unwrap();
    let first = String::from_utf8_lossy(&first);
    assert!(
        first.starts_with("data: {\"result\":") && first.contains("\"hello\""),
        "{first}"
    );
    // argocd-server has no REST by HTTP/2.
    let only_http2 = fixture.client(ClientBuilder::http2_prior_knowledge);
    let direct = only_http2.get(format!("{}/api/version", fixture.argocd.url()));
    assert!(direct.send().await.is_err());
    // Without a session, both refuse.
    for (through, client) in [(Through::Gateway, &http2), (Through::Nothing, &http1)] {
        let url = format!("{}/api/v1/applications", fixture.url(through));
        let refused = client.get(url).send().await.unwrap();
        assert_eq!(refused.status().as_u16(), 401, "{through:?}");
        let body: serde_json::Value = refused.json().await.unwrap();
        assert_eq!(body["code"], 16, "{through:?}: {body}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn rest_by_http_2_has_the_answers_of_http_1() {
    assert_rest_by_http2(Wire::Plain).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rest_by_http_2_over_tls_has_the_answers_of_http_1() {
    assert_rest_by_http2(Wire::Tls).await;
}

const TERMINAL: &str = "pod=web&container=main&appName=none&projectName=default&namespace=default&appNamespace=argocd";

/// Status, content type and content of the answer to the opening of a WebSocket, by a page of the
/// server itself.
async fn open(fixture: &Fixture, through: Through, query: &str, fields: &str) -> (u16, String, String) {
    let origin = format!("origin: http://{}\r\n", fixture.address(through));
    open_from(fixture, through, query, &format!("{origin}{fields}")).await
}

/// The same with the fields of any page.
async fn open_from(fixture: &Fixture, through: Through, query: &str, fields: &str) -> (u16, String, String) {
    let address = fixture.address(through);
    let request = format!(
        "GET /terminal?{query} HTTP/1.1\r\nhost: {address}\r\nconnection: Upgrade\r\nupgrade: websocket\r\n\
         sec-websocket-version: 13\r\nsec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n{fields}\r\n"
    );
    let answer = Client::connect(address).await.exchange(request.as_bytes()).await;
    let kind = answer.values("content-type").join(", ");
    (answer.status, kind, String::from_utf8(answer.content).unwrap())
}

/// The status through the gateway, whose answer must be argocd-server's.
async fn status(fixture: &Fixture, query: &str, fields: &str) -> u16 {
    let [passed, direct] = [
        open(fixture, Through::Gateway, query, fields).await,
        open(fixture, Through::Nothing, query, fields).await,
    ];
    assert_eq!(passed, direct, "{query} {fields}");
    passed.0
}

#[tokio::test(flavor = "multi_thread")]
async fn a_web_socket_of_the_terminal_has_the_answers_of_argocd_server() {
    let fixture = Fixture::start(Wire::Plain).await;
    let cookie = |session: &str| format!("cookie: argocd.token={session}\r\n");
    let admin = token::session(SESSION_KEY, "admin");
    let session = cookie(&admin);
    // argocd-server takes only the cookie here. The terminal is off.
    let bearer = format!("authorization: Bearer {admin}\r\n");
    assert_eq!(status(&fixture, TERMINAL, &bearer).await, 400);
    assert_eq!(status(&fixture, TERMINAL, &session).await, 404);
    // Both refuse callers without a session, each in its own words.
    let forged = cookie(&token::session("another-key-only-this-test-knows-0123", "admin"));
    // Argo CD would take a page of any origin.
    let foreign = format!("{session}origin: http://elsewhere.test\r\n");
    let own = |through| format!("origin: http://{}\r\n", fixture.address(through));
    for (what, fields, gateway, direct) in [
        ("no session", [own(Through::Gateway), own(Through::Nothing)], 401, 400),
        (
            "a forged session",
            [own(Through::Gateway) + &forged, own(Through::Nothing) + &forged],
            401,
            401,
        ),
        ("another origin", [foreign.clone(), foreign], 403, 404),
        ("no origin", [session.clone(), session.clone()], 403, 404),
    ] {
        for (through, fields, expected) in [
            (Through::Gateway, &fields[0], gateway),
            (Through::Nothing, &fields[1], direct),
        ] {
            let (status, _, text) = open_from(&fixture, through, TERMINAL, fields).await;
            assert_eq!(status, expected, "{through:?}, {what}: {text}");
        }
    }

    let on = json!({"data": {"exec.enabled": "true"}}).to_string();
    let patch = [
        "patch",
        "configmap",
        "argocd-cm",
        "--namespace",
        NAMESPACE,
        "--patch",
        &on,
    ];
    fixture.cluster.admin().succeed(&patch).await;
    eventually("the terminal is on", async || {
        let (_, _, text) = open(&fixture, Through::Nothing, TERMINAL, &session).await;
        (text == "App not found\n").then_some(())
    })
    .await;
    let ci = cookie(&token::session(SESSION_KEY, "ci"));
    for (query, fields, expected) in [
        (TERMINAL, &session, 404),
        ("", &session, 400),
        (&TERMINAL.replace("web", "We%20b"), &session, 400),
        (&TERMINAL.replace("=default&", "=Default&"), &session, 400),
        (&TERMINAL.replace("=argocd", "="), &session, 400),
        (&TERMINAL.replace("=argocd", "=elsewhere"), &session, 403),
        // The account has no permissions.
        (TERMINAL, &ci, 401),
    ] {
        assert_eq!(status(&fixture, query, fields).await, expected, "{query}");
    }
}

/// The path below which argocd-server serves in these tests.
const ROOT: &str = "/tools/argo-cd";

/// A second argocd-server of the fixture, with a root path.
async fn start_below_root(fixture: &mut Fixture, port: u16) -> Daemon {
    let folder = fixture.gateway.path("argocd-server");
    std::fs::create_dir(&folder).unwrap();
    let text = |path: &std::path::Path| path.display().to_string();
    let arguments = [
        format!("--port={port}"),
        format!("--rootpath={ROOT}"),
        "--insecure=true".to_owned(),
        "--address=127.0.0.1".to_owned(),
        format!("--metrics-port={}", free_port()),
        format!("--redis={}", fixture.argocd.redis().address()),
        format!("--kubeconfig={}", text(&fixture.cluster.admin().kubeconfig())),
        format!("--namespace={NAMESPACE}"),
        format!("--staticassets={}", text(&folder)),
    ];
    let environment = [
        ("ARGOCD_BINARY_NAME", "argocd-server".to_owned()),
        ("ARGOCD_FAKE_IN_CLUSTER", "true".to_owned()),
        ("KUBECONFIG", text(&fixture.cluster.admin().kubeconfig())),
        ("REDIS_PASSWORD", PASSWORD.to_owned()),
        ("HOME", text(&folder)),
        ("TMPDIR", text(&folder)),
    ];
    let mut server = Daemon::run_with(
        "argocd-server-below-root",
        &program(),
        &folder,
        (&arguments, &environment),
        |_| {},
    );
    eventually("argocd-server listens", async || {
        server.check();
        TcpStream::connect(("127.0.0.1", port)).await.ok().map(drop)
    })
    .await;
    server
}

/// `grpc-status` of a call of gRPC without a message.
async fn grpc_status(address: SocketAddr, path: &str, session: Option<&str>) -> String {
    let stream = TcpStream::connect(address).await.unwrap();
    let connecting = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream));
    let (mut calls, connection) = connecting.await.unwrap();
    tokio::spawn(connection);
    let mut call = http::Request::post(format!("http://{address}{path}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers");
    if let Some(session) = session {
        call = call.header("token", session);
    }
    let call = call.body(Full::new(Bytes::from_static(b"\0\0\0\0\0"))).unwrap();
    let (head, body) = calls.send_request(call).await.unwrap().into_parts();
    let trailers = body.collect().await.unwrap().trailers().cloned().unwrap_or_default();
    let all = [trailers, head.headers];
    let mut found = all.iter().filter_map(|fields| fields.get("grpc-status"));
    found.next().expect("a status").to_str().unwrap().to_owned()
}

#[tokio::test(flavor = "multi_thread")]
async fn below_a_root_path_everything_is_as_at_argocd_server() {
    let port = free_port();
    let setup = Setup::new(Wire::Plain);
    let server = json!(format!("http://127.0.0.1:{port}{ROOT}"));
    let mut fixture = setup.start(|layout| layout.setting("/argocd/server", server)).await;
    let _server = start_below_root(&mut fixture, port).await;
    let gateway = fixture.gateway.address();
    let direct: SocketAddr = ([127, 0, 0, 1], port).into();
    let password = fixture.argocd.password();

    // gRPC-Web has the root path, gRPC has none.
    for flags in [&["--plaintext", "--grpc-web-root-path", ROOT][..], &["--plaintext"]] {
        let [passed, direct] = [gateway, direct].map(|address| Cli::new(&address.to_string(), flags));
        for cli in [&passed, &direct] {
            let signed_in = cli.login("admin", password).await;
            assert!(signed_in.status.success(), "{flags:?}: {}", signed_in.stderr);
        }
        for command in READS {
            passed.assert_same_output(&direct, command).await;
        }
    }
    // The other way round, neither serves it.
    for address in [gateway, direct] {
        let web = Cli::new(&address.to_string(), &["--plaintext", "--grpc-web"]);
        let refused = web.login("admin", password).await;
        assert!(!refused.status.success(), "{address}: {}", refused.stdout);
    }
    let session = token::session(SESSION_KEY, "admin");
    let list = "/application.ApplicationService/List";
    for (path, session, expected) in [
        (list.to_owned(), Some(&*session), "0"),
        (list.to_owned(), None, "16"),
        (format!("{ROOT}{list}"), Some(&*session), "12"),
        (format!("{ROOT}{list}"), None, "12"),
        (format!("{ROOT}/version.VersionService/Version"), None, "12"),
    ] {
        for address in [gateway, direct] {
            let status = grpc_status(address, &path, session).await;
            assert_eq!(status, expected, "{path} at {address}");
        }
    }

    // Status and content of REST.
    let client = fixture.client(|client| client);
    let read = async |address: SocketAddr, path: &str| {
        let request = client.get(format!("http://{address}{path}")).bearer_auth(&session);
        let answer = request.send().await.unwrap();
        (answer.status().as_u16(), answer.text().await.unwrap())
    };
    for (path, status) in [
        ("/api/version", 200),
        ("/api/v1/projects/default", 200),
        ("/api/v1/account", 200),
        ("/swagger.json", 200),
        ("/api/v1/nothing", 404),
    ] {
        let path = format!("{ROOT}{path}");
        let (passed, straight) = (read(gateway, &path).await, read(direct, &path).await);
        assert_eq!(passed, straight, "{path}");
        assert_eq!(passed.0, status, "{path}: {}", passed.1);
    }
    for path in ["/api/version", "/api/v1/account", "/swagger.json", "/"] {
        assert_eq!(read(direct, path).await.0, 404, "{path}");
        assert_eq!(read(gateway, path).await.0, 404, "{path}");
    }
    // Only argocd-server's own network has its probe.
    assert_eq!(read(direct, "/healthz").await.0, 200);
    assert_eq!(read(gateway, "/healthz").await.0, 404);
}
