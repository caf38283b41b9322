//! Sign-in in a browser: whose answer counts, and how often.

use reqwest::StatusCode;
use serde_json::{Value, json};

use super::{Browser, CLIENT, Site, issuer, layout};
use test_support::oidc::Provider;
use test_support::port::free_port;

#[tokio::test]
async fn people_sign_in_at_an_issuer_and_out_of_it() {
    let site = Site::start().await;
    let me = format!("{}/api/v1/me", site.console);
    let mut browser = Browser::new();
    let (status, answer) = browser.api(&me).await;
    assert_eq!(
        (status, &answer["reason"]),
        (StatusCode::UNAUTHORIZED, &json!("no_credential"))
    );
    // Who is not signed in is sent to choose how.
    let visited = browser.open(&format!("{}/console/", site.console)).await;
    assert_eq!(visited.url.path(), "/console/sign-in");
    assert!(visited.text.contains("Continue with corp"), "{}", visited.text);
    let visited = browser.sign_in(&site.console, CLIENT, "ann").await;
    assert!(visited.text.contains("<strong>sub:ann</strong>"), "{}", visited.text);
    let session = visited
        .set_cookies
        .iter()
        .find(|field| field.starts_with("tollgate="))
        .unwrap();
    for attribute in ["Path=/", "HttpOnly", "SameSite=Lax", "Max-Age=43200"] {
        assert!(session.contains(attribute), "{session}");
    }
    let (status, answer) = browser.api(&me).await;
    assert_eq!((status, &answer["user"]), (StatusCode::OK, &json!("sub:ann")));
    assert_eq!(answer["groups"], json!(["corp:dev", "corp:ops"]));
    assert_eq!(answer["login"]["kind"], "browser");

    let cookies = browser.cookies(&site.console).clone();
    let visited = browser.submit(&format!("{}/console/sign-out", site.console), &[]).await;
    assert_eq!(
        (visited.url.path(), visited.status),
        ("/console/signed-out", StatusCode::OK)
    );
    let end_session = format!("url='{}/session/end?client_id=corp", site.provider.issuer);
    assert!(visited.text.contains(&end_session), "{}", visited.text);
    // The cookie is good for nothing, even where it was kept.
    *browser.cookies(&site.console) = cookies;
    let (status, answer) = browser.api(&me).await;
    assert_eq!(
        (status, &answer["reason"]),
        (StatusCode::UNAUTHORIZED, &json!("token_revoked"))
    );
}

#[tokio::test]
async fn an_answer_counts_once_and_for_its_own_attempt() {
    let site = Site::start().await;
    let start = format!("{}/console/sign-in/{CLIENT}", site.console);
    let mut browser = Browser::new();
    let callback = browser.callback_of(&start, "ann").await;
    let before = browser.cookies(&site.console).clone();

    // Somebody else gets the address of the answer: their browser began nothing.
    let visited = Browser::new().open(callback.as_str()).await;
    assert_eq!(visited.status, StatusCode::BAD_REQUEST);
    assert!(visited.text.contains("(no_attempt)"), "{}", visited.text);
    // Another state is no answer to this attempt.
    let mut other = callback.clone();
    let pairs: Vec<(String, String)> = callback.query_pairs().into_owned().collect();
    other
        .query_pairs_mut()
        .clear()
        .extend_pairs(pairs.iter().map(|(name, value)| match name.as_str() {
            "state" => (name.as_str(), format!("{value}x")),
            name => (name, value.clone()),
        }));
    let visited = browser.open(other.as_str()).await;
    assert!(visited.text.contains("(no_attempt)"), "{}", visited.text);
    // Two codes are not one.
    let visited = browser.open(&format!("{callback}&code=x")).await;
    assert!(visited.text.contains("(invalid_request)"), "{}", visited.text);

    let visited = browser.open(callback.as_str()).await;
    assert_eq!(visited.url.path(), "/console/");
    // The same answer again: the attempt is over.
    let visited = browser.open(callback.as_str()).await;
    assert!(visited.text.contains("(no_attempt)"), "{}", visited.text);
    // Even with the attempt put back, the provider takes no code twice.
    *browser.cookies(&site.console) = before;
    let visited = browser.open(callback.as_str()).await;
    assert_eq!(visited.status, StatusCode::FORBIDDEN);
    assert!(visited.text.contains("invalid_grant"), "{}", visited.text);
    let refused = |record: &Value| record["reason"] == "refused_by_issuer";
    site.gateway.decision("the refused code", refused).await;
}

#[tokio::test]
async fn a_refusal_of_the_issuer_is_shown_as_text() {
    let site = Site::start().await;
    let mut browser = Browser::new();
    let start = format!("{}/console/sign-in/{CLIENT}", site.console);
    let callback = browser.callback_of(&start, "nobody").await;
    let visited = browser.open(callback.as_str()).await;
    assert_eq!(visited.status, StatusCode::FORBIDDEN);
    assert!(
        visited
            .text
            .contains("`access_denied`: No &#60;b&#62;such&#60;/b&#62; account"),
        "{}",
        visited.text
    );
}

/// Each of two issuers answers only for itself, whichever the browser is sent back from.
#[tokio::test]
async fn issuers_do_not_answer_for_each_other() {
    let mut other = Provider::start();
    let site = {
        let mut provider = Provider::start();
        let console = format!("http://127.0.0.1:{}", free_port());
        other.ask(&format!("register other {console}"));
        let mut layout = layout(&console, &mut provider);
        let mut second = issuer(&other.issuer, "other", "other:");
        std::fs::write(layout.root().join("other-secret"), other.token("secret other")).unwrap();
        second["client"]["secretFile"] = json!("other-secret");
        layout.setting(
            "/authentication/jwt",
            json!([issuer(&provider.issuer, CLIENT, "sub:"), second]),
        );
        Site {
            gateway: layout.start().await,
            provider,
            console,
        }
    };
    let mut browser = Browser::new();
    let callback = browser
        .callback_of(&format!("{}/console/sign-in/{CLIENT}", site.console), "ann")
        .await;
    // A mix-up: the answer of one comes to the callback of the other.
    let mixed = callback.as_str().replace("/callback/corp?", "/callback/other?");
    let visited = browser.open(&mixed).await;
    assert!(visited.text.contains("(no_attempt)"), "{}", visited.text);
    // The right callback, but the answer names the other issuer (RFC 9207).
    let pairs: Vec<(String, String)> = callback.query_pairs().into_owned().collect();
    let mut named = callback.clone();
    named
        .query_pairs_mut()
        .clear()
        .extend_pairs(pairs.iter().map(|(name, value)| match name.as_str() {
            "iss" => (name.as_str(), other.issuer.as_str()),
            name => (name, value.as_str()),
        }));
    let visited = browser.open(named.as_str()).await;
    assert!(visited.text.contains("(other_issuer)"), "{}", visited.text);
    // And one that names none, although the issuer always does.
    let mut unnamed = callback.clone();
    let without: Vec<&(String, String)> = pairs.iter().filter(|(name, _)| name != "iss").collect();
    unnamed.query_pairs_mut().clear().extend_pairs(without);
    let visited = browser.open(unnamed.as_str()).await;
    assert!(visited.text.contains("(other_issuer)"), "{}", visited.text);
    let visited = browser.open(callback.as_str()).await;
    assert!(visited.text.contains("<strong>sub:ann</strong>"), "{}", visited.text);
    // The same account of the other issuer is somebody else.
    let visited = Browser::new().sign_in(&site.console, "other", "ann").await;
    assert!(visited.text.contains("<strong>other:ann</strong>"), "{}", visited.text);
}

#[tokio::test]
async fn ten_tabs_sign_in_at_once() {
    let site = Site::start().await;
    let mut browser = Browser::new();
    let mut callbacks = Vec::new();
    for tab in 0..10 {
        let start = format!("{}/console/sign-in/{CLIENT}?return=/console/%3Ftab={tab}", site.console);
        callbacks.push(browser.callback_of(&start, "ann").await);
    }
    for (tab, callback) in callbacks.iter().enumerate().rev() {
        let visited = browser.open(callback.as_str()).await;
        let tab = format!("tab={tab}");
        assert_eq!(visited.url.query(), Some(tab.as_str()), "{visited:?}");
    }
    // The last one is in force; those before ended with it.
    let logins = format!("{}/api/v1/me", site.console);
    assert_eq!(browser.api(&logins).await.0, StatusCode::OK);
    assert!(browser.cookies(&site.console).keys().all(|name| name == "tollgate"));
}

#[tokio::test]
async fn the_way_back_stays_on_the_console() {
    let site = Site::start().await;
    for hostile in [
        "https://evil.example/",
        "//evil.example",
        "/console//evil.example",
        "/\\evil.example",
    ] {
        let mut browser = Browser::new();
        let query = url::form_urlencoded::Serializer::new(String::new())
            .append_pair("return", hostile)
            .finish();
        let start = format!("{}/console/sign-in/{CLIENT}?{query}", site.console);
        let callback = browser.callback_of(&start, "ann").await;
        let visited = browser.open(callback.as_str()).await;
        assert_eq!(visited.url.as_str(), format!("{}/console/", site.console), "{hostile}");
    }
}

#[tokio::test]
async fn other_sites_can_neither_sign_out_nor_call_the_api_with_the_cookie() {
    let site = Site::start().await;
    let mut browser = site.browser("ann").await;
    let cookie = browser.cookies(&site.console)["tollgate"].clone();
    let client = reqwest::Client::builder().no_proxy().build().unwrap();
    let sign_out = format!("{}/console/sign-out", site.console);
    for (field, value) in [
        ("sec-fetch-site", "cross-site"),
        ("origin", "https://evil.example"),
        ("x-none", ""),
    ] {
        let request = client
            .post(&sign_out)
            .header("cookie", format!("tollgate={cookie}"))
            .header(field, value);
        let answer = request.send().await.unwrap();
        assert_eq!(answer.status(), StatusCode::FORBIDDEN, "{field}");
        assert!(answer.text().await.unwrap().contains("cross_site_request"));
    }
    // By another name of the same machine, the cookie counts for nothing.
    let port = url::Url::parse(&site.console).unwrap().port().unwrap();
    let elsewhere = client.get(format!("{}/api/v1/me", site.console));
    let elsewhere = elsewhere
        .header("host", format!("localhost:{port}"))
        .header("cookie", format!("tollgate={cookie}"));
    assert_eq!(elsewhere.send().await.unwrap().status(), StatusCode::UNAUTHORIZED);
    let (status, _) = browser.api(&format!("{}/api/v1/me", site.console)).await;
    assert_eq!(status, StatusCode::OK);
}
