//! `policies/argocd`: what it decides about one call by each transport, what the client sees, what
//! is recorded, and that argocd-server gets the whole content of what passes.

use std::time::Duration;

use serde_json::{Value, json};

use crate::wire::reason;
use test_support::backend::{Backend, Reply};
use test_support::client::{Answer, Client};
use test_support::token;
use test_support::world::{SESSION_KEY, Setup, World};

const POLICY: &str = "policies/argocd/policy.rego";

const SYNC: &str = "/application.ApplicationService/Sync";

/// A gateway whose policy for Argo CD's API has `rule` added.
async fn world(backend: &Backend, rule: &str) -> World {
    let settings = json!({"argocd": {"server": format!("http://{}", backend.address)}});
    let setup = Setup {
        settings,
        ..Setup::default()
    };
    let world = setup.start().await;
    change(&world, rule).await;
    world
}

/// Adds a rule to the shipped policy.
async fn change(world: &World, rule: &str) {
    let shipped = test_support::checkout().join(POLICY);
    let policy = std::fs::read_to_string(shipped).unwrap();
    let generation = generation(world).await;
    std::fs::write(world.path(POLICY), format!("{policy}\n{rule}\n")).unwrap();
    world
        .until("the policy is in force", async || {
            self::generation(world).await != generation
        })
        .await;
}

async fn generation(world: &World) -> Value {
    let page: Value = serde_json::from_str(&world.admin("/configuration").await).unwrap();
    page["generation"].clone()
}

fn head(method: &str, path: &str, user: &str, fields: &str) -> Vec<u8> {
    let token = token::session(SESSION_KEY, user);
    format!("{method} {path} HTTP/1.1\r\nhost: argocd.test\r\nauthorization: Bearer {token}\r\n{fields}\r\n")
        .into_bytes()
}

async fn send(world: &World, request: &[u8]) -> Answer {
    Client::connect(world.address()).await.exchange(request).await
}

/// A message of texts, at most 127 bytes each, in its frame.
fn framed(fields: &[(u8, &str)]) -> Vec<u8> {
    let field = |(number, text): &(u8, &str)| {
        // Numbers up to 15 take one byte.
        let head = [number << 3 | 2, u8::try_from(text.len()).unwrap()];
        [&head[..], text.as_bytes()].concat()
    };
    let message: Vec<u8> = fields.iter().flat_map(field).collect();
    let length = u32::try_from(message.len()).unwrap().to_be_bytes();
    [&[0][..], &length, &message].concat()
}

fn web_call(path: &str, user: &str, content: &[u8]) -> Vec<u8> {
    let length = content.len();
    let fields = format!("content-type: application/grpc-web+proto\r\ncontent-length: {length}\r\n");
    [&head("POST", path, user, &fields), content].concat()
}

fn rest_sync(application: &str, user: &str, content: &str) -> Vec<u8> {
    let length = content.len();
    let fields = format!("content-type: application/json\r\ncontent-length: {length}\r\n");
    let path = format!("/api/v1/applications/{application}/sync");
    [&head("POST", &path, user, &fields), content.as_bytes()].concat()
}

/// The trailers `grpc-status` and `grpc-message` of an answer by gRPC-Web.
fn grpc_status(answer: &Answer) -> String {
    let fields = [answer.values("grpc-status"), answer.values("grpc-message")].concat();
    match fields.is_empty() {
        true => String::from_utf8_lossy(&answer.content).into_owned(),
        false => fields.join(" "),
    }
}

/// A backend that begins a stream with one event, and goes on for ever.
async fn streaming() -> Backend {
    let start = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n9\r\ndata: \
                  0\n\n\r\n";
    Backend::start(move |_| Reply::Stall(start.to_vec())).await
}

/// Opens a stream and reads its first event.
async fn open_stream(world: &World, path: &str) -> Client {
    let mut client = Client::connect(world.address()).await;
    client.send(&head("GET", path, "alice", "")).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    client.through(b"data: 0\n\n\r\n").await;
    client
}

/// The newest record.
fn record(world: &World) -> Value {
    let text = std::fs::read_to_string(world.path("decisions.jsonl")).unwrap_or_default();
    serde_json::from_str(text.lines().last().unwrap_or("null")).unwrap()
}

const NO_SYNC: &str = "deny contains \"no syncs of shop today\" if {\n\tinput.request.method == \"Sync\"\n\t\
                       input.application.project == \"shop\"\n}";

#[tokio::test(flavor = "multi_thread")]
async fn one_rule_stops_a_sync_by_every_transport() {
    let backend = Backend::start(|_| Reply::ok("synced")).await;
    let world = world(&backend, NO_SYNC).await;
    let denied = "no syncs of shop today";

    let answer = send(&world, &rest_sync("cart", "alice", "{}")).await;
    assert_eq!((answer.status, reason(&answer)), (403, "permission_denied".to_owned()));
    let body: Value = serde_json::from_slice(&answer.content).unwrap();
    assert_eq!((&body["message"], &body["code"]), (&json!(denied), &json!(7)));
    world
        .until("the record is written", async || record(&world)["outcome"] == "denied")
        .await;
    let written = record(&world);
    assert_eq!(written["front"], "argocd", "{written}");
    assert_eq!(written["api_method"], "application.ApplicationService/Sync");
    assert_eq!(written["detail"], denied);
    assert_eq!(written["principal"]["username"], "alice");
    assert!(written["policy_sha256"].is_string() && written["timestamp"].is_string());

    let answer = send(&world, &web_call(SYNC, "alice", &framed(&[(1, "cart")]))).await;
    let status = grpc_status(&answer);
    assert!(status.contains('7') && status.contains(denied), "{status}");
    // The same path, as argocd-server would decode it.
    let encoded = "/application.ApplicationService%2FSync";
    let answer = send(&world, &web_call(encoded, "alice", &framed(&[(1, "cart")]))).await;
    assert!(grpc_status(&answer).contains(denied), "{}", grpc_status(&answer));
    let answer = send(
        &world,
        &head(
            "POST",
            "/api/v1/applications/cart%2Fsync",
            "alice",
            "content-type: application/json\r\ncontent-length: 0\r\n",
        ),
    )
    .await;
    assert_eq!(answer.status, 403);
    assert!(backend.seen().is_empty());

    // Another Application, and another method.
    for (request, content) in [
        (
            rest_sync("other", "alice", "{\"prune\":true}"),
            b"{\"prune\":true}".to_vec(),
        ),
        (
            web_call(SYNC, "alice", &framed(&[(1, "other")])),
            framed(&[(1, "other")]),
        ),
        (
            web_call("/application.ApplicationService/Get", "alice", &framed(&[(1, "cart")])),
            framed(&[(1, "cart")]),
        ),
    ] {
        let before = backend.seen().len();
        assert_eq!(send(&world, &request).await.status, 200);
        let seen = backend.seen();
        assert_eq!(seen.len(), before + 1);
        assert_eq!(seen[before].content, content, "the content must be whole");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_does_not_fit_is_refused_only_if_a_policy_reads_it() {
    let backend = Backend::start(|_| Reply::ok("{}")).await;
    let requests = [
        (
            web_call(SYNC, "alice", b"\0\0\0\0\x05ab"),
            "must begin with a whole message",
        ),
        (
            web_call(SYNC, "alice", &framed(&[(1, "cart"), (1, "other")])),
            "`name` is given more than once",
        ),
        (
            rest_sync("cart", "alice", "{\"project\":\"a\",\"Project\":\"b\"}"),
            "`project` is given more than once",
        ),
        (rest_sync("cart", "alice", "{"), "is not one JSON value"),
    ];
    let world = world(&backend, NO_SYNC).await;
    for (request, text) in &requests {
        let answer = send(&world, request).await;
        let shown = format!("{} {}", grpc_status(&answer), String::from_utf8_lossy(&answer.content));
        assert!(shown.contains(text), "{shown}");
    }
    assert!(backend.seen().is_empty());
    change(&world, "").await;
    for (request, _) in &requests {
        let _ = send(&world, request).await;
    }
    assert_eq!(backend.seen().len(), requests.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn the_reason_of_the_caller_is_read_and_not_forwarded() {
    let rule = "deny contains \"say why\" if {\n\tinput.request.method == \"Rollback\"\n\tnot input.reason\n}";
    let backend = Backend::start(|_| Reply::ok("{}")).await;
    let world = world(&backend, rule).await;
    let rollback = |fields: &str| {
        let fields = format!("content-type: application/json\r\ncontent-length: 2\r\n{fields}");
        [
            head("POST", "/api/v1/applications/cart/rollback", "alice", &fields),
            b"{}".to_vec(),
        ]
        .concat()
    };
    for fields in [
        "",
        "tollgate-reason: \r\n",
        "tollgate-reason: a\r\ntollgate-reason: b\r\n",
    ] {
        let answer = send(&world, &rollback(fields)).await;
        assert_eq!(
            (answer.status, reason(&answer)),
            (403, "permission_denied".to_owned()),
            "{fields}"
        );
    }
    assert!(backend.seen().is_empty());
    assert_eq!(
        send(&world, &rollback("tollgate-reason: ticket 42\r\n")).await.status,
        200
    );
    assert_eq!(backend.seen()[0].values("tollgate-reason"), [""; 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_open_stream_ends_when_the_policy_takes_it_away() {
    let backend = streaming().await;
    let world = world(&backend, "").await;
    let mut streams = Vec::new();
    for path in [
        "/api/v1/stream/applications/cart/resource-tree",
        "/api/v1/stream/applications",
    ] {
        streams.push(open_stream(&world, path).await);
    }
    change(
        &world,
        "deny contains \"no trees\" if input.request.method == \"WatchResourceTree\"",
    )
    .await;
    let mut other = streams.pop().unwrap();
    let rest = streams.pop().unwrap().rest().await;
    assert!(
        !rest.ends_with(b"0\r\n\r\n"),
        "the client must see that it was cut: {rest:?}"
    );
    let open = tokio::time::timeout(Duration::from_millis(100), other.rest()).await;
    assert!(open.is_err(), "the other stream was cut too");
}

/// The policy before did not look at what the new one denies by.
#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_begins_to_read_content_ends_what_was_let_in_without() {
    let backend = streaming().await;
    let world = world(&backend, "").await;
    let tree = "/api/v1/stream/applications/cart/resource-tree";
    let mut client = open_stream(&world, tree).await;
    change(
        &world,
        "deny contains \"not shop\" if input.application.project == \"shop\"",
    )
    .await;
    let rest = client.rest().await;
    assert!(
        !rest.ends_with(b"0\r\n\r\n"),
        "the client must see that it was cut: {rest:?}"
    );
    let answer = send(&world, &head("GET", tree, "alice", "")).await;
    assert_eq!((answer.status, reason(&answer)), (403, "permission_denied".to_owned()));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_service_can_be_switched_off() {
    let backend = Backend::start(|_| Reply::ok("{}")).await;
    let world = world(&backend, "").await;
    let certificates = head("GET", "/api/v1/certificates", "alice", "");
    assert_eq!(send(&world, &certificates).await.status, 200);
    let before = generation(&world).await;
    let off = "off: [certificate.CertificateService]\n";
    std::fs::write(world.path("policies/argocd/data/services.yaml"), off).unwrap();
    world
        .until("the service is off", async || generation(&world).await != before)
        .await;
    let answer = send(&world, &certificates).await;
    assert_eq!((answer.status, reason(&answer)), (403, "permission_denied".to_owned()));
    let keys = head("GET", "/api/v1/gpgkeys", "alice", "");
    assert_eq!(send(&world, &keys).await.status, 200);
}

/// argocd-server updates an object that exists, if the caller says `upsert`.
#[tokio::test(flavor = "multi_thread")]
async fn an_upsert_is_decided_as_an_update_too() {
    let backend = Backend::start(|_| Reply::ok("{}")).await;
    let rule = "deny contains \"no changes today\" if input.request.action == \"update\"";
    let world = world(&backend, rule).await;
    let content = r#"{"metadata":{"name":"cart"},"spec":{"project":"shop"}}"#;
    let create = |query: &str| {
        let fields = format!(
            "content-type: application/json\r\ncontent-length: {}\r\n",
            content.len()
        );
        let path = format!("/api/v1/applications{query}");
        [&head("POST", &path, "alice", &fields), content.as_bytes()].concat()
    };
    for query in ["?upsert=true", "?upsert=1", "?upsert=T", "?validate=false&upsert=TRUE"] {
        let answer = send(&world, &create(query)).await;
        assert_eq!(answer.status, 403, "{query}");
        let body: Value = serde_json::from_slice(&answer.content).unwrap();
        assert_eq!(body["message"], "no changes today", "{query}");
    }
    let project = r#"{"project":{"metadata":{"name":"shop"}},"upsert":true}"#;
    let fields = format!(
        "content-type: application/json\r\ncontent-length: {}\r\n",
        project.len()
    );
    let request = [&head("POST", "/api/v1/projects", "alice", &fields), project.as_bytes()].concat();
    assert_eq!(send(&world, &request).await.status, 403);
    // By gRPC: field 2 is true.
    let mut call = framed(&[]);
    call.extend_from_slice(&[0x10, 0x01]);
    call[4] = 2;
    for path in [
        "/application.ApplicationService/Create",
        "/cluster.ClusterService/Create",
        "/repository.RepositoryService/CreateRepository",
    ] {
        let answer = send(&world, &web_call(path, "alice", &call)).await;
        assert!(grpc_status(&answer).contains("no changes today"), "{path}");
    }
    assert!(backend.seen().is_empty());
    for query in ["", "?upsert=false", "?upsert=0"] {
        assert_eq!(send(&world, &create(query)).await.status, 200, "{query}");
    }
    // A policy that allows updates and not creates refuses both.
    change(
        &world,
        "deny contains \"no new ones\" if {\n\tinput.request.action == \"create\"\n\t\
         input.request.method == \"Create\"\n}",
    )
    .await;
    assert_eq!(send(&world, &create("?upsert=true")).await.status, 403);
}

/// What argocd-server checks of a diff are the live objects; what it dry-runs are the manifests.
#[tokio::test(flavor = "multi_thread")]
async fn a_diff_reads_no_object_but_those_that_argocd_server_checks() {
    let backend = Backend::start(|_| Reply::ok("")).await;
    let world = world(&backend, "").await;
    let live = "\x12\x09ConfigMap\x1a\x04shop\x22\x04mine";
    let manifest = |namespace: &str, name: &str| {
        format!(r#"{{"apiVersion":"v1","kind":"ConfigMap","metadata":{{"namespace":"{namespace}","name":"{name}"}}}}"#)
    };
    let path = "/application.ApplicationService/ServerSideDiff";
    let call = |targets: &[&str]| {
        let fields: Vec<(u8, &str)> = [(1, "cart"), (4, live)]
            .into_iter()
            .chain(targets.iter().map(|target| (5, *target)))
            .collect();
        web_call(path, "alice", &framed(&fields))
    };
    for target in [manifest("shop", "theirs"), manifest("cart", "mine"), "{}".to_owned()] {
        let answer = send(&world, &call(&[&target])).await;
        let status = grpc_status(&answer);
        assert!(
            status.contains('3') && status.contains("targetManifests[0]"),
            "{target}: {status}"
        );
    }
    let answer = send(&world, &call(&[&manifest("shop", "mine"), &manifest("shop", "theirs")])).await;
    assert!(
        grpc_status(&answer).contains("2 `targetManifests`"),
        "{}",
        grpc_status(&answer)
    );
    let rest = "/api/v1/applications/cart/server-side-diff?targetManifests=%7B%7D";
    assert_eq!(send(&world, &head("GET", rest, "alice", "")).await.status, 400);
    assert!(backend.seen().is_empty());
    let own = call(&[&manifest("shop", "mine")]);
    assert_eq!(send(&world, &own).await.status, 200);
    assert_eq!(backend.seen().len(), 1);
}

/// Argo CD's UI opens a stream again as soon as it ends.
#[tokio::test(flavor = "multi_thread")]
async fn the_refusal_of_a_stream_is_held_for_a_moment() {
    let backend = Backend::start(|_| Reply::ok("{}")).await;
    let rule = "deny contains \"no streams\" if input.request.method in {\"Watch\", \"PodLogs\", \"Get\"}";
    let world = world(&backend, rule).await;
    for path in [
        "/api/v1/stream/applications",
        "/api/v1/applications/cart/logs?follow=true",
        "/api/v1/applications/cart/pods/a/logs",
    ] {
        let began = std::time::Instant::now();
        let mut stream = Client::connect(world.address()).await;
        stream.send(&head("GET", path, "alice", "")).await;
        // Meanwhile the person's other requests are served.
        assert_eq!(
            send(&world, &head("GET", "/api/v1/gpgkeys", "alice", "")).await.status,
            200
        );
        assert_eq!(stream.head().await.unwrap().status, 403, "{path}");
        assert!(
            began.elapsed() >= Duration::from_secs(2),
            "{path}: {:?}",
            began.elapsed()
        );
    }
    // A request that is no stream is refused at once: before a stream that began earlier.
    let mut stream = Client::connect(world.address()).await;
    stream
        .send(&head("GET", "/api/v1/stream/applications", "alice", ""))
        .await;
    assert_eq!(
        send(&world, &head("GET", "/api/v1/applications/cart", "alice", ""))
            .await
            .status,
        403
    );
    let waiting = tokio::time::timeout(Duration::from_millis(1), stream.head()).await;
    assert!(waiting.is_err(), "the stream was refused at once");
}
