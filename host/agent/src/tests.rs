//! Both ends in one process, with an API server of the tests' own behind the agent.

use std::collections::{HashMap, HashSet};
use std::future::pending;
use std::net::{IpAddr, Ipv4Addr};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::BoxFuture;
use http::{Request, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use secrecy::SecretString;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream};
use tokio::net::TcpListener;
use tokio_tungstenite::tungstenite::protocol::Role;

use crate::connections::{AgentClient, ConnectionError, Connections, JoinedKeys};
use crate::hello::{Channel, EndsTls};
use crate::key::SigningKey;
use crate::registry::{AgentEvent, AgentIdentity, Expected, JoinRequest, Registry, RegistryError};
use crate::request::{RequestBody, RequestError};
use crate::{token, websocket};
use tollgate_core::agent::{AgentKey, ClusterAgent, JoinToken};

const SERVER: &str = "https://prod.clusters.invalid";
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
        let serving = connections.serve(gateway, EndsTls::No, ADDRESS, None, pending());
        let speaking = async {
            let _ = agent.write_all(garbage).await;
            let mut rest = Vec::new();
            let _ = tokio::time::timeout(Duration::from_secs(6), agent.read_to_end(&mut rest)).await;
        };
        let (served, ()) = tokio::join!(serving, speaking);
        assert!(served.is_err());
    }
    assert!(connections.statuses(None).is_empty());
}

#[tokio::test]
async fn without_an_agent_there_is_no_answer() {
    let client = AgentClient::new(Arc::default(), SERVER);
    assert!(matches!(client.choose(), Err(RequestError::Absent)));
}

/// What an end of a connection says about itself.
#[derive(Clone)]
struct Speaker {
    key: Arc<SigningKey>,
    instance: u128,
    join_token: Option<SecretString>,
}

/// An end of a connection that proves its key, and answers every other request with its path.
/// The connection of TLS that every agent of these tests would have.
const ENDED_HERE: EndsTls = EndsTls::Yes(Some([7; 32]));

fn channel() -> Channel {
    Channel {
        host: "gateway".to_owned(),
        value: Some([7; 32]),
    }
}

async fn serve_proofs(
    io: impl tokio::io::AsyncRead + tokio::io::AsyncWrite + Unpin + Send + 'static,
    speaker: Speaker,
) {
    use crate::hello::{Challenge, Proof};
    use hyper::service::service_fn;
    use hyper_util::rt::{TokioExecutor, TokioIo};
    let service = service_fn(move |request: Request<hyper::body::Incoming>| {
        let speaker = speaker.clone();
        async move {
            let path = request.uri().to_string();
            let content = request.into_body().collect().await.unwrap().to_bytes();
            let answer = match serde_json::from_slice::<Challenge>(&content) {
                Ok(challenge) => {
                    let instance = uuid::Uuid::from_u128(speaker.instance);
                    let mut proof = Proof::new(&challenge, &speaker.key, &channel(), "prod", instance);
                    proof.join_token.clone_from(&speaker.join_token);
                    serde_json::to_vec(&proof).unwrap()
                }
                Err(_) if path.ends_with("/status") => b"{}".to_vec(),
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
    let speaker = Speaker {
        key: Arc::clone(key),
        instance,
        join_token: None,
    };
    connect_as(connections, speaker).await
}

async fn connect_as(
    connections: &Arc<Connections>,
    speaker: Speaker,
) -> tokio::task::JoinHandle<Result<(), ConnectionError>> {
    let (agent, gateway) = pair().await;
    let public = speaker.key.public();
    tokio::spawn(serve_proofs(agent, speaker));
    let all = Arc::clone(connections);
    let serving = tokio::spawn(async move { all.serve(gateway, ENDED_HERE, ADDRESS, None, pending()).await });
    for _ in 0..500 {
        let is_open = connections.statuses(None).iter().any(|status| status.key == public);
        if serving.is_finished() || is_open {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    serving
}

/// The cluster's Secret names these keys.
fn known(keys: &[AgentKey], processes: usize) -> HashMap<Arc<str>, ClusterAgent> {
    let agent = ClusterAgent {
        keys: keys.to_vec(),
        processes,
        join_token: None,
    };
    HashMap::from([(Arc::from(SERVER), agent)])
}

#[tokio::test]
async fn an_agent_is_served_while_its_key_is_known() {
    let connections = Arc::new(Connections::default());
    let (own, stranger) = (Arc::new(key()), Arc::new(key()));
    connections.set_clusters(known(&[own.public()], 1));
    let refused = connect(&connections, &stranger, 1).await.await.unwrap();
    assert!(matches!(refused, Err(ConnectionError::UnknownKey(key)) if key == stranger.public()));

    let serving = connect(&connections, &own, 2).await;
    let client = AgentClient::new(Arc::clone(&connections), SERVER);
    let (sender, permit) = client.choose().unwrap();
    assert_eq!(connections.statuses(None)[0].streams, Some(1));
    let request = Request::get("https://a.example/api/v1/pods?watch=1")
        .body(empty())
        .unwrap();
    let response = sender.send(request).await.unwrap();
    assert_eq!(response.status(), StatusCode::OK);
    let path = response.into_body().collect().await.unwrap().to_bytes();
    assert_eq!(path, "https://cluster.invalid/api/v1/pods?watch=1");
    drop(permit);
    assert_eq!(connections.statuses(None)[0].streams, Some(0));

    connections.set_clusters(HashMap::new());
    assert!(serving.await.unwrap().is_ok());
    assert!(matches!(client.choose(), Err(RequestError::Absent)));
}

#[tokio::test]
async fn a_second_process_with_the_same_key_is_refused_and_a_reconnect_is_not() {
    let connections = Arc::new(Connections::default());
    let own = Arc::new(key());
    connections.set_clusters(known(&[own.public()], 1));
    let first = connect(&connections, &own, 1).await;
    let second = connect(&connections, &own, 2).await;
    let refused = second.await.unwrap();
    assert!(matches!(refused, Err(ConnectionError::Connected { .. })), "{refused:?}");
    let again = connect(&connections, &own, 1).await;
    assert!(first.await.unwrap().is_ok());
    assert_eq!(connections.statuses(None).len(), 1);
    // With a second process allowed, both are there.
    connections.set_clusters(known(&[own.public()], 2));
    let second = connect(&connections, &own, 2).await;
    tokio::time::timeout(Duration::from_secs(5), async {
        while connections.statuses(None).len() < 2 {
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
    let served = tokio::time::timeout(
        Duration::from_secs(20),
        connections.serve(io, ENDED_HERE, ADDRESS, None, pending()),
    )
    .await;
    assert!(matches!(served, Ok(Err(ConnectionError::Slow))), "{served:?}");
    drop(silent);
}

/// Remembers in memory.
#[derive(Debug, Default)]
pub(crate) struct Memory {
    spent: Mutex<HashMap<[u8; 32], AgentKey>>,
    pub(crate) refusals: Mutex<Vec<&'static str>>,
}

impl Registry for Memory {
    fn join(&self, request: JoinRequest) -> BoxFuture<'_, Result<(), RegistryError>> {
        let mut spent = self.spent.lock().unwrap();
        let key = *spent.entry(request.token).or_insert(request.agent.key);
        let joined = (key == request.agent.key)
            .then_some(())
            .ok_or(RegistryError::TokenSpent);
        Box::pin(std::future::ready(joined))
    }

    fn replace(&self, _: AgentIdentity, _: AgentKey) -> BoxFuture<'_, Result<(), RegistryError>> {
        Box::pin(std::future::ready(Ok(())))
    }

    fn count_refusal(&self, _: Expected, reason: &'static str) {
        self.refusals.lock().unwrap().push(reason);
    }

    fn record(&self, event: AgentEvent, _: AgentIdentity) -> BoxFuture<'_, ()> {
        if let AgentEvent::Refused { reason } = event {
            self.refusals.lock().unwrap().push(reason);
        }
        Box::pin(std::future::ready(()))
    }
}

/// The cluster's Secret has this token.
fn with_token(token: &SecretString, lifetime: jiff::SignedDuration) -> HashMap<Arc<str>, ClusterAgent> {
    let mut clusters = known(&[], 1);
    let join_token = JoinToken {
        sha256: token::hash(token),
        expires_at: jiff::Timestamp::now().checked_add(lifetime).unwrap(),
    };
    clusters.get_mut(SERVER).unwrap().join_token = Some(join_token);
    clusters
}

#[tokio::test]
async fn one_agent_joins_with_a_token_and_a_copy_of_it_is_refused() {
    let connections = Arc::new(Connections::default());
    let memory = Arc::new(Memory::default());
    connections.set_registry(Arc::clone(&memory) as Arc<dyn Registry>);
    let token = token::generate().unwrap();
    let speaker = |token: &SecretString| Speaker {
        key: Arc::new(key()),
        instance: 1,
        join_token: Some(token.clone()),
    };
    let own = speaker(&token);
    // Nobody has the token yet, and then it has expired.
    connections.set_clusters(known(&[], 1));
    let unknown = connect_as(&connections, own.clone()).await.await.unwrap();
    assert!(matches!(unknown, Err(ConnectionError::UnknownToken)), "{unknown:?}");
    connections.set_clusters(with_token(&token, jiff::SignedDuration::from_secs(-1)));
    let expired = connect_as(&connections, own.clone()).await.await.unwrap();
    assert!(matches!(expired, Err(ConnectionError::ExpiredToken(_))), "{expired:?}");

    connections.set_clusters(with_token(&token, jiff::SignedDuration::from_hours(1)));
    let joined = connect_as(&connections, own.clone()).await;
    assert_eq!(connections.statuses(Some(SERVER)).len(), 1);
    let thief = connect_as(&connections, speaker(&token)).await.await.unwrap();
    assert!(
        matches!(thief, Err(ConnectionError::Registry(RegistryError::TokenSpent))),
        "{thief:?}"
    );
    // Without the token, its key is enough from now on.
    joined.abort();
    let _ = joined.await;
    let again = connect(&connections, &own.key, 1).await;
    assert_eq!(connections.statuses(None).len(), 1);

    // A key that was revoked is worth nothing, with or without the token.
    connections.set_joined(JoinedKeys {
        servers: HashMap::new(),
        revoked: HashSet::from([own.key.public()]),
    });
    assert!(again.await.unwrap().is_ok());
    let revoked = connect_as(&connections, own).await.await.unwrap();
    assert!(matches!(revoked, Err(ConnectionError::RevokedKey(_))), "{revoked:?}");
    assert_eq!(
        *memory.refusals.lock().unwrap(),
        ["token_unknown", "token_expired", "token_spent", "key_revoked"]
    );
}

#[tokio::test]
async fn a_key_that_two_clusters_name_is_of_the_first() {
    let connections = Arc::new(Connections::default());
    let own = Arc::new(key());
    let mut clusters = known(&[own.public()], 1);
    clusters.insert(Arc::from("https://a.clusters.invalid"), clusters[SERVER].clone());
    connections.set_clusters(clusters);
    let _serving = connect(&connections, &own, 1).await;
    assert_eq!(connections.statuses(Some("https://a.clusters.invalid")).len(), 1);
    let other = AgentClient::new(Arc::clone(&connections), SERVER);
    assert!(matches!(other.choose(), Err(RequestError::Absent)));
}

#[tokio::test]
async fn while_the_registry_is_away_nobody_who_joined_is_let_in_anew() {
    let connections = Arc::new(Connections::default());
    let own = Arc::new(key());
    connections.set_clusters(known(&[], 1));
    connections.set_joined(JoinedKeys {
        servers: HashMap::from([(own.public(), Arc::from(SERVER))]),
        revoked: HashSet::new(),
    });
    let serving = connect(&connections, &own, 1).await;
    connections.set_registry_available(false);
    assert_eq!(connections.statuses(None).len(), 1, "what is open goes on");
    serving.abort();
    let _ = serving.await;
    let refused = connect(&connections, &own, 2).await.await.unwrap();
    assert!(
        matches!(refused, Err(ConnectionError::Registry(RegistryError::Unavailable))),
        "{refused:?}"
    );
    connections.set_registry_available(true);
    let _serving = connect(&connections, &own, 2).await;
    assert_eq!(connections.statuses(None).len(), 1);
}
