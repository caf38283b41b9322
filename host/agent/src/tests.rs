//! Both ends in one process, with an API server of the tests' own behind the agent.

use std::collections::HashMap;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::connections::{AgentClient, ConnectionError, Connections, RequestBody, RequestError};
use crate::key::SigningKey;
use crate::websocket;
use tollgate_core::agent::AgentKey;

const ADDRESS: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn key() -> SigningKey {
    SigningKey::from_pem(&SigningKey::generate_pem().unwrap()).unwrap()
}

fn empty() -> RequestBody {
    Empty::<Bytes>::new().map_err(|never| match never {}).boxed_unsync()
}

/// The bytes of an agent's end of a WebSocket, and the gateway's end.
async fn pair() -> (
    impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    DuplexStream,
) {
    let (agent, gateway) = tokio::io::duplex(64 * 1024);
    (websocket::bytes(websocket::wrap(agent, Role::Client).await), gateway)
}

#[tokio::test]
async fn garbage_ends_only_its_own_connection() {
    let connections = Arc::new(Connections::default());
    for garbage in [
        &b"GET / HTTP/1.1\r\n\r\n"[..],
        &[0x82, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff],
        &[0; 64],
    ] {
        let (mut agent, gateway) = tokio::io::duplex(64 * 1024);
        let serving = connections.serve(gateway, ADDRESS);
        let speaking = async {
            let _ = agent.write_all(garbage).await;
            let mut rest = Vec::new();
            let _ = tokio::time::timeout(Duration::from_secs(6), agent.read_to_end(&mut rest)).await;
        };
        let (served, ()) = tokio::join!(serving, speaking);
        assert!(served.is_err());
    }
    assert!(connections.statuses().is_empty());
}

#[tokio::test]
async fn without_an_agent_there_is_no_answer() {
    let client = AgentClient::new(Arc::default(), [key().public()]);
    assert!(matches!(client.choose(), Err(RequestError::Absent)));
}

/// An end of a connection that answers with the proof of a key, and every other request with its path.
async fn serve_proofs(
    io: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    key: Arc<SigningKey>,
    instance: uuid::Uuid,
) {
    use crate::hello::{Challenge, Proof};
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let key = Arc::clone(&key);
        async move {
            let path = request.uri().to_string();
            let content = request.into_body().collect().await.unwrap().to_bytes();
            let answer = match serde_json::from_slice::<Challenge>(&content) {
                Ok(challenge) => serde_json::to_vec(&Proof::new(&challenge, &key, ("prod", instance))).unwrap(),
                Err(_) => path.into_bytes(),
            };
            Ok::<_, std::convert::Infallible>(http::Response::new(http_body_util::Full::new(Bytes::from(answer))))
        }
    });
    let _ = hyper::server::conn::http2::Builder::new(TokioExecutor::new())
        .enable_connect_protocol()
        .serve_connection(TokioIo::new(io), service)
        .await;
}

/// Connects an agent with this key, until the gateway has decided about it.
async fn connect(
    connections: &Arc<Connections>,
    key: &Arc<SigningKey>,
    instance: u128,
) -> tokio::task::JoinHandle<Result<(), ConnectionError>> {
    let (agent, gateway) = pair().await;
    tokio::spawn(serve_proofs(agent, Arc::clone(key), uuid::Uuid::from_u128(instance)));
    let all = Arc::clone(connections);
    let serving = tokio::spawn(async move { all.serve(gateway, ADDRESS).await });
    let public = key.public();
    for _ in 0..500 {
        let is_open = connections.statuses().iter().any(|status| status.key == public);
        if serving.is_finished() || is_open {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    serving
}

fn known(keys: &[AgentKey]) -> HashMap<AgentKey, usize> {
    keys.iter().map(|key| (*key, 1)).collect()
}

#[tokio::test]
async fn an_agent_is_served_while_its_key_is_known() {
    let connections = Arc::new(Connections::default());
    let (own, stranger) = (Arc::new(key()), Arc::new(key()));
    connections.set_known(known(&[own.public()]));
    let refused = connect(&connections, &stranger, 1).await.await.unwrap();
    assert!(matches!(refused, Err(ConnectionError::UnknownKey(key)) if key == stranger.public()));

    let serving = connect(&connections, &own, 2).await;
    let client = AgentClient::new(Arc::clone(&connections), [own.public()]);
    let (sender, permit) = client.choose().unwrap();
    assert_eq!(connections.statuses()[0].streams, 1);
    let request = Request::get("https://a.example/api/v1/pods?watch=1")
        .body(empty())
        .unwrap();
    let response = sender.send(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let path = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(path, "https://cluster.invalid/api/v1/pods?watch=1");
    drop(permit);
    assert_eq!(connections.statuses()[0].streams, 0);

    connections.set_known(HashMap::new());
    assert!(serving.await.unwrap().is_ok());
    assert!(matches!(client.choose(), Err(RequestError::Absent)));
}

#[tokio::test]
async fn a_second_process_with_the_same_key_is_refused_and_a_reconnect_is_not() {
    let connections = Arc::new(Connections::default());
    let own = Arc::new(key());
    connections.set_known(known(&[own.public()]));
    let first = connect(&connections, &own, 1).await;
    let second = connect(&connections, &own, 2).await;
    let refused = second.await.unwrap();
    assert!(matches!(refused, Err(ConnectionError::Connected { .. })), "{refused:?}");
    let again = connect(&connections, &own, 1).await;
    assert!(first.await.unwrap().is_ok());
    assert_eq!(connections.statuses().len(), 1);
    // With a second process allowed, both are there.
    connections.set_known(HashMap::from([(own.public(), 2)]));
    let second = connect(&connections, &own, 2).await;
    tokio::time::timeout(Duration::from_secs(5), async {
        while connections.statuses().len() < 2 {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    })
    .await
    .unwrap();
    again.abort();
    second.abort();
}

#[tokio::test]
async fn an_agent_that_proves_nothing_is_given_up() {
    let connections = Arc::new(Connections::default());
    let listener = TcpListener::bind((ADDRESS, 0)).await.unwrap();
    let silent = tokio::net::TcpStream::connect(listener.local_addr().unwrap())
        .await
        .unwrap();
    let (io, _) = listener.accept().await.unwrap();
    let served = tokio::time::timeout(Duration::from_secs(20), connections.serve(io, ADDRESS)).await;
    assert!(matches!(served, Ok(Err(ConnectionError::Slow))), "{served:?}");
    drop(silent);
}
