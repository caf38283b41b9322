//! The argocd front: what argocd-server sees of a request, and what the client sees of its answer.
//! The backend stands for argocd-server, and records every byte.

mod http2;

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::wire::{put_argocd_cm, reason};
use test_support::backend::{Backend, Reply, Seen};
use test_support::client::{Answer, Client};
use test_support::token;
use test_support::world::{SESSION_KEY, Setup, World, map};

/// A gateway in front of `backend`, with the ApplicationSet front open.
async fn world(backend: &Backend) -> World {
    world_at(backend.address, "").await
}

/// A gateway in front of what listens at `argocd` and serves below `root_path`, with the
/// ApplicationSet front open.
async fn world_at(argocd: SocketAddr, root_path: &str) -> World {
    let settings = json!({
        "argocd": {"server": format!("http://{argocd}{root_path}")},
        "applicationSets": {},
    });
    let setup = Setup {
        settings,
        ..Setup::default()
    };
    setup.start().await
}

async fn echo() -> Backend {
    Backend::start(|seen| Reply::ok(seen.line())).await
}

fn head(method: &str, path: &str, fields: &str) -> Vec<u8> {
    format!("{method} {path} HTTP/1.1\r\nhost: argocd.test\r\n{fields}\r\n").into_bytes()
}

fn bearer(user: &str) -> String {
    format!("authorization: {}\r\n", bearer_token(user))
}

fn bearer_token(user: &str) -> String {
    format!("Bearer {}", token::session(SESSION_KEY, user))
}

async fn send(world: &World, request: &[u8]) -> Answer {
    Client::connect(world.address()).await.exchange(request).await
}

fn sole(backend: &Backend) -> Seen {
    let seen = backend.seen();
    assert_eq!(seen.len(), 1, "{seen:?}");
    seen[0].clone()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_needs_no_session_at_argocd_server_needs_none_here() {
    let backend = echo().await;
    let world = world(&backend).await;
    for path in [
        "/",
        "/applications/argocd/shop?view=tree",
        "/extensions.js",
        "/auth/login?return_url=%2Fapplications",
        "/api/dex/callback?code=a",
        "/api/v1/settings",
        "/api/v1/session/userinfo",
        "/api/badge?name=shop",
    ] {
        let answer = send(&world, &head("GET", path, "")).await;
        let expected = format!("GET {path} HTTP/1.1");
        assert_eq!((answer.status, answer.content), (200, expected.into_bytes()), "{path}");
    }
    let before = backend.seen().len();
    for path in [
        "/api/v1/applications",
        "/api/v1/projects",
        "/api/v1/clusters",
        "/terminal?pod=a",
    ] {
        let answer = send(&world, &head("GET", path, "")).await;
        assert_eq!(
            (answer.status, reason(&answer)),
            (401, "no_credential".to_owned()),
            "{path}"
        );
        // The interface of Argo CD sends people to its sign-in when it reads this code.
        let body: Value = serde_json::from_slice(&answer.content).unwrap();
        assert_eq!(body["code"], 16, "{body}");
    }
    assert_eq!(backend.seen().len(), before);
}

#[tokio::test(flavor = "multi_thread")]
async fn argocd_server_gets_the_callers_credential_and_host_and_no_other_identity() {
    let backend = echo().await;
    let world = world(&backend).await;
    let session = token::session(SESSION_KEY, "alice");
    let fields = format!(
        "origin: http://argocd.test\r\ncookie: argocd.token={session}\r\ncookie: theme=dark\r\ncontent-type: \
         application/json\r\ncontent-length: 2\r\nGrpc-Metadata-Token: stolen\r\nGrpcgateway-Authorization: Bearer \
         stolen\r\nX-HTTP-Method-Override: DELETE\r\nX-Forwarded-For: 192.0.2.1\r\nX-Forwarded-Proto: https\r\n\
         Argocd-Username: admin\r\nImpersonate-User: admin\r\n"
    );
    let request = [head("POST", "/api/v1/applications/shop/sync", &fields), b"{}".to_vec()].concat();
    assert_eq!(send(&world, &request).await.status, 200);
    let seen = sole(&backend);
    assert_eq!(seen.line(), "POST /api/v1/applications/shop/sync HTTP/1.1");
    assert_eq!(seen.content, b"{}");
    assert_eq!(seen.values("cookie"), [format!("argocd.token={session}; theme=dark")]);
    assert_eq!(seen.values("host"), ["argocd.test"]);
    assert_eq!(seen.values("x-forwarded-for"), ["127.0.0.1"]);
    assert_eq!(seen.values("x-forwarded-proto"), ["http"]);
    for name in [
        "grpc-metadata-token",
        "grpcgateway-authorization",
        "x-http-method-override",
        "argocd-username",
        "impersonate-user",
    ] {
        assert_eq!(seen.values(name), [""; 0], "{name}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn two_different_tokens_are_refused_and_a_call_has_only_one() {
    let backend = echo().await;
    let world = world(&backend).await;
    let [alice, bob] = ["alice", "bob"].map(|user| token::session(SESSION_KEY, user));
    let fields = format!("authorization: Bearer {alice}\r\ncookie: argocd.token={bob}\r\n");
    let answer = send(&world, &head("GET", "/api/v1/applications", &fields)).await;
    assert_eq!(
        (answer.status, reason(&answer)),
        (401, "conflicting_credentials".to_owned())
    );
    assert!(backend.seen().is_empty());
    // argocd-server would prefer `token`, so it does not get it.
    let fields = format!(
        "authorization: Bearer {alice}\r\ntoken: {bob}\r\ncontent-type: application/grpc-web+proto\r\ncontent-length: \
         5\r\n"
    );
    let request = [
        head("POST", "/application.ApplicationService/List", &fields),
        b"\0\0\0\0\0".to_vec(),
    ];
    let answer = send(&world, &request.concat()).await;
    assert_eq!(answer.status, 200);
    let seen = sole(&backend);
    assert_eq!(seen.values("authorization"), [format!("Bearer {alice}")]);
    assert_eq!(seen.values("token"), [""; 0]);
    assert_eq!(seen.values("content-type"), ["application/grpc-web+proto"]);
    assert_eq!(seen.content, b"\0\0\0\0\0");
}

/// Requests for what is Tollgate's own, in spellings that argocd-server would read as the same.
#[tokio::test(flavor = "multi_thread")]
async fn what_is_tollgates_never_reaches_argocd_server() {
    let backend = echo().await;
    let world = world(&backend).await;
    let grpc_web = "content-type: application/grpc-web+proto\r\n";
    for (method, path, fields, status) in [
        ("GET", "/api/v1/applicationsets", "", 200),
        ("GET", "/api/v1/applicationsets/", "", 400),
        (
            "POST",
            "/api/v1/applicationsets:",
            "content-type: application/json\r\n",
            400,
        ),
        ("GET", "/api/v1/stream/applicationsets%3A", "", 400),
        ("GET", "/api%2Fv1%2Fapplicationsets", "", 404),
        ("GET", "/api/v1%2F%2Fapplicationsets", "", 400),
        ("GET", "/%2Fapi/v1/applicationsets", "", 404),
        ("GET", "/api/v1/%61pplicationsets", "", 400),
        ("GET", "/api/v1/application%73ets/a", "", 400),
        ("GET", "//api/v1/applicationsets", "", 400),
        ("GET", "/api//v1/applicationsets", "", 400),
        ("GET", "/api/v1/x/../applicationsets", "", 400),
        ("GET", "/api/v1/x%2F..%2Fapplicationsets", "", 400),
        ("GET", "/api/v1/x/%2e%2e/applicationsets", "", 400),
        ("GET", "/api/v1/x\\..\\applicationsets", "", 400),
        (
            "POST",
            "/api/v1/applicationsets/a",
            "X-HTTP-Method-Override: DELETE\r\n",
            404,
        ),
        (
            "POST",
            "/applicationset.ApplicationSetService/List",
            "content-type: application/json\r\n",
            404,
        ),
        ("POST", "/applicationset.ApplicationSetService/Nothing", grpc_web, 200),
        ("POST", "/applicationset.ApplicationSetService%2FList", grpc_web, 404),
        ("GET", "/extensions%2Fmetrics", "", 404),
        ("GET", "/extensions/metrics%2F..%2Fx", "", 400),
        ("GET", "/api/v1/extensions/metrics/a", "", 400),
        ("GET", "/api/v1/tollgate/clusters", "", 200),
        ("GET", "/api/v1/tokens", "", 404),
    ] {
        let fields = format!("{}{fields}content-length: 0\r\n", bearer("alice"));
        let answer = send(&world, &head(method, path, &fields)).await;
        assert_eq!(
            answer.status,
            status,
            "{method} {path}: {:?}",
            String::from_utf8_lossy(&answer.content)
        );
        assert!(backend.seen().is_empty(), "{method} {path}");
    }
    // What only resembles it is argocd-server's.
    for path in [
        "/api/v1/applicationsetsx",
        "/API/v1/applicationsets",
        "/api/v1/applicationsets;x",
    ] {
        let answer = send(&world, &head("GET", path, &bearer("alice"))).await;
        let expected = format!("GET {path} HTTP/1.1");
        assert_eq!((answer.status, answer.content), (200, expected.into_bytes()), "{path}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn argocd_server_sets_the_sessions_of_its_origin() {
    let reply = "HTTP/1.1 200 OK\r\nset-cookie: argocd.token=a; Path=/; HttpOnly\r\nset-cookie: argocd.token-1=b\r\n\
                 strict-transport-security: max-age=1\r\nconnection: x-hop\r\nx-hop: 1\r\ntollgate-decision-id: \
                 forged\r\ncontent-length: 2\r\n\r\n{}";
    let backend = Backend::start(|_| Reply::Bytes(reply.as_bytes().to_vec())).await;
    let world = world(&backend).await;
    let request = [head("POST", "/api/v1/session", "content-length: 2\r\n"), b"{}".to_vec()].concat();
    let answer = send(&world, &request).await;
    assert_eq!(answer.status, 200);
    assert_eq!(
        answer.values("set-cookie"),
        ["argocd.token=a; Path=/; HttpOnly", "argocd.token-1=b"]
    );
    assert_eq!(answer.values("strict-transport-security"), ["max-age=1"]);
    assert_eq!(answer.values("x-hop"), [""; 0]);
    assert_eq!(answer.values("tollgate-decision-id").len(), 1);
    assert_ne!(answer.values("tollgate-decision-id"), ["forged"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_argocd_server_that_is_away_is_502_and_the_rest_goes_on() {
    let backend = echo().await;
    let world = world(&backend).await;
    let address = tokio::net::TcpListener::bind("127.0.0.1:0")
        .await
        .unwrap()
        .local_addr()
        .unwrap();
    let away = Setup {
        settings: json!({"argocd": {"server": format!("http://{address}")}, "applicationSets": {}}),
        ..Setup::default()
    };
    drop(world);
    let world = away.start().await;
    let answer = send(&world, &head("GET", "/api/v1/applications", &bearer("alice"))).await;
    assert_eq!(
        (answer.status, reason(&answer)),
        (502, "backend_unreachable".to_owned())
    );
    // A browser gets a page, and a script of the page what it can read.
    let html = "accept: text/html,application/xhtml+xml,*/*;q=0.8\r\n";
    let answer = send(&world, &head("GET", "/applications/argocd/shop", html)).await;
    assert_eq!(
        (answer.status, answer.values("content-type")),
        (502, vec!["text/html; charset=utf-8"])
    );
    let page = String::from_utf8(answer.content.clone()).unwrap();
    assert!(page.contains("<h1>Argo CD does not answer</h1>"), "{page}");
    assert!(page.contains(answer.values("tollgate-decision-id")[0]), "{page}");
    let answer = send(&world, &head("GET", "/api/v1/settings", html)).await;
    assert_eq!(
        (answer.status, answer.values("content-type")),
        (502, vec!["application/json"])
    );
    let answer = send(&world, &head("GET", "/api/v1/applicationsets", &bearer("alice"))).await;
    assert_eq!(answer.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_ends_when_its_callers_account_is_withdrawn() {
    let start = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n9\r\ndata: \
                  0\n\n\r\n";
    let backend = Backend::start(move |_| Reply::Stall(start.to_vec())).await;
    let world = world(&backend).await;
    let mut streams = Vec::new();
    for user in ["alice", "bob"] {
        let mut client = Client::connect(world.address()).await;
        client
            .send(&head("GET", "/api/v1/stream/applications", &bearer(user)))
            .await;
        assert_eq!(client.head().await.unwrap().status, 200);
        client.through(b"data: 0\n\n\r\n").await;
        streams.push(client);
    }
    put_argocd_cm(&world, &map(&[("accounts.bob", "login")]));
    let mut bob = streams.pop().unwrap();
    let mut alice = streams.pop().unwrap();
    let rest = alice.rest().await;
    assert!(
        !rest.ends_with(b"0\r\n\r\n"),
        "the client must see that it was cut: {rest:?}"
    );
    let open = tokio::time::timeout(std::time::Duration::from_millis(100), bob.rest()).await;
    assert!(open.is_err(), "the other stream was cut too");
}

/// A gateway in front of a `backend` that serves below `/argo-cd`.
async fn below_root_path(backend: &Backend) -> World {
    world_at(backend.address, "/argo-cd").await
}

#[tokio::test(flavor = "multi_thread")]
async fn below_the_root_path_everything_is_as_without_one() {
    let backend = echo().await;
    let world = below_root_path(&backend).await;
    for (path, forwarded) in [
        ("/argo-cd", "/argo-cd/"),
        ("/argo-cd/", "/argo-cd/"),
        (
            "/argo-cd/auth/login?return_url=%2Fargo-cd",
            "/argo-cd/auth/login?return_url=%2Fargo-cd",
        ),
        (
            "/argo-cd/api/v1/applications?fields=items",
            "/argo-cd/api/v1/applications?fields=items",
        ),
        (
            "/argo-cd/api/v1/clusters/https:%2F%2Fa",
            "/argo-cd/api/v1/clusters/https:%2F%2Fa",
        ),
        ("/argo-cd/argo-cd/x", "/argo-cd/argo-cd/x"),
    ] {
        let answer = send(&world, &head("GET", path, &bearer("alice"))).await;
        let expected = format!("GET {forwarded} HTTP/1.1");
        assert_eq!((answer.status, answer.content), (200, expected.into_bytes()), "{path}");
    }
    // Where argocd-server asks for a session, the gateway does.
    let before = backend.seen().len();
    let answer = send(&world, &head("GET", "/argo-cd/api/v1/applications", "")).await;
    assert_eq!((answer.status, reason(&answer)), (401, "no_credential".to_owned()));
    let web = format!(
        "{}content-type: application/grpc-web+proto\r\ncontent-length: 5\r\n",
        bearer("alice")
    );
    let call = |path: &str| [head("POST", path, &web), b"\0\0\0\0\0".to_vec()].concat();
    let answer = send(&world, &call("/argo-cd/application.ApplicationService/List")).await;
    assert_eq!(answer.status, 200);
    assert_eq!(backend.seen().len(), before + 1);
    let line = "POST /argo-cd/application.ApplicationService/List HTTP/1.1";
    assert_eq!(backend.seen()[before].line(), line);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_tollgates_stays_so_below_the_root_path() {
    let backend = echo().await;
    let world = below_root_path(&backend).await;
    for (path, status) in [
        ("/argo-cd/api/v1/applicationsets", 200),
        ("/api/v1/applicationsets", 200),
        ("/argo-cd/api/v1/tollgate/clusters", 200),
        ("/argo-cd/extensions/metrics", 400),
        ("/argo-cd/api%2Fv1%2Fapplicationsets", 404),
        ("/argo-cd/%2Fapi/v1/applicationsets", 404),
        ("/argo-cd//api/v1/applicationsets", 400),
        ("/argo-cd/./api/v1/applicationsets", 400),
        ("/argo-cd/x/../api/v1/applicationsets", 400),
        ("/argo-cd/api/v1/%61pplicationsets", 400),
        // Other spellings of the root path are outside it, where only gRPC is argocd-server's.
        ("/argo-cd%2Fapi/v1/applicationsets", 404),
        ("/%2Fargo-cd/api/v1/applicationsets", 404),
        ("//argo-cd/api/v1/applicationsets", 400),
        ("/%61rgo-cd/api/v1/applicationsets", 400),
        ("/argo%2Dcd/api/v1/applicationsets", 400),
        ("/ARGO-CD/api/v1/applicationsets", 404),
        ("/argo-cdx/api/v1/applicationsets", 404),
        ("/x/../argo-cd/api/v1/applicationsets", 400),
        ("/api/v1/applications", 404),
        ("/auth/login", 404),
        ("/", 404),
    ] {
        let answer = send(&world, &head("GET", path, &bearer("alice"))).await;
        assert_eq!(
            answer.status,
            status,
            "{path}: {:?}",
            String::from_utf8_lossy(&answer.content)
        );
        assert!(backend.seen().is_empty(), "{path}");
    }
}

/// kubectl without the path of its server, as behind `kubectl proxy`.
#[tokio::test(flavor = "multi_thread")]
async fn a_token_of_an_agent_at_another_path_is_told_of_the_prefix() {
    let backend = echo().await;
    for argocd in [json!({"server": format!("http://{}", backend.address)}), Value::Null] {
        let mut settings = json!({"kubernetes": {"users": [{"issuer": "argocd", "is": "username"}]}});
        if !argocd.is_null() {
            settings["argocd"] = argocd;
        }
        let setup = Setup {
            settings,
            ..Setup::default()
        };
        let world = setup.start().await;
        let fields = "authorization: Bearer pat:1:t\r\n";
        let answer = send(&world, &head("GET", "/api/v1/namespaces/shop/pods", fields)).await;
        let status: Value = serde_json::from_slice(&answer.content).unwrap();
        assert_eq!((answer.status, &status["kind"]), (400, &json!("Status")), "{status}");
        let message = status["message"].as_str().unwrap();
        assert!(
            message.contains("`/k8s-proxy/`") && message.contains("--append-server-path"),
            "{message}"
        );
    }
    assert!(backend.seen().is_empty());
}

/// `argocd login` to the host name that the console has for itself.
#[tokio::test(flavor = "multi_thread")]
async fn a_call_at_the_consoles_host_is_told_where_argocd_is() {
    let backend = echo().await;
    let setup = Setup {
        settings: json!({
            "argocd": {"server": format!("http://{}", backend.address)},
            "console": {"url": "https://console.example"},
        }),
        argocd_cm: map(&[("url", "https://argocd.example")]),
        ..Setup::default()
    };
    let world = setup.start().await;
    let call = |host: &str| {
        let frame = [0u8; 5];
        let head = format!(
            "POST /session.SessionService/Create HTTP/1.1\r\nhost: {host}\r\ncontent-type: \
             application/grpc-web+proto\r\ncontent-length: {}\r\n\r\n",
            frame.len()
        );
        [head.as_bytes(), &frame].concat()
    };
    let answer = send(&world, &call("console.example")).await;
    let said = format!("{}{}", answer.head, String::from_utf8_lossy(&answer.content));
    for expected in ["console.example", "console.url", "https://argocd.example"] {
        let encoded = expected.replace(':', "%3A").replace('/', "%2F");
        assert!(
            said.contains(expected) || said.contains(&encoded),
            "no {expected}: {said}"
        );
    }
    assert!(backend.seen().is_empty());
    send(&world, &call("argocd.example")).await;
    assert_eq!(backend.seen().len(), 1);
}
