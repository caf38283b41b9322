//! Sign-in, sign-out, accounts and tokens: with a password, by Argo CD's CLI, and through Dex.

use reqwest::{Method, Response};
use serde_json::{Value, json};
use tokio::time::timeout;

use super::{Fixture, Setup, Through};
use test_support::issuer::Issuer;
use test_support::kubernetes::argocd::{ArgoCd, Wire};
use test_support::kubernetes::{PATIENCE, eventually};
use test_support::port::free_port;

/// Tollgate's own, and argocd-server's.
const PATHS: [&str; 3] = [
    "/api/v1/applicationsets",
    "/api/v1/tollgate/clusters",
    "/api/v1/applications",
];

/// Reads a stream until it ends.
async fn until_ended(stream: &mut Response) {
    let reading = async { while let Ok(Some(_)) = stream.chunk().await {} };
    timeout(PATIENCE, reading).await.expect("the stream ends");
}

#[tokio::test(flavor = "multi_thread")]
async fn signing_out_through_the_gateway_ends_access_everywhere() {
    let mut fixture = Fixture::start(Wire::Plain).await;
    let password = fixture.argocd.password().to_owned();
    let [session, other] = [
        fixture.session("admin", &password).await,
        fixture.session("admin", &password).await,
    ];
    for path in PATHS {
        assert_eq!(fixture.outcome(path, &session).await.0, 200, "{path}");
    }
    // argocd-server begins a stream with its first event.
    let cli = fixture.cli(Through::Gateway, &[]);
    assert!(cli.login("admin", &password).await.status.success());
    let destination = ["--dest-name", "in-cluster", "--dest-namespace", "default"];
    let repository = ["--repo", fixture.argocd.repository(), "--path", "app"];
    cli.succeed(&[&["app", "create", "hello"][..], &repository, &destination].concat())
        .await;
    let stream = "/api/v1/stream/applications";
    let mut open = fixture.send(Method::GET, stream, &session).await;
    let mut twin = fixture.send(Method::GET, stream, &other).await;
    assert_eq!((open.status().as_u16(), twin.status().as_u16()), (200, 200));
    assert_eq!(
        fixture
            .send(Method::POST, "/auth/logout", &session)
            .await
            .status()
            .as_u16(),
        303
    );
    let revoked = (401, "token_revoked".to_owned());
    for path in PATHS {
        assert_eq!(fixture.outcome(path, &session).await, revoked, "{path}");
        assert_eq!(fixture.outcome(path, &other).await.0, 200, "{path}");
    }
    until_ended(&mut open).await;
    let ended = eventually("the end is recorded", async || {
        let records = fixture.gateway.decisions().into_iter();
        let ended: Vec<_> = records.filter(|record| record["ended"].is_object()).collect();
        (!ended.is_empty()).then_some(ended)
    })
    .await;
    assert!(
        matches!(ended.as_slice(), [one] if one["ended"]["reason"] == "session_revoked"),
        "{ended:?}"
    );

    // argocd-server forgets it with its Redis, the gateway does not.
    fixture.argocd.redis().restart().await;
    for path in PATHS {
        assert_eq!(fixture.outcome(path, &session).await, revoked, "{path}");
    }
    assert_eq!(
        fixture
            .send(Method::POST, "/auth/logout", &other)
            .await
            .status()
            .as_u16(),
        303
    );
    eventually("the list is followed again", async || {
        (fixture.outcome(PATHS[0], &other).await == revoked).then_some(())
    })
    .await;
    until_ended(&mut twin).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn accounts_and_sessions_of_the_cli_work_as_without_the_gateway() {
    let fixture = Fixture::start(Wire::Plain).await;
    let cli = fixture.cli(Through::Gateway, &[]);
    let password = fixture.argocd.password();
    assert!(cli.login("admin", password).await.status.success());
    let accounts = cli.succeed(&["account", "list"]).await;
    assert!(accounts.contains("ci") && accounts.contains("apiKey"), "{accounts}");

    let generate = [
        "account",
        "generate-token",
        "--account",
        "ci",
        "--id",
        "one",
        "--expires-in",
        "1h",
    ];
    let token = cli.succeed(&generate).await.trim().to_owned();
    eventually("the new token is known", async || {
        (fixture.outcome(PATHS[0], &token).await.0 == 200).then_some(())
    })
    .await;
    cli.succeed(&["account", "delete-token", "--account", "ci", "one"])
        .await;
    eventually("the deleted token is refused", async || {
        let refused = (401, "token_revoked".to_owned());
        (fixture.outcome(PATHS[0], &token).await == refused).then_some(())
    })
    .await;

    let again = cli.run(&["relogin", "--password", password]).await;
    assert!(again.status.success(), "{}{}", again.stdout, again.stderr);
    cli.succeed(&["appset", "list"]).await;
    let context = fixture.gateway.address().to_string();
    cli.succeed(&["logout", &context]).await;
    let info = cli.succeed(&["account", "get-user-info"]).await;
    assert!(info.contains("Logged In: false"), "{info}");
    let refused = cli.run(&["appset", "list"]).await;
    assert!(!refused.status.success(), "{}", refused.stdout);

    let new = ["--current-password", password, "--new-password", "another-password-1"];
    let session = fixture.session("admin", password).await;
    assert!(cli.login("admin", password).await.status.success());
    // The session that asks is one of those that end.
    cli.succeed(&[&["account", "update-password"][..], &new].concat()).await;
    eventually("sessions of the old password are refused", async || {
        (fixture.outcome(PATHS[0], &session).await.0 == 401).then_some(())
    })
    .await;
    assert!(!cli.login("admin", password).await.status.success());
    assert!(cli.login("admin", "another-password-1").await.status.success());
    cli.succeed(&["appset", "list"]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn sessions_of_dex_are_accepted_as_by_argocd_server_and_end_at_sign_out() {
    // Nothing answers there: a client that wants Dex's keys must ask argocd-server.
    let url = "https://argocd.invalid";
    let dex = Issuer::dex(url).await;
    let mut setup = Setup::new(Wire::Tls).with_dex(url);
    setup.dex = Some(dex.address.clone());
    let fixture = setup.start(|_| {}).await;
    let session = |user: &str, audience: &str| {
        dex.token(&json!({
            "sub": format!("dex-{user}"), "aud": audience, "at_hash": format!("hash-{user}"),
            "email": format!("{user}@corp.example"), "email_verified": true, "groups": ["corp:dev"],
            "federated_claims": {"connector_id": "mock", "user_id": user},
        }))
    };
    let (ann, bob) = (session("ann", "argo-cd"), session("bob", "argo-cd-cli"));
    let strangers = [
        session("eve", "argo-cd-pkce"),
        session("eve", "other"),
        dex.forged(&json!({"sub": "eve", "aud": "argo-cd"})),
    ];
    for path in PATHS {
        for known in [&ann, &bob] {
            assert_eq!(fixture.outcome(path, known).await, (200, String::new()), "{path}");
        }
        for stranger in &strangers {
            assert_eq!(
                fixture.outcome(path, stranger).await,
                (401, "invalid_token".to_owned()),
                "{path}"
            );
        }
    }
    let is_of_ann = |record: &Value| record["principal"]["username"] == "ann@corp.example";
    fixture.gateway.decision("a request of ann", is_of_ann).await;
    let direct = reqwest::Client::builder()
        .no_proxy()
        .tls_danger_accept_invalid_certs(true)
        .build()
        .unwrap();
    for (session, status) in [(&ann, 200), (&bob, 200), (&strangers[0], 401), (&strangers[2], 401)] {
        let request = direct.get(format!("{}/api/v1/applications", fixture.argocd.url()));
        let answer = request
            .header("cookie", format!("argocd.token={session}"))
            .send()
            .await
            .unwrap();
        assert_eq!(answer.status().as_u16(), status, "argocd-server itself");
    }
    assert_eq!(
        fixture.send(Method::POST, "/auth/logout", &ann).await.status().as_u16(),
        303
    );
    for path in PATHS {
        assert_eq!(
            fixture.outcome(path, &ann).await,
            (401, "token_revoked".to_owned()),
            "{path}"
        );
        assert_eq!(fixture.outcome(path, &bob).await.0, 200, "{path}");
    }
}

/// Opens a page as a browser does. The CLI shows the page before it listens for the redirect.
async fn browse(browser: &reqwest::Client, url: &str) {
    let page = eventually("the page answers", async || browser.get(url).send().await.ok()).await;
    assert!(page.status().is_success(), "{url}: {}", page.status());
}

#[tokio::test(flavor = "multi_thread")]
async fn people_sign_in_with_dex_through_the_gateway() {
    let listen = format!("127.0.0.1:{}", free_port());
    let mut setup = Setup::new(Wire::Plain).with_dex(&format!("http://{listen}"));
    setup.listen = listen;
    let fixture = setup.start(|_| {}).await;
    ArgoCd::permit(&fixture.cluster, "g, authors, role:readonly\n").await;

    let cli = fixture.cli(Through::Gateway, &[]);
    let browser = reqwest::Client::builder().no_proxy().build().unwrap();
    let signed_in = cli.login_by_browser(async |page| browse(&browser, &page).await);
    let signed_in = signed_in.await;
    assert!(signed_in.status.success(), "{}{}", signed_in.stdout, signed_in.stderr);
    let info = cli.succeed(&["account", "get-user-info"]).await;
    assert!(info.contains("Logged In: true") && info.contains("authors"), "{info}");
    // By argocd-server, and by the gateway itself.
    cli.succeed(&["proj", "get", "default"]).await;
    let refused = cli.run(&["proj", "create", "other"]).await;
    assert!(refused.stderr.contains("PermissionDenied"), "{}", refused.stderr);
    cli.succeed(&["appset", "list"]).await;
    cli.succeed(&["logout", &fixture.gateway.address().to_string()]).await;
    assert!(!cli.run(&["appset", "list"]).await.status.success());
}
