//! Logins end: at the issuer, by somebody who locks the person, and with the store.

use std::time::Duration;

use jiff::{SignedDuration, Timestamp};
use reqwest::StatusCode;
use serde_json::{Value, json};

use super::command_line::Home;
use super::{CLIENT, Site};
use test_support::kubernetes::gateway::{Gateway, session};
use test_support::kubernetes::{PATIENCE, eventually};
use test_support::postgres::shared;

/// A second is how soon access ends; the rest is for a busy machine.
const SOON: SignedDuration = SignedDuration::from_secs(5);

/// Opens a stream with a bearer token, and returns it with its first bytes read.
async fn stream(server: &str, bearer: &str) -> reqwest::Response {
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("{server}/api/v1/stream/applicationsets");
    let answer = client.get(url).bearer_auth(bearer).send().await.unwrap();
    assert_eq!(answer.status(), StatusCode::OK);
    answer
}

/// Reads a stream to its end.
async fn read(mut stream: reqwest::Response) {
    while let Ok(Some(_)) = stream.chunk().await {}
}

/// Waits until a stream ends. Returns how long its gateway, which ends nothing else, took to end it.
async fn end(stream: reqwest::Response, gateway: &Gateway) -> SignedDuration {
    let started = Timestamp::now();
    tokio::time::timeout(PATIENCE, read(stream))
        .await
        .expect("the stream goes on");
    let is_ended = |record: &Value| record["ended"].is_object();
    let record = gateway.decision("the end", is_ended).await;
    let at: Timestamp = record["ended"]["at"].as_str().unwrap().parse().unwrap();
    let took = at.duration_since(started);
    assert!(took < SOON, "{took:?}");
    took
}

async fn site() -> Site {
    Site::start_with(|layout| {
        layout.policies("applicationsets");
        layout.settings(json!({"applicationSets": {}}));
    })
    .await
}

#[tokio::test]
async fn a_back_channel_logout_ends_the_logins_of_that_session_and_what_they_have_open() {
    let mut site = site().await;
    let home = Home::new();
    let mut browser = site.browser("ann").await;
    let mut other = site.browser("ben").await;
    home.log_in(&site.console, &mut browser).await;
    let open = stream(&site.console, &home.credential()).await;
    site.provider.ask(&format!("log-out {CLIENT} ann"));
    end(open, &site.gateway).await;
    let me = format!("{}/api/v1/me", site.console);
    // The browser, and the command line that it approved.
    let (status, answer) = browser.api(&me).await;
    assert_eq!(
        (status, &answer["reason"]),
        (StatusCode::UNAUTHORIZED, &json!("token_revoked"))
    );
    let refused = home.fail(&["whoami"]).await;
    assert!(
        refused.starts_with("tollgate: token_revoked: the token was revoked, sign in again"),
        "{refused}"
    );
    assert_eq!(other.api(&me).await.0, StatusCode::OK);
    let is_ended = |record: &Value| record["ended"]["reason"] == "session_revoked";
    site.gateway.decision("the end", is_ended).await;
}

/// Posts what a provider would to `url`: a form with a logout token. A JWT needs no encoding.
async fn post_logout_token(client: &reqwest::Client, url: &str, token: &str) -> reqwest::Response {
    client
        .post(url)
        .header("content-type", "application/x-www-form-urlencoded")
        .body(format!("logout_token={token}"))
        .send()
        .await
        .unwrap()
}

#[tokio::test]
async fn a_logout_token_of_anybody_else_ends_nothing() {
    let mut site = site().await;
    let mut browser = site.browser("ann").await;
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let url = format!("{}/console/back-channel-logout/{CLIENT}", site.console);
    let id_token = site.provider.token("id-token ann");
    for (token, status) in [("x", 400), (id_token.as_str(), 400), ("", 400)] {
        let answer = post_logout_token(&client, &url, token).await;
        assert_eq!(answer.status().as_u16(), status);
    }
    let unknown = url.replace("/corp", "/unknown");
    let answer = post_logout_token(&client, &unknown, "x").await;
    assert_eq!(answer.status(), StatusCode::NOT_FOUND);
    assert_eq!(
        browser.api(&format!("{}/api/v1/me", site.console)).await.0,
        StatusCode::OK
    );
}

#[tokio::test]
async fn a_lock_ends_everything_of_a_person_until_it_is_gone() {
    let site = site().await;
    let (home, ben) = (Home::new(), Home::new());
    let mut browser = site.browser("ann").await;
    home.log_in(&site.console, &mut browser).await;
    ben.log_in(&site.console, &mut site.browser("ben").await).await;
    // Who may lock is RBAC's to say.
    let refused = ben.fail(&["person", "lock", "sub:ann"]).await;
    assert!(
        refused.contains("permission_denied: not permitted: `people, lock` of `sub:ann`"),
        "{refused}"
    );
    let open = stream(&site.console, &home.credential()).await;
    let kept = stream(&site.console, &ben.credential()).await;
    let root = Home::new();
    root.token(&site.console, &session("root"));
    let locked = root
        .run(&["person", "lock", "sub:ann", "--reason", "laptop stolen"])
        .await;
    assert!(locked.starts_with("sub:ann is locked;"), "{locked}");
    end(open, &site.gateway).await;
    let me = format!("{}/api/v1/me", site.console);
    let (status, answer) = browser.api(&me).await;
    assert_eq!(
        (status, &answer["reason"]),
        (StatusCode::UNAUTHORIZED, &json!("token_revoked"))
    );
    let refused = home.fail(&["whoami"]).await;
    assert!(refused.contains("token_revoked: the token was revoked"), "{refused}");
    // A new sign-in is refused as well.
    let mut again = super::Browser::new();
    let start = format!("{}/console/sign-in/{CLIENT}", site.console);
    let callback = again.callback_of(&start, "ann").await;
    let visited = again.open(callback.as_str()).await;
    assert!(
        visited.status == StatusCode::FORBIDDEN && visited.text.contains("(person_locked)"),
        "{}",
        visited.text
    );
    let listed: Value = serde_json::from_str(&root.run(&["person", "list", "-o", "json"]).await).unwrap();
    assert_eq!(listed["items"][0]["reason"], "laptop stolen");
    // Others are not touched.
    assert_eq!(ben.run(&["whoami"]).await.lines().next(), Some("User    sub:ben"));
    drop(kept);
    root.run(&["person", "unlock", "sub:ann"]).await;
    // Her logins are gone for good: the laptop may still be somebody else's.
    let (status, answer) = browser.api(&me).await;
    assert_eq!(
        (status, &answer["reason"]),
        (StatusCode::UNAUTHORIZED, &json!("token_revoked"))
    );
    assert_eq!(site.browser("ann").await.api(&me).await.0, StatusCode::OK);
}

#[tokio::test]
async fn a_lock_at_one_replica_ends_what_is_open_at_the_other() {
    let url = shared().database().await;
    let mut other = None;
    let site = Site::start_with(|layout| {
        layout.policies("applicationsets");
        layout.settings(json!({"applicationSets": {}, "store": {"url": url}}));
        let mut replica = layout.replica();
        replica.settings(json!({"listen": "127.0.0.1:0"}));
        other = Some(replica);
    })
    .await;
    let other = other.unwrap().start().await;
    let (home, ben, root) = (Home::new(), Home::new(), Home::new());
    home.log_in(&site.console, &mut site.browser("ann").await).await;
    ben.log_in(&site.console, &mut site.browser("ben").await).await;
    // A login that one replica made counts at the other.
    let open = stream(&other.url(), &home.credential()).await;
    let kept = stream(&other.url(), &ben.credential()).await;
    root.token(&site.console, &session("root"));
    root.run(&["person", "lock", "sub:ann"]).await;
    let took = end(open, &other).await;
    assert!(took < SignedDuration::from_secs(2), "{took:?}");
    let refused = reqwest::Client::builder().no_proxy().build().unwrap();
    let refused = refused
        .get(format!("{}/api/v1/me", other.url()))
        .bearer_auth(home.credential());
    let (status, answer) = {
        let answer = refused.send().await.unwrap();
        (answer.status(), answer.json::<Value>().await.unwrap())
    };
    // It hears of the lock, and of the login's end, in either order.
    let refusals = [
        (StatusCode::FORBIDDEN, json!("person_locked")),
        (StatusCode::UNAUTHORIZED, json!("token_revoked")),
    ];
    assert!(
        refusals.contains(&(status, answer["reason"].clone())),
        "{status} {answer}"
    );
    // Nothing of anybody else ends.
    let goes_on = tokio::time::timeout(Duration::from_millis(500), read(kept)).await;
    assert!(goes_on.is_err(), "the stream of another person ended");
    // Unlocked, she has to sign in again.
    root.run(&["person", "unlock", "sub:ann"]).await;
    assert!(home.fail(&["whoami"]).await.contains("token_revoked"));
    home.log_in(&site.console, &mut site.browser("ann").await).await;
    let (url, credential) = (other.url(), home.credential());
    eventually("the other replica has heard of it", async || {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let answer = client
            .get(format!("{url}/api/v1/me"))
            .bearer_auth(&credential)
            .send()
            .await;
        (answer.unwrap().status() == StatusCode::OK).then_some(())
    })
    .await;
}
