//! Measures what memory the gateway needs for streams of the argocd front that stay open, with TLS
//! to the client and to the server.
//!
//! Clients and server run in this process, so that only the gateway's memory counts.
//!
//! Invariant: memory is measured while every stream is open and has its first message.

use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use bytes::Bytes;
use hyper::Version;
use reqwest::{Client, Response};
use tokio::task::JoinSet;
use tokio::time::{sleep, timeout};

use super::servers::{START, Server};
use super::world::World;
use super::{Build, exchange};
use crate::certificate::Certificate;

mod upstream;

/// Bytes of each message.
const MESSAGE_BYTES: usize = 1 << 10;
/// A call's content: a message without fields.
const EMPTY_MESSAGE: &[u8] = &[0; 5];
/// How long a stream may take to open.
const OPEN: Duration = Duration::from_secs(10);
/// Time in which the memory of handshakes is freed.
const SETTLE: Duration = Duration::from_secs(2);
/// Open files of each process, apart from those of the streams.
const OTHER_FILES: u64 = 200;

/// A kind of stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StreamKind {
    /// Calls of gRPC that share HTTP/2 connections.
    GrpcWatch,
    /// Responses with an HTTP/1.1 connection each.
    ServerSentEvents,
}

/// The measurement of one kind of stream.
#[derive(Debug)]
pub(super) struct Measured {
    /// The build of the gateway.
    pub(super) name: &'static str,
    pub(super) kind: StreamKind,
    /// How many streams were open.
    pub(super) count: usize,
    /// How much the gateway's resident memory grew for each.
    pub(super) bytes_each: f64,
}

impl StreamKind {
    const ALL: [Self; 2] = [Self::GrpcWatch, Self::ServerSentEvents];

    fn path(self) -> &'static str {
        match self {
            Self::GrpcWatch => "/application.ApplicationService/Watch",
            Self::ServerSentEvents => "/api/v1/stream/applications",
        }
    }

    /// How argocd-server gets the requests.
    fn version(self) -> Version {
        match self {
            Self::GrpcWatch => Version::HTTP_2,
            Self::ServerSentEvents => Version::HTTP_11,
        }
    }

    /// Streams that share the connections of one client.
    pub(super) fn streams_per_client(self) -> usize {
        match self {
            Self::GrpcWatch => 100,
            // A client opens a connection for each.
            Self::ServerSentEvents => usize::MAX,
        }
    }

    /// The first message, as it is sent.
    fn message(self) -> Bytes {
        let json = exchange::json("result", MESSAGE_BYTES);
        match self {
            Self::GrpcWatch => {
                let length = u32::try_from(json.len()).unwrap_or(u32::MAX);
                [&[0], length.to_be_bytes().as_slice(), json.as_bytes()].concat().into()
            }
            Self::ServerSentEvents => format!("data: {json}\n\n").into(),
        }
    }
}

/// Measures each kind with `count` open streams, and a separate gateway.
///
/// # Errors
/// A stream does not open, has another first message or ends, the gateway opens one without a
/// session, or the limit of open files is too low.
pub(super) async fn measure(build: &Build, world: &World, token: &str, count: usize) -> Result<Vec<Measured>> {
    let needed = u64::try_from(count)?.saturating_mul(2) + OTHER_FILES;
    let allowed = rlimit::increase_nofile_limit(u64::MAX).context("raising the limit of open files")?;
    ensure!(
        allowed >= needed,
        "{needed} open files are needed, and {allowed} are allowed: raise the hard limit, `ulimit -Hn`"
    );
    let certificate = Certificate::issue()?;
    let server = upstream::start(&certificate).await?;
    let mut measured = Vec::new();
    for kind in StreamKind::ALL {
        println!("{count} open streams of {}", kind.path());
        let settings = world.argocd_with_tls(build, server, &certificate)?;
        let gateway = Gateway {
            server: Server::gateway(&build.program, &settings)?,
            authority: reqwest::Certificate::from_pem(certificate.ca_pem.as_bytes())?,
            token,
            name: build.name,
            kind,
        };
        measured.push(gateway.measure(count).await?);
    }
    Ok(measured)
}

/// A gateway with the streams of one kind.
#[derive(Debug)]
struct Gateway<'a> {
    server: Server,
    authority: reqwest::Certificate,
    token: &'a str,
    name: &'static str,
    kind: StreamKind,
}

impl Gateway<'_> {
    async fn measure(&self, count: usize) -> Result<Measured> {
        self.check().await?;
        let before = self.server.resident_bytes()?;
        let mut open = JoinSet::new();
        let mut client = self.client()?;
        for at in 0..count {
            if at > 0 && at.is_multiple_of(self.kind.streams_per_client()) {
                client = self.client()?;
            }
            let mut response = timeout(OPEN, self.open(&client))
                .await
                .with_context(|| format!("{} does not open in {OPEN:?}", self.kind.path()))??;
            open.spawn(async move { while let Ok(Some(_)) = response.chunk().await {} });
        }
        sleep(SETTLE).await;
        let after = self.server.resident_bytes()?;
        ensure!(open.try_join_next().is_none(), "a stream of {} ended", self.kind.path());
        open.shutdown().await;
        let bytes_each = after.saturating_sub(before) as f64 / count as f64;
        Ok(Measured {
            name: self.name,
            kind: self.kind,
            count,
            bytes_each,
        })
    }

    /// Waits until the gateway opens a stream, and checks that it opens none without a session.
    /// What it allocates only once is then allocated.
    async fn check(&self) -> Result<()> {
        let client = self.client()?;
        let started = Instant::now();
        while let Err(error) = self.open(&client).await {
            ensure!(
                started.elapsed() < START,
                "{} does not open: {error:#}",
                self.kind.path()
            );
            sleep(Duration::from_millis(50)).await;
        }
        let response = self.request(&client).send().await?;
        let call_status = response.headers().get("grpc-status");
        let is_refused = match self.kind {
            StreamKind::GrpcWatch => call_status.is_some_and(|status| status == "16"),
            StreamKind::ServerSentEvents => response.status() == 401,
        };
        ensure!(is_refused, "{} opens without a session", self.kind.path());
        Ok(())
    }

    fn client(&self) -> Result<Client> {
        let client = Client::builder().no_proxy().tls_certs_only([self.authority.clone()]);
        let client = match self.kind {
            StreamKind::GrpcWatch => client.http2_prior_knowledge(),
            StreamKind::ServerSentEvents => client.http1_only(),
        };
        Ok(client.build()?)
    }

    fn request(&self, client: &Client) -> reqwest::RequestBuilder {
        let url = format!("https://{}{}", self.server.address, self.kind.path());
        match self.kind {
            StreamKind::GrpcWatch => client
                .post(url)
                .header("Content-Type", "application/grpc")
                .header("TE", "trailers")
                .body(EMPTY_MESSAGE),
            StreamKind::ServerSentEvents => client.get(url).header("Accept", "text/event-stream"),
        }
    }

    /// Opens a stream and reads its first message.
    async fn open(&self, client: &Client) -> Result<Response> {
        let request = self.request(client).bearer_auth(self.token);
        let mut response = request.send().await?.error_for_status()?;
        let message = self.kind.message();
        let mut read = Vec::new();
        while read.len() < message.len() {
            let chunk = response.chunk().await?.context("it ends before its first message")?;
            read.extend_from_slice(&chunk);
        }
        ensure!(read == message, "its first message is another one");
        Ok(response)
    }
}
