use http::HeaderValue;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use super::SharedSecret;
use crate::access::SetupError;
use crate::access::tests::fixture::SECRET;

const NOW: i64 = 1_768_478_400;
const KEY: &[u8] = b"01234567890123456789012345678901";

fn read(text: &str) -> Result<SharedSecret, SetupError> {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("secret");
    std::fs::write(&path, text).unwrap();
    SharedSecret::read(&path)
}

fn signed(claims: &Value, algorithm: Algorithm, key: &[u8]) -> HeaderValue {
    let token = jsonwebtoken::encode(&Header::new(algorithm), claims, &EncodingKey::from_secret(key)).unwrap();
    HeaderValue::from_str(&token).unwrap()
}

fn good() -> Value {
    json!({"iss": "gitlab-kas", "aud": ["gitlab"], "iat": NOW, "nbf": NOW - 5, "exp": NOW + 30})
}

#[test]
fn a_token_is_valid_for_thirty_seconds() {
    let secret = read(SECRET).unwrap();
    let token = secret.token(NOW).unwrap();
    assert!(token.is_sensitive());
    assert!(secret.is_valid_token(&token, NOW));
    assert!(secret.is_valid_token(&token, NOW + 29));
    assert!(!secret.is_valid_token(&token, NOW + 30));
    assert!(!secret.is_valid_token(&token, NOW - 600));
    let other = read("YWJjZGVmZ2hpamFiY2RlZmdoaWphYmNkZWZnaGlqYWI=").unwrap();
    assert!(!other.is_valid_token(&token, NOW));
    assert_eq!(format!("{secret:?}"), "SharedSecret");
}

#[test]
fn tokens_with_another_key_algorithm_or_claims_are_invalid() {
    let secret = read(SECRET).unwrap();
    let with = |key: &str, value: Value| {
        let mut claims = good();
        claims[key] = value;
        signed(&claims, Algorithm::HS256, KEY)
    };
    let without = |key: &str| {
        let mut claims = good();
        claims.as_object_mut().unwrap().remove(key);
        signed(&claims, Algorithm::HS256, KEY)
    };
    assert!(secret.is_valid_token(&signed(&good(), Algorithm::HS256, KEY), NOW));
    assert!(secret.is_valid_token(&with("aud", json!("gitlab")), NOW));
    assert!(secret.is_valid_token(&with("exp", json!(NOW + 300)), NOW));
    let refused = [
        signed(&good(), Algorithm::HS512, KEY),
        signed(&good(), Algorithm::HS256, b"another"),
        with("iss", json!("gitlab-workhorse")),
        with("aud", json!("other")),
        with("exp", json!(NOW + 301)),
        with("exp", json!(NOW)),
        with("exp", json!("soon")),
        with("nbf", json!(NOW + 60)),
        without("exp"),
        without("iss"),
        without("aud"),
        HeaderValue::from_static("eyJhbGciOiJub25lIn0.e30."),
        HeaderValue::from_static(""),
        HeaderValue::from_bytes(b"\xff").unwrap(),
    ];
    for (index, token) in refused.iter().enumerate() {
        assert!(!secret.is_valid_token(token, NOW), "{index}");
    }
}

#[test]
fn invalid_secret_files_are_refused_without_showing_their_content() {
    for (text, reason) in [
        ("not base64!", "it is not base64"),
        ("c2hvcnQ=", "it has 5 bytes, at least 32 are allowed"),
        ("", "it has 0 bytes"),
    ] {
        let error = read(text).unwrap_err().to_string();
        assert!(error.contains(reason), "{error}");
        assert!(text.is_empty() || !error.contains(text), "{error}");
    }
    let absent = SharedSecret::read(std::path::Path::new("/nowhere/secret")).unwrap_err();
    assert!(absent.to_string().contains("/nowhere/secret"), "{absent}");
}
