//! Limits on callers, and that ended requests no longer count.

use std::net::SocketAddr;
use std::time::Duration;

use serde_json::json;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use crate::wire::{admin, get, once, put_argocd_cm, read_head, reason, request, status};
use test_support::backend::{Backend, Reply};
use test_support::client::{Answer, Client};
use test_support::world::{Setup, World};

/// alice and bob may both call every extension.
const POLICY: &str = "p, role:dev, applications, get, shop/*, allow\np, role:dev, extensions, invoke, *, allow\n\
                      g, alice, role:dev\ng, bob, role:dev\n";

/// `echo` with these limits and `other` without, both at one backend.
fn setup(backend: SocketAddr, limits: &str) -> Setup {
    let service = format!("services: [{{url: 'http://{backend}'}}]");
    let mut setup = Setup::with_extension(&format!("{{{service}, limits: {limits}}}"));
    setup
        .argocd_cm
        .insert("extension.config.other".to_owned(), format!("{{{service}}}"));
    setup.rbac_cm.insert("policy.csv".to_owned(), POLICY.to_owned());
    setup
}

/// A backend that answers at once. Below `/held` it sends the head, but never the content.
async fn backend() -> Backend {
    Backend::start(|seen| match seen.line().contains("/held") {
        true => Reply::Stall(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\n".to_vec()),
        false => Reply::ok("hello"),
    })
    .await
}

/// Sends a request whose response begins and does not end.
async fn hold(world: &World, path: &str, user: &str) -> Client {
    let mut client = Client::connect(world.address()).await;
    client.send(&get(path, user)).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    client
}

fn assert_too_many(answer: &Answer) {
    assert_eq!((answer.status, reason(answer).as_str()), (429, "too_many_requests"));
    let [after] = answer.values("retry-after")[..] else {
        panic!("one Retry-After: {}", answer.head);
    };
    assert!(after.parse::<u64>().unwrap() >= 1, "{after}");
}

/// One of the next requests of a person is too many: on a busy machine, a second may pass before it.
async fn assert_soon_too_many(client: &mut Client, person: &str) {
    let mut answer = client.exchange(&get("echo/", person)).await;
    for _ in 0..3 {
        if answer.status == 429 {
            break;
        }
        answer = client.exchange(&get("echo/", person)).await;
    }
    assert_too_many(&answer);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extensions_concurrency_is_given_back_when_clients_leave() {
    let backend = backend().await;
    let world = setup(backend.address, "{concurrency: 2}").start().await;
    let first = hold(&world, "echo/held", "alice").await;
    let second = hold(&world, "echo/held", "bob").await;
    for user in ["alice", "bob"] {
        assert_too_many(&once(&world, &get("echo/", user)).await);
        assert_eq!(
            status(&world, "other/", user).await,
            200,
            "other extensions are unaffected"
        );
    }
    drop(first);
    world
        .until("a free slot", || async { status(&world, "echo/", "bob").await == 200 })
        .await;
    drop(second);
    let both = || async {
        let (one, two) = tokio::join!(status(&world, "echo/", "alice"), status(&world, "echo/", "bob"));
        (one, two) == (200, 200)
    };
    world.until("two free slots", both).await;
}

/// Answers every read, which it takes for one request.
async fn answer_all(mut stream: TcpStream) {
    let mut read = [0; 8192];
    while matches!(stream.read(&mut read).await, Ok(length) if length > 0) {
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 0\r\n\r\n").await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_persons_concurrency_is_given_back_when_content_ends() {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let world = setup(listener.local_addr().unwrap(), "{perPerson: {concurrency: 1}}")
        .start()
        .await;
    let mut client = Client::connect(world.address()).await;
    client.send(&get("echo/held", "alice")).await;
    let (mut held, _) = listener.accept().await.unwrap();
    read_head(&mut held).await;
    held.write_all(b"HTTP/1.1 200 OK\r\ncontent-length: 5\r\n\r\nhel")
        .await
        .unwrap();
    assert_eq!(client.head().await.unwrap().status, 200);
    assert_too_many(&once(&world, &get("echo/", "alice")).await);

    // From here on, all further connections are answered.
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            tokio::spawn(answer_all(stream));
        }
    });
    assert_eq!(status(&world, "echo/", "bob").await, 200, "other people are unaffected");
    assert_eq!(
        status(&world, "other/", "alice").await,
        200,
        "other extensions are unaffected"
    );
    assert_too_many(&once(&world, &get("echo/", "alice")).await);
    held.write_all(b"lo").await.unwrap();
    tokio::spawn(answer_all(held));
    client.through(b"hello").await;
    // On the same connection, the next request begins after the first has ended.
    assert_eq!(client.exchange(&get("echo/", "alice")).await.status, 200);
    assert_eq!(status(&world, "echo/", "alice").await, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_reload_does_not_forget_who_holds_a_slot() {
    let backend = backend().await;
    let setup = setup(backend.address, "{perPerson: {concurrency: 1}}");
    let held = setup.argocd_cm["extension.config.echo"].clone();
    let cm = setup.argocd_cm.clone();
    let world = setup.start().await;
    let client = hold(&world, "echo/held", "alice").await;
    // The same settings one line further down, then with another service.
    let moved = format!("# moved\n{held}");
    let other = held.replace("services: [{", "services: [{headers: [{name: x-a, value: b}], ");
    for (generation, text) in [(2, moved), (3, other)] {
        let mut cm = cm.clone();
        cm.insert("extension.config.echo".to_owned(), text);
        put_argocd_cm(&world, &cm);
        let line = format!("tollgate_snapshot_generation {generation}");
        let in_force = || async {
            String::from_utf8(admin(&world, "/metrics").await.content)
                .unwrap()
                .lines()
                .any(|text| text == line)
        };
        world.until("the edit", in_force).await;
        assert_too_many(&once(&world, &get("echo/", "alice")).await);
        assert_eq!(status(&world, "echo/", "bob").await, 200);
    }
    drop(client);
    world
        .until("the free slot", || async {
            status(&world, "echo/", "alice").await == 200
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_tunnel_holds_its_slot_until_it_ends() {
    let backend = Backend::start(|seen| match seen.values("upgrade").is_empty() {
        true => Reply::ok(""),
        false => Reply::Stall(
            b"HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket\r\n\r\n".to_vec(),
        ),
    })
    .await;
    let world = setup(backend.address, "{perPerson: {concurrency: 1}}").start().await;
    let mut client = Client::connect(world.address()).await;
    let fields = "connection: upgrade\r\nupgrade: websocket\r\nsec-websocket-version: 13\r\n\
                  sec-websocket-key: dGhlIHNhbXBsZSBub25jZQ==\r\n";
    let opened = client.exchange(&request("GET", "echo/", "alice", fields)).await;
    assert_eq!(opened.status, 101);
    client.send(b"still here").await;
    assert_too_many(&once(&world, &get("echo/", "alice")).await);
    assert_eq!(status(&world, "echo/", "bob").await, 200);
    drop(client);
    world
        .until("the tunnel's slot", || async {
            status(&world, "echo/", "alice").await == 200
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn rates_bound_one_person_and_one_extension() {
    let backend = backend().await;
    let limits = "{requestsPerSecond: 1, burst: 5, perPerson: {requestsPerSecond: 1, burst: 3}}";
    let world = setup(backend.address, limits).start().await;
    let mut alice = Client::connect(world.address()).await;
    let mut bob = Client::connect(world.address()).await;
    for _ in 0..3 {
        assert_eq!(alice.exchange(&get("echo/", "alice")).await.status, 200);
    }
    assert_soon_too_many(&mut alice, "alice").await;
    // Refusals of alice do not count: two of five requests remain for bob.
    for _ in 0..2 {
        assert_eq!(bob.exchange(&get("echo/", "bob")).await.status, 200);
    }
    assert_soon_too_many(&mut bob, "bob").await;
    assert_eq!(alice.exchange(&get("other/", "alice")).await.status, 200);
    assert_eq!(bob.exchange(&get("other/", "bob")).await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn requests_per_person_count_over_all_extensions() {
    let backend = backend().await;
    let mut setup = setup(backend.address, "{}");
    setup.settings = json!({"limits": {"requestsPerPerson": 2}});
    let world = setup.start().await;
    let first = hold(&world, "echo/held", "alice").await;
    let _second = hold(&world, "other/held", "alice").await;
    for path in ["echo/", "other/"] {
        assert_too_many(&once(&world, &get(path, "alice")).await);
        assert_eq!(status(&world, path, "bob").await, 200);
    }
    drop(first);
    world
        .until("a free slot", || async {
            status(&world, "other/", "alice").await == 200
        })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn connections_beyond_the_bound_wait_for_those_that_are_answered() {
    let backend = backend().await;
    let mut setup = setup(backend.address, "{}");
    setup.settings = json!({"limits": {"connections": 2}});
    let world = setup.start().await;
    let first = hold(&world, "other/held", "alice").await;
    let mut second = hold(&world, "other/held", "alice").await;
    let mut third = Client::connect(world.address()).await;
    third.send(&get("other/", "bob")).await;
    let waiting = timeout(Duration::from_millis(300), third.head()).await;
    assert!(
        waiting.is_err(),
        "a third connection is not served while two are answered"
    );
    drop(first);
    assert_eq!(third.answer().await.unwrap().status, 200);
    // The connection with an open response stays; the idle one is closed for a fourth.
    let mut fourth = Client::connect(world.address()).await;
    assert_eq!(fourth.exchange(&get("other/", "alice")).await.status, 200);
    assert!(third.rest().await.is_empty());
    assert!(timeout(Duration::from_millis(100), second.answer()).await.is_err());
}

#[tokio::test(flavor = "multi_thread")]
async fn content_above_the_bound_is_413() {
    let backend = backend().await;
    let mut setup = setup(backend.address, "{}");
    setup.settings = json!({"limits": {"bodyBytes": 1000}});
    let world = setup.start().await;
    let body = |length: usize| {
        let mut bytes = request("POST", "echo/", "alice", &format!("content-length: {length}\r\n"));
        bytes.extend(vec![b'x'; length]);
        bytes
    };
    assert_eq!(once(&world, &body(1000)).await.status, 200);
    let announced = once(&world, &body(1001)).await;
    assert_eq!(announced.status, 413, "{}", announced.head);
    let seen = backend.seen().len();

    let mut chunked = request("POST", "echo/", "alice", "transfer-encoding: chunked\r\n");
    chunked.extend(b"3e8\r\n");
    chunked.extend(vec![b'x'; 1000]);
    let mut good = chunked.clone();
    good.extend(b"\r\n0\r\n\r\n");
    assert_eq!(once(&world, &good).await.status, 200);
    chunked.extend(b"\r\n1\r\nx\r\n0\r\n\r\n");
    let counted = once(&world, &chunked).await;
    assert_eq!((counted.status, reason(&counted).as_str()), (413, "content_too_large"));
    assert_eq!(backend.seen().len(), seen + 1, "the backend gets no refused request");
}

#[tokio::test(flavor = "multi_thread")]
async fn heads_above_the_bounds_are_431() {
    let backend = backend().await;
    let mut setup = setup(backend.address, "{}");
    setup.settings = json!({"limits": {"headerBytes": 8192, "headerCount": 20}});
    let world = setup.start().await;
    let fields = |count: usize| (0..count).map(|at| format!("x-{at}: y\r\n")).collect::<String>();
    // Host, credential, application and project are four fields.
    let fits = once(&world, &request("GET", "echo/", "alice", &fields(16))).await;
    assert_eq!(fits.status, 200);
    let many = once(&world, &request("GET", "echo/", "alice", &fields(17))).await;
    assert_eq!(many.status, 431, "{}", many.head);
    let long = format!("x-long: {}\r\n", "y".repeat(7000));
    assert_eq!(once(&world, &request("GET", "echo/", "alice", &long)).await.status, 200);
    let long = format!("x-long: {}\r\n", "y".repeat(9000));
    assert_eq!(once(&world, &request("GET", "echo/", "alice", &long)).await.status, 431);
    assert_eq!(backend.seen().len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_does_not_end_is_408() {
    let backend = backend().await;
    let mut setup = setup(backend.address, "{}");
    setup.settings = json!({"limits": {"headerTimeout": "300ms"}});
    let world = setup.start().await;
    let mut slow = Client::connect(world.address()).await;
    let whole = get("echo/", "alice");
    slow.send(&whole[..whole.len() - 2]).await;
    assert_eq!(slow.answer().await.unwrap().status, 408);
    assert_eq!(backend.connections(), 0);
    let mut quick = Client::connect(world.address()).await;
    assert_eq!(quick.exchange(&whole).await.status, 200);
}

#[tokio::test]
async fn strangers_who_hold_every_connection_keep_nobody_out() {
    let backend = backend().await;
    let mut setup = setup(backend.address, "{}");
    setup.settings = json!({"limits": {"connections": 8}});
    let world = setup.start().await;
    let path = "echo/x";
    let mut alice = Client::connect(world.address()).await;
    assert_eq!(alice.exchange(&get(path, "alice")).await.status, 200);
    // Each sends one cheap request and stays connected; half of them begin another that never ends.
    let mut strangers = Vec::new();
    for begun in [b"".as_slice(), b"GET /x HTTP/1.1\r\n"] {
        for _ in 0..20 {
            let mut stranger = Client::connect(world.address()).await;
            let asked = stranger.exchange(b"GET /api/v1/extensions/echo/x HTTP/1.1\r\nHost: gateway\r\n\r\n");
            assert_eq!(asked.await.status, 401);
            stranger.send(begun).await;
            strangers.push(stranger);
        }
    }
    let mut bob = Client::connect(world.address()).await;
    assert_eq!(bob.exchange(&get(path, "bob")).await.status, 200);
    // The connections of alice and bob stay open.
    assert_eq!(alice.exchange(&get(path, "alice")).await.status, 200);
    assert_eq!(bob.exchange(&get(path, "bob")).await.status, 200);
}
