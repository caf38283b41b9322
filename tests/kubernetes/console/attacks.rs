//! Pages of other origins, and names that would be code.

use reqwest::StatusCode;
use serde_json::json;
use test_support::chromium::{Chromium, Page};

use super::{HOSTILE, PAGES, Site};

#[tokio::test]
async fn no_other_origin_sends_forms_or_frames_pages() {
    let site = Site::start().await;
    let mut root = site.person("root").await;
    let cookie = root.cookies(&site.console)["tollgate"].clone();
    let client = reqwest::Client::builder()
        .no_proxy()
        .redirect(reqwest::redirect::Policy::none())
        .build()
        .unwrap();
    for (origin, from) in [
        (Some("https://evil.example"), Some("cross-site")),
        (Some("https://evil.example"), None),
        (Some("null"), None),
        (None, Some("same-site")),
    ] {
        for (path, content) in [
            ("sessions", "end=login%3A1"),
            ("tokens", "revoke=1"),
            ("theme", "theme=dark"),
        ] {
            let mut request = client
                .post(site.url(path))
                .header("cookie", format!("tollgate={cookie}"))
                .header("content-type", "application/x-www-form-urlencoded")
                .body(content);
            if let Some(origin) = origin {
                request = request.header("origin", origin);
            }
            if let Some(from) = from {
                request = request.header("sec-fetch-site", from);
            }
            let answer = request.send().await.unwrap();
            assert_eq!(
                answer.status(),
                StatusCode::FORBIDDEN,
                "{path} from {origin:?} {from:?}"
            );
        }
    }
    for path in PAGES.into_iter().chain(["nothing", "decisions/x"]) {
        let answer = client
            .get(site.url(path))
            .header("cookie", format!("tollgate={cookie}"))
            .send()
            .await
            .unwrap();
        let fields = answer.headers();
        let policy = fields["content-security-policy"].to_str().unwrap();
        for part in [
            "default-src 'none'",
            "script-src 'self';",
            "frame-ancestors 'none'",
            "trusted-types 'none'",
        ] {
            assert!(policy.contains(part), "{path}: {policy}");
        }
        assert_eq!(fields["cache-control"], "no-store", "{path}");
        assert_eq!(fields["x-content-type-options"], "nosniff", "{path}");
        let text = answer.text().await.unwrap();
        assert!(text.len() < 100_000, "{path} has {} bytes", text.len());
    }
}

#[tokio::test]
async fn hostile_names_are_texts() {
    let site = Site::start().await;
    let name: String = HOSTILE.chars().take(200).collect();
    site.alice_makes_token(&name).await;
    let chromium = Chromium::start().await;
    let mut page = site.tab(&chromium, "root").await;
    let encoded: String = url::form_urlencoded::byte_serialize(HOSTILE.as_bytes()).collect();
    for path in [
        "tokens?user=*".to_owned(),
        "audit?user=*".to_owned(),
        format!("audit?name={encoded}&verb={encoded}"),
        format!("decisions?reason={encoded}"),
        format!("permissions?resource={encoded}&action={encoded}&object={encoded}&user={encoded}"),
        format!("clusters/{}", percent(HOSTILE)),
        format!("decisions/{}", percent(HOSTILE)),
        format!("tokens?agent={encoded}"),
        format!("sessions?user={encoded}"),
    ] {
        assert_text_alone(&mut page, &site.url(&path)).await;
    }
    // It is there, as it was written.
    page.go(&site.url("tokens?user=*")).await;
    let text = page.evaluate("document.body.innerText").await;
    assert!(text.as_str().unwrap().contains("<script>document.title"), "{text}");
    assert!(text.as_str().unwrap().contains("\\u{202e}txt"), "{text}");
}

/// Opens a page and fails if a name on it became anything but text.
async fn assert_text_alone(page: &mut Page, url: &str) {
    page.go(url).await;
    assert_eq!(page.complaints().await, [""; 0], "{url}");
    let found = page
        .evaluate(
            "[document.title.endsWith('Tollgate'), document.scripts.length <= 1, document.images.length, \
             document.querySelectorAll('[onerror], [href^=javascript]').length, \
             /[\\u202a-\\u202e\\u001b]/.test(document.body.innerText), \
             document.documentElement.scrollWidth <= document.documentElement.clientWidth]",
        )
        .await;
    assert_eq!(found, json!([true, true, 0, 0, false, true]), "{url}");
}

#[tokio::test]
async fn hostile_names_in_objects_are_texts_too() {
    let long = HOSTILE.repeat(120);
    assert!(long.len() > 10_000);
    let site = Site::start_with(|layout, console| {
        let project = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
            "metadata": {"name": "hostile", "namespace": "argocd"},
            "spec": {
                "description": long, "sourceRepos": ["*"], "destinations": [{"server": "*", "namespace": "*"}],
                "destinationServiceAccounts": [
                    {"server": "*", "namespace": "\u{1b}[31m\u{202e}<img src=x>*", "defaultServiceAccount": "a"},
                ],
            },
        });
        let application = json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": HOSTILE, "namespace": "argocd"},
            "spec": {
                "project": "hostile", "source": {"repoURL": long, "path": "."},
                "destination": {"name": HOSTILE, "namespace": HOSTILE},
            },
        });
        for (file, object) in [("project", project), ("application", application)] {
            let path = layout.root().join(format!("state/hostile-{file}.yaml"));
            std::fs::write(path, object.to_string()).unwrap();
        }
        let data = json!({"name": HOSTILE, "server": "https://127.0.0.1:1", "config": "{\"bearerToken\": \"x\"}"});
        layout.cluster("hostile", &data);
        layout.settings(json!({"console": {"url": console, "contact": "<script>alert(1)</script>"}}));
        let extension =
            "[{name: hostile, backend: {services: [{url: 'http://127.0.0.1:1/', headers: [{name: X-A, value: a}]}]}}]";
        layout.object(
            "ConfigMap",
            "argocd-cm",
            &json!({}),
            &json!({
                "accounts.alice": "login", "extension.config": format!("extensions: {extension}"),
            }),
        );
    })
    .await;
    let chromium = Chromium::start().await;
    let mut page = site.tab(&chromium, "root").await;
    page.resize(1280, 800).await;
    for path in [
        "projects",
        "projects/hostile",
        "identities",
        "identities?project=hostile",
        "credentials",
        "clusters",
        "extensions",
        "policies/applications",
        "system",
        "applicationsets",
    ] {
        assert_text_alone(&mut page, &site.url(path)).await;
    }
    page.go(&site.url("identities?project=hostile")).await;
    let text = page.evaluate("document.body.innerText").await;
    assert!(text.as_str().unwrap().contains("<script>document.title"), "{text}");
    // Forms keep what is stored, regardless of its content.
    page.go(&site.url("projects/hostile")).await;
    let value = page.evaluate("document.querySelector('#namespace-0').value").await;
    assert_eq!(value, "\u{1b}[31m\u{202e}<img src=x>*");
}

fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}
