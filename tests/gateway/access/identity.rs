//! How a backend can verify the caller: signed assertions, and `X-Remote-*` fields together with a
//! TLS client certificate.

use std::net::SocketAddr;
use std::sync::{Arc, Mutex};

use jsonwebtoken::jwk::JwkSet;
use jsonwebtoken::{Algorithm, DecodingKey, Validation};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;

use super::{backend, status};
use test_support::authority::{Authority, Pair};
use test_support::world::Setup;

#[tokio::test]
async fn assertions_are_signed_with_the_published_key() {
    let backend = backend().await;
    let block = json!({
        "services": [{"url": format!("http://{}", backend.address)}],
        "identity": {"assertion": {"audience": "echo-backend", "lifetime": "1m"}},
    });
    let mut setup = Setup::with_extension(&block.to_string());
    setup.settings = json!({"extensions": {"assertion": {"issuer": "https://gate.example"}}});
    let world = setup.start().await;
    let forged = world.get("alice", "/x").header("Tollgate-Assertion", "forged");
    assert_eq!(status(forged).await, 200);
    let seen = backend.seen();
    let [assertion] = seen[0].values("tollgate-assertion")[..] else {
        panic!("{}", seen[0].head);
    };
    // Anybody may get the keys, but only the public ones.
    let url = format!("http://{}/.well-known/jwks.json", world.address());
    let text = reqwest::get(url).await.unwrap().text().await.unwrap();
    let keys: JwkSet = serde_json::from_str(&text).unwrap();
    assert!(!text.contains("\"d\""), "{text}");
    let kid = jsonwebtoken::decode_header(assertion).unwrap().kid.unwrap();
    let key = DecodingKey::from_jwk(keys.find(&kid).unwrap()).unwrap();
    let check = |audience: &str, issuer: &str| {
        let mut validation = Validation::new(Algorithm::ES256);
        validation.set_audience(&[audience]);
        validation.set_issuer(&[issuer]);
        validation.set_required_spec_claims(&["exp", "nbf", "aud", "iss", "sub"]);
        jsonwebtoken::decode::<Value>(assertion, &key, &validation)
    };
    let claims = check("echo-backend", "https://gate.example").unwrap().claims;
    assert_eq!(claims["sub"], "alice");
    assert_eq!(claims["app"], "argocd:cart");
    assert_eq!(claims["project"], "shop");
    let lifetime = claims["exp"].as_i64().unwrap() - claims["iat"].as_i64().unwrap();
    assert!((1..=60).contains(&lifetime), "{claims}");
    assert!(check("another-backend", "https://gate.example").is_err());
    assert!(check("echo-backend", "https://another.example").is_err());
}

#[tokio::test]
async fn backends_that_want_no_assertion_get_none() {
    let backend = backend().await;
    let world = Setup::with_backend(backend.address).start().await;
    let forged = world.get("alice", "/x").header("Tollgate-Assertion", "forged");
    assert_eq!(status(forged).await, 200);
    assert!(backend.seen()[0].values("tollgate-assertion").is_empty());
}

type Heads = Arc<Mutex<Vec<String>>>;

/// Starts a TLS backend that requires a certificate of `clients`. Returns the heads it receives.
async fn mutual_tls(server: &Authority, clients: &Authority) -> (SocketAddr, Heads) {
    let acceptor = tokio_rustls::TlsAcceptor::from(Arc::new(server.mutual_tls(clients)));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let heads = Heads::default();
    let kept = Arc::clone(&heads);
    tokio::spawn(async move {
        while let Ok((stream, _)) = listener.accept().await {
            // A client without a valid certificate gets no further.
            let Ok(mut stream) = acceptor.accept(stream).await else {
                continue;
            };
            let mut head = Vec::new();
            while !head.ends_with(b"\r\n\r\n") {
                match stream.read_u8().await {
                    Ok(byte) => head.push(byte),
                    Err(_) => break,
                }
            }
            if head.ends_with(b"\r\n\r\n") {
                kept.lock().unwrap().push(String::from_utf8(head).unwrap());
            }
            let _ = stream
                .write_all(b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 1\r\n\r\nx")
                .await;
            let _ = stream.shutdown().await;
        }
    });
    (address, heads)
}

/// Sends a call through a gateway that presents a certificate of `shown`. Returns the status and
/// the header lines that reached the backend.
async fn call(shown: &Authority, clients: &Authority, request_header: bool) -> (u16, Vec<String>) {
    let server = Authority::new("tests");
    let (address, heads) = mutual_tls(&server, clients).await;
    let Pair { certificate, key } = shown.client("gateway.example", None);
    let block = json!({
        "services": [{"url": format!("https://{address}")}],
        "tls": {
            "ca": server.pem, "serverName": "backend.example",
            "clientCertificate": certificate, "clientKey": "$backend.key",
        },
        "identity": {"requestHeader": request_header},
    });
    let mut setup = Setup::with_extension(&block.to_string());
    setup.secrets.insert("backend.key".to_owned(), key);
    let world = setup.start().await;
    let request = world.get("alice", "/x").header("X-Remote-User", "root");
    let status = status(request.header("X-Remote-Group", "system:masters")).await;
    let heads = heads.lock().unwrap();
    let lines = heads.iter().flat_map(|head| head.split("\r\n"));
    (status, lines.map(str::to_owned).collect())
}

fn remote(lines: &[String]) -> Vec<String> {
    let lower = lines.iter().map(|line| line.to_lowercase());
    lower.filter(|line| line.starts_with("x-remote-")).collect()
}

#[tokio::test]
async fn request_headers_are_sent_only_with_a_client_certificate() {
    let clients = Authority::new("tests");
    let (status, lines) = call(&clients, &clients, true).await;
    assert_eq!(status, 200);
    assert_eq!(remote(&lines), ["x-remote-user: alice", "x-remote-uid: alice"]);
    let (status, lines) = call(&clients, &clients, false).await;
    assert_eq!(status, 200);
    assert_eq!(remote(&lines), [""; 0]);
    let (status, lines) = call(&Authority::new("tests"), &clients, true).await;
    assert_eq!(status, 502);
    assert!(lines.is_empty(), "{lines:?}");
}

#[tokio::test]
async fn request_headers_without_a_certificate_are_a_configuration_error() {
    let block = "{services: [{url: 'http://127.0.0.1:1'}], identity: {requestHeader: true}}";
    assert!(Setup::with_extension(block).try_start().await.is_err());
    assert!(
        Setup::with_extension(&block.replace("true", "false"))
            .try_start()
            .await
            .is_ok()
    );
}
