//! A simulated node: a test kubelet whose pods are folders of this machine.

use std::fs;
use std::path::Path;

use serde_json::{Value, json};

use super::daemon::Daemon;
use super::kubectl::Kubectl;
use super::{eventually, kubelet};
use crate::authority::Authority;

/// The name of the node.
const NAME: &str = "node";

/// A test kubelet that is registered as a Node.
pub struct Node {
    _kubelet: Daemon,
}

impl Node {
    /// Starts the kubelet below `root` and registers it at the API server.
    ///
    /// - `servers`: signs its certificate.
    /// - `clients`: the authority whose client certificates it accepts.
    pub async fn start(root: &Path, servers: &Authority, clients: &Authority, admin: &Kubectl) -> Self {
        // Its own folder exists only once it runs.
        let files = tempfile::tempdir().unwrap();
        let pair = servers.server(&["127.0.0.1"]);
        let mut arguments = Vec::new();
        for (flag, text) in [
            ("tls-cert-file", &pair.certificate),
            ("tls-private-key-file", &pair.key),
            ("client-ca-file", &clients.pem),
        ] {
            let path = files.path().join(flag);
            fs::write(&path, text).unwrap();
            arguments.push(format!("--{flag}={}", path.display()));
        }
        let mut kubelet = Daemon::run("kubelet", &kubelet(), root, &arguments);
        let port = kubelet.folder().join("port");
        let port = eventually("the kubelet listens", async || {
            kubelet.check();
            fs::read_to_string(&port).ok()
        })
        .await;
        register(admin, port.parse().unwrap()).await;
        Self { _kubelet: kubelet }
    }

    /// Gives a pod of this node the status of a running one.
    pub async fn run(&self, admin: &Kubectl, namespace: &str, name: &str) {
        let status = json!({"status": {
            "phase": "Running",
            "conditions": [{"type": "Ready", "status": "True"}],
            "containerStatuses": [{
                "name": "main", "ready": true, "restartCount": 0, "image": "none.invalid/main", "imageID": "none",
                "started": true, "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
            }],
        }});
        let (namespace, patch) = (format!("--namespace={namespace}"), format!("--patch={status}"));
        admin
            .succeed(&["patch", "pod", name, &namespace, "--subresource=status", &patch])
            .await;
    }
}

/// A pod of the node, without a namespace.
pub fn pod(name: &str) -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {"nodeName": NAME, "containers": [{
            "name": "main", "image": "none.invalid/main", "stdin": true, "ports": [{"containerPort": 80}],
        }]},
    })
}

async fn register(admin: &Kubectl, port: u16) {
    let node = json!({"apiVersion": "v1", "kind": "Node", "metadata": {"name": NAME}});
    admin.apply(&node.to_string()).await;
    let status = json!({"status": {
        "addresses": [{"type": "InternalIP", "address": "127.0.0.1"}],
        "conditions": [{"type": "Ready", "status": "True"}],
        "daemonEndpoints": {"kubeletEndpoint": {"Port": port}},
    }});
    let patch = format!("--patch={status}");
    admin
        .succeed(&["patch", "node", NAME, "--subresource=status", &patch])
        .await;
}
