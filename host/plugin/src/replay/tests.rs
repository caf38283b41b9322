use serde_json::json;

use super::case::TransportFailure;
use super::fakes::Attempt;
use super::*;
use tollgate_credential::{Credential, MintError};

fn single_case(yaml: &str) -> Case {
    let mut cases = parse(yaml).unwrap();
    assert_eq!(cases.len(), 1);
    cases.remove(0)
}

const HEAD: &str = "now: '2026-01-02T03:04:05Z'\nexpect: {token: T}\n";

#[test]
fn a_transcript_has_three_forms() {
    assert_eq!(single_case(HEAD).id, "1");
    assert_eq!(
        single_case("[{id: a, now: '2026-01-02T03:04:05Z', expect: {code: x}}]").id,
        "a"
    );
    let cases = parse("meta: {version: 1}\ncases:\n- {now: '2026-01-02T03:04:05Z', expect: {code: x}}").unwrap();
    assert_eq!(cases.len(), 1);
}

#[test]
fn invalid_cases_are_refused() {
    for (yaml, reason) in [
        ("", "there is no case"),
        ("cases: []", "there is no case"),
        ("cases: 1", "`cases` is not a list"),
        ("text", "a mapping or a list"),
        ("a: [", "line"),
        ("now: '2026-01-02T03:04:05Z'", "missing field `expect`"),
        (
            "now: '2026-01-02T03:04:05Z'\nexpect: {expiry: null}",
            "`expect` needs `token`",
        ),
        (
            "now: '2026-01-02T03:04:05Z'\nexpect: {token: T, code: x}",
            "a credential and an error",
        ),
        (
            "now: '2026-01-02T03:04:05Z'\nexpect: {tokne: T}",
            "unknown field `tokne`",
        ),
        ("now: noon\nexpect: {token: T}", "`now`"),
        (
            "kind: cache\nnow: '2026-01-02T03:04:05Z'\nexpect: {token: T}",
            "kind `cache` is not replayed",
        ),
        ("{meta: 1, mode: x, cases: [1]}", "`mode` stands beside `cases`"),
    ] {
        let text = parse(yaml).unwrap_err().to_string();
        assert!(text.contains(reason), "{yaml}: {text}");
    }
    for (more, reason) in [
        ("requests: [{answer: {}}]", "a `status` or a `fail`"),
        (
            "requests: [{answer: {status: 200, fail: tls}}]",
            "no `status` and no content",
        ),
        ("requests: [{answer: {status: 200, json: 1, body: x}}]", "not both"),
        ("requests: []\nresponses: [{status: 200}]", "not both"),
        ("responses: [{transport_error: gremlins}]", "no known `transport_error`"),
        (
            "requests: [{expect: {method: GET, url: 'https://a', heders: {}}}]",
            "unknown field `heders`",
        ),
    ] {
        let text = parse(&format!("{HEAD}{more}")).unwrap_err().to_string();
        assert!(text.contains(reason), "{more}: {text}");
    }
}

#[test]
fn both_notations_of_requests_are_equivalent() {
    let tables = single_case(&format!(
        "{HEAD}expect_requests: [{{method: GET, url: 'https://a.example:8443/x'}}]\n\
         responses: [{{transport_error: connection-timeout}}, {{status: 204}}]"
    ));
    let own = single_case(&format!(
        "{HEAD}requests: [{{expect: {{method: GET, url: 'https://a.example:8443/x'}}, answer: {{fail: connect}}}},\
         {{answer: {{status: 204}}}}]"
    ));
    for case in [&tables, &own] {
        assert_eq!(case.expected_hosts(), BTreeSet::from(["a.example:8443".to_owned()]));
        let fails: Vec<_> = case
            .exchanges
            .iter()
            .map(|exchange| exchange.answer.as_ref().and_then(|answer| answer.fail))
            .collect();
        assert_eq!(fails, [Some(TransportFailure::Connect), None]);
        assert_eq!(case.budget(), DEFAULT_CASE_BUDGET);
    }
    let late = single_case(&format!("{HEAD}requests: [{{answer: {{fail: timeout}}}}]"));
    assert_eq!(late.budget(), TIMEOUT_CASE_BUDGET);
}

fn attempt(url: &str, body: &str) -> Attempt {
    let mut headers = http::HeaderMap::new();
    headers.insert("authorization", http::HeaderValue::from_static("Bearer another-key"));
    headers.insert("x-role", http::HeaderValue::from_static("deployer"));
    Attempt {
        host: "a.example".to_owned(),
        seen: Some(fakes::ReceivedRequest {
            method: "POST".to_owned(),
            url: url.to_owned(),
            headers,
            body: body.as_bytes().to_vec(),
        }),
    }
}

const CASE_WITH_SECRETS: &str = "now: '2026-01-02T03:04:05Z'\nsecret: {apiKey: key-of-the-test, pin: '42'}\n\
                         expect: {token: token-of-the-test}\n";

fn differences(request: &str, attempts: &[Attempt]) -> Vec<String> {
    let case = single_case(&format!(
        "{CASE_WITH_SECRETS}requests: [{{expect: {{method: POST, url: 'https://a.example/t', {request}}}, answer: {{status: 200}}}}]"
    ));
    compare::requests(&case, attempts, &SecretLabels::for_case(&case))
}

#[test]
fn differences_name_fields_and_show_no_secret() {
    let url = "https://a.example/t";
    let sent = attempt(url, r#"{"apiKey":"key-of-the-test","pin":"42","more":1}"#);
    for (request, expected) in [
        ("headers: {x-role: deployer}", vec![]),
        ("json: {apiKey: key-of-the-test, pin: '42', more: 1}", vec![]),
        ("json: {apiKey: <any>, pin: <any>, more: 1}", vec![]),
        (
            "headers: {x-role: admin}",
            vec!["request 1: field `x-role`: expected `admin`, observed `deployer`"],
        ),
        (
            "headers: {Authorization: Bearer key-of-the-test}",
            vec!["request 1: field `authorization`: expected `Bearer <secret apiKey>`, observed `Bearer <11 bytes>`"],
        ),
        (
            "absent_headers: [X-Role]",
            vec!["request 1: field `X-Role` must not be sent"],
        ),
        (
            "json: {apiKey: other, pin: '42', role: x}",
            vec![
                "request 1: json `$.apiKey`: expected `other`, observed `<secret apiKey>`",
                "request 1: json: `$.role` is missing",
                "request 1: json: `$.more` was not expected",
            ],
        ),
        (
            "body: x",
            vec![
                r#"request 1: body: expected `x`, observed `{"apiKey":"<secret apiKey>","pin":"<secret pin>","more":1}`"#,
            ],
        ),
    ] {
        assert_eq!(differences(request, std::slice::from_ref(&sent)), expected, "{request}");
    }
    let form = attempt(url, "a=1&a=2&key=key-of-the-test");
    for (request, expected) in [
        ("form: [[key, key-of-the-test], [a, '1'], [a, '2']]", vec![]),
        (
            "form: [[a, '2'], [a, '1'], [b, x]]",
            vec![
                "request 1: form `a`: expected `2`, `1`, observed `1`, `2`",
                "request 1: form `b`: expected `x`, observed `nothing`",
                "request 1: form: `key` was not expected",
            ],
        ),
        (
            "form: [[a, '1'], [a, '2'], [key, <jwt>]]",
            vec!["request 1: form `key`: expected `<jwt>`, observed `<secret apiKey>`"],
        ),
    ] {
        assert_eq!(differences(request, std::slice::from_ref(&form)), expected, "{request}");
    }
}

#[test]
fn assertion_claims_are_compared_with_the_case() {
    use base64::Engine as _;

    let part = |value: serde_json::Value| base64::engine::general_purpose::URL_SAFE_NO_PAD.encode(value.to_string());
    // 2026-01-02T03:04:05Z and a minute.
    let claims = json!({"iss": "c", "jti": "unique", "exp": 1_767_323_105});
    let jwt = format!("{}.{}.c2ln", part(json!({"alg": "RS256"})), part(claims));
    let sent = attempt("https://a.example/t", &format!("grant_type=x&client_assertion={jwt}"));
    let expect = |more: &str| format!("client_assertion: {{header: {{alg: RS256}}, {more}}}");
    for (expected, differing) in [
        ("claims: {iss: c, jti: '<any, unique>', exp: 1767323105}", ""),
        ("claims: {iss: c, jti: '<any>', exp: 0}, max_lifetime_s: 60", ""),
        (
            "claims: {iss: c, jti: '<any>', exp: 0}, max_lifetime_s: 59",
            "claim `exp`",
        ),
        (
            "claims: {iss: d, jti: '<any>', exp: 1767323105}",
            "claim `iss`: expected `\"d\"`, observed `\"c\"`",
        ),
        ("claims: {iss: c, exp: 1767323105}", "claim `jti` was not expected"),
        (
            "claims: {iss: c, jti: '<any>', exp: 1767323105, aud: x}",
            "observed `nothing`",
        ),
        (
            "claims: {iss: c, jti: '<any>', exp: 1767323105}, sample: x",
            "differs from `sample`",
        ),
    ] {
        let observed = differences(&expect(expected), std::slice::from_ref(&sent));
        assert_eq!(
            observed.len(),
            usize::from(!differing.is_empty()),
            "{expected}: {observed:?}"
        );
        assert!(
            observed.iter().all(|text| text.contains(differing)),
            "{expected}: {observed:?}"
        );
    }
    let none = differences("assertion: {header: {}, claims: {}}", &[sent]);
    assert_eq!(none, ["request 1: `assertion`: no JWT"]);
}

#[test]
fn missing_and_unexpected_requests_are_differences() {
    assert_eq!(
        differences("headers: {}", &[]),
        ["request 1 was not sent: POST https://a.example/t"]
    );
    // Also one of which the case does not say what it is like.
    let case = single_case(&format!("{CASE_WITH_SECRETS}requests: [{{answer: {{status: 200}}}}]"));
    let of = |attempts: &[Attempt]| compare::requests(&case, attempts, &SecretLabels::for_case(&case));
    assert_eq!(of(&[]), ["request 1 was not sent"]);
    assert_eq!(of(&[attempt("https://a.example/t", "")]), [""; 0]);
    let elsewhere = attempt("https://a.example/other?key=key-of-the-test", "");
    let fine = attempt("https://a.example/t", "");
    assert_eq!(
        differences("headers: {}", &[fine, elsewhere.clone()]),
        ["request 2 was not expected: POST https://a.example/other?key=<secret apiKey>"]
    );
    assert_eq!(
        differences("headers: {}", &[elsewhere]),
        ["request 1: url: expected `https://a.example/t`, observed `https://a.example/other?key=<secret apiKey>`"]
    );
    let lost = |host: &str| Attempt {
        host: host.to_owned(),
        seen: None,
    };
    assert!(differences("headers: {}", &[lost("a.example")]).is_empty());
    assert_eq!(
        differences("headers: {}", &[lost("b.example")]),
        ["request 1: url: expected `https://a.example/t`, observed `host b.example`"]
    );
}

fn outcome_differences(expect: &str, minted: &Result<Credential, MintError>, warnings: &[&str]) -> Vec<String> {
    let case = single_case(&format!(
        "now: '2026-01-02T03:04:05Z'\nsecret: {{key: key-of-the-test}}\nexpect: {expect}"
    ));
    let warnings: Vec<String> = warnings.iter().map(|text| (*text).to_owned()).collect();
    outcome::differences(&case.expect, minted, &warnings, &SecretLabels::for_case(&case))
}

#[test]
fn credentials_are_compared_with_the_case() {
    let token = tollgate_credential::Token::parse("token-of-the-test".to_owned()).unwrap();
    let minted = Ok(Credential {
        expires_at: Some("2026-01-02T04:04:05Z".parse().unwrap()),
        ..Credential::from_token(token)
    });
    for (expect, expected) in [
        ("{token: token-of-the-test}", vec![]),
        (
            "{token: token-of-the-test, expiry: '2026-01-02T04:04:05Z', warnings: [one]}",
            vec![],
        ),
        (
            "{token: key-of-the-test}",
            vec!["token: expected <secret key>, observed <17 bytes>"],
        ),
        (
            "{token: token-of-the-test, expiry: null}",
            vec!["expiry: expected unknown, observed 2026-01-02T04:04:05Z"],
        ),
        (
            "{token: token-of-the-test, expiry: soon}",
            vec!["expiry: `soon` is no time"],
        ),
        (
            "{token: token-of-the-test, cacheable: false}",
            vec!["cacheable: expected false, observed true"],
        ),
        (
            "{token: token-of-the-test, client_cert: true, headers: {x-a: b}}",
            vec!["there is no client certificate", "headers: there is no `x-a`"],
        ),
        (
            "{token: token-of-the-test, revoke: {lease: x}}",
            vec!["revoke: there is nothing to revoke with"],
        ),
        (
            "{token: token-of-the-test, warnings: []}",
            vec!["warnings: expected none, observed `one warning`"],
        ),
        (
            "{token: token-of-the-test, warnings: [two]}",
            vec!["warnings: none contains `two`"],
        ),
        ("{code: x}", vec!["expected an error, observed a credential"]),
    ] {
        let observed = outcome_differences(expect, &minted, &["one warning"]);
        assert_eq!(observed.len(), expected.len(), "{expect}: {observed:?}");
        for (observed, expected) in observed.iter().zip(expected) {
            assert!(observed.starts_with(expected), "{expect}: {observed}");
        }
    }
}

#[test]
fn errors_are_compared_with_the_case() {
    let minted = Err(MintError {
        http_status: Some(503),
        retry_after: Some(Duration::from_secs(7)),
        correlation: Some("r-1".to_owned()),
        ..MintError::new(
            tollgate_credential::MintErrorClass::Retryable,
            "broker.503",
            "the broker is busy",
        )
    });
    let all = "{error_class: retryable, code: broker.503, message: busy, http_status: 503, retry_after_s: 7, correlation: r-1}";
    assert_eq!(outcome_differences(all, &minted, &[]), Vec::<String>::new());
    let none = "{error_class: denied, code: x, message: nothing, http_status: 500, retry_after_s: 8, correlation: r-2}";
    let observed = outcome_differences(none, &minted, &[]);
    assert_eq!(observed.len(), 6, "{observed:?}");
    assert_eq!(
        outcome_differences("{token: T}", &minted, &[]),
        ["expected a credential, observed an error (retryable, broker.503: the broker is busy)"]
    );
    let shown = serde_json::to_value(ReplayOutcome::from_result(&minted)).unwrap();
    let expected = json!({
        "kind": "error", "class": "retryable", "code": "broker.503", "message": "the broker is busy",
        "httpStatus": 503, "retryAfterSeconds": 7, "correlation": "r-1",
    });
    assert_eq!(shown, expected);
}

/// The answers come after the gateway's own checks of a request.
#[test]
fn the_egress_client_gets_answers_only_after_its_own_checks() {
    use crate::egress::{EgressAllowList, Error, Request};

    let environment = Arc::new(CaseEnvironment::default());
    let hosts = ["a.example", "10.1.2.3", "a!b.example"];
    let allow_list = EgressAllowList::new(&hosts.map(entry)).unwrap();
    let send = |url: &str, answer: &str| {
        environment.set(&single_case(&format!("{HEAD}requests: [{{answer: {answer}}}]")));
        let client = EgressClient::with_recorded(environment.clone());
        let request = Request {
            method: http::Method::GET,
            target: allow_list.allow(url).unwrap(),
            query: None,
            headers: Vec::new(),
            body: zeroize::Zeroizing::new(Vec::new()),
            timeout: Duration::from_millis(500),
        };
        let sent = crate::block_on_new_thread(|| async move { client.send(request).await }).unwrap();
        (sent, environment.attempts())
    };
    for url in ["https://a.example/x", "https://10.1.2.3/x"] {
        let (sent, attempts) = send(url, "{status: 201, json: {a: b}}");
        let response = sent.unwrap();
        assert_eq!(
            (response.status.as_u16(), response.body.as_slice()),
            (201, br#"{"a":"b"}"#.as_slice())
        );
        let [Attempt { seen: Some(seen), .. }] = attempts.as_slice() else {
            panic!("one request arrives")
        };
        assert_eq!((seen.method.as_str(), seen.url.as_str()), ("GET", url));
    }
    let url = "https://a.example/x";
    for (fail, arrives) in [
        ("dns", false),
        ("connect", false),
        ("tls", false),
        ("timeout", true),
        ("truncated", true),
    ] {
        let (sent, attempts) = send(url, &format!("{{fail: {fail}}}"));
        let error = sent.unwrap_err();
        let is_expected = match fail {
            "dns" => matches!(error, Error::Dns { .. }),
            "connect" => matches!(error, Error::Connect { .. }),
            "tls" => matches!(error, Error::Tls { .. }),
            "timeout" => matches!(error, Error::Timeout { .. }),
            _ => matches!(error, Error::Truncated { .. }),
        };
        assert!(is_expected, "{fail}: {error:?}");
        let arrived: Vec<bool> = attempts.iter().map(|attempt| attempt.seen.is_some()).collect();
        assert_eq!(arrived, [arrives], "{fail}");
    }
    // A host that no certificate can name, and a body above the limit, get no answer.
    let (sent, attempts) = send("https://a!b.example/x", "{status: 200}");
    assert!(matches!(sent.unwrap_err(), Error::Tls { .. }) && attempts.is_empty());
    let long = "a".repeat(1024 * 1024 + 1);
    let (sent, _) = send(url, &format!("{{status: 200, body: {long}}}"));
    assert!(matches!(sent.unwrap_err(), Error::TooLarge { what: "body", .. }));
}
