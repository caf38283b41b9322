//! What the Kubernetes front costs: a list of pods through the gateway beside the
//! same list direct, and what 2,000 open watches take of memory and of others' time.
//!
//! In: a real kube-apiserver (`cargo xtask kubernetes`) and a gateway process. Out:
//! times of one request, and bytes a watch, on standard output. Never: an answer
//! that is not checked; a fake API server.

#![expect(
    clippy::expect_used,
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::print_stdout,
    reason = "a bench that cannot run should say so and end; its second result is no time"
)]

use std::net::SocketAddr;
use std::path::Path;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use reqwest::{Certificate, Client};
use secrecy::SecretString;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::io::{AsyncBufReadExt as _, BufReader};
use tokio::process::{Child, Command};
use tokio::runtime::Runtime;
use tollgate::access::{AgentId, User};
use tollgate::store::{SecretHash, Store, Token};

#[expect(dead_code, unused_imports, reason = "tests need more of it")]
#[path = "../tests/kubernetes/support.rs"]
mod support;

use support::authority::Authority;
use support::cluster::Cluster;

/// Pods of the list.
const PODS: usize = 100;
/// Watches that are open at once; a round of tests opens fewer.
const WATCHES: usize = 2_000;
/// Watches of one HTTP/2 connection.
const STREAMS: usize = 100;
/// The person's token.
const SECRET: &str = "glpat-of-the-bench";

struct World {
    cluster: Cluster,
    token: String,
    address: SocketAddr,
    authority: String,
    gateway: Child,
    _folder: TempDir,
}

/// One protocol of the clients.
#[derive(Clone, Copy)]
enum Speaks {
    Http1,
    Http2,
}

fn runtime() -> Runtime {
    tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .enable_all()
        .build()
        .expect("a runtime")
}

async fn world() -> World {
    let cluster = Cluster::start().await;
    let namespace = cluster.namespace("bench").await;
    let token = cluster.service_account(&namespace, "gateway").await;
    cluster.service_account(&namespace, "default").await;
    cluster.admin().apply(&grants(&namespace)).await;
    let pods: Vec<Value> = (0..PODS).map(|at| pod(&namespace, at)).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": pods});
    cluster.admin().apply(&list.to_string()).await;
    let folder = tempfile::tempdir().expect("a folder");
    let address = std::net::TcpListener::bind("127.0.0.1:0")
        .expect("a port")
        .local_addr()
        .expect("an address");
    let authority = lay_out(folder.path(), &cluster, &token, address).await;
    let gateway = start(folder.path()).await;
    World {
        cluster,
        token,
        address,
        authority,
        gateway,
        _folder: folder,
    }
}

/// What the gateway and the person may do in the cluster.
fn grants(namespace: &str) -> String {
    let bind = |name: &str, subject: Value, role: &str| {
        json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": {"name": name}, "subjects": [subject],
            "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": role},
        })
    };
    let gateway = json!({"kind": "ServiceAccount", "name": "gateway", "namespace": namespace});
    let people = json!({"kind": "Group", "name": "gitlab:user", "apiGroup": "rbac.authorization.k8s.io"});
    // The role `view` is put together by a controller, which does not run here.
    let look = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "bench-look"},
        "rules": [{"apiGroups": [""], "resources": ["pods", "namespaces"], "verbs": ["get", "list", "watch"]}],
    });
    let items = [
        look,
        bind("bench-gateway", gateway, "cluster-admin"),
        bind("bench-people", people, "bench-look"),
    ];
    json!({"apiVersion": "v1", "kind": "List", "items": items}).to_string()
}

fn pod(namespace: &str, at: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("web-{at}"), "namespace": namespace, "labels": {"app": "web", "number": at.to_string()}},
        "spec": {
            "automountServiceAccountToken": false,
            "containers": [{"name": "web", "image": "registry.example/web:1", "env": [{"name": "A", "value": "b"}]}],
        },
    })
}

/// Writes the gateway's folder; gives its authority.
async fn lay_out(root: &Path, cluster: &Cluster, token: &str, address: SocketAddr) -> String {
    let checkout = Path::new(env!("CARGO_MANIFEST_DIR"));
    for front in ["extensions", "kubernetes"] {
        copy_tree(
            &checkout.join("policies").join(front),
            &root.join("policies").join(front),
        );
    }
    std::fs::create_dir_all(root.join("state")).expect("a folder");
    let authority = Authority::new("gateway");
    let pair = authority.server(&["127.0.0.1"]);
    let config = json!({
        "bearerToken": token, "tlsClientConfig": {"caData": base64(cluster.authority())},
    });
    let object = |version: &str, kind: &str, name: &str, more: (&str, Value)| {
        let mut object = json!({
            "apiVersion": version, "kind": kind, "metadata": {"name": name, "namespace": "argocd"},
        });
        object[more.0] = more.1;
        object
    };
    let mut secret = object(
        "v1",
        "Secret",
        "cluster",
        (
            "stringData",
            json!({
                "name": "real", "server": cluster.url(), "config": config.to_string(),
            }),
        ),
    );
    secret["metadata"]["labels"] = json!({"argocd.argoproj.io/secret-type": "cluster"});
    let own = "tollgate.dev/v1alpha1";
    let agent = object(
        own,
        "Agent",
        "real",
        (
            "spec",
            json!({
                "id": 1, "configProject": {"id": 1}, "cluster": "real",
                "config": {"user_access": {"access_as": {"user": {}}, "projects": [{"id": "a/b"}]}},
            }),
        ),
    );
    let people = object(
        own,
        "UserDirectory",
        "people",
        (
            "spec",
            json!({
                "users": [{"id": 1, "username": "alice"}],
                "projects": [{"id": 1, "path": "a/b", "members": [{"username": "alice", "role": "developer"}]}],
            }),
        ),
    );
    let settings = json!({
        "listen": address.to_string(), "admin": {"listen": "127.0.0.1:0"},
        "tls": {"certificate": "gateway.pem", "key": "gateway.key"},
        "state": {"directory": "state"}, "policies": {"directory": "policies"},
        "kubernetes": {}, "store": {"url": "sqlite:store.db"},
        "limits": {"requestsPerPerson": 100_000},
    });
    for (name, text) in [
        ("gateway.pem", pair.certificate),
        ("gateway.key", pair.key),
        ("state/cluster.yaml", secret.to_string()),
        ("state/agent.yaml", agent.to_string()),
        ("state/people.yaml", people.to_string()),
        ("tollgate.yaml", settings.to_string()),
    ] {
        std::fs::write(root.join(name), text).expect(name);
    }
    import(&root.join("store.db")).await;
    authority.pem
}

/// The person's token, as one that came from another platform.
async fn import(file: &Path) {
    let url = SecretString::from(format!("sqlite:{}", file.display()));
    let store = Store::open(&url).await.expect("a store");
    let now = jiff::Timestamp::now();
    let token = Token {
        id: uuid::Uuid::now_v7(),
        name: "bench".to_owned(),
        user: User {
            id: 1,
            username: "alice".to_owned(),
        },
        agent_id: AgentId::new(1).expect("a number"),
        scopes: vec!["k8s_proxy".to_owned()],
        created_at: now,
        expires_at: now.checked_add(Duration::from_secs(24 * 60 * 60)).expect("a time"),
        revoked_at: None,
        last_used_at: None,
    };
    let hash = SecretHash::of(&SecretString::from(SECRET));
    store.import_token(&token, hash).await.expect("a token");
}

async fn start(root: &Path) -> Child {
    let mut gateway = Command::new(env!("CARGO_BIN_EXE_tollgate"))
        .args(["serve", "--config"])
        .arg(root.join("tollgate.yaml"))
        .stderr(std::process::Stdio::piped())
        .kill_on_drop(true)
        .spawn()
        .expect("the gateway");
    let mut lines = BufReader::new(gateway.stderr.take().expect("its log")).lines();
    while !lines
        .next_line()
        .await
        .expect("a line")
        .expect("the gateway starts")
        .contains("listening")
    {}
    tokio::spawn(async move { while let Ok(Some(_)) = lines.next_line().await {} });
    gateway
}

impl World {
    fn client(&self, authority: &str, speaks: Speaks) -> Client {
        let builder = Client::builder()
            .tls_certs_only([Certificate::from_pem(authority.as_bytes()).expect("a certificate")])
            .no_proxy();
        let builder = match speaks {
            Speaks::Http1 => builder.http1_only(),
            Speaks::Http2 => builder,
        };
        builder.build().expect("a client")
    }

    fn through(&self, path: &str) -> (String, String) {
        (
            format!("https://{}/k8s-proxy{path}", self.address),
            format!("pat:1:{SECRET}"),
        )
    }

    fn direct(&self, path: &str) -> (String, String) {
        (format!("{}{path}", self.cluster.url()), self.token.clone())
    }

    /// Bytes of the gateway that are in memory.
    fn resident(&self) -> usize {
        let id = self.gateway.id().expect("it runs");
        let status = std::fs::read_to_string(format!("/proc/{id}/status")).expect("its status");
        let line = status
            .lines()
            .find_map(|line| line.strip_prefix("VmRSS:"))
            .expect("its memory");
        line.trim()
            .trim_end_matches(" kB")
            .trim()
            .parse::<usize>()
            .expect("a number")
            * 1024
    }

    /// Opens watches, each of which has shown its first event.
    async fn watch(&self, count: usize, speaks: Speaks) -> Vec<tokio::task::JoinHandle<()>> {
        let mut open = Vec::with_capacity(count);
        let (url, token) = self.through("/api/v1/namespaces?watch=true");
        let mut client = self.client(&self.authority, speaks);
        for at in 0..count {
            if matches!(speaks, Speaks::Http2) && at % STREAMS == 0 {
                client = self.client(&self.authority, speaks);
            }
            let mut answer = client.get(&url).bearer_auth(&token).send().await.expect("a watch");
            assert_eq!(answer.status(), 200);
            open.push(tokio::spawn(async move {
                while let Ok(Some(_)) = answer.chunk().await {}
                panic!("the watch ended");
            }));
        }
        open
    }
}

async fn ask(client: &Client, (url, token): &(String, String)) {
    let answer = client.get(url).bearer_auth(token).send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    let content = answer.bytes().await.expect("content");
    assert!(content.len() > PODS * 100, "{} bytes", content.len());
}

fn kubernetes(criterion: &mut Criterion) {
    rlimit::increase_nofile_limit(u64::MAX).expect("room for the clients' sockets");
    let runtime = runtime();
    let world = runtime.block_on(world());
    let is_test = std::env::args().any(|argument| argument == "--test");
    let watches = if is_test { 50 } else { WATCHES };
    let mut measure = |name: &str, client: &Client, asked: &(String, String)| {
        criterion.bench_function(&format!("kubernetes/{name}"), |bencher| {
            bencher.to_async(&runtime).iter(|| ask(client, asked));
        });
    };
    let pods = "/api/v1/pods";
    let direct = world.client(world.cluster.authority(), Speaks::Http2);
    measure("GET pods, direct", &direct, &world.direct(pods));
    let through = world.client(&world.authority, Speaks::Http2);
    measure("GET pods, gateway", &through, &world.through(pods));
    for (name, speaks) in [("HTTP/2", Speaks::Http2), ("HTTP/1.1", Speaks::Http1)] {
        let before = world.resident();
        let open = runtime.block_on(world.watch(watches, speaks));
        // What handshakes left behind is given back before it is counted.
        runtime.block_on(async { tokio::time::sleep(Duration::from_secs(2)).await });
        let taken = world.resident().saturating_sub(before);
        println!(
            "kubernetes: {watches} watches over {name}, TLS: {} bytes each",
            taken / watches
        );
        assert!(open.iter().all(|watch| !watch.is_finished()), "a watch ended");
        // The watches are the API server's as well, on the same two cores.
        measure(
            &format!("GET pods, direct, beside watches over {name}"),
            &direct,
            &world.direct(pods),
        );
        measure(
            &format!("GET pods, gateway, beside watches over {name}"),
            &through,
            &world.through(pods),
        );
        open.iter().for_each(tokio::task::JoinHandle::abort);
        runtime.block_on(async { tokio::time::sleep(Duration::from_secs(2)).await });
    }
}

fn copy_tree(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder") {
        let path = entry.expect("an entry").path();
        let target = to.join(path.file_name().expect("a name"));
        if path.is_dir() {
            copy_tree(&path, &target);
        } else {
            std::fs::copy(&path, target).expect("a file");
        }
    }
}

fn base64(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::STANDARD.encode(text)
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(50);
    targets = kubernetes
}
criterion_main!(benches);
