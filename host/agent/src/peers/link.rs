//! The connection to another replica: made again whenever it breaks.

use std::convert::Infallible;
use std::panic::AssertUnwindSafe;
use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use futures_util::FutureExt as _;
use hyper::client::conn::http2::SendRequest;
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use tokio::net::TcpStream;
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsConnector;
use tokio_util::task::AbortOnDropHandle;

use super::{Replica, ReplicaKey, tls};
use crate::dial::{BoxError, connect_tcp};
use crate::request::{RequestBody, client_builder};

const CONNECT_WITHIN: Duration = Duration::from_secs(5);

/// Pause before the next attempt.
const PAUSE: Duration = Duration::from_millis(500);

type Sender = Arc<Mutex<Option<SendRequest<RequestBody>>>>;

/// The connection to one replica. Dropped, it sends nothing new.
#[derive(derive_more::Debug)]
#[debug("Link({replica:?})")]
pub(super) struct Link {
    pub(super) replica: Replica,
    sender: Sender,
    pub(super) streams: Arc<AtomicUsize>,
    _task: AbortOnDropHandle<()>,
}

impl Link {
    pub(super) fn start(replica: Replica, own_key: &ReplicaKey) -> Self {
        let sender = Sender::default();
        let config = own_key.client_config(replica.certificate);
        let task = tokio::spawn(keep(replica.clone(), config, Arc::clone(&sender)));
        Self {
            replica,
            sender,
            streams: Arc::default(),
            _task: AbortOnDropHandle::new(task),
        }
    }

    /// Sends requests; `None` while there is no connection.
    pub(super) fn sender(&self) -> Option<SendRequest<RequestBody>> {
        let sender = self.sender.lock().unwrap_or_else(PoisonError::into_inner);
        sender.clone().filter(|sender| !sender.is_closed())
    }
}

async fn keep(replica: Replica, config: Result<ClientConfig, rustls::Error>, sender: Sender) {
    let config = match config {
        Ok(config) => TlsConnector::from(Arc::new(config)),
        Err(error) => return tracing::error!(%error, "TLS with peers cannot be set up"),
    };
    // Without it the other replica's agents could not be reached any more.
    while AssertUnwindSafe(connect_again(&replica, &config, &sender))
        .catch_unwind()
        .await
        .is_err()
    {
        tracing::error!(replica = %replica.id, "the task that connects to another replica failed, and begins again");
        *sender.lock().unwrap_or_else(PoisonError::into_inner) = None;
        sleep(PAUSE).await;
    }
}

async fn connect_again(replica: &Replica, config: &TlsConnector, sender: &Sender) -> Infallible {
    let set = |new| *sender.lock().unwrap_or_else(PoisonError::into_inner) = new;
    let mut last_error = None;
    loop {
        match timeout(CONNECT_WITHIN, connect(replica, config)).await {
            Ok(Ok((connected, driver))) => {
                tracing::debug!(replica = %replica.id, url = %replica.url, "connected to another replica");
                last_error = None;
                set(Some(connected));
                // hyper serves open requests to their end also if this is dropped.
                let ended = driver.await;
                tracing::debug!(replica = %replica.id, ?ended, "the connection to another replica ended");
                set(None);
            }
            Ok(Err(error)) => note(replica, &mut last_error, error.to_string()),
            Err(_) => note(
                replica,
                &mut last_error,
                format!("no connection within {CONNECT_WITHIN:?}"),
            ),
        }
        sleep(PAUSE).await;
    }
}

fn note(replica: &Replica, last: &mut Option<String>, error: String) {
    if last.as_ref() != Some(&error) {
        tracing::warn!(replica = %replica.id, url = %replica.url, error, "another replica cannot be reached");
    }
    *last = Some(error);
}

type Driver = hyper::client::conn::http2::Connection<
    TokioIo<tokio_rustls::client::TlsStream<TcpStream>>,
    RequestBody,
    hyper_util::rt::TokioExecutor,
>;

async fn connect(replica: &Replica, tls: &TlsConnector) -> Result<(SendRequest<RequestBody>, Driver), BoxError> {
    let tcp = connect_tcp(&replica.url).await?;
    let name = tls::server_name().ok_or("no name")?;
    let stream = tls.connect(name, tcp).await?;
    Ok(client_builder().handshake(TokioIo::new(stream)).await?)
}
