//! Client assertions: their signatures, and that each is used once.

use aws_lc_rs::signature::{
    ECDSA_P256_SHA256_FIXED, KeyPair as _, RSA_PSS_2048_8192_SHA256, RsaKeyPair, UnparsedPublicKey,
};
use rcgen::PublicKeyData as _;
use rustls::pki_types::pem::PemObject as _;
use rustls::pki_types::{CertificateDer, PrivatePkcs8KeyDer};
use serde_json::{Value, json};
use tollgate_credential::{MintErrorClass, MintReason};

use crate::provider_guests::fixture::{Fixture, RSA_KEY, form, mint, token, unbase64url};

/// Header, claims, signed text and signature of a JWT.
fn parts(jwt: &str) -> (Value, Value, &str, Vec<u8>) {
    let (signed, signature) = jwt.rsplit_once('.').unwrap();
    let (header, claims) = signed.split_once('.').unwrap();
    let json = |text| serde_json::from_slice(&unbase64url(text)).unwrap();
    (json(header), json(claims), signed, unbase64url(signature))
}

fn granted() -> (u16, Value) {
    (
        200,
        json!({"access_token": "AT", "token_type": "Bearer", "expires_in": "300"}),
    )
}

#[tokio::test]
async fn a_certificate_of_entra_id_signs_with_ps256() {
    let fixture = Fixture::new().await;
    let certificate = rcgen::generate_simple_self_signed(vec!["gw".to_owned()])
        .unwrap()
        .cert
        .pem();
    let config = json!({"tenantId": "t", "clientId": "c", "credentials": "certificate"});
    let source = fixture.cluster("azure-aks", &config, &[("tls.crt", &certificate), ("tls.key", RSA_KEY)]);
    fixture.answers([granted(), granted()]);
    let credential = mint(&source, MintReason::Initial).await.unwrap();
    mint(&source, MintReason::Refresh).await.unwrap();
    assert_eq!(token(&credential), "AT");

    let seen = fixture.seen();
    let jwts: Vec<String> = seen
        .iter()
        .flat_map(|request| form(request, "client_assertion"))
        .collect();
    let (header, claims, signed, signature) = parts(&jwts[0]);
    let der = CertificateDer::from_pem_slice(certificate.as_bytes()).unwrap();
    let digest = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, &der);
    assert_eq!(header["alg"], "PS256");
    assert_eq!(unbase64url(header["x5t#S256"].as_str().unwrap()), digest.as_ref());
    assert_eq!(claims["aud"], "https://login.microsoftonline.com/t/oauth2/v2.0/token");
    assert_eq!((&claims["iss"], &claims["sub"]), (&json!("c"), &json!("c")));
    assert!(claims["exp"].as_u64().unwrap() - claims["iat"].as_u64().unwrap() <= 600);
    let key = PrivatePkcs8KeyDer::from_pem_slice(RSA_KEY.as_bytes()).unwrap();
    let key = RsaKeyPair::from_pkcs8(key.secret_pkcs8_der()).unwrap();
    let public = UnparsedPublicKey::new(&RSA_PSS_2048_8192_SHA256, key.public_key().as_ref());
    public.verify(signed.as_bytes(), &signature).unwrap();
    assert_ne!(parts(&jwts[1]).1["jti"], claims["jti"]);
}

#[tokio::test]
async fn a_client_of_oauth_signs_with_es256() {
    let fixture = Fixture::new().await;
    let key = rcgen::KeyPair::generate_for(&rcgen::PKCS_ECDSA_P256_SHA256).unwrap();
    let config = json!({
        "grant": "client-credentials", "endpoint": "https://as.example.com/token?tenant=a%20b", "clientId": "c",
        "clientAuth": "private_key_jwt", "algorithm": "ES256", "assertionAudience": "https://as.example.com",
    });
    let source = fixture.cluster("oauth2", &config, &[("privateKey", &key.serialize_pem())]);
    fixture.answers([granted()]);
    mint(&source, MintReason::Initial).await.unwrap();
    let seen = fixture.seen();
    assert_eq!(seen[0].url, "https://as.example.com/token?tenant=a%20b");
    let jwt = form(&seen[0], "client_assertion").remove(0);
    let (header, claims, signed, signature) = parts(&jwt);
    assert_eq!(header, json!({"alg": "ES256", "typ": "JWT"}));
    assert_eq!(claims["aud"], "https://as.example.com");
    let public = UnparsedPublicKey::new(&ECDSA_P256_SHA256_FIXED, key.der_bytes());
    public.verify(signed.as_bytes(), &signature).unwrap();

    // With a key of another kind, nothing is signed or sent.
    let source = fixture.cluster("oauth2", &config, &[("privateKey", RSA_KEY)]);
    fixture.answers([granted()]);
    let error = mint(&source, MintReason::Initial).await.unwrap_err();
    assert_eq!(
        (error.class, error.code.as_str()),
        (MintErrorClass::Config, "secret.bad-format")
    );
    assert_eq!(fixture.seen().len(), 0);
}

#[tokio::test]
async fn a_google_key_file_is_only_used_with_google() {
    let fixture = Fixture::new().await;
    let file = |uri: &str| {
        let file = json!({
            "type": "service_account", "client_email": "sa@p.iam.gserviceaccount.com", "private_key_id": "k",
            "private_key": RSA_KEY, "token_uri": uri,
        });
        file.to_string()
    };
    let config = json!({"mode": "service-account-key"});
    let good = file("https://oauth2.googleapis.com/token");
    fixture.answers([granted()]);
    let source = fixture.cluster("gcp-gke", &config, &[("credentials.json", &good)]);
    assert_eq!(token(&mint(&source, MintReason::Initial).await.unwrap()), "AT");
    let seen = fixture.seen();
    let assertion = form(&seen[0], "assertion").remove(0);
    let (header, claims, ..) = parts(&assertion);
    assert_eq!(header, json!({"alg": "RS256", "typ": "JWT", "kid": "k"}));
    assert_eq!(claims["iss"], "sa@p.iam.gserviceaccount.com");

    // The first host is not granted, the second only to another plugin.
    for evil in [
        "https://evil.example/token",
        "https://as.example.com/token",
        "http://oauth2.googleapis.com/token",
    ] {
        fixture.answers([granted()]);
        let source = fixture.cluster("gcp-gke", &config, &[("credentials.json", &file(evil))]);
        let error = mint(&source, MintReason::Initial).await.unwrap_err();
        assert_eq!(error.class, MintErrorClass::Config, "{evil}");
        assert!(error.code.starts_with("egress."), "{evil}: {}", error.code);
        assert_eq!(fixture.seen().len(), 0, "{evil}");
    }
}
