//! Reads a response body of at most [`MAX_RESPONSE_BODY_BYTES`] into a [`Response`].
//!
//! Invariant: a truncated body is never returned as a whole one.
//!
//! Security: memory that the body outgrew keeps no copy of it.

use std::fmt;
use std::net::SocketAddr;

use bytes::Bytes;
use http::{HeaderMap, StatusCode, Version};
use http_body_util::BodyExt as _;
use hyper::body::Body;
use zeroize::Zeroizing;

use super::error::Error;

const MAX_RESPONSE_BODY_BYTES: usize = 1024 * 1024;

/// An answer, regardless of its status.
pub(crate) struct Response {
    /// May be 3xx, because redirects are not followed.
    pub(crate) status: StatusCode,
    /// They may hold secrets.
    pub(crate) headers: HeaderMap,
    pub(crate) body: Zeroizing<Vec<u8>>,
    pub(crate) version: Version,
    pub(crate) peer: SocketAddr,
}

impl fmt::Debug for Response {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Response")
            .field("status", &self.status)
            .field("headers", &self.headers.len())
            .field("body_bytes", &self.body.len())
            .field("version", &self.version)
            .field("peer", &self.peer)
            .finish()
    }
}

/// Reads a body to its end. A connection that ends early gives the error that `failed` returns.
pub(super) async fn read<B: Body<Data = Bytes> + Unpin>(
    mut incoming: B,
    failed: impl Fn(B::Error) -> Error,
) -> Result<Zeroizing<Vec<u8>>, Error> {
    let too_large = || Error::TooLarge {
        what: "body",
        allowed: MAX_RESPONSE_BODY_BYTES,
    };
    let announced = usize::try_from(incoming.size_hint().lower()).map_err(|_| too_large())?;
    // Before the allocation, whose size the server chooses.
    if announced > MAX_RESPONSE_BODY_BYTES {
        return Err(too_large());
    }
    let mut body = Zeroizing::new(Vec::with_capacity(announced));
    while let Some(frame) = incoming.frame().await {
        let Ok(data) = frame.map_err(&failed)?.into_data() else {
            continue;
        };
        let length = body.len().saturating_add(data.len());
        if length > MAX_RESPONSE_BODY_BYTES {
            return Err(too_large());
        }
        if length > body.capacity() {
            // A vector that grows by itself would leave its old bytes behind.
            let mut larger = Zeroizing::new(Vec::with_capacity(length.saturating_mul(2)));
            larger.extend_from_slice(&body);
            body = larger;
        }
        body.extend_from_slice(&data);
    }
    Ok(body)
}
