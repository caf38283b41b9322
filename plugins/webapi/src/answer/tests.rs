use super::*;

/// 2026-01-02T03:04:05Z.
const NOW: u64 = 1_767_323_045_000;

fn failure(status: u16, headers: &[(&str, &str)], body: &str) -> Failure {
    let headers: Vec<_> = headers
        .iter()
        .map(|(name, value)| ((*name).into(), (*value).into()))
        .collect();
    let seen = Seen {
        status,
        headers: &headers,
        body: body.as_bytes(),
    };
    seen.failure("$.token", NOW)
}

#[test]
fn a_status_has_its_class() {
    let table: [(Class, &[u16]); 4] = [
        (Class::Retryable, &[408, 425, 429, 500, 502, 503, 504, 520]),
        (Class::Denied, &[401, 403]),
        (Class::Config, &[301, 302, 307, 308, 400, 404, 405, 409, 410, 415, 422]),
        (Class::Permanent, &[200, 201, 204, 299, 501]),
    ];
    for (class, statuses) in table {
        for status in statuses {
            let found = failure(*status, &[], "");
            assert_eq!(found.class, class, "{status}");
            assert_eq!(found.http_status, Some(*status));
        }
    }
    assert!(failure(302, &[], "").message.contains("redirects are never followed"));
}

#[test]
fn an_oauth_error_decides_where_the_status_does_not() {
    for (status, error, class) in [
        (400, "invalid_grant", Class::Denied),
        (400, "invalid_client", Class::Denied),
        (400, "unauthorized_client", Class::Denied),
        (400, "invalid_request", Class::Denied),
        (400, "invalid_scope", Class::Config),
        (400, "invalid_target", Class::Config),
        (400, "unsupported_grant_type", Class::Config),
        (400, "temporarily_unavailable", Class::Retryable),
        (403, "slow_down", Class::Retryable),
        (401, "invalid_scope", Class::Denied),
        (503, "invalid_grant", Class::Retryable),
        (200, "invalid_grant", Class::Denied),
        (200, "unheard of", Class::Permanent),
    ] {
        let found = failure(
            status,
            &[],
            &format!("{{\"error\":\"{error}\",\"error_description\":\"why\\n\"}}"),
        );
        assert_eq!(found.class, class, "{status} {error}");
        assert_eq!(
            found.message,
            format!("the issuer answered with status {status}: {error}: why")
        );
    }
    assert_eq!(failure(400, &[], "{\"error\":\"a b/é_c\"}").code, "oauth.ab_c");
    assert_eq!(failure(400, &[], "{\"error\":\"!\"}").code, "oauth.error");
    let object = failure(400, &[], "{\"error\":{\"code\":400},\"message\":\"m\"}");
    assert_eq!((object.class, object.code.as_str()), (Class::Config, "http.400"));
    assert!(object.message.ends_with("status 400: m"));
}

#[test]
fn an_answer_without_a_token_says_what_is_missing() {
    let found = failure(200, &[], "{\"token\":null}");
    assert_eq!(
        (found.code.as_str(), found.class),
        ("webapi.no_token", Class::Permanent)
    );
    assert!(found.message.contains("no string at `$.token`"));
    let found = failure(200, &[], "");
    assert_eq!(
        (found.code.as_str(), found.class),
        ("webapi.not_json", Class::Permanent)
    );
}

#[test]
fn an_issuer_may_ask_to_wait() {
    for (text, expected) in [
        ("7", Some(7_000)),
        ("0", Some(0)),
        (" 7 ", Some(7_000)),
        ("100000", Some(600_000)),
        ("99999999999999999999", None),
        ("Fri, 02 Jan 2026 03:05:05 GMT", Some(60_000)),
        ("Fri, 02 Jan 2026 03:00:00 GMT", Some(0)),
        ("Sat, 03 Jan 2026 03:05:05 GMT", Some(600_000)),
        ("soon", None),
        ("-1", None),
    ] {
        assert_eq!(
            failure(429, &[("retry-after", text)], "").retry_after_ms,
            expected,
            "{text}"
        );
    }
    assert_eq!(failure(503, &[], "").retry_after_ms, None);
}

#[test]
fn the_issuers_own_id_is_kept() {
    assert_eq!(
        failure(500, &[("x-request-id", "r1")], "").correlation.as_deref(),
        Some("r1")
    );
    assert_eq!(
        failure(500, &[], "{\"trace_id\":\"t1\"}").correlation.as_deref(),
        Some("t1")
    );
    assert_eq!(failure(500, &[], "{\"trace_id\":\"\"}").correlation, None);
}

#[test]
fn what_was_not_sent_has_a_class_too() {
    for (error, class, code) in [
        (
            EgressError::Denied("egress.host: `h`".into()),
            Class::Config,
            "egress.host",
        ),
        (
            EgressError::InvalidRequest("x".into()),
            Class::Config,
            "egress.invalid_request",
        ),
        (EgressError::Dns("x".into()), Class::Retryable, "egress.dns"),
        (EgressError::Connect("x".into()), Class::Retryable, "egress.connect"),
        (EgressError::Tls("x".into()), Class::Config, "egress.tls"),
        (EgressError::Timeout, Class::Retryable, "egress.timeout"),
        (EgressError::Truncated, Class::Retryable, "egress.truncated"),
        (EgressError::TooLarge, Class::Permanent, "egress.too_large"),
        (EgressError::Budget, Class::Permanent, "egress.budget"),
        (
            EgressError::Secret(SecretError::NotFound),
            Class::Config,
            "secret.not_found",
        ),
    ] {
        let found = unsent(&error);
        assert_eq!((found.class, found.code.as_str()), (class, code));
    }
}
