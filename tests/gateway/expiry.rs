//! An exchange ends when the caller's credential expires, regardless of its stage.

use std::time::{Duration, Instant};

use tokio::io::AsyncWriteExt as _;

use crate::streaming::{bare_backend, ending_session};
use crate::wire::{bare, get, read_head, reason};
use test_support::backend::{Backend, Reply};
use test_support::client::Client;
use test_support::world::{Setup, World};

const EVENT: &str = "HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n\
                     9\r\ndata: 0\n\n\r\n";

/// The last chunk of a complete response.
const END: &[u8] = b"0\r\n\r\n";

/// A request of alice, whose session ends within three seconds.
fn ending(method: &str, path: &str, fields: &str) -> Vec<u8> {
    let token = ending_session();
    bare(method, path, &format!("authorization: Bearer {token}\r\n{fields}"))
}

/// A gateway whose backend sends `start` and then nothing.
async fn world(start: &str) -> (World, Backend) {
    let start = start.as_bytes().to_vec();
    let backend = Backend::start(move |_| Reply::Stall(start.clone())).await;
    (Setup::with_backend(backend.address).start().await, backend)
}

#[tokio::test(flavor = "multi_thread")]
async fn a_response_is_cut_when_the_callers_token_ends_and_another_callers_goes_on() {
    let (world, backend) = world(EVENT).await;
    let mut lasting = Client::connect(world.address()).await;
    lasting.send(&get("echo/events", "alice")).await;
    assert_eq!(lasting.head().await.unwrap().status, 200);
    lasting.through(b"data: 0\n\n\r\n").await;

    let mut client = Client::connect(world.address()).await;
    client.send(&ending("GET", "echo/events", "")).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    client.through(b"data: 0\n\n\r\n").await;
    let begun = Instant::now();
    let rest = client.rest().await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(!rest.ends_with(END), "the client must see that it was cut: {rest:?}");

    // The connection to the backend ends too, but only that of the cut exchange.
    world
        .until("the backend's connection to end", async || backend.closed() == 1)
        .await;
    let open = tokio::time::timeout(Duration::from_millis(100), lasting.rest()).await;
    assert!(open.is_err(), "the other stream was cut too");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_never_stops_sending_is_cut_too() {
    let (listener, address) = bare_backend().await;
    tokio::spawn(async move {
        let (mut stream, _) = listener.accept().await.unwrap();
        read_head(&mut stream).await;
        let _ = stream.write_all(b"HTTP/1.1 200 OK\r\n\r\n").await;
        while stream.write_all(&[b'x'; 4096]).await.is_ok() {
            tokio::task::yield_now().await;
        }
    });
    let world = Setup::with_backend(address).start().await;
    let mut client = Client::connect(world.address()).await;
    client.send(&ending("GET", "echo/firehose", "")).await;
    assert_eq!(client.head().await.unwrap().status, 200);
    let begun = Instant::now();
    let rest = client.rest().await;
    assert!(begun.elapsed() < Duration::from_secs(10), "{:?}", begun.elapsed());
    assert!(!rest.ends_with(END));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_backend_that_does_not_answer_in_the_life_of_the_token_is_401() {
    let (world, backend) = world("").await;
    let answer = Client::connect(world.address())
        .await
        .exchange(&ending("GET", "echo/slow", ""))
        .await;
    assert_eq!((answer.status, reason(&answer).as_str()), (401, "credential_ended"));
    let record = world.admin("/decisions").await;
    assert!(record.contains("\"outcome\":\"denied\""), "{record}");
    assert_eq!(backend.seen().len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn an_upload_ends_with_the_callers_token() {
    let (world, backend) = world(EVENT).await;
    let mut client = Client::connect(world.address()).await;
    client
        .send(&ending("POST", "echo/up", "transfer-encoding: chunked\r\n"))
        .await;
    client.send(b"1\r\nx\r\n").await;
    let answer = client.answer().await.unwrap();
    assert_eq!((answer.status, reason(&answer).as_str()), (401, "credential_ended"));
    assert!(client.rest().await.is_empty());
    assert!(backend.seen().is_empty(), "the backend never saw a whole request");
}
