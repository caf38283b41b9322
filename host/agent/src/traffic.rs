//! Counts the bytes of a connection, and ends it.
//!
//! hyper serves open requests of a connection to their end after its future is dropped. A connection of an agent
//! ends with everything open on it, so its bytes end here.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};
use std::task::{Context, Poll, ready};

use jiff::Timestamp;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_util::sync::{CancellationToken, WaitForCancellationFutureOwned};

/// How many bytes a connection received and sent, and when it last received any.
#[derive(Debug, Default)]
pub(crate) struct Traffic {
    received: AtomicU64,
    sent: AtomicU64,
    /// Microseconds since 1970.
    last_received: AtomicI64,
}

impl Traffic {
    pub(crate) fn received(&self) -> u64 {
        self.received.load(Ordering::Relaxed)
    }

    pub(crate) fn sent(&self) -> u64 {
        self.sent.load(Ordering::Relaxed)
    }

    pub(crate) fn last_received(&self) -> Timestamp {
        Timestamp::from_microsecond(self.last_received.load(Ordering::Relaxed)).unwrap_or_default()
    }
}

/// A connection whose bytes are counted, until it is ended.
pub(crate) struct Counted<I> {
    io: I,
    traffic: Arc<Traffic>,
    ended: Pin<Box<WaitForCancellationFutureOwned>>,
}

impl<I> Counted<I> {
    /// - `end`: from then on nothing can be read, which ends HTTP/2.
    pub(crate) fn new(io: I, end: &CancellationToken) -> (Self, Arc<Traffic>) {
        let traffic = Arc::<Traffic>::default();
        let counted = Self {
            io,
            traffic: Arc::clone(&traffic),
            ended: Box::pin(end.clone().cancelled_owned()),
        };
        (counted, traffic)
    }
}

fn add(counter: &AtomicU64, bytes: usize) {
    counter.fetch_add(bytes.try_into().unwrap_or(u64::MAX), Ordering::Relaxed);
}

impl<I: AsyncRead + Unpin> AsyncRead for Counted<I> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, buffer: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { io, traffic, ended } = self.get_mut();
        if ended.as_mut().poll(cx).is_ready() {
            return Poll::Ready(Err(io::ErrorKind::ConnectionAborted.into()));
        }
        let before = buffer.filled().len();
        ready!(Pin::new(io).poll_read(cx, buffer))?;
        add(&traffic.received, buffer.filled().len().saturating_sub(before));
        let now = Timestamp::now().as_microsecond();
        traffic.last_received.store(now, Ordering::Relaxed);
        Poll::Ready(Ok(()))
    }
}

impl<I: AsyncWrite + Unpin> AsyncWrite for Counted<I> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let Self { io, traffic, .. } = self.get_mut();
        let written = ready!(Pin::new(io).poll_write(cx, bytes))?;
        add(&traffic.sent, written);
        Poll::Ready(Ok(written))
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let Self { io, traffic, .. } = self.get_mut();
        let written = ready!(Pin::new(io).poll_write_vectored(cx, slices))?;
        add(&traffic.sent, written);
        Poll::Ready(Ok(written))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().io).poll_shutdown(cx)
    }
}
