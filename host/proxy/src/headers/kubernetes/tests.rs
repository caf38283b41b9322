use std::sync::Arc;

use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request};
use secrecy::SecretString;
use uuid::Uuid;

use super::{check_impersonation, client_impersonates};
use crate::client::{Client, Transport};
use crate::headers::upstream::{Origin, RequestHeader, Upstream};
use crate::headers::{CleanedRequest, Error, clean};
use tollgate_core::user::Identity;
use tollgate_credential::{Credential, Token};
use tollgate_policy::impersonate::Impersonation;

const ID: Uuid = Uuid::from_u128(0x0198_0000_0000_7000_8000_0000_0000_0001);

fn cleaned(fields: &[(&str, &[u8])]) -> CleanedRequest {
    let mut request = Request::builder().method(Method::POST).uri("/k8s-proxy/x");
    for (name, value) in fields {
        request = request.header(*name, HeaderValue::from_bytes(value).unwrap());
    }
    let request = request.header("host", "gateway.example").body(()).unwrap();
    clean(request.into_parts().0).unwrap()
}

fn seal(cleaned: CleanedRequest, credential: &Credential, impersonation: &Impersonation) -> Result<HeaderMap, Error> {
    let origin = Origin {
        scheme: Scheme::HTTPS,
        authority: Authority::from_static("cluster.example:6443"),
    };
    let upstream = Arc::new(Upstream::new(origin, "/".to_owned(), vec![], RequestHeader::Absent).unwrap());
    let path = crate::target::join("/", "/x", None).unwrap();
    let client = Arc::new(Client::for_test("203.0.113.7:1234".parse().unwrap(), Transport::Tls));
    let outbound = cleaned.seal_for_kubernetes(&upstream, path, credential, impersonation, ID, &client)?;
    Ok(outbound.head().headers().clone())
}

fn credential() -> Credential {
    Credential::from_token(Token::parse("sa-token".into()).unwrap())
}

/// The fields that are always sent, for every caller.
const ALWAYS: [(&str, &[u8]); 7] = [
    ("audit-id", b"01980000-0000-7000-8000-000000000001"),
    ("authorization", b"Bearer sa-token"),
    ("host", b"cluster.example:6443"),
    ("via", b"1.1 tollgate"),
    ("x-forwarded-for", b"203.0.113.7"),
    ("x-forwarded-host", b"gateway.example"),
    ("x-forwarded-proto", b"https"),
];

/// Sends `fields` and expects exactly `also` besides the fields that are always sent.
fn check(fields: &[(&str, &[u8])], impersonation: &Impersonation, also: &[(&str, &[u8])]) {
    let sent = seal(cleaned(fields), &credential(), impersonation).unwrap();
    let mut sent: Vec<(&str, &[u8])> = sent
        .iter()
        .map(|(name, value)| (name.as_str(), value.as_bytes()))
        .collect();
    let replaced = |name: &str| also.iter().any(|(other, _)| *other == name && name == "via");
    let always = ALWAYS.iter().filter(|(name, _)| !replaced(name));
    let mut expected: Vec<_> = always.chain(also).copied().collect();
    sent.sort_unstable();
    expected.sort_unstable();
    assert_eq!(sent, expected, "{fields:?}");
}

fn person() -> Impersonation {
    Impersonation::As(Identity {
        username: "gitlab:user:ada".into(),
        groups: vec!["gitlab:user".into(), "gitlab:project_role:1:developer".into()],
        uid: None,
        extra: vec![("agent.gitlab.com/id".into(), vec!["9999".into()])],
    })
}

const PERSON: [(&str, &[u8]); 4] = [
    ("impersonate-user", b"gitlab:user:ada"),
    ("impersonate-group", b"gitlab:user"),
    ("impersonate-group", b"gitlab:project_role:1:developer"),
    ("impersonate-extra-agent.gitlab.com%2fid", b"9999"),
];

#[test]
fn impersonation_fields_are_sent_only_for_an_identity() {
    check(&[], &person(), &PERSON);
    check(&[], &Impersonation::Nobody, &[]);
}

#[test]
fn identity_values_are_sent_byte_for_byte() {
    let identity = Impersonation::As(Identity {
        username: "J\u{f6}rg <j@corp>".into(),
        groups: vec!["a,b".into(), "\u{7d44}".into()],
        uid: Some("7f3c".into()),
        extra: vec![
            ("k1".into(), vec!["v1".into(), "v2".into()]),
            ("corp.example/a%2f(b)".into(), vec!["x".into()]),
            ("!#$&'*+-.^_`|~09az".into(), vec!["y".into()]),
            ("\u{e4}:@".into(), vec!["z".into()]),
        ],
    });
    let sent: [(&str, &[u8]); 9] = [
        ("impersonate-user", b"J\xc3\xb6rg <j@corp>"),
        ("impersonate-group", b"a,b"),
        ("impersonate-group", b"\xe7\xb5\x84"),
        ("impersonate-uid", b"7f3c"),
        ("impersonate-extra-k1", b"v1"),
        ("impersonate-extra-k1", b"v2"),
        ("impersonate-extra-corp.example%2fa%252f%28b%29", b"x"),
        ("impersonate-extra-!#$&'*+-.^_`|~09az", b"y"),
        ("impersonate-extra-%c3%a4%3a%40", b"z"),
    ];
    check(&[], &identity, &sent);
}

#[test]
fn fields_of_the_front_and_the_gateway_are_not_forwarded() {
    for name in [
        "Audit-ID",
        "Authorization",
        "Cookie",
        "Forwarded",
        "Gitlab-Agent-Id",
        "HTTP2-Settings",
        "Impersonate-User",
        "Impersonate_Group",
        "Impersonate-Extra-",
        "Keep-Alive",
        "Proxy-Authenticate",
        "Proxy-Authorization",
        "Proxy-Connection",
        "TE",
        "Trailer",
        "X-Csrf-Token",
        "X-Forwarded-For",
        "X-HTTP-Method-Override",
        "X-Real-Ip",
        "X-Remote-Extra-Scopes",
        "X-Remote-User",
    ] {
        check(&[(name, b"forged")], &person(), &PERSON);
        check(&[(name, b"trailers"), (name, b"again")], &Impersonation::Nobody, &[]);
    }
    let bearer: &[u8] = b"base64url.bearer.authorization.k8s.io.c2VjcmV0, v5.channel.k8s.io";
    check(
        &[("sec-websocket-protocol", bearer)],
        &Impersonation::Nobody,
        &[("sec-websocket-protocol", b"v5.channel.k8s.io")],
    );
    let kept: [(&str, &[u8]); 5] = [
        (
            "accept",
            b"application/json;as=Table;v=v1;g=meta.k8s.io,application/json",
        ),
        ("kubectl-command", b"kubectl get"),
        ("user-agent", b"kubectl/v1.34.1"),
        ("x-stream-protocol-version", b"v4.channel.k8s.io"),
        ("x-stream-protocol-version", b"v3.channel.k8s.io"),
    ];
    check(&kept, &Impersonation::Nobody, &kept);
}

#[test]
fn connection_cannot_remove_the_gateways_fields() {
    for name in [
        "Impersonate-User",
        "Impersonate-Group",
        "Audit-ID",
        "Authorization",
        "Via",
    ] {
        check(&[("connection", name.as_bytes())], &person(), &PERSON);
        check(
            &[("connection", b""), ("connection", name.as_bytes())],
            &person(),
            &PERSON,
        );
    }
    check(&[("connection", b" X-Own "), ("x-own", b"1")], &person(), &PERSON);
}

#[test]
fn via_is_continued() {
    let via = |lines: &[(&str, &[u8])], expected: &[u8]| check(lines, &Impersonation::Nobody, &[("via", expected)]);
    via(&[("via", b"1.1 corp")], b"1.1 corp, 1.1 tollgate");
    via(
        &[("via", b"1.0 a"), ("via", b"2 b (c)")],
        b"1.0 a, 2 b (c), 1.1 tollgate",
    );
    via(&[("via", b"")], b"1.1 tollgate");
    via(&[("via", b"1.1 corp"), ("connection", b"via")], b"1.1 tollgate");
}

#[test]
fn a_field_of_the_credential_cannot_impersonate() {
    let mut credential = credential();
    let (name, value) = ("x-cluster", "c");
    credential.headers = vec![(HeaderName::from_static(name), SecretString::from(value.to_owned()))];
    let sent = seal(cleaned(&[("x-cluster", b"forged")]), &credential, &person()).unwrap();
    assert_eq!(sent.get_all(name).iter().collect::<Vec<_>>(), [value]);
    for name in ["impersonate-user", "impersonate-extra-a", "x-remote-user"] {
        let name = HeaderName::from_static(name);
        credential.headers = vec![(name.clone(), SecretString::from("root".to_owned()))];
        let refused = seal(cleaned(&[]), &credential, &Impersonation::Nobody).unwrap_err();
        assert_eq!(refused, Error::Forbidden(name));
    }
}

#[test]
fn an_edit_that_impersonates_is_refused() {
    for name in ["impersonate-user", "impersonate_user"] {
        let mut cleaned = cleaned(&[]);
        let name = HeaderName::from_static(name);
        cleaned
            .fields_mut()
            .insert(name.clone(), HeaderValue::from_static("root"));
        let refused = seal(cleaned, &credential(), &person()).unwrap_err();
        assert_eq!(refused, Error::Forbidden(name));
    }
}

#[test]
fn exactly_the_decided_user_reaches_the_cluster() {
    let fields = |lines: &[(&'static str, &'static str)]| {
        let mut fields = HeaderMap::new();
        for (name, value) in lines {
            fields.append(HeaderName::from_static(name), HeaderValue::from_static(value));
        }
        fields
    };
    let user = ("impersonate-user", "gitlab:user:ada");
    assert_eq!(check_impersonation(&fields(&[user]), &person()), Ok(()));
    for lines in [
        &[][..],
        &[user, user],
        &[("impersonate-user", "")],
        &[("impersonate-user", "root")],
        &[("impersonate-user", "root"), user],
    ] {
        let checked = check_impersonation(&fields(lines), &person());
        assert_eq!(checked, Err(Error::Impersonation), "{lines:?}");
    }
    let nameless = Impersonation::As(Identity::default());
    let empty = fields(&[("impersonate-user", "")]);
    assert_eq!(check_impersonation(&empty, &nameless), Err(Error::Impersonation));
    let nobody = Impersonation::Nobody;
    assert_eq!(check_impersonation(&fields(&[("accept", "a")]), &nobody), Ok(()));
    for name in [
        "impersonate-user",
        "impersonate-group",
        "impersonate-uid",
        "impersonate-extra-a",
    ] {
        let lines = fields(&[(name, "x")]);
        assert_eq!(
            check_impersonation(&lines, &nobody),
            Err(Error::Impersonation),
            "{name}"
        );
    }
}

#[test]
fn values_that_http_cannot_carry_are_refused() {
    let Impersonation::As(mut identity) = person() else {
        panic!("somebody is impersonated")
    };
    identity.groups.push("a\r\nimpersonate-group: system:masters".into());
    let name = HeaderName::from_static("impersonate-group");
    let refused = seal(cleaned(&[]), &credential(), &Impersonation::As(identity)).unwrap_err();
    assert_eq!(refused, Error::Value(name));
    let empty = Impersonation::As(Identity::default());
    let refused = seal(cleaned(&[]), &credential(), &empty).unwrap_err();
    assert_eq!(refused, Error::Impersonation);
}

#[test]
fn client_impersonation_is_detected_in_any_spelling() {
    for name in [
        "Impersonate-User",
        "impersonate-group",
        "IMPERSONATE-UID",
        "Impersonate-Extra-Scopes",
        "Impersonate-Extra-",
        "Impersonate-",
        "Impersonate_User",
        "impersonate.user",
        "Impersonate-Anything-New",
    ] {
        let mut fields = HeaderMap::new();
        fields.insert("accept", HeaderValue::from_static("a"));
        let name: HeaderName = name.parse().unwrap();
        fields.insert(name.clone(), HeaderValue::from_static("x"));
        assert_eq!(client_impersonates(&fields), Some(&name));
    }
    let mut fields = HeaderMap::new();
    for name in ["accept", "impersonate", "impersonated-by", "x-impersonate-user"] {
        fields.insert(HeaderName::from_static(name), HeaderValue::from_static("x"));
    }
    assert_eq!(client_impersonates(&fields), None);
}
