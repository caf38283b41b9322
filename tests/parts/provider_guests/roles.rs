//! EKS tokens with chains of AWS roles, web identities and cached sessions.

use aws_lc_rs::{digest, hmac};
use serde_json::{Value, json};
use tollgate_credential::{MintErrorClass, MintReason};

use crate::provider_guests::fixture::{Fixture, NOW, end, field, form, mint, token, unbase64url};
use test_support::providers::{Reply, Seen};

const STATIC: [(&str, &str); 3] = [
    ("accessKeyId", "AKIDEXAMPLE"),
    ("secretAccessKey", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
    ("sessionToken", "static+session/token=="),
];

fn config() -> Value {
    json!({
        "region": "us-west-2",
        "clusterName": "prod-eks",
        "roleArn": "arn:aws:iam::123456789012:role/first",
        "externalId": "ticket:42",
        "chain": [{"roleArn": "arn:aws:iam::210987654321:role/second", "sessionName": "deploy", "durationSeconds": 900}],
    })
}

fn session(name: &str, expiration: &Value) -> Value {
    json!({"AssumeRoleResponse": {"AssumeRoleResult": {"Credentials": {
        "AccessKeyId": format!("ASIA{name}"),
        "SecretAccessKey": format!("secret-key-of-{name}"),
        "SessionToken": format!("session+token/of-{name}=="),
        "Expiration": expiration,
    }}}})
}

/// The signature that STS would compute for the request it received.
fn signature(seen: &Seen, access_key: &str) -> String {
    let hex = |bytes: &[u8]| bytes.iter().map(|byte| format!("{byte:02x}")).collect::<String>();
    let authorization = field(seen, "authorization").unwrap();
    let (_, names) = authorization.split_once("SignedHeaders=").unwrap();
    let names = names.split(',').next().unwrap();
    let mut canonical = "POST\n/\n\n".to_owned();
    for name in names.split(';') {
        canonical.push_str(&format!("{name}:{}\n", field(seen, name).unwrap()));
    }
    let payload = hex(digest::digest(&digest::SHA256, &seen.body).as_ref());
    canonical.push_str(&format!("\n{names}\n{payload}"));
    let date = field(seen, "x-amz-date").unwrap();
    let steps = [&date[..8], "us-west-2", "sts", "aws4_request"];
    let canonical = hex(digest::digest(&digest::SHA256, canonical.as_bytes()).as_ref());
    let text = format!("AWS4-HMAC-SHA256\n{date}\n{}\n{canonical}", steps.join("/"));
    let sign = |key: &[u8], text: &str| hmac::sign(&hmac::Key::new(hmac::HMAC_SHA256, key), text.as_bytes());
    let mut key = format!("AWS4{access_key}").into_bytes();
    for step in steps {
        key = sign(&key, step).as_ref().to_vec();
    }
    hex(sign(&key, &text).as_ref())
}

fn assert_signed(seen: &Seen, access_key_id: &str, access_key: &str, session_token: &str) {
    let authorization = field(seen, "authorization").unwrap();
    let begin = format!(
        "AWS4-HMAC-SHA256 Credential={access_key_id}/20260102/us-west-2/sts/aws4_request, \
         SignedHeaders=content-type;host;x-amz-date;x-amz-security-token, Signature="
    );
    assert_eq!(
        authorization.strip_prefix(&begin),
        Some(signature(seen, access_key).as_str())
    );
    assert_eq!(field(seen, "x-amz-security-token"), Some(session_token));
    assert_eq!(field(seen, "accept"), Some("application/json"));
}

#[tokio::test]
async fn each_role_signs_the_request_for_the_next_and_the_last_signs_the_token() {
    let fixture = Fixture::new().await;
    let source = fixture.cluster("aws-eks", &config(), &STATIC);
    fixture.answers([
        (200, session("ONE", &json!(1_767_326_645.0))),
        (200, session("TWO", &json!("2026-01-02T03:14:05Z"))),
    ]);
    let credential = mint(&source, MintReason::Initial).await.unwrap();
    let seen = fixture.seen();
    assert_eq!(seen.len(), 2);
    assert!(
        seen.iter()
            .all(|request| request.url == "https://sts.us-west-2.amazonaws.com/")
    );
    assert_signed(&seen[0], STATIC[0].1, STATIC[1].1, STATIC[2].1);
    assert_signed(&seen[1], "ASIAONE", "secret-key-of-ONE", "session+token/of-ONE==");
    assert_eq!(form(&seen[0], "ExternalId"), ["ticket:42"]);
    assert_eq!(form(&seen[0], "RoleArn"), ["arn:aws:iam::123456789012:role/first"]);
    assert_eq!(form(&seen[1], "ExternalId"), [""; 0]);
    assert_eq!(form(&seen[1], "RoleSessionName"), ["deploy"]);
    assert_eq!(form(&seen[1], "DurationSeconds"), ["900"]);

    // The session expires before the token would.
    assert_eq!(end(&credential), "2026-01-02T03:14:05Z");
    let url = unbase64url(token(&credential).strip_prefix("k8s-aws-v1.").unwrap());
    let url = url::Url::parse(std::str::from_utf8(&url).unwrap()).unwrap();
    let query: std::collections::BTreeMap<_, _> = url.query_pairs().into_owned().collect();
    assert_eq!(query["X-Amz-Security-Token"], "session+token/of-TWO==");
    assert!(query["X-Amz-Credential"].starts_with("ASIATWO/"));
}

#[tokio::test]
async fn a_session_is_cached_until_the_cluster_refuses_it_or_it_expires() {
    let fixture = Fixture::new().await;
    let mut config = config();
    config["chain"] = json!([]);
    let source = fixture.cluster("aws-eks", &config, &STATIC);
    let hour = || (200, session("ONE", &json!("2026-01-02T04:04:05Z")));
    for (now, reason, requests, expected) in [
        (NOW, MintReason::Initial, 1, "2026-01-02T03:19:05Z"),
        ("2026-01-02T03:16:00Z", MintReason::Refresh, 0, "2026-01-02T03:31:00Z"),
        (
            "2026-01-02T03:17:00Z",
            MintReason::Unauthorized,
            1,
            "2026-01-02T03:32:00Z",
        ),
        // It is dropped fifteen minutes before it expires.
        ("2026-01-02T03:49:04Z", MintReason::Refresh, 0, "2026-01-02T04:04:04Z"),
        ("2026-01-02T03:49:05Z", MintReason::Refresh, 1, "2026-01-02T04:04:05Z"),
    ] {
        fixture.at(now);
        fixture.answers([hour()]);
        let credential = mint(&source, reason).await.unwrap();
        assert_eq!(
            (fixture.seen().len(), end(&credential).as_str()),
            (requests, expected),
            "{now}"
        );
    }
    // Another cluster has a separate cache.
    fixture.answers([hour()]);
    mint(&fixture.cluster("aws-eks", &config, &STATIC), MintReason::Initial)
        .await
        .unwrap();
    assert_eq!(fixture.seen().len(), 1);
}

#[tokio::test]
async fn an_expired_token_is_read_again_and_a_new_one_is_tried_once() {
    let fixture = Fixture::new().await;
    let config = json!({
        "region": "us-west-2", "clusterName": "prod-eks", "webIdentity": "ambient:sa-token",
        "roleArn": "arn:aws:iam::123456789012:role/gw",
    });
    let ended = || (400, json!({"Error": {"Code": "ExpiredTokenException", "Message": "m"}}));
    let granted = || {
        let credentials = session("ONE", &json!(1_767_326_645))["AssumeRoleResponse"]["AssumeRoleResult"].clone();
        (
            200,
            json!({"AssumeRoleWithWebIdentityResponse": {"AssumeRoleWithWebIdentityResult": credentials}}),
        )
    };
    for (tokens, replies, sent) in [
        (&["old", "new"][..], vec![ended(), granted()], &["old", "new"][..]),
        (
            &["old", "new", "newer"],
            vec![ended(), ended(), granted()],
            &["old", "new"],
        ),
        (&["old"], vec![ended(), granted()], &["old"]),
    ] {
        let source = fixture.cluster("aws-eks", &config, &[]);
        fixture.pod_tokens("sts.amazonaws.com", tokens);
        let minted = replies.len() == sent.len();
        fixture.answers(replies);
        let result = mint(&source, MintReason::Initial).await;
        let seen: Vec<String> = fixture
            .seen()
            .iter()
            .flat_map(|seen| form(seen, "WebIdentityToken"))
            .collect();
        assert_eq!(seen, sent);
        match result {
            Ok(credential) => assert_eq!((minted, end(&credential).as_str()), (true, "2026-01-02T03:19:05Z")),
            Err(error) => assert_eq!((minted, error.class), (false, MintErrorClass::Denied)),
        }
    }
}

#[tokio::test]
async fn credentials_in_xml_are_refused_but_errors_in_xml_are_read() {
    let fixture = Fixture::new().await;
    let source = fixture.cluster("aws-eks", &config(), &STATIC);
    let xml = |status, body: &str| Reply::Answer {
        status,
        headers: vec![
            ("content-type".to_owned(), "text/xml".to_owned()),
            ("x-amzn-requestid".to_owned(), "11-22".to_owned()),
        ],
        body: body.as_bytes().to_vec(),
    };
    fixture.replies([xml(
        200,
        "<AssumeRoleResponse><SecretAccessKey>leaked</SecretAccessKey></AssumeRoleResponse>",
    )]);
    let error = mint(&source, MintReason::Initial).await.unwrap_err();
    assert_eq!(
        (error.class, error.code.as_str()),
        (MintErrorClass::Permanent, "answer.not-json")
    );
    assert!(
        error.message.contains("XML") && !error.message.contains("leaked"),
        "{}",
        error.message
    );

    fixture.replies([xml(
        400,
        "<ErrorResponse><Error><Code>Throttling</Code><Message>slow</Message></Error></ErrorResponse>",
    )]);
    let error = mint(&source, MintReason::Initial).await.unwrap_err();
    assert_eq!(
        (error.class, error.code.as_str()),
        (MintErrorClass::Retryable, "aws.Throttling")
    );
    assert_eq!(error.correlation.as_deref(), Some("11-22"));
}

/// Two recorded EKS tokens, one from static keys and one from a session.
#[tokio::test]
async fn tokens_of_eks_are_the_known_ones_byte_for_byte() {
    const OF_KEYS: &str = "k8s-aws-v1.aHR0cHM6Ly9zdHMudXMtd2VzdC0yLmFtYXpvbmF3cy5jb20vP0FjdGlvbj1HZXRDYWxsZXJJZGVudGl0eSZWZXJzaW9uPTIwMTEtMDYtMTUmWC1BbXotQWxnb3JpdGhtPUFXUzQtSE1BQy1TSEEyNTYmWC1BbXotQ3JlZGVudGlhbD1BS0lERVhBTVBMRSUyRjIwMjYwMTAyJTJGdXMtd2VzdC0yJTJGc3RzJTJGYXdzNF9yZXF1ZXN0JlgtQW16LURhdGU9MjAyNjAxMDJUMDMwNDA1WiZYLUFtei1FeHBpcmVzPTYwJlgtQW16LVNpZ25lZEhlYWRlcnM9aG9zdCUzQngtazhzLWF3cy1pZCZYLUFtei1TaWduYXR1cmU9NzZkZTllNDI3NGE3MTc5NTVlZTY3MzYzNzUzY2M2NDY4N2ZhYWUwNWM0MWUzNmE3ZWFkOTExMDMxMDJhZDk2ZQ";
    const OF_A_SESSION: &str = "k8s-aws-v1.aHR0cHM6Ly9zdHMudXMtd2VzdC0yLmFtYXpvbmF3cy5jb20vP0FjdGlvbj1HZXRDYWxsZXJJZGVudGl0eSZWZXJzaW9uPTIwMTEtMDYtMTUmWC1BbXotQWxnb3JpdGhtPUFXUzQtSE1BQy1TSEEyNTYmWC1BbXotQ3JlZGVudGlhbD1BU0lBRVhBTVBMRSUyRjIwMjYwMTAyJTJGdXMtd2VzdC0yJTJGc3RzJTJGYXdzNF9yZXF1ZXN0JlgtQW16LURhdGU9MjAyNjAxMDJUMDMwNDA1WiZYLUFtei1FeHBpcmVzPTYwJlgtQW16LVNlY3VyaXR5LVRva2VuPXRvazMmWC1BbXotU2lnbmVkSGVhZGVycz1ob3N0JTNCeC1rOHMtYXdzLWlkJlgtQW16LVNpZ25hdHVyZT05YzkyNTI3ZWZjYjY3MTIxYmRhMGYyNjdjYTAxZjY3ODQyYTIzZGFlMzg3MmU1YmY2MGEyZWUyMjAzY2IyMDcw";
    let fixture = Fixture::new().await;
    let config = json!({"region": "us-west-2", "clusterName": "prod-eks"});
    let keys = [
        ("accessKeyId", "AKIDEXAMPLE"),
        ("secretAccessKey", "wJalrXUtnFEMI/K7MDENG+bPxRfiCYEXAMPLEKEY"),
    ];
    let session = [
        ("accessKeyId", "ASIAEXAMPLE"),
        ("secretAccessKey", "sk3"),
        ("sessionToken", "tok3"),
    ];
    for (values, known) in [(&keys[..], OF_KEYS), (&session[..], OF_A_SESSION)] {
        let source = fixture.cluster("aws-eks", &config, values);
        let credential = mint(&source, MintReason::Initial).await.unwrap();
        assert_eq!(token(&credential), known);
        assert_eq!(end(&credential), "2026-01-02T03:19:05Z");
    }
    assert!(fixture.seen().is_empty(), "a request was sent");
}
