//! Stands for argocd-server: sends one message on each stream and keeps the stream open.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};

use anyhow::Result;
use bytes::Bytes;
use hyper::body::{Body, Frame, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio_rustls::TlsAcceptor;

use super::StreamKind;
use crate::certificate::Certificate;

/// Serves TLS on a free loopback port.
pub(super) async fn start(certificate: &Certificate) -> Result<SocketAddr> {
    let mut config = certificate.server_config()?;
    config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = tokio::net::TcpListener::bind(("127.0.0.1", 0)).await?;
    let address = listener.local_addr()?;
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let acceptor = acceptor.clone();
            tokio::spawn(async move {
                if let Ok(stream) = acceptor.accept(stream).await {
                    // A connection breaks off when the gateway stops.
                    let _ = auto::Builder::new(TokioExecutor::new())
                        .serve_connection(TokioIo::new(stream), service_fn(answer))
                        .await;
                }
            });
        }
    });
    Ok(address)
}

async fn answer(request: Request<Incoming>) -> Result<Response<OpenStream>, Infallible> {
    let asks_for = |kind: &StreamKind| request.version() == kind.version() && request.uri().path() == kind.path();
    let mut response = Response::default();
    match StreamKind::ALL.iter().find(|kind| asks_for(kind)) {
        Some(kind) => *response.body_mut() = OpenStream::Starting(kind.message()),
        None => *response.status_mut() = StatusCode::NOT_FOUND,
    }
    Ok(response)
}

/// Content that does not end after its message.
#[derive(Default)]
enum OpenStream {
    #[default]
    Ended,
    Starting(Bytes),
    Silent,
}

impl Body for OpenStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let stream = self.get_mut();
        match stream {
            Self::Ended => Poll::Ready(None),
            Self::Silent => Poll::Pending,
            Self::Starting(message) => {
                let message = std::mem::take(message);
                *stream = Self::Silent;
                Poll::Ready(Some(Ok(Frame::data(message))))
            }
        }
    }
}
