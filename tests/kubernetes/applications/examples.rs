//! The four examples in the design of sync impersonation, with a real kubectl instead of Argo CD's
//! sync.

use reqwest::Method;
use serde_json::{Value, json};
use tokio::sync::OnceCell;

use super::fixture::{Fixture, FixtureBuilder, SOURCES, Source, account, guestbook, role, run_apply, user};
use test_support::kubernetes::cluster::Cluster;
use test_support::kubernetes::gateway::base64;

/// Asserts that the gateway's own identity can neither read nor write, not even in namespaces in
/// which the impersonated account can.
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
    // It cannot impersonate an account that no role names.
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

/// Asserts that an Application can write to one namespace, and that the cluster refuses its account
/// in the other.
async fn writes_there_and_nowhere_else(
    fixture: &Fixture,
    application: &str,
    account: &str,
    (there, not): (&str, &str),
) {
    let kubectl = fixture.kubectl("alice", application);
    let run = run_apply(&kubectl, &guestbook(there, application)).await;
    assert!(run.status.success(), "{run:?}");
    assert_eq!(
        run.stdout,
        format!("deployment.apps/{application} created\nservice/{application} created\n")
    );
    fixture.wrote(there, application, account).await;

    let run = run_apply(&kubectl, &guestbook(not, application)).await;
    assert!(!run.status.success(), "{run:?}");
    let refused = format!(r#"is forbidden: User "{account}" cannot "#);
    assert!(
        run.stderr.contains("(Forbidden)") && run.stderr.contains(&refused),
        "{}",
        run.stderr
    );
    let there_is = fixture
        .cluster
        .admin()
        .succeed(&["get", "deployments,services", "--output=name", "-n", not])
        .await;
    assert_eq!(there_is, "");
}

/// Example 1: one account for all namespaces.
async fn for_all_namespaces(source: Source) {
    let mut builder = FixtureBuilder::new(source).await;
    let (there, not) = (builder.guestbook.clone(), builder.elsewhere.clone());
    builder.deployer(&there, "generic-deployer", &[&there]);
    builder.project(
        "my-project",
        &json!({"destinationServiceAccounts": [builder.acts("*", "generic-deployer")]}),
    );
    builder.application("guestbook", "my-project", &builder.to(&there));
    let fixture = builder.start().await;
    let account = user(&there, "generic-deployer");
    writes_there_and_nowhere_else(&fixture, "guestbook", &account, (&there, &not)).await;
    own_identity_is_powerless(fixture.cluster, &fixture.token, &[&there, &not]).await;
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
    let mut builder = FixtureBuilder::new(source).await;
    let (first, second) = (builder.guestbook.clone(), builder.elsewhere.clone());
    builder.deployer(&first, "guestbook-deployer", &[&first]);
    builder.deployer(&second, "guestbook-ui-deployer", &[&second]);
    builder.project(
        "my-project",
        &json!({
            "destinations": [builder.to(&first), builder.to(&second)],
            "destinationServiceAccounts": [
                builder.acts(&first, "guestbook-deployer"),
                builder.acts(&second, "guestbook-ui-deployer"),
            ],
        }),
    );
    builder.application("guestbook", "my-project", &builder.to(&first));
    builder.application("guestbook-ui", "my-project", &builder.to(&second));
    let fixture = builder.start().await;
    let (one, two) = (
        user(&first, "guestbook-deployer"),
        user(&second, "guestbook-ui-deployer"),
    );
    writes_there_and_nowhere_else(&fixture, "guestbook", &one, (&first, &second)).await;
    fixture
        .cluster
        .admin()
        .succeed(&["delete", "deployments,services", "--all", "-n", &first])
        .await;
    writes_there_and_nowhere_else(&fixture, "guestbook-ui", &two, (&second, &first)).await;

    // A write to a namespace that the project does not permit is refused before the cluster gets
    // it.
    let control = &fixture.control;
    let kubectl = fixture.kubectl("alice", "guestbook");
    let create = ["create", "--filename=-"];
    let run = kubectl.run_with(&create, &guestbook(control, "guestbook")).await;
    assert!(!run.status.success(), "{run:?}");
    let refused = format!("namespace {control} is not permitted in project my-project: destinations");
    assert_eq!(run.stderr.matches(&refused).count(), 2, "{}", run.stderr);
    assert!(fixture.arrived(control).is_empty());
}

#[tokio::test]
async fn an_account_for_each_namespace() {
    let ((), ()) = tokio::join!(for_each_namespace(SOURCES[0]), for_each_namespace(SOURCES[1]));
}

/// A cluster other than the control plane's.
async fn remote() -> &'static Cluster {
    static REMOTE: OnceCell<Cluster> = OnceCell::const_new();
    REMOTE.get_or_init(Cluster::start).await
}

/// Prepares examples 3 and 4: the account, and the gateway's own account with `rules` in the whole
/// remote cluster. Returns a token of the latter.
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
    super::fixture::apply(cluster, &objects).await;
    let token = cluster
        .admin()
        .succeed(&["create", "token", own, "--namespace=kube-system"])
        .await;
    token.trim().to_owned()
}

/// An Application in the remote cluster, where the gateway's own account has `rules`.
async fn remote_fixture(source: Source, own: &str, rules: &Value) -> (Fixture, &'static Cluster, String, String) {
    let (builder, cluster) = tokio::join!(FixtureBuilder::new(source), remote());
    let (there, not) = (
        cluster.namespace("guestbook").await,
        cluster.namespace("elsewhere").await,
    );
    let token = prepare_remote(cluster, (&there, own), rules).await;
    let config = json!({"bearerToken": token, "tlsClientConfig": {"caData": base64(cluster.authority())}});
    builder.layout.cluster(
        "remote",
        &json!({"name": "remote-cluster", "server": cluster.url(), "config": config.to_string()}),
    );
    let entry = json!({"server": cluster.url(), "namespace": there, "defaultServiceAccount": "guestbook-deployer"});
    builder.project("my-project", &json!({"destinationServiceAccounts": [entry]}));
    builder.application(
        "guestbook",
        "my-project",
        &json!({"name": "remote-cluster", "namespace": there}),
    );
    let mut fixture = builder.start().await;
    fixture.cluster = cluster;
    let own = user("kube-system", own);
    let kubectl = fixture.kubectl("alice", "guestbook");
    let run = run_apply(&kubectl, &guestbook(&there, "guestbook")).await;
    assert!(run.status.success(), "{run:?}");
    let event = fixture.event(&there, "guestbook").await;
    assert_eq!(event["user"]["username"], own, "{event}");
    let account = user(&there, "guestbook-deployer");
    assert_eq!(event["impersonatedUser"]["username"], account, "{event}");
    let run = run_apply(&kubectl, &guestbook(&not, "guestbook")).await;
    assert!(
        run.stderr
            .contains(&format!(r#"is forbidden: User "{account}" cannot "#)),
        "{run:?}"
    );
    (fixture, cluster, there, token)
}

/// Example 3: the gateway may do everything in the remote cluster, but its Applications may not.
#[tokio::test]
async fn a_remote_cluster_where_the_gateway_is_an_administrator() {
    let rules = json!([
        {"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]},
        {"nonResourceURLs": ["*"], "verbs": ["*"]},
    ]);
    let (_world, cluster, there, token) = remote_fixture(Source::Kubernetes, "argocd-manager", &rules).await;
    let url = format!("{}/api/v1/namespaces/{there}/services/guestbook", cluster.url());
    let answer = cluster.client().get(url).bearer_auth(token).send().await.unwrap();
    assert_eq!(answer.status(), 200, "the gateway's own account is an administrator");
}

/// Example 4: in the remote cluster, the gateway may only impersonate.
#[tokio::test]
async fn a_remote_cluster_where_the_gateway_may_only_impersonate() {
    let rules = json!([
        {"apiGroups": [""], "resources": ["users", "groups", "serviceaccounts"], "verbs": ["impersonate"]},
        {"apiGroups": ["authorization.k8s.io"], "resources": ["selfsubjectaccessreviews"], "verbs": ["create"]},
    ]);
    let (_world, cluster, there, token) = remote_fixture(Source::Directory, "argocd-admin", &rules).await;
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
