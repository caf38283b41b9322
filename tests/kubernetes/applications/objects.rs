//! What somebody reaches in a real cluster who may not override: what the API server says
//! is the Application's, and nothing else.

use serde_json::{Value, json};

use super::world::{Plan, Source, World, role, user};

/// The binding the review of commit 4128de0 made: cluster-admin for whoever asked.
fn binding(name: &str) -> String {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    })
    .to_string()
}

/// Impersonation is off, the gateway is an administrator of the cluster, and the project
/// permits everything, as Argo CD's `default` does.
#[tokio::test]
async fn nobody_who_may_only_sync_becomes_an_administrator() {
    let mut plan = Plan::new(Source::Directory).await;
    plan.mode("false");
    let (there, control) = (plan.guestbook.clone(), plan.control.clone());
    plan.objects([json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": format!("administrator-{there}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "tollgate", "namespace": control}],
    })]);
    plan.project(
        "open",
        &json!({"clusterResourceWhitelist": [{"group": "*", "kind": "*"}]}),
    );
    plan.application("guestbook", "open", &plan.to(&there));
    let world = plan.start().await;
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let url = |rest: &str| {
        format!(
            "{}/applications/{control}/guestbook/k8s{bindings}{rest}",
            world.gateway.url()
        )
    };
    let named = |who: &str| format!("{who}-{there}");
    let create = async |who: &str| {
        let request = world.gateway.client(who).post(url(""));
        request
            .header("content-type", "application/json")
            .body(binding(&named(who)))
            .send()
            .await
            .unwrap()
    };
    let apply = async |who: &str| {
        let request = world
            .gateway
            .client(who)
            .patch(url(&format!("/{}?fieldManager=x", named(who))));
        let request = request.header("content-type", "application/apply-patch+yaml");
        request.body(binding(&named(who))).send().await.unwrap()
    };
    let over = "this needs `applications, override`";
    for (answer, told) in [
        (create("sam").await, "you may not see this application"),
        (apply("sam").await, "you may not see this application"),
        (create("carol").await, over),
        (apply("carol").await, over),
    ] {
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status == 403 && text.contains(told), "{status}: {text}");
    }
    for who in ["sam", "carol"] {
        let complaint = world
            .cluster
            .admin()
            .fail(&["get", "clusterrolebinding", &named(who)])
            .await;
        assert!(complaint.contains("NotFound"), "{complaint}");
    }
    let events = world.cluster.audit().events();
    let arrived = |who: &str| {
        let name = named(who);
        let is = |event: &&Value| event["objectRef"]["name"] == *name && event["user"]["username"] == world.own();
        events.iter().filter(is).count()
    };
    assert_eq!((arrived("sam"), arrived("carol")), (0, 0));

    // The twin: who may sync manifests of their own in Argo CD.
    let answer = create("alice").await;
    assert_eq!(answer.status(), 201, "{}", answer.text().await.unwrap());
    world
        .cluster
        .admin()
        .succeed(&["delete", "clusterrolebinding", &named("alice")])
        .await;
}

/// A world whose account may do everything with Deployments and Pods, and a Pod that runs.
async fn start() -> World {
    let mut plan = Plan::new(Source::Directory).await;
    let there = plan.guestbook.clone();
    plan.deployer(&there, "deployer", &[]);
    let rules = json!([{"apiGroups": ["", "apps"], "resources": ["*"], "verbs": ["*"]}]);
    plan.objects(role(&there, "all", &rules, (&there, "deployer")));
    plan.project(
        "my-project",
        &json!({"destinationServiceAccounts": [plan.acts("*", "deployer")]}),
    );
    plan.application("guestbook", "my-project", &plan.to(&there));
    plan.cluster.running_pod(&there, "pod").await;
    plan.start().await
}

#[tokio::test]
async fn what_is_tracked_is_reached_and_nothing_else() {
    let world = start().await;
    let there = world.guestbook.clone();
    let (admin, carol, bob) = (
        world.cluster.admin(),
        world.kubectl("carol", "guestbook"),
        world.kubectl("bob", "guestbook"),
    );
    let deployment = |name: &str, tracked: &str| {
        let id = format!("guestbook:apps/Deployment:{there}/{tracked}");
        let labels = json!({"app": name});
        json!({
            "apiVersion": "apps/v1", "kind": "Deployment",
            "metadata": {
                "name": name, "namespace": there, "annotations": {"argocd.argoproj.io/tracking-id": id},
            },
            "spec": {"replicas": 0, "selector": {"matchLabels": labels}, "template": {
                "metadata": {"labels": labels}, "spec": {"containers": [{"name": "ui", "image": "none.invalid/ui"}]},
            }},
        })
        .to_string()
    };
    for (name, tracked) in [("ours", "ours"), ("copied", "ours")] {
        let run = admin
            .run_with(&["create", "--filename=-"], &deployment(name, tracked))
            .await;
        assert!(run.status.success(), "{run:?}");
    }
    let not_owned = "the object is not a resource of this application";
    let get = |name: &'static str| ["get", "deployment", name, "--output=name", "-n", &there].map(str::to_owned);
    let patch = |name: &'static str| {
        let patch = r#"--patch={"spec":{"paused":true}}"#;
        ["patch", "deployment", name, patch, "-n", &there].map(str::to_owned)
    };
    let text = |arguments: &[String]| {
        arguments
            .iter()
            .map(String::as_str)
            .map(str::to_owned)
            .collect::<Vec<_>>()
    };
    for (kubectl, arguments, told) in [
        (&bob, text(&get("ours")), None),
        (&bob, text(&get("copied")), Some(not_owned)),
        (&bob, text(&get("absent")), Some(not_owned)),
        (&bob, text(&patch("ours")), Some("you may not sync")),
        (&carol, text(&patch("ours")), None),
        (&carol, text(&patch("copied")), Some(not_owned)),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let run = kubectl.run(&arguments).await;
        assert_eq!(run.status.success(), told.is_none(), "{arguments:?}: {run:?}");
        assert!(run.stderr.contains(told.unwrap_or_default()), "{arguments:?}: {run:?}");
    }
    // The body says that it is tracked; the cluster knows of no such object.
    let apply = ["apply", "--server-side", "--filename=-"];
    let run = carol.run_with(&apply, &deployment("new", "new")).await;
    assert!(!run.status.success() && run.stderr.contains(not_owned), "{run:?}");
    admin.fail(&["get", "deployment", "new", "-n", &there]).await;
    let patched = |event: &Value| event["objectRef"]["name"] == "ours" && event["verb"] == "patch";
    let event = world.cluster.audit().find_with(&there, patched).await;
    assert_eq!(
        event["impersonatedUser"]["username"],
        user(&there, "deployer"),
        "{event}"
    );

    // Logs and programs of a Pod that is nobody's, and of the same Pod once it is ours.
    let logs = ["logs", "-n", &there, "pod", "--tail=1"];
    let exec = ["exec", "-n", &there, "pod", "--", "true"];
    for asked in [&logs[..], &exec] {
        let complaint = carol.fail(asked).await;
        assert!(complaint.contains(not_owned), "{complaint}");
    }
    let id = format!("argocd.argoproj.io/tracking-id=guestbook:/Pod:{there}/pod");
    admin.succeed(&["annotate", "pod", "pod", &id, "-n", &there]).await;
    carol.succeed(&logs).await;
    carol.succeed(&exec).await;
}
