//! Extensions that are `ArgoCDExtension` objects.

use serde_json::{Value, json};

use crate::wire::{check, get, once, put, reason, status};
use test_support::world::{CONTROL_PLANE, Setup, World, object};

/// An `ArgoCDExtension`. The host of its backend does not exist.
fn extension(backend: &Value) -> Value {
    let spec = json!({"spec": {"sources": [], "backend": backend}});
    object(
        "argoproj.io/v1alpha1",
        "ArgoCDExtension",
        "metrics",
        CONTROL_PLANE,
        spec,
    )
}

async fn wait(world: &World, user: &str, wanted: u16) {
    let what = format!("{wanted} for {user}");
    world
        .until(&what, || async { status(world, "metrics/up", user).await == wanted })
        .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_extension_object_is_authorized_like_other_extensions() {
    let mut setup = Setup::default();
    let backend = json!({"serviceName": "nobody-serves-this:8080", "endpoint": "/api"});
    setup.objects.push(extension(&backend));
    let world = setup.start().await;
    // A permitted request is forwarded, to a Service that does not exist; a refused one is not.
    // `forward::tests::objects` tests what an existing Service receives: its names resolve there.
    for (path, user, status, why) in [
        ("metrics/up", "alice", 502, "backend_unreachable"),
        ("metrics/up", "bob", 403, "permission_denied"),
        ("else/up", "alice", 404, "extension_not_found"),
    ] {
        let answer = once(&world, &get(path, user)).await;
        assert_eq!(
            (answer.status, reason(&answer).as_str()),
            (status, why),
            "{path} {user}"
        );
        let text = world
            .admin(&format!("/decisions/{}", answer.values("tollgate-decision-id")[0]))
            .await;
        let tried = text.contains("dns error");
        assert_eq!(tried, status == 502, "{text}");
    }
    // The extension exists only while its object does.
    let at = "state/100.yaml";
    std::fs::remove_file(world.path("state/005.yaml")).unwrap();
    wait(&world, "alice", 404).await;
    put(&world, at, extension(&backend).to_string());
    wait(&world, "alice", 502).await;
    assert_eq!(status(&world, "metrics/up", "bob").await, 403);
    put(&world, at, extension(&Value::Null).to_string());
    wait(&world, "alice", 404).await;
}

/// A user who may write such an object decides where requests go: it names a Service beside it,
/// over plain HTTP. Anything else is an entry of `extension.config`.
#[tokio::test(flavor = "multi_thread")]
async fn backends_elsewhere_and_with_https_are_refused_by_name() {
    for service in ["https://svc", "svc.other", "svc.other.svc:443", "10.0.0.1"] {
        let mut setup = Setup::default();
        setup.objects.push(extension(&json!({"serviceName": service})));
        let world = setup.start().await;
        let answer = once(&world, &get("metrics/up", "alice")).await;
        assert_eq!(
            (answer.status, reason(&answer).as_str()),
            (404, "extension_not_found"),
            "{service}"
        );
        assert_eq!(status(&world, "metrics/up", "bob").await, 403);
        let named = format!(
            "the object is set aside: `spec.backend.serviceName` is `{service}`, which is no Service of this \
             namespace, `name` or `name:port` (backends elsewhere, and with https, are `extension.config` entries of \
             `argocd-cm`)"
        );
        let checked = check(&world).await;
        let text = String::from_utf8_lossy(&checked.stdout);
        assert!(checked.status.success() && text.contains(&named), "{text}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn an_object_of_another_namespace_is_no_extension() {
    let mut object = extension(&json!({"serviceName": "nobody-serves-this"}));
    for (namespace, expected) in [("tenant", 404), (CONTROL_PLANE, 502)] {
        object["metadata"]["namespace"] = json!(namespace);
        let mut setup = Setup::default();
        setup.objects.push(object.clone());
        let world = setup.start().await;
        assert_eq!(status(&world, "metrics/up", "alice").await, expected, "{namespace}");
    }
}
