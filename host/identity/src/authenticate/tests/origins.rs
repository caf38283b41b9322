//! Tests of requests that another site may have caused.

use http::request::Parts;

use super::{alice, argocd_sessions, build, resources, session};
use crate::authenticate::origin::{check, check_loopback_host};
use crate::authenticate::{Authenticator, Error, Safety};
use tollgate_core::principal::Kind;

fn request(method: &str, fields: &[(&str, &str)]) -> Parts {
    let mut request = http::Request::builder().method(method).uri("/");
    for (name, value) in fields {
        request = request.header(*name, *value);
    }
    request.body(()).unwrap().into_parts().0
}

const ALLOWED: &str = "`Sec-Fetch-Site: same-origin` or the origin the request was sent to, or `https://ui.example`";

#[test]
fn unsafe_requests_need_the_own_or_a_trusted_origin() {
    let host = ("host", "gate.example");
    let own = ("origin", "https://gate.example");
    let evil = ("origin", "https://evil.example");
    let upgrade = ("upgrade", "websocket");
    let neither = Some("neither `Origin` nor `Sec-Fetch-Site`");
    let unreadable = Some("an unreadable or repeated `Origin` or `Sec-Fetch-Site`");
    let seen_evil = Some("`Origin: https://evil.example`");
    type Case<'a> = (&'a str, &'a [(&'a str, &'a str)], Option<&'a str>);
    let cases: &[Case<'_>] = &[
        ("GET", &[host], None),
        ("HEAD", &[host, evil], None),
        ("OPTIONS", &[host, evil], None),
        ("GET", &[host, evil, upgrade], seen_evil),
        ("GET", &[host, upgrade], neither),
        ("GET", &[host, own, upgrade], None),
        ("GET", &[host, upgrade, ("sec-fetch-site", "same-origin")], None),
        ("POST", &[host], neither),
        ("PUT", &[host], neither),
        ("PATCH", &[host], neither),
        ("DELETE", &[host, evil], seen_evil),
        ("CONNECT", &[host, evil], seen_evil),
        ("PROPFIND", &[host], neither),
        ("POST", &[host, own], None),
        ("POST", &[host, ("origin", "https://GATE.example:443")], None),
        ("POST", &[("host", "gate.example:443"), own], None),
        (
            "POST",
            &[("host", "gate.example:8443"), ("origin", "https://gate.example:8443")],
            None,
        ),
        (
            "POST",
            &[("host", "gate.example:8443"), own],
            Some("`Origin: https://gate.example`"),
        ),
        (
            "POST",
            &[host, ("origin", "https://gate.example:8443")],
            Some("`Origin: https://gate.example:8443`"),
        ),
        (
            "POST",
            &[host, ("origin", "https://gate.example.evil")],
            Some("`Origin: https://gate.example.evil`"),
        ),
        (
            "POST",
            &[host, ("origin", "https://x.gate.example")],
            Some("`Origin: https://x.gate.example`"),
        ),
        ("POST", &[host, ("origin", "null")], Some("`Origin: null`")),
        (
            "POST",
            &[host, ("origin", "file://gate.example")],
            Some("`Origin: file://gate.example`"),
        ),
        ("POST", &[host, own, evil], unreadable),
        ("POST", &[host, ("origin", "https://ui.example")], None),
        (
            "POST",
            &[host, ("origin", "http://ui.example")],
            Some("`Origin: http://ui.example`"),
        ),
        ("POST", &[host, ("sec-fetch-site", "same-origin")], None),
        (
            "POST",
            &[host, ("sec-fetch-site", "same-site"), own],
            Some("`Sec-Fetch-Site: same-site`"),
        ),
        (
            "POST",
            &[host, ("sec-fetch-site", "cross-site"), own],
            Some("`Sec-Fetch-Site: cross-site`"),
        ),
        (
            "POST",
            &[host, ("sec-fetch-site", "none"), own],
            Some("`Sec-Fetch-Site: none`"),
        ),
        (
            "POST",
            &[host, ("sec-fetch-site", "cross-site"), ("origin", "https://ui.example")],
            None,
        ),
        (
            "POST",
            &[
                host,
                ("sec-fetch-site", "same-origin"),
                ("sec-fetch-site", "cross-site"),
            ],
            unreadable,
        ),
        ("POST", &[own], Some("`Origin: https://gate.example`")),
        ("POST", &[host, ("host", "evil.example"), evil], seen_evil),
        ("POST", &[("host", "[::1]:8080"), ("origin", "http://[::1]:8080")], None),
    ];
    for (method, fields, expected) in cases {
        let outcome = check(
            &request(method, fields),
            Safety::ByMethod,
            &["https://ui.example".to_owned()],
        );
        let expected = expected.map_or(Ok(()), |seen| {
            Err(Error::CrossSite {
                seen: seen.to_owned(),
                allowed: ALLOWED.to_owned(),
            })
        });
        assert_eq!(outcome, expected, "{method} {fields:?}");
    }
}

#[test]
fn an_unsafe_request_needs_the_origin_whatever_its_method() {
    let host = ("host", "gate.example");
    for method in ["GET", "HEAD", "OPTIONS"] {
        for fields in [
            &[host][..],
            &[host, ("sec-fetch-site", "cross-site")],
            &[host, ("sec-fetch-site", "none")],
            &[host, ("origin", "https://evil.example")],
        ] {
            let head = request(method, fields);
            assert_eq!(check(&head, Safety::ByMethod, &[]), Ok(()), "{method} {fields:?}");
            let refused = check(&head, Safety::Unsafe, &[]).unwrap_err();
            assert_eq!(refused.code(), "cross_site_request", "{method} {fields:?}");
        }
        for fields in [
            &[host, ("sec-fetch-site", "same-origin")],
            &[host, ("origin", "https://gate.example")],
            &[host, ("origin", "https://ui.example")],
        ] {
            let outcome = check(
                &request(method, fields),
                Safety::Unsafe,
                &["https://ui.example".to_owned()],
            );
            assert_eq!(outcome, Ok(()), "{method} {fields:?}");
        }
    }
}

#[test]
fn the_host_can_come_from_the_target() {
    let request = |origin| {
        let request = http::Request::post("https://gate.example/x").header("origin", origin);
        request.body(()).unwrap().into_parts().0
    };
    assert_eq!(check(&request("https://gate.example"), Safety::ByMethod, &[]), Ok(()));
    assert_eq!(
        check(&request("https://evil.example"), Safety::ByMethod, &[])
            .unwrap_err()
            .code(),
        "cross_site_request"
    );
}

#[tokio::test]
async fn only_requests_with_cookies_need_the_origin() {
    let authenticator = build(&argocd_sessions(), &resources());
    let token = session(&alice());
    let (cookie, bearer) = (format!("argocd.token={token}"), format!("Bearer {token}"));
    let evil = ("origin", "https://evil.example");
    let post = |field| request("POST", &[("host", "gate.example"), evil, field]);
    assert!(
        authenticator
            .authenticate(&post(("authorization", &bearer)), Safety::ByMethod)
            .await
            .is_ok()
    );
    let refused = authenticator
        .authenticate(&post(("cookie", &cookie)), Safety::ByMethod)
        .await
        .unwrap_err();
    assert_eq!(refused.code(), "cross_site_request");
    // A cached principal does not bypass the check.
    let read = request("GET", &[("host", "gate.example"), ("cookie", &cookie)]);
    assert!(authenticator.authenticate(&read, Safety::ByMethod).await.is_ok());
    assert!(
        authenticator
            .authenticate(&post(("cookie", &cookie)), Safety::ByMethod)
            .await
            .is_err()
    );
}

fn anonymous() -> Authenticator {
    build(
        &tollgate_config::Authentication {
            anonymous: true,
            ..argocd_sessions()
        },
        &resources(),
    )
}

#[tokio::test]
async fn anonymous_callers_have_no_name() {
    let authenticator = anonymous();
    let local = ("host", "localhost:8080");
    let principal = authenticator
        .authenticate(&request("GET", &[local]), Safety::ByMethod)
        .await
        .unwrap();
    assert_eq!(
        (principal.kind(), principal.user_id(), principal.issuer()),
        (Kind::Anonymous, "", "")
    );
    assert!(principal.claims().is_empty() && principal.groups().is_empty());
    let own = ("origin", "http://localhost:8080");
    assert!(
        authenticator
            .authenticate(&request("POST", &[local, own]), Safety::ByMethod)
            .await
            .is_ok()
    );
    assert_eq!(
        authenticator
            .authenticate(&request("POST", &[local]), Safety::ByMethod)
            .await
            .unwrap_err()
            .code(),
        "cross_site_request"
    );
    let bad = request("GET", &[local, ("authorization", "Bearer x")]);
    assert_eq!(
        authenticator
            .authenticate(&bad, Safety::ByMethod)
            .await
            .unwrap_err()
            .code(),
        "malformed_token"
    );
}

#[test]
fn only_localhost_and_loopback_addresses_are_loopback_hosts() {
    for host in [
        "localhost",
        "LOCALHOST:1",
        "127.0.0.1:8080",
        "[::1]:8080",
        "[::1]",
        "127.9.9.9",
    ] {
        assert_eq!(
            check_loopback_host(&request("GET", &[("host", host)])),
            Ok(()),
            "{host}"
        );
    }
    for host in ["rebound.example", "localhost.evil.example", "10.0.0.1", ""] {
        let refused = check_loopback_host(&request("GET", &[("host", host)])).unwrap_err();
        assert_eq!(refused.code(), "cross_site_request", "{host}");
    }
    assert!(check_loopback_host(&request("GET", &[])).is_err());
}
