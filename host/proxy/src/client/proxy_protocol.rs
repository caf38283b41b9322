//! Reads the header with which a load balancer begins a connection that it passes on: the PROXY
//! protocol, version 2.
//!
//! Security: only a trusted proxy's header is read, and no byte after it. What is no such header
//! ends the connection.
//!
//! Source: <https://www.haproxy.org/download/3.2/doc/proxy-protocol.txt>, section 2.2.

use std::io;
use std::net::SocketAddr;

use proxy_header::{ParseConfig, Protocol, ProxyHeader};
use tokio::io::{AsyncRead, AsyncReadExt as _};

#[cfg(any(test, feature = "fuzz"))]
pub(crate) mod fuzz;

const SIGNATURE: [u8; 12] = *b"\r\n\r\n\0\r\nQUIT\n";

/// Bytes of the signature, the command, the address family, and the length of the rest.
const FIXED_BYTES: usize = 16;

/// Most bytes after them: 216 of addresses, and what the proxy adds. HAProxy and cloud load
/// balancers send a few hundred.
const MAX_BYTES: usize = 4096;

/// Addresses only, of version 2 only.
const CONFIG: ParseConfig = ParseConfig {
    include_tlvs: false,
    allow_v1: false,
    allow_v2: true,
};

/// Whose connection it is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    Client(SocketAddr),
    /// The proxy's own, such as a health check, or one whose address it does not know.
    Unspecified,
}

/// Why a connection ends before its first byte is served.
#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error("the connection ended in its PROXY protocol header")]
    Read(#[from] io::Error),
    #[error("the connection does not begin with a PROXY protocol header of version 2")]
    Signature,
    #[error("the PROXY protocol header announces {bytes} bytes, at most {MAX_BYTES} are allowed")]
    TooLong { bytes: usize },
    #[error("the PROXY protocol header is malformed")]
    Malformed,
    #[error("the PROXY protocol header is of a datagram, allowed are streams")]
    Datagram,
}

/// Reads a header from the start of a connection, and nothing after it. Not cancel safe.
pub(super) async fn read(stream: &mut (impl AsyncRead + Unpin)) -> Result<Source, Error> {
    let mut header = vec![0; FIXED_BYTES];
    stream.read_exact(&mut header).await?;
    let Some((&SIGNATURE, [_, _, length @ ..])) = header.split_first_chunk() else {
        return Err(Error::Signature);
    };
    let length: [u8; 2] = length.try_into().map_err(|_| Error::Malformed)?;
    let bytes = usize::from(u16::from_be_bytes(length));
    // Before the allocation: the length is the sender's, up to 64 KiB.
    if bytes > MAX_BYTES {
        return Err(Error::TooLong { bytes });
    }
    header.resize(FIXED_BYTES + bytes, 0);
    stream
        .read_exact(header.get_mut(FIXED_BYTES..).unwrap_or_default())
        .await?;
    let (parsed, length) = ProxyHeader::parse(&header, CONFIG).map_err(|_| Error::Malformed)?;
    // Else announced bytes that the crate does not count to the header would be dropped.
    if length != header.len() {
        return Err(Error::Malformed);
    }
    match parsed.proxied_address() {
        None => Ok(Source::Unspecified),
        Some(address) if address.protocol == Protocol::Stream => Ok(Source::Client(address.source)),
        Some(_) => Err(Error::Datagram),
    }
}

#[cfg(test)]
mod tests;
