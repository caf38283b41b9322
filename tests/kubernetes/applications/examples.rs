//! The four examples of the design of sync impersonation, with a real kubectl in
//! the place of the sync.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::world::{Plan, SOURCES, Source, World, account, guestbook, role, run_apply, user};
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::gateway::base64;

/// The gateway's own identity can do nothing by itself: neither look nor write, not
/// even where the account it acts as can.
async fn own_identity_is_powerless(cluster: &Cluster, token: &str, namespaces: &[&str]) {
    for namespace in namespaces {
        for (method, path) in [
            (Method::GET, format!("/apis/apps/v1/namespaces/{namespace}/deployments")),
            (
                Method::POST,
                format!("/apis/apps/v1/namespaces/{namespace}/deployments"),
            ),
            (
                Method::DELETE,
                format!("/api/v1/namespaces/{namespace}/services/guestbook"),
            ),
            (Method::GET, format!("/api/v1/namespaces/{namespace}/secrets")),
            (Method::GET, "/api/v1/namespaces".to_owned()),
            (
                Method::POST,
                format!("/api/v1/namespaces/{namespace}/serviceaccounts/default/token"),
            ),
        ] {
            let request = cluster
                .client()
                .request(method.clone(), format!("{}{path}", cluster.url()));
            let answer = request.bearer_auth(token).json(&json!({})).send().await.unwrap();
            let status = answer.status();
            assert_eq!(status, 403, "{method} {path}: {}", answer.text().await.unwrap());
        }
    }
    // Nor can it act as an account nobody named.
    let answer = cluster
        .client()
        .get(format!("{}/version", cluster.url()))
        .bearer_auth(token)
        .header("impersonate-user", user("kube-system", "default"))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 403);
}

/// What an Application may write, and what the cluster refuses its account.
async fn writes_there_and_nowhere_else(world: &World, application: &str, account: &str, (there, not): (&str, &str)) {
    let kubectl = world.kubectl("alice", application);
    let run = run_apply(&kubectl, &guestbook(there, application)).await;
    assert!(run.status.success(), "{run:?}");
    assert_eq!(
        run.stdout,
        format!("deployment.apps/{application} created\nservice/{application} created\n")
    );
    world.wrote(there, application, account).await;

    let run = run_apply(&kubectl, &guestbook(not, application)).await;
    assert!(!run.status.success(), "{run:?}");
    let refused = format!(r#"is forbidden: User "{account}" cannot "#);
    assert!(
        run.stderr.contains("(Forbidden)") && run.stderr.contains(&refused),
        "{}",
        run.stderr
    );
    let there_is = world
        .cluster
        .admin()
        .succeed(&["get", "deployments,services", "--output=name", "-n", not])
        .await;
    assert_eq!(there_is, "");
}

/// Example 1: one account for all namespaces.
async fn for_all_namespaces(source: Source) {
    let mut plan = Plan::new(source).await;
    let (there, not) = (plan.guestbook.clone(), plan.elsewhere.clone());
    plan.deployer(&there, "generic-deployer", &[&there]);
    plan.project(
        "my-project",
        &json!({"destinationServiceAccounts": [plan.acts("*", "generic-deployer")]}),
    );
    plan.application("guestbook", "my-project", &plan.to(&there));
    let world = plan.start().await;
    let account = user(&there, "generic-deployer");
    writes_there_and_nowhere_else(&world, "guestbook", &account, (&there, &not)).await;
    own_identity_is_powerless(world.cluster, &world.token, &[&there, &not]).await;
}

#[tokio::test]
async fn one_account_for_all_namespaces_with_objects_in_a_folder() {
    for_all_namespaces(Source::Directory).await;
}

#[tokio::test]
async fn one_account_for_all_namespaces_with_objects_in_the_cluster() {
    for_all_namespaces(Source::Kubernetes).await;
}

/// Example 2: an account for each namespace, and a project that reaches both.
async fn for_each_namespace(source: Source) {
    let mut plan = Plan::new(source).await;
    let (first, second) = (plan.guestbook.clone(), plan.elsewhere.clone());
    plan.deployer(&first, "guestbook-deployer", &[&first]);
    plan.deployer(&second, "guestbook-ui-deployer", &[&second]);
    plan.project(
        "my-project",
        &json!({
            "destinations": [plan.to(&first), plan.to(&second)],
            "destinationServiceAccounts": [
                plan.acts(&first, "guestbook-deployer"),
                plan.acts(&second, "guestbook-ui-deployer"),
            ],
        }),
    );
    plan.application("guestbook", "my-project", &plan.to(&first));
    plan.application("guestbook-ui", "my-project", &plan.to(&second));
    let world = plan.start().await;
    let (one, two) = (
        user(&first, "guestbook-deployer"),
        user(&second, "guestbook-ui-deployer"),
    );
    writes_there_and_nowhere_else(&world, "guestbook", &one, (&first, &second)).await;
    world
        .cluster
        .admin()
        .succeed(&["delete", "deployments,services", "--all", "-n", &first])
        .await;
    writes_there_and_nowhere_else(&world, "guestbook-ui", &two, (&second, &first)).await;

    // A write to a namespace the project does not reach is refused before the
    // cluster is asked.
    let control = &world.control;
    let kubectl = world.kubectl("alice", "guestbook");
    let create = ["create", "--filename=-"];
    let run = kubectl.run_with(&create, &guestbook(control, "guestbook")).await;
    assert!(!run.status.success(), "{run:?}");
    let refused = format!("namespace {control} is not permitted in project my-project: destinations");
    assert_eq!(run.stderr.matches(&refused).count(), 2, "{}", run.stderr);
    assert!(world.arrived(control).is_empty());
}

#[tokio::test]
async fn an_account_for_each_namespace() {
    let ((), ()) = tokio::join!(for_each_namespace(SOURCES[0]), for_each_namespace(SOURCES[1]));
}

/// Another cluster than the control plane's.
async fn remote() -> &'static Cluster {
    static REMOTE: OnceCell<Cluster> = OnceCell::const_new();
    REMOTE.get_or_init(Cluster::start).await
}

/// What example 3 and 4 have in common: the account, and the gateway's own one with
/// `rules` in the whole remote cluster.
async fn prepare_remote(cluster: &Cluster, (namespace, own): (&str, &str), rules: &Value) -> String {
    let verbs = json!(["get", "list", "create", "update", "patch", "delete"]);
    let deploys =
        json!([{"apiGroups": ["", "apps"], "resources": ["pods", "deployments", "services"], "verbs": verbs}]);
    let mut objects = vec![account("kube-system", own), account(namespace, "guestbook-deployer")];
    objects.extend(role(
        namespace,
        "guestbook-deployer-role",
        &deploys,
        (namespace, "guestbook-deployer"),
    ));
    objects.push(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
        "metadata": {"name": format!("{own}-role")}, "rules": rules,
    }));
    objects.push(json!({
        "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
        "metadata": {"name": format!("{own}-role-binding")},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": format!("{own}-role")},
        "subjects": [{"kind": "ServiceAccount", "name": own, "namespace": "kube-system"}],
    }));
    super::world::apply(cluster, &objects).await;
    let token = cluster
        .admin()
        .succeed(&["create", "token", own, "--namespace=kube-system"])
        .await;
    token.trim().to_owned()
}

/// A world whose one Application goes to the remote cluster, by an account of the
/// gateway's with these rights there.
async fn remote_world(source: Source, own: &str, rules: &Value) -> (World, &'static Cluster, String, String) {
    let (plan, cluster) = tokio::join!(Plan::new(source), remote());
    let (there, not) = (
        cluster.namespace("guestbook").await,
        cluster.namespace("elsewhere").await,
    );
    let token = prepare_remote(cluster, (&there, own), rules).await;
    let config = json!({"bearerToken": token, "tlsClientConfig": {"caData": base64(cluster.authority())}});
    plan.layout.cluster(
        "remote",
        &json!({"name": "remote-cluster", "server": cluster.url(), "config": config.to_string()}),
    );
    let entry = json!({"server": cluster.url(), "namespace": there, "defaultServiceAccount": "guestbook-deployer"});
    plan.project("my-project", &json!({"destinationServiceAccounts": [entry]}));
    plan.application(
        "guestbook",
        "my-project",
        &json!({"name": "remote-cluster", "namespace": there}),
    );
    let mut world = plan.start().await;
    world.cluster = cluster;
    let own = user("kube-system", own);
    let kubectl = world.kubectl("alice", "guestbook");
    let run = run_apply(&kubectl, &guestbook(&there, "guestbook")).await;
    assert!(run.status.success(), "{run:?}");
    let event = world.event(&there, "guestbook").await;
    assert_eq!(event["user"]["username"], own, "{event}");
    let account = user(&there, "guestbook-deployer");
    assert_eq!(event["impersonatedUser"]["username"], account, "{event}");
    let run = run_apply(&kubectl, &guestbook(&not, "guestbook")).await;
    assert!(
        run.stderr
            .contains(&format!(r#"is forbidden: User "{account}" cannot "#)),
        "{run:?}"
    );
    (world, cluster, there, token)
}

/// Example 3: the gateway could do everything there, and its Applications cannot.
#[tokio::test]
async fn a_remote_cluster_where_the_gateway_is_an_administrator() {
    let rules = json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]);
    let (_world, cluster, there, token) = remote_world(Source::Kubernetes, "argocd-manager", &rules).await;
    let url = format!("{}/api/v1/namespaces/{there}/services/guestbook", cluster.url());
    let answer = cluster.client().get(url).bearer_auth(token).send().await.unwrap();
    assert_eq!(answer.status(), 200, "an administrator");
}

/// Example 4: the gateway may do nothing there but act as others.
#[tokio::test]
async fn a_remote_cluster_where_the_gateway_may_only_impersonate() {
    let rules = json!([
        {"apiGroups": [""], "resources": ["users", "groups", "serviceaccounts"], "verbs": ["impersonate"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews"], "verbs": ["create"]},
    ]);
    let (_world, cluster, there, token) = remote_world(Source::Directory, "argocd-admin", &rules).await;
    for path in [
        format!("/api/v1/namespaces/{there}/services/guestbook"),
        format!("/apis/apps/v1/namespaces/{there}/deployments"),
        "/api/v1/namespaces".to_owned(),
    ] {
        let request = cluster.client().get(format!("{}{path}", cluster.url()));
        let answer = request.bearer_auth(&token).send().await.unwrap();
        assert_eq!(answer.status(), 403, "{path}");
    }
}
