//! A client that sends exact bytes and reads exact bytes.

use std::net::SocketAddr;
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::time::timeout;

/// How long to wait for something expected.
pub const PATIENCE: Duration = Duration::from_secs(20);

/// A response as received.
#[derive(Clone, Debug)]
pub struct Answer {
    /// Status of the first line.
    pub status: u16,
    /// Status line and header fields, with the empty line after them.
    pub head: String,
    /// Content without chunk framing.
    pub content: Vec<u8>,
}

impl Answer {
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

/// One connection.
pub struct Client {
    /// The socket, for tests that use it directly.
    pub stream: TcpStream,
    buffer: Vec<u8>,
}

impl Client {
    /// Connects.
    pub async fn connect(address: SocketAddr) -> Self {
        Self {
            stream: TcpStream::connect(address).await.unwrap(),
            buffer: Vec::new(),
        }
    }

    /// Sends bytes. Ignores that the peer has closed, because its answer may still be readable.
    pub async fn send(&mut self, bytes: &[u8]) {
        let _ = self.stream.write_all(bytes).await;
    }

    /// Sends a request and reads its answer.
    pub async fn exchange(&mut self, request: &[u8]) -> Answer {
        self.send(request).await;
        self.answer()
            .await
            .unwrap_or_else(|| panic!("no answer to {}", String::from_utf8_lossy(request)))
    }

    /// Reads one response; `None` if the connection ends first.
    pub async fn answer(&mut self) -> Option<Answer> {
        timeout(PATIENCE, self.read_answer()).await.expect("an answer in time")
    }

    /// Reads a response's head only.
    pub async fn head(&mut self) -> Option<Answer> {
        let end = timeout(PATIENCE, self.until(b"\r\n\r\n"))
            .await
            .expect("a head in time")?;
        let head = String::from_utf8_lossy(&self.take(end)).into_owned();
        let status = head.split(' ').nth(1)?.parse().ok()?;
        Some(Answer {
            status,
            head,
            content: Vec::new(),
        })
    }

    /// Reads everything until the peer closes.
    pub async fn rest(&mut self) -> Vec<u8> {
        let reading =
            async { while matches!(self.stream.read_buf(&mut self.buffer).await, Ok(length) if length > 0) {} };
        timeout(PATIENCE, reading).await.expect("the end in time");
        std::mem::take(&mut self.buffer)
    }

    /// Reads up to and including `mark`.
    pub async fn through(&mut self, mark: &[u8]) -> Vec<u8> {
        let end = timeout(PATIENCE, self.until(mark))
            .await
            .expect("bytes in time")
            .expect("bytes before the end");
        self.take(end)
    }

    async fn read_answer(&mut self) -> Option<Answer> {
        let mut answer = self.head().await?;
        if answer.status == 101 || answer.status == 204 || answer.status == 304 {
            return Some(answer);
        }
        let length = answer
            .values("content-length")
            .first()
            .and_then(|length| length.parse::<usize>().ok());
        if let Some(length) = length {
            while self.buffer.len() < length {
                if self.stream.read_buf(&mut self.buffer).await.ok()? == 0 {
                    return None;
                }
            }
            answer.content = self.take(length);
        } else if answer.values("transfer-encoding").contains(&"chunked") {
            loop {
                let end = self.until(b"\r\n").await?;
                let line = self.take(end);
                let size = usize::from_str_radix(std::str::from_utf8(&line).ok()?.trim(), 16).ok()?;
                while self.buffer.len() < size + 2 {
                    if self.stream.read_buf(&mut self.buffer).await.ok()? == 0 {
                        return None;
                    }
                }
                let mut chunk = self.take(size + 2);
                chunk.truncate(size);
                answer.content.extend(chunk);
                if size == 0 {
                    break;
                }
            }
        } else {
            answer.content = self.rest().await;
        }
        Some(answer)
    }

    fn take(&mut self, length: usize) -> Vec<u8> {
        self.buffer.drain(..length).collect()
    }

    async fn until(&mut self, mark: &[u8]) -> Option<usize> {
        loop {
            if let Some(at) = self.buffer.windows(mark.len()).position(|window| window == mark) {
                return Some(at + mark.len());
            }
            if self.stream.read_buf(&mut self.buffer).await.ok()? == 0 {
                return None;
            }
        }
    }
}
