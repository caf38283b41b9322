//! A backend that records the exact bytes of requests and answers with exact bytes.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

/// What a backend does after a request.
pub enum Reply {
    /// Sends the bytes and reads the next request.
    Bytes(Vec<u8>),
    /// Sends the bytes and closes.
    Last(Vec<u8>),
    /// Sends the bytes, then nothing more; keeps the connection open.
    Stall(Vec<u8>),
}

impl Reply {
    /// A 200 with `Content-Length`.
    pub fn ok(body: &str) -> Self {
        let length = body.len();
        Self::Bytes(format!("HTTP/1.1 200 OK\r\ncontent-length: {length}\r\n\r\n{body}").into_bytes())
    }
}

/// One request, byte for byte.
#[derive(Clone, Debug)]
pub struct Seen {
    /// Request line and header fields, with the empty line after them.
    pub head: String,
    /// Content with its chunk framing.
    pub content: Vec<u8>,
}

impl Seen {
    /// The request line.
    pub fn line(&self) -> &str {
        self.head.split("\r\n").next().unwrap_or_default()
    }

    /// Values of all fields of this name, in order.
    pub fn values(&self, name: &str) -> Vec<&str> {
        self.head
            .split("\r\n")
            .skip(1)
            .filter_map(|line| line.split_once(':'))
            .filter(|(field, _)| field.eq_ignore_ascii_case(name))
            .map(|(_, value)| value.trim())
            .collect()
    }
}

/// A backend on loopback.
#[derive(Clone)]
pub struct Backend {
    /// Where it listens.
    pub address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
    connections: Arc<AtomicUsize>,
    closed: Arc<AtomicUsize>,
}

impl Backend {
    /// Starts one that answers each request with `reply`.
    pub async fn start(reply: impl Fn(&Seen) -> Reply + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let backend = Self {
            address: listener.local_addr().unwrap(),
            seen: Arc::default(),
            connections: Arc::default(),
            closed: Arc::default(),
        };
        let (kept, reply) = (backend.clone(), Arc::new(reply));
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                kept.connections.fetch_add(1, Ordering::SeqCst);
                let (kept, reply) = (kept.clone(), reply.clone());
                tokio::spawn(async move {
                    kept.serve(stream, reply.as_ref()).await;
                    kept.closed.fetch_add(1, Ordering::SeqCst);
                });
            }
        });
        backend
    }

    /// All requests so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.seen.lock().unwrap().clone()
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.connections.load(Ordering::SeqCst)
    }

    /// Connections that ended.
    pub fn closed(&self) -> usize {
        self.closed.load(Ordering::SeqCst)
    }

    async fn serve(&self, mut stream: TcpStream, reply: &(dyn Fn(&Seen) -> Reply + Send + Sync)) {
        let mut buffer = Vec::new();
        while let Some(seen) = read_request(&mut stream, &mut buffer).await {
            self.seen.lock().unwrap().push(seen.clone());
            let reply = reply(&seen);
            match reply {
                Reply::Bytes(bytes) => {
                    if stream.write_all(&bytes).await.is_err() {
                        return;
                    }
                }
                Reply::Last(bytes) => {
                    let _ = stream.write_all(&bytes).await;
                    return;
                }
                Reply::Stall(bytes) => {
                    let _ = stream.write_all(&bytes).await;
                    let mut sink = [0; 1024];
                    while matches!(stream.read(&mut sink).await, Ok(length) if length > 0) {}
                    return;
                }
            }
        }
    }
}

async fn read_request(stream: &mut TcpStream, buffer: &mut Vec<u8>) -> Option<Seen> {
    let end = until(stream, buffer, b"\r\n\r\n").await?;
    let head = String::from_utf8_lossy(&buffer.drain(..end).collect::<Vec<_>>()).into_owned();
    let mut seen = Seen {
        head,
        content: Vec::new(),
    };
    let length = seen
        .values("content-length")
        .first()
        .and_then(|length| length.parse::<usize>().ok());
    if let Some(length) = length {
        while buffer.len() < length {
            if stream.read_buf(buffer).await.ok()? == 0 {
                return None;
            }
        }
        seen.content = buffer.drain(..length).collect();
    } else if !seen.values("transfer-encoding").is_empty() {
        let end = if buffer.starts_with(b"0\r\n\r\n") {
            5
        } else {
            until(stream, buffer, b"\r\n0\r\n").await?
        };
        seen.content = buffer.drain(..end).collect();
        // Trailers and the empty line.
        if !seen.content.ends_with(b"\r\n\r\n") {
            let end = until(stream, buffer, b"\r\n").await?;
            let trailers = if end == 2 {
                2
            } else {
                until(stream, buffer, b"\r\n\r\n").await?
            };
            seen.content.extend(buffer.drain(..trailers));
        }
    }
    Some(seen)
}

/// Reads until `mark` and returns the offset behind it.
async fn until(stream: &mut TcpStream, buffer: &mut Vec<u8>, mark: &[u8]) -> Option<usize> {
    loop {
        if let Some(at) = buffer.windows(mark.len()).position(|window| window == mark) {
            return Some(at + mark.len());
        }
        if stream.read_buf(buffer).await.ok()? == 0 {
            return None;
        }
    }
}
