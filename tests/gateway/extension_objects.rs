//! Extensions that are `ArgoCDExtension` objects.

use serde_json::{Value, json};

use crate::wire::{get, once, put, reason, status};
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
    // `forward::tests::objects` tests what an existing Service receives.
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
