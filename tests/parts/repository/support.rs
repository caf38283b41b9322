//! Repositories for the tests, and servers with good and bad behavior.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use axum::body::{Body, Bytes};
use axum::extract::Request;
use axum::response::Response;
use futures_util::StreamExt as _;
use hyper_util::rt::TokioIo;
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpListener;
use tokio::runtime::Runtime;
use tollgate_applicationset::GenerationBudget;
use tollgate_config::{GenerationLimits, GitCache, GitLimits};
use tollgate_objects::{Repository, RepositoryAuth, RepositoryKind, Resources, TlsVerification};
use tollgate_repository::RepositoryStore;

/// Runs git without the configuration of the machine.
pub(crate) fn git(folder: &Path, arguments: &[&str]) -> String {
    let output = try_git(folder, arguments);
    assert!(
        output.status.success(),
        "git {arguments:?}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).unwrap().trim().to_owned()
}

fn try_git(folder: &Path, arguments: &[&str]) -> Output {
    let mut command = Command::new("git");
    command.args(arguments).current_dir(folder).stdin(Stdio::null());
    for (name, value) in [
        ("GIT_CONFIG_GLOBAL", "/dev/null"),
        ("GIT_CONFIG_NOSYSTEM", "1"),
        ("GIT_AUTHOR_NAME", "A"),
        ("GIT_AUTHOR_EMAIL", "a@example.test"),
        ("GIT_COMMITTER_NAME", "A"),
        ("GIT_COMMITTER_EMAIL", "a@example.test"),
    ] {
        command.env(name, value);
    }
    command
        .output()
        .expect("git is missing: `cargo xtask setup` or `apt-get install git` installs it")
}

/// A git repository in a temporary folder.
pub(crate) struct Origin {
    folder: tempfile::TempDir,
}

impl Origin {
    /// A repository with these files committed on `main`.
    pub(crate) fn new(files: &[(&str, &str)]) -> Self {
        let origin = Self {
            folder: tempfile::tempdir().unwrap(),
        };
        std::fs::create_dir(origin.path()).unwrap();
        origin.git(&["init", "-q", "-b", "main", "."]);
        origin.commit(files);
        origin
    }

    /// The folder that servers serve.
    pub(crate) fn root(&self) -> PathBuf {
        self.folder.path().canonicalize().unwrap()
    }

    /// The repository below [`Self::root`].
    pub(crate) fn path(&self) -> PathBuf {
        self.root().join("app.git")
    }

    pub(crate) fn git(&self, arguments: &[&str]) -> String {
        git(&self.path(), arguments)
    }

    /// Writes files and commits everything. Returns the commit.
    pub(crate) fn commit(&self, files: &[(&str, &str)]) -> String {
        for (path, text) in files {
            self.write(path, text.as_bytes());
        }
        self.git(&["add", "-A", "."]);
        self.git(&["commit", "-q", "--allow-empty", "-m", "change"]);
        self.git(&["rev-parse", "HEAD"])
    }

    pub(crate) fn write(&self, path: &str, content: &[u8]) {
        let path = self.path().join(path);
        std::fs::create_dir_all(path.parent().unwrap()).unwrap();
        std::fs::write(path, content).unwrap();
    }
}

/// How a server responds.
#[derive(Clone, Debug)]
pub(crate) enum Behavior {
    /// Responds as git does.
    Git,
    /// As [`Self::Git`], for requests with this `Authorization`.
    GitFor(String),
    /// As [`Self::Git`], with a redirect for paths without `.git`.
    Suffix,
    /// Never responds.
    Silent,
    /// Sends a byte of the first line of the list every 20 ms.
    Dribble,
    /// Sends an endless list as fast as it can.
    Endless,
    /// Responds with a status and an optional `Location`.
    Status(u16, Option<String>),
    /// Sends a list of protocol version 1 that names the target of an absent reference.
    Dangling,
    /// Sends an HTML page.
    Html,
    /// Responds to every fetch with this pack, in protocol version 2.
    Pack(Arc<Vec<u8>>),
}

/// A server. The first component of a path selects its behavior.
pub(crate) struct Server {
    pub(crate) address: SocketAddr,
    /// The path and `Authorization` of each request.
    pub(crate) seen: Arc<Mutex<Vec<(String, String)>>>,
    /// The number of requests to `git-upload-pack`.
    pub(crate) packs: Arc<AtomicUsize>,
    tls: bool,
    _runtime: Runtime,
}

#[derive(Clone)]
struct State {
    root: PathBuf,
    behaviors: Arc<BTreeMap<&'static str, Behavior>>,
    seen: Arc<Mutex<Vec<(String, String)>>>,
    packs: Arc<AtomicUsize>,
}

impl Server {
    /// Serves the repositories below `root` without TLS.
    pub(crate) fn plain(root: &Path, behaviors: &[(&'static str, Behavior)]) -> Self {
        Self::start(root, behaviors, None)
    }

    /// Serves them with a self-signed certificate.
    pub(crate) fn tls(root: &Path, behaviors: &[(&'static str, Behavior)]) -> Self {
        let made = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()]).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::try_from(made.signing_key.serialize_der()).unwrap();
        let config =
            rustls::ServerConfig::builder_with_provider(Arc::new(rustls::crypto::aws_lc_rs::default_provider()))
                .with_safe_default_protocol_versions()
                .unwrap()
                .with_no_client_auth()
                .with_single_cert(vec![made.cert.der().clone()], key)
                .unwrap();
        Self::start(root, behaviors, Some(Arc::new(config)))
    }

    fn start(root: &Path, behaviors: &[(&'static str, Behavior)], tls: Option<Arc<rustls::ServerConfig>>) -> Self {
        let runtime = Runtime::new().unwrap();
        let state = State {
            root: root.to_owned(),
            behaviors: Arc::new(behaviors.iter().cloned().collect()),
            seen: Arc::default(),
            packs: Arc::default(),
        };
        let listener = runtime.block_on(TcpListener::bind("127.0.0.1:0")).unwrap();
        let address = listener.local_addr().unwrap();
        let server = Self {
            address,
            seen: Arc::clone(&state.seen),
            packs: Arc::clone(&state.packs),
            tls: tls.is_some(),
            _runtime: runtime,
        };
        server._runtime.spawn(accept(listener, state, tls));
        server
    }

    /// The URL of the repository with this behavior.
    pub(crate) fn url(&self, behavior: &str) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}/{behavior}/app.git", self.address)
    }

    /// A pattern that matches every URL of the server.
    pub(crate) fn pattern(&self) -> String {
        let scheme = if self.tls { "https" } else { "http" };
        format!("{scheme}://{}/**", self.address)
    }

    pub(crate) fn packs(&self) -> usize {
        self.packs.load(Ordering::SeqCst)
    }
}

async fn accept(listener: TcpListener, state: State, tls: Option<Arc<rustls::ServerConfig>>) {
    loop {
        let (stream, _) = listener.accept().await.unwrap();
        let (state, tls) = (state.clone(), tls.clone());
        tokio::spawn(async move {
            let service = hyper::service::service_fn(move |request: hyper::Request<hyper::body::Incoming>| {
                let state = state.clone();
                async move { Ok::<_, std::convert::Infallible>(answer(state, request.map(Body::new)).await) }
            });
            let http = hyper::server::conn::http1::Builder::new();
            // Errors are expected: in several tests the client closes the connection.
            if let Some(config) = tls {
                if let Ok(stream) = tokio_rustls::TlsAcceptor::from(config).accept(stream).await {
                    let _ = http.serve_connection(TokioIo::new(stream), service).await;
                }
            } else {
                let _ = http.serve_connection(TokioIo::new(stream), service).await;
            }
        });
    }
}

async fn answer(state: State, request: Request) -> Response {
    let path = request.uri().path().to_owned();
    let authorization = request.headers().get("authorization");
    let authorization = authorization.map(|value| value.to_str().unwrap().to_owned());
    let authorization = authorization.unwrap_or_default();
    state.seen.lock().unwrap().push((path.clone(), authorization.clone()));
    let mut parts = path.trim_start_matches('/').splitn(2, '/');
    let (behavior, rest) = (parts.next().unwrap(), parts.next().unwrap_or_default().to_owned());
    let list = || Response::builder().header("content-type", "application/x-git-upload-pack-advertisement");
    match state.behaviors.get(behavior).cloned() {
        Some(Behavior::Git) => cgi(&state, &rest, request).await,
        Some(Behavior::GitFor(wanted)) if wanted == authorization => cgi(&state, &rest, request).await,
        Some(Behavior::GitFor(_)) => status(401),
        Some(Behavior::Suffix) if path.contains(".git/") => cgi(&state, &rest, request).await,
        Some(Behavior::Suffix) => {
            let query = request.uri().query().unwrap_or_default();
            let to = format!("{}?{query}", path.replace("/info/", ".git/info/"));
            Response::builder()
                .status(302)
                .header("location", to)
                .body(Body::empty())
                .unwrap()
        }
        Some(Behavior::Silent) => std::future::pending().await,
        Some(Behavior::Dribble) => {
            let beat = tokio::time::interval(Duration::from_millis(20));
            let bytes = futures_util::stream::unfold(beat, |mut beat| async move {
                beat.tick().await;
                Some((Ok::<_, std::convert::Infallible>(Bytes::from_static(b"x")), beat))
            });
            // `fff0` announces a line of 65,516 bytes.
            let begin = futures_util::stream::iter([Ok(Bytes::from_static(b"fff0"))]);
            list().body(Body::from_stream(begin.chain(bytes))).unwrap()
        }
        Some(Behavior::Endless) => {
            let id = "1".repeat(40);
            let first = packet(&format!("{id} HEAD\0side-band-64k shallow ofs-delta\n"));
            let lines = packet(&format!("{id} refs/heads/endless\n")).repeat(1000);
            let begin = format!("{}0000{first}", packet("# service=git-upload-pack\n"));
            let stream = futures_util::stream::iter([begin]).chain(futures_util::stream::repeat(lines));
            list()
                .body(Body::from_stream(stream.map(Ok::<_, std::convert::Infallible>)))
                .unwrap()
        }
        Some(Behavior::Dangling) => {
            let id = "1".repeat(40);
            let first = packet(&format!("{id} refs/heads/main\0symref=HEAD:refs/heads/main\n"));
            let begin = packet("# service=git-upload-pack\n");
            list().body(Body::from(format!("{begin}0000{first}0000"))).unwrap()
        }
        Some(Behavior::Status(code, None)) => status(code),
        Some(Behavior::Status(code, Some(to))) => {
            let query = request.uri().query().unwrap_or_default();
            let to = format!("{to}/info/refs?{query}");
            let answer = Response::builder().status(code).header("location", to);
            answer.body(Body::empty()).unwrap()
        }
        Some(Behavior::Pack(pack)) => serve_pack(&pack, request).await,
        Some(Behavior::Html) => Response::new(Body::from("<html>welcome</html>")),
        None => status(404),
    }
}

/// The responses of a server with one branch and one pack. Source: gitprotocol-v2(5).
async fn serve_pack(pack: &[u8], request: Request) -> Response {
    let answer = |kind: &str, body: Vec<u8>| {
        let content_type = format!("application/x-git-upload-pack-{kind}");
        let answer = Response::builder().header("content-type", content_type);
        answer.body(Body::from(body)).unwrap()
    };
    if request.uri().path().ends_with("/info/refs") {
        let lines = [
            "version 2\n",
            "ls-refs\n",
            "fetch=shallow filter\n",
            "object-format=sha1\n",
        ];
        let lines: String = lines.iter().map(|line| packet(line)).collect();
        let begin = packet("# service=git-upload-pack\n");
        return answer("advertisement", format!("{begin}0000{lines}0000").into_bytes());
    }
    let asked = axum::body::to_bytes(request.into_body(), 1 << 20).await.unwrap();
    if String::from_utf8_lossy(&asked).contains("command=ls-refs") {
        let line = packet(&format!("{} refs/heads/main\n", "1".repeat(40)));
        return answer("result", format!("{line}0000").into_bytes());
    }
    let mut body = packet("packfile\n").into_bytes();
    for part in pack.chunks(60_000) {
        body.extend(format!("{:04x}", part.len() + 5).bytes());
        body.push(1);
        body.extend(part);
    }
    body.extend(b"0000");
    answer("result", body)
}

/// A pkt-line. Source: gitprotocol-common(5).
fn packet(text: &str) -> String {
    format!("{:04x}{text}", text.len() + 4)
}

fn status(code: u16) -> Response {
    Response::builder().status(code).body(Body::empty()).unwrap()
}

/// Runs `git http-backend` for a request. Source: git-http-backend(1), RFC 3875.
async fn cgi(state: &State, path: &str, request: Request) -> Response {
    let (head, body) = request.into_parts();
    let header = |name: &str| {
        head.headers
            .get(name)
            .map_or("", |value| value.to_str().unwrap())
            .to_owned()
    };
    if path.ends_with("/git-upload-pack") {
        state.packs.fetch_add(1, Ordering::SeqCst);
    }
    let environment = [
        ("GIT_PROJECT_ROOT", state.root.to_str().unwrap().to_owned()),
        ("GIT_HTTP_EXPORT_ALL", "1".to_owned()),
        ("GIT_CONFIG_GLOBAL", "/dev/null".to_owned()),
        ("GIT_CONFIG_COUNT", "3".to_owned()),
        ("GIT_CONFIG_KEY_0", "safe.directory".to_owned()),
        ("GIT_CONFIG_VALUE_0", "*".to_owned()),
        ("GIT_CONFIG_KEY_1", "uploadpack.allowFilter".to_owned()),
        ("GIT_CONFIG_VALUE_1", "true".to_owned()),
        ("GIT_CONFIG_KEY_2", "http.receivepack".to_owned()),
        ("GIT_CONFIG_VALUE_2", "false".to_owned()),
        ("PATH_INFO", format!("/{path}")),
        ("QUERY_STRING", head.uri.query().unwrap_or_default().to_owned()),
        ("REQUEST_METHOD", head.method.to_string()),
        ("CONTENT_TYPE", header("content-type")),
        ("GIT_PROTOCOL", header("git-protocol")),
    ];
    let body = axum::body::to_bytes(body, 1 << 20).await.unwrap();
    let mut child = tokio::process::Command::new("git")
        .arg("http-backend")
        .envs(environment)
        .env("CONTENT_LENGTH", body.len().to_string())
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .kill_on_drop(true)
        .spawn()
        .expect("git is installed");
    let mut stdin = child.stdin.take().unwrap();
    stdin.write_all(&body).await.unwrap();
    drop(stdin);
    let output = child.wait_with_output().await.unwrap().stdout;
    let end = output.windows(4).position(|four| four == b"\r\n\r\n").unwrap();
    let (head, body) = output.split_at(end);
    let mut answer = Response::builder();
    for line in std::str::from_utf8(head).unwrap().lines() {
        let (name, value) = line.split_once(": ").unwrap();
        answer = match name {
            "Status" => answer.status(value.split(' ').next().unwrap().parse::<u16>().unwrap()),
            _ => answer.header(name, value),
        };
    }
    answer.body(Body::from(body.get(4..).unwrap().to_vec())).unwrap()
}

/// The limits of most tests. Revisions stay cached for longer than any test runs.
pub(crate) fn limits() -> GitLimits {
    GitLimits {
        time: Duration::from_secs(20),
        bytes: 8 * 1024 * 1024,
        revision_ttl: Duration::from_secs(3600),
    }
}

pub(crate) fn store(limits: GitLimits, patterns: &[String]) -> RepositoryStore {
    RepositoryStore::new(limits, &GitCache::default(), patterns).unwrap()
}

pub(crate) fn budget() -> GenerationBudget {
    GenerationBudget::new(GenerationLimits::default())
}

/// Resources with one repository Secret, which turns off TLS verification.
pub(crate) fn secret(url: &str, auth: RepositoryAuth) -> Resources {
    let repository = Repository {
        secret: "repo".to_owned(),
        kind: RepositoryKind::Repository,
        url: url.to_owned(),
        project: String::new(),
        auth,
        client_certificate: None,
        verification: TlsVerification::Off,
        location: tollgate_core::diagnostic::Location::default(),
    };
    Resources {
        repositories: BTreeMap::from([("repo".to_owned(), Arc::new(repository))]),
        ..Resources::default()
    }
}
