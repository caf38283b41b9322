//! Upgrades: which are forwarded, and what may follow them on the connection.

use super::target::Target;

/// The handshake of a WebSocket (RFC 6455, section 4.1).
const WEBSOCKET: &str = "Connection: Upgrade\r\nUpgrade: websocket\r\nSec-WebSocket-Version: 13\r\n\
                         Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==\r\n";

fn base64url(text: &str) -> String {
    use base64::Engine as _;
    base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(text)
}

/// `h2c` is not forwarded, because it would hide later requests from the gateway.
#[tokio::test]
async fn only_websocket_and_spdy_are_upgrades() {
    let target = Target::start().await;
    for upgrade in [
        "Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAMAAABkAAQAAP__\r\n",
        "Connection: Upgrade\r\nUpgrade: h2c, websocket\r\n",
        "Connection: Upgrade\r\nUpgrade: TLS/1.3\r\n",
    ] {
        let mark = Target::mark();
        let answer = target.get(&mark, upgrade).await;
        assert_eq!(answer.status, 404, "{upgrade}: {answer:?}");
        assert!(answer.values("upgrade").is_empty(), "{answer:?}");
        target.as_alice(&mark).await;
    }
}

/// kube-apiserver accepts tokens in subprotocols, so the gateway reads and removes them.
#[tokio::test]
async fn a_token_in_a_subprotocol_is_read_by_the_gateway() {
    let target = Target::start().await;
    let hidden = |token: &str| {
        let token = base64url(token);
        format!(
            "{WEBSOCKET}Sec-WebSocket-Protocol: base64url.bearer.authorization.k8s.io.{token}, v5.channel.k8s.io\r\n"
        )
    };
    let without_field =
        |path: &str, lines: &str| format!("GET /k8s-proxy{path} HTTP/1.1\r\nHost: gateway\r\n{lines}\r\n");
    // A token that the cluster would accept, in addition to alice's.
    let home = target.fixture.home.clone();
    let robot = target.fixture.cluster.service_account(&home, "intruder").await;
    let mark = Target::mark();
    let head = target.head(("GET", &target.exec(&home, &mark)), &hidden(&robot));
    target
        .refused(&mark, &target.exchange(&head).await, (400, "BadRequest"))
        .await;
    // Alone, it is refused as an unknown credential.
    let mark = Target::mark();
    let head = without_field(&target.exec(&home, &mark), &hidden(&robot));
    target
        .refused(&mark, &target.exchange(&head).await, (401, "Unauthorized"))
        .await;
    // alice's own token is accepted, and the cluster never sees it.
    let mark = Target::mark();
    let head = without_field(&target.exec(&home, &mark), &hidden(&target.token.bearer));
    let mut client = target.connect().await;
    client.send(head.as_bytes()).await;
    let answer = client.head().await.unwrap();
    assert_eq!(answer.status, 101, "{answer:?}");
    assert_eq!(answer.values("sec-websocket-protocol"), ["v5.channel.k8s.io"]);
    let rest = client.rest().await;
    assert!(String::from_utf8_lossy(&rest).contains("entered"), "{rest:?}");
    let event = target.as_alice(&mark).await;
    let secret = target.token.bearer.rsplit(':').next().unwrap();
    assert!(!event.to_string().contains(secret), "{event}");
}

/// Bytes after an upgrade that the cluster refused do not reach the cluster.
#[tokio::test]
async fn a_refused_upgrade_is_no_tunnel() {
    let target = Target::start().await;
    let lines = format!("{WEBSOCKET}Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n");
    let spdy = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n";
    for (method, lines) in [("GET", lines.as_str()), ("POST", spdy)] {
        let (mark, smuggled) = (Target::mark(), Target::mark());
        let path = target.exec(&target.fixture.other, &mark);
        let head = target.head((method, &path), lines);
        let object = target.object(&smuggled);
        let behind = format!("GET {object} HTTP/1.1\r\nHost: cluster\r\nImpersonate-User: system:admin\r\n\r\n");
        let mut client = target.connect().await;
        client.send(head.as_bytes()).await;
        let answer = client.answer().await.unwrap();
        // The response is the cluster's.
        assert_eq!(answer.status, 403, "{answer:?}");
        let text = String::from_utf8_lossy(&answer.content).into_owned();
        assert!(text.contains(r#"User \"gitlab:user:alice\" cannot"#), "{text}");
        client.send(behind.as_bytes()).await;
        // The gateway itself answers that it has no such path, or closes the connection.
        if let Some(answer) = client.answer().await {
            assert!([400, 404].contains(&answer.status), "{answer:?}");
        }
        target.as_alice(&mark).await;
        assert!(target.arrived(&smuggled).await.is_empty());
    }
}

/// A request sent together with the handshake, before its response, does not reach the cluster.
#[tokio::test]
async fn bytes_sent_ahead_of_a_refused_upgrade_are_no_request() {
    let target = Target::start().await;
    let (mark, smuggled) = (Target::mark(), Target::mark());
    let path = target.exec(&target.fixture.other, &mark);
    let lines = format!("{WEBSOCKET}Sec-WebSocket-Protocol: v5.channel.k8s.io\r\n");
    let object = target.object(&smuggled);
    let behind = format!("GET {object} HTTP/1.1\r\nHost: cluster\r\nImpersonate-User: system:admin\r\n\r\n");
    let answer = target
        .exchange(&format!("{}{behind}", target.head(("GET", &path), &lines)))
        .await;
    assert_eq!(answer.status, 403, "{answer:?}");
    target.as_alice(&mark).await;
    assert!(target.arrived(&smuggled).await.is_empty());
}

/// Impersonation headers are refused on upgrades too.
#[tokio::test]
async fn streams_are_opened_as_the_caller() {
    let target = Target::start().await;
    let spdy = "Connection: Upgrade\r\nUpgrade: SPDY/3.1\r\nX-Stream-Protocol-Version: v4.channel.k8s.io\r\n";
    let home = target.fixture.home.clone();
    for (lines, status) in [
        (format!("{spdy}Impersonate-User: system:admin\r\n"), 400),
        (spdy.replace("Upgrade\r\n", "Upgrade, Impersonate-User\r\n"), 101),
    ] {
        let mark = Target::mark();
        let head = target.head(("POST", &target.exec(&home, &mark)), &lines);
        let mut client = target.connect().await;
        client.send(head.as_bytes()).await;
        if status == 400 {
            let answer = client.answer().await.unwrap();
            target.refused(&mark, &answer, (400, "BadRequest")).await;
        } else {
            assert_eq!(client.head().await.unwrap().status, status);
            drop(client);
            target.as_alice(&mark).await;
        }
    }
}
