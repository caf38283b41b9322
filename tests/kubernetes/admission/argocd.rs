//! A whole, unmodified Argo CD in a cluster whose API server asks the gateway.

use std::path::Path;

use serde_json::{Value, json};
use tokio::process::Command;

use super::{AUTHOR, NAMESPACE, Webhook, application, project, set, with};
use test_support::kubernetes::argocd::{ArgoCd, Wire};
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::eventually;
use test_support::kubernetes::gateway::{Gateway, Layout};

/// alice has the Applications of one team, and may write sets for them.
const POLICY: &str = "\
p, alice, applications, *, shop/team-*, allow
p, alice, applicationsets, *, shop/*, allow
p, alice, repositories, get, *, allow
p, alice, clusters, get, *, allow
g, system:masters, role:admin
";

/// Fields end in this order.
struct World {
    gateway: Gateway,
    argocd: ArgoCd,
    control: Cluster,
    _webhook: Webhook,
}

impl World {
    async fn start() -> Self {
        let webhook = Webhook::new();
        let control = webhook.start_cluster().await;
        let settings = json!({"accounts.alice": "login", "timeout.reconciliation": "5s"});
        let argocd = ArgoCd::start(
            &control,
            Wire::Plain,
            &settings,
            "a-key-only-tests-know-0123456789abcdef",
        )
        .await;
        ArgoCd::permit(&control, POLICY).await;
        for object in [
            json!({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}),
            project("shop", &json!({"sourceRepos": ["*"]})),
            project(
                "platform",
                &json!({
                    "sourceRepos": ["*"], "destinations": [{"server": "*", "namespace": NAMESPACE}],
                }),
            ),
            project("other", &json!({"sourceRepos": ["*"]})),
        ] {
            control.admin().apply(&object.to_string()).await;
        }
        let mut layout = Layout::new_in(NAMESPACE, &[], "");
        let more = json!({"children": {"platform": ["shop"]}, "writers": {"gateway": "administrator"}});
        webhook.configure(&mut layout, &more);
        layout.setting("/applicationSets/repositories", json!([argocd.repository()]));
        layout.settings(json!({
            "state": {"namespace": NAMESPACE, "kubernetes": {"kubeconfig": control.admin().kubeconfig()}},
        }));
        let gateway = layout.start().await;
        webhook.register(&control, &gateway.authority().unwrap()).await;
        Self {
            gateway,
            argocd,
            control,
            _webhook: webhook,
        }
    }

    /// Writes files into the repository that Argo CD reads, and commits them.
    async fn commit(&self, files: &[(&str, Value)]) {
        let folder = Path::new(self.argocd.repository().trim_start_matches("file://"));
        for (name, content) in files {
            let path = folder.join(name);
            std::fs::create_dir_all(path.parent().unwrap()).unwrap();
            std::fs::write(path, content.to_string()).unwrap();
        }
        let identity = ["-c", "user.name=tests", "-c", "user.email=tests@example.com"];
        for arguments in [
            &["add", "--all"][..],
            &[&identity[..], &["commit", "--quiet", "--message=more"]].concat(),
        ] {
            let status = Command::new("git").args(arguments).current_dir(folder).status().await;
            assert!(status.unwrap().success(), "git {arguments:?}");
        }
    }

    async fn exists(&self, name: &str) -> bool {
        let get = ["get", "application", name, "--namespace", NAMESPACE];
        self.control.admin().run(&get).await.status.success()
    }

    async fn until_exists(&self, name: &str) {
        eventually(&format!("Application `{name}`"), async || {
            self.exists(name).await.then_some(())
        })
        .await;
    }

    /// Waits for the decision that refused an Application.
    async fn until_refused(&self, name: &str) -> Value {
        let object = format!("{NAMESPACE}/{name}");
        eventually(&format!("a refusal of `{name}`"), async || {
            let mut decisions = self.gateway.decisions().into_iter();
            decisions.find(|record| record["notes"]["object"] == object && record["outcome"] == "denied")
        })
        .await
    }

    fn local(&self, name: &str, project: &str, path: &str) -> Value {
        let mut application = application(name, project);
        application["spec"]["source"] = json!({"repoURL": self.argocd.repository(), "path": path});
        application
    }
}

/// The set is written through the gateway and by kubectl; Argo CD's own controller generates.
#[tokio::test]
async fn a_changed_repository_makes_nothing_that_the_author_of_the_set_may_not() {
    let world = World::start().await;
    let client = world.gateway.client("alice");
    let api = format!("{}/api/v1/applicationsets", world.gateway.url());
    let through = with(
        set("team-listed", "shop"),
        "/spec/template/spec/source/repoURL",
        json!(world.argocd.repository()),
    );
    let response = client.post(&api).json(&through).send().await.unwrap();
    assert_eq!(response.status(), 200, "{}", response.text().await.unwrap());
    let stored = world
        .control
        .admin()
        .json(&["get", "applicationset", "team-listed", "--namespace", NAMESPACE])
        .await;
    assert!(stored["metadata"]["annotations"][AUTHOR].is_string(), "{stored}");
    world.until_exists("team-listed-a").await;

    world.commit(&[("teams/team-a/map.yaml", json!({}))]).await;
    let mut by_folder = set("folders", "shop");
    by_folder["spec"]["generators"] = json!([{"git": {
        "repoURL": world.argocd.repository(), "revision": "HEAD", "directories": [{"path": "teams/*"}],
        "requeueAfterSeconds": 3,
    }}]);
    by_folder["spec"]["template"]["metadata"]["name"] = json!("{{path.basename}}");
    by_folder["spec"]["template"]["spec"]["source"] = json!({"repoURL": world.argocd.repository(), "path": "{{path}}"});
    let apply = [
        "apply",
        "--filename=-",
        "--as=alice",
        "--as-group=system:serviceaccounts:argocd",
    ];
    let run = world.control.admin().run_with(&apply, &by_folder.to_string()).await;
    assert!(run.status.success(), "{}", run.stderr);
    world.until_exists("team-a").await;
    // Somebody who may push to the repository, and nothing in Argo CD.
    world
        .commit(&[
            ("teams/rogue/map.yaml", json!({})),
            ("teams/team-b/map.yaml", json!({})),
        ])
        .await;
    let refused = world.until_refused("rogue").await;
    assert_eq!(refused["notes"]["author"], "alice");
    assert_eq!(refused["reason"], "permission_denied");
    world.until_exists("team-b").await;
    assert!(!world.exists("rogue").await);
}

#[tokio::test]
async fn an_app_of_apps_has_children_only_where_its_project_may_have_them() {
    let world = World::start().await;
    // What a set of the repository generates, too, by the statement of the Application that deployed it.
    let mut apps = set("apps", "shop");
    apps["spec"]["template"]["spec"]["source"] = json!({"repoURL": world.argocd.repository(), "path": "app"});
    world
        .commit(&[
            ("root/cart.json", world.local("cart", "shop", "app")),
            ("root/set.json", apps),
            ("rogue/mine.json", world.local("mine", "other", "app")),
        ])
        .await;
    let automated = |mut application: Value| {
        application["spec"]["syncPolicy"] = json!({"automated": {"prune": true}});
        application["spec"]["destination"]["namespace"] = json!(NAMESPACE);
        application
    };
    for object in [
        automated(world.local("root", "platform", "root")),
        automated(world.local("rogue", "platform", "rogue")),
    ] {
        world.control.admin().apply(&object.to_string()).await;
    }
    world.until_exists("cart").await;
    world.until_exists("apps-a").await;
    let refused = world.until_refused("mine").await;
    assert_eq!(
        (&refused["reason"], &refused["application"]),
        (&json!("child_refused"), &json!("argocd:rogue"))
    );
    assert!(!world.exists("mine").await);
    let status = eventually("the end of the sync", async || {
        let get = ["get", "application", "rogue", "--namespace", NAMESPACE];
        let status = world.control.admin().json(&get).await["status"].take();
        let ended = status["operationState"]["finishedAt"].is_string();
        ended.then_some(status)
    })
    .await;
    assert!(status.to_string().contains("`admission.children`"), "{status}");
}
