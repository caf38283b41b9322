//! HTTP/2 requests whose header block is exactly what a test says, also if no client would send it;
//! and a server of both protocols that records what it gets, as argocd-server is.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use bytes::Bytes;
use http::{HeaderMap, Request, Response};
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::client::conn::http2::handshake;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use hyper_util::server::conn::auto;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _, DuplexStream, copy, duplex, split};
use tokio::net::tcp::OwnedWriteHalf;
use tokio::net::{TcpListener, TcpStream};
use tokio::time::timeout;

use test_support::client::PATIENCE;

/// Length of the preface of a connection. Source: RFC 9113, section 3.4.
const PREFACE_BYTES: usize = 24;

/// Types of the frames of a request, and their flags. Source: RFC 9113, sections 6.1 and 6.2.
const DATA: u8 = 0;
const HEADERS: u8 = 1;
const END_STREAM: u8 = 1;
const END_HEADERS: u8 = 4;

/// The header block of a request: pseudo-headers and fields in the order in which they are sent.
#[derive(Clone, Debug)]
pub(crate) struct Block(Vec<(String, String)>);

impl Block {
    /// The block of a regular request.
    pub(crate) fn new(method: &str, path: &str) -> Self {
        let fields = [
            (":method", method),
            (":scheme", "http"),
            (":authority", "argocd.test"),
            (":path", path),
        ];
        Self(fields.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec())
    }

    /// Adds a field at the end.
    pub(crate) fn and(mut self, name: &str, value: &str) -> Self {
        self.0.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds a field at the start.
    pub(crate) fn starting_with(mut self, name: &str, value: &str) -> Self {
        self.0.insert(0, (name.to_owned(), value.to_owned()));
        self
    }

    /// Replaces the value of a field that is there.
    pub(crate) fn set(mut self, name: &str, value: &str) -> Self {
        let field = self.0.iter_mut().find(|(present, _)| present == name);
        value.clone_into(&mut field.expect("the field is there").1);
        self
    }

    /// Removes a field that is there.
    pub(crate) fn without(mut self, name: &str) -> Self {
        let before = self.0.len();
        self.0.retain(|(present, _)| present != name);
        assert!(self.0.len() < before, "no {name}");
        self
    }

    /// Every field as a literal that is not indexed. Source: RFC 7541, section 6.2.2.
    fn encoded(&self) -> Vec<u8> {
        let mut encoded = Vec::new();
        for (name, value) in &self.0 {
            encoded.push(0);
            for text in [name, value] {
                put_length(&mut encoded, text.len());
                encoded.extend(text.as_bytes());
            }
        }
        encoded
    }
}

/// An integer with a prefix of seven bits. Source: RFC 7541, section 5.1.
fn put_length(encoded: &mut Vec<u8>, length: usize) {
    let Some(mut rest) = length.checked_sub(127) else {
        return encoded.push(u8::try_from(length).unwrap());
    };
    encoded.push(127);
    while rest >= 128 {
        encoded.push(u8::try_from(rest % 128).unwrap() | 128);
        rest /= 128;
    }
    encoded.push(u8::try_from(rest).unwrap());
}

/// How a request ended for its client.
#[derive(Debug)]
pub(crate) enum Ending {
    Answered(Answer),
    /// The server reset the request or closed the connection; the text has the code of the error.
    Failed(String),
}

#[derive(Debug)]
pub(crate) struct Answer {
    pub(crate) status: u16,
    pub(crate) content: Vec<u8>,
    head: HeaderMap,
    trailers: HeaderMap,
}

impl Answer {
    /// `grpc-status`, from the trailers or the head.
    pub(crate) fn grpc_status(&self) -> Option<&str> {
        let all = [&self.trailers, &self.head];
        let mut found = all.into_iter().filter_map(|fields| fields.get("grpc-status"));
        found.next().map(|status| status.to_str().unwrap())
    }
}

/// Sends a request on a separate connection.
pub(crate) async fn send(address: SocketAddr, block: &Block, content: &[u8]) -> Ending {
    let (mut from_server, to_server) = TcpStream::connect(address).await.unwrap().into_split();
    // A regular client reads the answer. On the way to the server, its header block is replaced.
    let (near, far) = duplex(1 << 16);
    let (from_client, mut to_client) = split(far);
    let sending = tokio::spawn(replace_headers(from_client, to_server, block.encoded()));
    let receiving = tokio::spawn(async move {
        let _ = copy(&mut from_server, &mut to_client).await;
        let _ = to_client.shutdown().await;
    });
    let exchange = exchange(near, Full::new(Bytes::copy_from_slice(content)));
    let ending = timeout(PATIENCE, exchange).await;
    sending.abort();
    receiving.abort();
    match ending.unwrap_or_else(|_| panic!("{block:?} gets no answer")) {
        Ok(answer) => Ending::Answered(answer),
        Err(error) => Ending::Failed(format!("{:#}", anyhow::Error::from(error))),
    }
}

async fn exchange(near: DuplexStream, content: Full<Bytes>) -> Result<Answer, hyper::Error> {
    let (mut requests, connection) = handshake(TokioExecutor::new(), TokioIo::new(near)).await?;
    tokio::spawn(connection);
    let request = Request::post("http://replaced.test/").body(content).unwrap();
    let (head, body) = requests.send_request(request).await?.into_parts();
    let collected = body.collect().await?;
    Ok(Answer {
        status: head.status.as_u16(),
        head: head.headers,
        trailers: collected.trailers().cloned().unwrap_or_default(),
        content: collected.to_bytes().to_vec(),
    })
}

/// Copies the frames of a client to a server, with `block` in place of its header block. The frames of the
/// request arrive together: what the server does with a head must not depend on when it sees the content.
async fn replace_headers(
    mut from_client: tokio::io::ReadHalf<DuplexStream>,
    mut to_server: OwnedWriteHalf,
    block: Vec<u8>,
) -> std::io::Result<()> {
    let mut preface = [0; PREFACE_BYTES];
    from_client.read_exact(&mut preface).await?;
    to_server.write_all(&preface).await?;
    let mut request = Vec::new();
    loop {
        // Three bytes of length, type, flags, and four bytes with the number of the stream.
        let mut head = [0; 9];
        from_client.read_exact(&mut head).await?;
        let length = u32::from_be_bytes([0, head[0], head[1], head[2]]);
        let mut payload = vec![0; usize::try_from(length).unwrap()];
        from_client.read_exact(&mut payload).await?;
        if head[3] == HEADERS {
            // Neither padding nor priority.
            assert_eq!(head[4] & !END_STREAM, END_HEADERS);
            payload.clone_from(&block);
            head[..3].copy_from_slice(&u32::try_from(block.len()).unwrap().to_be_bytes()[1..]);
        }
        let frame = [&head[..], &payload].concat();
        match head[3] {
            HEADERS | DATA => request.extend(frame),
            _ => to_server.write_all(&frame).await?,
        }
        if matches!(head[3], HEADERS | DATA) && head[4] & END_STREAM != 0 {
            to_server.write_all(&std::mem::take(&mut request)).await?;
        }
    }
}

/// A server of HTTP/1.1 and HTTP/2 on one port. It answers a call of gRPC with status 0, and
/// everything else with the line of the request.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    seen: Arc<Mutex<Vec<Seen>>>,
}

/// A whole request.
#[derive(Clone, Debug)]
pub(crate) struct Seen {
    /// Such as `GET /a?b HTTP/1.1`.
    pub(crate) line: String,
    /// `Host` or `:authority`.
    pub(crate) host: String,
    pub(crate) fields: HeaderMap,
    pub(crate) content: Bytes,
}

impl Server {
    pub(crate) async fn start() -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let server = Self {
            address: listener.local_addr().unwrap(),
            seen: Arc::default(),
        };
        let seen = Arc::clone(&server.seen);
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let seen = Arc::clone(&seen);
                let service = service_fn(move |request| answer(request, Arc::clone(&seen)));
                tokio::spawn(async move {
                    let builder = auto::Builder::new(TokioExecutor::new());
                    let _ = builder.serve_connection(TokioIo::new(stream), service).await;
                });
            }
        });
        server
    }

    /// The requests since the last call.
    pub(crate) fn take_seen(&self) -> Vec<Seen> {
        std::mem::take(&mut self.seen.lock().unwrap())
    }
}

async fn answer(request: Request<Incoming>, seen: Arc<Mutex<Vec<Seen>>>) -> Result<Response<Full<Bytes>>, Infallible> {
    let (head, body) = request.into_parts();
    let target = head.uri.path_and_query().map_or("", |target| target.as_str());
    let line = format!("{} {target} {:?}", head.method, head.version);
    let authority = head.uri.authority().map(|authority| authority.as_str().to_owned());
    let host = head.headers.get("host").map(|host| host.to_str().unwrap().to_owned());
    let is_call = head
        .headers
        .get("content-type")
        .is_some_and(|kind| kind == "application/grpc");
    let mut response = Response::new(Full::from(line.clone()));
    if is_call {
        response = Response::new(Full::default());
        let fields = response.headers_mut();
        fields.insert("content-type", "application/grpc".parse().unwrap());
        fields.insert("grpc-status", "0".parse().unwrap());
    }
    if let Ok(content) = body.collect().await {
        seen.lock().unwrap().push(Seen {
            line,
            host: host.or(authority).unwrap_or_default(),
            fields: head.headers,
            content: content.to_bytes(),
        });
    }
    Ok(response)
}
