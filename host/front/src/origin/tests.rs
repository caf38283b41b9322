//! Which pages may call, and the CORS fields that browsers get.

use http::request::Parts;
use http::{HeaderMap, Method};

use crate::origin::{Cors, Forbidden, check};

const ALLOWED: &str = "https://gitlab.example.com";

fn head(method: Method, fields: &[(&str, &str)]) -> Parts {
    let mut request = http::Request::builder().method(method).uri("/k8s-proxy/version");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

fn checked(fields: &[(&str, &str)]) -> Result<Cors, Forbidden> {
    check(&head(Method::GET, fields), &[ALLOWED.to_owned()])
}

fn fields_of(pairs: &[(&str, &str)]) -> HeaderMap {
    head(Method::GET, pairs).headers
}

#[test]
fn origins_are_compared_byte_for_byte() {
    assert!(checked(&[]).is_ok());
    assert!(checked(&[("origin", ALLOWED)]).is_ok());
    for seen in [
        "https://not-allowed.example.com",
        "http://gitlab.example.com",
        "https://gitlab.example.com:443",
        "https://gitlab.example.com/",
        "https://gitlab.example.com.evil.test",
        "https://GITLAB.example.com",
        "null",
        "",
    ] {
        let refused = checked(&[("origin", seen)]).unwrap_err();
        assert_eq!(refused, Forbidden::Origin { seen: seen.to_owned() });
        // An empty list allows no origin.
        assert!(check(&head(Method::GET, &[("origin", seen)]), &[]).is_err());
    }
    let twice = checked(&[("origin", ALLOWED), ("origin", ALLOWED)]);
    assert_eq!(twice, Err(Forbidden::MultipleOrigins { observed: 2 }));
}

#[test]
fn a_websocket_with_the_session_cookie_needs_an_origin() {
    let socket = ("upgrade", "websocket");
    let cookie = ("cookie", "a=b; _gitlab_kas=s");
    assert_eq!(checked(&[socket, cookie]), Err(Forbidden::NoOrigin));
    assert_eq!(
        checked(&[("upgrade", "h2c, WebSocket"), cookie]),
        Err(Forbidden::NoOrigin)
    );
    assert!(checked(&[socket, cookie, ("origin", ALLOWED)]).is_ok());
    assert!(checked(&[socket, cookie, ("origin", "https://evil.test")]).is_err());
    // These are not WebSockets with the session cookie.
    assert!(checked(&[socket, ("authorization", "Bearer pat:1:t")]).is_ok());
    assert!(checked(&[socket, ("cookie", "theme=dark")]).is_ok());
    assert!(checked(&[cookie]).is_ok());
}

/// What clients send that are no browsers: Python's WebSocket library names the server it calls,
/// fabric8 does too, and old releases of it write no port as `-1`; a proxy passes on a page's.
#[test]
fn an_origin_decides_nothing_for_a_token() {
    let token = ("authorization", "Bearer pat:1:t");
    let subprotocol = (
        "sec-websocket-protocol",
        "base64url.bearer.authorization.k8s.io.cGF0OjE6dA, v4.channel.k8s.io",
    );
    let socket = ("upgrade", "websocket");
    let cookie = ("cookie", "_gitlab_kas=s");
    for origin in [
        "https://gate.example:8443",
        "https://gate.example:-1",
        "http://localhost:8001",
        "https://evil.test",
        "null",
        "",
    ] {
        let origin = ("origin", origin);
        for fields in [
            &[origin, token][..],
            &[origin, token, socket],
            &[origin, subprotocol, socket],
            &[origin, origin, token],
            &[origin, token, ("cookie", "theme=dark")],
        ] {
            let cors = checked(fields).unwrap_or_else(|error| panic!("{fields:?}: {error}"));
            let mut answer = fields_of(&[("access-control-allow-origin", "*"), ("audit-id", "1")]);
            cors.apply(&mut answer);
            assert_eq!(
                answer,
                fields_of(&[("audit-id", "1"), ("vary", "Origin")]),
                "{fields:?}"
            );
        }
        // With the cookie, regardless of other credentials, and without any credential.
        for fields in [
            &[origin, cookie][..],
            &[origin, cookie, token],
            &[origin, cookie, token, socket],
            &[origin, cookie, subprotocol, socket],
            // Only a WebSocket has a token there.
            &[origin, subprotocol],
            &[origin],
        ] {
            assert!(checked(fields).is_err(), "{fields:?}");
        }
    }
    // A listed origin gets its fields, regardless of the credential.
    let mut answer = HeaderMap::new();
    checked(&[("origin", ALLOWED), token]).unwrap().apply(&mut answer);
    assert_eq!(answer["access-control-allow-origin"], ALLOWED);
    assert_eq!(checked(&[cookie, token, socket]), Err(Forbidden::NoOrigin));
}

#[test]
fn a_preflight_is_answered_without_a_credential() {
    let preflight_fields = [
        ("origin", ALLOWED),
        ("access-control-request-method", "POST"),
        ("access-control-request-headers", "Content-Type, X-Csrf-Token"),
    ];
    let preflight = head(Method::OPTIONS, &preflight_fields);
    let cors = check(&preflight, &[ALLOWED.to_owned()]).unwrap();
    let response = cors.preflight(&preflight).unwrap();
    assert_eq!(response.status(), 200);
    let expected = fields_of(&[
        ("access-control-allow-origin", ALLOWED),
        ("access-control-allow-credentials", "true"),
        (
            "access-control-allow-methods",
            "GET, HEAD, POST, PUT, DELETE, CONNECT, OPTIONS, TRACE, PATCH",
        ),
        ("access-control-allow-headers", "Content-Type, X-Csrf-Token"),
        ("access-control-max-age", "86400"),
        ("vary", "Origin"),
    ]);
    assert_eq!(*response.headers(), expected);
    // Without an origin, the response grants nothing. Other methods have no preflight.
    let plain = head(Method::OPTIONS, &preflight_fields[1..]);
    let cors = check(&plain, &[ALLOWED.to_owned()]).unwrap();
    assert_eq!(
        *cors.preflight(&plain).unwrap().headers(),
        fields_of(&[("vary", "Origin")])
    );
    assert!(cors.preflight(&head(Method::GET, &preflight_fields)).is_none());
}

#[test]
fn cors_fields_of_the_cluster_are_replaced() {
    let upstream = [
        ("access-control-allow-origin", "*"),
        ("access-control-max-age", "5"),
        ("access-control-allow-credentials", "false"),
        ("audit-id", "1"),
        ("vary", "Accept, origin"),
        ("vary", "Accept-Encoding"),
    ];
    let mut fields = fields_of(&upstream);
    checked(&[("origin", ALLOWED)]).unwrap().apply(&mut fields);
    let expected = fields_of(&[
        ("audit-id", "1"),
        ("vary", "Origin, Accept, Accept-Encoding"),
        ("access-control-allow-origin", ALLOWED),
        ("access-control-allow-credentials", "true"),
        (
            "access-control-expose-headers",
            "Audit-Id, Gitlab-Unauthorized, Retry-After, Tollgate-Decision-Id, Warning",
        ),
    ]);
    assert_eq!(fields, expected);
    let mut fields = fields_of(&upstream);
    checked(&[]).unwrap().apply(&mut fields);
    let expected = fields_of(&[("audit-id", "1"), ("vary", "Origin, Accept, Accept-Encoding")]);
    assert_eq!(fields, expected);
    let mut fields = fields_of(&[("vary", "*")]);
    checked(&[]).unwrap().apply(&mut fields);
    assert_eq!(fields, fields_of(&[("vary", "*")]));
    // If no origin may call, responses do not vary by origin.
    let mut fields = fields_of(&upstream[1..4]);
    check(&head(Method::GET, &[]), &[]).unwrap().apply(&mut fields);
    assert_eq!(fields, fields_of(&[("audit-id", "1")]));
}
