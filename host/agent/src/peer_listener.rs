//! Passes requests of other replicas to the agents that are connected to this one.
//!
//! Security: connections without a finished handshake are bounded as those of agents without a proof, and
//! counted apart from them. A refusal is counted, and logged only at the level `debug`: anybody can cause it.

use std::collections::HashSet;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use http::{HeaderValue, Method, Request, Response, StatusCode};
use http_body_util::{BodyExt as _, Empty};
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::TokioIo;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_rustls::server::TlsStream;
use uuid::Uuid;

use crate::body::{Content, WithoutEmpty, no_content};
use crate::connections::Connections;
use crate::peers::{CONNECTION, CertificateHash, NO_ANSWER, ReplicaKey, ReplicaKeyError, STREAMS};
use crate::registry::Expected;
use crate::serve::{copy_upgraded, server_builder};
use crate::unproved::Unproved;

/// How long a peer may take for its handshake.
const HANDSHAKE_WITHIN: Duration = Duration::from_secs(5);

/// Pause after the listener failed.
const PAUSE: Duration = Duration::from_millis(100);

/// Serves peers until it is dropped.
///
/// - `drain`: how long a replica that stops may take to end what it has open.
///
/// # Errors
/// [`ReplicaKeyError`].
pub async fn serve(
    listener: TcpListener,
    own_key: Arc<ReplicaKey>,
    connections: Arc<Connections>,
    drain: Duration,
) -> Result<Infallible, ReplicaKeyError> {
    let peers = connections.peers.certificates();
    let unproved = Arc::new(Unproved::default());
    let acceptor = TlsAcceptor::from(Arc::new(own_key.server_config(peers.clone())?));
    let mut serving = tokio::task::JoinSet::new();
    loop {
        let accepted = tokio::select! {
            accepted = listener.accept() => accepted,
            Some(_) = serving.join_next() => continue,
        };
        match accepted {
            Ok((tcp, address)) => {
                let (acceptor, peers) = (acceptor.clone(), peers.clone());
                let (unproved, connections) = (Arc::clone(&unproved), Arc::clone(&connections));
                serving.spawn(async move {
                    match handshake(tcp, address.ip(), &acceptor, &unproved).await {
                        Ok(stream) => serve_peer(stream, address, peers, drain, connections).await,
                        Err(reason) => {
                            tracing::debug!(peer = %address, reason, "refused at the peers' listener");
                            connections.registry().count_refusal(Expected::Replica, reason);
                        }
                    }
                });
            }
            Err(error) => {
                tracing::warn!(%error, "a peer cannot be accepted");
                sleep(PAUSE).await;
            }
        }
    }
}

/// Proves that a peer is connected.
///
/// # Errors
/// A stable reason why it is none.
async fn handshake(
    tcp: TcpStream,
    address: IpAddr,
    acceptor: &TlsAcceptor,
    unproved: &Unproved,
) -> Result<TlsStream<TcpStream>, &'static str> {
    let room = unproved.enter(address, None);
    let _ = tcp.set_nodelay(true);
    tokio::select! {
        // A handshake that has finished does not give way.
        biased;
        accepted = timeout(HANDSHAKE_WITHIN, acceptor.accept(tcp)) => match accepted {
            Ok(Ok(stream)) => Ok(stream),
            Ok(Err(error)) => {
                tracing::debug!(%address, %error, "a handshake of a replica failed");
                Err("handshake_failed")
            }
            Err(_) => Err("no_handshake_in_time"),
        },
        () = room.gives_way() => Err("too_many"),
    }
}

async fn serve_peer(
    stream: TlsStream<TcpStream>,
    peer: SocketAddr,
    mut peers: watch::Receiver<HashSet<CertificateHash>>,
    drain: Duration,
    connections: Arc<Connections>,
) {
    let (_, tls) = stream.get_ref();
    let Some(certificate) = tls.peer_certificates().and_then(<[_]>::first).map(CertificateHash::of) else {
        return;
    };
    let service = service_fn(|request| {
        let connections = Arc::clone(&connections);
        async move { Ok::<_, Infallible>(forward(&connections, request).await) }
    });
    let mut builder = server_builder();
    builder.max_concurrent_streams(STREAMS);
    let serving = builder.serve_connection(TokioIo::new(stream), service);
    // SECURITY: a replica that was removed is no longer a peer, and its open connections end. One that stops
    // is removed first, and then serves its open requests to their end.
    let removed = async {
        let _ = peers.wait_for(|peers| !peers.contains(&certificate)).await;
        sleep(drain).await;
    };
    tokio::select! {
        served = serving => tracing::debug!(%peer, ?served, "a peer has disconnected"),
        () = removed => tracing::info!(%peer, "the connection of a replica that was removed has ended"),
    }
}

async fn forward(connections: &Connections, mut request: Request<Incoming>) -> Response<Content> {
    let session = request.headers_mut().remove(CONNECTION);
    let session = session.and_then(|session| Uuid::try_parse_ascii(session.as_bytes()).ok());
    let chosen = session.and_then(|session| connections.sender_of(session));
    let (mut sender, permit) = match chosen {
        Some(Ok(chosen)) => chosen,
        Some(Err(_)) => return no_answer(StatusCode::SERVICE_UNAVAILABLE, "busy"),
        None => return no_answer(StatusCode::SERVICE_UNAVAILABLE, "absent"),
    };
    let is_connect = *request.method() == Method::CONNECT;
    let peer_side = hyper::upgrade::on(&mut request);
    let request = request.map(|body| match is_connect {
        true => Empty::new().map_err(|never| match never {}).boxed_unsync(),
        false => WithoutEmpty(body, ()).map_err(Into::into).boxed_unsync(),
    });
    let mut response = match sender.send_request(request).await {
        Ok(response) => response,
        Err(error) => {
            tracing::debug!(%error, "the connection of a connector broke under a request of another replica");
            // What was sent may have had an effect.
            return no_answer(StatusCode::BAD_GATEWAY, "broken");
        }
    };
    // SECURITY: an agent cannot say this for the replica.
    response.headers_mut().remove(NO_ANSWER);
    if is_connect && response.status() == StatusCode::OK {
        let agent_side = hyper::upgrade::on(&mut response);
        tokio::spawn(async move {
            copy_upgraded(peer_side, agent_side).await;
            drop(permit);
        });
        return response.map(|_| no_content());
    }
    // It counts as a request until its content ends.
    response.map(|body| WithoutEmpty(body, permit).boxed_unsync())
}

/// - `why`: as in [`NO_ANSWER`].
fn no_answer(status: StatusCode, why: &'static str) -> Response<Content> {
    let mut response = Response::new(no_content());
    *response.status_mut() = status;
    response.headers_mut().insert(NO_ANSWER, HeaderValue::from_static(why));
    response
}

#[cfg(test)]
mod tests {
    use std::collections::HashSet;
    use std::net::SocketAddr;
    use std::sync::Arc;
    use std::time::Duration;

    use tokio::io::AsyncReadExt as _;
    use tokio::net::{TcpListener, TcpStream};
    use tokio::task::AbortHandle;
    use tokio::time::timeout;
    use tokio_rustls::TlsConnector;
    use tokio_rustls::client::TlsStream;
    use url::Url;
    use uuid::Uuid;

    use super::serve;
    use crate::connections::Connections;
    use crate::peers::tls::server_name;
    use crate::peers::{Replica, ReplicaKey};
    use crate::registry::Registry;
    use crate::tests::Memory;
    use crate::unproved::STRANGERS_OF_CLIENT;

    const PATIENCE: Duration = Duration::from_secs(20);

    /// Connects as this replica to one with that key. It is served once the first frame has come.
    async fn connect(own: &ReplicaKey, other: &ReplicaKey, address: SocketAddr) -> TlsStream<TcpStream> {
        let config = own.client_config(other.certificate()).unwrap();
        let tcp = TcpStream::connect(address).await.unwrap();
        let connecting = TlsConnector::from(Arc::new(config)).connect(server_name().unwrap(), tcp);
        let mut stream = connecting.await.unwrap();
        timeout(PATIENCE, stream.read_u8()).await.expect("settings").unwrap();
        stream
    }

    fn replica(own_key: &ReplicaKey, id: u128) -> Replica {
        Replica {
            id: Uuid::from_u128(id),
            url: Url::parse("https://127.0.0.1:1").unwrap(),
            certificate: own_key.certificate(),
        }
    }

    /// Serves as this replica.
    async fn start(own: &Arc<ReplicaKey>, connections: &Arc<Connections>) -> (SocketAddr, AbortHandle) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let (own, connections) = (Arc::clone(own), Arc::clone(connections));
        let serving = tokio::spawn(serve(listener, own, connections, Duration::ZERO));
        (address, serving.abort_handle())
    }

    #[tokio::test]
    async fn what_a_removed_replica_has_open_ends() {
        let [own, gone, stays] = [(); 3].map(|()| Arc::new(ReplicaKey::generate().unwrap()));
        let connections = Arc::new(Connections::default());
        let peers = &connections.peers;
        peers.set_key(Arc::clone(&own));
        peers.set(vec![replica(&gone, 1), replica(&stays, 2)], Vec::new());
        let (address, serving) = start(&own, &connections).await;

        let mut of_gone = connect(&gone, &own, address).await;
        let mut of_stays = connect(&stays, &own, address).await;
        peers.set(vec![replica(&stays, 2)], Vec::new());
        let mut rest = Vec::new();
        let ended = timeout(PATIENCE, of_gone.read_to_end(&mut rest)).await;
        ended.expect("it ends").ok();
        // Its twin goes on: there is something to read, or nothing yet, but no end.
        let mut buffer = [0; 1024];
        while let Ok(read) = timeout(Duration::from_millis(100), of_stays.read(&mut buffer)).await {
            assert_ne!(read.unwrap(), 0, "a replica that is a peer is served");
        }
        serving.abort();
    }

    #[tokio::test]
    async fn strangers_keep_no_replica_out() {
        let [own, known, unknown] = [(); 3].map(|()| Arc::new(ReplicaKey::generate().unwrap()));
        let registry = Arc::new(Memory::default());
        let connections = Arc::new(Connections::default());
        connections.set_registry(Arc::clone(&registry) as Arc<dyn Registry>);
        connections.peers.set_key(Arc::clone(&own));
        connections.peers.set(vec![replica(&known, 1)], Vec::new());
        let (address, serving) = start(&own, &connections).await;

        // More than one address may have, and none of them says anything.
        let mut silent = Vec::new();
        for _ in 0..=STRANGERS_OF_CLIENT {
            silent.push(TcpStream::connect(address).await.unwrap());
        }
        let _served = connect(&known, &own, address).await;
        let mut refused = silent.remove(0);
        let ended = timeout(PATIENCE, refused.read_u8())
            .await
            .expect("the oldest gives way");
        ended.unwrap_err();
        // A certificate that nobody has is refused when the client has sent it.
        let config = unknown.client_config(own.certificate()).unwrap();
        let tcp = TcpStream::connect(address).await.unwrap();
        let connecting = TlsConnector::from(Arc::new(config)).connect(server_name().unwrap(), tcp);
        let mut stream = connecting.await.unwrap();
        let ended = timeout(PATIENCE, stream.read_u8()).await.expect("an alert");
        ended.unwrap_err();
        drop(silent);
        let expected = HashSet::from(["too_many", "handshake_failed"]);
        let seen = async {
            while !expected.is_subset(&registry.refusals.lock().unwrap().iter().copied().collect()) {
                tokio::task::yield_now().await;
            }
        };
        timeout(PATIENCE, seen).await.expect("refusals are counted");
        serving.abort();
    }
}
