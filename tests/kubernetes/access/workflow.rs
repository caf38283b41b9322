//! A workflow of one person with a real kubectl: objects, watches, discovery, refusals, logs and
//! pods. Then what other clients send.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, ServerName};
use serde_json::{Value, json};
use tokio::net::TcpStream;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_tungstenite::client_async;
use tokio_tungstenite::tungstenite::Message;
use tokio_tungstenite::tungstenite::client::IntoClientRequest as _;

use super::fixture::{AccessAs, CredentialKind, Fixture};
use crate::kubelet::{assert_protocol, use_pod};
use test_support::kubernetes::kubectl::{Kubectl, Protocol};

/// Runs the whole workflow with one credential through one agent.
async fn workflow(kind: CredentialKind, agent: AccessAs) {
    let mut fixture = Fixture::start().await;
    let bearer = fixture.bearer(kind, agent).await;
    let kubectl = fixture.kubectl(&bearer);
    let here = format!("--namespace={}", fixture.home);
    objects(&kubectl, &here).await;
    watching(&kubectl, &here).await;
    large(&kubectl, &here).await;
    discovery(&fixture, &kubectl, agent).await;
    refused(&fixture, &kubectl, agent).await;
    logs(&kubectl, &here).await;
    // kubectl must have used WebSockets in this namespace.
    use_pod(&kubectl, &fixture.home).await;
    assert_protocol(fixture.cluster, &fixture.home, Protocol::WebSocket).await;
    audited(&fixture, &bearer, (kind, agent)).await;
}

/// Gets, applies, patches and deletes an object.
pub(super) async fn objects(kubectl: &Kubectl, here: &str) {
    let config_map = |value: &str| {
        json!({"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "settings"}, "data": {"key": value}})
            .to_string()
    };
    let get = ["get", "configmap", "settings", here, "--output=jsonpath={.data.key}"];
    for (arguments, value) in [
        (["apply", here, "--filename=-"].as_slice(), "first"),
        (&["apply", here, "--filename=-"], "second"),
        (
            &["apply", here, "--filename=-", "--server-side", "--force-conflicts"],
            "third",
        ),
    ] {
        let run = kubectl.run_with(arguments, &config_map(value)).await;
        assert!(run.status.success(), "{arguments:?}: {run:?}");
        assert_eq!(kubectl.succeed(&get).await, value);
    }
    let patch = [
        "patch",
        "configmap",
        "settings",
        here,
        r#"--patch={"data":{"key":"fourth"}}"#,
    ];
    kubectl.succeed(&patch).await;
    assert_eq!(kubectl.succeed(&get).await, "fourth");
    kubectl.succeed(&["delete", "configmap", "settings", here]).await;
    let gone = kubectl.fail(&get).await;
    assert!(gone.contains(r#"configmaps "settings" not found"#), "{gone}");
}

/// Events of a watch arrive at once, not when the stream ends.
pub(super) async fn watching(kubectl: &Kubectl, here: &str) {
    let mut watch = kubectl.start(&["get", "configmaps", here, "--watch", "--output=name"]);
    for name in ["one", "two"] {
        kubectl.succeed(&["create", "configmap", name, here]).await;
        assert!(watch.line(&format!("configmap/{name}")).await.is_some());
    }
    assert!(watch.runs());
}

/// Sends and receives a megabyte.
pub(super) async fn large(kubectl: &Kubectl, here: &str) {
    let text = "0123456789".repeat(100_000);
    let path = kubectl.home().join("large");
    std::fs::write(&path, &text).unwrap();
    let from = format!("--from-file=text={}", path.display());
    kubectl.succeed(&["create", "configmap", "large", here, &from]).await;
    let back = kubectl
        .succeed(&["get", "configmap", "large", here, "--output=jsonpath={.data.text}"])
        .await;
    assert!(back == text, "{} bytes came back", back.len());
}

/// Identity, permissions, API resources and version.
pub(super) async fn discovery(fixture: &Fixture, kubectl: &Kubectl, agent: AccessAs) {
    let info = kubectl.json(&["auth", "whoami"]).await["status"]["userInfo"].clone();
    match agent {
        AccessAs::User => {
            assert_eq!(info["username"], "gitlab:user:alice");
            let groups: Vec<&str> = strings(&info["groups"]);
            for group in [
                "gitlab:user",
                "gitlab:group_role:2:reporter",
                "gitlab:group_role:2:developer",
                "system:authenticated",
            ] {
                assert!(groups.contains(&group), "{info}");
            }
            assert_eq!(groups.len(), 4, "{info}");
            let extra = &info["extra"];
            assert_eq!(extra["agent.gitlab.com/id"], json!([(agent as i64).to_string()]));
            assert_eq!(extra["agent.gitlab.com/username"], json!(["alice"]));
            assert_eq!(extra["agent.gitlab.com/config_project_id"], json!(["1234"]));
        }
        AccessAs::Agent => assert_eq!(info["username"], fixture.account(agent)),
    }
    for (namespace, may) in [(&fixture.home, "yes\n"), (&fixture.other, "no\n")] {
        let namespace = format!("--namespace={namespace}");
        let run = kubectl.run(&["auth", "can-i", "create", "pods", &namespace]).await;
        assert_eq!(run.stdout, may, "{run:?}");
    }
    let resources = kubectl.succeed(&["api-resources", "--output=name"]).await;
    for resource in ["configmaps", "deployments.apps", "roles.rbac.authorization.k8s.io"] {
        assert!(
            resources.lines().any(|line| line == resource),
            "{resource}: {resources}"
        );
    }
    assert_eq!(kubectl.json(&["version"]).await["serverVersion"]["major"], "1");
    let none = kubectl
        .fail(&["top", "pods", &format!("--namespace={}", fixture.home)])
        .await;
    assert!(none.contains("Metrics API not available"), "{none}");
}

/// The cluster's own RBAC decides, and kubectl shows its message. Impersonation is refused.
pub(super) async fn refused(fixture: &Fixture, kubectl: &Kubectl, agent: AccessAs) {
    let there = format!("--namespace={}", fixture.other);
    let error = kubectl.fail(&["get", "pods", &there]).await;
    let username = match agent {
        AccessAs::User => "gitlab:user:alice".to_owned(),
        AccessAs::Agent => fixture.account(agent),
    };
    let text = format!(
        r#"Error from server (Forbidden): pods is forbidden: User "{username}" cannot list resource "pods" in API group "" in the namespace "{}""#,
        fixture.other
    );
    assert_eq!(error.trim_end(), text);

    let here = format!("--namespace={}", fixture.home);
    for flag in [
        "--as=bob",
        "--as-uid=1",
        "--as-group=system:masters",
        "--as=system:admin",
    ] {
        let mut arguments = vec!["get", "pods", &here, flag];
        if !flag.starts_with("--as=") {
            arguments.push("--as=bob");
        }
        let error = kubectl.fail(&arguments).await;
        assert!(
            error.contains("Impersonat") || error.contains("impersonat"),
            "{flag}: {error}"
        );
        assert!(error.contains("BadRequest"), "{flag}: {error}");
    }
}

/// A followed log arrives line by line.
pub(super) async fn logs(kubectl: &Kubectl, here: &str) {
    let past = kubectl.succeed(&["logs", here, "pod", "--tail=1"]).await;
    assert!(past.starts_with("line 10 "), "{past}");
    let mut follow = kubectl.start(&["logs", "-f", here, "pod"]);
    for line in ["line 10 ", "line 12 "] {
        follow.line(line).await.unwrap();
    }
    assert!(follow.runs());
}

/// The cluster's audit log has the impersonated user under the id of the gateway's decision.
async fn audited(fixture: &Fixture, bearer: &str, (kind, agent): (CredentialKind, AccessAs)) {
    // A name with an escaped slash arrives unchanged.
    let path = format!("/api/v1/namespaces/{}/configmaps/a%2Fb?x=%2F&y=a+b", fixture.home);
    let url = format!("{}/k8s-proxy{path}", fixture.gateway.url());
    let answer = fixture
        .gateway
        .plain_client()
        .get(&url)
        .bearer_auth(bearer)
        .send()
        .await;
    let answer = answer.unwrap();
    let id = answer.headers()["audit-id"].to_str().unwrap().to_owned();
    assert_eq!(answer.status(), 404, "{}", answer.text().await.unwrap());

    let event = fixture.cluster.audit().of(&id).await;
    assert_eq!(event["requestURI"], path);
    assert_eq!(event["user"]["username"], fixture.account(agent));
    let decision = fixture.gateway.admin(&format!("/decisions/{id}")).await;
    assert_eq!(
        (&decision["outcome"], &decision["front"]),
        (&json!("allowed"), &json!("kubernetes"))
    );
    let note = &decision["kubernetes"];
    assert_eq!(
        (&note["user"]["username"], &note["agent"]),
        (&json!("alice"), &json!(agent as i64))
    );
    let access_type = match kind {
        CredentialKind::Pat => "personal_access_token",
        CredentialKind::IdToken => "oidc_id_token",
    };
    assert_eq!(note["access_type"], access_type);
    match agent {
        AccessAs::User => {
            let whom = &event["impersonatedUser"];
            assert_eq!(whom["username"], "gitlab:user:alice");
            assert_eq!(
                whom["groups"],
                json!([
                    "gitlab:user",
                    "gitlab:group_role:2:reporter",
                    "gitlab:group_role:2:developer",
                    "system:authenticated",
                ])
            );
            assert_eq!(
                whom["extra"],
                json!({
                    "agent.gitlab.com/id": ["9999"],
                    "agent.gitlab.com/username": ["alice"],
                    "agent.gitlab.com/access_type": [access_type],
                    "agent.gitlab.com/config_project_id": ["1234"],
                })
            );
            assert_eq!(note["impersonated"]["username"], "gitlab:user:alice");
        }
        AccessAs::Agent => {
            assert_eq!(event.get("impersonatedUser"), None, "{event}");
            assert_eq!(note.get("impersonated"), None, "{note}");
        }
    }
    // The secret is in neither record.
    let secret = bearer.rsplit(':').next().unwrap();
    for text in [event.to_string(), decision.to_string()] {
        assert!(!text.contains(secret), "{text}");
    }
}

fn strings(values: &Value) -> Vec<&str> {
    let values = values.as_array().unwrap().iter();
    values.map(|value| value.as_str().unwrap()).collect()
}

#[tokio::test]
async fn with_a_personal_token_as_the_user() {
    workflow(CredentialKind::Pat, AccessAs::User).await;
}

#[tokio::test]
async fn with_an_id_token_as_the_user() {
    workflow(CredentialKind::IdToken, AccessAs::User).await;
}

#[tokio::test]
async fn with_a_personal_token_as_the_agent() {
    workflow(CredentialKind::Pat, AccessAs::Agent).await;
}

#[tokio::test]
async fn with_an_id_token_as_the_agent() {
    workflow(CredentialKind::IdToken, AccessAs::Agent).await;
}

/// kubectl falls back to SPDY if WebSockets fail.
#[tokio::test]
async fn pods_can_be_used_with_spdy() {
    let fixture = Fixture::start().await;
    for agent in [AccessAs::User, AccessAs::Agent] {
        let kubectl = fixture
            .kubectl(&fixture.token(agent).await.bearer)
            .speak(Protocol::Spdy);
        use_pod(&kubectl, &fixture.home).await;
    }
    assert_protocol(fixture.cluster, &fixture.home, Protocol::Spdy).await;
}

/// How long the watch stays without events.
const IDLE: Duration = Duration::from_secs(600);

pub(super) async fn idle_watch() {
    let fixture = Fixture::start().await;
    let kubectl = fixture.kubectl(&fixture.token(AccessAs::User).await.bearer);
    let here = format!("--namespace={}", fixture.home);
    let mut watch = kubectl.start(&["get", "secrets", &here, "--watch-only", "--output=name"]);
    let mut follow = kubectl.start(&["exec", "-i", &here, "pod", "--", "cat"]);
    tokio::time::sleep(IDLE).await;
    assert!(watch.runs() && follow.runs());
    kubectl.succeed(&["create", "secret", "generic", "late", &here]).await;
    assert_eq!(watch.line("secret/").await.as_deref(), Some("secret/late\n"));
    follow.say("still there\n").await;
    assert_eq!(follow.line("still").await.as_deref(), Some("still there\n"));
    // kubectl did not start a second watch.
    let is = |event: &Value| {
        let object = &event["objectRef"];
        event["verb"] == "watch" && object["resource"] == "secrets" && object["namespace"] == fixture.home.as_str()
    };
    let stage = |event: &Value| event["stage"] == "ResponseStarted";
    let audit = fixture.cluster.audit();
    audit.find_with(&fixture.home, is).await;
    let events = audit.events_with(&fixture.home);
    assert_eq!(events.iter().filter(|event| is(event) && stage(event)).count(), 1);
}

/// A connection to the gateway by HTTP/1.1.
async fn connect(fixture: &Fixture) -> TlsStream<TcpStream> {
    let mut roots = rustls::RootCertStore::empty();
    for authority in CertificateDer::pem_slice_iter(fixture.gateway.authority().unwrap().as_bytes()) {
        roots.add(authority.unwrap()).unwrap();
    }
    let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
    let config = rustls::ClientConfig::builder_with_provider(provider)
        .with_safe_default_protocol_versions()
        .unwrap()
        .with_root_certificates(roots)
        .with_no_client_auth();
    let address = fixture.gateway.address();
    let stream = TcpStream::connect(address).await.unwrap();
    let name = ServerName::IpAddress(address.ip().into());
    TlsConnector::from(Arc::new(config))
        .connect(name, stream)
        .await
        .unwrap()
}

/// Python's `kubernetes` and Java's fabric8 open WebSockets with an `Origin` that no page has: that of
/// the server they call. Their handshakes, field by field.
#[tokio::test]
async fn clients_that_send_an_origin_execute_and_watch() {
    let fixture = Fixture::start().await;
    let token = fixture.token(AccessAs::User).await;
    let home = &fixture.home;
    let base = fixture.gateway.url().replacen("http", "ws", 1);
    let host = base.split_once("://").unwrap().1.to_owned();
    let open = async |path: &str, fields: &[(&'static str, &str)]| {
        let url = format!("{base}/k8s-proxy{path}");
        let mut request = url.into_client_request().unwrap();
        let bearer = format!("Bearer {}", token.bearer);
        for (name, value) in fields.iter().chain(&[("authorization", bearer.as_str())]) {
            request.headers_mut().insert(*name, value.parse().unwrap());
        }
        client_async(request, connect(&fixture).await).await
    };
    // websocket-client: `Origin` has the scheme, host and port of the URL.
    let exec = format!(
        "/api/v1/namespaces/{home}/pods/pod/exec?command=echo&command=hello&stderr=True&stdin=False&stdout=True&tty=False"
    );
    let origin = format!("https://{host}");
    let fields = [
        ("origin", origin.as_str()),
        ("sec-websocket-protocol", "v4.channel.k8s.io"),
    ];
    let (mut socket, answer) = open(&exec, &fields).await.unwrap();
    assert_eq!(answer.headers().get("access-control-allow-origin"), None);
    let mut output = Vec::new();
    while let Some(Ok(message)) = socket.next().await {
        if let Message::Binary(bytes) = message
            && bytes.first() == Some(&1)
        {
            output.extend_from_slice(&bytes[1..]);
        }
    }
    assert_eq!(String::from_utf8_lossy(&output), "hello\n");
    // fabric8. Releases that write no port as `-1` are refused by today's kube-apiserver itself.
    let watch = format!("/api/v1/namespaces/{home}/configmaps?allowWatchBookmarks=true&watch=true");
    for origin in [format!("https://{host}"), "http://localhost:8001".to_owned()] {
        let (mut socket, _) = open(&watch, &[("origin", &origin)]).await.unwrap();
        let event = socket.next().await.unwrap().unwrap().into_text().unwrap();
        let event: Value = serde_json::from_str(&event).unwrap();
        // An object, or the bookmark behind the last one.
        assert_eq!(event["object"]["kind"], "ConfigMap", "{origin}: {event}");
    }
    // With the cookie of a page, the origin counts.
    let cookie = ("cookie", "_gitlab_kas=x");
    let refused = open(&watch, &[("origin", "https://evil.test"), cookie]).await;
    assert!(refused.is_err(), "{refused:?}");
}
