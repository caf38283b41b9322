//! Requests whose head the gateway refuses or never reads completely: each is answered, recorded
//! and counted once, and its valid twin is served.

use serde_json::{Value, json};
use tokio::io::AsyncWriteExt as _;

use crate::wire::{get, reason};
use test_support::backend::{Backend, Reply};
use test_support::client::Client;
use test_support::world::{Setup, World};

/// An edit that makes alice's valid request invalid, and the expected refusal.
struct Case {
    name: &'static str,
    edit: fn(&str) -> String,
    status: u16,
    reason: &'static str,
}

const CASES: [Case; 7] = [
    Case {
        name: "no HTTP",
        edit: |_| "\u{16}\u{3}\u{1}\r\n\r\n".to_owned(),
        status: 400,
        reason: "malformed_head",
    },
    Case {
        name: "another version",
        edit: |request| request.replacen("HTTP/1.1", "HTTP/7.1", 1),
        status: 400,
        reason: "malformed_head",
    },
    Case {
        name: "an invalid field name",
        edit: |request| request.replacen("\r\n", "\r\nX(Y: z\r\n", 1),
        status: 400,
        reason: "malformed_head",
    },
    Case {
        name: "a bare line feed",
        edit: |request| request.replacen("\r\n", "\n", 1),
        status: 400,
        reason: "ambiguous_head",
    },
    Case {
        name: "too many bytes",
        edit: |request| request.replacen("\r\n", &format!("\r\nX-Long: {}\r\n", "a".repeat(150_000)), 1),
        status: 431,
        reason: "head_too_large",
    },
    Case {
        name: "too many fields",
        edit: |request| request.replacen("\r\n", &format!("\r\n{}", "X-Y: z\r\n".repeat(200)), 1),
        status: 431,
        reason: "head_too_large",
    },
    Case {
        name: "a target of too many bytes",
        edit: |request| request.replacen("/x ", &format!("/{} ", "x".repeat(70_000)), 1),
        status: 414,
        reason: "target_too_long",
    },
];

async fn world(settings: Value) -> (World, Backend) {
    let backend = Backend::start(|_| Reply::ok("x")).await;
    let mut setup = Setup::with_backend(backend.address);
    setup.settings = settings;
    (setup.start().await, backend)
}

async fn records(world: &World) -> Vec<Value> {
    serde_json::from_str(&world.admin("/decisions?most=1000").await).unwrap()
}

/// Waits for the first record, and returns all records.
async fn recorded(world: &World) -> Vec<Value> {
    world.until("a record", async || !records(world).await.is_empty()).await;
    records(world).await
}

fn assert_unread(record: &Value, (status, outcome, reason): (u16, &str, &str)) {
    let found = (&record["status"], &record["outcome"], &record["reason"]);
    assert_eq!(found, (&json!(status), &json!(outcome), &json!(reason)));
    assert_eq!((&record["method"], &record["path"]), (&json!("UNREAD"), &json!("")));
    assert!(record.get("principal").is_none(), "{record}");
    assert!(record["peer"].as_str().unwrap().starts_with("127.0.0.1:"), "{record}");
}

async fn assert_counted(world: &World, outcome: &str, reason: &str, times: usize) {
    let line =
        format!("tollgate_decisions_total{{front=\"none\",outcome=\"{outcome}\",reason=\"{reason}\"}} {times}\n");
    let metrics = world.admin("/metrics").await;
    assert!(metrics.contains(&line), "{line}: {metrics}");
}

#[tokio::test]
async fn a_head_that_is_refused_is_recorded_and_counted_once() {
    for case in CASES {
        let (world, backend) = world(json!({"limits": {"headerBytes": 100_000}})).await;
        let request = String::from_utf8(get("echo/x", "alice")).unwrap();
        let mut client = Client::connect(world.address()).await;
        // The valid twin, on the same connection.
        assert_eq!(client.exchange(request.as_bytes()).await.status, 200, "{}", case.name);
        let refused = client.exchange((case.edit)(&request).as_bytes()).await;
        assert_eq!(refused.status, case.status, "{}", case.name);
        assert!(client.rest().await.is_empty(), "{}", case.name);
        let records = records(&world).await;
        assert_eq!(records.len(), 2, "{}: {records:#?}", case.name);
        assert_unread(&records[0], (case.status, "denied", case.reason));
        assert_eq!(records[1]["outcome"], "allowed", "{}", case.name);
        assert_counted(&world, "denied", case.reason, 1).await;
        assert_eq!(backend.seen().len(), 1, "{}", case.name);
    }
}

#[tokio::test]
async fn a_head_that_takes_too_long_is_recorded_once_and_silence_is_not() {
    let (world, backend) = world(json!({"limits": {"headerTimeout": "200ms"}})).await;
    let mut silent = Client::connect(world.address()).await;
    assert!(silent.rest().await.is_empty());
    assert!(records(&world).await.is_empty(), "silence is no request");
    // `P` could also begin the preface of HTTP/2.
    for begun in ["GET /extensions/echo/x HTTP/1.1\r\nHost: gateway\r\n", "P"] {
        let before = records(&world).await.len();
        let mut slow = Client::connect(world.address()).await;
        assert_eq!(slow.exchange(begun.as_bytes()).await.status, 408, "{begun}");
        assert!(slow.rest().await.is_empty(), "{begun}");
        let records = records(&world).await;
        assert_eq!(records.len(), before + 1, "{begun}: {records:#?}");
        assert_unread(&records[0], (408, "denied", "head_timeout"));
    }
    assert_counted(&world, "denied", "head_timeout", 2).await;
    assert!(backend.seen().is_empty());
}

#[tokio::test]
async fn a_client_that_goes_away_in_its_head_leaves_one_record_and_without_a_byte_none() {
    for begun in ["GET /extensions/echo/x HTTP/1.1\r\nHost: gate", "P"] {
        let (world, backend) = world(json!({})).await;
        let mut quiet = Client::connect(world.address()).await;
        quiet.stream.shutdown().await.unwrap();
        assert!(quiet.rest().await.is_empty());
        assert!(records(&world).await.is_empty(), "no byte of a request came");
        let mut gone = Client::connect(world.address()).await;
        gone.send(begun.as_bytes()).await;
        gone.stream.shutdown().await.unwrap();
        assert!(gone.rest().await.is_empty(), "{begun}");
        let records = recorded(&world).await;
        assert_eq!(records.len(), 1, "{begun}: {records:#?}");
        assert_unread(&records[0], (499, "cancelled", "cancelled"));
        assert_counted(&world, "cancelled", "cancelled", 1).await;
        assert!(backend.seen().is_empty(), "{begun}");
    }
}

#[tokio::test]
async fn content_that_is_refused_belongs_to_the_record_of_its_request() {
    let (world, _backend) = world(json!({})).await;
    let whole = String::from_utf8(get("echo/x", "alice")).unwrap();
    let whole = whole.replacen("GET", "POST", 1);
    let post = |chunks: &str| whole.replacen("\r\n", "\r\nTransfer-Encoding: chunked\r\n", 1) + chunks;
    let mut client = Client::connect(world.address()).await;
    assert_eq!(
        client.exchange(post("1\r\nx\r\n0\r\n\r\n").as_bytes()).await.status,
        200
    );
    let refused = client.exchange(post("1\nx\r\n0\r\n\r\n").as_bytes()).await;
    assert_eq!((refused.status, reason(&refused).as_str()), (400, "client_broke_off"));
    assert!(client.rest().await.is_empty());
    let records = records(&world).await;
    assert_eq!(records.len(), 2, "{records:#?}");
    assert_eq!(records[0]["reason"], "client_broke_off");
    assert_eq!(records[0]["method"], "POST");
}

#[tokio::test]
async fn ambiguous_fields_are_refused_with_a_reason_however_the_bytes_are_split() {
    let whole = String::from_utf8(get("echo/x", "alice")).unwrap();
    let framings = "\r\nContent-Length: 4\r\nTransfer-Encoding: chunked\r\n";
    for (name, refused) in [
        ("two framings", whole.replacen("\r\n", framings, 1)),
        (
            "a bare line feed",
            whole.replacen("host: gateway.test\r\n", "host: gateway.test\n", 1),
        ),
        ("a folded line", whole.replacen("\r\n", "\r\nX-Y: a\r\n b\r\n", 1)),
    ] {
        assert_ne!(refused, whole, "{name}");
        for cut in [0, 1, 30, refused.len() - 3] {
            let (world, backend) = world(json!({})).await;
            let mut client = Client::connect(world.address()).await;
            // The bytes before the cut arrive together with the valid request before them.
            let (start, rest) = refused.split_at(cut);
            client.send(format!("{whole}{start}").as_bytes()).await;
            assert_eq!(client.answer().await.unwrap().status, 200, "{name} cut at {cut}");
            let answer = client.exchange(rest.as_bytes()).await;
            assert_eq!(
                (answer.status, reason(&answer).as_str()),
                (400, "ambiguous_head"),
                "{name} cut at {cut}"
            );
            assert!(client.rest().await.is_empty(), "{name} cut at {cut}");
            let records = records(&world).await;
            assert_eq!(records.len(), 2, "{name} cut at {cut}: {records:#?}");
            let found = (&records[0]["method"], &records[0]["path"], &records[0]["reason"]);
            let wanted = (
                &json!("GET"),
                &json!("/api/v1/extensions/echo/x"),
                &json!("ambiguous_head"),
            );
            assert_eq!(found, wanted, "{name} cut at {cut}");
            assert_eq!(
                answer.values("tollgate-decision-id"),
                [records[0]["decision_id"].as_str().unwrap()]
            );
            assert_eq!(backend.seen().len(), 1, "{name} cut at {cut}");
        }
    }
}

#[tokio::test]
async fn a_request_the_server_refuses_by_its_head_says_which() {
    let (world, _backend) = world(json!({"limits": {"bodyBytes": 10}})).await;
    let whole = String::from_utf8(get("echo/x", "alice")).unwrap();
    let post = |length: usize| whole.replacen("\r\n", &format!("\r\nContent-Length: {length}\r\n"), 1);
    let mut client = Client::connect(world.address()).await;
    let served = post(1) + "x";
    assert_eq!(client.exchange(served.as_bytes()).await.status, 200);
    let refused = client.exchange(post(11).as_bytes()).await;
    assert_eq!((refused.status, reason(&refused).as_str()), (413, "bad_request"));
    let records = records(&world).await;
    assert_eq!(records.len(), 2, "{records:#?}");
    assert_eq!(
        (&records[0]["method"], &records[0]["path"]),
        (&json!("GET"), &json!("/api/v1/extensions/echo/x"))
    );
    assert!(records[0]["peer"].as_str().unwrap().starts_with("127.0.0.1:"));
}
