//! Requests of pages in a real browser with a session cookie, from an allowed origin and from
//! another one.

mod argocd;
mod extension;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::access::fixture::{AccessAs, Fixture};
use test_support::chromium::{Chromium, Page};
use test_support::kubernetes::gateway::Layout;

/// Functions for the tests to call in a page. They return values and throw nothing.
const SCRIPT: &str = r#"
const agent = '9999';
const signIn = async (base, bearer) => {
  const answer = await fetch(`${base}/api/v1/sessions`, {
    method: 'POST',
    credentials: 'include',
    headers: { 'Authorization': `Bearer ${bearer}`, 'Content-Type': 'application/json' },
    body: '{}',
  });
  return { status: answer.status, csrf: (await answer.json()).csrfToken };
};
const get = async (base, path, csrf) => {
  try {
    const answer = await fetch(`${base}/k8s-proxy${path}`, {
      credentials: 'include',
      headers: { 'X-Csrf-Token': csrf, 'Gitlab-Agent-Id': agent },
    });
    const unauthorized = answer.headers.get('gitlab-unauthorized');
    return { status: answer.status, unauthorized, body: await answer.json() };
  } catch (error) {
    return { failed: String(error) };
  }
};
// The output of a command when the socket is closed.
const exec = (base, path, csrf) => new Promise((resolve) => {
  const query = `gitlab-agent-id=${agent}&gitlab-csrf-token=${encodeURIComponent(csrf)}`;
  const socket = new WebSocket(`${base.replace('http', 'ws')}/k8s-proxy${path}&${query}`, 'v5.channel.k8s.io');
  const result = { opened: false, stdout: '', error: '' };
  socket.binaryType = 'arraybuffer';
  socket.onopen = () => { result.opened = true; result.protocol = socket.protocol; };
  socket.onmessage = ({ data }) => {
    const [channel, ...bytes] = new Uint8Array(data);
    const text = String.fromCharCode(...bytes);
    if (channel === 1) result.stdout += text;
    if (channel === 3) result.error += text;
  };
  socket.onclose = () => resolve(result);
});
"#;

/// Serves one empty page until the test ends. Returns the URL of its origin.
async fn site() -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let port = listener.local_addr().unwrap().port();
    tokio::spawn(async move {
        loop {
            let (mut stream, _) = listener.accept().await.unwrap();
            tokio::spawn(async move {
                let _ = stream.read(&mut [0; 4096]).await;
                let page = format!("<!doctype html><title>page</title><script>{SCRIPT}</script>");
                let head = "HTTP/1.1 200 OK\r\ncontent-type: text/html\r\nconnection: close\r\ncontent-length:";
                let _ = stream
                    .write_all(format!("{head} {}\r\n\r\n{page}", page.len()).as_bytes())
                    .await;
            });
        }
    });
    format!("http://localhost:{port}")
}

/// A gateway for one allowed origin, without TLS, so that a page from plain loopback may call it.
async fn fixture(allowed: &str) -> (Fixture, String) {
    let allowed = allowed.to_owned();
    let fixture = Fixture::start_with(|layout: &mut Layout| {
        layout.setting("/kubernetes/allowedOrigins", json!([allowed]));
        layout.without_tls();
    })
    .await;
    let base = format!("http://localhost:{}", fixture.gateway.address().port());
    (fixture, base)
}

async fn call(page: &mut Page, function: &str, arguments: &[&str]) -> Value {
    let arguments: Vec<String> = arguments.iter().map(|text| json!(text).to_string()).collect();
    page.evaluate(&format!("{function}({})", arguments.join(", "))).await
}

fn exec_path(fixture: &Fixture) -> String {
    let command = "command=sh&command=-c&command=echo%20%24POD";
    format!(
        "/api/v1/namespaces/{}/pods/pod/exec?container=main&stdout=true&stderr=true&{command}",
        fixture.home
    )
}

/// The number of requests of the gateway that reached the cluster, without its own access reviews.
fn arrived(fixture: &Fixture) -> usize {
    let account = fixture.account(AccessAs::User);
    let events = fixture.cluster.audit().events_with(&account);
    let of_gateway = events
        .iter()
        .filter(|event| event["user"]["username"] == account.as_str());
    let own = |event: &&Value| event["objectRef"]["apiGroup"] == "authorization.k8s.io";
    of_gateway.filter(|event| !own(event)).count()
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_can_send_requests_and_exec() {
    let (site, chromium) = (site().await, Chromium::start().await);
    let (fixture, base) = fixture(&site).await;
    let mut page = chromium.open(&site).await;
    let session = call(&mut page, "signIn", &[&base, &fixture.session()]).await;
    assert_eq!(session["status"], 201, "{session}");
    let csrf = session["csrf"].as_str().unwrap();

    let version = call(&mut page, "get", &[&base, "/version", csrf]).await;
    assert_eq!(
        (&version["status"], &version["body"]["major"]),
        (&json!(200), &json!("1")),
        "{version}"
    );
    let result = call(&mut page, "exec", &[&base, &exec_path(&fixture), csrf]).await;
    assert_eq!(result["protocol"], "v5.channel.k8s.io", "{result}");
    assert_eq!(result["stdout"], format!("{}/pod\n", fixture.home), "{result}");
    assert!(result["error"].as_str().unwrap().contains("Success"), "{result}");
    // Scripts cannot read the cookie.
    assert_eq!(page.evaluate("document.cookie").await, "");
}

#[tokio::test]
async fn a_page_without_the_csrf_token_is_refused_readably() {
    let (site, chromium) = (site().await, Chromium::start().await);
    let (fixture, base) = fixture(&site).await;
    let mut page = chromium.open(&site).await;
    call(&mut page, "signIn", &[&base, &fixture.session()]).await;
    let refused = call(&mut page, "get", &[&base, "/version", "forged"]).await;
    assert_eq!(refused["status"], 401, "{refused}");
    assert_eq!(refused["unauthorized"], "true", "{refused}");
    assert_eq!(refused["body"]["reason"], "Unauthorized", "{refused}");
    let result = call(&mut page, "exec", &[&base, &exec_path(&fixture), "forged"]).await;
    assert_eq!(result["opened"], false, "{result}");
    assert_eq!(arrived(&fixture), 0);
}

/// The browser sends the cookie from the other origin too, because both are of the site
/// `localhost`.
#[tokio::test]
async fn a_page_of_another_origin_can_neither_send_requests_nor_exec() {
    let (site, chromium, elsewhere) = (site().await, Chromium::start().await, self::site().await);
    let (fixture, base) = fixture(&site).await;
    let mut page = chromium.open(&site).await;
    let session = call(&mut page, "signIn", &[&base, &fixture.session()]).await;
    let csrf = session["csrf"].as_str().unwrap();

    let mut other = chromium.open(&elsewhere).await;
    let refused = call(&mut other, "get", &[&base, "/version", csrf]).await;
    assert_eq!(refused["failed"], "TypeError: Failed to fetch", "{refused}");
    let result = call(&mut other, "exec", &[&base, &exec_path(&fixture), csrf]).await;
    assert_eq!(result["opened"], false, "{result}");
    assert_eq!(arrived(&fixture), 0);
    // The same request from the allowed origin succeeds.
    let version = call(&mut page, "get", &[&base, "/version", csrf]).await;
    assert_eq!(version["status"], 200, "{version}");
}
