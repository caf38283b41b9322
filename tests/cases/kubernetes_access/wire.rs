//! The caller's side: exact bytes over HTTP/1.1, or a request over HTTP/2.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::case::{Content, RequestLine};

/// Longest wait for anything expected.
pub(super) const PATIENCE: Duration = Duration::from_secs(15);

/// What came back.
#[derive(Clone, Debug)]
pub(super) struct Answer {
    pub(super) status: u16,
    /// Fields in order.
    pub(super) fields: Vec<(String, String)>,
    pub(super) body: Vec<u8>,
}

impl Answer {
    /// Values of all fields of this name, in order.
    pub(super) fn values(&self, name: &str) -> Vec<&str> {
        let named = |(field, _): &&(String, String)| field.eq_ignore_ascii_case(name);
        self.fields.iter().filter(named).map(|(_, value)| &**value).collect()
    }

    /// The decision it names.
    ///
    /// # Errors
    /// It names none, or several.
    pub(super) fn decision(&self) -> Result<String, String> {
        match self.values("tollgate-decision-id").as_slice() {
            [id] => Ok((*id).to_owned()),
            found => Err(format!("`tollgate-decision-id`: expected one, observed {found:?}")),
        }
    }
}

/// A connection of HTTP/1.1.
pub(super) struct Wire {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Wire {
    /// Connects.
    pub(super) async fn connect(address: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        Ok(Self {
            stream,
            buffer: Vec::new(),
        })
    }

    /// Sends bytes. A peer that closed already is no mistake here: its answer
    /// may still be readable.
    pub(super) async fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// Reads the head of an answer; interim ones are passed over.
    pub(super) async fn head(&mut self) -> Result<Answer, String> {
        loop {
            let head = self.through(b"\r\n\r\n").await?;
            let head = String::from_utf8_lossy(&head).into_owned();
            let status = head.split(' ').nth(1).and_then(|status| status.parse().ok());
            let status = status.ok_or_else(|| format!("observed no status in `{head}`"))?;
            if status == 100 {
                continue;
            }
            let lines = head.split("\r\n").skip(1).filter_map(|line| line.split_once(':'));
            return Ok(Answer {
                status,
                fields: lines
                    .map(|(name, value)| (name.to_owned(), value.trim_matches([' ', '\t']).to_owned()))
                    .collect(),
                body: Vec::new(),
            });
        }
    }

    /// Reads the content of an answer to `method`.
    pub(super) async fn body(&mut self, method: &str, answer: &mut Answer) -> Result<(), String> {
        let none = method == "HEAD" || matches!(answer.status, 101 | 204 | 304);
        if none {
            return Ok(());
        }
        let length = answer.values("content-length").first().map(|length| length.parse());
        if let Some(length) = length {
            let length: usize = length.map_err(|_| "observed a bad `content-length`".to_owned())?;
            answer.body = self.exactly(length).await?;
        } else if answer.values("transfer-encoding").contains(&"chunked") {
            while let Some(chunk) = self.chunk().await? {
                answer.body.extend(chunk);
            }
        } else {
            answer.body = self.rest().await?;
        }
        Ok(())
    }

    /// The next chunk; nothing at the end.
    pub(super) async fn chunk(&mut self) -> Result<Option<Vec<u8>>, String> {
        let line = self.through(b"\r\n").await?;
        let line = String::from_utf8_lossy(&line);
        let size = usize::from_str_radix(line.trim(), 16).map_err(|_| format!("observed the chunk head `{line}`"))?;
        let mut chunk = self.exactly(size + 2).await?;
        chunk.truncate(size);
        Ok((size > 0).then_some(chunk))
    }

    /// Bytes of this number.
    pub(super) async fn exactly(&mut self, length: usize) -> Result<Vec<u8>, String> {
        while self.buffer.len() < length {
            self.more().await?;
        }
        Ok(self.buffer.drain(..length).collect())
    }

    /// Everything until the peer closes.
    pub(super) async fn rest(&mut self) -> Result<Vec<u8>, String> {
        if self.ends_within(PATIENCE).await {
            Ok(std::mem::take(&mut self.buffer))
        } else {
            Err(format!(
                "expected the end of the connection, observed none within {PATIENCE:?}"
            ))
        }
    }

    /// Whether the peer closes in this time.
    pub(super) async fn ends_within(&mut self, time: Duration) -> bool {
        let reading =
            async { while matches!(self.stream.read_buf(&mut self.buffer).await, Ok(length) if length > 0) {} };
        timeout(time, reading).await.is_ok()
    }

    async fn through(&mut self, mark: &[u8]) -> Result<Vec<u8>, String> {
        loop {
            if let Some(at) = self.buffer.windows(mark.len()).position(|window| window == mark) {
                return Ok(self.buffer.drain(..at + mark.len()).collect());
            }
            self.more().await?;
        }
    }

    async fn more(&mut self) -> Result<(), String> {
        let said = |buffer: &[u8]| String::from_utf8_lossy(buffer).into_owned();
        match timeout(PATIENCE, self.stream.read_buf(&mut self.buffer)).await {
            Ok(Ok(length)) if length > 0 => Ok(()),
            Ok(end) => Err(format!(
                "expected more bytes, observed the end ({end:?}) after `{}`",
                said(&self.buffer)
            )),
            Err(_) => Err(format!(
                "expected more bytes, observed none within {PATIENCE:?} after `{}`",
                said(&self.buffer)
            )),
        }
    }
}

/// A request as bytes of HTTP/1.1: lines as they are written, and a `Host` and a
/// length where the case has none.
pub(super) fn bytes(request: &RequestLine, host: SocketAddr) -> Vec<u8> {
    let RequestLine { method, headers, .. } = request;
    let mut text = format!("{method} {} HTTP/1.1\r\n", target(request));
    let has = |name: &str| headers.iter().any(|(given, _)| given.eq_ignore_ascii_case(name));
    if !has("host") {
        text.push_str(&format!("Host: {host}\r\n"));
    }
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    match &request.body {
        None => text.push_str("\r\n"),
        Some(Content::Text(content)) => {
            if !has("content-length") && !has("transfer-encoding") {
                text.push_str(&format!("Content-Length: {}\r\n", content.len()));
            }
            text.push_str(&format!("\r\n{content}"));
        }
        Some(Content::Chunks(chunks)) => {
            if !has("transfer-encoding") {
                text.push_str("Transfer-Encoding: chunked\r\n");
            }
            text.push_str("\r\n");
            for chunk in &chunks.chunked {
                text.push_str(&format!("{:x}\r\n{chunk}\r\n", chunk.len()));
            }
            text.push_str("0\r\n");
            for (name, value) in &chunks.trailers {
                text.push_str(&format!("{name}: {value}\r\n"));
            }
            text.push_str("\r\n");
        }
    }
    text.into_bytes()
}

fn target(request: &RequestLine) -> String {
    match &request.query {
        Some(query) if !query.is_empty() => format!("{}?{query}", request.path),
        Some(_) | None => request.path.clone(),
    }
}

/// Sends a request over HTTP/2 in plain text and reads the whole answer.
pub(super) async fn over_http2(request: &RequestLine, address: SocketAddr) -> Result<Answer, String> {
    let content = match &request.body {
        None => Bytes::new(),
        Some(Content::Text(text)) => Bytes::from(text.clone()),
        Some(Content::Chunks(_)) => return Err("chunks are HTTP/1.1's".to_owned()),
    };
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let mut wanted = http::Request::builder()
        .method(&*request.method)
        .uri(format!("http://{address}{}", target(request)))
        .version(http::Version::HTTP_2);
    for (name, value) in &request.headers {
        wanted = wanted.header(name, value);
    }
    let wanted = wanted.body(Full::new(content)).map_err(|error| text(&error))?;
    let stream = TcpStream::connect(address).await.map_err(|error| text(&error))?;
    let (mut sender, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .map_err(|error| text(&error))?;
    let driver = tokio::spawn(connection);
    let exchange = async {
        let response = sender.send_request(wanted).await.map_err(|error| text(&error))?;
        let (head, body) = response.into_parts();
        let body = body.collect().await.map_err(|error| text(&error))?.to_bytes().to_vec();
        let field = |(name, value): (&http::HeaderName, &http::HeaderValue)| {
            (name.to_string(), String::from_utf8_lossy(value.as_bytes()).into_owned())
        };
        Ok(Answer {
            status: head.status.as_u16(),
            fields: head.headers.iter().map(field).collect(),
            body,
        })
    };
    let answer = timeout(PATIENCE, exchange).await;
    driver.abort();
    answer.map_err(|_| format!("expected an answer, observed none within {PATIENCE:?}"))?
}
