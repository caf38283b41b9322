//! Attempts to impersonate another user, with exact bytes. The tests check the response and what
//! the API server's audit log recorded.

mod streams;
mod target;

use http_body_util::{BodyExt as _, Empty};
use hyper_util::rt::{TokioExecutor, TokioIo};
use serde_json::Value;

use target::Target;

/// Impersonation headers of clients are refused in every spelling.
#[tokio::test]
async fn clients_do_not_impersonate() {
    let target = Target::start().await;
    for lines in [
        "Impersonate-User: system:admin\r\n",
        "impersonate-user: system:admin\r\n",
        "Impersonate-User:\r\n",
        "Impersonate-User: gitlab:user:alice\r\n",
        "Impersonate-Group: system:masters\r\n",
        "iMPERSONATE-gROUP: system:masters\r\n",
        "Impersonate-Uid: 1\r\n",
        "impersonate-uid: \r\n",
        "Impersonate-Extra-Scopes: everything\r\n",
        "Impersonate-Extra-: x\r\n",
        "Impersonate-Extra-agent.gitlab.com%2fid: 1\r\n",
        "Impersonate-Extra-%61gent.gitlab.com%2Fusername: root\r\n",
        "Impersonate-Whatever-Comes: x\r\n",
        "Connection: Impersonate-User\r\nImpersonate-User: system:admin\r\n",
        "Connection: close, impersonate-group\r\nImpersonate-Group: system:masters\r\n",
    ] {
        let mark = Target::mark();
        let answer = target.get(&mark, lines).await;
        target.refused(&mark, &answer, (400, "BadRequest")).await;
        let text = String::from_utf8_lossy(&answer.content).to_lowercase();
        assert!(text.contains("impersonat"), "{lines}: {text}");
    }
}

/// `Connection` removes fields of the client, never the gateway's own.
#[tokio::test]
async fn connection_does_not_remove_the_identity() {
    let target = Target::start().await;
    for lines in [
        "Connection: Impersonate-User\r\n",
        "Connection: impersonate-user, impersonate-group\r\n",
        "Connection:\r\nConnection: Impersonate-User\r\n",
        "Connection: \r\nConnection: \t impersonate-user \t\r\n",
        "Connection: keep-alive,, ,Impersonate-User ,Impersonate-Group\r\n",
        "Connection: Impersonate-Extra-agent.gitlab.com%2fid, Impersonate-Extra-Agent.gitlab.com%2Fusername\r\n",
        "Connection: Impersonate-Uid, Impersonate-Extra-\r\n",
        "Connection: Authorization\r\n",
        "Connection: Host, Audit-ID, X-Forwarded-For\r\n",
        "Proxy-Connection: Impersonate-User\r\nKeep-Alive: timeout=5\r\nTE: trailers\r\n",
    ] {
        let mark = Target::mark();
        let answer = target.get(&mark, lines).await;
        assert_eq!(answer.status, 404, "{lines}: {answer:?}");
        target.as_alice(&mark).await;
    }
}

/// Headers with which front proxies describe users and hops are not taken from clients.
#[tokio::test]
async fn proxy_headers_of_clients_are_dropped() {
    let target = Target::start().await;
    let mark = Target::mark();
    let lines = "X-Remote-User: system:admin\r\nX-Remote-Group: system:masters\r\nX-Remote-Uid: 0\r\n\
                 x-remote-extra-scopes: x\r\nX-Forwarded-For: 6.6.6.6\r\nForwarded: for=6.6.6.6\r\n\
                 X-Real-Ip: 6.6.6.6\r\nAudit-ID: chosen\r\nX-Http-Method-Override: DELETE\r\n\
                 X-Method-Override: DELETE\r\nGitlab-Agent-Id: 1\r\nX-Csrf-Token: x\r\n";
    let answer = target.get(&mark, lines).await;
    assert_eq!(answer.status, 404, "{answer:?}");
    let event = target.as_alice(&mark).await;
    assert_eq!(event["verb"], "get");
    assert_ne!(event["auditID"], "chosen");
    assert_eq!(answer.values("audit-id"), [event["auditID"].as_str().unwrap()]);
    let sources = event["sourceIPs"].as_array().unwrap();
    assert!(sources.iter().all(|source| source == "127.0.0.1"), "{event}");
    assert!(!event.to_string().contains("6.6.6.6"), "{event}");
}

/// The same applies to HTTP/2, where names are lower case and trailers are frames.
#[tokio::test]
async fn http2_changes_nothing() {
    let target = Target::start().await;
    let stream = tokio::net::TcpStream::connect(target.fixture.gateway.address())
        .await
        .unwrap();
    let (mut send, connection) = hyper::client::conn::http2::handshake(TokioExecutor::new(), TokioIo::new(stream))
        .await
        .unwrap();
    tokio::spawn(connection);
    for (name, value, status) in [
        ("impersonate-user", "system:admin", 400),
        ("impersonate-group", "system:masters", 400),
        ("impersonate-uid", "", 400),
        ("x-remote-user", "system:admin", 404),
        ("audit-id", "chosen", 404),
    ] {
        let mark = Target::mark();
        let url = format!("http://gateway/k8s-proxy{}", target.object(&mark));
        let request = http::Request::get(url)
            .header("authorization", format!("Bearer {}", target.token.bearer))
            .header(name, value)
            .body(Empty::<bytes::Bytes>::new())
            .unwrap();
        let answer = send.send_request(request).await.unwrap();
        assert_eq!(answer.status(), status, "{name}");
        let content = answer.into_body().collect().await.unwrap().to_bytes();
        let content: Value = serde_json::from_slice(&content).unwrap();
        assert_eq!(content["code"], status, "{content}");
        if status == 400 {
            assert_eq!(content["reason"], "BadRequest", "{content}");
            assert!(target.arrived(&mark).await.is_empty(), "{name}");
        } else {
            target.as_alice(&mark).await;
        }
    }
}

/// A body whose end two parsers could see in different places is refused.
#[tokio::test]
async fn framing_is_not_ambiguous() {
    let target = Target::start().await;
    for lines in [
        "Content-Length: 4\r\nTransfer-Encoding: chunked\r\n",
        "Content-Length: 4\r\nContent-Length: 5\r\n",
        "Transfer-Encoding: chunked, identity\r\n",
        "Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n",
    ] {
        let mark = Target::mark();
        let path = format!("/api/v1/namespaces/{}/configmaps?mark={mark}", target.fixture.home);
        let smuggled = target.head(("GET", &target.object(&mark)), "");
        let bytes = format!("{}0\r\n\r\n{smuggled}", target.head(("POST", &path), lines));
        let answer = target.exchange(&bytes).await;
        target.refused(&mark, &answer, (400, "BadRequest")).await;
        assert_eq!(answer.values("connection"), ["close"]);
    }
}

/// Trailers do not become headers.
#[tokio::test]
async fn trailers_are_no_headers() {
    let target = Target::start().await;
    let mark = Target::mark();
    let path = format!("/api/v1/namespaces/{}/configmaps?mark={mark}", target.fixture.home);
    let object = r#"{"apiVersion":"v1","kind":"ConfigMap","metadata":{"name":"trailed"}}"#;
    let lines = "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nTrailer: Impersonate-User\r\n";
    let head = target.head(("POST", &path), lines);
    let body = format!("{:x}\r\n{object}\r\n0\r\n", object.len());
    let trailers = "Impersonate-User: system:admin\r\nImpersonate-Group: system:masters\r\n\r\n";
    let answer = target.exchange(&format!("{head}{body}{trailers}")).await;
    assert_eq!(answer.status, 201, "{}", String::from_utf8_lossy(&answer.content));
    target.as_alice(&mark).await;
}

/// A path that the cluster could parse differently than the policy is refused.
#[tokio::test]
async fn paths_are_not_ambiguous() {
    let target = Target::start().await;
    for path in [
        "/api/v1/namespaces/{home}/configmaps/../secrets/{mark}",
        "/api/v1/namespaces/{home}/configmaps/%2e%2e/secrets/{mark}",
        "/api/v1/namespaces/{home}/configmaps/.%2E/secrets/{mark}",
        "/api/v1/namespaces/{home}/./configmaps/{mark}",
        "/api/v1/namespaces//configmaps/{mark}",
        "//api/v1/namespaces/{home}/configmaps/{mark}",
        "/api/v1/namespaces/{home}/configmaps/..%2Fsecrets%2F{mark}",
    ] {
        let mark = Target::mark();
        let path = path.replace("{home}", &target.fixture.home).replace("{mark}", &mark);
        let answer = target.exchange(&target.head(("GET", &path), "")).await;
        target.refused(&mark, &answer, (400, "BadRequest")).await;
    }
    for prefix in ["/k8s-proxy/../k8s-proxy", "/K8s-proxy", "/k8s-proxyx"] {
        let mark = Target::mark();
        let head = target
            .head(("GET", &target.object(&mark)), "")
            .replacen("/k8s-proxy", prefix, 1);
        let answer = target.exchange(&head).await;
        assert!([400, 404].contains(&answer.status), "{prefix}: {answer:?}");
        assert!(target.arrived(&mark).await.is_empty(), "{prefix}");
    }
}

/// A request with two credentials is refused.
#[tokio::test]
async fn two_credentials_are_refused() {
    let target = Target::start().await;
    for lines in [
        "Cookie: _gitlab_kas=x\r\nGitlab-Agent-Id: 9999\r\nX-Csrf-Token: x\r\n".to_owned(),
        "Authorization: Bearer pat:9999:x\r\n".to_owned(),
        format!("Authorization: Bearer {}\r\n", target.token.bearer),
    ] {
        let mark = Target::mark();
        let answer = target.get(&mark, &lines).await;
        target.refused(&mark, &answer, (400, "BadRequest")).await;
    }
}

/// Lines of the shipped mapping.
const GROUP: &str = "    - \"'gitlab:user'\"\n";
const USERNAME: &str = "  username: \"'gitlab:user:' + user.username\"\n";

/// A mapping may not give anybody a user or group of the system.
#[tokio::test]
async fn no_mapping_gives_names_of_the_system() {
    // Only for this agent, so that the bundle's own cases still pass.
    let of_people = "agent.name == 'agent-people' ?";
    for (line, changed) in [
        (
            GROUP,
            format!("{GROUP}    - \"{of_people} 'system:' + 'masters' : []\"\n"),
        ),
        (
            GROUP,
            format!("{GROUP}    - \"{of_people} ['a', 'sys' + 'tem:nodes'] : []\"\n"),
        ),
        (
            USERNAME,
            format!("  username: \"{of_people} 'system:' + 'admin' : 'gitlab:user:' + user.username\"\n"),
        ),
        (
            USERNAME,
            format!("  username: \"{of_people} '' : 'gitlab:user:' + user.username\"\n"),
        ),
        (
            USERNAME,
            format!("  username: \"{of_people} 'admin ' : 'gitlab:user:' + user.username\"\n"),
        ),
    ] {
        let target = Target::start_with(|layout| {
            let file = layout.root().join("policies/kubernetes/impersonation.cel.yaml");
            let text = std::fs::read_to_string(&file).unwrap();
            assert!(text.contains(line), "{text}");
            std::fs::write(&file, text.replacen(line, &changed, 1)).unwrap();
        })
        .await;
        let mark = Target::mark();
        let answer = target.get(&mark, "Connection: close\r\n").await;
        assert_eq!(answer.status, 403, "{changed}: {answer:?}");
        let events = target.fixture.cluster.audit().events_with(&mark);
        let has_mark = |event: &&Value| event["requestURI"].as_str().unwrap().ends_with(&target.object(&mark));
        assert_eq!(events.iter().find(has_mark), None);
    }
}
