//! Starts etcd and kube-apiserver, and makes clients and credentials for them.

use std::fs;
use std::path::Path;
use std::sync::atomic::{AtomicU32, Ordering};

use rcgen::KeyPair;
use reqwest::{Certificate, Client, Identity, StatusCode};
use serde_json::{Map, Value, json};
use tempfile::TempDir;
use tokio::net::TcpSocket;
use tokio::sync::OnceCell;

use super::audit::Audit;
use super::daemon::Daemon;
use super::eventually;
use super::kubectl::{Credential, Kubectl};
use super::node::{self, Node};
use crate::authority::{Authority, Pair};

/// Records every request except those of the server to itself, without bodies and so without
/// secrets.
const AUDIT_POLICY: &str = r#"
apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules:
  - { level: None, users: ["system:apiserver"] }
  - { level: Metadata }
"#;

/// How a cluster differs from the shared one.
#[derive(Default)]
pub struct Options {
    /// Fields of an `AuthenticationConfiguration` (`apiserver.config.k8s.io/v1`): issuers of OIDC
    /// tokens (`jwt`), and the paths that allow anonymous requests (`anonymous`; none without it).
    pub authentication: Map<String, Value>,
    /// An audit policy, YAML. Without it, the server records metadata of all requests.
    pub audit_policy: Option<String>,
    /// Further flags of kube-apiserver. If a flag occurs twice, the last one counts.
    pub flags: Vec<String>,
}

/// A control plane on loopback, with RBAC and Node authorization, an audit log and service account
/// tokens, and by default without anonymous access.
///
/// It runs no controllers, unless [`Self::start_controllers`] started them. So namespaces have no
/// `default` service account, and pods are only objects unless [`Self::running_pod`] made them.
pub struct Cluster {
    url: String,
    server_authority: Authority,
    client_authority: Authority,
    admin: Kubectl,
    audit: Audit,
    namespaces: AtomicU32,
    node: OnceCell<Node>,
    crds: OnceCell<()>,
    // Fields drop in order of declaration: the API server ends before etcd.
    apiserver: Daemon,
    etcd: Daemon,
    // Reserves the port.
    _port: TcpSocket,
    root: TempDir,
}

impl Cluster {
    /// The cluster that all tests of this binary share. Each test uses its own namespaces and
    /// names.
    pub async fn shared() -> &'static Self {
        static SHARED: OnceCell<Cluster> = OnceCell::const_new();
        SHARED.get_or_init(Self::start).await
    }

    /// Starts a cluster.
    pub async fn start() -> Self {
        Self::start_with(Options::default()).await
    }

    /// Starts a cluster with these options.
    ///
    /// # Panics
    /// If a program is missing, or if it does not become ready. If a program ended, the text has
    /// its last log lines.
    pub async fn start_with(options: Options) -> Self {
        let root = tempfile::Builder::new().prefix("kubernetes-").tempdir().unwrap();
        let etcd = start_etcd(root.path());
        let (port, url) = free_port();
        let server_authority = Authority::new("servers");
        let client_authority = Authority::new("clients");
        // In etcd's folder, which exists by now and is removed with etcd.
        let configuration = etcd.folder().join("configuration");
        write_files(&configuration, &server_authority, &client_authority, &options);
        let arguments = apiserver_arguments(&url, &configuration, &etcd.folder().join("client.sock"), options);
        let apiserver = Daemon::start("kube-apiserver", root.path(), &arguments);
        let administrator = client_authority.client("administrator", Some("system:masters"));
        // The shared cluster is never dropped, so only the folders of daemons are removed.
        let admin = Kubectl::new(
            &url,
            &server_authority.pem,
            Credential::Certificate(administrator.clone()),
        )
        .settle(apiserver.folder().join("administrator"));
        let mut cluster = Self {
            admin,
            audit: Audit {
                path: apiserver.folder().join("audit.log"),
            },
            url,
            server_authority,
            client_authority,
            namespaces: AtomicU32::new(0),
            node: OnceCell::const_new(),
            crds: OnceCell::const_new(),
            apiserver,
            etcd,
            _port: port,
            root,
        };
        cluster.become_ready(&administrator).await;
        cluster
    }

    /// `https://127.0.0.1:PORT`, which is also the issuer of service account tokens.
    pub fn url(&self) -> &str {
        &self.url
    }

    /// PEM of the authority that signed its certificate.
    pub fn authority(&self) -> &str {
        &self.server_authority.pem
    }

    /// A client certificate it accepts.
    pub fn certificate(&self, user: &str, group: Option<&str>) -> Pair {
        self.client_authority.client(user, group)
    }

    /// kubectl with the group `system:masters`, which may do everything.
    pub fn admin(&self) -> &Kubectl {
        &self.admin
    }

    /// kubectl with this credential.
    pub fn kubectl(&self, credential: Credential) -> Kubectl {
        Kubectl::new(&self.url, self.authority(), credential)
    }

    /// A client that trusts it and has no credential.
    pub fn client(&self) -> Client {
        self.client_builder().build().unwrap()
    }

    /// A client that presents a client certificate.
    pub fn client_with(&self, pair: &Pair) -> Client {
        let pem = format!("{}{}", pair.certificate, pair.key);
        let identity = Identity::from_pem(pem.as_bytes()).unwrap();
        self.client_builder().identity(identity).build().unwrap()
    }

    /// Its audit log.
    pub fn audit(&self) -> &Audit {
        &self.audit
    }

    /// Creates a namespace with a unique name, which it returns.
    ///
    /// - `prefix`: lowercase letters and digits.
    pub async fn namespace(&self, prefix: &str) -> String {
        let number = self.namespaces.fetch_add(1, Ordering::Relaxed);
        let name = format!("{prefix}-{number}");
        self.admin.succeed(&["create", "namespace", &name]).await;
        name
    }

    /// Creates a service account and returns a token for it, from the TokenRequest API.
    ///
    /// The token's user is `system:serviceaccount:NAMESPACE:NAME`.
    pub async fn service_account(&self, namespace: &str, name: &str) -> String {
        let namespace = format!("--namespace={namespace}");
        self.admin
            .succeed(&["create", "serviceaccount", name, &namespace])
            .await;
        let token = self.admin.succeed(&["create", "token", name, &namespace]).await;
        token.trim().to_owned()
    }

    /// A token that the cluster's own key signs, with any claims.
    pub fn sign(&self, claims: &Value) -> String {
        use jsonwebtoken::{Algorithm, EncodingKey, Header, encode};
        let key = fs::read(self.etcd.folder().join("configuration/accounts.key")).unwrap();
        let key = EncodingKey::from_ec_pem(&key).unwrap();
        encode(&Header::new(Algorithm::ES256), claims, &key).unwrap()
    }

    /// Creates a pod that appears to run. Its container `main` is a folder of this machine: exec
    /// runs commands of this machine there, attach echoes lines, the log grows by five lines a
    /// second, and port-forward connects to loopback.
    ///
    /// - `namespace`: must exist.
    pub async fn running_pod(&self, namespace: &str, name: &str) {
        let mut pod = node::pod(name);
        pod["metadata"]["namespace"] = json!(namespace);
        self.admin.apply(&pod.to_string()).await;
        self.start_pod(namespace, name).await;
    }

    /// Lets a pod appear to run that somebody made of [`node::pod`].
    pub async fn start_pod(&self, namespace: &str, name: &str) {
        let node = self.node.get_or_init(|| {
            Node::start(
                self.root.path(),
                &self.server_authority,
                &self.client_authority,
                &self.admin,
            )
        });
        node.await.run(&self.admin, namespace, name).await;
    }

    /// Starts kube-controller-manager, which collects garbage, ends namespaces, makes tokens of service
    /// accounts, and fills roles such as `view`.
    pub fn start_controllers(&self) -> Daemon {
        let configuration = self.etcd.folder().join("configuration");
        let file = |name: &str| configuration.join(name).display().to_string();
        let kubeconfig = self.admin.kubeconfig().display().to_string();
        let arguments = [
            format!("--kubeconfig={kubeconfig}"),
            format!("--authentication-kubeconfig={kubeconfig}"),
            format!("--authorization-kubeconfig={kubeconfig}"),
            format!("--service-account-private-key-file={}", file("accounts.key")),
            format!("--root-ca-file={}", file("servers.crt")),
            "--controllers=garbage-collector-controller,namespace-controller,serviceaccount-controller,\
             serviceaccount-token-controller,clusterrole-aggregation-controller"
                .to_owned(),
            "--leader-elect=false".to_owned(),
            "--bind-address=127.0.0.1".to_owned(),
            // It serves nothing that the tests read.
            "--secure-port=0".to_owned(),
        ];
        let program = super::controller_manager();
        Daemon::run("kube-controller-manager", &program, self.root.path(), &arguments)
    }

    /// Installs the CustomResourceDefinitions of Argo CD and Tollgate, once.
    pub async fn with_crds(&self) -> &Self {
        self.crds.get_or_init(|| super::crds::install(self)).await;
        self
    }

    /// The folder of all its files.
    pub fn root(&self) -> &Path {
        self.root.path()
    }

    fn client_builder(&self) -> reqwest::ClientBuilder {
        let authority = Certificate::from_pem(self.authority().as_bytes()).unwrap();
        Client::builder().no_proxy().tls_certs_only([authority])
    }

    /// Waits until it answers and has the default roles and the namespace `default`.
    async fn become_ready(&mut self, administrator: &Pair) {
        let client = self.client_with(administrator);
        for path in ["/readyz", "/api/v1/namespaces/default"] {
            let url = format!("{}{path}", self.url);
            eventually(&format!("{path} answers"), async || {
                self.etcd.check();
                self.apiserver.check();
                let answer = client.get(&url).send().await.ok()?;
                (answer.status() == StatusCode::OK).then_some(())
            })
            .await;
        }
    }
}

/// Starts etcd on Unix sockets in its own folder, so that it cannot collide with another one.
fn start_etcd(root: &Path) -> Daemon {
    let folder = root.join("etcd");
    // Nothing dials the advertised URLs, because the etcd cluster has one member.
    let nowhere = "http://127.0.0.1:1";
    let arguments = [
        format!("--data-dir={}", folder.join("data").display()),
        format!("--listen-client-urls=unix://{}", folder.join("client.sock").display()),
        format!("--listen-peer-urls=unix://{}", folder.join("peer.sock").display()),
        format!("--advertise-client-urls={nowhere}"),
        format!("--initial-advertise-peer-urls={nowhere}"),
        format!("--initial-cluster=default={nowhere}"),
        "--unsafe-no-fsync".to_owned(),
        "--log-level=warn".to_owned(),
    ];
    Daemon::start("etcd", root, &arguments)
}

/// Reserves a port until the server binds it: the socket is bound with `SO_REUSEPORT` and never
/// listens, and a server of the same user may share the port.
fn free_port() -> (TcpSocket, String) {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_reuseport(true).unwrap();
    socket.bind(([127, 0, 0, 1], 0).into()).unwrap();
    let url = format!("https://{}", socket.local_addr().unwrap());
    (socket, url)
}

fn write_files(folder: &Path, servers: &Authority, clients: &Authority, options: &Options) {
    fs::create_dir(folder).unwrap();
    let write = |name: &str, text: &str| fs::write(folder.join(name), text).unwrap();
    let server = servers.server(&["127.0.0.1", "localhost", super::pod::API_SERVER]);
    let accounts = KeyPair::generate().unwrap();
    write("server.crt", &server.certificate);
    write("server.key", &server.key);
    write("clients.crt", &clients.pem);
    // The client certificate for kubelets, and the authority of their certificates.
    let client = clients.client("apiserver-to-kubelet", None);
    write("kubelet-client.crt", &client.certificate);
    write("kubelet-client.key", &client.key);
    write("servers.crt", &servers.pem);
    write("accounts.pub", &accounts.public_key_pem());
    write("accounts.key", &accounts.serialize_pem());
    write("audit.yaml", options.audit_policy.as_deref().unwrap_or(AUDIT_POLICY));
    write("authentication.json", &authentication(options.authentication.clone()));
}

/// The whole configuration. It is JSON, which is valid YAML.
fn authentication(mut configuration: Map<String, Value>) -> String {
    configuration.insert("apiVersion".to_owned(), json!("apiserver.config.k8s.io/v1"));
    configuration.insert("kind".to_owned(), json!("AuthenticationConfiguration"));
    configuration
        .entry("anonymous")
        .or_insert_with(|| json!({"enabled": false}));
    Value::Object(configuration).to_string()
}

fn apiserver_arguments(url: &str, files: &Path, etcd: &Path, options: Options) -> Vec<String> {
    let file = |name: &str| files.join(name).display().to_string();
    let port = url.rsplit(':').next().unwrap();
    let mut arguments = vec![
        format!("--etcd-servers=unix://{}", etcd.display()),
        "--bind-address=127.0.0.1".to_owned(),
        format!("--secure-port={port}"),
        "--permit-port-sharing".to_owned(),
        // Endpoints of the service `kubernetes` must not be loopback addresses, so nothing writes
        // them. No test uses this service.
        "--advertise-address=127.0.0.1".to_owned(),
        "--endpoint-reconciler-type=none".to_owned(),
        format!("--tls-cert-file={}", file("server.crt")),
        format!("--tls-private-key-file={}", file("server.key")),
        format!("--client-ca-file={}", file("clients.crt")),
        format!("--authentication-config={}", file("authentication.json")),
        format!("--kubelet-client-certificate={}", file("kubelet-client.crt")),
        format!("--kubelet-client-key={}", file("kubelet-client.key")),
        format!("--kubelet-certificate-authority={}", file("servers.crt")),
        "--kubelet-preferred-address-types=InternalIP".to_owned(),
        "--authorization-mode=Node,RBAC".to_owned(),
        format!("--service-account-issuer={url}"),
        format!("--service-account-jwks-uri={url}/openid/v1/jwks"),
        format!("--service-account-key-file={}", file("accounts.pub")),
        format!("--service-account-signing-key-file={}", file("accounts.key")),
        "--service-cluster-ip-range=10.0.0.0/24".to_owned(),
        // This plugin needs the service accounts that a controller would make.
        "--disable-admission-plugins=ServiceAccount".to_owned(),
        format!("--audit-policy-file={}", file("audit.yaml")),
        // Relative to its own folder, in which it runs.
        "--audit-log-path=audit.log".to_owned(),
    ];
    arguments.extend(options.flags);
    arguments
}
