//! How long it takes until the Applications of a set exist, and until Argo CD has compared them with
//! their cluster, with and without the admission webhook. In both cases the set is written through a
//! running gateway.

use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::sleep;

use super::{Applications, Effort, Instant, NAMESPACE, Rounds, SESSION_KEY, until};
use test_support::kubernetes::argocd::{ArgoCd, Wire};
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::{Gateway, Layout};
use test_support::kubernetes::webhook::Webhook;

/// alice may write sets, and the Applications that they generate, in one project.
const POLICY: &str = "\
p, alice, applications, *, shop/*, allow
p, alice, applicationsets, *, shop/*, allow
";
const SET: &str = "measured";

/// Fields end in this order.
struct World {
    gateway: Gateway,
    argocd: ArgoCd,
    cluster: Cluster,
    webhook: Webhook,
}

pub(super) async fn measure(effort: Effort) {
    eprintln!("{} generated Applications", effort.applications);
    let world = World::start().await;
    let applications = Applications::of(&world.cluster);
    let mut compared = Rounds::default();
    let created = Rounds::measure(effort, async |is_with| {
        if is_with {
            world.register().await;
        }
        let times = world.generate(&applications, effort.applications).await;
        compared.add(is_with, times.compared);
        world.remove(&applications).await;
        times.created
    });
    created.await.print("generation");
    compared.print("generation and comparison");
}

/// Since a set was written.
struct Times {
    /// Until all its Applications existed.
    created: Duration,
    /// Until Argo CD had compared all of them.
    compared: Duration,
}

impl World {
    async fn start() -> Self {
        let webhook = Webhook::new();
        let cluster = webhook.start_cluster().await;
        let settings = json!({"accounts.alice": "login"});
        let argocd = ArgoCd::start(&cluster, Wire::Plain, &settings, SESSION_KEY).await;
        ArgoCd::permit(&cluster, POLICY).await;
        let project = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
            "metadata": {"name": "shop", "namespace": NAMESPACE},
            "spec": {
                "sourceRepos": ["*"],
                "destinations": [{"server": "https://kubernetes.default.svc", "namespace": "shop"}],
            },
        });
        cluster.admin().apply(&project.to_string()).await;
        let mut layout = Layout::new_in(NAMESPACE, &[], "");
        webhook.configure(&mut layout, &json!({"writers": {"gateway": "administrator"}}));
        layout.settings(json!({
            "state": {"namespace": NAMESPACE, "kubernetes": {"kubeconfig": cluster.admin().kubeconfig()}},
        }));
        Self {
            gateway: layout.start().await,
            argocd,
            cluster,
            webhook,
        }
    }

    /// Registers the webhook, and waits until the API server calls it.
    async fn register(&self) {
        self.webhook
            .register(&self.cluster, &self.gateway.authority().unwrap())
            .await;
        let write = [
            "apply",
            "--filename=-",
            "--as=nobody",
            "--as-group=system:masters",
            "--dry-run=server",
        ];
        eventually("the webhook refuses", async || {
            let run = self
                .cluster
                .admin()
                .run_with(&write, &self.application().to_string())
                .await;
            run.stderr.contains("admission.tollgate.dev").then_some(())
        })
        .await;
    }

    async fn generate(&self, applications: &Applications, count: usize) -> Times {
        let elements: Vec<Value> = (0..count)
            .map(|at| json!({"name": format!("generated-{at}")}))
            .collect();
        let mut template = self.application();
        template["metadata"] = json!({"name": "{{name}}"});
        let set = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet",
            "metadata": {"name": SET, "namespace": NAMESPACE},
            "spec": {
                "generators": [{"list": {"elements": elements}}],
                // Without a finalizer: there is no controller that removes it.
                "syncPolicy": {"preserveResourcesOnDeletion": true},
                "template": {"metadata": template["metadata"], "spec": template["spec"]},
            },
        });
        let client = self.gateway.client("alice");
        let url = format!("{}/api/v1/applicationsets", self.gateway.url());
        let mut started = Instant::now();
        // The gateway may still know the Applications of the round before.
        until("the gateway accepts the set", async || {
            started = Instant::now();
            let response = client.post(&url).json(&set).send().await.unwrap();
            response.status() == 200
        })
        .await;
        applications.until_count(count).await;
        let created = started.elapsed();
        applications.until_compared("", count).await;
        Times {
            created,
            compared: started.elapsed(),
        }
    }

    /// Removes the webhook, the set and its Applications.
    async fn remove(&self, applications: &Applications) {
        let admin = self.cluster.admin();
        for kind in ["validatingwebhookconfigurations", "mutatingwebhookconfigurations"] {
            admin.succeed(&["delete", kind, "--all"]).await;
        }
        let namespace = ["--namespace", NAMESPACE];
        admin
            .succeed(
                &[
                    &["delete", "applicationset", SET, "--cascade=background"][..],
                    &namespace,
                ]
                .concat(),
            )
            .await;
        until("no Application is left", async || {
            applications.delete_all().await;
            // Meanwhile the controller may create them again, from a set that it read before.
            sleep(Duration::from_secs(2)).await;
            applications.count().await == 0
        })
        .await;
    }

    fn application(&self) -> Value {
        json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": "probe", "namespace": NAMESPACE},
            "spec": {
                "project": "shop",
                "source": {"repoURL": self.argocd.repository(), "path": "app"},
                "destination": {"server": "https://kubernetes.default.svc", "namespace": "shop"},
            },
        })
    }
}
