//! The impersonation modes off, audit and enforce, changed while the gateway runs.

use serde_json::{Value, json};

use super::fixture::{Fixture, FixtureBuilder, Source, role, user};
use test_support::kubernetes::eventually;
use test_support::kubernetes::kubectl::Kubectl;

/// The gateway's own account may create config maps, and that of the Application `guestbook` may
/// not. The Application `nobody` has no valid account.
async fn start(source: Source) -> Fixture {
    let mut builder = FixtureBuilder::new(source).await;
    let there = builder.guestbook.clone();
    builder.deployer(&there, "deployer", &[&there]);
    let own = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get"]},
        {"apiGroups": [""], "resources": ["services"], "verbs": ["list"]},
    ]);
    let control = builder.control.clone();
    builder.objects(role(&there, "own", &own, (&control, "tollgate")));
    builder.project(
        "my-project",
        &json!({"destinationServiceAccounts": [builder.acts(&there, "deployer")]}),
    );
    builder.project(
        "bad",
        &json!({"destinationServiceAccounts": [builder.acts("*", "not*valid")]}),
    );
    builder.application("guestbook", "my-project", &builder.to(&there));
    builder.application("nobody", "bad", &builder.to(&there));
    builder.start().await
}

/// Waits until the cluster sees this user.
async fn seen_as(kubectl: &Kubectl, user: &str) {
    eventually(&format!("the cluster sees {user}"), async || {
        let run = kubectl
            .run(&["auth", "whoami", "--output=jsonpath={.status.userInfo.username}"])
            .await;
        (run.stdout == user).then_some(())
    })
    .await;
}

async fn modes_change(source: Source) {
    let mut fixture = start(source).await;
    let there = fixture.guestbook.clone();
    let (kubectl, nobody) = (
        fixture.kubectl("alice", "guestbook"),
        fixture.kubectl("alice", "nobody"),
    );
    let account = user(&there, "deployer");
    let make = |name| ["create", "configmap", name, "-n", &there].map(str::to_owned);

    // Enforce: the account is impersonated, and its rights are missing.
    seen_as(&kubectl, &account).await;
    let complaint = fail(&kubectl, &make("enforced")).await;
    assert!(
        complaint.contains(&format!(r#"User "{account}" cannot create resource "configmaps""#)),
        "{complaint}"
    );
    let is =
        |event: &Value| event["objectRef"]["namespace"] == *there && event["objectRef"]["resource"] == "configmaps";
    let event = fixture.cluster.audit().find_with(&there, is).await;
    assert_eq!(
        (&event["verb"], &event["responseStatus"]["code"]),
        (&json!("create"), &json!(403)),
        "{event}"
    );
    assert_eq!(event["user"]["username"], fixture.own(), "{event}");
    assert_eq!(event["impersonatedUser"]["username"], account, "{event}");
    let complaint = fail(&nobody, &make("nobody")).await;
    assert!(
        complaint.contains("default service account contains invalid chars 'not*valid'"),
        "{complaint}"
    );

    // Off: the gateway uses its own identity.
    fixture.mode("false").await;
    let dry = [&make("dry")[..], &["--dry-run=server".to_owned()]].concat();
    eventually("the gateway uses its own identity", async || {
        let dry: Vec<&str> = dry.iter().map(String::as_str).collect();
        kubectl.run(&dry).await.status.success().then_some(())
    })
    .await;
    succeed(&kubectl, &make("off")).await;
    assert_own_identity(&fixture, &there, "off").await;
    succeed(&nobody, &make("off-nobody")).await;
    let refused = |record: &Value| record["notes"]["would_refuse"].as_str().map(str::to_owned);
    assert!(
        !fixture
            .gateway
            .decisions()
            .iter()
            .any(|record| refused(record).is_some())
    );

    // Audit: as off, and what enforce would refuse is recorded.
    fixture.mode("audit").await;
    let reason = eventually("what enforce would refuse is recorded", async || {
        nobody.run(&["get", "configmap", "off", "-n", &there]).await;
        fixture.gateway.decisions().iter().find_map(refused)
    })
    .await;
    assert!(
        reason.starts_with("default service account contains invalid chars 'not*valid'"),
        "{reason}"
    );
    succeed(&nobody, &make("audit-nobody")).await;
    assert_own_identity(&fixture, &there, "audit-nobody").await;
    succeed(&kubectl, &make("audit")).await;
    assert_own_identity(&fixture, &there, "audit").await;
    let reason = format!("the cluster refuses `create` to `{account}`: no rule allows it");
    eventually("the record has what the cluster says of the account", async || {
        let mut records = fixture.gateway.decisions().into_iter();
        records.find(|record| refused(record).as_ref() == Some(&reason))
    })
    .await;
    let warning = format!("with impersonation enforced this would be refused: {reason}");
    let log = fixture.gateway.log();
    assert!(
        log.iter().any(|line| line["fields"]["message"] == warning.as_str()),
        "{log:?}"
    );
    // A request that enforce would permit has no such note.
    succeed(&kubectl, &["get", "services", "-n", &there].map(str::to_owned)).await;
    let listed = eventually("the record of a list", async || {
        let mut records = fixture.gateway.decisions().into_iter();
        records.find(|record| record.to_string().contains("/services") && record.to_string().contains("list"))
    })
    .await;
    assert_eq!(refused(&listed), None, "{listed}");

    // Enforce again.
    fixture.mode("true").await;
    seen_as(&kubectl, &account).await;
    fail(&nobody, &make("again")).await;
}

async fn fail(kubectl: &Kubectl, arguments: &[String]) -> String {
    kubectl
        .fail(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
        .await
}

async fn succeed(kubectl: &Kubectl, arguments: &[String]) -> String {
    kubectl
        .succeed(&arguments.iter().map(String::as_str).collect::<Vec<_>>())
        .await
}

/// Asserts that the gateway wrote an object with its own identity.
async fn assert_own_identity(fixture: &Fixture, namespace: &str, name: &str) {
    let event = fixture.event(namespace, name).await;
    assert_eq!(event["user"]["username"], fixture.own(), "{event}");
    assert!(event.get("impersonatedUser").is_none(), "{event}");
    assert_eq!(event["responseStatus"]["code"], 201, "{event}");
}

#[tokio::test]
async fn modes_change_without_a_restart_with_objects_in_a_folder() {
    modes_change(Source::Directory).await;
}

#[tokio::test]
async fn modes_change_without_a_restart_with_objects_in_the_cluster() {
    modes_change(Source::Kubernetes).await;
}

/// The flag overrides `argocd-cm` in both directions, and so does the variable from the design for
/// Argo CD's controller.
#[tokio::test]
async fn flag_and_variable_override_the_objects() {
    const VARIABLE: &str = "ARGOCD_APPLICATION_CONTROLLER_ENABLE_IMPERSONATION";
    for (flag, variable, mode, acts) in [
        (Some("--enable-impersonation"), None, "false", true),
        (Some("--enable-impersonation=false"), None, "true", false),
        (None, Some("true"), "false", true),
        (Some("--enable-impersonation=false"), Some("true"), "true", false),
    ] {
        let mut builder = FixtureBuilder::new(Source::Directory).await;
        let there = builder.guestbook.clone();
        builder.deployer(&there, "deployer", &[&there]);
        builder.project(
            "my-project",
            &json!({"destinationServiceAccounts": [builder.acts("*", "deployer")]}),
        );
        builder.application("guestbook", "my-project", &builder.to(&there));
        builder.mode(mode);
        builder.layout.arguments(flag.as_slice());
        if let Some(value) = variable {
            builder.layout.variable(VARIABLE, value);
        }
        let fixture = builder.start().await;
        let asked = ["get", "services", "-n", &there];
        let run = fixture.kubectl("alice", "guestbook").run(&asked).await;
        assert_eq!(run.status.success(), acts, "{flag:?} {variable:?}: {run:?}");
        let refused = format!(r#"User "{}" cannot list resource "services""#, fixture.own());
        assert_eq!(run.stderr.contains(&refused), !acts, "{flag:?} {variable:?}: {run:?}");
    }
}
