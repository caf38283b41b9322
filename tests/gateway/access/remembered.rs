//! A cached decision applies only to requests with the same caller, application and policy input.

use reqwest::Method;

use super::status;
use crate::wire::put;
use test_support::backend::{Backend, Reply};
use test_support::world::{Setup, World, application};

/// A gateway with two applications, of which alice may see one.
async fn world(backend: &Backend) -> World {
    let mut setup = Setup::with_backend(backend.address);
    let policy = "p, alice, applications, get, shop/cart, allow\np, alice, extensions, invoke, *, allow\n";
    setup.rbac_cm.insert("policy.csv".to_owned(), policy.to_owned());
    setup.objects.push(application("till", "shop"));
    setup.start().await
}

/// Adds `condition` to every rule of the shipped policy that permits a request, and waits until the
/// policy is in force.
async fn restrict(world: &World, condition: &str) {
    let file = "policies/extensions/policy.rego";
    let good = std::fs::read_to_string(world.path(file)).unwrap();
    let narrow = good.replace("\tpermitted\n}", &format!("\tpermitted\n\t{condition}\n}}"));
    assert_ne!(narrow, good);
    put(world, file, narrow);
    world
        .until("the policy in force", || async {
            world.admin("/configuration").await.contains("\"generation\":2")
        })
        .await;
}

async fn about(world: &World, user: &str, application: &str) -> u16 {
    let path = "/api/v1/extensions/echo/";
    super::about(world, user, path, [application, "shop"])
        .await
        .status()
        .as_u16()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_decision_is_for_its_caller_and_application_only() {
    let backend = Backend::start(|_| Reply::ok("x")).await;
    let world = world(&backend).await;
    for _ in 0..3 {
        assert_eq!(about(&world, "alice", "argocd:cart").await, 200);
        assert_eq!(about(&world, "bob", "argocd:cart").await, 403);
        assert_eq!(about(&world, "alice", "argocd:till").await, 403);
        assert_eq!(about(&world, "bob", "argocd:till").await, 403);
        assert_eq!(about(&world, "alice", "argocd:gone").await, 403);
    }
    assert_eq!(backend.seen().len(), 3, "only what was allowed reached the backend");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_reads_the_method_decides_each() {
    let backend = Backend::start(|_| Reply::ok("x")).await;
    let world = world(&backend).await;
    restrict(&world, "not input.request.method in {\"PATCH\", \"DELETE\"}").await;
    for _ in 0..3 {
        for (method, expected) in [
            (Method::GET, 200),
            (Method::PATCH, 403),
            (Method::PUT, 200),
            (Method::DELETE, 403),
        ] {
            let request = world.request(method.clone(), "alice", "/");
            assert_eq!(status(request).await, expected, "{method}");
        }
    }
    assert_eq!(backend.seen().len(), 6);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_policy_that_reads_path_or_query_decides_each() {
    let backend = Backend::start(|_| Reply::ok("x")).await;
    for condition in [
        "not startswith(input.request.path, \"/closed\")",
        "not input[\"request\"].path in {p | some p in [\"/closed\", \"/closed/\"]}",
    ] {
        let world = world(&backend).await;
        restrict(&world, condition).await;
        for _ in 0..3 {
            assert_eq!(status(world.get("alice", "/open")).await, 200);
            assert_eq!(status(world.get("alice", "/closed")).await, 403);
            assert_eq!(status(world.get("bob", "/open")).await, 403);
        }
    }
    let world = world(&backend).await;
    restrict(&world, "not object.get(input.request, \"query\", \"\") == \"a=2\"").await;
    for _ in 0..3 {
        assert_eq!(status(world.get("alice", "/?a=1")).await, 200);
        assert_eq!(status(world.get("alice", "/?a=2")).await, 403);
        assert_eq!(status(world.get("alice", "/")).await, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_remembered_decision_is_recorded_like_the_first() {
    let backend = Backend::start(|_| Reply::ok("x")).await;
    let world = world(&backend).await;
    for user in ["alice", "bob"] {
        let mut records = Vec::new();
        for _ in 0..2 {
            let answer = world.get(user, "/").send().await.unwrap();
            let mut record = world.decision(&answer).await;
            for changing in ["decision_id", "timestamp", "duration_microseconds", "peer"] {
                record.as_object_mut().unwrap().remove(changing);
            }
            records.push(record);
        }
        assert!(!records[0]["checks"].as_array().unwrap().is_empty());
        assert_eq!(records[0], records[1]);
    }
}
