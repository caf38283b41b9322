//! What requests through connections of agents have in common, here and at other replicas.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use http_body_util::combinators::UnsyncBoxBody;
use hyper::client::conn::http2;
use hyper_util::rt::{TokioExecutor, TokioTimer};

use crate::limits;
use crate::wire::WireError;

/// Content of a request.
pub type RequestBody = UnsyncBoxBody<Bytes, Box<dyn std::error::Error + Send + Sync>>;

/// Why a request got no answer through an agent.
#[derive(Debug, thiserror::Error)]
pub enum RequestError {
    /// No agent of the cluster is connected. (503)
    #[error("the cluster's connector is not connected")]
    Absent,
    /// As many requests as may be are open. (503)
    #[error("the cluster's connector has {allowed} requests open, as many as it may have", allowed = limits::STREAMS)]
    Busy,
    /// The connection broke. (502)
    #[error("the connection to the cluster's connector broke")]
    Broken(#[source] hyper::Error),
    /// The same at the replica that has the connection. (502)
    #[error("the connection to the cluster's connector broke at another replica of the gateway")]
    BrokenElsewhere,
    /// The agent's answer is none. (502)
    #[error("the connector's answer cannot be used")]
    Wire(#[from] WireError),
}

/// Counts a request of a connection, until it is dropped.
#[derive(Debug)]
pub struct StreamPermit(Arc<AtomicUsize>);

impl StreamPermit {
    /// Counts one more, unless there are `most`.
    pub(crate) fn take(streams: &Arc<AtomicUsize>, most: u32) -> Result<Self, RequestError> {
        let permit = Self(Arc::clone(streams));
        // The permit is there first, so that one that is refused is counted back when it is dropped.
        match streams.fetch_add(1, Ordering::Relaxed) {
            others if others >= most as usize => Err(RequestError::Busy),
            _ => Ok(permit),
        }
    }
}

impl Drop for StreamPermit {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

/// The gateway's end of HTTP/2, to agents and to other replicas.
pub(crate) fn client_builder() -> http2::Builder<TokioExecutor> {
    let mut builder = http2::Builder::new(TokioExecutor::new());
    builder
        .timer(TokioTimer::new())
        .adaptive_window(false)
        .initial_stream_window_size(limits::STREAM_WINDOW)
        .initial_connection_window_size(limits::CONNECTION_WINDOW)
        .max_frame_size(limits::FRAME_BYTES)
        .max_header_list_size(limits::HEAD_BYTES)
        .max_send_buf_size(limits::SEND_BUFFER)
        .max_concurrent_reset_streams(limits::PENDING_RESETS)
        .keep_alive_interval(limits::PING_EVERY)
        .keep_alive_timeout(limits::PING_WITHIN)
        .keep_alive_while_idle(true);
    builder
}
