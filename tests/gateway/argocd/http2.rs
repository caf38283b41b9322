//! HTTP/2 requests that two readers could read differently: which server sees each of them, and what
//! exactly it sees.

mod calls;

use http::HeaderName;
use serde_json::Value;

use super::{bearer, bearer_token, head, world_at};
use crate::http2::{Answer, Block, Ending, Seen, Server, send};
use test_support::client::Client;
use test_support::world::World;

/// A path of Tollgate itself, and one of argocd-server.
const OWN: &str = "/api/v1/applicationsets";
const THEIRS: &str = "/api/v1/applications";

/// The server resets the request, or closes the connection, over what HTTP/2 does not allow.
const RESET: &str = "http2 error: stream error received: unspecific protocol error detected";
const CLOSED: &str = "http2 error: connection error received: unspecific protocol error detected";

/// Tollgate itself refuses.
const BAD_TARGET: &str = "tollgate: 400 bad_request_target";
const BAD_REQUEST: &str = "tollgate: 400 bad_request";
const NOT_FOUND: &str = "tollgate: 404 not_found";

/// argocd-server gets what is its own.
const PASSED: &str = "argocd-server: GET /api/v1/applications HTTP/1.1";

/// Fields that argocd-server gets of every client with a token, and those of content.
const USUAL_FIELDS: [&str; 9] = [
    "host",
    "via",
    "x-forwarded-for",
    "x-forwarded-host",
    "x-forwarded-proto",
    "authorization",
    "content-type",
    "content-length",
    "transfer-encoding",
];

fn get(path: &str) -> Block {
    request("GET", path)
}

fn request(method: &str, path: &str) -> Block {
    Block::new(method, path).and("authorization", &bearer_token("alice"))
}

/// Who answered a request, in one line: `argocd-server` with the line that it saw and what else is
/// special there, `tollgate` with its status and reason, or the error of HTTP/2 that the client got.
async fn outcome(world: &World, server: &Server, block: &Block, content: &[u8]) -> String {
    let ending = send(world.address(), block, content).await;
    let seen = server.take_seen();
    match (ending, seen.as_slice()) {
        (Ending::Answered(answer), []) => format!("tollgate: {}", of_tollgate(&answer)),
        (Ending::Answered(answer), [seen]) if is_of_server(&answer, &seen.line) => {
            assert_eq!(seen.host, "argocd.test", "{block:?}");
            let is_single = |name: &&str| seen.fields.get_all(*name).iter().count() < 2;
            assert!(USUAL_FIELDS.iter().all(is_single), "{block:?}: {seen:?}");
            format!("argocd-server: {}{}", seen.line, difference(seen, content))
        }
        (Ending::Failed(text), []) => text,
        (ending, seen) => format!("{ending:?}, and argocd-server saw {seen:?}"),
    }
}

fn of_tollgate(answer: &Answer) -> String {
    if let Some(status) = answer.grpc_status() {
        return format!("grpc-status {status}");
    }
    let body: Value = serde_json::from_slice(&answer.content).unwrap_or_default();
    let reason = body["reason"].as_str().unwrap_or_default();
    format!("{} {reason}", answer.status).trim_end().to_owned()
}

fn is_of_server(answer: &Answer, line: &str) -> bool {
    answer.grpc_status() == Some("0") || (answer.status == 200 && answer.content == line.as_bytes())
}

/// What differs at argocd-server from a usual request with this content.
fn difference(seen: &Seen, content: &[u8]) -> String {
    let names = seen.fields.keys().map(HeaderName::as_str);
    let further: Vec<&str> = names.filter(|name| !USUAL_FIELDS.contains(name)).collect();
    let content = match (&*seen.content, content) {
        (seen, sent) if seen == sent => "",
        ([], _) => ", without the content",
        (seen, _) => panic!("argocd-server saw {seen:?}"),
    };
    match further.is_empty() {
        true => content.to_owned(),
        false => format!(", with {}{content}", further.join(", ")),
    }
}

/// Sends each block with this content, and compares all outcomes at once.
async fn check(content: &[u8], rows: &[(Block, &str)]) {
    check_below("", content, rows).await;
}

/// The same with an argocd-server that has a root path.
async fn check_below(root_path: &str, content: &[u8], rows: &[(Block, &str)]) {
    let server = Server::start().await;
    let world = world_at(server.address, root_path).await;
    let mut others = Vec::new();
    for (block, expected) in rows {
        let outcome = outcome(&world, &server, block, content).await;
        if outcome != *expected {
            others.push(format!("{block:?}\n  {expected}\n  {outcome}"));
        }
    }
    // Nothing came late.
    let probe = format!("{root_path}{THEIRS}");
    let outcome = outcome(&world, &server, &get(&probe), b"").await;
    assert_eq!(outcome, format!("argocd-server: GET {probe} HTTP/1.1"));
    assert!(others.is_empty(), "expected and seen differ:\n{}", others.join("\n"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_path_has_one_server_in_every_spelling() {
    let rows = [
        (get(THEIRS), PASSED),
        (get(OWN), "tollgate: 200"),
        // Other forms of targets.
        (get("http://argocd.test/api/v1/applicationsets"), RESET),
        (get("http://argocd.test/api/v1/applications"), RESET),
        (get("http://other.test/api/v1/applications"), RESET),
        (get("//other.test/api/v1/applications"), BAD_TARGET),
        (get(""), RESET),
        (get("*"), BAD_REQUEST),
        (request("OPTIONS", "*"), BAD_REQUEST),
        (get("api/v1/applicationsets"), RESET),
        (get("api/v1/applications"), RESET),
        (get("?a=b"), "argocd-server: GET /?a=b HTTP/1.1"),
        // Slashes and dots.
        (get("//api/v1/applicationsets"), BAD_TARGET),
        (get("/api//v1/applicationsets"), BAD_TARGET),
        (get("/api%2Fv1%2Fapplicationsets"), NOT_FOUND),
        (get("/api/v1%2Fapplicationsets"), NOT_FOUND),
        (get("/api/v1%2f%2fapplicationsets"), BAD_TARGET),
        (get("/%2Fapi/v1/applicationsets"), NOT_FOUND),
        (get("/api/v1/applicationsets/"), BAD_TARGET),
        (get("/api/v1/applicationsets:"), BAD_TARGET),
        (get("/api/v1/%61pplicationsets"), BAD_TARGET),
        (get("/api/v1/x/../applicationsets"), BAD_TARGET),
        (get("/api/v1/applicationsets/../applications"), BAD_TARGET),
        (get("/api/v1/x%2F..%2Fapplicationsets"), BAD_TARGET),
        (get("/api/v1/x/%2e%2e/applicationsets"), BAD_TARGET),
        (get("/api/v1/x/..;/applicationsets"), BAD_TARGET),
        (get("/api/v1/x\\..\\applicationsets"), BAD_TARGET),
        // Case and parameters.
        (
            get("/API/v1/applicationsets"),
            "argocd-server: GET /API/v1/applicationsets HTTP/1.1",
        ),
        (
            get("/api/v1/applicationsets;x"),
            "argocd-server: GET /api/v1/applicationsets;x HTTP/1.1",
        ),
        (
            get("/api/v1/applicationsetsx"),
            "argocd-server: GET /api/v1/applicationsetsx HTTP/1.1",
        ),
        // A fragment, which no client sends.
        (get("/api/v1/applicationsets#x"), "tollgate: 200"),
        (get("/api/v1/applications#/../applicationsets"), PASSED),
        (
            get("/api/v1/applications?a=b#c"),
            "argocd-server: GET /api/v1/applications?a=b HTTP/1.1",
        ),
        (
            get("/api/v1/applications?/../applicationsets"),
            "argocd-server: GET /api/v1/applications?/../applicationsets HTTP/1.1",
        ),
        // What would end the line of a request of HTTP/1.1.
        (get("/api/v1/applications\0"), RESET),
        (get("/api/v1/applications x"), RESET),
        (get("/api/v1/applications HTTP/1.1\r\nx-a: b\r\n\r\n"), RESET),
        (get("/api/v1/applications\r"), RESET),
        (get("/api/v1/applications\n"), RESET),
        (get("/api/v1/applications\t"), RESET),
        (get("/api/v1/applications\u{7f}"), RESET),
        (get("/api/v1/applications\u{e9}"), BAD_TARGET),
        (get("/api/v1/applications%00"), BAD_TARGET),
        (get("/api/v1/applications%0d%0ax-a:b"), BAD_TARGET),
        (
            get("/api/v1/applications%20x"),
            "argocd-server: GET /api/v1/applications%20x HTTP/1.1",
        ),
        (get("/api/v1/applications?a b"), RESET),
        (get("/api/v1/applications?\r\nx-a: b"), RESET),
    ];
    check(b"", &rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn pseudo_headers_are_read_once_and_first() {
    let rows = [
        // Authorities.
        (get(THEIRS).and("host", "argocd.test"), PASSED),
        (get(THEIRS).and("host", "other.test"), BAD_REQUEST),
        (get(OWN).and("host", "other.test"), BAD_REQUEST),
        (
            get(THEIRS).and("host", "argocd.test").and("host", "other.test"),
            BAD_REQUEST,
        ),
        (get(THEIRS).without(":authority").and("host", "argocd.test"), PASSED),
        (get(THEIRS).without(":authority"), BAD_REQUEST),
        (get(THEIRS).set(":authority", ""), RESET),
        (get(THEIRS).set(":authority", "user@argocd.test"), BAD_REQUEST),
        (get(THEIRS).set(":authority", "argocd.test/x"), RESET),
        (get(THEIRS).set(":authority", "argocd.test\r\nx-a: b"), RESET),
        // Twice, missing or unknown.
        (get(THEIRS).starting_with(":path", OWN), RESET),
        (get(THEIRS).starting_with(":path", THEIRS), RESET),
        (get(THEIRS).starting_with(":method", "POST"), RESET),
        (get(THEIRS).starting_with(":authority", "other.test"), RESET),
        (get(THEIRS).starting_with(":scheme", "https"), RESET),
        (get(THEIRS).without(":path"), RESET),
        (get(THEIRS).without(":method"), RESET),
        (get(THEIRS).without(":scheme"), RESET),
        (get(THEIRS).starting_with(":status", "200"), RESET),
        (get(THEIRS).starting_with(":other", "x"), CLOSED),
        // After regular fields.
        (get(THEIRS).without(":path").and(":path", THEIRS), RESET),
        (get(OWN).and(":path", THEIRS), RESET),
        (get(THEIRS).and(":method", "DELETE"), RESET),
        // Schemes.
        (get(THEIRS).set(":scheme", "https"), PASSED),
        (get(THEIRS).set(":scheme", "ftp"), BAD_REQUEST),
        (get(THEIRS).set(":scheme", ""), BAD_REQUEST),
        (get(THEIRS).set(":scheme", "http://other.test/"), RESET),
        // Methods.
        (
            request("get", THEIRS),
            "argocd-server: get /api/v1/applications HTTP/1.1",
        ),
        (request("", THEIRS), CLOSED),
        (request("GET /api/v1/applicationsets", THEIRS), CLOSED),
        (
            request("PURGE", THEIRS),
            "argocd-server: PURGE /api/v1/applications HTTP/1.1",
        ),
        (request("PURGE", OWN), NOT_FOUND),
        (
            request("TRACE", THEIRS),
            "argocd-server: TRACE /api/v1/applications HTTP/1.1",
        ),
        (request("CONNECT", THEIRS), RESET),
        (
            request("CONNECT", THEIRS).without(":path").without(":scheme"),
            BAD_REQUEST,
        ),
        (
            request("CONNECT", THEIRS).starting_with(":protocol", "websocket"),
            RESET,
        ),
        (
            request("CONNECT", "/terminal").starting_with(":protocol", "websocket"),
            RESET,
        ),
        (request("CONNECT", OWN).starting_with(":protocol", "websocket"), RESET),
        (get(THEIRS).starting_with(":protocol", "websocket"), RESET),
    ];
    check(b"", &rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fields_of_one_connection_or_of_another_method_have_no_effect() {
    let rows = [
        (
            request("POST", OWN).and("x-http-method-override", "GET"),
            "tollgate: 415 bad_content_type",
        ),
        (
            request("POST", "/api/v1/applicationsets/a").and("x-http-method-override", "DELETE"),
            NOT_FOUND,
        ),
        (
            request("POST", THEIRS).and("x-http-method-override", "DELETE"),
            "argocd-server: POST /api/v1/applications HTTP/1.1",
        ),
        (
            request("POST", THEIRS).and("x-http-method", "DELETE"),
            "argocd-server: POST /api/v1/applications HTTP/1.1",
        ),
        (
            request("POST", THEIRS).and("x-method-override", "DELETE"),
            "argocd-server: POST /api/v1/applications HTTP/1.1",
        ),
        (
            request("POST", "/api/v1/applications?_method=DELETE"),
            "argocd-server: POST /api/v1/applications?_method=DELETE HTTP/1.1",
        ),
        (get(THEIRS).and("x-original-url", OWN).and("x-rewrite-url", OWN), PASSED),
        (get(THEIRS).and("X-A", "b"), CLOSED),
        (get(THEIRS).and("Authorization", "Bearer x"), CLOSED),
        (get(THEIRS).and("connection", "close"), RESET),
        (get(THEIRS).and("connection", "authorization"), RESET),
        (get(THEIRS).and("keep-alive", "1"), RESET),
        (get(THEIRS).and("proxy-connection", "close"), RESET),
        (get(THEIRS).and("transfer-encoding", "chunked"), RESET),
        (get(THEIRS).and("transfer-encoding", "identity"), RESET),
        (get(THEIRS).and("upgrade", "websocket"), RESET),
        (get(THEIRS).and("upgrade", "h2c"), RESET),
        (get(THEIRS).and("http2-settings", "AAMAAABkAARAAAAAAAIAAAAA"), PASSED),
        (
            get(THEIRS).and("te", "trailers"),
            "argocd-server: GET /api/v1/applications HTTP/1.1, with te",
        ),
        (get(THEIRS).and("te", "gzip"), RESET),
        (get(THEIRS).and("te", "trailers, gzip"), RESET),
        (get(THEIRS).and("x-a", "b\r\nx-b: c"), CLOSED),
        (get(THEIRS).and("x-a", "b\0"), CLOSED),
        (get(THEIRS).and("x a", "b"), CLOSED),
        (get(THEIRS).and("x-a: b\r\nx-b", "c"), CLOSED),
        (get(THEIRS).and("", "b"), CLOSED),
        (get(THEIRS).and("content-length", "5"), RESET),
        (get(THEIRS).and("content-length", "0"), PASSED),
        (get(THEIRS).and("content-length", "a"), RESET),
        (get(THEIRS).and("content-length", "0").and("content-length", "5"), RESET),
    ];
    check(b"", &rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn content_has_the_length_that_was_announced() {
    const SYNCED: &str = "argocd-server: POST /api/v1/applications/cart/sync HTTP/1.1";
    let sync = |length: &str| {
        let block = request("POST", "/api/v1/applications/cart/sync").and("content-type", "application/json");
        block.and("content-length", length)
    };
    let own = |length: &str| {
        let block = request("POST", OWN).and("content-type", "application/json");
        block.and("content-length", length)
    };
    let rows = [
        (sync("2"), SYNCED),
        (sync("1"), RESET),
        (sync("3"), RESET),
        (sync("+2"), RESET),
        (sync("-2"), RESET),
        (sync("2, 2"), RESET),
        (sync("2").and("content-length", "2"), SYNCED),
        (sync("2").and("content-length", "1"), RESET),
        (sync("0"), RESET),
        (sync("99999999999999999999"), RESET),
        (sync("1000000000"), RESET),
        (own("1"), RESET),
        (own("3"), RESET),
        (own("2").and("content-length", "1"), RESET),
    ];
    check(b"{}", &rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn no_connection_becomes_http_2_after_its_first_bytes() {
    let server = Server::start().await;
    let world = world_at(server.address, "").await;
    let upgrade = "connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAMAAABkAAQAoAAAAAIAAAAA\r\n";
    let fields = format!("{}{upgrade}", bearer("alice"));
    for (path, seen) in [(THEIRS, vec!["GET /api/v1/applications HTTP/1.1"]), (OWN, vec![])] {
        let mut client = Client::connect(world.address()).await;
        let answer = client.exchange(&head("GET", path, &fields)).await;
        assert_eq!(answer.status, 200, "{path}: {}", answer.head);
        // A server that switched would read this.
        client
            .send(b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n\0\0\0\x04\0\0\0\0\0")
            .await;
        assert_eq!(client.rest().await, b"", "{path}");
        let all = server.take_seen();
        assert_eq!(all.iter().map(|seen| &*seen.line).collect::<Vec<_>>(), seen);
        for name in ["upgrade", "connection", "http2-settings"] {
            assert!(all.iter().all(|seen| !seen.fields.contains_key(name)), "{all:?}");
        }
    }
    // gRPC itself needs HTTP/2 from the start.
    for path in [calls::OWN, calls::THEIRS] {
        let fields = format!("{fields}content-type: application/grpc\r\ncontent-length: 5\r\n");
        let request = [head("POST", path, &fields), b"\0\0\0\0\0".to_vec()].concat();
        let answer = Client::connect(world.address()).await.exchange(&request).await;
        assert_eq!(answer.values("grpc-status"), ["9"], "{path}: {}", answer.head);
        assert!(server.take_seen().is_empty(), "{path}");
    }
}
