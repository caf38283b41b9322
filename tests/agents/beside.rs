//! One API server, asked directly and through a gateway and an agent.

use std::process::Stdio;

use serde_json::{Value, json};
use tokio::io::{AsyncBufReadExt as _, AsyncReadExt as _, AsyncWriteExt as _, BufReader};
use tokio::time::{Duration, Instant, sleep, timeout};

use crate::{Effort, Measured, percentile, say};
use test_support::kubernetes::agent::{AgentProcess, ApiServer, make_key};
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::gateway::{Gateway, Layout, kubeconfig, session};
use test_support::kubernetes::kubectl::{Credential, Kubectl};

/// Name and namespace of everything here.
const NAME: &str = "measured";

/// Objects of the list.
const PODS: usize = 100;

/// Changes that the watches see, and bytes of each. Together they are more than what a stream has room for.
const EVENTS: usize = 60;
const EVENT_BYTES: usize = 8 << 10;

/// Watches on one connection to the gateway.
const STREAMS_OF_CONNECTION: usize = 50;

/// The longest wait for anything.
const PATIENCE: Duration = Duration::from_secs(120);

/// A cluster whose agent may do everything in it.
struct Site {
    cluster: Cluster,
    gateway: Gateway,
    _agent: AgentProcess,
    _files: tempfile::TempDir,
}

/// How requests go.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Way {
    Direct,
    Agent,
}

pub(crate) async fn measure(effort: Effort) {
    say("one cluster, directly and through its agent");
    let site = Site::start().await;
    lists(&site, effort).await;
    keystrokes(&site, effort).await;
    long_answers(&site, effort).await;
    watches(&site, effort).await;
}

impl Site {
    async fn start() -> Self {
        let cluster = Cluster::start().await;
        let files = tempfile::tempdir().unwrap();
        let key = make_key(files.path()).await;
        let mut layout = Layout::new(&["alice"], "g, alice, role:all\np, role:all, *, *, *, allow\n");
        layout.tls();
        layout.settings(json!({"clusters": {"forward": true}, "limits": {"requestsPerPerson": 10_000}}));
        let config = json!({"agent": {"publicKeys": [key]}});
        layout.cluster(
            NAME,
            &json!({"name": NAME, "server": "https://measured.invalid", "config": config.to_string()}),
        );
        let gateway = layout.start().await;
        let admin = cluster.admin();
        admin.succeed(&["create", "namespace", NAME]).await;
        cluster.service_account(NAME, "agent").await;
        let account = format!("--serviceaccount={NAME}:agent");
        admin
            .succeed(&[
                "create",
                "clusterrolebinding",
                NAME,
                "--clusterrole=cluster-admin",
                &account,
            ])
            .await;
        let api = ApiServer {
            url: cluster.url(),
            authority: cluster.authority(),
            token: &admin.succeed(&["create", "token", "agent", "--namespace", NAME]).await,
        };
        let agent = AgentProcess::with_key(files.path(), &gateway, api, &json!({"ownAccount": "everything"}));
        let site = Self {
            cluster,
            gateway,
            _agent: agent,
            _files: files,
        };
        let (client, url) = (site.client(Way::Agent), site.url(Way::Agent));
        let served = async {
            while !client
                .get(format!("{url}/version"))
                .send()
                .await
                .unwrap()
                .status()
                .is_success()
            {
                sleep(Duration::from_millis(100)).await;
            }
        };
        timeout(PATIENCE, served).await.unwrap();
        site
    }

    fn client(&self, way: Way) -> reqwest::Client {
        match way {
            Way::Direct => {
                let pair = self.cluster.certificate("administrator", Some("system:masters"));
                self.cluster.client_with(&pair)
            }
            Way::Agent => self.gateway.client("alice"),
        }
    }

    fn url(&self, way: Way) -> String {
        match way {
            Way::Direct => self.cluster.url().to_owned(),
            Way::Agent => format!("{}/clusters/{NAME}/k8s", self.gateway.url()),
        }
    }

    fn kubectl(&self, way: Way) -> Kubectl {
        match way {
            Way::Direct => {
                let pair = self.cluster.certificate("administrator", Some("system:masters"));
                self.cluster.kubectl(Credential::Certificate(pair))
            }
            Way::Agent => {
                let authority = test_support::kubernetes::gateway::base64(&self.gateway.authority().unwrap());
                let server = json!({"server": self.url(Way::Agent), "certificate-authority-data": authority});
                Kubectl::with_kubeconfig(&kubeconfig(&server, &json!({"token": session("alice")})))
            }
        }
    }
}

/// Measures both ways in alternating rounds, and returns the best round of each.
///
/// - `round`: less is better.
async fn best_of_rounds(effort: Effort, mut round: impl AsyncFnMut(Way) -> f64) -> [f64; 2] {
    let mut best = [f64::INFINITY; 2];
    for pair in 0..effort.rounds {
        let ways = match pair % 2 {
            0 => [Way::Direct, Way::Agent],
            _ => [Way::Agent, Way::Direct],
        };
        for way in ways {
            let took = round(way).await;
            let slot = usize::from(way == Way::Agent);
            best[slot] = best[slot].min(took);
        }
    }
    best
}

async fn lists(site: &Site, effort: Effort) {
    let pod = |number: usize| {
        json!({
            "apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("pod-{number}"), "namespace": NAME},
            "spec": {"containers": [{"name": "main", "image": "none.invalid/main"}]},
        })
    };
    let pods: Vec<Value> = (0..PODS).map(pod).collect();
    let list = json!({"apiVersion": "v1", "kind": "List", "items": pods});
    site.cluster.admin().apply(&list.to_string()).await;
    let clients = [site.client(Way::Direct), site.client(Way::Agent)];
    let [direct, agent] = best_of_rounds(effort, async |way| {
        let client = &clients[usize::from(way == Way::Agent)];
        let url = format!("{}/api/v1/namespaces/{NAME}/pods", site.url(way));
        let mut times = Vec::new();
        for _ in 0..effort.requests {
            let begun = Instant::now();
            let answer = client.get(&url).send().await.unwrap().error_for_status().unwrap();
            answer.bytes().await.unwrap();
            times.push(begun.elapsed().as_secs_f64());
        }
        percentile(&mut times, 50)
    })
    .await;
    say(&format!(
        "a list takes {:.2} ms directly and {:.2} ms through the agent",
        direct * 1e3,
        agent * 1e3
    ));
    Measured::at_most("time of a list of 100 pods", (agent / direct, "×"), 1.25).print();
}

/// The time from a line to its echo.
async fn keystrokes(site: &Site, effort: Effort) {
    site.cluster.running_pod(NAME, "pod").await;
    let [direct, agent] = best_of_rounds(effort, async |way| {
        let kubectl = site.kubectl(way);
        let mut shell = kubectl.command(&["exec", "-i", "--namespace", NAME, "pod", "--", "cat"]);
        let mut shell = shell.stdin(Stdio::piped()).stderr(Stdio::null()).spawn().unwrap();
        let (mut keys, mut screen) = (
            shell.stdin.take().unwrap(),
            BufReader::new(shell.stdout.take().unwrap()),
        );
        let mut times = Vec::new();
        for _ in 0..effort.requests {
            let begun = Instant::now();
            keys.write_all(b"x\n").await.unwrap();
            let mut line = String::new();
            timeout(PATIENCE, screen.read_line(&mut line)).await.unwrap().unwrap();
            times.push(begun.elapsed().as_secs_f64());
        }
        percentile(&mut times, 50)
    })
    .await;
    say(&format!(
        "an echo takes {:.2} ms directly and {:.2} ms through the agent",
        direct * 1e3,
        agent * 1e3
    ));
    Measured::at_most(
        "what an echo of `exec` takes longer",
        ((agent - direct) * 1e3, "ms"),
        2.0,
    )
    .print();
}

/// Bytes from a pod in one stream.
async fn long_answers(site: &Site, effort: Effort) {
    let [direct, agent] = best_of_rounds(effort, async |way| {
        let kubectl = site.kubectl(way);
        let bytes = effort.bytes.to_string();
        let mut reading = kubectl.command(&[
            "exec",
            "--namespace",
            NAME,
            "pod",
            "--",
            "head",
            "-c",
            &bytes,
            "/dev/zero",
        ]);
        let mut reading = reading.stdin(Stdio::null()).stderr(Stdio::null()).spawn().unwrap();
        let mut output = reading.stdout.take().unwrap();
        let mut buffer = vec![0; 1 << 16];
        let mut read = 0;
        // The program's own start is no part of it.
        let mut begun = None;
        loop {
            let length = timeout(PATIENCE, output.read(&mut buffer)).await.unwrap().unwrap();
            if length == 0 {
                break;
            }
            begun.get_or_insert_with(Instant::now);
            read += length;
        }
        assert_eq!(read, effort.bytes);
        begun.unwrap().elapsed().as_secs_f64()
    })
    .await;
    let rate = |seconds: f64| effort.bytes as f64 / seconds / f64::from(1 << 20);
    say(&format!(
        "a stream has {:.0} MiB/s directly and {:.0} MiB/s through the agent",
        rate(direct),
        rate(agent)
    ));
    Measured::at_least(
        "throughput of 100 MB from a pod in one stream",
        (direct / agent, "×"),
        0.7,
    )
    .print();
}

/// One watch that is read among many that are not.
async fn watches(site: &Site, effort: Effort) {
    let mut client = site.client(Way::Agent);
    let url = format!("{}/api/v1/namespaces/{NAME}/configmaps?watch=1", site.url(Way::Agent));
    let mut stalled = Vec::new();
    for number in 1..effort.watches {
        // The gateway allows so many on a connection.
        if number % STREAMS_OF_CONNECTION == 0 {
            client = site.client(Way::Agent);
        }
        stalled.push(client.get(&url).send().await.unwrap().error_for_status().unwrap());
    }
    let reader = site.client(Way::Agent);
    let mut watch = reader.get(&url).send().await.unwrap().error_for_status().unwrap();
    say(&format!("{} watches are open, and one of them is read", effort.watches));
    let (writer, objects) = (
        site.client(Way::Direct),
        format!("{}/api/v1/namespaces/{NAME}/configmaps", site.cluster.url()),
    );
    let filling = "x".repeat(EVENT_BYTES);
    let mut seen = String::new();
    let mut times = Vec::new();
    for number in 0..EVENTS {
        let name = format!("event-{number}");
        let object = json!({"metadata": {"name": name}, "data": {"filling": filling}});
        let begun = Instant::now();
        let written = writer.post(&objects).json(&object).send().await.unwrap();
        written.error_for_status().unwrap();
        let is_there = async {
            while !seen.contains(&format!("\"{name}\"")) {
                let bytes = watch.chunk().await.unwrap().unwrap();
                seen.push_str(&String::from_utf8_lossy(&bytes));
            }
        };
        timeout(PATIENCE, is_there).await.unwrap();
        times.push(begun.elapsed().as_secs_f64() * 1e3);
        seen.clear();
    }
    let slowest = percentile(&mut times, 99);
    say(&format!(
        "an event takes {:.0} ms, p99 {slowest:.0} ms",
        percentile(&mut times, 50)
    ));
    Measured::at_most(
        "p99 of an event, while 1,999 other watches are not read",
        (slowest, "ms"),
        250.0,
    )
    .print();
    drop(stalled);
}
