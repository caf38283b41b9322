//! A test environment for credential providers: the real guests in the real plugin host, a TLS
//! endpoint that answers by a script and records every request, a pod's identities, and a clock
//! that tests set. All connections stay on loopback.

use std::collections::BTreeMap;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use futures_util::future::BoxFuture;
use http_body_util::{BodyExt as _, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use jiff::Timestamp;
use rcgen::{BasicConstraints, CertificateParams, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::{ClientHello, ResolvesServerCert};
use rustls::sign::CertifiedKey;
use secrecy::SecretString;
use tokio::net::{TcpListener, TcpStream};
use tokio_rustls::TlsAcceptor;
use tollgate_config::EgressEntry;
use tollgate_plugin::egress::{EgressClient, Network, Stream};
use tollgate_plugin::{
    Allocation, Ambient, AmbientError, AwsCredentials, BearerToken, PluginSet, ProviderEnvironment, Runtime, WallClock,
};

/// The public address that every name resolves to, unless a script sets others.
pub const PUBLIC: IpAddr = IpAddr::V4(std::net::Ipv4Addr::new(93, 184, 216, 34));

/// One request that the endpoint received.
#[derive(Clone, Debug)]
pub struct Seen {
    pub method: String,
    /// `https://host[:port]/path?query`.
    pub url: String,
    pub headers: http::HeaderMap,
    pub body: Vec<u8>,
}

/// What the endpoint does with the next request.
#[derive(Clone, Debug)]
pub enum Reply {
    Answer {
        status: u16,
        headers: Vec<(String, String)>,
        body: Vec<u8>,
    },
    /// Connecting times out.
    Timeout,
    /// The certificate is of an authority that no client trusts.
    Untrusted,
    /// The connection closes after the request, without an answer.
    Cut,
    /// The connection stays open after the request, without an answer.
    Silent,
}

impl Reply {
    pub fn json(status: u16, body: &serde_json::Value) -> Self {
        Self::Answer {
            status,
            headers: vec![("content-type".into(), "application/json".into())],
            body: body.to_string().into_bytes(),
        }
    }
}

/// The requests seen so far, and the replies to the next ones.
#[derive(Debug, Default)]
pub struct Script {
    pub replies: std::collections::VecDeque<Reply>,
    /// The reply when `replies` is empty.
    pub forever: Option<Reply>,
    pub seen: Vec<Seen>,
    /// The address of every attempt to connect, successful or not.
    pub connected: Vec<IpAddr>,
    /// The addresses that every name resolves to; [`PUBLIC`] if `None`.
    pub addresses: Option<Vec<IpAddr>>,
}

/// The network of the tests. Names resolve to public addresses, and every connection goes to a
/// listener on loopback.
#[derive(Debug)]
pub struct Endpoint {
    script: Arc<Mutex<Script>>,
    trusted: SocketAddr,
    untrusted: SocketAddr,
    pub ca_pem: String,
}

impl Endpoint {
    /// Starts the listeners on the current runtime.
    pub async fn start() -> Arc<Self> {
        let script = Arc::new(Mutex::new(Script::default()));
        let authority = Authority::new();
        let ca_pem = authority.pem.clone();
        let trusted = listen(authority, Arc::clone(&script)).await;
        let untrusted = listen(Authority::new(), Arc::clone(&script)).await;
        Arc::new(Self {
            script,
            trusted,
            untrusted,
            ca_pem,
        })
    }

    /// Replaces the script and returns the old one.
    pub fn play(&self, script: Script) -> Script {
        std::mem::replace(&mut *self.script.lock().unwrap(), script)
    }

    /// The requests seen so far.
    pub fn seen(&self) -> Vec<Seen> {
        self.script.lock().unwrap().seen.clone()
    }

    fn next(&self) -> Option<Reply> {
        let script = self.script.lock().unwrap();
        script.replies.front().or(script.forever.as_ref()).cloned()
    }
}

impl Network for Endpoint {
    fn resolve<'a>(&'a self, _: &'a str, port: u16) -> BoxFuture<'a, io::Result<Vec<SocketAddr>>> {
        let addresses = self.script.lock().unwrap().addresses.clone();
        let addresses = addresses.unwrap_or_else(|| vec![PUBLIC]);
        Box::pin(async move { Ok(addresses.into_iter().map(|ip| SocketAddr::new(ip, port)).collect()) })
    }

    fn connect(&self, address: SocketAddr) -> BoxFuture<'_, io::Result<Box<dyn Stream>>> {
        self.script.lock().unwrap().connected.push(address.ip());
        Box::pin(async move {
            let address = match self.next() {
                Some(Reply::Timeout) => {
                    self.script.lock().unwrap().replies.pop_front();
                    return Err(io::ErrorKind::TimedOut.into());
                }
                Some(Reply::Untrusted) => {
                    self.script.lock().unwrap().replies.pop_front();
                    self.untrusted
                }
                _ => self.trusted,
            };
            Ok(Box::new(TcpStream::connect(address).await?) as Box<dyn Stream>)
        })
    }
}

async fn listen(authority: Authority, script: Arc<Mutex<Script>>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = ServerConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_no_client_auth()
        .with_cert_resolver(Arc::new(authority));
    let acceptor = TlsAcceptor::from(Arc::new(config));
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            let (acceptor, script) = (acceptor.clone(), Arc::clone(&script));
            tokio::spawn(async move {
                let Ok(stream) = acceptor.accept(stream).await else {
                    return;
                };
                let service = service_fn(|request| answer(request, Arc::clone(&script)));
                let served = hyper::server::conn::http1::Builder::new();
                drop(served.serve_connection(TokioIo::new(stream), service).await);
            });
        }
    });
    address
}

async fn answer(request: Request<Incoming>, script: Arc<Mutex<Script>>) -> io::Result<Response<Full<Bytes>>> {
    let (head, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes().to_vec();
    let host = head
        .headers
        .get("host")
        .and_then(|host| host.to_str().ok())
        .unwrap_or_default();
    let seen = Seen {
        method: head.method.to_string(),
        url: format!("https://{host}{}", head.uri),
        headers: head.headers,
        body,
    };
    let reply = {
        let mut script = script.lock().unwrap();
        script.seen.push(seen);
        script.replies.pop_front().or_else(|| script.forever.clone())
    };
    match reply {
        Some(Reply::Answer { status, headers, body }) => {
            let mut answer = Response::builder().status(status);
            for (name, value) in headers {
                answer = answer.header(name, value);
            }
            answer.body(Full::new(Bytes::from(body))).map_err(io::Error::other)
        }
        Some(Reply::Silent) => std::future::pending().await,
        Some(Reply::Cut) | Some(Reply::Timeout) | Some(Reply::Untrusted) | None => {
            Err(io::Error::other("the script has no answer"))
        }
    }
}

/// An authority that signs a certificate for any name a client requests.
struct Authority {
    pem: String,
    issuer: Issuer<'static, KeyPair>,
    made: Mutex<BTreeMap<String, Arc<CertifiedKey>>>,
}

impl std::fmt::Debug for Authority {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Authority")
    }
}

impl Authority {
    fn new() -> Self {
        let key = KeyPair::generate().unwrap();
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = params.self_signed(&key).unwrap().pem();
        Self {
            pem,
            issuer: Issuer::new(params, key),
            made: Mutex::default(),
        }
    }

    fn make(&self, name: &str) -> Arc<CertifiedKey> {
        let key = KeyPair::generate().unwrap();
        let params = CertificateParams::new(vec![name.to_owned()]).unwrap();
        let certificate = params.signed_by(&key, &self.issuer).unwrap();
        let der = PrivateKeyDer::try_from(key.serialize_der()).unwrap();
        let provider = rustls::crypto::aws_lc_rs::default_provider();
        let key = provider.key_provider.load_private_key(der).unwrap();
        Arc::new(CertifiedKey::new(vec![certificate.der().clone()], key))
    }
}

impl ResolvesServerCert for Authority {
    fn resolve(&self, hello: ClientHello<'_>) -> Option<Arc<CertifiedKey>> {
        let name = hello.server_name().unwrap_or("127.0.0.1").to_owned();
        let mut made = self.made.lock().unwrap();
        let key = made.entry(name.clone()).or_insert_with(|| self.make(&name));
        Some(Arc::clone(key))
    }
}

/// A clock that changes only when it is set.
#[derive(Debug)]
pub struct Frozen(Mutex<Timestamp>);

impl Frozen {
    pub fn at(now: Timestamp) -> Arc<Self> {
        Arc::new(Self(Mutex::new(now)))
    }

    pub fn set(&self, now: Timestamp) {
        *self.0.lock().unwrap() = now;
    }
}

impl WallClock for Frozen {
    fn now(&self) -> Timestamp {
        *self.0.lock().unwrap()
    }
}

/// The identities of a pod, in the format of the case tables.
#[derive(Debug, Default)]
pub struct Pod {
    pub given: Mutex<serde_json::Value>,
    pub now: Mutex<Option<Timestamp>>,
}

impl Pod {
    fn get(&self, key: &str) -> Result<serde_json::Value, AmbientError> {
        let given = self.given.lock().unwrap();
        given
            .get(key)
            .cloned()
            .ok_or_else(|| AmbientError::Unavailable(format!("no `{key}` here")))
    }

    fn bearer(&self, key: &str) -> Result<BearerToken, AmbientError> {
        let given = self.get(key)?;
        let now = self.now.lock().unwrap().unwrap_or_else(Timestamp::now);
        let seconds = match &given["expires_in"] {
            serde_json::Value::String(text) => text.parse().ok(),
            other => other.as_i64(),
        };
        Ok(BearerToken {
            token: secret(&given["access_token"]),
            expires_at: seconds.map(|seconds| now + jiff::SignedDuration::from_secs(seconds)),
        })
    }
}

fn secret(value: &serde_json::Value) -> SecretString {
    SecretString::from(value.as_str().unwrap().to_owned())
}

impl Ambient for Pod {
    fn service_account_token(&self, audience: String) -> BoxFuture<'_, Result<BearerToken, AmbientError>> {
        Box::pin(async move {
            let given = self.get("sa-token")?;
            if given["audience"] != audience.as_str() {
                return Err(AmbientError::Unavailable(format!("no token for `{audience}`")));
            }
            let token = match &mut self.given.lock().unwrap()["sa-token"]["token"] {
                // As in a projected volume that is renewed: each read takes the next item of a
                // list, and the last item stays.
                serde_json::Value::Array(tokens) if tokens.len() > 1 => tokens.remove(0),
                serde_json::Value::Array(tokens) => tokens[0].clone(),
                token => token.clone(),
            };
            Ok(BearerToken {
                token: secret(&token),
                expires_at: None,
            })
        })
    }

    fn eks_pod_identity(&self) -> BoxFuture<'_, Result<AwsCredentials, AmbientError>> {
        Box::pin(async move {
            let given = self.get("eks-pod-identity")?;
            Ok(AwsCredentials {
                access_key_id: given["AccessKeyId"].as_str().unwrap().to_owned(),
                secret_access_key: secret(&given["SecretAccessKey"]),
                session_token: given.get("Token").map(secret),
                expires_at: given["Expiration"].as_str().map(|end| end.parse().unwrap()),
            })
        })
    }

    fn gce_metadata_token(&self, _: Vec<String>) -> BoxFuture<'_, Result<BearerToken, AmbientError>> {
        Box::pin(async move { self.bearer("gce-metadata") })
    }

    fn azure_imds_token(&self, _: String, _: Option<String>) -> BoxFuture<'_, Result<BearerToken, AmbientError>> {
        Box::pin(async move { self.bearer("azure-imds") })
    }
}

/// The endpoint, the clock and the pod that loaded guests run with.
pub struct World {
    pub endpoint: Arc<Endpoint>,
    pub clock: Arc<Frozen>,
    pub pod: Arc<Pod>,
}

impl World {
    pub async fn new() -> Self {
        Self {
            endpoint: Endpoint::start().await,
            clock: Frozen::at("2026-01-02T03:04:05Z".parse().unwrap()),
            pod: Arc::default(),
        }
    }

    /// An egress entry for `host` that trusts the endpoint's authority.
    pub fn entry(&self, host: &str) -> EgressEntry {
        EgressEntry {
            host: host.to_owned(),
            ca: Some(self.endpoint.ca_pem.clone()),
            ..EgressEntry::default()
        }
    }

    /// Loads the guests of `folder`, each granted `hosts`, `audiences` and the imports its manifest
    /// requests. Returns the findings too.
    pub fn load(&self, folder: &Path, hosts: &[EgressEntry], audiences: &[String]) -> (PluginSet, Vec<String>) {
        self.load_into(Allocation::OnDemand, folder, (hosts, audiences))
    }

    /// The same, with the memory of instances from `allocation`.
    pub fn load_into(
        &self,
        allocation: Allocation,
        folder: &Path,
        (hosts, audiences): (&[EgressEntry], &[String]),
    ) -> (PluginSet, Vec<String>) {
        let mut grants = BTreeMap::new();
        for (name, imports) in manifests(folder) {
            let grant = tollgate_config::PluginGrant {
                hosts: hosts.to_vec(),
                audiences: audiences.to_vec(),
                imports,
                ..tollgate_config::PluginGrant::default()
            };
            grants.insert(name, grant);
        }
        self.load_all(allocation, folder, grants)
    }

    /// Loads the guests of `folder` with exactly these grants.
    pub fn load_granted(
        &self,
        folder: &Path,
        grants: BTreeMap<String, tollgate_config::PluginGrant>,
    ) -> (PluginSet, Vec<String>) {
        self.load_all(Allocation::OnDemand, folder, grants)
    }

    fn load_all(
        &self,
        allocation: Allocation,
        folder: &Path,
        grants: BTreeMap<String, tollgate_config::PluginGrant>,
    ) -> (PluginSet, Vec<String>) {
        let settings = tollgate_config::Plugins {
            directory: Some(folder.to_owned()),
            cache: Some(cache()),
            grants,
            ..tollgate_config::Plugins::default()
        };
        let environment = ProviderEnvironment {
            egress_client: Arc::new(EgressClient::with_network(
                Arc::clone(&self.endpoint) as Arc<dyn Network>
            )),
            ambient: Arc::clone(&self.pod) as Arc<dyn Ambient>,
            clock: Arc::clone(&self.clock) as Arc<dyn WallClock>,
        };
        let runtime = Runtime::with_environment(&settings, allocation, environment).unwrap();
        let (set, findings) = runtime.load(None);
        (set, findings.iter().map(ToString::to_string).collect())
    }
}

/// The providers of a folder and the imports they request.
fn manifests(folder: &Path) -> Vec<(String, Vec<String>)> {
    let mut found = Vec::new();
    for entry in std::fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.extension().is_none_or(|extension| extension != "yaml") {
            continue;
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let manifest: serde_json::Value = serde_saphyr::from_str(&text).unwrap();
        if manifest["world"] == "credential-provider" {
            let imports = manifest["imports"].as_array().cloned().unwrap_or_default();
            let imports = imports.iter().map(|import| import.as_str().unwrap().to_owned());
            found.push((manifest["name"].as_str().unwrap().to_owned(), imports.collect()));
        }
    }
    found
}

/// The folder of compiled guests, shared by all test runs, because guests of languages with a
/// runtime take seconds to compile.
fn cache() -> PathBuf {
    crate::checkout().join("target/tmp/compiled-guests")
}

/// Copies built credential providers of the repository into a separate folder.
pub fn guests(names: &[&str]) -> tempfile::TempDir {
    let built = crate::checkout().join("target/guests");
    let folder = tempfile::tempdir().unwrap();
    for name in names {
        for extension in ["wasm", "yaml"] {
            let file = format!("{name}.{extension}");
            std::fs::copy(built.join(&file), folder.path().join(&file))
                .unwrap_or_else(|error| panic!("{file}: {error}; build the guests with `cargo xtask plugins`"));
        }
    }
    folder
}
