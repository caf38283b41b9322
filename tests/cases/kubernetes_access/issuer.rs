//! The issuer of ID tokens: serves discovery and keys on loopback, and signs any claims. The claim
//! `iss` stays that of the world.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, LazyLock, Mutex};

use aws_lc_rs::encoding::{AsDer as _, Pkcs8V1Der};
use aws_lc_rs::rsa::{KeyPair, KeySize};
use aws_lc_rs::signature::KeyPair as _;
use axum::routing::get;
use axum::{Json, Router};
use base64::Engine as _;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use jsonwebtoken::{Algorithm, EncodingKey};
use serde_json::{Map, Value, json};
use tokio::net::TcpListener;

use super::case::{Jose, Signature};
use super::table::{Oidc, Published};

/// A key pair.
struct Pair {
    signing: EncodingKey,
    modulus: String,
    exponent: String,
}

/// Generating keys is slow, so all issuers of a run share them. The last pair is never published.
static PAIRS: LazyLock<[Pair; 3]> = LazyLock::new(|| [pair(), pair(), pair()]);

fn pair() -> Pair {
    let key = KeyPair::generate(KeySize::Rsa2048).expect("a key");
    let der: Pkcs8V1Der<'static> = key.as_der().expect("a document");
    let public = key.public_key();
    let pem = pem(der.as_ref());
    Pair {
        signing: EncodingKey::from_rsa_pem(pem.as_bytes()).expect("a signing key"),
        modulus: BASE64.encode(public.modulus().big_endian_without_leading_zero()),
        exponent: BASE64.encode(public.exponent().big_endian_without_leading_zero()),
    }
}

fn pem(der: &[u8]) -> String {
    let text = base64::engine::general_purpose::STANDARD.encode(der);
    let lines: Vec<&str> = text
        .as_bytes()
        .chunks(64)
        .map(|line| std::str::from_utf8(line).expect("ASCII"))
        .collect();
    format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        lines.join("\n")
    )
}

/// An issuer, which runs as long as its runtime.
pub(super) struct Issuer {
    address: SocketAddr,
    keys: BTreeMap<String, (usize, Published)>,
    published: Arc<Mutex<Vec<Value>>>,
    fetches: Arc<AtomicUsize>,
}

impl Issuer {
    /// Starts an issuer that publishes the world's keys, except those to be added later.
    ///
    /// # Errors
    /// The world has more keys than this suite.
    pub(super) async fn start(oidc: &Oidc) -> Result<Self, String> {
        let names = oidc.keys.iter().enumerate();
        let keys: BTreeMap<String, (usize, Published)> =
            names.map(|(at, (name, when))| (name.clone(), (at, *when))).collect();
        if keys.len() >= PAIRS.len() {
            return Err(format!("{} keys, at most {} are possible", keys.len(), PAIRS.len() - 1));
        }
        let listener = TcpListener::bind("127.0.0.1:0")
            .await
            .map_err(|error| error.to_string())?;
        let address = listener.local_addr().map_err(|error| error.to_string())?;
        let published = Arc::new(Mutex::new(Vec::new()));
        let fetches = Arc::new(AtomicUsize::new(0));
        let discovery = json!({
            "issuer": oidc.issuer,
            "jwks_uri": format!("http://{address}/keys"),
            "authorization_endpoint": format!("http://{address}/authorize"),
            "response_types_supported": ["code"],
            "subject_types_supported": ["public"],
            "id_token_signing_alg_values_supported": oidc.algs,
        });
        let answer = {
            let (published, fetches) = (Arc::clone(&published), Arc::clone(&fetches));
            move || {
                fetches.fetch_add(1, Ordering::SeqCst);
                let keys = published.lock().expect("no panic before").clone();
                std::future::ready(Json(json!({ "keys": keys })))
            }
        };
        let router = Router::new()
            .route(
                "/.well-known/openid-configuration",
                get(move || std::future::ready(Json(discovery.clone()))),
            )
            .route("/keys", get(answer));
        tokio::spawn(async move { axum::serve(listener, router).await });
        let issuer = Self {
            address,
            keys,
            published,
            fetches,
        };
        issuer.publish(Published::Always);
        Ok(issuer)
    }

    /// URL of its discovery document.
    pub(super) fn discovery_url(&self) -> String {
        format!("http://{}/.well-known/openid-configuration", self.address)
    }

    /// How often the keys were fetched.
    pub(super) fn fetches(&self) -> usize {
        self.fetches.load(Ordering::SeqCst)
    }

    /// Adds the keys with this `when` to the JWKS.
    pub(super) fn publish(&self, when: Published) {
        let wanted = self.keys.iter().filter(|(_, (_, of))| *of == when);
        let keys = wanted.map(|(name, (at, _))| {
            let pair = &PAIRS[*at];
            json!({"kty": "RSA", "use": "sig", "alg": "RS256", "kid": name, "n": pair.modulus, "e": pair.exponent})
        });
        self.published.lock().expect("no panic before").extend(keys);
    }

    /// Signs a token.
    ///
    /// # Errors
    /// This suite cannot sign with the algorithm.
    pub(super) fn token(&self, jose: &Jose, claims: &Map<String, Value>) -> Result<String, String> {
        let mut header = json!({"alg": jose.alg, "typ": "JWT"});
        if let Some(kid) = &jose.kid {
            header["kid"] = kid.as_str().into();
        }
        let part = |value: &Value| BASE64.encode(value.to_string());
        let claims = Value::Object(claims.clone());
        let message = format!("{}.{}", part(&header), part(&claims));
        let known = jose.kid.as_ref().and_then(|kid| self.keys.get(kid));
        let own = known.map_or(PAIRS.len() - 1, |(at, _)| *at);
        let (at, signed) = match jose.signature {
            Signature::None => return Ok(format!("{message}.")),
            Signature::Valid | Signature::ValidAfterRefetch => (own, message.clone()),
            Signature::WrongKey => (PAIRS.len() - 1, message.clone()),
            Signature::Tampered => {
                let mut other = claims;
                other["sub"] = "somebody else".into();
                (own, format!("{}.{}", part(&header), part(&other)))
            }
        };
        let signature = sign(&PAIRS[at], &jose.alg, &signed)?;
        Ok(format!("{message}.{signature}"))
    }
}

fn sign(pair: &Pair, algorithm: &str, message: &str) -> Result<String, String> {
    let (algorithm, key) = match algorithm {
        "RS256" => (Algorithm::RS256, pair.signing.clone()),
        "RS384" => (Algorithm::RS384, pair.signing.clone()),
        "RS512" => (Algorithm::RS512, pair.signing.clone()),
        "PS256" => (Algorithm::PS256, pair.signing.clone()),
        // An attack: the public key as the secret.
        "HS256" => (Algorithm::HS256, EncodingKey::from_secret(pair.modulus.as_bytes())),
        other => return Err(format!("jose.alg: this suite cannot sign with `{other}`")),
    };
    jsonwebtoken::crypto::sign(message.as_bytes(), &key, algorithm).map_err(|error| error.to_string())
}
