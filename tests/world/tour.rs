//! The tour: what people do with Argo CD, through the gateway with the real `argocd`, compared with
//! the same commands sent straight to argocd-server.

use std::path::Path;

use reqwest::redirect::Policy;
use serde_json::{Value, json};
use tokio::process::Command;

use crate::{SESSION_KEY, World, day};
use test_support::kubernetes::argocd::{Cli, NAMESPACE, PERSON, PERSON_PASSWORD, POD, READS, fill_in_form, terminal};
use test_support::kubernetes::eventually;
use test_support::token;

const CLUSTER: &str = "https://kubernetes.default.svc";

pub(super) async fn run(world: &World) {
    let (through, direct) = sign_in(world).await;
    step("the same answers as without the gateway");
    for command in READS {
        same(&through, &direct, command).await;
    }
    projects_and_accounts(&through, &direct).await;
    clusters(world, &through, &direct).await;
    applications(world, &through, &direct).await;
    pod(world, &through, &direct).await;
    application_sets(world, &through, &direct).await;
    policy(world, &through).await;
    sign_in_with_dex(world).await;
    day::run(world, &direct).await;
    sign_out(world, &through).await;
}

/// Only the part of the tour that takes the pictures of the documentation.
pub(super) async fn take_pictures(world: &World) {
    let (_, direct) = sign_in(world).await;
    day::run(world, &direct).await;
}

pub(super) fn step(what: &str) {
    println!("checking: {what} …");
}

async fn same(through: &Cli, direct: &Cli, command: &[&str]) {
    through.assert_same_output(direct, command).await;
}

async fn sign_in(world: &World) -> (Cli, Cli) {
    step("sign-in with a wrong and with the right password");
    let through = Cli::new(&world.gateway.address().to_string(), &["--plaintext"]);
    let direct = Cli::new(world.argocd.address(), &["--plaintext"]);
    let wrong = through.login("admin", "not-the-password").await;
    assert!(!wrong.status.success(), "{}", wrong.stdout);
    for cli in [&through, &direct] {
        let login = cli.login("admin", world.argocd.password()).await;
        assert!(login.status.success(), "{}", login.stderr);
    }
    let info = through.succeed(&["account", "get-user-info"]).await;
    assert!(info.contains("Username: admin"), "{info}");
    (through, direct)
}

async fn projects_and_accounts(through: &Cli, direct: &Cli) {
    step("projects, roles and tokens");
    through
        .succeed(&["proj", "create", "shop", "-d", "*,*", "-s", "*"])
        .await;
    through.succeed(&["proj", "role", "create", "shop", "ci"]).await;
    through
        .succeed(&["proj", "role", "add-policy", "shop", "ci", "-a", "sync", "-o", "*"])
        .await;
    let token = through
        .succeed(&["proj", "role", "create-token", "shop", "ci", "--token-only"])
        .await;
    assert_eq!(token.trim().split('.').count(), 3, "no token");
    same(through, direct, &["proj", "role", "list", "shop"]).await;
    same(through, direct, &["proj", "get", "shop", "-o", "json"]).await;
    through.assert_destination_service_accounts(direct).await;
    let token = through.succeed(&["account", "generate-token", "--account", "ci"]).await;
    let as_ci = ["account", "get-user-info", "--auth-token", token.trim()];
    assert!(through.succeed(&as_ci).await.contains("Username: ci"));
}

async fn clusters(world: &World, through: &Cli, direct: &Cli) {
    step("a cluster is added, listed and removed");
    let kubectl = world.cluster.admin();
    let context = kubectl.succeed(&["config", "current-context"]).await;
    let kubeconfig = kubectl.kubeconfig().display().to_string();
    let add = [
        "cluster",
        "add",
        context.trim(),
        "--kubeconfig",
        &kubeconfig,
        "--name",
        "second",
        "--yes",
    ];
    through.succeed(&add).await;
    same(through, direct, &["cluster", "get", "second", "-o", "json"]).await;
    // Afterwards the command looks for a context of that name, which there is not.
    let removed = through.run(&["cluster", "rm", "second", "--yes"]).await;
    assert!(
        removed.stdout.contains("Cluster 'second' removed"),
        "{}",
        removed.stderr
    );
    // argocd-server answers from its copy of the Secrets, which a watch changes a moment later.
    eventually("the cluster is gone from the list", async || {
        let names = direct.succeed(&["cluster", "list", "-o", "json"]).await;
        (!names.contains("second")).then_some(())
    })
    .await;
}

async fn applications(world: &World, through: &Cli, direct: &Cli) {
    step("an Application is created, synced, rolled back and deleted with what it has");
    let repository = world.argocd.repository();
    through.succeed(&["repo", "add", repository, "--name", "apps"]).await;
    same(through, direct, &["repo", "list"]).await;
    let create = [
        "app",
        "create",
        "shop",
        "--repo",
        repository,
        "--path",
        "app",
        "--project",
        "shop",
    ];
    let destination = ["--dest-server", CLUSTER, "--dest-namespace", "default"];
    through.succeed(&[&create[..], &destination].concat()).await;
    through.succeed(&["app", "sync", "shop", "--timeout", "60"]).await;
    through.succeed(&["app", "wait", "shop", "--timeout", "60"]).await;
    commit(repository, "2").await;
    through.succeed(&["app", "get", "shop", "--refresh"]).await;
    through.succeed(&["app", "sync", "shop", "--timeout", "60"]).await;
    assert_eq!(value(world).await, "2");
    same(through, direct, &["app", "history", "shop"]).await;
    same(through, direct, &["app", "resources", "shop"]).await;
    same(through, direct, &["app", "manifests", "shop"]).await;
    through
        .succeed(&["app", "rollback", "shop", "0", "--timeout", "60"])
        .await;
    assert_eq!(value(world).await, "1");
    through.succeed(&["app", "delete", "shop", "--yes", "--wait"]).await;
    let gone = world.cluster.admin().run(&["get", "configmap", "hello"]).await;
    assert!(!gone.status.success(), "a cascading deletion left {}", gone.stdout);
}

/// The value that the Application puts into the cluster.
async fn value(world: &World) -> String {
    let get = ["get", "configmap", "hello", "--output=jsonpath={.data.a}"];
    world.cluster.admin().succeed(&get).await
}

/// Commits another value to the repository.
async fn commit(repository: &str, value: &str) {
    let folder = Path::new(repository.trim_start_matches("file://"));
    let map = json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "hello"}, "data": {"a": value}});
    std::fs::write(folder.join("app/hello.yaml"), map.to_string()).unwrap();
    let identity = ["-c", "user.name=tests", "-c", "user.email=tests@example.com"];
    let commit = [&identity[..], &["commit", "--quiet", "--all", "--message=two"]].concat();
    let status = Command::new("git").args(commit).current_dir(folder).status().await;
    assert!(status.unwrap().success(), "git commit");
}

/// Creates an Application with a pod that appears to run.
async fn pod(world: &World, through: &Cli, direct: &Cli) {
    step("the log and the terminal of a pod");
    let repository = world.argocd.repository();
    let create = ["app", "create", "pods", "--repo", repository, "--path", "pod"];
    let destination = ["--dest-server", CLUSTER, "--dest-namespace", "default"];
    through.succeed(&[&create[..], &destination].concat()).await;
    // A pod that does not run yet keeps the sync going.
    through.succeed(&["app", "sync", "pods", "--async"]).await;
    eventually("the pod is there", async || {
        let get = world.cluster.admin().run(&["get", "pod", POD]).await;
        get.status.success().then_some(())
    })
    .await;
    world.cluster.start_pod("default", POD).await;
    through
        .succeed(&["app", "wait", "pods", "--health", "--timeout", "60"])
        .await;
    let log = through.succeed(&["app", "logs", "pods", "--tail", "3"]).await;
    assert_eq!(log.lines().count(), 3, "{log}");
    assert!(log.contains("line 10 of default/web"), "{log}");
    same(through, direct, &["app", "logs", "pods", "--tail", "3"]).await;
    let session = token::session(SESSION_KEY, "admin");
    let [shown, twin] = [
        terminal(
            &world.gateway.address().to_string(),
            &session,
            ("pods", "default", "default"),
        )
        .await,
        terminal(world.argocd.address(), &session, ("pods", "default", "default")).await,
    ];
    assert!(shown.contains("<default/web>"), "{shown}");
    assert!(twin.contains("<default/web>"), "{twin}");
    // Nothing on the node ends the pod.
    through
        .succeed(&["app", "delete", "pods", "--yes", "--cascade=false"])
        .await;
    let delete = ["delete", "pod", POD, "--force", "--grace-period=0"];
    world.cluster.admin().succeed(&delete).await;
}

async fn application_sets(world: &World, through: &Cli, direct: &Cli) {
    step("an ApplicationSet is previewed, created, changed, and deleted with its Applications");
    let folder = tempfile::tempdir().unwrap();
    let file = |names: &[&str]| {
        let elements: Vec<Value> = names.iter().map(|name| json!({"name": name})).collect();
        let source = json!({"repoURL": world.argocd.repository(), "path": "app"});
        let template = json!({
            "metadata": {"name": "{{name}}"},
            "spec": {
                "project": "shop",
                "source": source,
                "destination": {"server": CLUSTER, "namespace": "default"},
            },
        });
        let set = json!({
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "ApplicationSet",
            "metadata": {"name": "shops", "namespace": NAMESPACE, "labels": {"of": "shop"}},
            "spec": {"generators": [{"list": {"elements": elements}}], "template": template},
        });
        let path = folder.path().join("set.json");
        std::fs::write(&path, set.to_string()).unwrap();
        path.display().to_string()
    };
    let one = file(&["shop-eu"]);
    let preview = through
        .succeed(&["appset", "generate", &one, "-o", "json", "-N", NAMESPACE])
        .await;
    assert!(preview.contains("shop-eu"), "{preview}");
    through.succeed(&["appset", "create", &one, "--dry-run"]).await;
    assert!(!through.run(&["appset", "get", "shops"]).await.status.success());
    through
        .succeed(&["appset", "create", &one, "--wait", "-o", "yaml"])
        .await;
    let again = through.run(&["appset", "create", &file(&["shop-eu", "shop-us"])]).await;
    assert!(!again.status.success(), "created twice: {}", again.stdout);
    let two = file(&["shop-eu", "shop-us"]);
    through.succeed(&["appset", "create", &two, "--upsert", "--wait"]).await;
    for command in [
        &["list"][..],
        &["list", "-o", "name", "-p", "shop", "-l", "of=shop", "-N", NAMESPACE],
        &["list", "-o", "wide", "-l", "of!=shop"],
        &["get", "shops", "-o", "wide", "-N", NAMESPACE],
        &["get", "shops", "--show-params"],
    ] {
        same(through, direct, &[&["appset"], command].concat()).await;
    }
    assert!(through.succeed(&["app", "get", "shop-us"]).await.contains("shop-us"));
    through.succeed(&["appset", "delete", "shops", "--yes", "--wait"]).await;
    eventually("the Applications of the set are gone", async || {
        let names = through.succeed(&["app", "list", "-o", "name"]).await;
        (!names.contains("shop-")).then_some(())
    })
    .await;
}

async fn policy(world: &World, through: &Cli) {
    step("one line of policy stops a sync by every way");
    let policy = world.gateway.path("policies/argocd/policy.rego");
    let shipped = std::fs::read_to_string(&policy).unwrap();
    let line = "deny contains \"frozen until Monday\" if { input.request.method == \"Sync\"; \
                input.application.name == \"frozen\" }\n";
    std::fs::write(&policy, format!("{shipped}\n{line}")).unwrap();
    let repository = world.argocd.repository();
    let create = ["app", "create", "frozen", "--repo", repository, "--path", "app"];
    let destination = ["--dest-server", CLUSTER, "--dest-namespace", "default"];
    through.succeed(&[&create[..], &destination].concat()).await;
    let url = format!("http://{}/api/v1/applications/frozen/sync", world.gateway.address());
    let body = eventually("a sync by REST is refused", async || {
        let request = reqwest::Client::new()
            .post(&url)
            .bearer_auth(token::session(SESSION_KEY, "admin"));
        // While the policy is loaded, a dry run changes nothing.
        // One that is open when the policy comes into force is ended, and may have no answer.
        let answer = request.json(&json!({"dryRun": true})).send().await.ok()?;
        match answer.status().as_u16() {
            403 => answer.json::<Value>().await.ok(),
            _ => None,
        }
    })
    .await;
    assert_eq!(body["message"], "frozen until Monday", "{body}");
    for more in [&[][..], &["--grpc-web"]] {
        let refused = through.run(&[&["app", "sync", "frozen"], more].concat()).await;
        assert!(!refused.status.success(), "{}", refused.stdout);
        assert!(refused.stderr.contains("frozen until Monday"), "{}", refused.stderr);
    }
    std::fs::write(&policy, shipped).unwrap();
    eventually("the sync passes without the line", async || {
        let run = through.run(&["app", "sync", "frozen", "--timeout", "60"]).await;
        run.status.success().then_some(())
    })
    .await;
    through.succeed(&["app", "delete", "frozen", "--yes"]).await;
}

/// `login --sso` opens a page; the form there is that of Dex.
async fn sign_in_with_dex(world: &World) {
    step("single sign-on through Dex with a wrong and with the right password");
    let through = Cli::new(&world.gateway.address().to_string(), &["--plaintext"]);
    let browser = reqwest::Client::builder().no_proxy().build().unwrap();
    let visit = async |page: String| {
        let wrong = fill_in_form(&browser, &page, "not-the-password").await.unwrap();
        let text = wrong.text().await.unwrap();
        assert!(text.contains("login-error"), "{text}");
        // The command shows the page before it listens for the redirect.
        let right = eventually("the redirect reaches the command", async || {
            fill_in_form(&browser, &page, PERSON_PASSWORD).await
        });
        assert_eq!(right.await.status(), 200);
    };
    let login = through.login_by_browser(visit).await;
    assert!(login.status.success(), "{}{}", login.stdout, login.stderr);
    let info = through.succeed(&["account", "get-user-info"]).await;
    assert!(info.contains(PERSON) && info.contains("/api/dex"), "{info}");
    // By argocd-server, and by the gateway itself.
    through.succeed(&["proj", "get", "shop"]).await;
    through.succeed(&["appset", "list"]).await;
    through.succeed(&["logout", &world.gateway.address().to_string()]).await;
    assert!(!through.run(&["proj", "get", "shop"]).await.status.success());
}

async fn sign_out(world: &World, through: &Cli) {
    step("sign-out ends the session at the gateway, too");
    let address = world.gateway.address().to_string();
    let client = reqwest::Client::builder().redirect(Policy::none()).build().unwrap();
    let password = world.argocd.password();
    let sign_in = client.post(format!("http://{address}/api/v1/session"));
    let sign_in = sign_in.json(&json!({"username": "admin", "password": password}));
    let answer: Value = sign_in.send().await.unwrap().json().await.unwrap();
    let cookie = format!("argocd.token={}", answer["token"].as_str().unwrap());
    // The gateway itself answers this.
    let sets = async || {
        let request = client.get(format!("http://{address}/api/v1/applicationsets"));
        request.header("cookie", &cookie).send().await.unwrap().status()
    };
    assert_eq!(sets().await, 200);
    let sign_out = client.post(format!("http://{address}/auth/logout"));
    let status = sign_out.header("cookie", &cookie).send().await.unwrap().status();
    assert_eq!(status, 303);
    assert_eq!(sets().await, 401);
    through.succeed(&["logout", &address]).await;
    let after = through.run(&["app", "list"]).await;
    assert!(
        !after.status.success(),
        "signed out, and still let in: {}",
        after.stdout
    );
}
