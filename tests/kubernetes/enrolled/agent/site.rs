//! A cluster that joined by `tollgate cluster join`, and its agent.

use std::path::PathBuf;
use std::process::Stdio;

use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::{Child, Command};

use super::super::{COMPONENT, OWN, Scene};
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::{Gateway, Layout, session};
use test_support::kubernetes::kubectl::{Kubectl, Run};

/// Name of the agent's objects.
const AGENT: &str = "tollgate-agent";

/// The Secret `destination` of a cluster with this agent.
pub(super) fn secret(server: &str, agent: &Value) -> Value {
    let config = json!({"agent": agent});
    json!({
        "apiVersion": "v1", "kind": "Secret",
        "metadata": {"name": "destination", "namespace": OWN, "labels": {"tollgate.dev/secret-type": "cluster"}},
        "stringData": {"server": server, "config": config.to_string()},
    })
}

pub(super) struct Site {
    pub(super) scene: Scene,
    files: TempDir,
    /// Namespace of the agent.
    pub(super) namespace: String,
}

/// A process of the agent.
pub(super) struct AgentProcess {
    pub(super) process: Child,
    log: PathBuf,
}

impl AgentProcess {
    pub(super) fn log(&self) -> String {
        std::fs::read_to_string(&self.log).unwrap()
    }

    pub(super) async fn until_logged(&self, text: &str) {
        eventually(&format!("the agent logs `{text}`"), async || {
            self.log().contains(text).then_some(())
        })
        .await;
    }
}

impl Site {
    pub(super) async fn start() -> Self {
        Self::start_with(|_, _| {}).await
    }

    /// - `configure`: what differs about the gateway.
    pub(super) async fn start_with(configure: impl FnOnce(&mut Layout, &Cluster)) -> Self {
        let scene = Scene::start_with(|layout, cluster| {
            layout.write(&secret(cluster.url(), &json!({})));
            layout.settings(json!({"agents": {}}));
            let policy = format!(
                "p, {COMPONENT}, clusters, get, *, allow\np, {COMPONENT}, clusters, update, *, allow\n\
                 p, {COMPONENT}, clusters, connect, *, allow\n"
            );
            layout.object(
                "ConfigMap",
                "argocd-rbac-cm",
                &json!({}),
                &json!({"policy.csv": policy}),
            );
            configure(layout, cluster);
        })
        .await;
        let namespace = scene.cluster.namespace("agent").await;
        Self {
            files: tempfile::tempdir().unwrap(),
            scene,
            namespace,
        }
    }

    /// Runs `tollgate` with a token of Argo CD's component.
    pub(super) async fn tollgate(&self, arguments: &[&str]) -> Run {
        let authority = self.scene.gateway.path("gateway-ca.pem");
        let output = Command::new(test_support::tollgate())
            .args(arguments)
            .arg("--server")
            .arg(self.scene.gateway.url())
            .arg("--certificate-authority")
            .arg(authority)
            .env("TOLLGATE_AUTH_TOKEN", session(COMPONENT))
            .output()
            .await
            .unwrap();
        Run {
            status: output.status,
            stdout: String::from_utf8(output.stdout).unwrap(),
            stderr: String::from_utf8(output.stderr).unwrap(),
        }
    }

    /// Runs the command, gives the gateway its Secret, and applies the manifests. Returns the token.
    pub(super) async fn join(&self, gateways: &[&Gateway], more: &[&str]) -> String {
        let Self { scene, .. } = self;
        let file = self.files.path().join("secret.yaml");
        let (reader, deployer) = (format!("{}:reader", scene.own), format!("{}:deployer", scene.home));
        let output = Command::new(test_support::tollgate())
            .args([
                "cluster",
                "join",
                "destination",
                "--gateway",
                &scene.gateway.url(),
                "--ca",
            ])
            .arg(scene.gateway.path("gateway-ca.pem"))
            .args(["--cluster-server", scene.cluster.url(), "--namespace", &self.namespace])
            .args(["--service-account", &reader, "--service-account", &deployer])
            .arg("--secret-file")
            .arg(&file)
            .arg("--config")
            .arg(scene.gateway.path("tollgate.yaml"))
            .args(more)
            .output()
            .await
            .unwrap();
        let stderr = String::from_utf8(output.stderr).unwrap();
        assert!(output.status.success(), "{stderr}");
        let written: Value = serde_saphyr::from_str(&std::fs::read_to_string(&file).unwrap()).unwrap();
        assert_eq!(written["metadata"]["labels"]["tollgate.dev/secret-type"], "cluster");
        let config: Value = serde_json::from_str(written["stringData"]["config"].as_str().unwrap()).unwrap();
        for gateway in [&scene.gateway].into_iter().chain(gateways.iter().copied()) {
            gateway.rewrite(&secret(scene.cluster.url(), &config["agent"]));
        }
        let manifests = String::from_utf8(output.stdout).unwrap();
        std::fs::write(self.files.path().join("manifests.yaml"), &manifests).unwrap();
        let applied = scene.cluster.admin().run_with(&["apply", "-f", "-"], &manifests).await;
        assert!(applied.status.success(), "{applied:?}");
        let documents = manifests.split("---\n").filter(|document| !document.trim().is_empty());
        let mut documents = documents.map(|document| serde_saphyr::from_str::<Value>(document).unwrap());
        let secret = documents.find(|document| document["kind"] == "Secret").unwrap();
        secret["stringData"]["joinToken"].as_str().unwrap().to_owned()
    }

    /// Runs the agent of a thief, who has the manifests and applies them in another namespace.
    pub(super) async fn run_stolen(&self) -> AgentProcess {
        let namespace = self.scene.cluster.namespace("thief").await;
        let manifests = std::fs::read_to_string(self.files.path().join("manifests.yaml")).unwrap();
        let manifests = manifests.replace(&self.namespace, &namespace);
        let applied = self
            .scene
            .cluster
            .admin()
            .run_with(&["apply", "-f", "-"], &manifests)
            .await;
        assert!(applied.status.success(), "{applied:?}");
        self.run_in(&namespace, &json!({})).await
    }

    /// The member of the agent's Secret.
    pub(super) async fn member(&self, name: &str) -> Option<String> {
        let namespace = format!("--namespace={}", self.namespace);
        let secret = self
            .scene
            .cluster
            .admin()
            .json(&["get", "secret", AGENT, &namespace])
            .await;
        secret["data"][name].as_str().map(str::to_owned)
    }

    /// Runs an agent with the settings of the manifests.
    pub(super) async fn run(&self) -> AgentProcess {
        self.run_with(&json!({})).await
    }

    /// - `more`: settings that differ.
    pub(super) async fn run_with(&self, more: &Value) -> AgentProcess {
        self.run_in(&self.namespace, more).await
    }

    async fn run_in(&self, namespace: &str, more: &Value) -> AgentProcess {
        let scene = &self.scene;
        let admin = scene.cluster.admin();
        let in_namespace = format!("--namespace={namespace}");
        let map = admin.json(&["get", "configmap", AGENT, &in_namespace]).await;
        let folder = tempfile::tempdir_in(self.files.path()).unwrap().keep();
        let write = |name: &str, text: &str| std::fs::write(folder.join(name), text).unwrap();
        write(
            "token",
            &admin.succeed(&["create", "token", AGENT, &in_namespace]).await,
        );
        write("api.pem", scene.cluster.authority());
        write("gateway.pem", map["data"]["gateway.pem"].as_str().unwrap());
        let mut settings: Value = serde_saphyr::from_str(map["data"]["agent.yaml"].as_str().unwrap()).unwrap();
        settings["apiServer"] =
            json!({"url": scene.cluster.url(), "certificateAuthority": "api.pem", "token": "token"});
        for (key, value) in more.as_object().unwrap() {
            settings[key] = value.clone();
        }
        write("agent.yaml", &settings.to_string());
        let log = folder.join("log");
        let process = Command::new(test_support::tollgate())
            .args(["agent", "run", "--log", "info,tollgate_agent=debug", "--config"])
            .arg(folder.join("agent.yaml"))
            .stderr(Stdio::from(std::fs::File::create(&log).unwrap()))
            .kill_on_drop(true)
            .spawn()
            .unwrap();
        AgentProcess { process, log }
    }

    pub(super) fn kubectl(&self, gateway: &Gateway) -> Kubectl {
        gateway.kubectl_through(self.scene.cluster.url(), &json!({"token": session(COMPONENT)}))
    }

    /// One read through a gateway.
    pub(super) async fn read(&self, gateway: &Gateway) -> Run {
        let namespace = format!("--namespace={}", self.scene.home);
        self.kubectl(gateway).run(&["get", "configmaps", &namespace]).await
    }

    /// Waits until a read through a gateway has an answer of the cluster.
    pub(super) async fn until_served_by(&self, gateway: &Gateway) {
        eventually("the cluster is read through its agent", async || {
            self.read(gateway).await.status.success().then_some(())
        })
        .await;
    }

    pub(super) async fn until_served(&self) {
        self.until_served_by(&self.scene.gateway).await;
    }

    /// What the gateway's API says about the cluster's agents.
    pub(super) async fn agents(&self) -> Value {
        let shown = self
            .tollgate(&["cluster", "agents", "destination", "--output", "json"])
            .await;
        assert!(shown.status.success(), "{shown:?}");
        serde_json::from_str(&shown.stdout).unwrap()
    }
}
