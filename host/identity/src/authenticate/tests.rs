//! Fixtures shared by the tests of this module: a clock, resources, keys, a request head.

use std::sync::LazyLock;

use base64::Engine;
use base64::engine::general_purpose::{STANDARD, URL_SAFE_NO_PAD};
use http::request::Parts;
use jsonwebtoken::{Algorithm, EncodingKey, Header};
use serde_json::{Value, json};

use super::{Arc, Authenticator, Error, Principal, Safety};
use tollgate_core::diagnostic::{Diagnostic, Location};
use tollgate_objects::{Project, ProjectRole, Resources, RoleToken, Secret, Text};

mod credentials;
mod dex;
mod id_tokens;
mod issuer_double;
mod issuers;
mod key_cache;
mod locks;
mod logout_tokens;
mod mappings;
mod origins;
mod remembered;
mod sessions;
mod sign_in;
mod single_sign_on;

/// `server.secretkey` of the tests.
const SIGNING_KEY: &str = "0123456789abcdef0123456789abcdef";
/// `iat` of most tokens: 2024-01-01.
const ISSUED_AT: i64 = 1_704_067_200;
/// `exp` of most tokens: 2100-01-01.
const FAR: i64 = 4_102_444_800;

/// A key pair an issuer signs with.
struct Signer {
    algorithm: Algorithm,
    private: EncodingKey,
}

static RSA: LazyLock<Signer> = LazyLock::new(rsa_signer);
static OTHER_RSA: LazyLock<Signer> = LazyLock::new(rsa_signer);
static EC: LazyLock<Signer> = LazyLock::new(|| {
    use aws_lc_rs::signature::{ECDSA_P256_SHA256_FIXED_SIGNING, EcdsaKeyPair};
    let random = aws_lc_rs::rand::SystemRandom::new();
    let key = EcdsaKeyPair::generate_pkcs8(&ECDSA_P256_SHA256_FIXED_SIGNING, &random).unwrap();
    Signer {
        algorithm: Algorithm::ES256,
        private: EncodingKey::from_ec_der(key.as_ref()),
    }
});

fn rsa_signer() -> Signer {
    use aws_lc_rs::encoding::{AsDer, Pkcs8V1Der};
    let key = aws_lc_rs::rsa::KeyPair::generate(aws_lc_rs::rsa::KeySize::Rsa2048).unwrap();
    let der: Pkcs8V1Der<'static> = key.as_der().unwrap();
    let pem = format!(
        "-----BEGIN PRIVATE KEY-----\n{}\n-----END PRIVATE KEY-----\n",
        lines(&STANDARD.encode(der.as_ref()))
    );
    Signer {
        algorithm: Algorithm::RS256,
        private: EncodingKey::from_rsa_pem(pem.as_bytes()).unwrap(),
    }
}

fn lines(text: &str) -> String {
    text.as_bytes()
        .chunks(64)
        .map(|line| std::str::from_utf8(line).unwrap())
        .collect::<Vec<_>>()
        .join("\n")
}

impl Signer {
    /// A token with any header and payload, regardless of their content.
    fn sign_text(&self, header: &Value, payload: &str) -> String {
        let signed = format!("{}.{}", part(header), URL_SAFE_NO_PAD.encode(payload));
        let signature = jsonwebtoken::crypto::sign(signed.as_bytes(), &self.private, self.algorithm).unwrap();
        format!("{signed}.{signature}")
    }

    /// A token with these claims under this `kid`.
    fn sign(&self, kid: Option<&str>, claims: &Value) -> String {
        let header = Header {
            kid: kid.map(str::to_owned),
            ..Header::new(self.algorithm)
        };
        jsonwebtoken::encode(&header, claims, &self.private).unwrap()
    }

    /// The public half as a JWK of this `kid`.
    fn jwk(&self, kid: &str) -> Value {
        let jwk = jsonwebtoken::jwk::Jwk::from_encoding_key(&self.private, self.algorithm).unwrap();
        let mut jwk = serde_json::to_value(jwk).unwrap();
        jwk["kid"] = json!(kid);
        jwk["use"] = json!("sig");
        jwk
    }
}

/// A token Argo CD would sign.
fn session(claims: &Value) -> String {
    hs256(&json!({ "alg": "HS256", "typ": "JWT" }), claims, SIGNING_KEY.as_bytes())
}

/// A token with any header, signed with HMAC regardless of `alg`.
fn hs256(header: &Value, claims: &Value, key: &[u8]) -> String {
    let signed = format!("{}.{}", part(header), part(claims));
    let key = EncodingKey::from_secret(key);
    let signature = jsonwebtoken::crypto::sign(signed.as_bytes(), &key, Algorithm::HS256).unwrap();
    format!("{signed}.{signature}")
}

fn part(value: &Value) -> String {
    URL_SAFE_NO_PAD.encode(serde_json::to_vec(value).unwrap())
}

/// Claims of a session of `alice`.
fn alice() -> Value {
    json!({ "iss": "argocd", "sub": "alice:login", "jti": "a-1", "iat": ISSUED_AT, "nbf": ISSUED_AT, "exp": FAR })
}

fn with(mut claims: Value, changes: &[(&str, Value)]) -> Value {
    for (claim, value) in changes {
        claims[*claim] = value.clone();
    }
    claims
}

fn without(mut claims: Value, claim: &str) -> Value {
    claims.as_object_mut().unwrap().remove(claim);
    claims
}

fn text(value: &str) -> Text {
    Text {
        value: value.into(),
        location: Location::new("argocd-cm.yaml", 1),
    }
}

fn secret(values: &[(&str, &str)]) -> Secret {
    Secret {
        labels: std::collections::BTreeMap::new(),
        values: values
            .iter()
            .map(|(key, value)| ((*key).to_owned(), (*value).into()))
            .collect(),
        location: Location::new("argocd-secret.yaml", 1),
    }
}

/// Accounts `alice` (login), `robot` (apiKey, key `r-1`), project `web` with
/// role `ci` and two tokens.
fn resources() -> Resources {
    resources_with(&[], &[])
}

pub(super) fn resources_with(config: &[(&str, &str)], secrets: &[(&str, &str)]) -> Resources {
    let mut resources = Resources {
        control_plane_namespace: "argocd".to_owned(),
        ..Resources::default()
    };
    for (key, value) in [("accounts.alice", "login"), ("accounts.robot", "apiKey, login")]
        .iter()
        .chain(config)
    {
        resources.argocd_cm.data.insert((*key).to_owned(), text(value));
    }
    let mut values = vec![
        ("server.secretkey", SIGNING_KEY),
        ("accounts.robot.tokens", r#"[{"id":"r-1","iat":1704067200}]"#),
    ];
    values.extend(secrets);
    resources
        .secrets
        .insert("argocd-secret".to_owned(), secret(&values).into());
    let token = |id: &str, issued_at| RoleToken {
        id: id.to_owned(),
        issued_at,
        expires_at: 0,
    };
    let role = ProjectRole {
        name: "ci".to_owned(),
        policies: Vec::new(),
        groups: Vec::new(),
        tokens: vec![token("p-1", ISSUED_AT), token("", ISSUED_AT - 5)],
        location: Location::new("web.yaml", 1),
    };
    let project = Project {
        name: "web".to_owned(),
        roles: vec![role],
        location: Location::new("web.yaml", 1),
        ..Project::default()
    };
    resources.projects.insert("web".to_owned(), Arc::new(project));
    resources
}

fn argocd_sessions() -> tollgate_config::Authentication {
    tollgate_config::Authentication {
        argocd_sessions: true,
        ..tollgate_config::Authentication::default()
    }
}

fn groups_scope() -> Vec<String> {
    vec!["groups".to_owned()]
}

fn build(config: &tollgate_config::Authentication, resources: &Resources) -> Authenticator {
    let loaded = Authenticator::build(config, resources, &groups_scope(), None);
    loaded.value.unwrap_or_else(|| panic!("{:?}", loaded.diagnostics))
}

fn findings(config: &tollgate_config::Authentication, resources: &Resources) -> Vec<String> {
    let loaded = Authenticator::build(config, resources, &groups_scope(), None);
    loaded.diagnostics.iter().map(Diagnostic::to_string).collect()
}

/// A `GET /` with these fields.
fn head(fields: &[(&str, &str)]) -> Parts {
    let mut request = http::Request::builder().uri("/").header("host", "gate.example");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

async fn bearer(authenticator: &Authenticator, token: &str) -> Result<Arc<Principal>, Error> {
    authenticator
        .authenticate(
            &head(&[("authorization", &format!("Bearer {token}"))]),
            Safety::ByMethod,
        )
        .await
}

async fn refusal(authenticator: &Authenticator, token: &str) -> Error {
    bearer(authenticator, token).await.expect_err("the token was accepted")
}
