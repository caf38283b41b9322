//! The error class and code of responses without a credential.

use serde_json::{Value, json};
use tollgate_credential::{MintErrorClass, MintReason};

use crate::provider_guests::fixture::{Fixture, mint, token};
use test_support::providers::Reply;

fn oauth2() -> Value {
    json!({
        "grant": "token-exchange", "endpoint": "https://as.example.com/token", "clientAuth": "none",
        "subjectTokenType": "urn:ietf:params:oauth:token-type:jwt",
    })
}

fn hub() -> Value {
    json!({"server": "https://hub.example.com", "namespace": "gw", "serviceAccount": "deployer"})
}

#[tokio::test]
async fn the_error_in_the_body_takes_precedence_over_the_status() {
    let fixture = Fixture::new().await;
    let aks = json!({"tenantId": "t", "clientId": "c"});
    let vault = json!({"address": "https://vault.example.com", "role": "r"});
    let cases = [
        (
            "oauth2",
            oauth2(),
            200,
            json!({"error": "invalid_grant"}),
            MintErrorClass::Denied,
            "oauth.invalid_grant",
        ),
        (
            "oauth2",
            oauth2(),
            200,
            json!({"access_token": "AT", "token_type": "DPoP"}),
            MintErrorClass::Permanent,
            "oauth.token-type",
        ),
        (
            "oauth2",
            oauth2(),
            200,
            json!({"access_token": 7}),
            MintErrorClass::Permanent,
            "oauth.no-token",
        ),
        (
            "oauth2",
            oauth2(),
            200,
            json!({"access_token": "Bearer AT"}),
            MintErrorClass::Permanent,
            "token.bytes",
        ),
        (
            "oauth2",
            oauth2(),
            200,
            json!({"access_token": ""}),
            MintErrorClass::Permanent,
            "token.bytes",
        ),
        (
            "oauth2",
            oauth2(),
            400,
            json!({"error": "invalid_target"}),
            MintErrorClass::Config,
            "oauth.invalid_target",
        ),
        (
            "oauth2",
            oauth2(),
            400,
            json!({"error": "slow_down"}),
            MintErrorClass::Retryable,
            "oauth.slow_down",
        ),
        ("oauth2", oauth2(), 307, json!({}), MintErrorClass::Config, "http.307"),
        (
            "oauth2",
            oauth2(),
            501,
            json!({}),
            MintErrorClass::Permanent,
            "http.501",
        ),
        (
            "azure-aks",
            aks.clone(),
            400,
            json!({"error": "invalid_scope"}),
            MintErrorClass::Config,
            "oauth.invalid_scope",
        ),
        (
            "azure-aks",
            aks,
            400,
            json!({"error": "invalid_request"}),
            MintErrorClass::Config,
            "oauth.invalid_request",
        ),
        (
            "kubernetes-token-request",
            hub(),
            503,
            json!({}),
            MintErrorClass::Retryable,
            "http.503",
        ),
        (
            "kubernetes-token-request",
            hub(),
            401,
            json!({"reason": "Unauthorized"}),
            MintErrorClass::Denied,
            "kubernetes.Unauthorized",
        ),
        (
            "kubernetes-token-request",
            hub(),
            201,
            json!({"status": {}}),
            MintErrorClass::Permanent,
            "answer.incomplete",
        ),
        (
            "vault",
            vault.clone(),
            412,
            json!({"errors": []}),
            MintErrorClass::Retryable,
            "vault.412",
        ),
        (
            "vault",
            vault.clone(),
            307,
            json!({}),
            MintErrorClass::Config,
            "vault.307",
        ),
        (
            "vault",
            vault,
            500,
            json!({"errors": ["namespaces \"x\" not found"]}),
            MintErrorClass::Retryable,
            "vault.500",
        ),
        (
            "upbound",
            json!({"organization": "acme"}),
            404,
            json!({"title": "Not Found"}),
            MintErrorClass::Config,
            "http.404",
        ),
    ];
    let values = [
        ("subjectToken", "s"),
        ("clientSecret", "s"),
        ("hubToken", "h"),
        ("token", "t"),
    ];
    for (provider, config, status, body, class, code) in cases {
        fixture.answers([(status, body.clone())]);
        let error = mint(&fixture.cluster(provider, &config, &values), MintReason::Initial)
            .await
            .unwrap_err();
        assert_eq!(
            (error.class, error.code.as_str()),
            (class, code),
            "{provider} {status} {body}"
        );
        assert_eq!(fixture.seen().len(), 1, "{provider} {status}");
    }
}

#[tokio::test]
async fn the_wait_is_the_one_the_issuer_asks_for() {
    let fixture = Fixture::new().await;
    let source = fixture.cluster("kubernetes-token-request", &hub(), &[("hubToken", "h")]);
    let details = |seconds: u64| json!({"kind": "Status", "details": {"retryAfterSeconds": seconds}});
    for (headers, body, expected) in [
        (vec![], details(3), Some(3)),
        (vec![("retry-after", "7")], details(3), Some(7)),
        (
            vec![("retry-after", "Fri, 02 Jan 2026 03:04:35 GMT")],
            json!({}),
            Some(30),
        ),
        (vec![("retry-after", "86400")], json!({}), Some(600)),
        (vec![], json!({}), None),
    ] {
        let headers = headers
            .iter()
            .map(|(name, value)| ((*name).to_owned(), (*value).to_owned()));
        fixture.replies([Reply::Answer {
            status: 429,
            headers: headers.collect(),
            body: body.to_string().into_bytes(),
        }]);
        let error = mint(&source, MintReason::Initial).await.unwrap_err();
        let seconds = error.retry_after.map(|wait| wait.as_secs());
        assert_eq!((error.class, seconds), (MintErrorClass::Retryable, expected), "{body}");
    }
}

#[tokio::test]
async fn transport_errors_and_missing_values_have_a_class() {
    let fixture = Fixture::new().await;
    let values = [("subjectToken", "s")];
    for (reply, class, code) in [
        (Reply::Timeout, MintErrorClass::Retryable, "egress.connect"),
        (Reply::Untrusted, MintErrorClass::Config, "egress.tls"),
    ] {
        fixture.replies([reply]);
        let error = mint(&fixture.cluster("oauth2", &oauth2(), &values), MintReason::Initial)
            .await
            .unwrap_err();
        assert_eq!((error.class, error.code.as_str()), (class, code));
    }
    fixture.answers([]);
    let error = mint(&fixture.cluster("oauth2", &oauth2(), &[]), MintReason::Initial)
        .await
        .unwrap_err();
    assert_eq!(
        (error.class, error.code.as_str()),
        (MintErrorClass::Config, "secret.not-found")
    );
    assert!(error.message.contains("`subjectToken`"), "{}", error.message);
    // The pod has no token for the audience.
    let eks = json!({
        "region": "us-west-2", "clusterName": "c", "webIdentity": "ambient:sa-token",
        "roleArn": "arn:aws:iam::123456789012:role/gw",
    });
    *fixture.world.pod.given.lock().unwrap() = json!({});
    let error = mint(&fixture.cluster("aws-eks", &eks, &[]), MintReason::Initial)
        .await
        .unwrap_err();
    assert_eq!(
        (error.class, error.code.as_str()),
        (MintErrorClass::Retryable, "ambient.unavailable")
    );
}

#[tokio::test]
async fn an_error_shows_no_secret_that_the_issuer_echoes() {
    let fixture = Fixture::new().await;
    let secret = "subject-token-value";
    let source = fixture.cluster("oauth2", &oauth2(), &[("subjectToken", secret)]);
    let description = format!("cannot read {secret}");
    fixture.answers([
        (
            400,
            json!({"error": "invalid_request", "error_description": description}),
        ),
        (200, json!({"access_token": "AT", "token_type": "bearer"})),
    ]);
    let error = mint(&source, MintReason::Initial).await.unwrap_err();
    assert!(
        !error.message.contains(secret) && error.message.contains("cannot read"),
        "{}",
        error.message
    );
    let credential = mint(&source, MintReason::Initial).await.unwrap();
    assert_eq!(
        (token(&credential), credential.expires_at, credential.cacheable),
        ("AT", None, true)
    );
}

#[tokio::test]
async fn a_service_account_token_expires_at_the_earlier_of_status_and_jwt() {
    use base64::Engine as _;

    let fixture = Fixture::new().await;
    let source = fixture.cluster("kubernetes-token-request", &hub(), &[("hubToken", "h")]);
    let encode = |value: Value| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(value.to_string());
    for (exp, expected) in [
        // At 03:14:05, and a year later.
        (1_767_323_645_u64, "2026-01-02T03:14:05Z"),
        (1_798_859_045, "2026-01-02T04:04:05Z"),
    ] {
        let jwt = format!(
            "{}.{}.c2ln",
            encode(json!({"alg": "RS256"})),
            encode(json!({"exp": exp}))
        );
        let status = json!({"token": jwt, "expirationTimestamp": "2026-01-02T04:04:05Z"});
        fixture.answers([(201, json!({"kind": "TokenRequest", "status": status}))]);
        let credential = mint(&source, MintReason::Initial).await.unwrap();
        assert_eq!(credential.expires_at.unwrap().to_string(), expected);
    }
}
