//! Streams that stay open, one of a person each, on every front that has streams.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use rustls::{ClientConfig, RootCertStore};
use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::oneshot;
use tokio::task::JoinSet;
use tokio::time::{Instant, timeout};
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;

use super::objects::{CONTROLLER, SESSION_KEY, Size, application_of, cluster_of_agent};
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
    /// A cluster that has an agent.
    Agents,
    /// Argo CD's own components, in tunnels.
    ControlPlane,
}

const FRONTS: [Front; 8] = [
    Front::Extensions,
    Front::Clusters,
    Front::Kubernetes,
    Front::Applications,
    Front::ApplicationSets,
    Front::Argocd,
    Front::Agents,
    Front::ControlPlane,
];

/// One stream. Each belongs to the person of its number.
#[derive(Debug)]
pub(super) struct Stream {
    pub(super) person: usize,
    front: Front,
    ended: oneshot::Receiver<Instant>,
}

/// The gateway, and the tokens of the people who use `/k8s-proxy/`.
#[derive(Clone)]
pub(super) struct Target {
    pub(super) address: SocketAddr,
    pub(super) size: Size,
    pub(super) agents: usize,
    /// The server of the cluster that Argo CD reaches in tunnels.
    pub(super) enrolled: SocketAddr,
    pub(super) tls: TlsConnector,
}

/// TLS of a client that trusts this authority.
pub(super) fn connector(authority: &str) -> Result<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add(CertificateDer::from_pem_slice(authority.as_bytes())?)?;
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()?
        .with_root_certificates(roots)
        .with_no_client_auth();
    Ok(TlsConnector::from(Arc::new(config)))
}

/// A connection, in a tunnel or not.
trait Connection: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> Connection for T {}

impl Stream {
    /// Whether this stream ends when the account of its person is disabled.
    pub(super) fn is_of_an_account(&self) -> bool {
        match self.front {
            Front::Extensions
            | Front::Clusters
            | Front::Applications
            | Front::ApplicationSets
            | Front::Argocd
            | Front::Agents => true,
            // The user directory says who is there, or there is one caller for all.
            Front::Kubernetes | Front::ControlPlane => false,
        }
    }

    /// What ended, if it did.
    pub(super) fn unexpected_end(&mut self) -> Option<String> {
        let is_open = self.ended.try_recv() == Err(oneshot::error::TryRecvError::Empty);
        (!is_open).then(|| format!("p{} at {:?}", self.person, self.front))
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
            Front::ControlPlane => token::mint(SESSION_KEY.as_bytes(), CONTROLLER, SESSION_SECONDS)?,
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
            Front::Agents => format!("/clusters/{}/k8s{watch}", cluster_of_agent(person % self.agents)),
            Front::ControlPlane => watch,
        };
        // Otherwise a connection stays open after a stream that ends in good order.
        let fields = format!(
            "argocd-application-name: argocd:{application}\r\nargocd-project-name: j{project}\r\nconnection: close\r\n"
        );
        let opening = async {
            let connection: Box<dyn Connection> = match front {
                Front::ControlPlane => Box::new(self.tunnel().await?),
                _ => Box::new(self.connect().await?),
            };
            begin(connection, ("GET", &path, &credential), (&fields, "")).await
        };
        let begun = timeout(OPEN, opening).await;
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
        let asking = async {
            let request = ("GET", "/api/v1/extensions/echo/hello", &*session);
            begin(self.connect().await?, request, (&fields, "")).await
        };
        let asked = timeout(OPEN, asking).await;
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
        let request = ("POST", "/api/v1/tokens", session);
        let (mut stream, mut text) = begin(self.connect().await?, request, (&fields, &body)).await?;
        stream.read_to_string(&mut text).await?;
        let start = text.find('{').with_context(|| format!("no token: {text}"))?;
        let end = text.rfind('}').with_context(|| format!("no token: {text}"))?;
        let answer: Value = serde_json::from_str(text.get(start..=end).unwrap_or_default())?;
        let bearer = answer["bearer"].as_str();
        Ok(bearer.with_context(|| format!("no token: {text}"))?.to_owned())
    }

    async fn connect(&self) -> Result<TlsStream<TcpStream>> {
        let stream = TcpStream::connect(self.address).await?;
        Ok(self.tls.connect(self.name(), stream).await?)
    }

    /// Opens a tunnel as Argo CD does. It ends in the gateway, which has the same certificate there.
    async fn tunnel(&self) -> Result<TlsStream<TlsStream<TcpStream>>> {
        let mut stream = self.connect().await?;
        let authority = self.enrolled;
        let head = format!("CONNECT {authority} HTTP/1.1\r\nhost: {authority}\r\n\r\n");
        stream.write_all(head.as_bytes()).await?;
        let head = read_head(&mut stream).await?;
        ensure!(head.starts_with("HTTP/1.1 200"), "no tunnel: {head}");
        Ok(self.tls.connect(self.name(), stream).await?)
    }

    fn name(&self) -> ServerName<'static> {
        ServerName::from(self.address.ip())
    }
}

/// Sends a request and reads at least the head of its response.
///
/// - `fields`, `body`: further header fields, each with its end of the line, and the content.
async fn begin<C: Connection>(
    mut stream: C,
    (method, path, credential): (&str, &str, &str),
    (fields, body): (&str, &str),
) -> Result<(C, String)> {
    let head = format!(
        "{method} {path} HTTP/1.1\r\nhost: gateway.test\r\nauthorization: Bearer {credential}\r\n{fields}\r\n{body}"
    );
    stream.write_all(head.as_bytes()).await?;
    let head = read_head(&mut stream).await.with_context(|| path.to_owned())?;
    Ok((stream, head))
}

async fn read_head(stream: &mut (impl AsyncRead + Unpin)) -> Result<String> {
    let mut read = Vec::new();
    while !read.windows(4).any(|window| window == b"\r\n\r\n") {
        ensure!(stream.read_buf(&mut read).await? > 0, "the connection ended");
    }
    Ok(String::from_utf8_lossy(&read).into_owned())
}

fn session(person: usize) -> Result<String> {
    token::mint(SESSION_KEY.as_bytes(), &format!("p{person}"), SESSION_SECONDS)
}
