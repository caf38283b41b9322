//! Sync windows and sources of a project, on an account that could do everything.

use serde_json::{Value, json};

use super::fixture::{Fixture, Source, project};
use super::restrictions::{start, with_account, writes};
use test_support::kubernetes::eventually;

async fn put_project(fixture: &Fixture, spec: &Value) {
    let acts = json!({"server": fixture.cluster.url(), "namespace": "*", "defaultServiceAccount": "robot"});
    let spec = with_account(&acts, spec);
    fixture.put(&project(&fixture.control, "my-project", &spec)).await;
}

/// Every kind of write is refused outside the window, and permitted once the window lets manual syncs
/// pass. A source that the project does not permit closes the Application.
async fn windows_and_sources(source: Source) {
    let window = |manual: bool| {
        json!({"syncWindows": [{
            // A minute of every fourth year.
            "kind": "allow", "schedule": "0 0 29 2 *", "duration": "1m", "timeZone": "Europe/Berlin",
            "applications": ["guest*"], "manualSync": manual,
        }]})
    };
    let fixture = start(source, &window(false)).await;
    let (there, kubectl) = (&fixture.guestbook, fixture.kubectl("alice", "guestbook"));
    for (name, run) in writes(&kubectl, there).await {
        assert!(!run.status.success(), "{name}: {run:?}");
        let wanted = "changes are only permitted in sync windows; the next one is `allow 0 0 29 2 *` for `1m` in \
                      `Europe/Berlin`, from 20";
        assert!(
            run.stderr.contains("Forbidden") && run.stderr.contains(wanted),
            "{name}: {}",
            run.stderr
        );
    }
    assert_eq!(fixture.arrived(there), [] as [Value; 0]);
    kubectl.succeed(&["get", "deployment", "there", "-n", there]).await;
    let is_closed = |record: &Value| record["reason"] == "sync_window_closed";
    fixture.gateway.decision("the closed window", is_closed).await;

    put_project(&fixture, &window(true)).await;
    let patch = r#"--patch={"spec":{"replicas":3}}"#;
    let dry_run = ["patch", "deployment", "there", "--dry-run=server", patch, "-n", there];
    eventually("manual syncs pass", async || {
        kubectl.run(&dry_run).await.status.success().then_some(())
    })
    .await;
    for (name, run) in writes(&kubectl, there).await {
        assert!(run.status.success(), "{name}: {run:?}");
    }

    put_project(&fixture, &json!({"sourceRepos": ["https://git.invalid/other"]})).await;
    eventually("the source is not permitted", async || {
        let run = kubectl.run(&["get", "deployments", "-n", there]).await;
        let wanted = "does not permit the application's source repository `https://git.invalid/guestbook`: sourceRepos";
        run.stderr.contains(wanted).then_some(())
    })
    .await;
    let complaint = kubectl.fail(&["create", "configmap", "late", "-n", there]).await;
    assert!(complaint.contains("sourceRepos"), "{complaint}");
}

#[tokio::test]
async fn windows_and_sources_are_respected_with_objects_in_a_folder() {
    windows_and_sources(Source::Directory).await;
}

#[tokio::test]
async fn windows_and_sources_are_respected_with_objects_in_the_cluster() {
    windows_and_sources(Source::Kubernetes).await;
}
