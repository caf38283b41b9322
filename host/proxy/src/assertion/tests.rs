use jsonwebtoken::{DecodingKey, Validation};
use serde_json::Value;
use tollgate_runtime::followed::Reread as _;

use super::*;

const NOW: i64 = 1_800_000_000;

fn spec(audience: &str) -> AssertionSpec {
    AssertionSpec {
        audience: audience.to_owned(),
        lifetime: Duration::from_secs(60),
    }
}

fn assertion_claims<'a>(subject: &'a str, groups: &'a [String]) -> AssertionClaims<'a> {
    AssertionClaims {
        subject,
        username: "ada",
        groups,
        application: Some(("apps", "web")),
        project: Some("shop"),
        caller_expires_at: None,
    }
}

fn verify(signer: &Signer, token: &HeaderValue, audience: &str) -> Result<Value, jsonwebtoken::errors::Error> {
    let jwk = &signer.jwks.keys[0];
    let mut validation = Validation::new(signer.header.alg);
    validation.set_audience(&[audience]);
    validation.set_issuer(&["https://gateway.example"]);
    validation.validate_exp = false;
    let key = DecodingKey::from_jwk(jwk)?;
    jsonwebtoken::decode::<Value>(token.to_str().unwrap(), &key, &validation).map(|data| data.claims)
}

fn signer() -> Signer {
    Signer::generate("https://gateway.example".to_owned()).unwrap()
}

#[test]
fn a_backend_can_verify_an_assertion_with_the_public_key() {
    let signer = signer();
    let groups = ["dev".to_owned()];
    let token = signer
        .sign_at(&spec("metrics"), &assertion_claims("id-1", &groups), NOW)
        .unwrap();
    let claims = verify(&signer, &token, "metrics").unwrap();
    assert_eq!(claims["sub"], "id-1");
    assert_eq!(claims["groups"], serde_json::json!(["dev"]));
    assert_eq!(claims["app"], "apps:web");
    assert_eq!(claims["project"], "shop");
    assert_eq!(
        (claims["iat"].as_i64(), claims["exp"].as_i64()),
        (Some(NOW), Some(NOW + 60))
    );
    assert!(token.is_sensitive());
    assert!(verify(&signer, &token, "other").is_err(), "another audience");
    let other = Signer::generate("https://gateway.example".to_owned()).unwrap();
    assert!(verify(&other, &token, "metrics").is_err(), "another key");
    let public = serde_json::to_value(signer.jwks).unwrap();
    assert_eq!(public["keys"][0]["use"], "sig");
    assert_eq!(public["keys"][0]["d"], Value::Null, "the private key is not published");
}

#[test]
fn each_request_gets_its_own_assertion_with_a_full_lifetime() {
    let signer = signer();
    let at = |now| {
        let token = signer.sign_at(&spec("metrics"), &assertion_claims("id-1", &[]), now);
        verify(&signer, &token.unwrap(), "metrics").unwrap()
    };
    let (first, second) = (at(NOW), at(NOW + 29));
    assert_ne!(first["jti"], second["jti"]);
    assert_eq!(second["exp"].as_i64(), Some(NOW + 89));
}

#[test]
fn assertions_with_different_claims_differ() {
    let signer = signer();
    let (ab, a_b) = (["ab".to_owned()], ["a".to_owned(), "b".to_owned()]);
    let base = assertion_claims("id-1", &ab);
    let all = [
        signer.sign_at(&spec("metrics"), &base, NOW),
        signer.sign_at(&spec("logs"), &base, NOW),
        signer.sign_at(&spec("metrics"), &assertion_claims("id-2", &ab), NOW),
        signer.sign_at(&spec("metrics"), &assertion_claims("id-1", &a_b), NOW),
        signer.sign_at(
            &spec("metrics"),
            &AssertionClaims {
                application: Some(("app", "sweb")),
                ..base
            },
            NOW,
        ),
        signer.sign_at(
            &spec("metrics"),
            &AssertionClaims {
                application: None,
                ..base
            },
            NOW,
        ),
        signer.sign_at(&spec("metrics"), &AssertionClaims { project: None, ..base }, NOW),
        signer.sign_at(&spec("metrics"), &AssertionClaims { username: "", ..base }, NOW),
    ]
    .map(|token| token.unwrap().to_str().unwrap().to_owned());
    let different: std::collections::HashSet<_> = all.iter().collect();
    assert_eq!(different.len(), all.len());
}

#[test]
fn an_assertion_expires_with_the_callers_credential_and_within_five_minutes() {
    let signer = signer();
    let short = AssertionClaims {
        caller_expires_at: Some(NOW + 10),
        ..assertion_claims("id-1", &[])
    };
    let token = signer.sign_at(&spec("metrics"), &short, NOW).unwrap();
    assert_eq!(
        verify(&signer, &token, "metrics").unwrap()["exp"].as_i64(),
        Some(NOW + 10)
    );
    let long = AssertionSpec {
        audience: "metrics".to_owned(),
        lifetime: Duration::from_hours(1),
    };
    let token = signer.sign_at(&long, &assertion_claims("id-1", &[]), NOW).unwrap();
    assert_eq!(
        verify(&signer, &token, "metrics").unwrap()["exp"].as_i64(),
        Some(NOW + 300)
    );
}

#[test]
fn the_configured_key_is_used() {
    for algorithm in [&rcgen::PKCS_ECDSA_P256_SHA256, &rcgen::PKCS_ED25519] {
        let pem = SecretString::from(rcgen::KeyPair::generate_for(algorithm).unwrap().serialize_pem());
        let sign = || {
            let signer = Signer::from_pem("https://gateway.example".to_owned(), &pem).unwrap();
            let token = signer
                .sign_at(&spec("metrics"), &assertion_claims("id-1", &[]), NOW)
                .unwrap();
            verify(&signer, &token, "metrics").unwrap();
            signer.header.kid
        };
        assert_eq!(sign(), sign(), "replicas with one key publish one key id");
    }
    let pem = SecretString::from("-----BEGIN PRIVATE KEY-----\nAAAA\n-----END PRIVATE KEY-----\n");
    assert!(matches!(Signer::from_pem(String::new(), &pem), Err(Error::Key)));
}

#[test]
fn another_key_is_published_before_it_signs_and_after() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("key.pem");
    let write = || {
        let pem = rcgen::KeyPair::generate().unwrap().serialize_pem();
        std::fs::write(&path, pem).unwrap();
    };
    write();
    let keys = SigningKeys::follow("test.key", &path, "https://gateway.example".to_owned()).unwrap();
    let file = keys.file.clone().unwrap();
    let begun = Instant::now();
    // What signs, and what is published, this many seconds after the start.
    let at = |seconds: u64| {
        let mut rotation = keys.rotation.lock().unwrap();
        rotation.advance(&file.load(), begun + Duration::from_secs(seconds));
        let kid = |signer: &Signer| signer.header.kid.clone().unwrap();
        let published = rotation.jwks().keys.into_iter().map(|key| key.common.key_id.unwrap());
        (kid(&rotation.current), published.collect::<Vec<_>>())
    };
    let (first, published) = at(0);
    assert_eq!(published, std::slice::from_ref(&first));

    write();
    assert_eq!(file.reread(), Ok(true));
    let second = file.load().header.kid.clone().unwrap();
    assert_ne!(first, second);
    assert_eq!(at(1), (first.clone(), vec![first.clone(), second.clone()]));
    assert_eq!(at(300), (first.clone(), vec![first.clone(), second.clone()]));
    assert_eq!(at(301), (second.clone(), vec![second.clone(), first.clone()]));
    assert_eq!(at(600), (second.clone(), vec![second.clone(), first]));
    assert_eq!(at(601), (second.clone(), vec![second.clone()]));

    // What is no key changes nothing.
    std::fs::write(&path, "none").unwrap();
    let error = file.reread().unwrap_err();
    assert!(error.contains("neither a P-256 nor an Ed25519"), "{error}");
    assert_eq!(at(1_000), (second.clone(), vec![second]));
}
