//! The console's pages, as a person and a browser see them. Pictures of every page in both themes and
//! three widths are in `target/pictures`.

use std::path::Path;

use reqwest::StatusCode;
use serde_json::{Value, json};
use test_support::chromium::{Chromium, Page};
use test_support::kubernetes::gateway::Layout;
use test_support::kubernetes::{PATIENCE, eventually};
use test_support::oidc::Provider;
use test_support::port::free_port;
use test_support::postgres::Server;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::access::fixture::{AccessAs, Fixture};
use crate::sign_in::browsing::{Browser, Visited};
use crate::sign_in::{CLIENT, issuer};

mod applicationsets;
mod attacks;
mod keyboard;
mod policies;
mod projects;
mod sessions;

/// root may do everything in the gateway; ann, whom a group lets use agents, may do nothing else.
const POLICY: &str = "p, role:on-call, sessions, *, *, allow\n\
                      p, role:on-call, tokens, *, *, allow\n\
                      p, role:on-call, audit, get, *, allow\n\
                      p, role:on-call, decisions, get, *, allow\n\
                      p, role:on-call, rbac, get, *, allow\n\
                      p, role:on-call, policies, *, *, allow\n\
                      p, role:on-call, plugins, get, *, allow\n\
                      p, role:on-call, system, get, *, allow\n\
                      p, role:on-call, clusters, get, *, allow\n\
                      p, role:on-call, projects, get, *, allow\n\
                      p, role:on-call, applications, get, *, allow\n\
                      g, sub:root, role:on-call\n\
                      p, role:owner, projects, *, shop, allow\n\
                      p, role:owner, applications, *, shop/*, allow\n\
                      p, role:owner, applicationsets, *, shop/*, allow\n\
                      g, sub:owner, role:owner\ng, sub:other, role:owner\n";

/// Every page that needs no name.
const PAGES: [&str; 19] = [
    "",
    "clusters",
    "tokens",
    "sessions",
    "decisions",
    "audit",
    "permissions",
    "policies",
    "policies/kubernetes",
    "extensions",
    "identities",
    "projects",
    "projects/shop",
    "projects/shop?since=before",
    "applicationsets",
    "applicationsets/new",
    "credentials",
    "plugins",
    "system",
];

/// Shown as a name everywhere it can be one.
const HOSTILE: &str =
    "<script>document.title='x'</script>\"'><img src=x onerror=alert(1)> javascript:alert(1) \u{202e}txt";

/// A gateway with a console, in front of a cluster that is shared with a group.
struct Site {
    fixture: Fixture,
    _provider: Provider,
    console: String,
}

impl Site {
    async fn start() -> Self {
        Self::start_with(|_, _| {}).await
    }

    /// - `adapt`: changes the settings, for this URL of the console.
    async fn start_with(adapt: impl FnOnce(&mut Layout, &str)) -> Self {
        let mut provider = Provider::start();
        let console = format!("http://127.0.0.1:{}", free_port());
        provider.ask(&format!("register {CLIENT} {console}"));
        let secret = provider.token(&format!("secret {CLIENT}"));
        let fixture = Fixture::start_with(|layout| {
            layout.without_tls();
            std::fs::write(layout.root().join("secret"), &secret).unwrap();
            layout.settings(json!({
                "listen": console.trim_start_matches("http://"),
                "console": {"url": console, "contact": "#platform in the chat"},
                "authentication": {"argocdSessions": true, "jwt": [issuer(&provider.issuer, CLIENT, "sub:")]},
            }));
            layout.setting(
                "/kubernetes/users",
                json!([{"issuer": provider.issuer, "claim": "sub", "is": "username"}, {"issuer": "argocd", "is": "username"}]),
            );
            layout.setting(
                "/kubernetes/memberships",
                json!([{"issuer": provider.issuer, "oidcGroup": "corp:dev", "group": "group-2", "role": "developer"}]),
            );
            for front in ["applications", "applicationsets"] {
                layout.policies(front);
            }
            layout.settings(json!({"applications": {}, "applicationSets": {}}));
            for object in shop() {
                layout.write(&object);
            }
            layout.object("ConfigMap", "argocd-rbac-cm", &json!({}), &json!({"policy.csv": POLICY}));
            adapt(layout, &console);
        })
        .await;
        Self {
            fixture,
            _provider: provider,
            console,
        }
    }

    /// The entries of the project, as they are stored.
    fn entries(&self) -> Vec<Value> {
        let file = std::fs::read_to_string(self.fixture.gateway.path("state/AppProject-argocd-shop.yaml"));
        let project: Value = serde_json::from_str(&file.unwrap()).unwrap();
        project["spec"]["destinationServiceAccounts"]
            .as_array()
            .unwrap()
            .clone()
    }

    fn url(&self, page: &str) -> String {
        format!("{}/console/{page}", self.console)
    }

    /// Signs somebody in with a browser that has no screen.
    async fn person(&self, account: &str) -> Browser {
        let mut browser = Browser::new();
        browser.sign_in(&self.console, CLIENT, account).await;
        browser
    }

    /// Opens a tab in which somebody is signed in.
    async fn tab(&self, chromium: &Chromium, account: &str) -> Page {
        let mut page = chromium.open_watched(&self.console).await;
        let mut person = self.person(account).await;
        for (name, value) in person.cookies(&self.console).clone() {
            page.set_cookie(&self.console, &name, &value).await;
        }
        page
    }

    /// The text of a page of alice, who is in the directory, by her Argo CD session.
    async fn alice_makes_token(&self, name: &str) -> Value {
        let wish = json!({"name": name, "agent": AccessAs::User as i64, "lifetime": "1h"});
        self.fixture.api(reqwest::Method::POST, "/api/v1/tokens", &wish).await
    }
}

/// A project with two Applications.
fn shop() -> Vec<Value> {
    let application = |name: &str, namespace: &str| {
        json!({
            "apiVersion": "argoproj.io/v1alpha1", "kind": "Application",
            "metadata": {"name": name, "namespace": "argocd"},
            "spec": {
                "project": "shop",
                "source": {"repoURL": "https://git.example/shop.git", "path": "."},
                "destination": {"name": "people", "namespace": namespace},
            },
        })
    };
    let project = json!({
        "apiVersion": "argoproj.io/v1alpha1", "kind": "AppProject",
        "metadata": {"name": "shop", "namespace": "argocd"},
        "spec": {
            "description": "The shop <b>", "sourceRepos": ["*"],
            "destinations": [{"server": "*", "namespace": "*"}],
            "destinationServiceAccounts": [
                {"server": "*", "namespace": "web", "defaultServiceAccount": "web-deployer"},
                {"server": "*", "namespace": "*", "defaultServiceAccount": "deployer"},
            ],
        },
    });
    vec![project, application("cart", "web"), application("stock", "store")]
}

/// Fails unless the browser has nothing to complain about, axe finds nothing, and nothing is cut off.
async fn check(page: &mut Page, name: &str) {
    assert_eq!(page.complaints().await, [""; 0], "{name}");
    let axe = concat!(
        env!("CARGO_MANIFEST_DIR"),
        "/tests/accessibility/node_modules/axe-core/axe.min.js"
    );
    let axe = std::fs::read_to_string(axe).expect("axe-core is not installed: run `cargo xtask setup`");
    page.evaluate(&format!("{axe}; 0")).await;
    let found = page
        .evaluate(
            "axe.run(document, {runOnly: ['wcag2a', 'wcag2aa', 'wcag21a', 'wcag21aa', 'wcag22aa', 'best-practice']})\
             .then(found => found.violations.map(one => `${one.id}: ${one.nodes.map(node => node.html).join(' ')}`))",
        )
        .await;
    assert_eq!(found, json!([]), "{name}");
    let overflow = page
        .evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        .await;
    assert!(overflow.as_i64().unwrap() <= 0, "{name}: {overflow} pixels are cut off");
    // What axe itself does is not the page's.
    page.complaints().await;
}

/// Checks a page in both themes and three widths, and takes a picture of each.
async fn check_everywhere(page: &mut Page, url: &str, name: &str) {
    for theme in ["light", "dark"] {
        page.set_theme(theme).await;
        for width in [320, 768, 1280] {
            page.resize(width, 800).await;
            page.go(url).await;
            let name = format!("console-{name}-{theme}-{width}");
            let file = format!("target/pictures/{name}.png");
            page.capture(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).await;
            check(page, &name).await;
        }
    }
}

#[tokio::test]
async fn every_page_is_clean_in_both_themes_and_three_widths() {
    let site = Site::start().await;
    site.alice_makes_token("laptop").await;
    let chromium = Chromium::start().await;
    for account in ["root", "ann"] {
        let mut page = site.tab(&chromium, account).await;
        for path in PAGES {
            let everybody = match path {
                "tokens" | "sessions" | "decisions" | "audit" if account == "root" => "?user=*",
                _ => "",
            };
            let label = if path.is_empty() { "overview" } else { path }.replace(['/', '?'], "-");
            let url = site.url(&format!("{path}{everybody}"));
            check_everywhere(&mut page, &url, &format!("{account}-{label}")).await;
        }
    }
}

/// Sign-in, what is not there, forms that are refused, and a store that does not answer.
#[tokio::test]
async fn pages_of_sign_in_and_failures_are_clean_in_both_themes_and_three_widths() {
    let store = Server::start();
    let url = store.database().await;
    let site = Site::start_with(|layout, _| layout.settings(json!({"store": {"url": url}}))).await;
    let chromium = Chromium::start().await;
    let mut page = site.tab(&chromium, "ann").await;
    let mut titles = Vec::new();
    for (path, name, title) in [
        ("sign-in?return=%2Fconsole%2Faudit", "sign-in", "Sign in"),
        ("device", "device", "Enter the code of the command line"),
        ("signed-out", "signed-out", "Signed out"),
        ("nothing", "no-page", "There is no such page"),
        ("projects/none", "no-project", "You may not see this"),
        ("clusters/none", "no-cluster", "There is no such page"),
        ("tokens?user=*", "tokens-of-others", "Access tokens"),
        ("audit?since=last-week", "audit-mistake", "Audit log"),
        (
            "permissions?resource=a&action=b&user=sub:root",
            "permissions-of-others",
            "Permissions",
        ),
    ] {
        check_everywhere(&mut page, &site.url(path), &format!("ann-{name}")).await;
        let shown = page.evaluate("document.querySelector('h1').innerText").await;
        titles.push((path, shown.as_str().unwrap().to_owned(), title));
    }
    titles.retain(|(_, shown, title)| shown != title);
    assert!(titles.is_empty(), "{titles:?}");
    drop(store);
    eventually("the store counts as away", async || {
        (site.fixture.gateway.readiness().await.0 == 503).then_some(())
    })
    .await;
    check_everywhere(&mut page, &site.url("sessions"), "ann-failed").await;
    let text = page.evaluate("document.querySelector('main').innerText").await;
    let text = text.as_str().unwrap();
    assert!(
        text.contains("does not work right now") && text.contains("Try again"),
        "{text}"
    );
}

#[tokio::test]
async fn who_is_refused_reads_which_right_is_missing_and_whom_to_ask() {
    let site = Site::start().await;
    let (mut ann, mut root) = (site.person("ann").await, site.person("root").await);
    for (path, right) in [
        ("sessions?user=*", "`sessions, get`"),
        ("decisions?user=*", "`decisions, get`"),
        ("audit?user=*", "`audit, get`"),
        ("policies", "`policies, get`"),
        ("policies/kubernetes", "`policies, get`"),
        ("plugins", "`plugins, get`"),
        ("system", "`system, get`"),
    ] {
        let refused = ann.open(&site.url(path)).await;
        assert_eq!(refused.status, StatusCode::FORBIDDEN, "{path}");
        for part in [
            "You may not see this",
            right,
            "#platform in the chat",
            "/console/decisions/",
        ] {
            assert!(refused.text.contains(part), "{path}: no {part} in {}", refused.text);
        }
        let allowed = root.open(&site.url(path)).await;
        assert_eq!(allowed.status, StatusCode::OK, "{path}: {}", allowed.text);
    }
    // The link to the decision leads to why.
    let refused = ann.open(&site.url("system")).await;
    let decision = link(&refused, "/console/decisions/");
    let why = ann.open(&format!("{}{decision}", site.console)).await;
    assert!(why.text.contains("permission_denied"), "{}", why.text);
    assert!(why.text.contains("Ask for <code>system, get, *</code>"), "{}", why.text);
    // It is ann's own: root sees it by the right, and somebody else not at all.
    let by_right = root.open(&format!("{}{decision}", site.console)).await;
    assert!(by_right.text.contains("sub:ann"), "{}", by_right.text);
    let by_stranger = site
        .person("eve")
        .await
        .open(&format!("{}{decision}", site.console))
        .await;
    assert_eq!(by_stranger.status, StatusCode::NOT_FOUND);
    assert!(!by_stranger.text.contains("sub:ann"), "{}", by_stranger.text);
}

/// The first link with this beginning.
fn link(visited: &Visited, beginning: &str) -> String {
    let start = format!("href=\"{beginning}");
    let found = visited
        .text
        .split_once(&start)
        .and_then(|(_, rest)| rest.split_once('"'));
    let (rest, _) = found.unwrap_or_else(|| panic!("no {start} in {}", visited.text));
    format!("{beginning}{rest}").replace("&#38;", "&")
}

#[tokio::test]
async fn a_form_that_is_refused_comes_back_with_what_was_typed() {
    let site = Site::start().await;
    let mut alice = Browser::new();
    // alice's account of Argo CD is a person of the directory, who may have tokens.
    alice
        .cookies(&site.console)
        .insert("argocd.token".to_owned(), site.fixture.session());
    let by_session = alice.open(&site.url("tokens")).await;
    assert_eq!(
        by_session.url.path(),
        "/console/sign-in",
        "the console has its own logins"
    );
    // A person whom only an issuer knows has no tokens, and reads why.
    let mut ann = site.person("ann").await;
    let url = site.url("tokens");
    let fields = [("name", "a <b>"), ("agent", "agent-people"), ("lifetime", "1h")];
    let refused = ann.submit(&url, &fields).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(refused.text.contains("value=\"a &#60;b&#62;\""), "{}", refused.text);
    assert!(refused.text.contains("user_not_linked"), "{}", refused.text);
}

#[tokio::test]
async fn events_are_saved_as_lines_and_the_theme_is_kept() {
    let site = Site::start().await;
    site.alice_makes_token("laptop").await;
    let mut root = site.person("root").await;
    let saved = root
        .open(&site.url("audit/events.jsonl?user=*&action=token.created"))
        .await;
    assert_eq!(saved.status, StatusCode::OK);
    let lines: Vec<Value> = saved
        .text
        .lines()
        .map(|line| serde_json::from_str(line).unwrap())
        .collect();
    assert_eq!(lines.len(), 1, "{}", saved.text);
    assert_eq!(
        (&lines[0]["action"], &lines[0]["user"]),
        (&json!("token.created"), &json!("alice"))
    );
    let dark = root
        .submit(&site.url("theme"), &[("theme", "dark"), ("return", "/console/system")])
        .await;
    assert_eq!(dark.url.path(), "/console/system");
    assert!(dark.text.contains("data-theme=\"dark\""), "{}", dark.text);
    let elsewhere = root
        .submit(&site.url("theme"), &[("theme", "light"), ("return", "//evil.example/")])
        .await;
    assert_eq!(elsewhere.url.as_str(), site.url(""));
}

#[tokio::test]
async fn on_a_shared_host_pages_ask_the_gateway_and_never_argocd() {
    let argocd = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let server = format!("http://{}", argocd.local_addr().unwrap());
    let site = Site::start_with(|layout, console| {
        layout.settings(json!({
            "console": {"url": console, "sharesArgocdHost": true},
            "argocd": {"server": server},
        }));
        layout.policies("argocd");
        layout.remove_setting("applicationSets");
    })
    .await;
    let mut root = site.person("root").await;
    root.cookies(&site.console)
        .insert("argocd.token".to_owned(), site.fixture.session());
    let sets = root.open(&site.url("applicationsets")).await;
    assert_eq!(
        (sets.status, sets.url.path()),
        (StatusCode::NOT_FOUND, "/console/applicationsets")
    );
    assert!(sets.text.contains("This part of the gateway is off"), "{}", sets.text);
    // What somebody else asks there is Argo CD's. The gateway itself connects at its start and asks for
    // `/healthz`, to see whether it is there.
    let url = format!("{}/api/v1/applicationsets?by=program", site.console);
    let request = reqwest::Client::new().get(url).bearer_auth(site.fixture.session());
    let program = tokio::spawn(request.send());
    let first = loop {
        let (mut stream, _) = timeout(PATIENCE, argocd.accept()).await.unwrap().unwrap();
        let mut head = vec![0; 2048];
        let read = stream.read(&mut head).await.unwrap();
        let head = String::from_utf8_lossy(&head[..read]).into_owned();
        if read > 0 && !head.starts_with("GET /healthz ") {
            break head;
        }
    };
    assert!(first.starts_with("GET /api/v1/applicationsets?by=program "), "{first}");
    program.abort();
}

#[tokio::test]
async fn decisions_about_requests_to_clusters_are_the_persons_own() {
    let site = Site::start().await;
    let token = site.fixture.token(AccessAs::User).await;
    // kubectl sends no token without TLS.
    let read = reqwest::Client::new()
        .get(format!("{}/k8s-proxy/api/v1/nodes", site.console))
        .bearer_auth(&token.bearer);
    assert_eq!(read.send().await.unwrap().status(), StatusCode::FORBIDDEN);
    let own = site
        .fixture
        .api(reqwest::Method::GET, "/api/v1/decisions?front=kubernetes", &Value::Null)
        .await;
    let own = own["items"].as_array().unwrap();
    assert!(
        own.iter()
            .any(|one| one["kubernetes"]["attributes"]["resource"] == "nodes"),
        "{own:?}"
    );
    let id = own[0]["decision_id"].as_str().unwrap();
    // ann is somebody else, and root has the right to see it.
    let url = site.url(&format!("decisions/{id}"));
    assert_eq!(site.person("ann").await.open(&url).await.status, StatusCode::NOT_FOUND);
    let seen = site.person("root").await.open(&url).await;
    assert!(seen.text.contains("alice"), "{}", seen.text);
}
