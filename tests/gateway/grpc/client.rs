//! A gRPC client with its own message types, so that it does not share mistakes with the gateway.

use std::net::SocketAddr;
use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use bytes::{Buf as _, Bytes};
use http::{HeaderMap, Request};
use http_body_util::{BodyExt as _, Full};
use hyper::client::conn::http2::{SendRequest, handshake};
use hyper_util::rt::{TokioExecutor, TokioIo};
use prost::Message;
use rustls::pki_types::{CertificateDer, ServerName};
use tokio::net::TcpStream;

/// An empty message.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Nothing {}

/// `version.VersionMessage`, in part.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Version {
    #[prost(string, tag = "1")]
    pub(super) version: String,
}

/// `applicationset.ApplicationSetGetQuery`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct GetQuery {
    #[prost(string, tag = "1")]
    pub(super) name: String,
    #[prost(string, tag = "2")]
    pub(super) namespace: String,
}

/// `applicationset.ApplicationSetListQuery`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct ListQuery {
    #[prost(string, repeated, tag = "1")]
    pub(super) projects: Vec<String>,
    #[prost(string, tag = "2")]
    pub(super) selector: String,
    #[prost(string, tag = "3")]
    pub(super) namespace: String,
}

/// The response to a call.
#[derive(Debug)]
pub(super) struct Response {
    pub(super) head: HeaderMap,
    pub(super) messages: Vec<Bytes>,
    pub(super) trailers: HeaderMap,
}

impl Response {
    /// gRPC status and message, from the trailers or the head.
    pub(super) fn status(&self) -> (u16, &str) {
        let all = [&self.trailers, &self.head];
        let found = all.into_iter().find(|fields| fields.contains_key("grpc-status"));
        let found = found.expect("a status");
        let code = found["grpc-status"].to_str().unwrap().parse().unwrap();
        let sentence = found.get("grpc-message").map(|text| text.to_str().unwrap());
        (code, sentence.unwrap_or_default())
    }

    /// The only message of a successful call.
    pub(super) fn message<M: Message + Default>(&self) -> M {
        assert_eq!(self.status(), (0, ""));
        assert_eq!(self.messages.len(), 1);
        M::decode(self.messages[0].clone()).unwrap()
    }
}

/// Encodes a message with its length prefix.
pub(super) fn frame(message: &impl Message) -> Vec<u8> {
    let bytes = message.encode_to_vec();
    let mut framed = vec![0];
    framed.extend(u32::try_from(bytes.len()).unwrap().to_be_bytes());
    framed.extend(bytes);
    framed
}

/// The messages of a body, and the trailers that gRPC-Web puts into it.
fn unframe(mut content: Bytes) -> (Vec<Bytes>, HeaderMap) {
    let (mut messages, mut trailers) = (Vec::new(), HeaderMap::new());
    while !content.is_empty() {
        assert!(trailers.is_empty(), "trailers come last");
        let (flag, length) = (content.get_u8(), content.get_u32());
        let frame = content.split_to(length as usize);
        if flag == 0 {
            messages.push(frame);
            continue;
        }
        assert_eq!(flag, 0x80);
        for line in std::str::from_utf8(&frame).unwrap().lines() {
            let (name, value) = line.split_once(':').unwrap();
            let name: http::HeaderName = name.parse().unwrap();
            trailers.insert(name, value.parse().unwrap());
        }
    }
    (messages, trailers)
}

/// An HTTP/2 connection.
pub(super) struct Connection {
    requests: SendRequest<Full<Bytes>>,
    origin: String,
}

/// Connects without TLS, with prior knowledge of HTTP/2.
pub(super) async fn in_plain_text(address: SocketAddr) -> Connection {
    let stream = TcpStream::connect(address).await.unwrap();
    let (requests, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    Connection {
        requests,
        origin: format!("http://{address}"),
    }
}

/// Connects with TLS and negotiates HTTP/2.
pub(super) async fn on_tls(address: SocketAddr, trusted: &CertificateDer<'static>) -> Connection {
    let mut roots = rustls::RootCertStore::empty();
    roots.add(trusted.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let mut config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    config.alpn_protocols = vec![b"h2".to_vec()];
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::try_from("localhost").unwrap();
    let stream = tokio_rustls::TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap();
    assert_eq!(stream.get_ref().1.alpn_protocol(), Some(b"h2".as_slice()));
    let (requests, connection) = handshake(TokioExecutor::new(), TokioIo::new(stream)).await.unwrap();
    tokio::spawn(connection);
    Connection {
        requests,
        origin: format!("https://localhost:{}", address.port()),
    }
}

impl Connection {
    /// Calls a method with these bytes as content.
    pub(super) async fn call(&self, path: &str, fields: &[(&str, &str)], content: Vec<u8>) -> Response {
        let mut request = Request::post(format!("{}{path}", self.origin))
            .header("content-type", "application/grpc")
            .header("te", "trailers");
        for (name, value) in fields {
            request = request.header(*name, *value);
        }
        let request = request.body(Full::new(Bytes::from(content))).unwrap();
        let mut requests = self.requests.clone();
        requests.ready().await.unwrap();
        let (head, body) = requests.send_request(request).await.unwrap().into_parts();
        assert_eq!(head.status, 200);
        let collected = body.collect().await.unwrap();
        let trailers = collected.trailers().cloned().unwrap_or_default();
        let (messages, web) = unframe(collected.to_bytes());
        assert!(web.is_empty());
        Response {
            head: head.headers,
            messages,
            trailers,
        }
    }
}

/// Calls a method over a new connection without TLS.
pub(super) async fn call(address: SocketAddr, path: &str, fields: &[(&str, &str)], content: Vec<u8>) -> Response {
    in_plain_text(address).await.call(path, fields, content).await
}

/// Calls a method with gRPC-Web over HTTP/1.1, in text or binary format.
pub(super) async fn web(
    address: SocketAddr,
    path: &str,
    token: Option<&str>,
    (message, text): (&impl Message, bool),
) -> Response {
    let (kind, content) = if text {
        (
            "application/grpc-web-text",
            STANDARD.encode(frame(message)).into_bytes(),
        )
    } else {
        ("application/grpc-web+proto", frame(message))
    };
    let answer = reqwest::Client::builder()
        .http1_only()
        .build()
        .unwrap()
        .post(format!("http://{address}{path}"))
        .header("content-type", kind)
        .header("token", token.unwrap_or_default())
        .body(content)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 200);
    let head = answer.headers().clone();
    assert!(head["content-type"].to_str().unwrap().starts_with(kind));
    let mut content = answer.bytes().await.unwrap();
    if text {
        let parts = content.split_inclusive(|byte| *byte == b'=');
        let mut decoded = Vec::new();
        let mut part = Vec::new();
        for piece in parts {
            part.extend_from_slice(piece);
            if part.len() % 4 == 0 {
                STANDARD.decode_vec(&part, &mut decoded).unwrap();
                part.clear();
            }
        }
        assert!(part.is_empty());
        content = decoded.into();
    }
    let (messages, trailers) = unframe(content);
    Response {
        head,
        messages,
        trailers,
    }
}
