//! The caller's side of connections: exact bytes over HTTP/1.1, or a request over HTTP/2.

use std::net::SocketAddr;
use std::time::Duration;

use bytes::Bytes;
use http_body_util::{BodyExt as _, Full};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::case::{Content, RequestLine};

/// Longest wait for anything that is expected.
pub(super) const TIMEOUT: Duration = Duration::from_secs(15);

/// A response.
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

    /// The id of the decision.
    ///
    /// # Errors
    /// The response names none, or several.
    pub(super) fn decision(&self) -> Result<String, String> {
        match self.values("tollgate-decision-id").as_slice() {
            [id] => Ok((*id).to_owned()),
            found => Err(format!("`tollgate-decision-id`: expected one, observed {found:?}")),
        }
    }
}

/// An HTTP/1.1 connection.
pub(super) struct Http1Connection {
    stream: TcpStream,
    buffer: Vec<u8>,
}

impl Http1Connection {
    /// Connects to a server.
    pub(super) async fn connect(address: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(address).await.map_err(|error| error.to_string())?;
        Ok(Self {
            stream,
            buffer: Vec::new(),
        })
    }

    /// Sends bytes. An error is ignored: if the peer has closed, its response may still be
    /// readable.
    pub(super) async fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// Reads the head of a response, and skips those with status 100.
    pub(super) async fn head(&mut self) -> Result<Answer, String> {
        loop {
            let head = self.read_until(b"\r\n\r\n").await?;
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

    /// Reads the content of the response to a request with `method`.
    pub(super) async fn body(&mut self, method: &str, answer: &mut Answer) -> Result<(), String> {
        let none = method == "HEAD" || matches!(answer.status, 101 | 204 | 304);
        if none {
            return Ok(());
        }
        let length = answer.values("content-length").first().map(|length| length.parse());
        if let Some(length) = length {
            let length: usize = length.map_err(|_| "observed a bad `content-length`".to_owned())?;
            answer.body = self.read_exactly(length).await?;
        } else if answer.values("transfer-encoding").contains(&"chunked") {
            while let Some(chunk) = self.chunk().await? {
                answer.body.extend(chunk);
            }
        } else {
            answer.body = self.rest().await?;
        }
        Ok(())
    }

    /// Reads the next chunk; none at the end.
    pub(super) async fn chunk(&mut self) -> Result<Option<Vec<u8>>, String> {
        let line = self.read_until(b"\r\n").await?;
        let line = String::from_utf8_lossy(&line);
        let size = usize::from_str_radix(line.trim(), 16).map_err(|_| format!("observed the chunk head `{line}`"))?;
        let mut chunk = self.read_exactly(size + 2).await?;
        chunk.truncate(size);
        Ok((size > 0).then_some(chunk))
    }

    /// Reads this number of bytes.
    pub(super) async fn read_exactly(&mut self, length: usize) -> Result<Vec<u8>, String> {
        while self.buffer.len() < length {
            self.fill_buffer().await?;
        }
        Ok(self.buffer.drain(..length).collect())
    }

    /// Reads everything until the peer closes.
    pub(super) async fn rest(&mut self) -> Result<Vec<u8>, String> {
        if self.ends_within(TIMEOUT).await {
            Ok(std::mem::take(&mut self.buffer))
        } else {
            Err(format!(
                "expected the end of the connection, observed none within {TIMEOUT:?}"
            ))
        }
    }

    /// Whether the peer closes within this time.
    pub(super) async fn ends_within(&mut self, time: Duration) -> bool {
        let reading =
            async { while matches!(self.stream.read_buf(&mut self.buffer).await, Ok(length) if length > 0) {} };
        timeout(time, reading).await.is_ok()
    }

    async fn read_until(&mut self, mark: &[u8]) -> Result<Vec<u8>, String> {
        loop {
            if let Some(at) = self.buffer.windows(mark.len()).position(|window| window == mark) {
                return Ok(self.buffer.drain(..at + mark.len()).collect());
            }
            self.fill_buffer().await?;
        }
    }

    async fn fill_buffer(&mut self) -> Result<(), String> {
        let text = |buffer: &[u8]| String::from_utf8_lossy(buffer).into_owned();
        match timeout(TIMEOUT, self.stream.read_buf(&mut self.buffer)).await {
            Ok(Ok(length)) if length > 0 => Ok(()),
            Ok(end) => Err(format!(
                "expected more bytes, observed the end ({end:?}) after `{}`",
                text(&self.buffer)
            )),
            Err(_) => Err(format!(
                "expected more bytes, observed none within {TIMEOUT:?} after `{}`",
                text(&self.buffer)
            )),
        }
    }
}

/// Encodes a request as HTTP/1.1. Adds `Host` and the framing of the content if the case has none.
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

/// Sends a request over HTTP/2 without TLS and reads the whole response.
pub(super) async fn over_http2(request: &RequestLine, address: SocketAddr) -> Result<Answer, String> {
    let content = match &request.body {
        None => Bytes::new(),
        Some(Content::Text(text)) => Bytes::from(text.clone()),
        Some(Content::Chunks(_)) => return Err("HTTP/2 has no chunks".to_owned()),
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
    let answer = timeout(TIMEOUT, exchange).await;
    driver.abort();
    answer.map_err(|_| format!("expected an answer, observed none within {TIMEOUT:?}"))?
}
