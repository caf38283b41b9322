//! Argo CD session tokens.

use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

/// A session token of the local account `user`, valid for an hour.
pub fn session(key: &str, user: &str) -> String {
    let now = jiff::Timestamp::now().as_second();
    let subject = format!("{user}:login");
    sign(
        key,
        &json!({"iss": "argocd", "sub": subject, "iat": now, "nbf": now, "exp": now + 3600, "jti": "1"}),
    )
}

/// A token with these claims, signed with HS256.
pub fn sign(key: &str, claims: &Value) -> String {
    let header = json!({"alg": "HS256", "typ": "JWT"});
    let signed = format!(
        "{}.{}",
        BASE64.encode(header.to_string()),
        BASE64.encode(claims.to_string())
    );
    let mut mac = Hmac::<Sha256>::new_from_slice(key.as_bytes()).expect("HMAC takes keys of any length");
    mac.update(signed.as_bytes());
    format!("{signed}.{}", BASE64.encode(mac.finalize().into_bytes()))
}
