//! A cluster whose agent connects to the gateway. The gateway has no credential of it, and never dials it.

use serde_json::{Value, json};
use tempfile::TempDir;

use super::{COMPONENT, Scene};
use test_support::kubernetes::agent::{AgentProcess, ApiServer, make_key};
use test_support::kubernetes::eventually;
use test_support::kubernetes::kubectl::Kubectl;

mod attacks;
mod joining;
mod replicas;
mod site;
mod sync;
mod withdrawal;

/// The gateway's Secret of a cluster whose agent has this key.
fn secret(server: &str, key: &str) -> Value {
    site::secret(server, &json!({"publicKeys": [key]}))
}

/// A gateway that knows the cluster's agent by its key, and the agent's files.
struct Joined {
    scene: Scene,
    files: TempDir,
}

impl Joined {
    async fn start() -> Self {
        let files = tempfile::tempdir().unwrap();
        let key = make_key(files.path()).await;
        let scene = Scene::start_with(|layout, cluster| layout.write(&secret(cluster.url(), &key))).await;
        Self { scene, files }
    }

    /// Starts the agent.
    ///
    /// - `accounts`: patterns of the service accounts that the gateway may act as.
    async fn agent(&self, accounts: &[String]) -> AgentProcess {
        let Self { scene, files } = self;
        let create = ["create", "token", "gateway", "--namespace", &scene.own];
        let api = ApiServer {
            url: scene.cluster.url(),
            authority: scene.cluster.authority(),
            token: &scene.cluster.admin().succeed(&create).await,
        };
        let more = json!({"impersonate": {"serviceAccounts": accounts}});
        AgentProcess::with_key(files.path(), &scene.gateway, api, &more)
    }

    /// The accounts of the reader and of the Application.
    fn accounts(&self) -> [String; 2] {
        [
            format!("{}:reader", self.scene.own),
            format!("{}:deployer", self.scene.home),
        ]
    }

    /// There is no answer.
    ///
    /// What ended before may be recorded after it, so its own record need not be the last one.
    async fn assert_absent(&self, kubectl: &Kubectl) {
        let before = self.scene.gateway.decisions().len();
        let run = kubectl.run(&["get", "--raw", "/version"]).await;
        assert!(!run.status.success());
        eventually("the refusal is recorded", async || {
            let records = self.scene.gateway.decisions();
            let refused = |record: &Value| record["reason"] == "agent_absent" && record["status"] == 503;
            records[before..].iter().any(refused).then_some(())
        })
        .await;
    }

    /// Waits until a read as the reader has an answer of the cluster.
    async fn until_served(&self) {
        let namespace = format!("--namespace={}", self.scene.home);
        eventually("the cluster is read through its agent", async || {
            let run = self
                .scene
                .kubectl(COMPONENT)
                .run(&["get", "configmaps", &namespace])
                .await;
            run.status.success().then_some(())
        })
        .await;
    }
}

#[tokio::test]
async fn a_cluster_is_used_through_its_agent_and_not_without_it() {
    let joined = Joined::start().await;
    let scene = &joined.scene;
    let kubectl = scene.kubectl(COMPONENT);
    let namespace = format!("--namespace={}", scene.home);
    let deployer = format!("--as={}", Scene::account(&scene.home, "deployer"));
    joined.assert_absent(&kubectl).await;
    assert!(scene.arrived().is_empty());

    let mut agent = joined.agent(&joined.accounts()).await;
    joined.until_served().await;
    let mut watch = kubectl.start(&["get", "configmaps", "--watch-only", "--output=name", &namespace]);
    scene.until_watches(1).await;
    kubectl
        .succeed(&[
            "create",
            "configmap",
            "made",
            "--from-literal=a=b",
            &namespace,
            &deployer,
        ])
        .await;
    assert!(watch.line("made").await.is_some());
    let made = scene.arrived();
    let (who, event) = made.iter().find(|(_, event)| event["verb"] == "create").unwrap();
    assert_eq!(*who, Scene::account(&scene.home, "deployer"));
    assert_eq!(event["objectRef"]["name"], "made");

    scene.pod_of_application().await;
    let mut terminal = kubectl.start(&["exec", "-i", &namespace, "pod", "--", "sh", "-c", "echo begun; cat"]);
    assert!(terminal.line("begun").await.is_some());
    terminal.say("through the agent\n").await;
    assert!(terminal.line("through the agent").await.is_some());

    // Killed without a word: what is open ends, and there is no answer until it is back.
    agent.process.kill().await.unwrap();
    assert!(watch.line("no such line").await.is_none());
    assert!(terminal.line("no such line").await.is_none());
    joined.assert_absent(&kubectl).await;
    let _agent = joined.agent(&joined.accounts()).await;
    joined.until_served().await;
}

#[tokio::test]
async fn the_agent_lets_the_gateway_act_only_as_whom_its_own_settings_list() {
    let joined = Joined::start().await;
    let scene = &joined.scene;
    let [reader, _] = joined.accounts();
    let agent = joined.agent(&[reader]).await;
    joined.until_served().await;
    let namespace = format!("--namespace={}", scene.home);
    let deployer = format!("--as={}", Scene::account(&scene.home, "deployer"));
    let create = ["create", "configmap", "made", &namespace, &deployer];
    let refused = scene.kubectl(COMPONENT).run(&create).await;
    let text = "does not let the gateway act as service account";
    assert!(
        refused.stderr.contains(text) && refused.stderr.contains("impersonate.serviceAccounts"),
        "{}",
        refused.stderr
    );
    assert!(
        scene
            .arrived()
            .iter()
            .all(|(who, _)| *who != Scene::account(&scene.home, "deployer"))
    );
    assert!(agent.log().contains(text), "{}", agent.log());
}

#[tokio::test]
async fn an_agent_whose_key_is_taken_away_is_disconnected_and_told_why() {
    let joined = Joined::start().await;
    let scene = &joined.scene;
    let agent = joined.agent(&joined.accounts()).await;
    joined.until_served().await;
    let namespace = format!("--namespace={}", scene.home);
    let kubectl = scene.kubectl(COMPONENT);
    let mut watch = kubectl.start(&["get", "configmaps", "--watch-only", "--output=name", &namespace]);
    scene.until_watches(1).await;
    let other = make_key(tempfile::tempdir().unwrap().path()).await;
    scene.gateway.rewrite(&secret(scene.cluster.url(), &other));
    assert!(watch.line("no such line").await.is_none());
    eventually("the agent says why", async || {
        agent.log().contains("no cluster names the key").then_some(())
    })
    .await;
    joined.assert_absent(&kubectl).await;
}
