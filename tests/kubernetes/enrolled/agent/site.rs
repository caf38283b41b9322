//! A cluster that joined, and Argo CD's component that uses it through the gateway.

use serde_json::{Value, json};
use tokio::process::Command;

use super::super::{COMPONENT, OWN, Scene};
use crate::joined::JoinedCluster;
use test_support::kubernetes::agent::AgentProcess;
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::{Gateway, Layout, session};
use test_support::kubernetes::kubectl::{Kubectl, Run};

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
    pub(super) joined: JoinedCluster<'static>,
}

impl Site {
    pub(super) async fn start() -> Self {
        Self::start_with(|_, _| {}).await
    }

    /// - `configure`: what differs about the gateway.
    pub(super) async fn start_with(configure: impl FnOnce(&mut Layout, &Cluster)) -> Self {
        let scene = Scene::start_with(|layout, cluster| {
            layout.write(&secret(cluster.url(), &json!({})));
            layout.settings(json!({"connectors": {}}));
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
        Self {
            joined: JoinedCluster::new(scene.cluster).await,
            scene,
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

    /// Has the cluster join, and gives the gateway and its replicas their Secret. Returns the token.
    pub(super) async fn join(&self, replicas: &[&Gateway]) -> String {
        let Self { scene, joined } = self;
        let (reader, deployer) = (format!("{}:reader", scene.own), format!("{}:deployer", scene.home));
        let accounts = ["--service-account", &reader, "--service-account", &deployer];
        let made = joined.join("destination", &scene.gateway, &accounts).await;
        let written = made.secret.unwrap();
        assert_eq!(written["metadata"]["labels"]["tollgate.dev/secret-type"], "cluster");
        let config: Value = serde_json::from_str(written["stringData"]["config"].as_str().unwrap()).unwrap();
        for gateway in [&scene.gateway].into_iter().chain(replicas.iter().copied()) {
            gateway.rewrite(&secret(scene.cluster.url(), &config["agent"]));
        }
        made.token
    }

    /// Runs an agent with the settings of the manifests.
    pub(super) async fn run(&self) -> AgentProcess {
        self.joined.run(&json!({})).await
    }

    /// - `more`: settings that differ.
    pub(super) async fn run_with(&self, more: &Value) -> AgentProcess {
        self.joined.run(more).await
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

    /// Waits until the agent has joined and removed its token.
    pub(super) async fn until_token_removed(&self) {
        eventually("the token is removed", async || {
            self.joined.member("joinToken").await.is_none().then_some(())
        })
        .await;
    }

    /// What the gateway's API says about the cluster's agents.
    pub(super) async fn agents(&self) -> Value {
        let shown = self
            .tollgate(&["cluster", "connectors", "destination", "--output", "json"])
            .await;
        assert!(shown.status.success(), "{shown:?}");
        serde_json::from_str(&shown.stdout).unwrap()
    }
}
