//! Content of requests and answers on its way through HTTP/2.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use bytes::Bytes;
use http_body::{Body, Frame, SizeHint};
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt as _, Empty};

/// Content of a request for the API server, or of an answer.
pub(crate) type Content = UnsyncBoxBody<Bytes, hyper::Error>;

pub(crate) fn no_content() -> Content {
    Empty::new().map_err(|never| match never {}).boxed_unsync()
}

/// Content without empty frames, of which HTTP/2 takes only some hundred in the life of a connection. It holds a
/// guard until it ends.
pub(crate) struct WithoutEmpty<B, G = ()>(pub(crate) B, pub(crate) G);

impl<B: Body<Data = Bytes> + Unpin, G: Unpin> Body for WithoutEmpty<B, G> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<Option<Result<Frame<Bytes>, B::Error>>> {
        let body = &mut self.get_mut().0;
        loop {
            let frame = ready!(Pin::new(&mut *body).poll_frame(cx));
            let is_empty = |frame: &Frame<Bytes>| frame.data_ref().is_some_and(Bytes::is_empty);
            match frame {
                Some(Ok(frame)) if is_empty(&frame) => {}
                frame => return Poll::Ready(frame),
            }
        }
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
