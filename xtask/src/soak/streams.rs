//! Streams that stay open, one of a person each, on every front that has streams.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};

use super::objects::{SESSION_KEY, Size, application_of};
use crate::demo::token;

/// Streams that are being opened at a time.
const AT_ONCE: usize = 32;
/// How long a stream may take to open.
const OPEN: Duration = Duration::from_secs(60);
/// Longer than a run.
const SESSION_SECONDS: u64 = 24 * 3_600;

/// A front that has streams.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Front {
    Extensions,
    Clusters,
    Kubernetes,
    Applications,
    ApplicationSets,
    Argocd,
}

const FRONTS: [Front; 6] = [
    Front::Extensions,
    Front::Clusters,
    Front::Kubernetes,
    Front::Applications,
    Front::ApplicationSets,
    Front::Argocd,
];

/// One stream. Each belongs to the person of its number.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) person: usize,
    front: Front,
    ended: oneshot::Receiver<Instant>,
}

/// The gateway, and the tokens of the people who use `/k8s-proxy/`.
#[derive(Clone, Debug)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    pub(super) size: Size,
}

impl Stream {
    /// Whether this stream ends when the account of its person is disabled.
    pub(super) fn is_of_an_account(&self) -> bool {
        match self.front {
            Front::Extensions | Front::Clusters | Front::Applications | Front::ApplicationSets | Front::Argocd => true,
            // The user directory says who is there.
            Front::Kubernetes => false,
        }
    }

    pub(super) fn is_open(&mut self) -> bool {
        self.ended.try_recv() == Err(oneshot::error::TryRecvError::Empty)
    }

    /// When it ended.
    pub(super) async fn end(self) -> Result<Instant> {
        let what = format!("the stream of p{} at {:?}", self.person, self.front);
        let ended = timeout(OPEN, self.ended).await;
        Ok(ended.with_context(|| format!("{what} does not end"))??)
    }
}

impl Target {
    /// Opens the streams of these people.
    pub(super) async fn open(&self, people: impl Iterator<Item = usize>) -> Result<Vec<Stream>> {
        let target = Arc::new(self.clone());
        let mut opening = JoinSet::new();
        let mut streams = Vec::new();
        for person in people {
            if opening.len() >= AT_ONCE {
                streams.push(opening.join_next().await.context("nothing opens")???);
            }
            let target = Arc::clone(&target);
            opening.spawn(async move { target.open_one(person).await });
        }
        while let Some(opened) = opening.join_next().await {
            streams.push(opened??);
        }
        Ok(streams)
    }

    async fn open_one(&self, person: usize) -> Result<Stream> {
        let front = FRONTS
            .into_iter()
            .cycle()
            .nth(person % FRONTS.len())
            .context("a front")?;
        let project = person % self.size.projects;
        let session = session(person)?;
        let credential = match front {
            Front::Kubernetes => self.personal_token(&session).await?,
            _ => session,
        };
        let application = application_of(project);
        let watch = format!("/api/v1/namespaces/n{project}/configmaps?watch=true");
        let path = match front {
            Front::Extensions => format!("/api/v1/extensions/echo{watch}"),
            Front::Clusters => format!("/clusters/c{}/k8s{watch}", person % self.size.clusters),
            Front::Kubernetes => format!("/k8s-proxy{watch}"),
            Front::Applications => format!("/applications/argocd/{application}/k8s{watch}"),
            Front::ApplicationSets => format!("/api/v1/stream/applicationsets?name=s{}", person % self.size.sets),
            Front::Argocd => "/api/v1/stream/applications".to_owned(),
        };
        // Otherwise a connection stays open after a stream that ends in good order.
        let fields = format!(
            "argocd-application-name: argocd:{application}\r\nargocd-project-name: j{project}\r\nconnection: close\r\n"
        );
        let begun = timeout(OPEN, self.begin("GET", &path, &credential, &fields, "")).await;
        let (mut stream, head) = begun.with_context(|| format!("{path} does not open"))??;
        ensure!(head.starts_with("HTTP/1.1 200"), "{path} of p{person}: {head}");
        let (report, ended) = oneshot::channel();
        tokio::spawn(async move {
            let mut sink = [0; 4096];
            while matches!(stream.read(&mut sink).await, Ok(length) if length > 0) {}
            // Nobody waits after a run.
            let _ = report.send(Instant::now());
        });
        Ok(Stream { person, front, ended })
    }

    /// A person's call of the extension.
    pub(super) async fn ask(&self, person: usize) -> Result<()> {
        let project = person % self.size.projects;
        let fields = format!(
            "argocd-application-name: argocd:{}\r\nargocd-project-name: j{project}\r\nconnection: close\r\n",
            application_of(project)
        );
        let session = session(person)?;
        let asked = timeout(
            OPEN,
            self.begin("GET", "/api/v1/extensions/echo/hello", &session, &fields, ""),
        )
        .await;
        let (mut stream, mut answer) = asked.context("no answer")??;
        stream.read_to_string(&mut answer).await?;
        ensure!(answer.starts_with("HTTP/1.1 200"), "the call of p{person}: {answer}");
        Ok(())
    }

    /// Creates a personal access token for the agent.
    async fn personal_token(&self, session: &str) -> Result<String> {
        let body = json!({"name": "soak", "agent": 1}).to_string();
        let fields = format!(
            "content-type: application/json\r\ncontent-length: {}\r\nconnection: close\r\n",
            body.len()
        );
        let (mut stream, mut text) = self.begin("POST", "/api/v1/tokens", session, &fields, &body).await?;
        stream.read_to_string(&mut text).await?;
        let start = text.find('{').with_context(|| format!("no token: {text}"))?;
        let end = text.rfind('}').with_context(|| format!("no token: {text}"))?;
        let answer: Value = serde_json::from_str(text.get(start..=end).unwrap_or_default())?;
        let bearer = answer["bearer"].as_str();
        Ok(bearer.with_context(|| format!("no token: {text}"))?.to_owned())
    }

    /// Sends a request and reads at least the head of its response.
    async fn begin(
        &self,
        method: &str,
        path: &str,
        credential: &str,
        fields: &str,
        body: &str,
    ) -> Result<(TcpStream, String)> {
        let mut stream = TcpStream::connect(self.address).await?;
        let head = format!(
            "{method} {path} HTTP/1.1\r\nhost: gateway.test\r\nauthorization: Bearer {credential}\r\n{fields}\r\n{body}"
        );
        stream.write_all(head.as_bytes()).await?;
        let mut read = Vec::new();
        while !read.windows(4).any(|window| window == b"\r\n\r\n") {
            ensure!(stream.read_buf(&mut read).await? > 0, "{path}: the connection ended");
        }
        Ok((stream, String::from_utf8_lossy(&read).into_owned()))
    }
}

fn session(person: usize) -> Result<String> {
    token::mint(SESSION_KEY.as_bytes(), &format!("p{person}"), SESSION_SECONDS)
}
