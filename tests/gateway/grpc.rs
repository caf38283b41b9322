//! gRPC and gRPC-Web: which calls are answered, and with which status.

mod client;
mod sets;

use serde_json::json;

use client::{GetQuery, ListQuery, Nothing, Response, Version, call, frame, on_tls, web};
use test_support::token;
use test_support::world::{SESSION_KEY, Setup, World, map};

const VERSION: &str = "/version.VersionService/Version";
const GET: &str = "/applicationset.ApplicationSetService/Get";
const LIST: &str = "/applicationset.ApplicationSetService/List";
const NO_TOKEN: &str = "no credential: send cookie `argocd.token` or field `Authorization: Bearer`";

/// alice may see the sets of `shop`, bob none.
const POLICY: &str = "p, alice, applicationsets, get, shop/*, allow\n";

fn setup() -> Setup {
    Setup {
        rbac_cm: map(&[("policy.csv", POLICY)]),
        settings: json!({"applicationSets": {}}),
        ..Setup::default()
    }
}

fn session(user: &str) -> String {
    token::session(SESSION_KEY, user)
}

async fn start() -> World {
    setup().start().await
}

fn get(name: &str) -> GetQuery {
    GetQuery {
        name: name.to_owned(),
        namespace: String::new(),
    }
}

#[tokio::test]
async fn unauthenticated_callers_get_the_version_and_nothing_else() {
    let world = start().await;
    let response = call(world.address(), VERSION, &[], frame(&Nothing {})).await;
    let version: Version = response.message();
    assert!(version.version.starts_with("tollgate-v"), "{version:?}");
    assert_eq!(response.head["content-type"], "application/grpc+proto");
    // The refused twins.
    let response = call(world.address(), LIST, &[], frame(&ListQuery::default())).await;
    assert_eq!(response.status(), (16, NO_TOKEN));
    let empty = [("token", "")];
    let response = call(world.address(), LIST, &empty, frame(&ListQuery::default())).await;
    assert_eq!(response.status(), (16, NO_TOKEN));
}

#[tokio::test]
async fn a_token_may_be_where_argo_cd_has_it() {
    let world = start().await;
    let alice = session("alice");
    let bearer = format!("Bearer {alice}");
    for fields in [[("token", &*alice)], [("authorization", &*bearer)]] {
        let response = call(world.address(), LIST, &fields, frame(&ListQuery::default())).await;
        assert_eq!(response.status(), (0, ""), "{fields:?}");
    }
    let forged = token::session("another-key-0123456789abcdef-0123", "alice");
    let response = call(
        world.address(),
        LIST,
        &[("token", &forged)],
        frame(&ListQuery::default()),
    )
    .await;
    assert_eq!(response.status(), (16, "the token is not valid"));
    let response = call(
        world.address(),
        LIST,
        &[("token", &alice), ("authorization", "Bearer x")],
        frame(&ListQuery::default()),
    )
    .await;
    assert_eq!(response.status().0, 16);
}

#[tokio::test]
async fn every_call_has_one_record() {
    let world = start().await;
    let response = call(
        world.address(),
        GET,
        &[("token", &session("alice"))],
        frame(&get("none")),
    )
    .await;
    assert_eq!(response.status().0, 5);
    let id = response.head["tollgate-decision-id"].to_str().unwrap();
    let record: serde_json::Value = serde_json::from_str(&world.admin(&format!("/decisions/{id}")).await).unwrap();
    assert_eq!(record["front"], "applicationsets");
    assert_eq!((&record["status"], &record["path"]), (&json!(404), &json!(GET)));
    assert_eq!(record["principal"]["username"], "alice");
}

#[tokio::test]
async fn unknown_malformed_and_late_calls_are_refused() {
    let world = start().await;
    let alice = session("alice");
    let fields = [("token", &*alice)];
    let unknown = "/cluster.ClusterService/List";
    let response = call(world.address(), unknown, &fields, frame(&Nothing {})).await;
    assert_eq!(
        response.status(),
        (12, "this server has no `cluster.ClusterService/List`")
    );
    for (content, code) in [
        (b"".to_vec(), 3),
        (b"\0\0\0\0\x05ab".to_vec(), 3),
        (b"\x01\0\0\0\0".to_vec(), 12),
        (b"\0\0\0\0\x02\x0a\x05".to_vec(), 3),
        (vec![0; 4 * 1024 * 1024 + 1], 8),
    ] {
        let response = call(world.address(), GET, &fields, content).await;
        assert_eq!(response.status().0, code);
    }
    let late = [("token", &*alice), ("grpc-timeout", "1n")];
    let response = call(world.address(), LIST, &late, frame(&ListQuery::default())).await;
    assert_eq!(response.status(), (4, "the call did not end in time"));
    let wrong = [("token", &*alice), ("grpc-timeout", "soon")];
    let response = call(world.address(), LIST, &wrong, frame(&ListQuery::default())).await;
    assert_eq!(response.status().0, 3);
    // The gateway still answers.
    let response = call(world.address(), VERSION, &[], frame(&Nothing {})).await;
    assert_eq!(response.status(), (0, ""));
}

#[tokio::test]
async fn the_same_over_tls() {
    let issued = rcgen::generate_simple_self_signed(["localhost".to_owned()]).unwrap();
    let folder = tempfile::tempdir().unwrap();
    let (certificate, key) = (folder.path().join("tls.crt"), folder.path().join("tls.key"));
    std::fs::write(&certificate, issued.cert.pem()).unwrap();
    std::fs::write(&key, issued.signing_key.serialize_pem()).unwrap();
    let mut setup = setup();
    setup.settings["tls"] = json!({"certificate": certificate, "key": key});
    let world = setup.start().await;
    let connection = on_tls(world.address(), issued.cert.der()).await;
    let response = connection.call(VERSION, &[], frame(&Nothing {})).await;
    let version: Version = response.message();
    assert!(version.version.starts_with("tollgate-v"), "{version:?}");
    let response = connection.call(LIST, &[], frame(&ListQuery::default())).await;
    assert_eq!(response.status().0, 16);
}

#[tokio::test]
async fn grpc_web_over_http_1() {
    let world = start().await;
    for text in [false, true] {
        let response: Response = web(world.address(), VERSION, None, (&Nothing {}, text)).await;
        let version: Version = response.message();
        assert!(version.version.starts_with("tollgate-v"), "{version:?}");
        let alice = session("alice");
        let response = web(world.address(), LIST, Some(&alice), (&ListQuery::default(), text)).await;
        assert_eq!(response.status(), (0, ""));
        // Clients that read only the head get the status too.
        let response = web(world.address(), GET, Some(&alice), (&get("none"), text)).await;
        assert_eq!(response.head["grpc-status"], "5");
        assert!(response.messages.is_empty());
    }
    // gRPC itself is refused over HTTP/1.1.
    let answer = reqwest::Client::new()
        .post(format!("http://{}{VERSION}", world.address()))
        .header("content-type", "application/grpc")
        .body(frame(&Nothing {}))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.headers()["grpc-status"], "9");
}

#[tokio::test]
async fn without_the_front_there_is_no_call() {
    let world = Setup::default().start().await;
    let answer = reqwest::Client::new()
        .post(format!("http://{}{VERSION}", world.address()))
        .header("content-type", "application/grpc-web")
        .body(frame(&Nothing {}))
        .send()
        .await
        .unwrap();
    assert_eq!(answer.status(), 404);
    assert!(!answer.headers().contains_key("grpc-status"));
}
