//! Cached logins and federated tokens, and the revocation of leases.

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};
use tollgate_credential::{Mint as _, MintErrorClass, MintReason};

use crate::provider_guests::fixture::{Fixture, end, field, mint, token};

fn vault() -> Value {
    json!({"address": "https://vault.example.com", "authRole": "gw", "role": "deployer", "namespace": "team-a"})
}

fn login(name: &str, seconds: u64) -> (u16, Value) {
    (
        200,
        json!({"auth": {"client_token": format!("hvs.login-{name}"), "lease_duration": seconds}}),
    )
}

fn lease() -> (u16, Value) {
    let data = json!({"service_account_token": "tok.en"});
    (
        200,
        json!({"lease_id": "kubernetes/creds/deployer/1", "lease_duration": 1800, "data": data, "warnings": ["capped"]}),
    )
}

fn denied() -> (u16, Value) {
    (403, json!({"errors": ["permission denied"]}))
}

#[tokio::test]
async fn a_login_is_reused_for_half_its_lifetime() {
    let fixture = Fixture::new().await;
    fixture.pod_tokens("vault", &["sa.jwt.v"]);
    let source = fixture.cluster("vault", &vault(), &[]);
    fixture.answers([login("one", 3600), lease()]);
    let credential = mint(&source, MintReason::Initial).await.unwrap();
    assert_eq!(credential.warnings, ["Vault: capped"]);
    assert_eq!(end(&credential), "2026-01-02T03:34:05Z");

    fixture.at("2026-01-02T03:30:00Z");
    fixture.answers([lease()]);
    mint(&source, MintReason::Refresh).await.unwrap();
    let seen = fixture.seen();
    assert_eq!(
        (seen.len(), field(&seen[0], "x-vault-token")),
        (1, Some("hvs.login-one"))
    );

    fixture.at("2026-01-02T03:34:05Z");
    // A lease ends with its login.
    fixture.answers([login("two", 600), lease()]);
    let credential = mint(&source, MintReason::Refresh).await.unwrap();
    assert_eq!(
        (fixture.seen().len(), end(&credential).as_str()),
        (2, "2026-01-02T03:44:05Z")
    );
}

#[tokio::test]
async fn a_cached_login_that_is_refused_is_renewed_once() {
    let fixture = Fixture::new().await;
    fixture.pod_tokens("vault", &["sa.jwt.v"]);
    let source = fixture.cluster("vault", &vault(), &[]);
    fixture.answers([login("one", 3600), lease()]);
    mint(&source, MintReason::Initial).await.unwrap();
    fixture.answers([denied(), login("two", 3600), lease()]);
    assert_eq!(token(&mint(&source, MintReason::Refresh).await.unwrap()), "tok.en");
    assert_eq!(fixture.seen().len(), 3);
    fixture.answers([denied(), login("three", 3600), denied()]);
    let error = mint(&source, MintReason::Refresh).await.unwrap_err();
    assert_eq!(
        (error.class, error.code.as_str(), fixture.seen().len()),
        (MintErrorClass::Denied, "vault.403", 3)
    );
    // A new login that is refused is not repeated.
    let source = fixture.cluster("vault", &vault(), &[]);
    fixture.answers([login("four", 3600), denied()]);
    assert_eq!(
        mint(&source, MintReason::Initial).await.unwrap_err().class,
        MintErrorClass::Denied
    );
    assert_eq!(fixture.seen().len(), 2);
}

#[tokio::test]
async fn a_lease_is_revoked() {
    let fixture = Fixture::new().await;
    let mut config = vault();
    config.as_object_mut().unwrap().remove("authRole");
    let source = fixture.cluster("vault", &config, &[("token", "hvs.static\n")]);
    fixture.answers([lease(), (204, json!(null)), denied()]);
    let credential = mint(&source, MintReason::Initial).await.unwrap();
    let lease = credential.revocation.unwrap();
    assert!(lease.expose_secret().ends_with("\nkubernetes/creds/deployer/1"));
    source.revoke(lease.clone()).await.unwrap();
    let seen = fixture.seen();
    assert_eq!(
        (seen[1].method.as_str(), seen[1].url.as_str()),
        ("PUT", "https://vault.example.com/v1/sys/leases/revoke")
    );
    assert_eq!(field(&seen[1], "x-vault-token"), Some("hvs.static"));
    assert_eq!(field(&seen[1], "x-vault-namespace"), Some("team-a"));
    assert_eq!(seen[1].body, br#"{"lease_id":"kubernetes/creds/deployer/1"}"#);
    let error = source.revoke(lease).await.unwrap_err();
    assert_eq!(error.class, MintErrorClass::Denied);
    // A value that no mint returned may not be sent to any host.
    let error = source.revoke(SecretString::from("another lease")).await.unwrap_err();
    assert_eq!(error.class, MintErrorClass::Config);
    assert_eq!(fixture.seen().len(), 3);
}

#[tokio::test]
async fn a_federated_token_is_reused_until_it_is_refused() {
    let fixture = Fixture::new().await;
    fixture.pod_tokens("//iam.googleapis.com/p", &["sa.jwt.g"]);
    let config = json!({
        "mode": "wif", "audience": "//iam.googleapis.com/p", "serviceAccount": "sa@p.iam.gserviceaccount.com",
        "delegates": ["d@p.iam.gserviceaccount.com"], "lifetimeSeconds": 600,
    });
    let source = fixture.cluster("gcp-gke", &config, &[]);
    let federated = |name: &str| {
        (
            200,
            json!({"access_token": format!("federated-{name}"), "expires_in": 3599}),
        )
    };
    let account = || {
        (
            200,
            json!({"accessToken": "ya29.I", "expireTime": "2026-01-02T03:14:05Z"}),
        )
    };
    fixture.answers([federated("one"), account()]);
    let credential = mint(&source, MintReason::Initial).await.unwrap();
    assert_eq!(end(&credential), "2026-01-02T03:14:05Z");
    let body: Value = serde_json::from_slice(&fixture.seen()[1].body).unwrap();
    assert_eq!(
        body["delegates"],
        json!(["projects/-/serviceAccounts/d@p.iam.gserviceaccount.com"])
    );
    assert_eq!(body["lifetime"], "600s");

    fixture.answers([account()]);
    mint(&source, MintReason::Refresh).await.unwrap();
    let seen = fixture.seen();
    assert_eq!(
        (seen.len(), field(&seen[0], "authorization")),
        (1, Some("Bearer federated-one"))
    );

    let unknown = (
        401,
        json!({"error": {"code": 401, "status": "UNAUTHENTICATED", "message": "no"}}),
    );
    fixture.answers([unknown, federated("two"), account()]);
    mint(&source, MintReason::Refresh).await.unwrap();
    assert_eq!(field(&fixture.seen()[2], "authorization"), Some("Bearer federated-two"));
}
