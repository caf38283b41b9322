//! Streams content in both directions, frame by frame, and counts and times the frames.
//!
//! Invariant: at most one frame is in memory.
//!
//! Security: trailers that only the gateway may write are removed.

use std::fmt;
use std::future::poll_fn;
use std::pin::Pin;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::{Bytes, BytesMut};
use futures_util::stream::{BoxStream, Stream, StreamExt as _};
use http::HeaderMap;
use http_body::{Body as HttpBody, Frame, SizeHint};
use http_body_util::BodyExt as _;
use hyper::body::Incoming;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use uuid::Uuid;

use super::end::{EndConditions, EndWatcher, ExchangeDeadline};
use super::timeout::LazyTimer;
use super::{Error, ended_text};
use crate::headers::{HeldValue, clean_trailers};
use tollgate_core::header_map::retain;
use tollgate_core::header_names::{HeaderOwner, owner};
use tollgate_identity::sessions::EndReason;

/// Why content ended early.
#[derive(Debug, thiserror::Error)]
pub enum BodyError {
    /// The client's content is longer than this number of bytes.
    #[error("content is longer than {0} bytes")]
    TooLarge(u64),
    /// The client sent nothing for this long, which is the bound.
    #[error("the client sent nothing for {0:?}")]
    ClientSilent(Duration),
    /// The client broke off, or its framing is broken.
    #[error("reading from the client failed")]
    Client(#[source] hyper::Error),
    /// The backend sent nothing for this long, which is the bound.
    #[error("the backend sent nothing for {0:?}")]
    BackendSilent(Duration),
    /// The exchange took longer than allowed.
    #[error("the exchange took longer than allowed")]
    ExchangeTimeout,
    /// The caller's credential, session or access ended, or the store stopped answering, so that it
    /// may have ended.
    #[error("{}", ended_text(*.0))]
    Ended(EndReason),
    /// The backend broke off, or its framing is broken.
    #[error("reading from the backend failed")]
    Backend(#[source] hyper::Error),
}

/// Progress of a request's content, as seen by the task that waits for the response.
#[derive(Debug, Default)]
pub(super) struct Progress {
    pub(super) frames: AtomicU64,
    /// Kept here because hyper may lose the error.
    pub(super) failure: Mutex<Option<Error>>,
}

impl From<&BodyError> for Error {
    fn from(error: &BodyError) -> Self {
        match error {
            BodyError::TooLarge { .. } => Self::ContentTooLarge,
            BodyError::ClientSilent { .. } => Self::ClientSilent,
            BodyError::Ended(ending) => Self::Ended(*ending),
            BodyError::Client(_)
            | BodyError::BackendSilent { .. }
            | BodyError::ExchangeTimeout
            | BodyError::Backend(_) => Self::ClientBroken,
        }
    }
}

/// The content of a request or response.
#[derive(Default)]
pub struct Body {
    kind: BodyKind,
    held: Vec<HeldValue>,
}

#[derive(Default)]
enum BodyKind {
    #[default]
    Empty,
    Full(Bytes),
    Upload(Upload),
    Download(Download),
    Generated(Generated),
}

struct Upload {
    incoming: Incoming,
    left: u64,
    limit: u64,
    idle: LazyTimer,
    end_watcher: Option<Box<EndWatcher>>,
    progress: Option<Arc<Progress>>,
    trailers: Trailers,
    read_ahead: Option<Box<ReadAhead>>,
}

/// Content that was read ahead, and comes first.
#[derive(Debug, Default)]
struct ReadAhead {
    data: BytesMut,
    /// What follows `data`, if nothing else does.
    end: Option<ContentEnd>,
}

#[derive(Debug)]
struct ContentEnd {
    trailers: Option<HeaderMap>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Trailers {
    Forwarded,
    Dropped,
}

struct Download {
    incoming: Incoming,
    idle: Option<LazyTimer>,
    end_watcher: Option<Box<EndWatcher>>,
}

struct Generated {
    frames: BoxStream<'static, Frame<Bytes>>,
    end_watcher: Option<Box<EndWatcher>>,
}

impl fmt::Debug for Body {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self.kind {
            BodyKind::Empty => "Body::Empty",
            BodyKind::Full(_) => "Body::Full",
            BodyKind::Upload(_) => "Body::Upload",
            BodyKind::Download(_) => "Body::Download",
            BodyKind::Generated(_) => "Body::Generated",
        })
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        let kind = if bytes.is_empty() {
            BodyKind::Empty
        } else {
            BodyKind::Full(bytes)
        };
        Self::of(kind)
    }
}

impl From<String> for Body {
    fn from(text: String) -> Self {
        Bytes::from(text).into()
    }
}

impl From<&'static str> for Body {
    fn from(text: &'static str) -> Self {
        Bytes::from_static(text.as_bytes()).into()
    }
}

impl Body {
    /// No content.
    pub fn empty() -> Self {
        Self::default()
    }

    fn of(kind: BodyKind) -> Self {
        Self { kind, held: Vec::new() }
    }

    /// Content a client sends: at most `limit_bytes`, with at most `idle`
    /// between two frames.
    pub fn upload(incoming: Incoming, limit_bytes: u64, idle: Duration) -> Self {
        if incoming.is_end_stream() {
            return Self::empty();
        }
        Self::of(BodyKind::Upload(Upload {
            incoming,
            left: limit_bytes,
            limit: limit_bytes,
            idle: LazyTimer::new(idle),
            end_watcher: None,
            progress: None,
            trailers: Trailers::Forwarded,
            read_ahead: None,
        }))
    }

    /// Content that a backend sends, with at most `idle` between two frames, until one of `ends`.
    pub(super) fn download(incoming: Incoming, idle: Option<Duration>, ends: EndConditions) -> Self {
        if incoming.is_end_stream() {
            return Self::empty();
        }
        Self::of(BodyKind::Download(Download {
            incoming,
            idle: idle.map(LazyTimer::new),
            end_watcher: EndWatcher::new(ends),
        }))
    }

    /// Content that the gateway produces, frame by frame, until the stream or the caller's
    /// credential ends.
    ///
    /// - `expires_at`: the credential's end.
    /// - `decision`: id of the decision that allowed it.
    pub fn generated(
        frames: impl Stream<Item = Frame<Bytes>> + Send + 'static,
        expires_at: Option<jiff::Timestamp>,
        decision: Uuid,
    ) -> Self {
        // An expired credential has no time left.
        let left = expires_at.map(|at| Duration::try_from(at.duration_since(jiff::Timestamp::now())));
        let deadline = left.and_then(|left| ExchangeDeadline::credential(left.unwrap_or_default(), decision));
        Self::of(BodyKind::Generated(Generated {
            frames: frames.boxed(),
            end_watcher: EndWatcher::new(EndConditions { deadline, signal: None }),
        }))
    }

    /// Keeps `thing` until the content has ended or was dropped.
    pub fn hold(&mut self, thing: impl Send + 'static) {
        self.held.push(Box::new(thing));
    }

    pub(super) fn hold_all(&mut self, things: Vec<HeldValue>) {
        if self.held.is_empty() {
            self.held = things;
        } else {
            self.held.extend(things);
        }
    }

    /// Ends an upload on one of `ends`, independent of the response.
    pub(super) fn end_with(&mut self, ends: EndConditions) {
        if let BodyKind::Upload(upload) = &mut self.kind {
            upload.end_watcher = EndWatcher::new(ends);
        }
    }

    /// The same content without the trailers a client sends after it.
    #[must_use]
    pub fn without_trailers(mut self) -> Self {
        if let BodyKind::Upload(upload) = &mut self.kind {
            upload.trailers = Trailers::Dropped;
        }
        self
    }

    /// Buffers short content of a known length, so that it can be sent twice. Any other content
    /// stays a stream.
    ///
    /// - `max_bytes`: longest content that is buffered.
    ///
    /// # Errors
    /// [`Error::ClientSilent`] and the like, as when content is forwarded.
    pub async fn buffer_if_short(self, max_bytes: u64) -> Result<BufferedBody, Error> {
        let length = match &self.kind {
            BodyKind::Empty => return Ok(BufferedBody::Whole(Bytes::new())),
            BodyKind::Full(bytes) => return Ok(BufferedBody::Whole(bytes.clone())),
            BodyKind::Upload(upload) => upload.size_hint().exact(),
            BodyKind::Download(_) | BodyKind::Generated(_) => None,
        };
        if length.is_none_or(|length| length > max_bytes) {
            return Ok(BufferedBody::Stream(self));
        }
        Ok(BufferedBody::Whole(self.buffer_all(max_bytes).await?))
    }

    /// Buffers the whole content, of known or unknown length. Trailers are dropped.
    ///
    /// - `max_bytes`: longest content that is buffered.
    ///
    /// # Errors
    /// [`Error::ContentTooLarge`], and the others as when content is forwarded.
    pub async fn buffer_all(mut self, max_bytes: u64) -> Result<Bytes, Error> {
        // A client announces what it likes, so only a length within the bound is allocated at once.
        let length = self.size_hint().exact().filter(|length| *length <= max_bytes);
        let max_length = usize::try_from(max_bytes).unwrap_or(usize::MAX);
        let mut whole = BytesMut::with_capacity(length.and_then(|length| usize::try_from(length).ok()).unwrap_or(0));
        while let Some(frame) = self.frame().await {
            let frame = frame.map_err(|error| Error::from(&error))?;
            if let Ok(data) = frame.into_data() {
                if whole.len().saturating_add(data.len()) > max_length {
                    return Err(Error::ContentTooLarge);
                }
                whole.extend_from_slice(&data);
            }
        }
        Ok(whole.freeze())
    }

    /// The whole content, with its share of a memory budget that others use, too. It waits for its
    /// share piece by piece, so that an announced length alone takes nothing away from others.
    ///
    /// - `max_bytes`: longest content that is buffered.
    /// - `budget`: a permit a byte.
    ///
    /// # Errors
    /// [`Error::ContentTooLarge`], and the others as when content is forwarded.
    pub async fn buffer_within(
        mut self,
        max_bytes: u64,
        budget: &Arc<Semaphore>,
    ) -> Result<(Bytes, OwnedSemaphorePermit), Error> {
        let max_length = usize::try_from(max_bytes).unwrap_or(usize::MAX);
        let mut whole = BytesMut::new();
        let acquire = |bytes: usize| {
            let bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
            Arc::clone(budget).acquire_many_owned(bytes)
        };
        // Nobody closes a budget.
        let mut held = acquire(0).await.map_err(|_| Error::ContentTooLarge)?;
        while let Some(frame) = self.frame().await {
            let frame = frame.map_err(|error| Error::from(&error))?;
            if let Ok(data) = frame.into_data() {
                if whole.len().saturating_add(data.len()) > max_length {
                    return Err(Error::ContentTooLarge);
                }
                held.merge(acquire(data.len()).await.map_err(|_| Error::ContentTooLarge)?);
                whole.extend_from_slice(&data);
            }
        }
        Ok((whole.freeze(), held))
    }

    /// Reads ahead: the first bytes of the content, which remains whole.
    ///
    /// - `bytes`: how many at least. There are fewer if the content is shorter.
    ///
    /// # Errors
    /// As when content is forwarded.
    pub async fn peek(&mut self, bytes: usize) -> Result<&[u8], Error> {
        match &mut self.kind {
            BodyKind::Full(content) => Ok(content),
            BodyKind::Upload(upload) => upload.peek(bytes).await.map_err(|error| Error::from(&error)),
            BodyKind::Empty | BodyKind::Download(_) | BodyKind::Generated(_) => Ok(&[]),
        }
    }

    /// Starts counting the frames of an upload. `None` for any other content.
    pub(super) fn track_progress(&mut self) -> Option<Arc<Progress>> {
        match &mut self.kind {
            BodyKind::Upload(upload) => Some(upload.progress.get_or_insert_default().clone()),
            BodyKind::Empty | BodyKind::Full(_) | BodyKind::Download(_) | BodyKind::Generated(_) => None,
        }
    }
}

/// A client's content, as [`Body::buffer_if_short`] returns it.
#[derive(Debug)]
pub enum BufferedBody {
    /// All of it.
    Whole(Bytes),
    /// Too long, or of unknown length.
    Stream(Body),
}

type PolledFrame = Poll<Option<Result<Frame<Bytes>, BodyError>>>;

impl Upload {
    async fn peek(&mut self, bytes: usize) -> Result<&[u8], BodyError> {
        let mut ahead = self.read_ahead.take().unwrap_or_default();
        while ahead.data.len() < bytes && ahead.end.is_none() {
            let frame = poll_fn(|cx| self.poll_incoming(cx)).await.transpose()?;
            match frame.map(Frame::into_data) {
                Some(Ok(data)) => ahead.data.extend_from_slice(&data),
                Some(Err(frame)) => {
                    // Trailers follow all data, so nothing comes after them.
                    let trailers = frame.into_trailers().ok();
                    ahead.end = Some(ContentEnd { trailers });
                }
                None => ahead.end = Some(ContentEnd { trailers: None }),
            }
        }
        Ok(&self.read_ahead.insert(ahead).data)
    }

    fn poll_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let polled = self.poll_checked(cx);
        if let (Some(progress), Poll::Ready(Some(frame))) = (&self.progress, &polled) {
            match frame {
                Ok(_) => {
                    progress.frames.fetch_add(1, Ordering::Relaxed);
                }
                // There is one failure at most: it ends the content.
                Err(error) => {
                    *progress.failure.lock().unwrap_or_else(PoisonError::into_inner) = Some(error.into());
                }
            }
        }
        polled
    }

    fn poll_checked(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        if let Some(ahead) = &mut self.read_ahead {
            if !ahead.data.is_empty() {
                return Poll::Ready(Some(Ok(Frame::data(ahead.data.split().freeze()))));
            }
            if let Some(end) = &mut ahead.end {
                return Poll::Ready(end.trailers.take().map(|trailers| Ok(Frame::trailers(trailers))));
            }
        }
        self.poll_incoming(cx)
    }

    fn is_end_stream(&self) -> bool {
        let ahead = self.read_ahead.as_ref();
        let is_end = match ahead.and_then(|ahead| ahead.end.as_ref()) {
            Some(end) => end.trailers.is_none(),
            None => self.incoming.is_end_stream(),
        };
        is_end && ahead.is_none_or(|ahead| ahead.data.is_empty())
    }

    fn size_hint(&self) -> SizeHint {
        let ahead = self.read_ahead.as_ref().map_or(0, |ahead| ahead.data.len());
        let ahead = u64::try_from(ahead).unwrap_or(u64::MAX);
        let rest = self.incoming.size_hint();
        let mut whole = SizeHint::new();
        if let Some(upper) = rest.upper().and_then(|upper| upper.checked_add(ahead)) {
            whole.set_upper(upper);
        }
        whole.set_lower(rest.lower().saturating_add(ahead));
        whole
    }

    fn poll_incoming(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        let Poll::Ready(frame) = Pin::new(&mut self.incoming).poll_frame(cx) else {
            if let Some(end_watcher) = &mut self.end_watcher
                && let Poll::Ready(error) = end_watcher.poll(cx)
            {
                return Poll::Ready(Some(Err(error)));
            }
            ready!(self.idle.poll_expired(cx));
            return Poll::Ready(Some(Err(BodyError::ClientSilent(self.idle.bound))));
        };
        self.idle.stop();
        // A client that never pauses is ended as well.
        if let Some(error) = self.end_watcher.as_ref().and_then(|end_watcher| end_watcher.past()) {
            return Poll::Ready(Some(Err(error)));
        }
        Poll::Ready(match frame {
            None => None,
            Some(Err(error)) => Some(Err(BodyError::Client(error))),
            Some(Ok(mut frame)) => {
                if let Some(data) = frame.data_ref() {
                    let length = u64::try_from(data.len()).unwrap_or(u64::MAX);
                    match self.left.checked_sub(length) {
                        Some(left) => self.left = left,
                        None => {
                            return Poll::Ready(Some(Err(BodyError::TooLarge(self.limit))));
                        }
                    }
                } else if self.trailers == Trailers::Dropped {
                    // Trailers are the last frame.
                    return Poll::Ready(None);
                } else if let Some(trailers) = frame.trailers_mut() {
                    // Servers merge trailers into the header fields.
                    retain(trailers, |name| owner(name.as_str()) == HeaderOwner::Client);
                }
                Some(Ok(frame))
            }
        })
    }
}

impl Download {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        match Pin::new(&mut self.incoming).poll_frame(cx) {
            Poll::Ready(Some(Ok(mut frame))) => {
                if let Some(idle) = &mut self.idle {
                    idle.stop();
                }
                if let Some(trailers) = frame.trailers_mut() {
                    clean_trailers(trailers);
                }
                // A backend that never stops sending is still bounded.
                let past = self.end_watcher.as_ref().and_then(|end_watcher| end_watcher.past());
                Poll::Ready(Some(past.map_or(Ok(frame), Err)))
            }
            Poll::Ready(Some(Err(error))) => Poll::Ready(Some(Err(BodyError::Backend(error)))),
            Poll::Ready(None) => Poll::Ready(None),
            Poll::Pending => {
                if let Some(end_watcher) = &mut self.end_watcher
                    && let Poll::Ready(error) = end_watcher.poll(cx)
                {
                    return Poll::Ready(Some(Err(error)));
                }
                let Some(idle) = &mut self.idle else {
                    return Poll::Pending;
                };
                ready!(idle.poll_expired(cx));
                Poll::Ready(Some(Err(BodyError::BackendSilent(idle.bound))))
            }
        }
    }
}

impl Generated {
    fn poll_frame(&mut self, cx: &mut Context<'_>) -> PolledFrame {
        // Checks the end first, because a stream that never pauses must end as well.
        if let Some(end_watcher) = &mut self.end_watcher
            && let Poll::Ready(error) = end_watcher.poll(cx)
        {
            return Poll::Ready(Some(Err(error)));
        }
        self.frames.poll_next_unpin(cx).map(|frame| frame.map(Ok))
    }
}

impl HttpBody for Body {
    type Data = Bytes;
    type Error = BodyError;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> PolledFrame {
        let this = self.get_mut();
        let polled = match &mut this.kind {
            BodyKind::Empty => Poll::Ready(None),
            BodyKind::Full(bytes) => {
                let bytes = std::mem::take(bytes);
                Poll::Ready((!bytes.is_empty()).then(|| Ok(Frame::data(bytes))))
            }
            BodyKind::Upload(upload) => upload.poll_frame(cx),
            BodyKind::Download(download) => download.poll_frame(cx),
            BodyKind::Generated(generated) => generated.poll_frame(cx),
        };
        if matches!(polled, Poll::Ready(None | Some(Err(_)))) {
            // Dropped at once, also after an error, so that the connection to a backend closes.
            this.kind = BodyKind::Empty;
            this.held.clear();
        }
        polled
    }

    fn is_end_stream(&self) -> bool {
        match &self.kind {
            BodyKind::Empty => true,
            BodyKind::Full(bytes) => bytes.is_empty(),
            BodyKind::Upload(upload) => upload.is_end_stream(),
            BodyKind::Download(download) => download.incoming.is_end_stream(),
            BodyKind::Generated(_) => false,
        }
    }

    fn size_hint(&self) -> SizeHint {
        match &self.kind {
            BodyKind::Empty => SizeHint::with_exact(0),
            BodyKind::Full(bytes) => SizeHint::with_exact(u64::try_from(bytes.len()).unwrap_or(u64::MAX)),
            BodyKind::Upload(upload) => upload.size_hint(),
            BodyKind::Download(download) => download.incoming.size_hint(),
            BodyKind::Generated(_) => SizeHint::default(),
        }
    }
}
