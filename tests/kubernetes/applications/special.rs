//! The special cases of the design of sync impersonation: an account in another
//! namespace, several entries that match, resources in several namespaces, no
//! destination namespace.

use serde_json::json;

use super::world::{Plan, Source, guestbook, run_apply, user};

#[tokio::test]
async fn an_account_may_be_of_another_namespace() {
    let mut plan = Plan::new(Source::Directory).await;
    let (there, home) = (plan.guestbook.clone(), plan.elsewhere.clone());
    plan.deployer(&home, "guestbook-deployer", &[&there]);
    let acts = plan.acts("*", &format!("{home}:guestbook-deployer"));
    plan.project("my-project", &json!({"destinationServiceAccounts": [acts]}));
    plan.application("guestbook", "my-project", &plan.to(&there));
    let world = plan.start().await;
    let kubectl = world.kubectl("alice", "guestbook");
    let run = run_apply(&kubectl, &guestbook(&there, "guestbook")).await;
    assert!(run.status.success(), "{run:?}");
    let account = user(&home, "guestbook-deployer");
    world.wrote(&there, "guestbook", &account).await;
    let whoami = kubectl.json(&["auth", "whoami"]).await;
    assert_eq!(whoami["status"]["userInfo"]["username"], account);
    // Its own namespace is none it may write to.
    let run = run_apply(&kubectl, &guestbook(&home, "guestbook")).await;
    assert!(run.stderr.contains(&format!(r#"User "{account}" cannot "#)), "{run:?}");
}

/// The first entry that matches decides, however special a later one is.
#[tokio::test]
async fn of_several_entries_the_first_that_matches_decides() {
    let mut plan = Plan::new(Source::Kubernetes).await;
    let (prod, other) = (plan.guestbook.clone(), plan.elsewhere.clone());
    let dev = plan.cluster.namespace("guestbook").await;
    let entries = [
        plan.acts(&prod, "guestbook-prod-deployer"),
        plan.acts("guestbook-*", "guestbook-generic-deployer"),
        plan.acts("*", "generic-deployer"),
        plan.acts(&other, "too-late"),
    ];
    plan.project("my-project", &json!({"destinationServiceAccounts": entries}));
    let wanted = [
        ("prod", &prod, "guestbook-prod-deployer"),
        ("dev", &dev, "guestbook-generic-deployer"),
        ("other", &other, "generic-deployer"),
    ];
    for (name, namespace, account) in wanted {
        plan.application(name, "my-project", &plan.to(namespace));
        plan.deployer(namespace, account, &[namespace]);
    }
    let world = plan.start().await;
    for (name, namespace, account) in wanted {
        let run = run_apply(&world.kubectl("alice", name), &guestbook(namespace, name)).await;
        assert!(run.status.success(), "{run:?}");
        world.wrote(namespace, name, &user(namespace, account)).await;
    }
}

/// The Application's destination namespace chooses the account, for all it writes.
#[tokio::test]
async fn one_account_writes_to_several_namespaces() {
    let mut plan = Plan::new(Source::Directory).await;
    let (first, second) = (plan.guestbook.clone(), plan.elsewhere.clone());
    plan.deployer(&first, "first", &[&first, &second]);
    plan.deployer(&second, "second", &[&second]);
    let entries = [plan.acts(&first, "first"), plan.acts(&second, "second")];
    plan.project("my-project", &json!({"destinationServiceAccounts": entries}));
    plan.application("guestbook", "my-project", &plan.to(&first));
    let world = plan.start().await;
    let kubectl = world.kubectl("alice", "guestbook");
    for namespace in [&first, &second] {
        let run = run_apply(&kubectl, &guestbook(namespace, "guestbook")).await;
        assert!(run.status.success(), "{run:?}");
        world.wrote(namespace, "guestbook", &user(&first, "first")).await;
    }
}

#[tokio::test]
async fn without_a_destination_namespace_the_account_is_of_the_applications() {
    let mut plan = Plan::new(Source::Kubernetes).await;
    let (control, there) = (plan.control.clone(), plan.guestbook.clone());
    plan.deployer(&control, "guestbook-deployer", &[&there]);
    // As an empty pattern, and as one for all.
    for (project, entry) in [
        ("empty", plan.acts("", "guestbook-deployer")),
        ("all", plan.acts("*", "guestbook-deployer")),
    ] {
        plan.project(project, &json!({"destinationServiceAccounts": [entry]}));
        plan.application(project, project, &json!({"server": plan.cluster.url()}));
    }
    let world = plan.start().await;
    for name in ["empty", "all"] {
        let run = run_apply(&world.kubectl("alice", name), &guestbook(&there, name)).await;
        assert!(run.status.success(), "{run:?}");
        world.wrote(&there, name, &user(&control, "guestbook-deployer")).await;
    }
}
