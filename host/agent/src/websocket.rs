//! The bytes within a WebSocket as a stream, in binary messages whose boundaries mean nothing.

use std::io;

use bytes::Bytes;
use futures_util::{SinkExt as _, StreamExt as _, future};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use tokio_tungstenite::tungstenite::{Error, Message};
use tokio_util::io::{CopyToBytes, SinkWriter, StreamReader};

/// Longest message: a few frames of HTTP/2.
const MESSAGE_BYTES: usize = 1 << 20;

/// Bytes read at once: each connection keeps this much, and thousands are idle.
const READ_BYTES: usize = 2 * 1024;

const WRITE_BYTES: usize = 64 * 1024;

pub(crate) fn config() -> WebSocketConfig {
    WebSocketConfig::default()
        .read_buffer_size(READ_BYTES)
        .write_buffer_size(WRITE_BYTES)
        .max_write_buffer_size(MESSAGE_BYTES * 2)
        .max_message_size(Some(MESSAGE_BYTES))
        .max_frame_size(Some(MESSAGE_BYTES))
}

/// Wraps a connection on which the handshake is done.
pub(crate) async fn wrap<S>(io: S, role: Role) -> WebSocketStream<S>
where
    S: AsyncRead + AsyncWrite + Unpin,
{
    WebSocketStream::from_raw_socket(io, role, Some(config())).await
}

/// The bytes of the binary messages.
pub(crate) fn bytes<S>(socket: WebSocketStream<S>) -> impl AsyncRead + AsyncWrite + Unpin + Send + 'static
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let (sink, stream) = socket.split();
    let received = stream.filter_map(|message| {
        future::ready(match message {
            Ok(Message::Binary(bytes)) => Some(Ok(bytes)),
            Ok(Message::Text(_)) => Some(Err(io::Error::new(io::ErrorKind::InvalidData, "a text message"))),
            // They carry no bytes of HTTP/2, and tungstenite itself answers pings.
            Ok(Message::Ping(_) | Message::Pong(_) | Message::Close(_) | Message::Frame(_)) => None,
            Err(Error::ConnectionClosed | Error::AlreadyClosed) => None,
            Err(error) => Some(Err(io::Error::other(error))),
        })
    });
    let sent = sink
        .with(|bytes: Bytes| future::ready(Ok::<_, Error>(Message::Binary(bytes))))
        .sink_map_err(io::Error::other);
    tokio::io::join(
        StreamReader::new(Box::pin(received)),
        SinkWriter::new(CopyToBytes::new(Box::pin(sent))),
    )
}
