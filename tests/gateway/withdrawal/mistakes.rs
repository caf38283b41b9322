//! What takes effect when the gateway loads objects with mistakes.

use std::collections::BTreeMap;

use serde_json::json;

use crate::wire::{check, findings, is_broken, put, put_argocd_cm, put_policy, status, wait_broken};
use test_support::backend::{Backend, Reply};
use test_support::world::{Setup, World, application, map, project};

/// An operators' object with a mistake. With it, every load is refused.
pub(super) const REFUSED: &str = "apiVersion: v1\nkind: Secret\nmetadata: {name: broken, namespace: argocd}\ndata: 5\n";

/// Permits bob, instead of alice, to call the extension.
const BOB: &str = "p, bob, applications, get, shop/*, allow\np, bob, extensions, invoke, *, allow\n";

async fn world(change: impl FnOnce(&mut Setup)) -> World {
    let backend = Backend::start(|_| Reply::ok("hello")).await;
    let mut setup = Setup::with_backend(backend.address);
    change(&mut setup);
    setup.start().await
}

async fn wait_status(world: &World, user: &str, wanted: u16) {
    let is_so = || async { status(world, "echo/", user).await == wanted };
    world.until(&format!("{user} to get {wanted}"), is_so).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_load_takes_away_and_gives_nothing() {
    let world = world(|_| ()).await;
    let argocd_cm = Setup::default().argocd_cm;
    for (file, text) in [
        ("state/900.yaml", REFUSED),
        ("state/900.yaml", "kind: [\n"),
        // A list whose items cannot be read.
        ("state/900.yaml", "apiVersion: v1\nkind: List\nitems: 5\n"),
    ] {
        assert_eq!(status(&world, "echo/", "alice").await, 200);
        put(&world, file, text);
        wait_broken(&world, "state", true).await;
        // Nothing is taken away: the last good state stays.
        assert_eq!(
            (
                status(&world, "echo/", "alice").await,
                status(&world, "echo/", "bob").await
            ),
            (200, 403)
        );
        put_policy(&world, BOB);
        wait_status(&world, "alice", 403).await;
        assert_eq!(status(&world, "echo/", "bob").await, 403, "{text}");
        // What was taken away stays so with further mistakes.
        put(&world, "state/001.yaml", "kind: [\n");
        put(&world, "state/901.yaml", "kind: [\n");
        world
            .until("both findings", || async { findings(&world).await.len() >= 3 })
            .await;
        assert_eq!(
            (
                status(&world, "echo/", "alice").await,
                status(&world, "echo/", "bob").await
            ),
            (403, 403)
        );
        // Without mistakes, everything takes effect.
        put_policy(&world, BOB);
        std::fs::remove_file(world.path("state/901.yaml")).unwrap();
        std::fs::remove_file(world.path(file)).unwrap();
        wait_status(&world, "bob", 200).await;
        assert_eq!(status(&world, "echo/", "alice").await, 403);
        put_policy(&world, &Setup::default().rbac_cm["policy.csv"]);
        wait_status(&world, "bob", 403).await;
    }
    // A refused load also disables an account.
    put(&world, "state/900.yaml", REFUSED);
    let mut disabled: BTreeMap<String, String> = argocd_cm;
    disabled.insert("accounts.alice.enabled".to_owned(), "false".to_owned());
    let echo = world_extension(&world);
    disabled.insert(echo.0, echo.1);
    put_argocd_cm(&world, &disabled);
    wait_status(&world, "alice", 401).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broken_bundle_does_not_delay_what_objects_withdraw() {
    let world = world(|_| ()).await;
    let file = "policies/extensions/policy.rego";
    let good = std::fs::read_to_string(world.path(file)).unwrap();
    put(&world, file, format!("{good}\npermitted if {{\n"));
    wait_broken(&world, "policies", true).await;
    assert_eq!(status(&world, "echo/", "alice").await, 200);
    put_policy(&world, BOB);
    wait_status(&world, "alice", 403).await;
    assert_eq!(status(&world, "echo/", "bob").await, 200, "the objects have no mistake");
    // With a mistake in both, objects still only take away.
    put(&world, "state/900.yaml", REFUSED);
    wait_broken(&world, "state", true).await;
    put_policy(&world, &Setup::default().rbac_cm["policy.csv"]);
    wait_status(&world, "bob", 403).await;
    assert_eq!(status(&world, "echo/", "alice").await, 403);
    // Once fixed, the bundle decides with the latest objects.
    std::fs::remove_file(world.path("state/900.yaml")).unwrap();
    put(&world, file, good);
    wait_status(&world, "alice", 200).await;
    assert_eq!(status(&world, "echo/", "bob").await, 403);
}

/// Key and value of the extension in `argocd-cm`.
fn world_extension(world: &World) -> (String, String) {
    let text = std::fs::read_to_string(world.path("state/000.yaml")).unwrap();
    let object: serde_json::Value = serde_json::from_str(&text).unwrap();
    let key = "extension.config.echo";
    (key.to_owned(), object["data"][key].as_str().unwrap().to_owned())
}

/// Tenants' objects with mistakes, and the kind that the metric counts.
const BROKEN: [(&str, &str); 5] = [
    (
        "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: mine, namespace: argocd}\nspec: {project: 5}\n",
        "Application",
    ),
    (
        "apiVersion: argoproj.io/v1alpha1\nkind: Application\nmetadata: {name: mine, namespace: argocd, labels: [a]}\nspec: {}\n",
        "Application",
    ),
    (
        "apiVersion: argoproj.io/v1alpha1\nkind: AppProject\nmetadata: {name: mine, namespace: argocd}\nspec: {destinations: all}\n",
        "AppProject",
    ),
    (
        "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {name: mine, namespace: argocd, labels: 5}\nspec: {}\n",
        "ApplicationSet",
    ),
    (
        "apiVersion: argoproj.io/v1alpha1\nkind: ArgoCDExtension\nmetadata: {name: mine, namespace: argocd}\nspec: {backend: 5}\n",
        "ArgoCDExtension",
    ),
];

#[tokio::test(flavor = "multi_thread")]
async fn what_a_tenant_breaks_is_set_aside_and_named() {
    let world = world(|_| ()).await;
    for (text, kind) in BROKEN {
        put(&world, "state/900.yaml", text);
        let counted = format!("tollgate_objects_set_aside{{kind=\"{kind}\"}} 1");
        let is_counted = || async { world.admin("/metrics").await.contains(&counted) };
        world.until(&format!("{kind} to be set aside"), is_counted).await;
        let named = |text: &str| text.contains("900.yaml") && text.contains("the object is set aside");
        let is_named = || async { named(&world.admin("/configuration").await) };
        world.until(&format!("{kind} to be named"), is_named).await;
        let output = check(&world).await;
        let stdout = String::from_utf8(output.stdout).unwrap();
        assert_eq!(output.status.code(), Some(0), "{stdout}");
        assert!(
            stdout.lines().any(|line| line.starts_with("::warning ") && named(line)),
            "{stdout}"
        );
        // Everything else takes effect.
        put_policy(&world, BOB);
        wait_status(&world, "alice", 403).await;
        assert_eq!(status(&world, "echo/", "bob").await, 200);
        put_policy(&world, &Setup::default().rbac_cm["policy.csv"]);
        wait_status(&world, "alice", 200).await;
        assert!(!is_broken(&world, "state").await);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_needs_an_object_that_is_set_aside_is_denied_and_its_neighbor_is_not() {
    let everywhere = json!([{"server": "*", "namespace": "*"}]);
    let world = world(|setup| {
        setup
            .objects
            .extend([project("other", everywhere.clone()), application("web", "other")]);
        let policy = "p, alice, applications, get, *, allow\np, alice, extensions, invoke, *, allow\n";
        setup.rbac_cm = map(&[("policy.csv", policy)]);
    })
    .await;
    let web = || async {
        let url = world.echo("/");
        let token = test_support::token::session(test_support::world::SESSION_KEY, "alice");
        let request = reqwest::Client::new().get(url).bearer_auth(token);
        let request = request.header("Argocd-Application-Name", "argocd:web");
        request
            .header("Argocd-Project-Name", "other")
            .send()
            .await
            .unwrap()
            .status()
            .as_u16()
    };
    for (file, good, broken) in [
        // The project, its Application, and an Application that exists twice.
        (
            "state/003.yaml",
            project("shop", everywhere.clone()),
            project("shop", json!("all")),
        ),
        (
            "state/004.yaml",
            application("cart", "shop"),
            json!({
                "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
                "metadata": {"name": "cart", "namespace": "argocd"}, "spec": {"project": 5},
            }),
        ),
        (
            "state/900.yaml",
            application("another", "shop"),
            application("cart", "shop"),
        ),
    ] {
        put(&world, file, good.to_string());
        wait_status(&world, "alice", 200).await;
        put(&world, file, broken.to_string());
        wait_status(&world, "alice", 403).await;
        assert_eq!(web().await, 200, "{file}");
        put(&world, file, good.to_string());
        wait_status(&world, "alice", 200).await;
    }
}
