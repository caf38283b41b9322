//! The console's pages, as a person and a browser see them. Pictures of every page in both themes and
//! three widths are in `target/pictures`.

use std::path::Path;

use reqwest::StatusCode;
use serde_json::{Value, json};
use test_support::chromium::{Chromium, Page};
use test_support::kubernetes::PATIENCE;
use test_support::kubernetes::gateway::Layout;
use test_support::oidc::Provider;
use test_support::port::free_port;
use tokio::io::AsyncReadExt as _;
use tokio::net::TcpListener;
use tokio::time::timeout;

use crate::access::fixture::{AccessAs, Fixture};
use crate::sign_in::browsing::{Browser, Visited};
use crate::sign_in::{CLIENT, issuer};

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
const PAGES: [&str; 18] = [
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
            let label = if path.is_empty() { "overview" } else { path }.replace('/', "-");
            for theme in ["light", "dark"] {
                page.set_theme(theme).await;
                for width in [320, 768, 1280] {
                    page.resize(width, 800).await;
                    page.go(&site.url(&format!("{path}{everybody}"))).await;
                    let name = format!("console-{account}-{label}-{theme}-{width}");
                    let file = format!("target/pictures/{name}.png");
                    page.capture(&Path::new(env!("CARGO_MANIFEST_DIR")).join(file)).await;
                    check(&mut page, &name).await;
                }
            }
        }
    }
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
        "the console has logins of its own"
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
    // Forms keep what is stored, whatever it is.
    page.go(&site.url("projects/hostile")).await;
    let value = page.evaluate("document.querySelector('#namespace-0').value").await;
    assert_eq!(value, "\u{1b}[31m\u{202e}<img src=x>*");
}

fn percent(text: &str) -> String {
    text.bytes().map(|byte| format!("%{byte:02X}")).collect()
}

#[tokio::test]
async fn a_session_is_ended_by_keyboard_and_the_list_follows_by_itself() {
    let site = Site::start().await;
    let chromium = Chromium::start().await;
    let mut page = site.tab(&chromium, "root").await;
    page.resize(1280, 900).await;
    page.go(&site.url("sessions?user=*")).await;
    let rows = "[...document.querySelectorAll('tbody tr')].filter(row => row.innerText.includes('sub:ann')).length";
    assert_eq!(page.evaluate(rows).await, 0);
    // The page is not loaded again: ann signs in, and her session comes up.
    page.evaluate("window.kept = true").await;
    let mut ann = site.person("ann").await;
    page.until(&format!("{rows} === 1")).await;
    assert_eq!(page.evaluate("window.kept").await, true);
    // From the top by Tab alone; each stop shows where the focus is.
    let focused = "document.activeElement";
    page.evaluate("document.body.focus()").await;
    let mut stops = 0;
    loop {
        page.press_key("Tab").await;
        stops += 1;
        assert!(stops < 200, "ann's session cannot be reached");
        let outline = page
            .evaluate(&format!("getComputedStyle({focused}).outlineStyle"))
            .await;
        assert_ne!(
            outline,
            "none",
            "{}",
            page.evaluate(&format!("{focused}.outerHTML")).await
        );
        let is_there = format!("{focused}.matches('summary') && {focused}.innerText.includes('sub:ann')");
        if page.evaluate(&is_there).await == true {
            break;
        }
    }
    page.press_key("Enter").await;
    page.until(&format!("{focused}.parentElement.open")).await;
    page.press_key("Tab").await;
    assert_eq!(page.evaluate(&format!("{focused}.innerText")).await, "End it");
    page.press_key("Enter").await;
    page.until(&format!("document.readyState === 'complete' && {rows} === 0"))
        .await;
    assert_eq!(page.evaluate("location.search").await, "?user=*");
    assert_eq!(page.complaints().await, [""; 0]);
    let visited = ann.open(&site.url("sessions")).await;
    assert_eq!(visited.url.path(), "/console/sign-in", "{visited:?}");
    let events = site
        .person("root")
        .await
        .open(&site.url("audit?user=*&action=session.revoked"))
        .await;
    assert!(events.text.contains("sub:root"), "{}", events.text);
}

#[tokio::test]
async fn permissions_are_explained_to_each_for_themselves() {
    let site = Site::start().await;
    let (mut ann, mut root) = (site.person("ann").await, site.person("root").await);
    let question = "permissions?resource=sessions&action=get&object=*/*";
    let explained = root.open(&site.url(question)).await;
    assert!(
        explained.text.contains("p, role:on-call, sessions, *, *, allow"),
        "{}",
        explained.text
    );
    // ann does not learn of roles that she has not.
    let explained = ann.open(&site.url(question)).await;
    assert!(explained.text.contains("refused"), "{}", explained.text);
    assert!(!explained.text.contains("role:on-call"), "{}", explained.text);
    let other = ann.open(&site.url(&format!("{question}&user=sub:root"))).await;
    assert_eq!(other.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(other.text.contains("`rbac, get` of `*`"), "{}", other.text);
    let other = root.open(&site.url(&format!("{question}&user=sub:ann"))).await;
    assert!(other.text.contains("sub:ann"), "{}", other.text);
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
async fn a_project_owner_sees_who_would_act_and_no_change_is_lost() {
    // Pages read the reason of a refusal whatever format the fronts have for programs.
    let site = Site::start_with(|layout, _| layout.settings(json!({"extensions": {"compat": "argocd"}}))).await;
    let (mut owner, mut other) = (site.person("owner").await, site.person("other").await);
    let url = site.url("projects/shop");
    let page = owner.open(&url).await;
    assert!(
        page.text.contains("argocd/cart") && page.text.contains("web:web-deployer"),
        "{}",
        page.text
    );
    let version = hidden_value(&page, "version");
    let row = |server, namespace, account| [("server", server), ("namespace", namespace), ("account", account)];
    let form = |operation: &'static str, rows: &[[(&'static str, &'static str); 3]]| {
        [&[("version", version.as_str()), ("op", operation)][..], &rows.concat()].concat()
    };
    let (web, all) = (row("*", "web", "web-deployer"), row("*", "*", "deployer"));
    // Whatever matches everything first shadows the rest: cart would change, and a warning says why.
    let moved = owner.submit(&url, &form("up:1", &[web, all])).await;
    assert_eq!(moved.status, StatusCode::OK);
    assert!(
        moved.text.contains("<strong>1</strong> would change, 1 stay"),
        "{}",
        moved.text
    );
    assert!(
        moved.text.contains("web:web-deployer") && moved.text.contains("<strong>web:deployer</strong>"),
        "{}",
        moved.text
    );
    assert!(moved.text.contains("entry 2"), "{}", moved.text);
    assert_eq!(site.entries().len(), 2, "a preview stores nothing");
    // A mistake comes back beside its entry, with what was typed.
    let wrong = owner
        .submit(&url, &form("save", &[web, row("*", "*", "not a <name>")]))
        .await;
    assert_eq!(wrong.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        wrong
            .text
            .contains("value=\"not a &#60;name&#62;\" aria-invalid=\"true\""),
        "{}",
        wrong.text
    );
    assert!(wrong.text.contains("id=\"problem-1\""), "{}", wrong.text);
    assert_eq!(site.entries().len(), 2);
    // Rows without a text do not count.
    let wrong = owner
        .submit(&url, &form("preview", &[row("", "", ""), web, row("*", "*", "")]))
        .await;
    assert!(
        wrong.text.contains("id=\"problem-1\"") && wrong.text.matches("<legend>Entry").count() == 2,
        "{}",
        wrong.text
    );
    // The other owner stores first. Nothing of theirs is lost, and both sides are shown.
    let theirs = other.submit(&url, &form("save", &[web])).await;
    assert_eq!(
        (theirs.status, theirs.url.query()),
        (StatusCode::OK, Some("saved=1")),
        "{}",
        theirs.text
    );
    let conflict = owner
        .submit(&url, &form("save", &[web, all, row("*", "db", "dba")]))
        .await;
    assert_eq!(conflict.status, StatusCode::CONFLICT);
    assert!(
        conflict.text.contains("Somebody else changed this project meanwhile"),
        "{}",
        conflict.text
    );
    assert!(conflict.text.contains("*, web → web-deployer"), "{}", conflict.text);
    assert!(conflict.text.contains("value=\"dba\""), "{}", conflict.text);
    assert_eq!(site.entries().len(), 1);
    // Having seen them, the owner saves.
    let version = hidden_value(&conflict, "version");
    let fields = [
        &[("version", version.as_str()), ("op", "save")][..],
        &[web, all].concat(),
    ]
    .concat();
    let saved = owner.submit(&url, &fields).await;
    assert_eq!(saved.url.query(), Some("saved=1"), "{}", saved.text);
    assert_eq!(
        site.entries()[1],
        json!({"server": "*", "namespace": "*", "defaultServiceAccount": "deployer"})
    );
    // Who may not see the project learns nothing of it.
    let refused = site.person("ann").await.open(&url).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    assert!(!refused.text.contains("deployer"), "{}", refused.text);
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
    // What somebody else asks there is Argo CD's. The gateway itself only connects, to see whether it is
    // there.
    let url = format!("{}/api/v1/applicationsets?by=program", site.console);
    let request = reqwest::Client::new().get(url).bearer_auth(site.fixture.session());
    let program = tokio::spawn(request.send());
    let first = loop {
        let (mut stream, _) = timeout(PATIENCE, argocd.accept()).await.unwrap().unwrap();
        let mut head = vec![0; 2048];
        let read = stream.read(&mut head).await.unwrap();
        if read > 0 {
            break String::from_utf8_lossy(&head[..read]).into_owned();
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

#[tokio::test]
async fn a_policy_is_tried_with_a_decision_and_with_a_changed_file() {
    let site = Site::start().await;
    let token = site.fixture.token(AccessAs::User).await;
    let read = reqwest::Client::new()
        .get(format!("{}/k8s-proxy/api/v1/nodes", site.console))
        .bearer_auth(&token.bearer);
    let answer = read.send().await.unwrap();
    let id = answer.headers()["tollgate-decision-id"].to_str().unwrap().to_owned();
    let mut root = site.person("root").await;
    let decision = root.open(&site.url(&format!("decisions/{id}"))).await;
    let again = link(&decision, "/console/policies/kubernetes?");
    let page = root.open(&format!("{}{again}", site.console)).await;
    assert_eq!(page.status, StatusCode::OK);
    assert!(page.text.contains(&format!("value=\"{id}\"")), "{}", page.text);
    let url = site.url("policies/kubernetes");
    let decided = root
        .submit(&url, &[("op", "eval"), ("decision", &id), ("file", "policy.rego")])
        .await;
    assert!(
        decided.text.contains("<span class=\"badge good\">allowed</span>"),
        "{}",
        decided.text
    );
    assert!(decided.text.contains("class=\"hit\""), "{}", decided.text);
    assert!(decided.text.contains("want: {allow: true}"), "{}", decided.text);
    let deny = "package tollgate.kubernetes\n\ndecision := {\"allow\": false, \"reason\": \"no <b>nodes</b>\"}\n";
    let fields = [
        ("op", "eval"),
        ("decision", &*id),
        ("file", "policy.rego"),
        ("text", deny),
    ];
    let changed = root.submit(&url, &fields).await;
    assert!(
        changed.text.contains("no &#60;b&#62;nodes") && changed.text.contains("which is stored nowhere"),
        "{}",
        changed.text
    );
    let tested = root
        .submit(&url, &[("op", "test"), ("file", "policy.rego"), ("text", deny)])
        .await;
    assert!(
        tested.text.contains("cases fail") && tested.text.contains(">fails<"),
        "{}",
        tested.text
    );
    let wrong = root.submit(&url, &[("op", "eval"), ("input", "{not json")]).await;
    assert_eq!(wrong.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        wrong.text.contains("the input is not JSON") && wrong.text.contains("{not json"),
        "{}",
        wrong.text
    );
    let refused = site.person("ann").await.submit(&url, &fields).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN);
    // Who can, from the page of permissions.
    let who = root
        .open(&site.url("permissions?resource=projects&action=update&object=shop&who=can"))
        .await;
    assert!(
        who.text.contains("role:owner") && who.text.contains("sub:owner"),
        "{}",
        who.text
    );
    let refused = site
        .person("ann")
        .await
        .open(&site.url("permissions?resource=projects&action=update&object=shop&who=can"))
        .await;
    assert!(
        refused.text.contains("`rbac, get`") && !refused.text.contains("sub:owner"),
        "{}",
        refused.text
    );
}

#[tokio::test]
async fn all_of_a_person_is_ended_at_once() {
    let site = Site::start().await;
    let (mut ann, mut second) = (site.person("ann").await, site.person("ann").await);
    let mut root = site.person("root").await;
    let url = site.url("sessions");
    let listed = root.open(&site.url("sessions?user=sub:ann")).await;
    assert_eq!(listed.text.matches("End it</button>").count(), 2, "{}", listed.text);
    // Nobody ends everybody, and ann cannot end root.
    let refused = root.submit(&url, &[("all", "1"), ("user", "*")]).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY, "{}", refused.text);
    let refused = ann.submit(&url, &[("all", "1"), ("user", "sub:root")]).await;
    assert_eq!(refused.status, StatusCode::FORBIDDEN, "{}", refused.text);
    let ended = root.submit(&url, &[("all", "1"), ("user", "sub:ann")]).await;
    assert_eq!(ended.url.query(), Some("user=sub%3Aann"), "{}", ended.text);
    assert!(ended.text.contains("Nothing is at work"), "{}", ended.text);
    for browser in [&mut ann, &mut second] {
        assert_eq!(browser.open(&url).await.url.path(), "/console/sign-in");
    }
    assert_eq!(root.open(&url).await.url.path(), "/console/sessions");
    let own = root.submit(&url, &[("all", "1")]).await;
    assert_eq!(own.url.path(), "/console/sign-in", "{}", own.text);
}

#[tokio::test]
async fn the_preview_follows_what_is_typed_and_a_file_fills_a_set() {
    let site = Site::start().await;
    let chromium = Chromium::start().await;
    let mut page = site.tab(&chromium, "owner").await;
    page.resize(1280, 800).await;
    page.go(&site.url("projects/shop")).await;
    let preview = "document.querySelector('#preview-region').innerText";
    let text = page.evaluate(preview).await;
    assert!(text.as_str().unwrap().contains("web:web-deployer"), "{text}");
    page.evaluate("document.querySelector('#account-0').select()").await;
    page.type_text("blue").await;
    page.until(&format!(
        "{preview}.includes('web:blue') && {preview}.includes('1 would change')"
    ))
    .await;
    page.type_text("green").await;
    page.until(&format!("{preview}.includes('web:bluegreen')")).await;
    // What cannot be is said, too, and what is typed stays.
    page.evaluate("document.querySelector('#server-0').select()").await;
    page.type_text("[").await;
    page.until(&format!("!{preview}.includes('web:bluegreen')")).await;
    assert_eq!(
        page.evaluate("document.querySelector('#account-0').value").await,
        "bluegreen"
    );
    assert_eq!(site.entries()[0]["defaultServiceAccount"], "web-deployer");
    // A form that is refused is answered with 422, which the browser notes.
    page.complaints().await;
    page.go(&site.url("applicationsets/new")).await;
    page.evaluate(
        "const files = new DataTransfer(); files.items.add(new File(['kind: ApplicationSet'], 'set.yaml')); \
         const input = document.querySelector('#upload'); input.files = files.files; \
         input.dispatchEvent(new Event('change')); 0",
    )
    .await;
    page.until("document.querySelector('#text').value === 'kind: ApplicationSet'")
        .await;
    assert_eq!(page.complaints().await, [""; 0]);
}

#[tokio::test]
async fn forms_have_a_bound() {
    let site = Site::start().await;
    let mut owner = site.person("owner").await;
    let many = vec![("server", "*"); 5_001];
    let refused = owner.submit(&site.url("projects/shop"), &many).await;
    assert_eq!(refused.status, StatusCode::BAD_REQUEST);
    assert!(refused.text.contains("at most 5,000 fields"), "{}", refused.text);
}

/// The value of a hidden field.
fn hidden_value(visited: &Visited, name: &str) -> String {
    let start = format!("<input type=\"hidden\" name=\"{name}\" value=\"");
    let found = visited
        .text
        .split_once(&start)
        .and_then(|(_, rest)| rest.split_once('"'));
    let (value, _) = found.unwrap_or_else(|| panic!("no {name} in {}", visited.text));
    value.to_owned()
}

#[tokio::test]
async fn a_set_is_previewed_stored_changed_and_deleted() {
    let site = Site::start().await;
    let (mut owner, mut ann) = (site.person("owner").await, site.person("ann").await);
    let set = |project: &str, stages: &str| {
        format!(
            "apiVersion: argoproj.io/v1alpha1\nkind: ApplicationSet\nmetadata: {{name: stages, namespace: argocd}}\nspec:\n  \
             goTemplate: true\n  generators: [{{list: {{elements: [{stages}]}}}}]\n  template:\n    metadata: {{name: 'shop-{{{{.stage}}}}'}}\n    \
             spec: {{project: {project}, source: {{repoURL: 'https://git.example/shop.git', path: .}}, destination: {{name: people, namespace: web}}}}\n"
        )
    };
    let (one, two) = (
        set("shop", "{stage: test}"),
        set("shop", "{stage: test}, {stage: production}"),
    );
    let new = site.url("applicationsets/new");
    let preview = owner.submit(&new, &[("op", "preview"), ("text", &one)]).await;
    assert_eq!(preview.status, StatusCode::OK, "{}", preview.text);
    assert!(preview.text.contains("<strong>1</strong> created"), "{}", preview.text);
    let list = owner.open(&site.url("applicationsets")).await;
    assert!(
        list.text.contains("There is no set"),
        "a preview stores nothing: {}",
        list.text
    );
    // ann may not, and reads why, with what she typed.
    let refused = ann.submit(&new, &[("op", "save"), ("text", &one)]).await;
    assert_eq!(refused.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(
        refused.text.contains("permission_denied") && refused.text.contains("name: stages"),
        "{}",
        refused.text
    );
    let stored = owner.submit(&new, &[("op", "save"), ("text", &one)]).await;
    assert_eq!(
        (stored.url.path(), stored.url.query()),
        ("/console/applicationsets/argocd/stages", Some("saved=1")),
        "{}",
        stored.text
    );
    assert!(stored.text.contains("resourceVersion"), "{}", stored.text);
    let url = site.url("applicationsets/argocd/stages");
    // Without the version that it is based on, nothing is replaced.
    let blind = owner.submit(&url, &[("op", "save"), ("text", &two)]).await;
    assert_eq!(blind.status, StatusCode::CONFLICT, "{}", blind.text);
    let text = textarea(&stored);
    let changed = text.replace("stage: test", "stage: staging");
    assert_ne!(changed, text);
    let preview = owner.submit(&url, &[("op", "preview"), ("text", &changed)]).await;
    assert!(
        preview.text.contains("shop-staging") && preview.text.contains("class=\"add\""),
        "{}",
        preview.text
    );
    let broken = owner.submit(&url, &[("op", "save"), ("text", "spec: [")]).await;
    assert_eq!(broken.status, StatusCode::UNPROCESSABLE_ENTITY);
    assert!(broken.text.contains("spec: ["), "{}", broken.text);
    assert_eq!(ann.open(&url).await.status, StatusCode::NOT_FOUND);
    let deleted = owner.submit(&url, &[("op", "delete"), ("text", &text)]).await;
    assert_eq!(deleted.url.path(), "/console/applicationsets", "{}", deleted.text);
    assert!(deleted.text.contains("There is no set"), "{}", deleted.text);
}

fn textarea(visited: &Visited) -> String {
    let (_, rest) = visited.text.split_once("autocapitalize=\"off\">").unwrap();
    let (text, _) = rest.split_once("</textarea>").unwrap();
    let named = [
        ("&#34;", "\""),
        ("&#39;", "'"),
        ("&#60;", "<"),
        ("&#62;", ">"),
        ("&#38;", "&"),
    ];
    named
        .into_iter()
        .fold(text.to_owned(), |text, (escaped, plain)| text.replace(escaped, plain))
}
