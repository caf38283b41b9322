//! Limits of the admin listener on connections and requests.

use serde_json::json;
use tokio::time::timeout;
use tollgate_proxy::server::ADMIN_CONNECTIONS;

use test_support::client::{Client, PATIENCE};
use test_support::world::{Setup, World};

const READY: &[u8] = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\n\r\n";

async fn world(limits: serde_json::Value) -> World {
    let setup = Setup {
        settings: json!({"limits": limits}),
        ..Setup::default()
    };
    setup.start().await
}

async fn connect(world: &World) -> Client {
    Client::connect(world.running.admin_address()).await
}

#[tokio::test]
async fn the_longest_idle_connection_gives_way_to_one_above_the_bound() {
    let world = world(json!({})).await;
    let mut open = Vec::new();
    for _ in 0..ADMIN_CONNECTIONS {
        let mut client = connect(&world).await;
        assert_eq!(client.exchange(READY).await.status, 200);
        open.push(client);
    }
    let mut next = connect(&world).await;
    assert_eq!(next.exchange(READY).await.status, 200);
    assert!(open.first_mut().unwrap().rest().await.is_empty(), "it is closed");
    assert_eq!(
        open.last_mut().unwrap().exchange(READY).await.status,
        200,
        "others stay"
    );
}

#[tokio::test]
async fn slow_heads_are_408_and_silent_connections_close() {
    let world = world(json!({"headerTimeout": "200ms"})).await;
    let mut silent = connect(&world).await;
    let mut slow = connect(&world).await;
    slow.send(READY.strip_suffix(b"\r\n").unwrap()).await;
    assert_eq!(slow.answer().await.unwrap().status, 408);
    assert!(slow.rest().await.is_empty());
    assert!(silent.rest().await.is_empty());
    assert_eq!(connect(&world).await.exchange(READY).await.status, 200);
}

#[tokio::test]
async fn large_heads_and_content_are_refused() {
    let world = world(json!({"headerBytes": 8192})).await;
    let long = |length: usize| {
        let field = format!("GET /readyz HTTP/1.1\r\nX-Long: {}\r\n", "a".repeat(length));
        [field.as_bytes(), b"Host: localhost\r\n\r\n"].concat()
    };
    assert_eq!(connect(&world).await.exchange(&long(4_000)).await.status, 200);
    assert_eq!(connect(&world).await.exchange(&long(9_000)).await.status, 431);
    let content = b"GET /readyz HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1\r\n\r\nx";
    assert_eq!(connect(&world).await.exchange(content).await.status, 413);
}

#[tokio::test]
async fn it_ends_with_the_gateway() {
    let world = world(json!({})).await;
    let mut client = connect(&world).await;
    assert_eq!(client.exchange(READY).await.status, 200);
    let address = world.running.admin_address();
    world.running.stop().await.unwrap();
    assert!(client.rest().await.is_empty(), "an open connection is closed");
    let refused = async {
        while tokio::net::TcpStream::connect(address).await.is_ok() {
            tokio::task::yield_now().await;
        }
    };
    timeout(PATIENCE, refused).await.expect("the listener is closed");
}
