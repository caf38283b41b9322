//! Cold starts, refused credentials and an issuer that is down: how often the gateway mints, and
//! what callers get meanwhile.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::Duration;

use futures_util::future::join_all;
use serde_json::json;
use tokio::time::{Instant, sleep};

use super::get;
use super::minted::{cluster_of, world};
use test_support::api_server::Api;

const PATH: &str = "/clusters/prod/k8s/api";

#[tokio::test]
async fn a_hundred_cold_requests_are_one_mint_also_when_the_first_caller_goes() {
    let made = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&made);
    let issuer = Api::start(move |_| {
        let nth = counted.fetch_add(1, Ordering::SeqCst) + 1;
        // Long enough that all requests wait for it.
        std::thread::sleep(Duration::from_millis(300));
        (
            200,
            Vec::new(),
            json!({"token": format!("minted-{nth}"), "expires_in": 3600}).to_string(),
        )
    })
    .await;
    let api = cluster_of(|token| token == "minted-1").await;
    let (setup, _folder) = world(&issuer, &api);
    let world = setup.start().await;
    // The first caller leaves before there is an answer.
    let first = get(&world, "carol", PATH).timeout(Duration::from_millis(100)).send();
    assert!(first.await.is_err(), "the first caller got an answer too soon");
    // A client for each would take longer than a mint may.
    let (client, request) = (reqwest::Client::new(), get(&world, "carol", PATH).build().unwrap());
    let sent = (0..100).map(|_| client.execute(request.try_clone().unwrap()));
    for answer in join_all(sent).await {
        let answer = answer.unwrap();
        let status = answer.status();
        assert_eq!(status, 200, "{}", answer.text().await.unwrap());
    }
    assert_eq!(made.load(Ordering::SeqCst), 1);
}

#[tokio::test]
async fn a_cluster_that_always_refuses_makes_one_more_mint() {
    let issuer = super::minted::issuer().await;
    let api = cluster_of(|_| false).await;
    let (setup, _folder) = world(&issuer, &api);
    let world = setup.start().await;
    let (client, request) = (reqwest::Client::new(), get(&world, "carol", PATH).build().unwrap());
    for _ in 0..5 {
        let sent = (0..20).map(|_| client.execute(request.try_clone().unwrap()));
        for answer in join_all(sent).await {
            assert_eq!(answer.unwrap().status(), 401);
        }
    }
    assert_eq!(
        issuer.seen().len(),
        2,
        "one mint, and one for all the refusals of ten seconds"
    );
}

#[tokio::test]
async fn an_issuer_that_is_down_while_the_token_lives_is_not_noticed() {
    let (down, made) = (Arc::new(AtomicBool::new(false)), Arc::new(AtomicUsize::new(0)));
    let (is_down, counted) = (Arc::clone(&down), Arc::clone(&made));
    let issuer = Api::start(move |_| {
        if is_down.load(Ordering::SeqCst) {
            return (503, Vec::new(), "not now".to_owned());
        }
        let nth = counted.fetch_add(1, Ordering::SeqCst) + 1;
        // Renewed after one second, usable for 45 seconds.
        (
            200,
            Vec::new(),
            json!({"token": format!("minted-{nth}"), "expires_in": 60}).to_string(),
        )
    })
    .await;
    let api = cluster_of(|token| token.starts_with("minted-")).await;
    let (mut setup, _folder) = world(&issuer, &api);
    setup.settings["clusters"]["renewAfter"] = json!("1s");
    let world = setup.start().await;
    let ask = async || get(&world, "carol", PATH).send().await.unwrap().status();
    assert_eq!(ask().await, 200);
    down.store(true, Ordering::SeqCst);
    let started = Instant::now();
    while started.elapsed() < Duration::from_secs(4) {
        assert_eq!(ask().await, 200, "after {:?}", started.elapsed());
        sleep(Duration::from_millis(50)).await;
    }
    assert_eq!(made.load(Ordering::SeqCst), 1);
    assert!(issuer.seen().len() > 1, "the gateway did not try to renew the token");
    down.store(false, Ordering::SeqCst);
    world
        .until("the token is renewed", async || {
            assert_eq!(ask().await, 200);
            made.load(Ordering::SeqCst) > 1
        })
        .await;
}
