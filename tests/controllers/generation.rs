//! How long the ApplicationSet controller takes to create the Applications of a set, with and without
//! the admission webhook. In both cases the set is written through a running gateway.

use std::time::Duration;

use serde_json::{Value, json};

use super::{Applications, Effort, Instant, NAMESPACE, Rounds, SESSION_KEY};
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
const REPOSITORY: &str = "https://git.invalid/shop";

/// Fields end in this order.
struct World {
    gateway: Gateway,
    _argocd: ArgoCd,
    cluster: Cluster,
    webhook: Webhook,
}

pub(super) async fn measure(effort: Effort) {
    eprintln!("{} generated Applications", effort.applications);
    let world = World::start().await;
    let applications = Applications::of(&world.cluster);
    let rounds = Rounds::measure(effort, async |is_with| {
        if is_with {
            world.register().await;
        }
        let took = world.generate(&applications, effort.applications).await;
        world.remove(&applications).await;
        took
    });
    rounds.await.print("generation");
}

impl World {
    async fn start() -> Self {
        let webhook = Webhook::new();
        let cluster = webhook.start_cluster().await;
        let settings = json!({"accounts.alice": "login"});
        let mut argocd = ArgoCd::start(&cluster, Wire::Plain, &settings, SESSION_KEY).await;
        // It would compare each new Application, beside what is measured.
        argocd.stop_controller();
        ArgoCd::permit(&cluster, POLICY).await;
        let project = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
            "metadata": {"name": "shop", "namespace": NAMESPACE},
            "spec": {
                "sourceRepos": [REPOSITORY],
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
            _argocd: argocd,
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
            let run = self.cluster.admin().run_with(&write, &application().to_string()).await;
            run.stderr.contains("admission.tollgate.dev").then_some(())
        })
        .await;
    }

    /// Writes the set, and returns how long it takes until all its Applications exist.
    async fn generate(&self, applications: &Applications, count: usize) -> Duration {
        let elements: Vec<Value> = (0..count)
            .map(|at| json!({"name": format!("generated-{at}")}))
            .collect();
        let mut template = application();
        template["metadata"] = json!({"name": "{{name}}"});
        let set = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "ApplicationSet",
            "metadata": {"name": SET, "namespace": NAMESPACE},
            "spec": {
                "generators": [{"list": {"elements": elements}}],
                "template": {"metadata": template["metadata"], "spec": template["spec"]},
            },
        });
        let client = self.gateway.client("alice");
        let started = Instant::now();
        let request = client.post(format!("{}/api/v1/applicationsets", self.gateway.url()));
        let response = request.json(&set).send().await.unwrap();
        assert_eq!(response.status(), 200, "{}", response.text().await.unwrap());
        applications.until_count(count).await;
        started.elapsed()
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
        applications.delete_all().await;
    }
}

fn application() -> Value {
    json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
        "metadata": {"name": "probe", "namespace": NAMESPACE},
        "spec": {
            "project": "shop",
            "source": {"repoURL": REPOSITORY, "path": "."},
            "destination": {"server": "https://kubernetes.default.svc", "namespace": "shop"},
        },
    })
}
