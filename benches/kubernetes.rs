//! Costs of the Kubernetes front: a list of pods through the gateway compared with a direct one,
//! and the effect of 2,000 open watches on memory and on the time of other requests.
//!
//! It runs a gateway process and a real kube-apiserver (`cargo xtask kubernetes`). Every response
//! is checked. Bytes per watch are printed to standard output.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a bench that cannot run panics; it also prints memory, which is not a time"
)]

use std::path::Path;
use std::time::Duration;

use criterion::{Criterion, criterion_group, criterion_main};
use reqwest::{Certificate, Client};
use secrecy::SecretString;
use serde_json::{Value, json};
use tokio::runtime::Runtime;
use tollgate_core::agent::AgentId;
use tollgate_core::user::User;
use tollgate_store::{SecretHash, Store, Token};

use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::gateway::{Gateway, Layout, base64};

/// Number of pods in the list.
const PODS: usize = 100;
/// Number of open watches; with `--test` there are fewer.
const WATCHES: usize = 2_000;
/// Watches on one HTTP/2 connection.
const STREAMS: usize = 100;
/// The user's token.
const SECRET: &str = "glpat-of-the-bench";

struct World {
    cluster: Cluster,
    token: String,
    gateway: Gateway,
}

/// Protocol of a client.
#[derive(Clone, Copy)]
enum Protocol {
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
    let gateway = serve(&cluster, &token).await;
    World {
        cluster,
        token,
        gateway,
    }
}

/// RBAC of the gateway and the user in the cluster.
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
    // A controller aggregates the role `view`, and no controller runs here.
    let view = json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole", "metadata": {"name": "bench-look"},
        "rules": [{"apiGroups": [""], "resources": ["pods", "namespaces"], "verbs": ["get", "list", "watch"]}],
    });
    let items = [
        view,
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

/// Starts a gateway with the cluster, an agent of it and one user.
async fn serve(cluster: &Cluster, token: &str) -> Gateway {
    let mut layout = Layout::new(&[], "");
    layout.policies("kubernetes");
    layout.tls();
    let config = json!({
        "bearerToken": token, "tlsClientConfig": {"caData": base64(cluster.authority())},
    });
    layout.cluster(
        "real",
        &json!({"name": "real", "server": cluster.url(), "config": config.to_string()}),
    );
    let own = |kind: &str, name: &str, spec: Value| {
        layout.write(&json!({
            "apiVersion": "tollgate.dev/v1alpha1", "kind": kind,
            "metadata": {"name": name, "namespace": "argocd"}, "spec": spec,
        }));
    };
    own(
        "Agent",
        "real",
        json!({
            "id": 1, "configProject": {"id": 1}, "cluster": "real",
            "config": {"user_access": {"access_as": {"user": {}}, "projects": [{"id": "a/b"}]}},
        }),
    );
    own(
        "UserDirectory",
        "people",
        json!({
            "users": [{"id": 1, "username": "alice"}],
            "projects": [{"id": 1, "path": "a/b", "members": [{"username": "alice", "role": "developer"}]}],
        }),
    );
    layout.settings(json!({
        "kubernetes": {}, "store": {"url": "sqlite:store.db"},
        "limits": {"requestsPerPerson": 100_000},
        // No decision file, as by default.
        "decisions": {},
    }));
    import(&layout.root().join("store.db")).await;
    layout.start().await
}

/// Imports the user's token into the store, as from another platform.
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
        agent: None,
        scopes: vec!["k8s_proxy".to_owned()],
        created_at: now,
        expires_at: now.checked_add(Duration::from_secs(24 * 60 * 60)).expect("a time"),
        revoked_at: None,
        last_used_at: None,
    };
    let hash = SecretHash::of(&SecretString::from(SECRET));
    store.import_token(&token, hash).await.expect("a token");
}

impl World {
    fn client(&self, authority: &str, protocol: Protocol) -> Client {
        let builder = Client::builder()
            .tls_certs_only([Certificate::from_pem(authority.as_bytes()).expect("a certificate")])
            .no_proxy();
        let builder = match protocol {
            Protocol::Http1 => builder.http1_only(),
            Protocol::Http2 => builder,
        };
        builder.build().expect("a client")
    }

    fn via_gateway(&self, path: &str) -> (String, String) {
        (
            format!("{}/k8s-proxy{path}", self.gateway.url()),
            format!("pat:1:{SECRET}"),
        )
    }

    fn direct(&self, path: &str) -> (String, String) {
        (format!("{}{path}", self.cluster.url()), self.token.clone())
    }

    fn authority(&self) -> String {
        self.gateway.authority().expect("a certificate")
    }

    /// Resident memory of the gateway, in bytes.
    fn resident(&self) -> usize {
        let id = process(&self.gateway.path("tollgate.yaml"));
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

    /// Opens watches and waits until the response of each has begun.
    async fn watch(&self, count: usize, protocol: Protocol) -> Vec<tokio::task::JoinHandle<()>> {
        let mut open = Vec::with_capacity(count);
        let (url, token) = self.via_gateway("/api/v1/namespaces?watch=true");
        let authority = self.authority();
        let mut client = self.client(&authority, protocol);
        for at in 0..count {
            if matches!(protocol, Protocol::Http2) && at % STREAMS == 0 {
                client = self.client(&authority, protocol);
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

async fn get(client: &Client, (url, token): &(String, String)) {
    let answer = client.get(url).bearer_auth(token).send().await.expect("an answer");
    assert_eq!(answer.status(), 200);
    let content = answer.bytes().await.expect("content");
    assert!(content.len() > PODS * 100, "{} bytes", content.len());
}

fn kubernetes(criterion: &mut Criterion) {
    rlimit::increase_nofile_limit(u64::MAX).expect("a higher limit of open files");
    let runtime = runtime();
    let world = runtime.block_on(world());
    let is_test = std::env::args().any(|argument| argument == "--test");
    let watches = if is_test { 50 } else { WATCHES };
    let mut measure = |name: &str, client: &Client, asked: &(String, String)| {
        criterion.bench_function(&format!("kubernetes/{name}"), |bencher| {
            bencher.to_async(&runtime).iter(|| get(client, asked));
        });
    };
    let pods = "/api/v1/pods";
    let direct = world.client(world.cluster.authority(), Protocol::Http2);
    measure("GET pods, direct", &direct, &world.direct(pods));
    let through = world.client(&world.authority(), Protocol::Http2);
    measure("GET pods, gateway", &through, &world.via_gateway(pods));
    for (name, protocol) in [("HTTP/2", Protocol::Http2), ("HTTP/1.1", Protocol::Http1)] {
        let before = world.resident();
        let open = runtime.block_on(world.watch(watches, protocol));
        // Memory of the handshakes is freed before it is measured.
        runtime.block_on(async { tokio::time::sleep(Duration::from_secs(2)).await });
        let taken = world.resident().saturating_sub(before);
        println!(
            "kubernetes: {watches} watches over {name}, TLS: {} bytes each",
            taken / watches
        );
        assert!(open.iter().all(|watch| !watch.is_finished()), "a watch ended");
        // Measured again because the API server serves the watches too, on the same two cores.
        measure(
            &format!("GET pods, direct, beside watches over {name}"),
            &direct,
            &world.direct(pods),
        );
        measure(
            &format!("GET pods, gateway, beside watches over {name}"),
            &through,
            &world.via_gateway(pods),
        );
        open.iter().for_each(tokio::task::JoinHandle::abort);
        runtime.block_on(async { tokio::time::sleep(Duration::from_secs(2)).await });
    }
}

/// Id of the process that runs with this settings file.
fn process(settings: &Path) -> u32 {
    let settings = settings.to_str().expect("a text");
    let processes = std::fs::read_dir("/proc").expect("/proc");
    let mut ids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let serves = |id: &u32| {
        let arguments = std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        arguments.split('\0').any(|argument| argument == settings)
    };
    ids.find(serves).expect("a running gateway")
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(50);
    targets = kubernetes
}
criterion_main!(benches);
