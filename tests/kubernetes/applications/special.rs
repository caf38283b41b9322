//! The special cases in the design of sync impersonation: an account in another namespace, several
//! matching entries, resources in several namespaces, and no destination namespace.

use serde_json::json;

use super::fixture::{FixtureBuilder, Source, guestbook, run_apply, user};

#[tokio::test]
async fn an_account_may_be_in_another_namespace() {
    let mut builder = FixtureBuilder::new(Source::Directory).await;
    let (there, home) = (builder.guestbook.clone(), builder.elsewhere.clone());
    builder.deployer(&home, "guestbook-deployer", &[&there]);
    let acts = builder.acts("*", &format!("{home}:guestbook-deployer"));
    builder.project("my-project", &json!({"destinationServiceAccounts": [acts]}));
    builder.application("guestbook", "my-project", &builder.to(&there));
    let fixture = builder.start().await;
    let kubectl = fixture.kubectl("alice", "guestbook");
    let run = run_apply(&kubectl, &guestbook(&there, "guestbook")).await;
    assert!(run.status.success(), "{run:?}");
    let account = user(&home, "guestbook-deployer");
    fixture.wrote(&there, "guestbook", &account).await;
    let whoami = kubectl.json(&["auth", "whoami"]).await;
    assert_eq!(whoami["status"]["userInfo"]["username"], account);
    // The account has no rights in its own namespace.
    let run = run_apply(&kubectl, &guestbook(&home, "guestbook")).await;
    assert!(run.stderr.contains(&format!(r#"User "{account}" cannot "#)), "{run:?}");
}

/// The first matching entry decides, even if a later one is more specific.
#[tokio::test]
async fn the_first_matching_entry_decides() {
    let mut builder = FixtureBuilder::new(Source::Kubernetes).await;
    let (prod, other) = (builder.guestbook.clone(), builder.elsewhere.clone());
    let dev = builder.cluster.namespace("guestbook").await;
    let entries = [
        builder.acts(&prod, "guestbook-prod-deployer"),
        builder.acts("guestbook-*", "guestbook-generic-deployer"),
        builder.acts("*", "generic-deployer"),
        builder.acts(&other, "too-late"),
    ];
    builder.project("my-project", &json!({"destinationServiceAccounts": entries}));
    let wanted = [
        ("prod", &prod, "guestbook-prod-deployer"),
        ("dev", &dev, "guestbook-generic-deployer"),
        ("other", &other, "generic-deployer"),
    ];
    for (name, namespace, account) in wanted {
        builder.application(name, "my-project", &builder.to(namespace));
        builder.deployer(namespace, account, &[namespace]);
    }
    let fixture = builder.start().await;
    for (name, namespace, account) in wanted {
        let run = run_apply(&fixture.kubectl("alice", name), &guestbook(namespace, name)).await;
        assert!(run.status.success(), "{run:?}");
        fixture.wrote(namespace, name, &user(namespace, account)).await;
    }
}

/// The Application's destination namespace determines the account for all its writes.
#[tokio::test]
async fn one_account_writes_to_several_namespaces() {
    let mut builder = FixtureBuilder::new(Source::Directory).await;
    let (first, second) = (builder.guestbook.clone(), builder.elsewhere.clone());
    builder.deployer(&first, "first", &[&first, &second]);
    builder.deployer(&second, "second", &[&second]);
    let entries = [builder.acts(&first, "first"), builder.acts(&second, "second")];
    builder.project("my-project", &json!({"destinationServiceAccounts": entries}));
    builder.application("guestbook", "my-project", &builder.to(&first));
    let fixture = builder.start().await;
    let kubectl = fixture.kubectl("alice", "guestbook");
    for namespace in [&first, &second] {
        let run = run_apply(&kubectl, &guestbook(namespace, "guestbook")).await;
        assert!(run.status.success(), "{run:?}");
        fixture.wrote(namespace, "guestbook", &user(&first, "first")).await;
    }
}

#[tokio::test]
async fn without_a_destination_namespace_the_account_is_in_the_application_s_namespace() {
    let mut builder = FixtureBuilder::new(Source::Kubernetes).await;
    let (control, there) = (builder.control.clone(), builder.guestbook.clone());
    builder.deployer(&control, "guestbook-deployer", &[&there]);
    // The entry matches with an empty pattern, and with one for all namespaces.
    for (project, entry) in [
        ("empty", builder.acts("", "guestbook-deployer")),
        ("all", builder.acts("*", "guestbook-deployer")),
    ] {
        builder.project(project, &json!({"destinationServiceAccounts": [entry]}));
        builder.application(project, project, &json!({"server": builder.cluster.url()}));
    }
    let fixture = builder.start().await;
    for name in ["empty", "all"] {
        let run = run_apply(&fixture.kubectl("alice", name), &guestbook(&there, name)).await;
        assert!(run.status.success(), "{run:?}");
        fixture.wrote(&there, name, &user(&control, "guestbook-deployer")).await;
    }
}
