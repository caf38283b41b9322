//! Finds out which protocol a connection speaks: by ALPN over TLS, by the first bytes in plain text.

use std::io;
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::server::TlsStream;

use super::socket::{Socket, TlsSocket};
use crate::client::Peer;
use crate::tls::Certificates;
use tollgate_agent::hello::channel_value;

/// First bytes of an HTTP/2 connection. Source: RFC 9113, section 3.4.
const PREFACE: &[u8] = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n";

const CONNECT: &[u8] = b"CONNECT ";

/// The protocol of a connection with the bytes read to detect it, or how the connection ended
/// before that.
pub(super) enum ProtocolDetection {
    Http1(Socket, Bytes),
    Http2(Socket, Bytes),
    HeadTimeout(Socket),
    IncompleteHead,
    /// There is no TLS with this client.
    FailedHandshake(io::Error),
}

/// - `kind`: which kind of [`Socket`] TLS makes of `stream`.
pub(super) async fn handshake<S: AsyncRead + AsyncWrite + Unpin>(
    tls: &Certificates,
    stream: S,
    bound: Duration,
    peer: &Peer,
    kind: fn(Box<TlsStream<S>>) -> TlsSocket,
) -> io::Result<ProtocolDetection> {
    let accepted = timeout(bound, tls.acceptor().accept(stream)).await;
    let mut stream = match accepted.unwrap_or_else(|elapsed| Err(elapsed.into())) {
        Ok(stream) => stream,
        Err(error) => return Ok(ProtocolDetection::FailedHandshake(error)),
    };
    peer.set_channel_value(channel_value(stream.get_ref().1));
    let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
    let mut read = BytesMut::new();
    let is_connect = is_http2 && timeout(bound, begins_with_connect(&mut stream, &mut read)).await??;
    let socket = Socket::Right(kind(Box::new(stream)));
    Ok(match is_http2 && !is_connect {
        true => ProtocolDetection::Http2(socket, read.freeze()),
        false => ProtocolDetection::Http1(socket, read.freeze()),
    })
}

/// Whether a client that agreed on HTTP/2 begins with `CONNECT` of HTTP/1.1. Go's clients do so with
/// a proxy whose URL is `https`: they offer HTTP/2 for what is inside the tunnel, and do not look at
/// what the proxy chose (source: `net/http`, `Transport.dialConn`).
async fn begins_with_connect<S: AsyncRead + Unpin>(stream: &mut S, read: &mut BytesMut) -> io::Result<bool> {
    while read.len() < CONNECT.len() && CONNECT.starts_with(read) {
        if stream.read_buf(read).await? == 0 {
            return Ok(false);
        }
    }
    Ok(read.starts_with(CONNECT))
}

/// Reads until the bytes cannot become, or are, the preface of HTTP/2.
pub(super) async fn sniff(mut stream: TcpStream, bound: Duration) -> io::Result<ProtocolDetection> {
    let mut read = BytesMut::with_capacity(1024);
    let sniffing = async {
        loop {
            let compared = read.len().min(PREFACE.len());
            if read.get(..compared) != PREFACE.get(..compared) {
                return Ok(false);
            }
            if compared == PREFACE.len() {
                return Ok(true);
            }
            if stream.read_buf(&mut read).await? == 0 {
                return Err(io::Error::from(io::ErrorKind::UnexpectedEof));
            }
        }
    };
    let sniffed = timeout(bound, sniffing).await;
    let silent = read.is_empty();
    let (socket, read) = (Socket::Left(stream), read.freeze());
    match sniffed {
        Ok(Ok(true)) => Ok(ProtocolDetection::Http2(socket, read)),
        Ok(Ok(false)) => Ok(ProtocolDetection::Http1(socket, read)),
        // Who sent nothing, such as a probe of a load balancer, made no request that is answered or recorded.
        Ok(Err(error)) if silent => Err(error),
        Err(elapsed) if silent => Err(elapsed.into()),
        Ok(Err(_)) => Ok(ProtocolDetection::IncompleteHead),
        Err(_) => Ok(ProtocolDetection::HeadTimeout(socket)),
    }
}
