//! An issuer on loopback that counts its requests.

use std::sync::{Arc, Mutex};

use serde_json::{Value, json};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

use super::{FAR, ISSUED_AT, RSA, with};

/// What the issuer serves, and the requests it received.
#[derive(Default)]
pub(super) struct IssuerState {
    pub(super) keys: Vec<Value>,
    /// It stands for argocd-server in front of a Dex whose issuer is this.
    pub(super) dex: Option<String>,
    /// Issuer the discovery document names, when not the right one.
    pub(super) claimed_issuer: Option<String>,
    pub(super) userinfo: Option<Value>,
    /// What a code is redeemed for.
    pub(super) tokens: Option<Value>,
    /// Connections are closed without an answer.
    pub(super) down: bool,
    /// Keys and the discovery document are only for callers that send this token.
    pub(super) required_token: Option<String>,
    pub(super) requests: Vec<String>,
    /// `Authorization` of the last userinfo request.
    pub(super) userinfo_bearer: String,
}

pub(super) struct IssuerDouble {
    pub(super) url: String,
    pub(super) state: Arc<Mutex<IssuerState>>,
}

impl IssuerDouble {
    /// Starts with one RSA key named `k1`.
    pub(super) async fn start() -> Self {
        Self::serve("http", None).await
    }

    /// Starts with TLS; also returns the PEM of its certificate.
    pub(super) async fn start_tls() -> (Self, String) {
        Self::start_tls_for("127.0.0.1").await
    }

    /// Starts with TLS and a certificate for this name.
    pub(super) async fn start_tls_for(name: &str) -> (Self, String) {
        let certified = rcgen::generate_simple_self_signed([name.to_owned()]).unwrap();
        let key = rustls::pki_types::PrivateKeyDer::Pkcs8(certified.signing_key.serialize_der().into());
        let provider = Arc::new(rustls::crypto::aws_lc_rs::default_provider());
        let config = rustls::ServerConfig::builder_with_provider(provider)
            .with_safe_default_protocol_versions()
            .unwrap()
            .with_no_client_auth()
            .with_single_cert(vec![certified.cert.der().clone()], key)
            .unwrap();
        let acceptor = TlsAcceptor::from(Arc::new(config));
        (Self::serve("https", Some(acceptor)).await, certified.cert.pem())
    }

    async fn serve(scheme: &str, tls: Option<TlsAcceptor>) -> Self {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("{scheme}://{}", listener.local_addr().unwrap());
        let state = Arc::new(Mutex::new(IssuerState {
            keys: vec![RSA.jwk("k1")],
            ..IssuerState::default()
        }));
        let (served, name) = (state.clone(), url.clone());
        tokio::spawn(async move {
            while let Ok((stream, _)) = listener.accept().await {
                let (served, name, tls) = (served.clone(), name.clone(), tls.clone());
                tokio::spawn(async move {
                    match tls {
                        None => answer(stream, served, name).await,
                        // A client that does not trust us ends the handshake.
                        Some(tls) => {
                            if let Ok(stream) = tls.accept(stream).await {
                                answer(stream, served, name).await;
                            }
                        }
                    }
                });
            }
        });
        Self { url, state }
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut IssuerState)) {
        change(&mut self.state.lock().unwrap());
    }

    /// How often the key set was fetched.
    pub(super) fn key_fetches(&self) -> usize {
        self.state
            .lock()
            .unwrap()
            .requests
            .iter()
            .filter(|path| path.ends_with("/keys"))
            .count()
    }

    /// Good claims for audience `gate`.
    pub(super) fn claims(&self) -> Value {
        json!({
            "iss": self.url, "sub": "u-1", "aud": "gate", "iat": ISSUED_AT, "exp": FAR,
            "email": "ann@corp.example", "groups": ["dev", "ops"],
        })
    }

    /// A good token with some claims changed.
    pub(super) fn token(&self, changes: &[(&str, Value)]) -> String {
        RSA.sign(Some("k1"), &with(self.claims(), changes))
    }
}

/// Whether the head of a request was read, and all of its body.
fn is_whole(request: &[u8]) -> bool {
    let Some(end) = request.windows(4).position(|window| window == b"\r\n\r\n") else {
        return false;
    };
    let head = std::str::from_utf8(&request[..end]).unwrap();
    let length = head.lines().find_map(|line| line.strip_prefix("content-length: "));
    let length: usize = length.map_or(0, |length| length.parse().unwrap());
    request.len() >= end + 4 + length
}

async fn answer(mut stream: impl AsyncRead + AsyncWrite + Unpin, state: Arc<Mutex<IssuerState>>, url: String) {
    let mut request = Vec::new();
    let mut buffer = [0; 4096];
    while !is_whole(&request) {
        match stream.read(&mut buffer).await {
            Ok(read) if read > 0 => request.extend_from_slice(&buffer[..read]),
            Ok(_) | Err(_) => return,
        }
    }
    let request = String::from_utf8(request).unwrap();
    let path = request.split(' ').nth(1).unwrap().to_owned();
    let (status, body) = {
        let mut state = state.lock().unwrap();
        state.requests.push(path.clone());
        if state.down {
            return;
        }
        let field = request.lines().find_map(|line| line.strip_prefix("authorization: "));
        let authorization = field.unwrap_or_default().to_owned();
        let required = state.required_token.as_ref().map(|token| format!("Bearer {token}"));
        let is_refused = required.is_some_and(|required| required != authorization);
        let url = state.dex.clone().unwrap_or(url);
        let issuer = state.claimed_issuer.clone().unwrap_or_else(|| url.clone());
        let below = state.dex.as_ref().map_or("", |_| "/api/dex");
        match path.strip_prefix(below).unwrap_or_default() {
            _ if is_refused => (403, None),
            "/.well-known/openid-configuration" => (
                200,
                Some(json!({
                    "issuer": issuer, "jwks_uri": format!("{url}/keys"),
                    "authorization_endpoint": format!("{url}/authorize"), "token_endpoint": format!("{url}/token"),
                })),
            ),
            // As an API server does.
            "/keys" if !request.contains("application/jwk-set+json") => (406, None),
            "/keys" => (200, Some(json!({ "keys": state.keys }))),
            "/userinfo" => {
                state.userinfo_bearer = authorization;
                (if state.userinfo.is_some() { 200 } else { 401 }, state.userinfo.clone())
            }
            "/token" => (if state.tokens.is_some() { 200 } else { 400 }, state.tokens.clone()),
            _ => (404, None),
        }
    };
    let body = body.map(|body| body.to_string()).unwrap_or_default();
    let head = format!(
        "HTTP/1.1 {status} X\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        body.len()
    );
    // A client that has gone away is the test's business.
    let _ = stream.write_all(format!("{head}{body}").as_bytes()).await;
    let _ = stream.shutdown().await;
}
