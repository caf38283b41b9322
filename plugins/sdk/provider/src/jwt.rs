//! Signs JWTs in the host, with a key that the guest never sees.
//!
//! Source: RFC 7515, section 7.1.

use serde_json::Value;

use crate::encoding::base64url;
use crate::{Algorithm, Error, Secret, SecretError, crypto, random, secrets};

/// Members of a JSON object, in order.
pub type Members<'a> = [(&'a str, Value)];

/// Signs `claims` with `key` (PEM), and returns a handle of the compact form. The members of
/// `header` follow `alg` and `typ`.
///
/// # Errors
/// `config`: `key` is not a key for `algorithm`.
pub fn sign(algorithm: Algorithm, key: &Secret, header: &Members<'_>, claims: &Members<'_>) -> Result<Secret, Error> {
    let input = signing_input(name(algorithm), header, claims);
    let signature = crypto::sign(algorithm, key, input.as_bytes()).map_err(|error| match error {
        SecretError::BadFormat => Error::config(
            "secret.bad-format",
            format!(
                "the private key is no PEM (PKCS#1, PKCS#8, SEC1) of a key for {}",
                name(algorithm)
            ),
        ),
        other => other.into(),
    })?;
    let jwt = format!("{input}.{}", base64url(&signature));
    Ok(secrets::wrap(jwt.as_bytes())?)
}

/// The algorithm's name in RFC 7518, section 3.1.
fn name(algorithm: Algorithm) -> &'static str {
    match algorithm {
        Algorithm::Rs256 => "RS256",
        Algorithm::Ps256 => "PS256",
        Algorithm::Es256 => "ES256",
    }
}

/// The signing input: header and claims in base64url.
fn signing_input(algorithm: &str, header: &Members<'_>, claims: &Members<'_>) -> String {
    let mut first = vec![("alg", Value::from(algorithm)), ("typ", Value::from("JWT"))];
    first.extend_from_slice(header);
    format!(
        "{}.{}",
        base64url(object(&first).as_bytes()),
        base64url(object(claims).as_bytes())
    )
}

/// Compact JSON with the members in order.
fn object(members: &Members<'_>) -> String {
    let members: Vec<String> = members
        .iter()
        .map(|(name, value)| format!("{}:{value}", Value::from(*name)))
        .collect();
    format!("{{{}}}", members.join(","))
}

/// 128 random bits, suitable for `jti`.
pub fn unique_id() -> String {
    base64url(&random::bytes(16))
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn header_and_claims_keep_their_order() {
        let claims = [
            ("iss", json!("id")),
            ("sub", json!("id")),
            ("aud", json!("https://idp.example.com/oauth/token")),
            ("iat", json!(1_767_323_045)),
            ("exp", json!(1_767_323_105)),
            ("jti", json!("fixed-jti-0001")),
        ];
        let input = signing_input("RS256", &[("kid", json!("k1"))], &claims);
        let expected = "eyJhbGciOiJSUzI1NiIsInR5cCI6IkpXVCIsImtpZCI6ImsxIn0.eyJpc3MiOiJpZCIsInN1YiI6ImlkIiwiYXVkIjoi\
                        aHR0cHM6Ly9pZHAuZXhhbXBsZS5jb20vb2F1dGgvdG9rZW4iLCJpYXQiOjE3NjczMjMwNDUsImV4cCI6MTc2NzMyMzEw\
                        NSwianRpIjoiZml4ZWQtanRpLTAwMDEifQ";
        assert_eq!(input, expected);
    }
}
