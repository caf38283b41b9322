//! A client's TCP or TLS connection as the HTTP parser sees it: bytes that passed the
//! [`FramingValidator`], within the time limits.
//!
//! Security: the parser sees no byte after a refused one.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use bytes::{Buf, Bytes};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::net::TcpStream;
use tokio_rustls::server::TlsStream;
use tokio_util::either::Either;

use super::Limits;
use super::framing::{FramingValidator, RequestPhase};
use crate::client::Peer;
use crate::forward::timeout::LazyTimer;

/// What the parser gets instead of a refused line. No parser state accepts a NUL, and the empty
/// line makes the parser process it. It answers 400 in a head, and fails in content.
const INVALID_LINE: &[u8] = b"\0\r\n\r\n";

/// What the parser gets instead of refused fields: the end of their head, so that the handler can
/// make the response. The request is marked before, and is never forwarded.
const END_OF_HEAD: &[u8] = b"\r\n\r\n";

/// Plain text, TLS, or TLS inside a tunnel.
pub(super) type Socket = Either<TcpStream, TlsSocket>;

pub(super) type TlsSocket = Either<Box<TlsStream<TcpStream>>, Box<TlsStream<CheckedStream>>>;

/// Whether a connection is readable, and if not, why it stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ReadState {
    Readable,
    ClosedByClient,
    /// A head began and did not end in time.
    HeadTimeout,
    /// Nothing came in time.
    Idle,
    Refused,
}

/// A transport whose bytes are checked and timed.
#[derive(Debug)]
pub(super) struct CheckedStream {
    socket: Socket,
    /// Bytes read before the protocol was known.
    prefix: Bytes,
    /// Bytes that the parser still gets in place of the refused ones.
    refusal_bytes: &'static [u8],
    checks: Option<Http1Checks>,
    stall: LazyTimer,
    pub(super) state: ReadState,
}

/// The checks of HTTP/1.1 requests. Absent for HTTP/2, which frames by length.
#[derive(Debug)]
struct Http1Checks {
    framing: FramingValidator,
    peer: Arc<Peer>,
    head: LazyTimer,
    idle: LazyTimer,
}

impl CheckedStream {
    pub(super) fn http1(socket: Socket, prefix: Bytes, peer: Arc<Peer>, limits: &Limits) -> Self {
        let checks = Http1Checks {
            framing: FramingValidator::new(limits.header_bytes),
            peer,
            head: LazyTimer::new(limits.header_timeout),
            idle: LazyTimer::new(limits.keep_alive),
        };
        Self {
            checks: Some(checks),
            ..Self::http2(socket, prefix, limits)
        }
    }

    pub(super) fn http2(socket: Socket, prefix: Bytes, limits: &Limits) -> Self {
        Self {
            socket,
            prefix,
            refusal_bytes: b"",
            checks: None,
            stall: LazyTimer::new(limits.write_stall),
            state: ReadState::Readable,
        }
    }

    pub(super) fn is_in_head(&self) -> bool {
        let checks = self.checks.as_ref();
        checks.is_some_and(|checks| checks.framing.phase() == RequestPhase::Head)
    }

    pub(super) fn into_socket(self) -> Socket {
        self.socket
    }

    /// The same transport without checks of requests, as which it carries a tunnel.
    ///
    /// - `read`: what the parser read and did not use.
    pub(super) fn into_tunnel(self, read: Bytes, limits: &Limits) -> Self {
        let prefix = if self.prefix.is_empty() {
            read
        } else {
            [read, self.prefix].concat().into()
        };
        Self::http2(self.socket, prefix, limits)
    }

    /// Reads bytes of the transport, unchecked.
    fn poll_raw(&mut self, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        if self.prefix.has_remaining() {
            let length = self.prefix.len().min(buf.remaining());
            buf.put_slice(&self.prefix.split_to(length));
            return Poll::Ready(Ok(()));
        }
        Pin::new(&mut self.socket).poll_read(cx, buf)
    }

    fn poll_timeouts(&mut self, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let Some(checks) = &mut self.checks else {
            return Poll::Pending;
        };
        // The client waits for a response then. Content that it still sends has its own timeout in `Body`.
        if checks.peer.open_requests() > 0 {
            return Poll::Pending;
        }
        let (timer, state) = match checks.framing.phase() {
            RequestPhase::Other => return Poll::Pending,
            RequestPhase::Head => (&mut checks.head, ReadState::HeadTimeout),
            // A connection that never sent a request waits only as long as a head.
            RequestPhase::Between if checks.peer.requests_started() == 0 => (&mut checks.head, ReadState::Idle),
            RequestPhase::Between => (&mut checks.idle, ReadState::Idle),
        };
        ready!(timer.poll_expired(cx));
        self.state = state;
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }

    /// Checks the new bytes of `buf`, from `start`.
    fn inspect(&mut self, buf: &mut ReadBuf<'_>, start: usize) {
        let Some(checks) = &mut self.checks else { return };
        let new = buf.filled().get(start..).unwrap_or_default();
        if let Err(good) = checks.framing.scan(new) {
            buf.set_filled(start + good);
            self.state = ReadState::Refused;
            self.refusal_bytes = match checks.framing.refused_fields {
                Some(before) => {
                    checks.peer.refuse_after(before);
                    END_OF_HEAD
                }
                None => INVALID_LINE,
            };
            self.write_refusal(buf);
            return;
        }
        // A head keeps its deadline until it ends, so a client cannot stretch it by single bytes (Slowloris).
        if checks.framing.phase() != RequestPhase::Head {
            checks.head.stop();
        }
        checks.idle.stop();
    }

    fn write_refusal(&mut self, buf: &mut ReadBuf<'_>) {
        let length = self.refusal_bytes.len().min(buf.remaining());
        if let Some((now, later)) = self.refusal_bytes.split_at_checked(length) {
            buf.put_slice(now);
            self.refusal_bytes = later;
        }
    }

    /// Bounds how long a client may leave bytes unread.
    fn with_write_timeout<T>(&mut self, cx: &mut Context<'_>, wrote: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if wrote.is_ready() {
            self.stall.stop();
            return wrote;
        }
        ready!(self.stall.poll_expired(cx));
        Poll::Ready(Err(io::ErrorKind::TimedOut.into()))
    }
}

impl AsyncRead for CheckedStream {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        // The transport is not read again. After the last refusal byte the parser sees the end of the stream.
        if this.state == ReadState::Refused {
            this.write_refusal(buf);
            return Poll::Ready(Ok(()));
        }
        let start = buf.filled().len();
        let Poll::Ready(read) = this.poll_raw(cx, buf) else {
            return this.poll_timeouts(cx);
        };
        read?;
        if buf.filled().len() == start {
            // Reading nothing into a full buffer does not mean that the client has closed.
            if buf.remaining() > 0 {
                this.state = ReadState::ClosedByClient;
            }
        } else {
            this.inspect(buf, start);
        }
        Poll::Ready(Ok(()))
    }
}

impl AsyncWrite for CheckedStream {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let wrote = Pin::new(&mut this.socket).poll_write(cx, bytes);
        this.with_write_timeout(cx, wrote)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bytes: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let this = self.get_mut();
        let wrote = Pin::new(&mut this.socket).poll_write_vectored(cx, bytes);
        this.with_write_timeout(cx, wrote)
    }

    fn is_write_vectored(&self) -> bool {
        self.socket.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let flushed = Pin::new(&mut this.socket).poll_flush(cx);
        this.with_write_timeout(cx, flushed)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let this = self.get_mut();
        let shut = Pin::new(&mut this.socket).poll_shutdown(cx);
        this.with_write_timeout(cx, shut)
    }
}

/// Resets the connection, so that the other side sees an error instead of a regular end.
pub(super) fn reset(socket: &Socket) {
    let stream = match socket {
        Either::Left(stream) => stream,
        Either::Right(Either::Left(stream)) => stream.get_ref().0,
        Either::Right(Either::Right(stream)) => return reset(&stream.get_ref().0.socket),
    };
    // If the option cannot be set, the socket still closes without the closing message of TLS.
    let _ = stream.set_zero_linger();
}
