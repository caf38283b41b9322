//! Tests the harness: its pods behave as tests expect, with kubectl and without a gateway.

use std::net::SocketAddr;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::{TcpListener, TcpStream};

use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::kubectl::{Credential, Kubectl, Protocol};

/// The administrator's kubectl with this protocol, and a running pod.
async fn fixture(protocol: Protocol) -> (&'static Cluster, Kubectl, String) {
    let cluster = Cluster::shared().await;
    let namespace = cluster.namespace("kubelet").await;
    cluster.running_pod(&namespace, "pod").await;
    let pair = cluster.certificate("administrator", Some("system:masters"));
    let kubectl = cluster.kubectl(Credential::Certificate(pair)).speak(protocol);
    (cluster, kubectl, format!("--namespace={namespace}"))
}

async fn check(protocol: Protocol) {
    let (cluster, kubectl, there) = fixture(protocol).await;
    let namespace = there.rsplit('=').next().unwrap();
    use_pod(&kubectl, namespace).await;
    assert_protocol(cluster, namespace, protocol).await;
}

/// Uses the pod `pod` in every way: exec with and without a terminal, cp in both directions,
/// port-forward and attach.
pub(crate) async fn use_pod(kubectl: &Kubectl, namespace: &str) {
    let there = &format!("--namespace={namespace}");
    let run = kubectl
        .run(&["exec", there, "pod", "--", "sh", "-c", "echo out; echo err >&2; exit 3"])
        .await;
    assert_eq!((run.stdout.as_str(), run.status.code()), ("out\n", Some(3)), "{run:?}");
    assert!(run.stderr.contains("err\n"), "{run:?}");
    let run = kubectl
        .run_with(&["exec", "-i", there, "pod", "--", "cat"], "to and fro")
        .await;
    assert_eq!(run.stdout, "to and fro", "{run:?}");
    terminal(kubectl, there).await;
    copy(kubectl, namespace).await;
    forward(kubectl, there).await;

    let mut attached = kubectl.start(&["attach", "-i", there, "pod"]);
    attached.line("attached to").await.unwrap();
    attached.say("hello\n").await;
    attached.line("heard: hello").await.unwrap();
    attached.hang_up();
    assert!(attached.end().await.status.success());
}

/// Asserts by the audit log that this protocol and no other was used for the pods of a namespace,
/// because kubectl falls back silently.
pub(crate) async fn assert_protocol(cluster: &Cluster, namespace: &str, protocol: Protocol) {
    let (verb, other) = match protocol {
        Protocol::WebSocket => ("get", "create"),
        Protocol::Spdy => ("create", "get"),
    };
    for subresource in ["exec", "attach", "portforward"] {
        let is = |event: &serde_json::Value, verb: &str| {
            let object = &event["objectRef"];
            object["namespace"] == namespace && object["subresource"] == subresource && event["verb"] == verb
        };
        cluster.audit().find_with(namespace, |event| is(event, verb)).await;
        let events = cluster.audit().events_with(namespace);
        assert!(!events.iter().any(|event| is(event, other)), "{subresource}");
    }
}

/// A shell with a terminal detects it, and its exit code is returned.
async fn terminal(kubectl: &Kubectl, there: &str) {
    let mut shell = kubectl.start_at_terminal(&["exec", "-it", there, "pod", "--", "sh"]);
    shell.say("test -t 0 && echo is a $((40 + 2)) terminal\n").await;
    shell.line("is a 42 terminal").await.unwrap();
    shell.say("exit 7\n").await;
    let run = shell.end().await;
    assert_eq!(run.status.code(), Some(7), "{run:?}");
}

/// Copies a megabyte to the pod and back.
async fn copy(kubectl: &Kubectl, namespace: &str) {
    let bytes: Vec<u8> = (0..1_000_000_u32).map(|number| number.to_le_bytes()[1]).collect();
    std::fs::write(kubectl.home().join("there"), &bytes).unwrap();
    kubectl
        .succeed(&["cp", "there", &format!("{namespace}/pod:copied")])
        .await;
    kubectl
        .succeed(&["cp", &format!("{namespace}/pod:copied"), "back"])
        .await;
    assert!(std::fs::read(kubectl.home().join("back")).unwrap() == bytes);
}

/// Two connections through one forwarded port.
async fn forward(kubectl: &Kubectl, there: &str) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    let echo = tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let (mut read, mut write) = stream.split();
                tokio::io::copy(&mut read, &mut write).await
            });
        }
    });
    let mut forward = kubectl.start(&["port-forward", there, "pod/pod", &format!(":{port}")]);
    let line = forward.line("Forwarding from 127.0.0.1").await.unwrap();
    let address: SocketAddr = line.split(' ').nth(2).unwrap().parse().unwrap();
    for text in ["first", "second"] {
        let mut stream = TcpStream::connect(address).await.unwrap();
        stream.write_all(text.as_bytes()).await.unwrap();
        let mut answer = vec![0; text.len()];
        stream.read_exact(&mut answer).await.unwrap();
        assert_eq!(answer, text.as_bytes());
    }
    assert!(forward.runs());
    echo.abort();
}

#[tokio::test]
async fn a_pod_can_be_used_with_websockets() {
    check(Protocol::WebSocket).await;
}

#[tokio::test]
async fn a_pod_can_be_used_with_spdy() {
    check(Protocol::Spdy).await;
}

#[tokio::test]
async fn a_pods_log_can_be_read_and_followed() {
    let (_, kubectl, there) = fixture(Protocol::WebSocket).await;
    let past = kubectl.succeed(&["logs", &there, "pod", "--tail=2"]).await;
    let lines: Vec<&str> = past.lines().filter_map(|line| line.split(" of ").next()).collect();
    assert_eq!(lines, ["line 9", "line 10"]);

    let mut follow = kubectl.start(&["logs", "-f", &there, "pod"]);
    for line in ["line 1 ", "line 10 ", "line 11 ", "line 13 "] {
        follow.line(line).await.unwrap();
    }
    assert!(follow.runs());
}

/// The control plane and the kubelet are of the same release.
#[test]
fn both_modules_require_the_same_release() {
    let requires = |module: &str, package: &str| {
        let path = format!("{}/{module}/go.mod", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).unwrap();
        let line = text.lines().find(|line| line.trim().starts_with(package)).unwrap();
        line.split_whitespace().nth(1).unwrap().to_owned()
    };
    let built = requires(test_support::programs::KUBERNETES_MODULE, "k8s.io/kubernetes ");
    let streaming = requires(test_support::programs::KUBELET_MODULE, "k8s.io/cri-streaming ");
    assert_eq!(built.split_once('.').unwrap().1, streaming.split_once('.').unwrap().1);
}
