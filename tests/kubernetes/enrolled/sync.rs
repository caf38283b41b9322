//! What Argo CD does with one Application in its destination. Each write is made by the account of
//! the project, and the API server refuses anything that the account may not do.

use serde_json::{Value, json};

use super::Scene;
use super::argocd::{
    HOME, SESSION_KEY, World, config_map, deployment, grant, is_done, judged, messages, project, until_may,
};
use crate::enrolled::OWN;
use test_support::kubernetes::argocd::{Cli, POD, terminal};
use test_support::kubernetes::eventually;
use test_support::kubernetes::node;
use test_support::token;

/// Namespaces of the Applications, which have the same names. Each has its own account.
const WEB: &str = "web";
const WAVES: &str = "waves";

/// A namespace that does not exist before the sync, and where the account for it is.
const FRESH: &str = "fresh";
const CREATOR: &str = "creator";

/// Has a Pod, in whose terminal somebody works.
const PODS: &str = "pods";

#[tokio::test(flavor = "multi_thread")]
async fn an_unmodified_argo_cd_does_everything_as_the_account_of_the_project() {
    let world = World::start().await;
    for namespace in [WEB, WAVES, CREATOR, PODS] {
        let create = ["create", "namespace", namespace];
        world.destination.admin().succeed(&create).await;
        world.destination.service_account(namespace, "deployer").await;
    }
    let server = world.destination.url();
    let (creator, namespaces) = (format!("{CREATOR}:deployer"), [HOME, WEB, WAVES, FRESH, PODS]);
    let project = project(
        "shop",
        &namespaces.map(|namespace| (server, namespace)),
        &[(server, FRESH, creator.as_str()), (server, "*", "deployer")],
    );
    world.control.admin().apply(&project.to_string()).await;
    commit(&world).await;
    let cli = world.cli().await;
    tokio::join!(
        self_heal(&world, &cli),
        one_by_one(&world, &cli),
        waves_and_hooks(&world, &cli),
        new_namespace(&world, &cli),
        pod_terminal(&world, &cli),
    );
    world.assert_actors(&[HOME, WEB, WAVES, CREATOR, PODS].map(|namespace| Scene::account(namespace, "deployer")));
}

/// The first commit of all Applications.
async fn commit(world: &World) {
    let annotated = |mut object: Value, annotations: Value| {
        object["metadata"]["annotations"] = annotations;
        Some(object)
    };
    let hook =
        |when: &str| json!({"argocd.argoproj.io/hook": when, "argocd.argoproj.io/hook-delete-policy": "HookSucceeded"});
    let wave = |number: &str| json!({"argocd.argoproj.io/sync-wave": number});
    let pod = json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": "before"},
        "spec": {"restartPolicy": "Never", "containers": [{"name": "main", "image": "none.invalid/main"}]},
    });
    let files = [
        ("shop/hello.yaml", Some(config_map("hello", "1"))),
        ("fresh/hello.yaml", Some(config_map("hello", "1"))),
        ("web/a.yaml", Some(config_map("a", "1"))),
        ("web/b.yaml", Some(config_map("b", "1"))),
        ("web/deployment.yaml", Some(deployment("web"))),
        ("pods/pod.yaml", Some(node::pod(POD))),
        ("waves/before.yaml", annotated(pod, hook("PreSync"))),
        // The names and files are in another order than the waves.
        ("waves/1.yaml", annotated(config_map("a-second", "1"), wave("1"))),
        ("waves/2.yaml", annotated(config_map("b-first", "1"), wave("0"))),
        ("waves/3.yaml", annotated(config_map("a-after", "1"), hook("PostSync"))),
    ];
    world.commit(&files).await;
}

/// argocd-server opens a terminal without impersonation; it is the account's, if it may.
async fn pod_terminal(world: &World, cli: &Cli) {
    let account = (PODS, "deployer");
    let pods: (Option<&str>, &[&str], &[&str]) = (Some(PODS), &["*"], &["/pods"]);
    grant(&world.destination, "pods", account, pods).await;
    world.create_application(cli, PODS, &[]).await;
    world
        .until_acting(world.destination.url(), &Scene::account(PODS, "deployer"))
        .await;
    // A pod that does not run yet keeps the sync going.
    cli.succeed(&["app", "sync", PODS, "--async"]).await;
    eventually("the pod is there", async || {
        let get = ["get", "pod", POD, "--namespace", PODS];
        let run = world.destination.admin().run(&get).await;
        run.status.success().then_some(())
    })
    .await;
    world.destination.start_pod(PODS, POD).await;
    cli.succeed(&["app", "wait", PODS, "--health", "--timeout", "60"]).await;
    let session = token::session(SESSION_KEY, "admin");
    let output = format!("<{PODS}/{POD}>");
    let application = (PODS, "shop", PODS);
    let refused = terminal(world.argocd.address(), &session, application).await;
    assert!(!refused.contains(&output), "{refused}");
    let user = Scene::account(PODS, "deployer");
    let is_exec = |event: &Value, code: u16| {
        event["objectRef"]["subresource"] == "exec"
            && event["impersonatedUser"]["username"] == user.as_str()
            && event["responseStatus"]["code"] == code
    };
    let audit = world.destination.audit();
    audit.find_with(&user, |event| is_exec(event, 403)).await;

    let exec: (Option<&str>, &[&str], &[&str]) = (Some(PODS), &["create", "get"], &["/pods/exec"]);
    grant(&world.destination, "exec", account, exec).await;
    let shown = terminal(world.argocd.address(), &session, application).await;
    assert!(shown.contains(&output), "{shown}");
    audit.find_with(&user, |event| is_exec(event, 101)).await;
}

async fn self_heal(world: &World, cli: &Cli) {
    world.create_application(cli, HOME, &[]).await;
    world
        .until_acting(world.destination.url(), &Scene::account(HOME, "deployer"))
        .await;
    cli.succeed(&["app", "sync", HOME, "--timeout", "60"]).await;
    cli.succeed(&["app", "wait", HOME, "--timeout", "60"]).await;
    let admin = world.destination.admin();
    let namespace = format!("--namespace={HOME}");
    let get = ["get", "configmap", "hello", &namespace];
    assert_eq!(admin.json(&get).await["data"]["value"], "1");

    cli.succeed(&["app", "set", HOME, "--sync-policy", "automated", "--self-heal"])
        .await;
    let change = "--patch={\"data\":{\"value\":\"changed\"}}";
    admin
        .succeed(&["patch", "configmap", "hello", &namespace, change])
        .await;
    eventually("the change is put back", async || {
        let map = admin.json(&get).await;
        (map["data"]["value"] == "1").then_some(())
    })
    .await;
    cli.succeed(&["app", "delete", HOME, "--yes", "--wait"]).await;
    assert!(!admin.run(&get).await.status.success());
}

/// Each kind of sync, and the commands for single objects.
async fn one_by_one(world: &World, cli: &Cli) {
    let account = Scene::account(WEB, "deployer");
    let admin = world.destination.admin();
    let namespace = format!("--namespace={WEB}");
    let may = async |verbs: &[&str]| {
        let resources = ["/configmaps", "apps/deployments"];
        grant(
            &world.destination,
            "objects",
            (WEB, "deployer"),
            (Some(WEB), verbs, &resources),
        )
        .await;
    };
    let sync = async |more: &[&str]| {
        cli.succeed(&[&["app", "sync", WEB, "--timeout", "60"], more].concat())
            .await;
    };
    let value = async || {
        let get = ["get", "configmap", "a", &namespace, "--show-managed-fields"];
        let map = admin.json(&get).await;
        let managers = map["metadata"]["managedFields"].as_array().unwrap().clone();
        (map["data"]["value"].as_str().unwrap().to_owned(), managers)
    };

    world.create_application(cli, WEB, &[]).await;
    world.until_acting(world.destination.url(), &account).await;
    let refused = world.sync_fails(cli, WEB).await;
    let forbidden = |verb: &str| format!("User \"{account}\" cannot {verb} resource \"configmaps\" in API group \"\"");
    assert!(refused.contains(&forbidden("get")), "{refused}");
    // What it may read, it need not write.
    may(&["get", "list", "watch"]).await;
    let refused = world.sync_fails(cli, WEB).await;
    assert!(refused.contains(&forbidden("create")), "{refused}");
    let writes = judged(&world.destination, &Scene::account(OWN, "gateway")).into_iter();
    let mut writes = writes.filter(|(who, event)| *who == account && is_done(event));
    assert_eq!(writes.next(), None);
    may(&["*"]).await;

    sync(&[]).await;
    world.wrote(&account, "create", ("configmaps", "a")).await;
    world.wrote(&account, "create", ("deployments", WEB)).await;

    world.commit(&[("web/a.yaml", Some(config_map("a", "2")))]).await;
    let differs = cli.run(&["app", "diff", WEB, "--refresh"]).await;
    assert_eq!(differs.status.code(), Some(1), "{}{}", differs.stdout, differs.stderr);
    assert!(differs.stdout.contains("value: \"2\""), "{}", differs.stdout);
    // Argo CD sends the dry run of this diff without impersonation.
    let differs = cli.run(&["app", "diff", WEB, "--server-side-diff"]).await;
    assert_eq!(differs.status.code(), Some(1), "{}{}", differs.stdout, differs.stderr);
    assert!(differs.stdout.contains("value: \"2\""), "{}", differs.stdout);
    world.dry_ran(&account, ("configmaps", "a")).await;
    sync(&["--server-side"]).await;
    let (now, managers) = value().await;
    assert_eq!(now, "2");
    let applies = |one: &Value| one["operation"] == "Apply" && one["manager"] == "argocd-controller";
    assert!(managers.iter().any(applies), "{managers:?}");

    world.commit(&[("web/a.yaml", Some(config_map("a", "3")))]).await;
    sync(&["--replace"]).await;
    assert_eq!(value().await.0, "3");
    world.wrote(&account, "update", ("configmaps", "a")).await;

    world.commit(&[("web/b.yaml", None)]).await;
    sync(&["--prune"]).await;
    world.wrote(&account, "delete", ("configmaps", "b")).await;
    assert!(!admin.run(&["get", "configmap", "b", &namespace]).await.status.success());

    let history = cli.succeed(&["app", "history", WEB, "--output", "id"]).await;
    let first = history.split_whitespace().next().unwrap();
    cli.succeed(&["app", "rollback", WEB, first, "--timeout", "60"]).await;
    assert_eq!(value().await.0, "1");
    admin.succeed(&["get", "configmap", "b", &namespace]).await;

    single_objects(world, cli, &account).await;

    cli.succeed(&[
        "app",
        "delete",
        WEB,
        "--yes",
        "--wait",
        "--propagation-policy",
        "foreground",
    ])
    .await;
    for (resource, name) in [("configmaps", "a"), ("deployments", WEB)] {
        world.wrote(&account, "delete", (resource, name)).await;
        assert!(!admin.run(&["get", resource, name, &namespace]).await.status.success());
    }
}

/// What people do with an object of an Application in the pages.
async fn single_objects(world: &World, cli: &Cli, account: &str) {
    let admin = world.destination.admin();
    let namespace = format!("--namespace={WEB}");
    let live = eventually("Argo CD knows what the rollback made", async || {
        let live = cli.succeed(&["app", "manifests", WEB, "--source", "live"]).await;
        live.contains("tracking-id: web:/ConfigMap:web/b").then_some(live)
    })
    .await;
    assert!(live.contains("tracking-id: web:apps/Deployment:web/web"), "{live}");
    let of = |kind: &'static str, name: &'static str| ["--kind", kind, "--resource-name", name, "--namespace", WEB];
    let patch = [
        "--patch",
        "{\"data\":{\"value\":\"patched\"}}",
        "--patch-type",
        "application/merge-patch+json",
    ];
    let patch = [&["app", "patch-resource", WEB][..], &of("ConfigMap", "a"), &patch].concat();
    let restart = [&["app", "actions", "run", WEB, "restart"][..], &of("Deployment", WEB)].concat();
    let delete = [&["app", "delete-resource", WEB][..], &of("ConfigMap", "b")].concat();
    let commands = [
        (patch, "patch", ("configmaps", "a")),
        (restart, "patch", ("deployments", WEB)),
        (delete, "delete", ("configmaps", "b")),
    ];
    let objects = async || {
        let get = [
            "get",
            "configmaps,deployments",
            &namespace,
            "--output=jsonpath={.items[*].metadata.resourceVersion}",
        ];
        admin.succeed(&get).await
    };

    let may = async |verbs: &[&str]| {
        let resources = ["/configmaps", "apps/deployments"];
        grant(
            &world.destination,
            "objects",
            (WEB, "deployer"),
            (Some(WEB), verbs, &resources),
        )
        .await;
    };
    may(&["get", "list", "watch"]).await;
    until_may(
        &world.destination,
        (WEB, "deployer"),
        (Some(WEB), "patch", "configmaps"),
        false,
    )
    .await;
    let before = objects().await;
    for (command, verb, (resource, _)) in &commands {
        let run = cli.run(command).await;
        assert!(!run.status.success(), "{command:?}: {}", run.stdout);
        let forbidden = format!("User \"{account}\" cannot {verb} resource \"{resource}\"");
        // The command writes it as a quoted string.
        let refused = run.stderr.replace('\\', "");
        assert!(refused.contains(&forbidden), "{command:?}: {refused}");
    }
    assert_eq!(objects().await, before);
    may(&["*"]).await;
    for (command, verb, object) in &commands {
        cli.succeed(command).await;
        world.wrote(account, verb, *object).await;
    }
    let get = [
        "get",
        "deployment",
        WEB,
        &namespace,
        "--output=jsonpath={.spec.template.metadata.annotations}",
    ];
    assert!(admin.succeed(&get).await.contains("restartedAt"));
}

/// A hook before the first wave, and one after the last.
async fn waves_and_hooks(world: &World, cli: &Cli) {
    let account = Scene::account(WAVES, "deployer");
    let admin = world.destination.admin();
    let namespace = format!("--namespace={WAVES}");
    let may = async |resources: &[&str]| {
        grant(
            &world.destination,
            "objects",
            (WAVES, "deployer"),
            (Some(WAVES), &["*"], resources),
        )
        .await;
    };
    may(&["/configmaps"]).await;
    world.create_application(cli, WAVES, &[]).await;
    world.until_acting(world.destination.url(), &account).await;
    let refused = world.sync_fails(cli, WAVES).await;
    let forbidden = format!("User \"{account}\" cannot get resource \"pods\" in API group \"\"");
    assert!(refused.contains(&forbidden), "{refused}");
    assert_eq!(
        admin.succeed(&["get", "configmaps", &namespace, "--output=name"]).await,
        ""
    );

    may(&["/configmaps", "/pods"]).await;
    cli.succeed(&["app", "sync", WAVES, "--async"]).await;
    world.wrote(&account, "create", ("pods", "before")).await;
    assert_eq!(
        admin.succeed(&["get", "configmaps", &namespace, "--output=name"]).await,
        ""
    );
    let ended = "--patch={\"status\":{\"phase\":\"Succeeded\"}}";
    admin
        .succeed(&["patch", "pod", "before", &namespace, "--subresource=status", ended])
        .await;
    eventually("the sync ends", async || {
        let state = world.operation(WAVES).await;
        assert!(
            matches!(state["phase"].as_str(), Some("Running" | "Succeeded")),
            "{}",
            messages(&state)
        );
        (state["phase"] == "Succeeded").then_some(())
    })
    .await;
    let created = async |name: &str| {
        let event = world.wrote(&account, "create", ("configmaps", name)).await;
        event["requestReceivedTimestamp"].as_str().unwrap().to_owned()
    };
    let order = [
        created("b-first").await,
        created("a-second").await,
        created("a-after").await,
    ];
    assert!(order.is_sorted(), "{order:?}");
    for hook in [("pods", "before"), ("configmaps", "a-after")] {
        world.wrote(&account, "delete", hook).await;
    }
}

/// The account creates the namespace, or the API server says why not.
async fn new_namespace(world: &World, cli: &Cli) {
    let account = Scene::account(CREATOR, "deployer");
    let may = async |name: &str, verbs: &[&str], resources: &[&str]| {
        grant(
            &world.destination,
            name,
            (CREATOR, "deployer"),
            (None, verbs, resources),
        )
        .await;
    };
    may("creator-objects", &["*"], &["/configmaps"]).await;
    world
        .create_application(cli, FRESH, &["--sync-option", "CreateNamespace=true"])
        .await;
    world.until_acting(world.destination.url(), &account).await;
    let missing = ["get", "namespace", FRESH];
    for verb in ["get", "create"] {
        let refused = world.sync_fails(cli, FRESH).await;
        let forbidden = format!("User \"{account}\" cannot {verb} resource \"namespaces\" in API group \"\"");
        assert!(refused.contains(&forbidden), "{refused}");
        assert!(!world.destination.admin().run(&missing).await.status.success());
        let verbs = if verb == "get" {
            &["get"][..]
        } else {
            &["create", "get", "patch"]
        };
        may("creator-namespaces", verbs, &["/namespaces"]).await;
    }
    cli.succeed(&["app", "sync", FRESH, "--timeout", "60"]).await;
    world.wrote(&account, "create", ("namespaces", FRESH)).await;
    world.wrote(&account, "create", ("configmaps", "hello")).await;
}
