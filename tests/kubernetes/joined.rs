//! Clusters that join by `tollgate cluster join`, and the agents of such clusters.

use std::path::PathBuf;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use test_support::kubernetes::agent::AgentProcess;
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::gateway::Gateway;

/// Name of the agent's objects.
pub(crate) const AGENT: &str = "tollgate-agent";

/// A cluster and the place of its agent.
pub(crate) struct JoinedCluster<'a> {
    pub(crate) cluster: &'a Cluster,
    files: TempDir,
    /// Namespace of the agent.
    pub(crate) namespace: String,
}

/// What the command wrote.
pub(crate) struct Joined {
    /// The gateway's Secret of the cluster, if it went to a file.
    pub(crate) secret: Option<Value>,
    pub(crate) token: String,
}

impl<'a> JoinedCluster<'a> {
    /// A cluster that is to join. Does nothing yet.
    pub(crate) async fn new(cluster: &'a Cluster) -> Self {
        Self {
            cluster,
            files: tempfile::tempdir().unwrap(),
            namespace: cluster.namespace("agent").await,
        }
    }

    /// Runs the command, and applies the manifests.
    ///
    /// - `more`: whom the gateway may act as, for example.
    pub(crate) async fn join(&self, name: &str, gateway: &Gateway, more: &[&str]) -> Joined {
        let file = self.files.path().join("secret.yaml");
        let is_in_file = !more.contains(&"--kubeconfig");
        let mut command = Command::new(test_support::tollgate());
        command
            .args(["cluster", "join", name, "--gateway", &gateway.url(), "--ca"])
            .arg(gateway.path("gateway-ca.pem"))
            .args(["--cluster-server", self.cluster.url(), "--namespace", &self.namespace])
            .arg("--config")
            .arg(gateway.path("tollgate.yaml"))
            .args(more);
        if is_in_file {
            command.arg("--secret-file").arg(&file);
        }
        let output = command.output().await.unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{stderr}");
        let manifests = String::from_utf8(output.stdout).unwrap();
        std::fs::write(self.manifests(), &manifests).unwrap();
        self.apply(&manifests).await;
        let documents = manifests.split("---\n").filter(|document| !document.trim().is_empty());
        let mut documents = documents.map(|document| serde_saphyr::from_str::<Value>(document).unwrap());
        let secret = documents.find(|document| document["kind"] == "Secret").unwrap();
        Joined {
            secret: is_in_file.then(|| serde_saphyr::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap()),
            token: secret["stringData"]["joinToken"].as_str().unwrap().to_owned(),
        }
    }

    fn manifests(&self) -> PathBuf {
        self.files.path().join("manifests.yaml")
    }

    async fn apply(&self, manifests: &str) {
        let applied = self.cluster.admin().run_with(&["apply", "-f", "-"], manifests).await;
        assert!(applied.status.success(), "{applied:?}");
    }

    /// A member of the agent's Secret.
    pub(crate) async fn member(&self, name: &str) -> Option<String> {
        let namespace = format!("--namespace={}", self.namespace);
        let secret = self.cluster.admin().json(&["get", "secret", AGENT, &namespace]).await;
        secret["data"][name].as_str().map(str::to_owned)
    }

    /// Runs an agent with the settings of the manifests.
    ///
    /// - `more`: settings that differ.
    pub(crate) async fn run(&self, more: &Value) -> AgentProcess {
        AgentProcess::start(&self.folder(&self.namespace, more).await)
    }

    /// The same with another clock.
    ///
    /// - `shift`: such as `+1d`.
    pub(crate) async fn run_at(&self, shift: &str) -> AgentProcess {
        AgentProcess::start_at(shift, &self.folder(&self.namespace, &json!({})).await)
    }

    /// Runs the agent of a thief, who has the manifests and applies them in another namespace.
    pub(crate) async fn run_stolen(&self) -> AgentProcess {
        let namespace = self.cluster.namespace("thief").await;
        let manifests = std::fs::read_to_string(self.manifests()).unwrap();
        self.apply(&manifests.replace(&self.namespace, &namespace)).await;
        AgentProcess::start(&self.folder(&namespace, &json!({})).await)
    }

    /// The files of a pod with the settings of the manifests.
    async fn folder(&self, namespace: &str, more: &Value) -> PathBuf {
        let admin = self.cluster.admin();
        let in_namespace = format!("--namespace={namespace}");
        let map = admin.json(&["get", "configmap", AGENT, &in_namespace]).await;
        let folder = tempfile::tempdir_in(self.files.path()).unwrap().keep();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        write(
            "token",
            &admin.succeed(&["create", "token", AGENT, &in_namespace]).await,
        );
        write("api.pem", self.cluster.authority());
        write("gateway.pem", map["data"]["gateway.pem"].as_str().unwrap());
        let mut settings: Value = serde_saphyr::from_str(map["data"]["agent.yaml"].as_str().unwrap()).unwrap();
        // Of its pod otherwise.
        settings["apiServer"] = json!({"url": self.cluster.url(), "certificateAuthority": "api.pem", "token": "token"});
        // Pods have the port each to themselves.
        settings["health"] = json!({"listen": "127.0.0.1:0"});
        for (key, value) in more.as_object().unwrap() {
            settings[key] = value.clone();
        }
        write("agent.yaml", &settings.to_string());
        folder
    }
}
