//! An OpenID Connect issuer on loopback: discovery, one P-256 key, and userinfo.

use std::sync::{Arc, Mutex};

use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair, KeyPair};
use axum::extract::State;
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use axum::{Json, Router};
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};
use tokio::net::TcpListener;

use crate::relay::Relay;

/// Audience of its tokens.
const AUDIENCE: &str = "gateway";
/// `kid` of its key.
const KEY_ID: &str = "k1";

/// An issuer that runs as long as its runtime.
pub struct Issuer {
    /// `iss` of its tokens.
    pub url: String,
    /// `http://127.0.0.1:PORT`, where it listens.
    pub address: String,
    key: EncodingKey,
    userinfo: Arc<Mutex<Option<Value>>>,
}

struct Key {
    signing: EncodingKey,
    public: Value,
}

fn key() -> Key {
    let pair = EcdsaKeyPair::generate(&ECDSA_P256_SHA256_FIXED_SIGNING).expect("a key");
    let der = pair.to_pkcs8v1().expect("a document");
    // An uncompressed point: 4, x, y.
    let (x, y) = pair.public_key().as_ref()[1..].split_at(32);
    Key {
        signing: EncodingKey::from_ec_der(der.as_ref()),
        public: json!({
            "kty": "EC", "crv": "P-256", "use": "sig", "alg": "ES256", "kid": KEY_ID,
            "x": BASE64.encode(x), "y": BASE64.encode(y),
        }),
    }
}

async fn listen() -> (TcpListener, String) {
    let listener = TcpListener::bind("127.0.0.1:0").await.expect("a port");
    let address = format!("http://{}", listener.local_addr().expect("an address"));
    (listener, address)
}

impl Issuer {
    /// Starts one.
    pub async fn start() -> Self {
        let (listener, address) = listen().await;
        Self::serve(listener, &address, address.clone()).await
    }

    /// Starts one that is reached through a relay.
    pub async fn behind_relay() -> (Self, Relay) {
        let (listener, address) = listen().await;
        let relay = Relay::to(&address).await;
        let url = relay.url().trim_end_matches('/').to_owned();
        (Self::serve(listener, &address, url).await, relay)
    }

    /// Starts one that stands for the Dex of an Argo CD with this URL, and signs what the real one
    /// does not. Only argocd-server reaches it.
    pub async fn dex(argocd: &str) -> Self {
        let (listener, address) = listen().await;
        Self::serve(listener, &address, format!("{argocd}/api/dex")).await
    }

    async fn serve(listener: TcpListener, address: &str, url: String) -> Self {
        let is_dex = url.ends_with("/api/dex");
        let Key { signing, public } = key();
        let userinfo = Arc::new(Mutex::new(None));
        let discovery = json!({
            "issuer": url,
            "jwks_uri": format!("{url}/keys"),
            "authorization_endpoint": format!("{url}/auth"),
            "token_endpoint": format!("{url}/token"),
            "response_types_supported": ["code"],
            "id_token_signing_alg_values_supported": ["ES256"],
        });
        let router = Router::new()
            .route(
                "/.well-known/openid-configuration",
                get(move || std::future::ready(Json(discovery.clone()))),
            )
            .route(
                "/keys",
                get(move || std::future::ready(Json(json!({"keys": [public.clone()]})))),
            )
            .route("/userinfo", get(answer_userinfo))
            .with_state(Arc::clone(&userinfo));
        let router = match is_dex {
            true => Router::new().nest("/api/dex", router),
            false => router,
        };
        tokio::spawn(async move { axum::serve(listener, router).await });
        Self {
            url,
            address: address.to_owned(),
            key: signing,
            userinfo,
        }
    }

    /// `oidc.config` that trusts it, optionally with groups from its userinfo.
    pub fn argocd_config(&self, groups_from_userinfo: bool) -> String {
        let mut config = json!({"name": "test", "issuer": self.url, "clientID": AUDIENCE});
        if groups_from_userinfo {
            config["enableUserInfoGroups"] = true.into();
            config["userInfoPath"] = "/userinfo".into();
        }
        config.to_string()
    }

    /// Sets what userinfo answers from now on. Until then it answers 500.
    pub fn set_userinfo(&self, answer: Value) {
        *self.userinfo.lock().expect("no panic before") = Some(answer);
    }

    /// A token over these claims, valid for an hour.
    pub fn token(&self, claims: &Value) -> String {
        self.signed(claims, &self.key)
    }

    /// The same, signed with a key that the issuer does not publish.
    pub fn forged(&self, claims: &Value) -> String {
        self.signed(claims, &key().signing)
    }

    fn signed(&self, claims: &Value, key: &EncodingKey) -> String {
        let now = jiff::Timestamp::now().as_second();
        let mut all = json!({"iss": self.url, "aud": AUDIENCE, "iat": now, "exp": now + 3600});
        for (claim, value) in claims.as_object().into_iter().flatten() {
            all[claim] = value.clone();
        }
        let mut header = Header::new(Algorithm::ES256);
        header.kid = Some(KEY_ID.to_owned());
        jsonwebtoken::encode(&header, &all, key).expect("a token")
    }
}

async fn answer_userinfo(State(answer): State<Arc<Mutex<Option<Value>>>>) -> Response {
    match &*answer.lock().expect("no panic before") {
        Some(claims) => Json(claims.clone()).into_response(),
        None => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}
