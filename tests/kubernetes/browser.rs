//! Pages in a real browser: with the cookie of a session, from an origin that is
//! allowed and from one that is not.

mod chromium;

use serde_json::{Value, json};
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpListener;

use crate::access::world::{As, World};
use chromium::{Chromium, Page};
use test_support::kubernetes::gateway::Layout;

/// What a page calls: everything gives a value, never an exception.
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
// What a command says, until the socket is closed.
const exec = (base, path, csrf) => new Promise((resolve) => {
  const query = `gitlab-agent-id=${agent}&gitlab-csrf-token=${encodeURIComponent(csrf)}`;
  const socket = new WebSocket(`${base.replace('http', 'ws')}/k8s-proxy${path}&${query}`, 'v5.channel.k8s.io');
  const said = { opened: false, stdout: '', error: '' };
  socket.binaryType = 'arraybuffer';
  socket.onopen = () => { said.opened = true; said.protocol = socket.protocol; };
  socket.onmessage = ({ data }) => {
    const [channel, ...bytes] = new Uint8Array(data);
    const text = String.fromCharCode(...bytes);
    if (channel === 1) said.stdout += text;
    if (channel === 3) said.error += text;
  };
  socket.onclose = () => resolve(said);
});
"#;

/// An origin of one empty page, for the time of a test; gives its URL.
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

/// A world without TLS, which a page on plain loopback may call, for one origin.
async fn world(allowed: &str) -> (World, String) {
    let allowed = allowed.to_owned();
    let world = World::start_with(|layout: &mut Layout| {
        layout.setting("/kubernetes/allowedOrigins", json!([allowed]));
        layout.without_tls();
    })
    .await;
    let base = format!("http://localhost:{}", world.gateway.address().port());
    (world, base)
}

async fn call(page: &mut Page, function: &str, arguments: &[&str]) -> Value {
    let arguments: Vec<String> = arguments.iter().map(|text| json!(text).to_string()).collect();
    page.evaluate(&format!("{function}({})", arguments.join(", "))).await
}

fn exec_path(world: &World) -> String {
    let command = "command=sh&command=-c&command=echo%20%24POD";
    format!(
        "/api/v1/namespaces/{}/pods/pod/exec?container=main&stdout=true&stderr=true&{command}",
        world.home
    )
}

/// Requests that reached the cluster, but for what the gateway asks of itself.
fn arrived(world: &World) -> usize {
    let events = world.cluster.audit().events();
    let account = world.account(As::User);
    let of_gateway = events
        .iter()
        .filter(|event| event["user"]["username"] == account.as_str());
    let own = |event: &&Value| event["objectRef"]["apiGroup"] == "authorization.k8s.io";
    of_gateway.filter(|event| !own(event)).count()
}

#[tokio::test]
async fn a_page_of_an_allowed_origin_calls_and_enters_pods() {
    let (site, chromium) = (site().await, Chromium::start().await);
    let (world, base) = world(&site).await;
    let mut page = chromium.open(&site).await;
    let session = call(&mut page, "signIn", &[&base, &world.session()]).await;
    assert_eq!(session["status"], 201, "{session}");
    let csrf = session["csrf"].as_str().unwrap();

    let version = call(&mut page, "get", &[&base, "/version", csrf]).await;
    assert_eq!(
        (&version["status"], &version["body"]["major"]),
        (&json!(200), &json!("1")),
        "{version}"
    );
    let said = call(&mut page, "exec", &[&base, &exec_path(&world), csrf]).await;
    assert_eq!(said["protocol"], "v5.channel.k8s.io", "{said}");
    assert_eq!(said["stdout"], format!("{}/pod\n", world.home), "{said}");
    assert!(said["error"].as_str().unwrap().contains("Success"), "{said}");
    // The cookie is not for scripts.
    assert_eq!(page.evaluate("document.cookie").await, "");
}

#[tokio::test]
async fn a_page_without_the_csrf_token_reads_why_it_is_refused() {
    let (site, chromium) = (site().await, Chromium::start().await);
    let (world, base) = world(&site).await;
    let mut page = chromium.open(&site).await;
    call(&mut page, "signIn", &[&base, &world.session()]).await;
    let refused = call(&mut page, "get", &[&base, "/version", "forged"]).await;
    assert_eq!(refused["status"], 401, "{refused}");
    assert_eq!(refused["unauthorized"], "true", "{refused}");
    assert_eq!(refused["body"]["reason"], "Unauthorized", "{refused}");
    let said = call(&mut page, "exec", &[&base, &exec_path(&world), "forged"]).await;
    assert_eq!(said["opened"], false, "{said}");
    assert_eq!(arrived(&world), 0);
}

/// The browser sends the cookie from there too: both are of the site `localhost`.
#[tokio::test]
async fn a_page_of_another_origin_can_do_neither() {
    let (site, chromium, elsewhere) = (site().await, Chromium::start().await, self::site().await);
    let (world, base) = world(&site).await;
    let mut page = chromium.open(&site).await;
    let session = call(&mut page, "signIn", &[&base, &world.session()]).await;
    let csrf = session["csrf"].as_str().unwrap();

    let mut other = chromium.open(&elsewhere).await;
    let refused = call(&mut other, "get", &[&base, "/version", csrf]).await;
    assert_eq!(refused["failed"], "TypeError: Failed to fetch", "{refused}");
    let said = call(&mut other, "exec", &[&base, &exec_path(&world), csrf]).await;
    assert_eq!(said["opened"], false, "{said}");
    assert_eq!(arrived(&world), 0);
    // What it lacked was the origin.
    let version = call(&mut page, "get", &[&base, "/version", csrf]).await;
    assert_eq!(version["status"], 200, "{version}");
}
