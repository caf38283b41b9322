//! The little of HTTP/1.1 that stand-ins of servers need.

use std::net::SocketAddr;
use std::sync::Arc;

use anyhow::Result;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// A request without its content.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) method: String,
    pub(super) path: String,
    query: String,
}

impl Request {
    /// The value of a parameter, as it was sent.
    pub(super) fn parameter(&self, name: &str) -> Option<&str> {
        let pairs = self.query.split('&').filter_map(|pair| pair.split_once('='));
        pairs.filter(|(key, _)| *key == name).map(|(_, value)| value).next()
    }
}

/// What a stand-in answers.
pub(super) trait Stand: Send + Sync + 'static {
    /// Answers one request. Ends the connection if it fails.
    fn answer(&self, request: Request, stream: &mut TcpStream) -> impl Future<Output = Result<()>> + Send;
}

/// Serves on a free port of every loopback address.
pub(super) async fn serve(stand: Arc<impl Stand>) -> Result<SocketAddr> {
    let listener = TcpListener::bind(("0.0.0.0", 0)).await?;
    let port = listener.local_addr()?.port();
    tokio::spawn(async move {
        while let Ok((mut stream, _)) = listener.accept().await {
            let stand = Arc::clone(&stand);
            tokio::spawn(async move {
                let mut buffer = Vec::new();
                while let Some(request) = read(&mut stream, &mut buffer).await {
                    if stand.answer(request, &mut stream).await.is_err() {
                        return;
                    }
                }
            });
        }
    });
    Ok(SocketAddr::from(([127, 0, 0, 1], port)))
}

/// Writes a complete response.
pub(super) async fn respond(stream: &mut TcpStream, status: u16, media: &str, body: &[u8]) -> Result<()> {
    let length = body.len();
    let head = format!("HTTP/1.1 {status} Status\r\ncontent-type: {media}\r\ncontent-length: {length}\r\n\r\n");
    stream.write_all(head.as_bytes()).await?;
    Ok(stream.write_all(body).await?)
}

/// Writes the head of a response in chunks.
pub(super) async fn begin(stream: &mut TcpStream, media: &str) -> Result<()> {
    let head = format!("HTTP/1.1 200 OK\r\ncontent-type: {media}\r\ntransfer-encoding: chunked\r\n\r\n");
    Ok(stream.write_all(head.as_bytes()).await?)
}

/// Writes one chunk; an empty one ends the response.
pub(super) async fn chunk(stream: &mut TcpStream, bytes: &[u8]) -> Result<()> {
    let framed = [format!("{:x}\r\n", bytes.len()).as_bytes(), bytes, b"\r\n"].concat();
    Ok(stream.write_all(&framed).await?)
}

/// Reads a request and drops its content. `None` at the end of the connection.
async fn read(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Request> {
    let end = loop {
        if let Some(at) = buffer.windows(4).position(|window| window == b"\r\n\r\n") {
            break at + 4;
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    };
    let head = String::from_utf8_lossy(buffer.get(..end)?).into_owned();
    let lower = head.to_ascii_lowercase();
    let length = lower.lines().find_map(|line| line.strip_prefix("content-length:"));
    let whole = end + length.map_or(Ok(0), |length| length.trim().parse::<usize>()).ok()?;
    while buffer.len() < whole {
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
    buffer.drain(..whole);
    let mut words = head.split(' ');
    let (method, target) = (words.next()?.to_owned(), words.next()?);
    let (path, query) = target.split_once('?').unwrap_or((target, ""));
    Some(Request {
        method,
        path: path.to_owned(),
        query: query.to_owned(),
    })
}
