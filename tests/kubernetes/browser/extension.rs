//! The UI extension of `deploy/examples/ui-extension` in a real browser: its page is argocd-server's,
//! and everything goes through the gateway.

use serde_json::{Value, json};
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;

use super::site;
use test_support::backend::{Backend, Reply, Seen};
use test_support::chromium::{Chromium, Page};
use test_support::kubernetes::eventually;
use test_support::token;
use test_support::world::{CONTROL_PLANE, SESSION_KEY, Setup, World, map, object};

pub(super) const EXTENSION: &str = include_str!("../../../deploy/examples/ui-extension/extension-greeter.js");

/// A page with as much of React and of Argo CD's UI as an extension needs, and functions for the
/// tests to call.
pub(super) const PAGE: &str = r#"<!doctype html><title>Argo CD</title><script>
let lines = [];
const waiting = new Map();
const notify = () => waiting.forEach((resolve, line) => lines.includes(line) && resolve(lines));
window.React = {
  useState: () => [lines, (next) => { lines = next(lines); notify(); }],
  useEffect: (effect) => { effect(); },
  createElement: (tag, properties, ...children) => ({ tag, children }),
};
const registered = [];
window.extensionsAPI = { registerResourceExtension: (...extension) => registered.push(extension) };
const signIn = async (user) => {
  const headers = { 'Content-Type': 'application/json' };
  return (await fetch('/api/v1/session', { method: 'POST', headers, body: JSON.stringify({ username: user }) })).status;
};
const show = (name) => {
  const application = { metadata: { namespace: 'argocd', name, uid: name }, spec: { project: 'shop' } };
  return registered[0][0]({ application }).tag;
};
// Resolves with all lines once this one is there.
const until = (line) => new Promise((resolve) => { waiting.set(line, resolve); notify(); });
</script><script src="/extensions.js"></script>"#;

/// Calls of a page of another origin, with the cookie of this one.
const FOREIGN: &str = r#"
const events = (url) => new Promise((resolve) => {
  const source = new EventSource(url, { withCredentials: true });
  source.onmessage = ({ data }) => resolve(data);
  source.onerror = () => { source.close(); resolve('refused'); };
});
const socket = (url) => new Promise((resolve) => {
  const socket = new WebSocket(url);
  socket.onmessage = ({ data }) => resolve(data);
  socket.onclose = () => resolve('refused');
});
"#;

/// Stands for argocd-server: the page, its scripts, and sessions for anyone who asks.
async fn argocd_server() -> Backend {
    Backend::start(|seen| {
        let (kind, content) = match seen.line() {
            "GET / HTTP/1.1" => ("text/html", PAGE),
            "GET /extensions.js HTTP/1.1" => ("text/javascript", EXTENSION),
            "POST /api/v1/session HTTP/1.1" => return session(seen),
            _ => return Reply::Bytes(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec()),
        };
        let head = format!(
            "HTTP/1.1 200 OK\r\ncontent-type: {kind}\r\ncontent-length: {}",
            content.len()
        );
        Reply::Bytes(format!("{head}\r\n\r\n{content}").into_bytes())
    })
    .await
}

fn session(seen: &Seen) -> Reply {
    let asked: Value = serde_json::from_slice(&seen.content).unwrap();
    let token = token::session(SESSION_KEY, asked["username"].as_str().unwrap());
    let cookie = format!("set-cookie: argocd.token={token}; path=/; SameSite=lax; httpOnly");
    Reply::Bytes(format!("HTTP/1.1 200 OK\r\ncontent-length: 2\r\n{cookie}\r\n\r\n{{}}").into_bytes())
}

/// The backend of the extension.
pub(super) async fn greeter() -> Backend {
    Backend::start(|seen| {
        let path = seen.line().split(' ').nth(1).unwrap_or_default();
        match path {
            "/hello" => Reply::ok("hello"),
            "/events" => Reply::Stall(
                b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\n\r\ndata: good morning\n\n".to_vec(),
            ),
            "/socket" => {
                let key = derive_accept_key(seen.values("sec-websocket-key")[0].as_bytes());
                let head = "HTTP/1.1 101 Switching Protocols\r\nconnection: upgrade\r\nupgrade: websocket";
                let head = format!("{head}\r\nsec-websocket-accept: {key}\r\n\r\n");
                // One unmasked frame of text with 12 bytes (RFC 6455, section 5.2).
                Reply::Stall([head.as_bytes(), b"\x81\x0cgood evening"].concat())
            }
            _ => Reply::Bytes(b"HTTP/1.1 404 Not Found\r\ncontent-length: 0\r\n\r\n".to_vec()),
        }
    })
    .await
}

struct Scene {
    world: World,
    greeter: Backend,
    chromium: Chromium,
    /// The origin of the gateway.
    origin: String,
}

impl Scene {
    async fn start() -> Self {
        let (argocd, greeter) = (argocd_server().await, greeter().await);
        let mut setup = Setup::default();
        let service = format!("{{services: [{{url: 'http://{}'}}]}}", greeter.address);
        setup.argocd_cm.insert("extension.config.greeter".to_owned(), service);
        let policy = "p, alice, applications, get, shop/*, allow\np, alice, extensions, invoke, shop/greeter, allow\n";
        setup.rbac_cm = map(&[("policy.csv", policy)]);
        setup.settings = json!({"argocd": {"server": format!("http://{}", argocd.address)}});
        let world = setup.start().await;
        Self {
            origin: format!("http://localhost:{}", world.address().port()),
            world,
            greeter,
            chromium: Chromium::start().await,
        }
    }

    /// The page, after `user` signed in and opened the tab.
    async fn page(&self, user: &str) -> Page {
        let mut page = self.chromium.open(&self.origin).await;
        assert_eq!(
            page.evaluate("registered[0].slice(1, 4).join()").await,
            "argoproj.io,Application,Greeter"
        );
        assert_eq!(page.evaluate(&format!("signIn('{user}')")).await, 200);
        assert_eq!(page.evaluate("show('cart')").await, "pre");
        page
    }

    /// Paths that reached the backend, sorted.
    fn paths(&self) -> Vec<String> {
        let seen = self.greeter.seen();
        let mut paths: Vec<String> = seen.iter().map(|seen| seen.line().to_owned()).collect();
        paths.sort();
        paths
    }
}

async fn until(page: &mut Page, line: &str) -> String {
    page.evaluate(&format!("until('{line}')")).await.to_string()
}

#[tokio::test]
async fn the_example_calls_its_backend_until_the_account_is_disabled() {
    let scene = Scene::start().await;
    let mut page = scene.page("alice").await;
    for line in ["fetch 200: hello", "event: good morning", "socket: good evening"] {
        until(&mut page, line).await;
    }
    assert_eq!(
        scene.paths(),
        ["GET /events HTTP/1.1", "GET /hello HTTP/1.1", "GET /socket HTTP/1.1"]
    );
    for seen in scene.greeter.seen() {
        assert_eq!(seen.values("argocd-username"), ["alice"]);
        assert_eq!(seen.values("argocd-application-name"), ["argocd:cart"]);
        assert_eq!(seen.values("argocd-project-name"), ["shop"]);
        assert!(
            seen.values("cookie").is_empty() && !seen.line().contains('?'),
            "{}",
            seen.head
        );
    }

    let data = map(&[("accounts.alice", "login"), ("accounts.alice.enabled", "false")]);
    let mut argocd_cm = object("v1", "ConfigMap", "argocd-cm", CONTROL_PLANE, json!({"data": data}));
    let service = format!("{{services: [{{url: 'http://{}'}}]}}", scene.greeter.address);
    argocd_cm["data"]["extension.config.greeter"] = json!(service);
    std::fs::write(scene.world.path("draft"), argocd_cm.to_string()).unwrap();
    std::fs::rename(scene.world.path("draft"), scene.world.path("state/000.yaml")).unwrap();
    until(&mut page, "socket closed").await;
    // The browser connects again, and is refused.
    until(&mut page, "events closed").await;
    assert_eq!(scene.paths().len(), 3);
    eventually("the backend's streams end", async || {
        (scene.greeter.closed() >= 2).then_some(())
    })
    .await;
}

#[tokio::test]
async fn a_caller_without_the_right_reaches_no_backend() {
    let scene = Scene::start().await;
    let mut page = scene.page("bob").await;
    until(&mut page, "socket closed").await;
    let lines = until(&mut page, "events closed").await;
    assert!(!lines.contains("good"), "{lines}");
    let refused = "fetch('/api/v1/extensions/greeter/hello', { headers: { 'argocd-application-name': 'argocd:cart' } })\
                   .then(async (answer) => [answer.status, (await answer.json()).reason].join())";
    assert_eq!(page.evaluate(refused).await, "403,permission_denied");
    assert_eq!(scene.paths(), Vec::<String>::new());
}

/// The browser sends the cookie from the other origin too, because both are of the site
/// `localhost`.
#[tokio::test]
async fn a_page_of_another_origin_opens_neither() {
    let (scene, elsewhere) = (Scene::start().await, site().await);
    let mut page = scene.page("alice").await;
    for line in ["event: good morning", "socket: good evening", "fetch 200: hello"] {
        until(&mut page, line).await;
    }
    let mut other = scene.chromium.open(&elsewhere).await;
    other.evaluate(FOREIGN).await;
    let base = format!("{}/api/v1/extensions/greeter", scene.origin);
    let query = "argocd-application-name=argocd:cart&argocd-project-name=shop";
    let events = other.evaluate(&format!("events('{base}/events?{query}')")).await;
    assert_eq!(events, "refused");
    let base = base.replacen("http", "ws", 1);
    let socket = other.evaluate(&format!("socket('{base}/socket?{query}')")).await;
    assert_eq!(socket, "refused");
    assert_eq!(scene.paths().len(), 3);
    let decisions = scene.world.admin("/metrics").await;
    let counted = "tollgate_decisions_total{front=\"extensions\",outcome=\"denied\",reason=\"cross_site_request\"} 2";
    assert!(decisions.contains(counted), "{decisions}");
}
