//! One decision record for each request, and who may read it.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::{about, backend, refusal};
use test_support::backend::{Backend, Reply};
use test_support::client::Client;
use test_support::token;
use test_support::world::{SESSION_KEY, Setup, World};

async fn records(world: &World) -> Vec<Value> {
    serde_json::from_str(&world.admin("/decisions?most=1000").await).unwrap()
}

#[tokio::test]
async fn every_request_leaves_exactly_one_record() {
    let backend = backend().await;
    let world = Setup::with_backend(backend.address).start().await;
    let alice = token::session(SESSION_KEY, "alice");
    let bob = token::session(SESSION_KEY, "bob");
    let lines = |token: &str| {
        format!(
            "Host: gateway\r\nAuthorization: Bearer {token}\r\nArgocd-Application-Name: argocd:cart\r\n\
             Argocd-Project-Name: shop\r\n\r\n"
        )
    };
    let asked = [
        (
            format!("GET /extensions/echo/x HTTP/1.1\r\n{}", lines(&alice)),
            200,
            "allowed",
        ),
        (
            format!("GET /extensions/echo/x HTTP/1.1\r\n{}", lines(&bob)),
            403,
            "denied",
        ),
        (
            format!("GET /extensions/echo/x HTTP/1.1\r\n{}", lines("none")),
            401,
            "denied",
        ),
        (
            format!("GET /extensions/none/x HTTP/1.1\r\n{}", lines(&alice)),
            404,
            "denied",
        ),
        (
            format!("GET /extensions/echo/../x HTTP/1.1\r\n{}", lines(&alice)),
            400,
            "denied",
        ),
        (format!("GET /elsewhere HTTP/1.1\r\n{}", lines(&alice)), 404, "denied"),
        (
            "GET /extensions/echo/x HTTP/1.1\r\nHost: gateway\r\n\r\n".to_owned(),
            401,
            "denied",
        ),
    ];
    let mut expected = Vec::new();
    for (request, status, outcome) in &asked {
        let answer = Client::connect(world.address())
            .await
            .exchange(request.as_bytes())
            .await;
        assert_eq!(answer.status, *status, "{request}");
        let id = answer.values("tollgate-decision-id")[0].to_owned();
        expected.push((id, u64::from(*status), (*outcome).to_owned()));
    }
    let records = records(&world).await;
    let found: Vec<_> = records
        .iter()
        .rev()
        .map(|record| {
            let text = |key: &str| record[key].as_str().unwrap().to_owned();
            (text("decision_id"), record["status"].as_u64().unwrap(), text("outcome"))
        })
        .collect();
    assert_eq!(found, expected);
    let all = world.admin("/decisions?most=1000").await;
    assert!(!all.contains(&alice) && !all.contains(&bob));
    // The decision file has the same records.
    let file = world.path("decisions.jsonl");
    let written = || {
        let text = std::fs::read_to_string(&file).unwrap_or_default();
        let lines = text.lines().filter_map(|line| serde_json::from_str::<Value>(line).ok());
        lines
            .map(|line| line["decision_id"].as_str().unwrap().to_owned())
            .collect::<Vec<_>>()
    };
    world
        .until("the lines of the file", async || written().len() >= expected.len())
        .await;
    let ids: Vec<_> = expected.into_iter().map(|(id, _, _)| id).collect();
    assert_eq!(written(), ids);
    assert_eq!(ids.iter().collect::<BTreeSet<_>>().len(), ids.len());
}

#[tokio::test]
async fn a_client_that_leaves_is_recorded_as_cancelled() {
    let backend = Backend::start(|_| Reply::Stall(Vec::new())).await;
    let world = Setup::with_backend(backend.address).start().await;
    let request = format!(
        "GET /extensions/echo/x HTTP/1.1\r\nHost: gateway\r\nAuthorization: Bearer {}\r\n\
         Argocd-Application-Name: argocd:cart\r\nArgocd-Project-Name: shop\r\n\r\n",
        token::session(SESSION_KEY, "alice")
    );
    let mut client = Client::connect(world.address()).await;
    client.send(request.as_bytes()).await;
    world
        .until("the request at the backend", async || backend.seen().len() == 1)
        .await;
    assert!(records(&world).await.is_empty());
    drop(client);
    world
        .until("the record", async || !records(&world).await.is_empty())
        .await;
    world
        .until("the end of the backend's connection", async || backend.closed() == 1)
        .await;
    let records = records(&world).await;
    assert_eq!(records.len(), 1);
    let record = &records[0];
    assert_eq!(record["outcome"], "cancelled");
    assert_eq!(record["status"], 499);
    assert_eq!(record["principal"]["id"], "alice");
    assert_eq!(record["extension"], "echo");
    let metrics = world.admin("/metrics").await;
    let counted = "tollgate_decisions_total{front=\"extensions\",outcome=\"cancelled\",reason=\"cancelled\"} 1";
    assert!(metrics.contains(counted), "{metrics}");
}

#[tokio::test]
async fn people_read_their_own_decisions_only() {
    let backend = backend().await;
    let world = Setup::with_backend(backend.address).start().await;
    let answer = about(&world, "alice", "/extensions/echo/x", ["argocd:missing", "shop"]).await;
    let id = answer.headers()["tollgate-decision-id"].to_str().unwrap().to_owned();
    let read = async |user: Option<&str>, id: &str| {
        let mut request = reqwest::Client::new().get(format!("http://{}/api/v1/decisions/{id}", world.address()));
        if let Some(user) = user {
            request = request.bearer_auth(token::session(SESSION_KEY, user));
        }
        request.send().await.unwrap()
    };
    let own = read(Some("alice"), &id).await;
    assert_eq!(own.status(), 200);
    let own: Value = own.json().await.unwrap();
    assert_eq!((&own["decision_id"], &own["outcome"]), (&json!(id), &json!("denied")));
    // Only operators see which rule decided.
    assert_eq!(own["checks"][0]["allowed"], true);
    assert!(own["checks"][0].get("rule").is_none() && own.get("detail").is_none());
    // What was said to the caller is no news.
    let told: Value = answer.json().await.unwrap();
    assert!(own["message"].is_string() && told.as_object().unwrap().values().any(|said| *said == own["message"]));
    let operators: Value = serde_json::from_str(&world.admin(&format!("/decisions/{id}")).await).unwrap();
    assert!(operators["checks"][0]["rule"].as_str().unwrap().contains("alice"));
    let others = refusal(read(Some("bob"), &id).await).await;
    let missing = refusal(read(Some("bob"), "01890000-0000-7000-8000-000000000000").await).await;
    assert_eq!(others.0, 404);
    assert_eq!(others, missing);
    assert_eq!(read(None, &id).await.status(), 401);
}
