//! Callers without the permission `override` in a real cluster: they reach only objects that the
//! API server shows as the Application's.

use serde_json::{Value, json};

use super::fixture::{Fixture, FixtureBuilder, Source, role, user};

/// A binding that makes `name` an administrator of the cluster. A review of commit 4128de0 could
/// create it.
fn binding(name: &str) -> String {
    json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    })
    .to_string()
}

/// Impersonation is off, the gateway is an administrator of the cluster, and the project permits
/// everything, as Argo CD's `default` does.
#[tokio::test]
async fn nobody_who_may_only_sync_becomes_an_administrator() {
    let mut builder = FixtureBuilder::new(Source::Directory).await;
    builder.mode("false");
    let (there, control) = (builder.guestbook.clone(), builder.control.clone());
    builder.objects([json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": format!("administrator-{there}")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "cluster-admin"},
        "subjects": [{"kind": "ServiceAccount", "name": "tollgate", "namespace": control}],
    })]);
    builder.project(
        "open",
        &json!({"clusterResourceWhitelist": [{"group": "*", "kind": "*"}]}),
    );
    builder.application("guestbook", "open", &builder.to(&there));
    let fixture = builder.start().await;
    let bindings = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings";
    let url = |rest: &str| {
        format!(
            "{}/applications/{control}/guestbook/k8s{bindings}{rest}",
            fixture.gateway.url()
        )
    };
    let named = |who: &str| format!("{who}-{there}");
    let create = async |who: &str| {
        let request = fixture.gateway.client(who).post(url(""));
        request
            .header("content-type", "application/json")
            .body(binding(&named(who)))
            .send()
            .await
            .unwrap()
    };
    let apply = async |who: &str| {
        let request = fixture
            .gateway
            .client(who)
            .patch(url(&format!("/{}?fieldManager=x", named(who))));
        let request = request.header("content-type", "application/apply-patch+yaml");
        request.body(binding(&named(who))).send().await.unwrap()
    };
    let needs_override = "this needs `applications, override`";
    for (answer, expected) in [
        (create("sam").await, "you may not see this application"),
        (apply("sam").await, "you may not see this application"),
        (create("carol").await, needs_override),
        (apply("carol").await, needs_override),
    ] {
        let status = answer.status();
        let text = answer.text().await.unwrap();
        assert!(status == 403 && text.contains(expected), "{status}: {text}");
    }
    for who in ["sam", "carol"] {
        let complaint = fixture
            .cluster
            .admin()
            .fail(&["get", "clusterrolebinding", &named(who)])
            .await;
        assert!(complaint.contains("NotFound"), "{complaint}");
    }
    let events = fixture.cluster.audit().events_with(&fixture.own());
    let arrived = |who: &str| {
        let name = named(who);
        let is = |event: &&Value| event["objectRef"]["name"] == *name && event["user"]["username"] == fixture.own();
        events.iter().filter(is).count()
    };
    assert_eq!((arrived("sam"), arrived("carol")), (0, 0));

    // alice has `override`, so she may create the binding.
    let answer = create("alice").await;
    assert_eq!(answer.status(), 201, "{}", answer.text().await.unwrap());
    fixture
        .cluster
        .admin()
        .succeed(&["delete", "clusterrolebinding", &named("alice")])
        .await;
}

/// An Application whose account may do everything with Deployments and Pods, and a running Pod.
async fn start() -> Fixture {
    let mut builder = FixtureBuilder::new(Source::Directory).await;
    let there = builder.guestbook.clone();
    builder.deployer(&there, "deployer", &[]);
    let rules = json!([{"apiGroups": ["", "apps"], "resources": ["*"], "verbs": ["*"]}]);
    builder.objects(role(&there, "all", &rules, (&there, "deployer")));
    builder.project(
        "my-project",
        &json!({"destinationServiceAccounts": [builder.acts("*", "deployer")]}),
    );
    builder.application("guestbook", "my-project", &builder.to(&there));
    builder.cluster.running_pod(&there, "pod").await;
    builder.start().await
}

#[tokio::test]
async fn what_is_tracked_is_reached_and_nothing_else() {
    let fixture = start().await;
    let there = fixture.guestbook.clone();
    let (admin, carol, bob) = (
        fixture.cluster.admin(),
        fixture.kubectl("carol", "guestbook"),
        fixture.kubectl("bob", "guestbook"),
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
    for (kubectl, arguments, refusal) in [
        (&bob, text(&get("ours")), None),
        (&bob, text(&get("copied")), Some(not_owned)),
        (&bob, text(&get("absent")), Some(not_owned)),
        (&bob, text(&patch("ours")), Some("you may not sync")),
        (&carol, text(&patch("ours")), None),
        (&carol, text(&patch("copied")), Some(not_owned)),
    ] {
        let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        let run = kubectl.run(&arguments).await;
        assert_eq!(run.status.success(), refusal.is_none(), "{arguments:?}: {run:?}");
        assert!(
            run.stderr.contains(refusal.unwrap_or_default()),
            "{arguments:?}: {run:?}"
        );
    }
    // The body has a tracking id, but the object does not exist in the cluster.
    let apply = ["apply", "--server-side", "--filename=-"];
    let run = carol.run_with(&apply, &deployment("new", "new")).await;
    assert!(!run.status.success() && run.stderr.contains(not_owned), "{run:?}");
    admin.fail(&["get", "deployment", "new", "-n", &there]).await;
    let patched = |event: &Value| event["objectRef"]["name"] == "ours" && event["verb"] == "patch";
    let event = fixture.cluster.audit().find_with(&there, patched).await;
    assert_eq!(
        event["impersonatedUser"]["username"],
        user(&there, "deployer"),
        "{event}"
    );

    // Logs and exec are refused for an untracked Pod, and permitted once it is tracked.
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
