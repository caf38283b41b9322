//! Off, audit and enforce, switched while the gateway runs.

use serde_json::{Value, json};

use super::world::{Plan, Source, World, role, user};
use test_support::kubernetes::eventually;
use test_support::kubernetes::kubectl::Kubectl;

/// A world where the gateway's own account may make config maps, the Application's
/// may not, and nobody acts for the Application `nobody`.
async fn start(source: Source) -> World {
    let mut plan = Plan::new(source).await;
    let there = plan.guestbook.clone();
    plan.deployer(&there, "deployer", &[&there]);
    let own = json!([
        {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["create", "get"]},
        {"apiGroups": [""], "resources": ["services"], "verbs": ["list"]},
    ]);
    let control = plan.control.clone();
    plan.objects(role(&there, "own", &own, (&control, "tollgate")));
    plan.project(
        "my-project",
        &json!({"destinationServiceAccounts": [plan.acts(&there, "deployer")]}),
    );
    plan.project(
        "bad",
        &json!({"destinationServiceAccounts": [plan.acts("*", "not*valid")]}),
    );
    plan.application("guestbook", "my-project", &plan.to(&there));
    plan.application("nobody", "bad", &plan.to(&there));
    plan.start().await
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

async fn switched(source: Source) {
    let mut world = start(source).await;
    let there = world.guestbook.clone();
    let (kubectl, nobody) = (world.kubectl("alice", "guestbook"), world.kubectl("alice", "nobody"));
    let account = user(&there, "deployer");
    let make = |name| ["create", "configmap", name, "-n", &there].map(str::to_owned);

    // Enforce: the account acts, and may not.
    seen_as(&kubectl, &account).await;
    let complaint = fail(&kubectl, &make("enforced")).await;
    assert!(
        complaint.contains(&format!(r#"User "{account}" cannot create resource "configmaps""#)),
        "{complaint}"
    );
    let is =
        |event: &Value| event["objectRef"]["namespace"] == *there && event["objectRef"]["resource"] == "configmaps";
    let event = world.cluster.audit().find_with(&there, is).await;
    assert_eq!(
        (&event["verb"], &event["responseStatus"]["code"]),
        (&json!("create"), &json!(403)),
        "{event}"
    );
    assert_eq!(event["user"]["username"], world.own(), "{event}");
    assert_eq!(event["impersonatedUser"]["username"], account, "{event}");
    let complaint = fail(&nobody, &make("nobody")).await;
    assert!(
        complaint.contains("default service account contains invalid chars 'not*valid'"),
        "{complaint}"
    );

    // Off: the gateway's own identity acts.
    world.mode("false").await;
    let dry = [&make("dry")[..], &["--dry-run=server".to_owned()]].concat();
    eventually("the gateway acts in its own name", async || {
        let dry: Vec<&str> = dry.iter().map(String::as_str).collect();
        kubectl.run(&dry).await.status.success().then_some(())
    })
    .await;
    succeed(&kubectl, &make("off")).await;
    by_itself(&world, &there, "off").await;
    succeed(&nobody, &make("off-nobody")).await;
    let refused = |record: &Value| record["notes"]["would_refuse"].as_str().map(str::to_owned);
    assert!(!world.gateway.decisions().iter().any(|record| refused(record).is_some()));

    // Audit: the same, and what enforce would refuse is written down.
    world.mode("audit").await;
    let told = eventually("what enforce would refuse is written down", async || {
        nobody.run(&["get", "configmap", "off", "-n", &there]).await;
        world.gateway.decisions().iter().find_map(refused)
    })
    .await;
    assert!(
        told.starts_with("default service account contains invalid chars 'not*valid'"),
        "{told}"
    );
    succeed(&nobody, &make("audit-nobody")).await;
    by_itself(&world, &there, "audit-nobody").await;
    succeed(&kubectl, &make("audit")).await;
    by_itself(&world, &there, "audit").await;
    let told = format!("the cluster refuses `create` to `{account}`: no rule allows it");
    eventually("the record has what the cluster says of the account", async || {
        let mut records = world.gateway.decisions().into_iter();
        records.find(|record| refused(record).as_ref() == Some(&told))
    })
    .await;
    let warning = format!("with impersonation enforced this would be refused: {told}");
    let log = world.gateway.log();
    assert!(
        log.iter().any(|line| line["fields"]["message"] == warning.as_str()),
        "{log:?}"
    );
    // What enforce would let pass is not written down so.
    succeed(&kubectl, &["get", "services", "-n", &there].map(str::to_owned)).await;
    let listed = eventually("the record of a list", async || {
        let mut records = world.gateway.decisions().into_iter();
        records.find(|record| record.to_string().contains("/services") && record.to_string().contains("list"))
    })
    .await;
    assert_eq!(refused(&listed), None, "{listed}");

    // And back.
    world.mode("true").await;
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

/// That the gateway wrote an object in its own name.
async fn by_itself(world: &World, namespace: &str, name: &str) {
    let event = world.event(namespace, name).await;
    assert_eq!(event["user"]["username"], world.own(), "{event}");
    assert!(event.get("impersonatedUser").is_none(), "{event}");
    assert_eq!(event["responseStatus"]["code"], 201, "{event}");
}

#[tokio::test]
async fn switched_without_a_restart_with_objects_in_a_folder() {
    switched(Source::Directory).await;
}

#[tokio::test]
async fn switched_without_a_restart_with_objects_in_the_cluster() {
    switched(Source::Kubernetes).await;
}

/// The flag wins over `argocd-cm`, whichever way it points, and so does the variable
/// Argo CD's controller was designed to have.
#[tokio::test]
async fn flag_and_variable_win_over_the_objects() {
    const VARIABLE: &str = "ARGOCD_APPLICATION_CONTROLLER_ENABLE_IMPERSONATION";
    for (flag, variable, mode, acts) in [
        (Some("--enable-impersonation"), None, "false", true),
        (Some("--enable-impersonation=false"), None, "true", false),
        (None, Some("true"), "false", true),
        (Some("--enable-impersonation=false"), Some("true"), "true", false),
    ] {
        let mut plan = Plan::new(Source::Directory).await;
        let there = plan.guestbook.clone();
        plan.deployer(&there, "deployer", &[&there]);
        plan.project(
            "my-project",
            &json!({"destinationServiceAccounts": [plan.acts("*", "deployer")]}),
        );
        plan.application("guestbook", "my-project", &plan.to(&there));
        plan.mode(mode);
        plan.layout.arguments(flag.as_slice());
        if let Some(value) = variable {
            plan.layout.variable(VARIABLE, value);
        }
        let world = plan.start().await;
        let asked = ["get", "services", "-n", &there];
        let run = world.kubectl("alice", "guestbook").run(&asked).await;
        assert_eq!(run.status.success(), acts, "{flag:?} {variable:?}: {run:?}");
        let refused = format!(r#"User "{}" cannot list resource "services""#, world.own());
        assert_eq!(run.stderr.contains(&refused), !acts, "{flag:?} {variable:?}: {run:?}");
    }
}
