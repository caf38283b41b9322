//! Ways to argocd-server past the gateway: `tollgate check` and the reload name them, with the place
//! in a file, until they are closed.

use serde_json::{Value, json};

use crate::wire::{check, put};
use test_support::world::{CONTROL_PLANE, Setup, World, map, object};

/// Only Tollgate's pods reach argocd-server's.
fn only_tollgate() -> String {
    let pods = |name: &str| json!({"matchLabels": {"app.kubernetes.io/name": name}});
    let spec = json!({
        "podSelector": pods("argocd-server"), "policyTypes": ["Ingress"],
        "ingress": [{"from": [{"podSelector": pods("tollgate")}]}],
    });
    let version = "networking.k8s.io/v1";
    object(version, "NetworkPolicy", "only", CONTROL_PLANE, json!({"spec": spec})).to_string()
}

/// A gateway in front of an argocd-server that is open in every way.
async fn world() -> World {
    let service = json!({"spec": {"type": "NodePort", "selector": {"app.kubernetes.io/name": "argocd-server"}}});
    let switch = json!({"data": {"server.enable.proxy.extension": "true"}});
    let mut setup = Setup::with_extension("{services: [{url: 'http://127.0.0.1:9'}]}");
    setup.objects.extend([
        object("v1", "Service", "argocd-server", CONTROL_PLANE, service),
        object("v1", "ConfigMap", "argocd-cmd-params-cm", CONTROL_PLANE, switch),
    ]);
    setup.rbac_cm = map(&[("policy.csv", "p, alice, applicationsets, create, */*, allow\n")]);
    setup.settings = json!({"argocd": {"server": "http://127.0.0.1:9"}, "applicationSets": {}});
    setup.start().await
}

const WAYS: [&str; 4] = [
    "Service `argocd-server` opens argocd-server by a port of every node",
    "no NetworkPolicy keeps others than Tollgate from argocd-server",
    "`server.enable.proxy.extension` of `argocd-cmd-params-cm` is `true`",
    "`p, alice, applicationsets, create, */*, allow` lets people write ApplicationSets",
];

/// The warnings of the latest load of the running gateway.
async fn warnings(world: &World) -> String {
    let page: Value = serde_json::from_str(&world.admin("/configuration").await).unwrap();
    page["findings"].to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn ways_past_the_gateway_are_named_until_they_are_closed() {
    let world = world().await;
    let checked = check(&world).await;
    let text = String::from_utf8(checked.stdout).unwrap();
    assert!(checked.status.success(), "they are warnings: {text}");
    for way in WAYS {
        assert_eq!(text.matches(way).count(), 1, "{way}: {text}");
    }
    // What the load at start found is shown as what later loads find.
    let found = warnings(&world).await;
    for way in WAYS {
        assert_eq!(found.matches(way).count(), 1, "{way}: {found}");
    }
    assert!(
        text.contains("::warning file=") && text.contains("005.yaml,line=1"),
        "{text}"
    );
    // A reload says it as well.
    put(
        &world,
        "state/100.yaml",
        only_tollgate().replace("\"tollgate\"", "\"anybody\""),
    );
    let others = "NetworkPolicy `only` admits others than Tollgate";
    let is_named = || async { warnings(&world).await.contains(others) };
    world.until("the policy is named", is_named).await;
    put(&world, "state/100.yaml", only_tollgate());
    let is_closed = || async { !warnings(&world).await.contains("argocd-server") };
    world.until("no way is left", is_closed).await;
    let checked = check(&world).await;
    let text = String::from_utf8(checked.stdout).unwrap();
    assert!(!text.contains("argocd-server"), "{text}");
}
