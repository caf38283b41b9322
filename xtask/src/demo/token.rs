//! Argo CD session tokens for the users of the demo.

use anyhow::Result;
use base64::Engine;
use base64::engine::general_purpose::URL_SAFE_NO_PAD as BASE64;
use hmac::{Hmac, KeyInit, Mac};
use serde_json::json;
use sha2::Sha256;

/// A session token of the local account `name`, as Argo CD mints it, valid for
/// `lifetime_seconds`.
pub fn mint(key: &[u8], name: &str, lifetime_seconds: u64) -> Result<String> {
    let now = std::time::SystemTime::now()
        .duration_since(std::time::UNIX_EPOCH)?
        .as_secs();
    let header = json!({"alg": "HS256", "typ": "JWT"});
    let claims = json!({
        "iss": "argocd",
        "sub": format!("{name}:login"),
        "iat": now,
        "nbf": now,
        "exp": now + lifetime_seconds,
        "jti": format!("demo-{name}-{now}"),
    });
    let signed = format!(
        "{}.{}",
        BASE64.encode(header.to_string()),
        BASE64.encode(claims.to_string())
    );
    let mut mac = Hmac::<Sha256>::new_from_slice(key)?;
    mac.update(signed.as_bytes());
    Ok(format!("{signed}.{}", BASE64.encode(mac.finalize().into_bytes())))
}
