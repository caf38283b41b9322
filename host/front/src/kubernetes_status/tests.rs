//! The responses that kubectl and pages get.

use http::StatusCode;
use serde_json::{Value, json};
use uuid::Uuid;

use crate::kubernetes_status::{reason, status};

#[test]
fn a_refusal_is_a_status_object() {
    let decision = Uuid::from_u128(7);
    let response = status(StatusCode::FORBIDDEN, "pods \"a\" is forbidden.", decision);
    assert_eq!(response.status(), 403);
    let body: Value = serde_json::from_slice(response.body()).unwrap();
    let expected = json!({
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
        "message": "Tollgate: pods \"a\" is forbidden. Trace ID: 00000000-0000-0000-0000-000000000007",
        "reason": "Forbidden", "code": 403,
    });
    assert_eq!(body, expected);
    let field = |name: &str| response.headers().get(name).map(|value| value.to_str().unwrap());
    assert_eq!(field("content-type"), Some("application/json"));
    assert_eq!(field("cache-control"), Some("no-store"));
    assert_eq!(field("x-content-type-options"), Some("nosniff"));
    assert_eq!((field("gitlab-unauthorized"), field("www-authenticate")), (None, None));
}

#[test]
fn a_401_of_the_gateway_is_marked() {
    let response = status(StatusCode::UNAUTHORIZED, "Unauthorized", Uuid::nil());
    assert_eq!(response.headers()["gitlab-unauthorized"], "true");
    assert_eq!(response.headers()["www-authenticate"], "Bearer realm=\"tollgate\"");
    let body: Value = serde_json::from_slice(response.body()).unwrap();
    assert_eq!((&body["reason"], &body["code"]), (&json!("Unauthorized"), &json!(401)));
}

#[test]
fn status_codes_have_the_reasons_that_clients_check() {
    let cases = [
        (400, "BadRequest"),
        (401, "Unauthorized"),
        (403, "Forbidden"),
        (404, "NotFound"),
        (405, "MethodNotAllowed"),
        (406, "NotAcceptable"),
        (409, "Conflict"),
        (410, "Gone"),
        (413, "RequestEntityTooLarge"),
        (415, "UnsupportedMediaType"),
        (422, "Invalid"),
        (429, "TooManyRequests"),
        (500, "InternalError"),
        (502, ""),
        (503, "ServiceUnavailable"),
        (504, "Timeout"),
        (418, ""),
    ];
    for (code, expected) in cases {
        assert_eq!(reason(StatusCode::from_u16(code).unwrap()), expected, "{code}");
    }
}
