//! Tests the harness: authentication, authorization and audit log of the test clusters.

use serde_json::{Value, json};

use test_support::authority::Authority;
use test_support::kubernetes::cluster::{Cluster, Options};
use test_support::kubernetes::kubectl::Credential;
use test_support::kubernetes::{eventually, helm, kubernetes};
use test_support::programs::{self, Kubernetes};

/// A role that may read config maps, bound to a service account.
fn reader(namespace: &str, account: &str) -> String {
    format!(
        r#"
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{ name: reader, namespace: {namespace} }}
rules:
  - {{ apiGroups: [""], resources: [configmaps], verbs: [get, list] }}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{ name: reader, namespace: {namespace} }}
roleRef: {{ apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader }}
subjects:
  - {{ kind: ServiceAccount, name: {account}, namespace: {namespace} }}
"#
    )
}

/// Gives the account `robot` of a namespace the role, and waits until the API server knows it.
async fn permit(cluster: &Cluster, namespace: &str) {
    cluster.admin().apply(&reader(namespace, "robot")).await;
    let here = format!("--namespace={namespace}");
    let robot = format!("--as=system:serviceaccount:{namespace}:robot");
    let can_i = ["auth", "can-i", "list", "configmaps", &here, &robot];
    eventually("the API server knows the role", async || {
        let run = cluster.admin().run(&can_i).await;
        run.status.success().then_some(())
    })
    .await;
}

#[tokio::test]
async fn the_administrator_sees_all_of_the_pinned_release() {
    let cluster = Cluster::shared().await;
    let namespaces = cluster.admin().succeed(&["get", "namespaces", "--output=name"]).await;
    assert!(
        namespaces.lines().any(|name| name == "namespace/default"),
        "{namespaces}"
    );

    let versions = cluster.admin().json(&["version"]).await;
    let (client, server) = (&versions["clientVersion"], &versions["serverVersion"]);
    assert_eq!(client["gitVersion"], server["gitVersion"]);
    // Programs that are not built here may be of any release.
    if let Kubernetes::Built { version, .. } = kubernetes() {
        assert_eq!(server["gitVersion"], version);
    }
}

#[tokio::test]
async fn requests_without_a_valid_credential_are_refused() {
    let cluster = Cluster::shared().await;
    let client = cluster.client();
    for (token, path) in [
        (None, "/api/v1/namespaces"),
        (None, "/version"),
        (Some("unknown"), "/api/v1/namespaces"),
        (Some("e30.e30.e30"), "/version"),
    ] {
        let mut request = client.get(format!("{}{path}", cluster.url()));
        if let Some(token) = token {
            request = request.bearer_auth(token);
        }
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), 401, "{token:?} {path}");
        let status: Value = answer.json().await.unwrap();
        assert_eq!(status["reason"], "Unauthorized");
    }
    let complaint = cluster
        .kubectl(Credential::Token("unknown".to_owned()))
        .fail(&["get", "namespaces"])
        .await;
    assert!(complaint.contains("You must be logged in"), "{complaint}");
}

#[tokio::test]
async fn a_service_account_may_do_what_rbac_gives_and_no_more() {
    let cluster = Cluster::shared().await;
    let (home, other) = (cluster.namespace("home").await, cluster.namespace("other").await);
    let token = cluster.service_account(&home, "robot").await;
    let robot = cluster.kubectl(Credential::Token(token));
    let here = format!("--namespace={home}");

    let complaint = robot.fail(&["get", "configmaps", &here]).await;
    let forbidden = format!(r#"is forbidden: User "system:serviceaccount:{home}:robot" cannot "#);
    assert!(complaint.contains(&forbidden), "before the role: {complaint}");

    permit(cluster, &home).await;
    robot.succeed(&["get", "configmaps", &here]).await;
    // `delete --all` needs an object that it may not delete.
    cluster.admin().succeed(&["create", "configmap", "kept", &here]).await;
    for refused in [
        ["get", "secrets", &here].as_slice(),
        &["create", "configmap", "mine", &here],
        &["delete", "configmaps", "--all", &here],
        &["get", "configmaps", &format!("--namespace={other}")],
        &["get", "configmaps", "--all-namespaces"],
        &["get", "namespaces"],
    ] {
        let complaint = robot.fail(refused).await;
        assert!(complaint.contains(&forbidden), "{refused:?}: {complaint}");
    }
    let names = robot.succeed(&["get", "configmaps", &here, "--output=name"]).await;
    assert_eq!(names, "configmap/kept\n");
}

#[tokio::test]
async fn the_audit_log_has_the_user_the_verb_and_the_decision() {
    let cluster = Cluster::shared().await;
    let home = cluster.namespace("audited").await;
    let token = cluster.service_account(&home, "robot").await;
    permit(cluster, &home).await;
    for (resource, decision, status) in [("configmaps", "allow", 200), ("secrets", "forbid", 403)] {
        let id = uuid::Uuid::now_v7().to_string();
        let answer = cluster
            .client()
            .get(format!("{}/api/v1/namespaces/{home}/{resource}", cluster.url()))
            .bearer_auth(&token)
            .header("audit-id", &id)
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status(), status);
        let event = cluster.audit().of(&id).await;
        assert_eq!(event["user"]["username"], format!("system:serviceaccount:{home}:robot"));
        assert_eq!(event["verb"], "list");
        assert_eq!(event["objectRef"]["resource"], resource);
        assert_eq!(event["responseStatus"]["code"], status);
        assert_eq!(event["annotations"]["authorization.k8s.io/decision"], decision);
        assert!(!event.to_string().contains(&token), "{event}");
    }
}

#[tokio::test]
async fn a_certificate_names_user_and_group() {
    let cluster = Cluster::shared().await;
    let who = async |group: Option<&str>| {
        let pair = cluster.certificate("jane", group);
        let jane = cluster.kubectl(Credential::Certificate(pair));
        jane.json(&["auth", "whoami"]).await["status"]["userInfo"].clone()
    };
    let info = who(Some("painters")).await;
    assert_eq!(info["username"], "jane");
    assert_eq!(info["groups"], json!(["painters", "system:authenticated"]));
    assert_eq!(who(None).await["groups"], json!(["system:authenticated"]));

    // A certificate with the same user from an unknown authority.
    let stranger = Authority::new("clients").client("jane", Some("system:masters"));
    let complaint = cluster
        .kubectl(Credential::Certificate(stranger))
        .fail(&["get", "namespaces"])
        .await;
    assert!(complaint.contains("You must be logged in"), "{complaint}");
}

#[tokio::test]
async fn the_audit_log_has_impersonator_and_impersonated_user() {
    let cluster = Cluster::shared().await;
    let home = cluster.namespace("impersonated").await;
    let there = format!("--namespace={home}");
    let complaint = cluster
        .admin()
        .fail(&["get", "secrets", &there, "--as=jane", "--as-group=painters"])
        .await;
    assert!(complaint.contains(r#"User "jane" cannot list"#), "{complaint}");
    let event = cluster
        .audit()
        .find_with(&home, |event| {
            event["objectRef"]["namespace"] == *home && event["verb"] == "list"
        })
        .await;
    assert_eq!(event["user"]["username"], "administrator");
    assert_eq!(event["impersonatedUser"]["username"], "jane");
    assert_eq!(event["annotations"]["authorization.k8s.io/decision"], "forbid");

    // A user without the right to impersonate is refused under their own name.
    let id = uuid::Uuid::now_v7().to_string();
    let answer = cluster
        .client_with(&cluster.certificate("jane", None))
        .get(format!("{}/version", cluster.url()))
        .header("impersonate-user", "administrator")
        .header("audit-id", &id)
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 403);
    let text = answer.text().await.unwrap();
    assert!(text.contains("cannot impersonate"), "{text}");
    let event = cluster.audit().of(&id).await;
    assert_eq!(event["user"]["username"], "jane");
    assert_eq!(event["responseStatus"]["code"], 403);
}

/// Starts a cluster with this authentication configuration.
async fn cluster_with(authentication: Value) -> Cluster {
    let Value::Object(authentication) = authentication else {
        panic!("not an object: {authentication}");
    };
    let options = Options {
        authentication,
        ..Options::default()
    };
    Cluster::start_with(options).await
}

/// One cluster is the OpenID provider of the other. Its service account tokens are JWTs, and
/// anybody may read its keys.
#[tokio::test]
async fn a_cluster_accepts_the_tokens_of_a_configured_issuer() {
    let issuer = cluster_with(json!({"anonymous": {
        "enabled": true,
        "conditions": [{"path": "/.well-known/openid-configuration"}, {"path": "/openid/v1/jwks"}],
    }}))
    .await;
    let open = "create clusterrolebinding open --clusterrole=system:service-account-issuer-discovery --group=system:unauthenticated";
    issuer.admin().succeed(&open.split(' ').collect::<Vec<_>>()).await;
    let answer = issuer.client().get(format!("{}/version", issuer.url())).send().await;
    assert_eq!(
        answer.unwrap().status(),
        401,
        "anonymous requests are limited to the configured paths"
    );

    let relying = cluster_with(json!({"jwt": [{
        "issuer": {
            "url": issuer.url(),
            "certificateAuthority": issuer.authority(),
            "audiences": ["relying"],
        },
        "claimMappings": {"username": {"claim": "sub", "prefix": "oidc:"}},
    }]}))
    .await;
    issuer.admin().succeed(&["create", "serviceaccount", "robot"]).await;
    let token = async |audience: &str| {
        let audience = format!("--audience={audience}");
        let token = issuer.admin().succeed(&["create", "token", "robot", &audience]).await;
        relying.kubectl(Credential::Token(token.trim().to_owned()))
    };
    let (good, stray) = (token("relying").await, token("elsewhere").await);
    // The server reads the issuer's keys with a delay.
    eventually("the token is accepted", async || {
        good.run(&["auth", "whoami"]).await.status.success().then_some(())
    })
    .await;
    let info = good.json(&["auth", "whoami"]).await;
    assert_eq!(
        info["status"]["userInfo"]["username"],
        "oidc:system:serviceaccount:default:robot"
    );
    let complaint = stray.fail(&["auth", "whoami"]).await;
    assert!(complaint.contains("You must be logged in"), "{complaint}");
}

/// The server validates Argo CD's objects by the schemas of the release.
#[tokio::test]
async fn objects_of_argo_cd_are_validated_by_its_own_schema() {
    let cluster = Cluster::shared().await.with_crds().await;
    let home = cluster.namespace("defined").await;
    let project = |accounts: Value| {
        json!({
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "AppProject",
            "metadata": {"name": "shop", "namespace": home},
            "spec": {"destinationServiceAccounts": accounts},
        })
        .to_string()
    };
    let entry = json!({"server": "https://kubernetes.default.svc", "namespace": "*", "defaultServiceAccount": "robot"});
    cluster.admin().apply(&project(json!([entry]))).await;
    let run = cluster
        .admin()
        .run_with(&["apply", "--filename=-"], &project(json!([{"namespace": "*"}])))
        .await;
    assert!(!run.status.success(), "{run:?}");
    let missing = "spec.destinationServiceAccounts[0].defaultServiceAccount: Required value";
    assert!(run.stderr.contains(missing), "{}", run.stderr);
}

/// helm has the version that `tests/kubernetes/helm/go.mod` requires, and reaches the cluster.
#[tokio::test]
async fn helm_is_of_the_pinned_release() {
    let cluster = Cluster::shared().await;
    let helm = cluster.admin().beside(helm());
    let version = helm.succeed(&["version", "--template={{.Version}}"]).await;
    let (_, required) = programs::helm(test_support::checkout()).unwrap();
    assert_eq!(version, required);
    let home = cluster.namespace("helm").await;
    let listed = helm.succeed(&["list", "--output=json", "--namespace", &home]).await;
    assert_eq!(listed.trim(), "[]");
}
