//! What the Kubernetes front costs: a list of pods through the gateway beside the
//! same list direct, and what 2,000 open watches take of memory and of others' time.
//!
//! In: a real kube-apiserver (`cargo xtask kubernetes`) and a gateway process. Out:
//! times of one request, and bytes a watch, on standard output. Never: an answer
//! that is not checked; a fake API server.

#![expect(
    clippy::expect_used,
    clippy::panic,
    clippy::print_stdout,
    reason = "a bench that cannot run should say so and end; its second result is no time"
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
use tollgate_identity::store::{SecretHash, Store, Token};

use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::gateway::{Gateway, Layout, base64};

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
    gateway: Gateway,
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
    let gateway = serve(&cluster, &token).await;
    World {
        cluster,
        token,
        gateway,
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

/// A gateway with the cluster, an agent of it and one person.
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
        // Written only where an operator asks for it.
        "decisions": {},
    }));
    import(&layout.root().join("store.db")).await;
    layout.start().await
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

    /// Bytes of the gateway that are in memory.
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

    /// Opens watches, each of which has shown its first event.
    async fn watch(&self, count: usize, speaks: Speaks) -> Vec<tokio::task::JoinHandle<()>> {
        let mut open = Vec::with_capacity(count);
        let (url, token) = self.through("/api/v1/namespaces?watch=true");
        let authority = self.authority();
        let mut client = self.client(&authority, speaks);
        for at in 0..count {
            if matches!(speaks, Speaks::Http2) && at % STREAMS == 0 {
                client = self.client(&authority, speaks);
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
    let through = world.client(&world.authority(), Speaks::Http2);
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

/// The process that serves by these settings.
fn process(settings: &Path) -> u32 {
    let settings = settings.to_str().expect("a text");
    let processes = std::fs::read_dir("/proc").expect("/proc");
    let mut ids = processes.filter_map(|entry| entry.ok()?.file_name().to_str()?.parse().ok());
    let serves = |id: &u32| {
        let arguments = std::fs::read_to_string(format!("/proc/{id}/cmdline")).unwrap_or_default();
        arguments.split('\0').any(|argument| argument == settings)
    };
    ids.find(serves).expect("the gateway runs")
}

criterion_group! {
    name = benches;
    config = Criterion::default().sample_size(50);
    targets = kubernetes
}
criterion_main!(benches);
