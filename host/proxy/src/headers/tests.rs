use std::sync::Arc;
use tollgate_core::header_names::owner;
use tollgate_core::header_names::{self, HeaderOwner};

use http::uri::{Authority, Scheme};
use http::{HeaderMap, HeaderName, HeaderValue, Method, Request, Version, request};

use super::*;
use crate::client::{Client, Transport};

fn head(fields: &[(&str, &str)]) -> request::Parts {
    let mut request = Request::builder().method(Method::GET).uri("/x");
    for (name, value) in fields {
        request = request.header(*name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
    }
    if !fields.iter().any(|(name, _)| name.eq_ignore_ascii_case("host")) {
        request = request.header("host", "gateway.example");
    }
    request.body(()).unwrap().into_parts().0
}

fn upstream(headers: &[(&'static str, &'static str)], request_header: RequestHeader) -> Arc<Upstream> {
    let headers = headers
        .iter()
        .map(|(n, v)| (HeaderName::from_static(n), HeaderValue::from_static(v)))
        .collect::<Vec<_>>();
    let origin = Origin {
        scheme: Scheme::HTTP,
        authority: Authority::from_static("backend.example:8080"),
    };
    Arc::new(Upstream::new(origin, "/".to_owned(), headers, request_header).unwrap())
}

fn caller<'a>(groups: &'a [String], extra: &'a [(String, Vec<String>)]) -> UserInfo<'a> {
    UserInfo {
        user_id: "id-1",
        username: "ada",
        groups,
        extra,
    }
}

fn client() -> Arc<Client> {
    Arc::new(Client::for_test("203.0.113.7:1234".parse().unwrap(), Transport::Tls))
}

const NAMES: ResourceNames<'static> = ResourceNames {
    namespace: "argocd",
    application: Some(("apps", "web")),
    project: Some("shop"),
    cluster: Some(("prod", "https://k8s.example")),
};

fn host_headers<'a>(identity: &'a IdentityHeaders, resource: &'a ResourceHeaders) -> HostHeaders<'a> {
    HostHeaders {
        identity,
        groups: GroupEncoding::Escaped,
        resource,
        assertion: None,
    }
}

fn seal(cleaned: CleanedRequest) -> Result<HeaderMap, Error> {
    let groups = ["dev".to_owned(), "ops".to_owned()];
    let identity = IdentityHeaders::new(&caller(&groups, &[])).unwrap();
    let path = crate::target::join("/", "/x", None).unwrap();
    let upstream = upstream(&[], RequestHeader::Absent);
    let outbound = cleaned.seal(
        &upstream,
        path,
        &host_headers(&identity, &ResourceHeaders::new(&NAMES)?),
        &client(),
    )?;
    Ok(outbound.head().headers().clone())
}

/// The fields that are always sent, in lower case and order.
const ALWAYS: [(&str, &str); 13] = [
    ("argocd-application-name", "apps:web"),
    ("argocd-namespace", "argocd"),
    ("argocd-project-name", "shop"),
    ("argocd-target-cluster-name", "prod"),
    ("argocd-target-cluster-url", "https://k8s.example"),
    ("argocd-user-groups", "dev,ops"),
    ("argocd-user-id", "id-1"),
    ("argocd-username", "ada"),
    ("host", "backend.example:8080"),
    ("via", "1.1 tollgate"),
    ("x-forwarded-for", "203.0.113.7"),
    ("x-forwarded-host", "gateway.example"),
    ("x-forwarded-proto", "https"),
];

/// Sends `fields` and expects exactly `also` besides the fields that are always sent.
fn check(fields: &[(&str, &str)], also: &[(&str, &str)]) {
    let sent = seal(clean(head(fields)).unwrap()).unwrap();
    let mut sent: Vec<_> = sent
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
        .collect();
    let mut expected: Vec<_> = ALWAYS.iter().chain(also).copied().collect();
    sent.sort_unstable();
    expected.sort_unstable();
    assert_eq!(sent, expected, "{fields:?}");
}

#[test]
fn ordinary_fields_are_forwarded_unchanged() {
    let kept = [("accept", "a"), ("accept", "b"), ("user-agent", "test"), ("range", "x")];
    check(&kept, &kept);
    check(
        &[("x-argocd", "1"), ("remotely", "1"), ("zoo_x", "1")],
        &[("x-argocd", "1"), ("remotely", "1"), ("zoo_x", "1")],
    );
}

#[test]
fn what_a_client_cannot_say_does_not_leave() {
    for name in [
        "Authorization",
        "Cookie",
        "Argocd-Username",
        "Argocd-User-Groups",
        "ARGOCD-USER-ID",
        "Argocd-Namespace",
        "Argocd-Target-Cluster-Name",
        "Argocd-Application-Name",
        "Argocd-Anything-New",
        "Argocd_Username",
        "Argocd_User_Groups",
        "Argocd.Username",
        "Argocd-User_Groups",
        "X-Remote-User",
        "X_Remote_Group",
        "Impersonate-User",
        "Impersonate_Uid",
        "Tollgate-Assertion",
        "Tollgate_Assertion",
        "X-Forwarded-For",
        "X_Forwarded_Host",
        "X-Forwarded-User",
        "Forwarded",
        "X-Real-IP",
        "True-Client-IP",
        "Via",
        "Keep-Alive",
        "Proxy-Authorization",
        "Proxy-Connection",
        "TE",
        "Upgrade",
        "HTTP2-Settings",
        "Expect",
        "X-HTTP-Method-Override",
        "X-Original-URL",
        "X-Rewrite-URL",
        "X-WebAuth-User",
        "X-Auth-Request-Email",
        "Remote-User",
        "Remote_User",
        "Audit-ID",
        "Audit_Id",
        "X-Scope-OrgID",
        "X_Scope_OrgID",
        "X-Original-URI",
        "X-Original-Host",
        "X-Goog-Authenticated-User-Email",
        "X-Goog-IAP-JWT-Assertion",
        "X-Ms-Client-Principal",
        "X-Ms-Client-Principal-Id",
        "X-Auth-Request-User",
        "X-Auth-Request-Access-Token",
        "X-Amzn-Oidc-Data",
        "Cf-Access-Authenticated-User-Email",
        "Cf-Access-Jwt-Assertion",
        "X-Envoy-Original-Path",
        "X-Pomerium-Jwt-Assertion",
        "X-Authentik-Username",
        "X-Consumer-Username",
        "Tailscale-User-Login",
        "OIDC-Claim-Email",
        "X-User-Id",
        "X-Tenant-Id",
        "WL-Proxy-Client-IP",
    ] {
        check(&[(name, "forged")], &[]);
        check(
            &[(name, "forged"), (name, "again"), ("accept", "a")],
            &[("accept", "a")],
        );
    }
    let long = format!("argocd_{}", "a".repeat(200));
    check(&[(&long, "forged")], &[]);
}

#[test]
fn where_fields_are_listed_no_other_passes() {
    let listed = [
        HeaderName::from_static("x-scope-orgid"),
        HeaderName::from_static("x-page"),
    ];
    let passing = |fields: &[(&str, &str)]| {
        let cleaned = clean_for(head(fields), ClientFields::Allowlist(&listed)).unwrap();
        let mut names: Vec<String> = seal(cleaned).unwrap().keys().map(ToString::to_string).collect();
        names.retain(|name| !ALWAYS.iter().any(|(always, _)| always == name));
        names.sort_unstable();
        names
    };
    let sent = [
        ("x-scope-orgid", "tenant"),
        ("x-page", "3"),
        ("accept", "a"),
        ("content-type", "a/b"),
        ("x-anything", "1"),
        ("x_page", "4"),
        ("x_scope_orgid", "evil"),
        ("x-webauth-user", "root"),
        ("argocd-username", "root"),
        ("trailer", "x-page, x-sum"),
    ];
    assert_eq!(passing(&sent), ["accept", "content-type", "x-page", "x-scope-orgid"]);
    // No allowlist allows the gateway's own fields.
    let host_owned = [
        HeaderName::from_static("argocd-username"),
        HeaderName::from_static("authorization"),
        HeaderName::from_static("connection"),
    ];
    let cleaned = clean_for(
        head(&[
            ("argocd-username", "root"),
            ("authorization", "x"),
            ("connection", "close"),
        ]),
        ClientFields::Allowlist(&host_owned),
    );
    let sealed = seal(cleaned.unwrap()).unwrap();
    assert_eq!(sealed["argocd-username"], "ada");
    assert!(!sealed.contains_key("authorization") && !sealed.contains_key("connection"));
}

#[test]
fn connection_removes_the_fields_it_lists_except_the_hosts() {
    check(
        &[("connection", "x-own, close"), ("x-own", "1"), ("accept", "a")],
        &[("accept", "a")],
    );
    check(&[("connection", ""), ("connection", " , x-own "), ("x-own", "1")], &[]);
    // The gateway's own fields are written after those that `Connection` lists were removed.
    for name in [
        "Argocd-Username",
        "argocd-user-groups",
        "Host",
        "X-Forwarded-For",
        "Argocd-Namespace",
    ] {
        check(&[("connection", name), (name, "gateway.example")], &[]);
    }
    for bad in ["a b", "x\u{e9}", "(x)"] {
        let error = clean(head(&[("connection", bad)])).unwrap_err();
        assert_eq!(error, Error::ConnectionOption, "{bad}");
    }
}

#[test]
fn values_that_are_not_utf8_are_refused() {
    let mut head = head(&[]);
    head.headers
        .insert("x-name", HeaderValue::from_bytes(b"caf\xe9").unwrap());
    assert_eq!(
        clean(head).unwrap_err(),
        Error::NotUtf8(HeaderName::from_static("x-name"))
    );
}

#[test]
fn host_fields_are_not_announced_as_trailers() {
    check(
        &[("trailer", "Digest, Argocd-Username, X_Remote_User, a b")],
        &[("trailer", "digest")],
    );
    check(&[("trailer", "argocd-username")], &[]);
    check(&[("te", "gzip, trailers")], &[("te", "trailers")]);
}

#[test]
fn bearer_subprotocols_are_not_forwarded() {
    let offered = "base64url.bearer.authorization.k8s.io.c2VjcmV0, v5.channel.k8s.io";
    check(
        &[("sec-websocket-protocol", offered)],
        &[("sec-websocket-protocol", "v5.channel.k8s.io")],
    );
    check(
        &[(
            "sec-websocket-protocol",
            "base64url.bearer.authorization.k8s.io.c2VjcmV0",
        )],
        &[],
    );
    check(
        &[("sec-websocket-protocol", "chat")],
        &[("sec-websocket-protocol", "chat")],
    );
}

#[test]
fn only_known_upgrades_are_accepted() {
    let upgrade_of = |method: Method, version: Version, fields: &[(&str, &str)]| {
        let mut head = head(fields);
        (head.method, head.version) = (method, version);
        // Without a connection there is nothing to upgrade. The request is checked the same way.
        clean(head).map(|cleaned| cleaned.upgrade())
    };
    let switch = [
        ("connection", "upgrade"),
        ("upgrade", "websocket"),
        ("content-length", "5"),
    ];
    assert_eq!(
        upgrade_of(Method::GET, Version::HTTP_11, &switch),
        Err(Error::UpgradeContent)
    );
    let chunked = [
        ("connection", "upgrade"),
        ("upgrade", "SPDY/3.1"),
        ("transfer-encoding", "chunked"),
    ];
    assert_eq!(
        upgrade_of(Method::POST, Version::HTTP_11, &chunked),
        Err(Error::UpgradeContent)
    );
    // With a protocol or version that cannot be switched to, it is an ordinary request.
    for (method, version, protocol) in [
        (Method::GET, Version::HTTP_11, "h2c"),
        (Method::GET, Version::HTTP_10, "websocket"),
        (Method::POST, Version::HTTP_11, "websocket"),
        (Method::GET, Version::HTTP_11, "websocket, h2c"),
    ] {
        let fields = [
            ("connection", "upgrade"),
            ("upgrade", protocol),
            ("content-length", "5"),
        ];
        assert_eq!(upgrade_of(method, version, &fields), Ok(None), "{protocol}");
    }
}

#[test]
fn a_plugin_cannot_write_the_hosts_fields() {
    for name in [
        "argocd-username",
        "x-remote-user",
        "host",
        "connection",
        "argocd_username",
        "content-length",
    ] {
        let mut cleaned = clean(head(&[])).unwrap();
        let name = HeaderName::from_static(name);
        cleaned
            .fields_mut()
            .insert(name.clone(), HeaderValue::from_static("forged"));
        assert_eq!(seal(cleaned).unwrap_err(), Error::Forbidden(name));
    }
    let mut cleaned = clean(head(&[])).unwrap();
    cleaned
        .fields_mut()
        .insert("x-webauth-user", HeaderValue::from_static("by the operator"));
    assert_eq!(seal(cleaned).unwrap()["x-webauth-user"], "by the operator");
}

#[test]
fn service_fields_replace_the_clients_and_cannot_be_the_hosts() {
    let upstream = upstream(
        &[("authorization", "Bearer s"), ("x-team", "service")],
        RequestHeader::Absent,
    );
    let identity = IdentityHeaders::default();
    let path = crate::target::join("/", "", None).unwrap();
    let cleaned = clean(head(&[
        ("authorization", "Bearer c"),
        ("x-team", "client"),
        ("x-team", "two"),
    ]))
    .unwrap();
    let resource = ResourceHeaders::new(&ResourceNames {
        application: None,
        project: None,
        cluster: None,
        ..NAMES
    });
    let resource = resource.unwrap();
    let host_headers = host_headers(&identity, &resource);
    let outbound = cleaned.seal(&upstream, path, &host_headers, &client()).unwrap();
    let fields = outbound.head().headers();
    assert_eq!(fields.get_all("authorization").iter().collect::<Vec<_>>(), ["Bearer s"]);
    assert_eq!(fields.get_all("x-team").iter().collect::<Vec<_>>(), ["service"]);
    for absent in [
        "argocd-username",
        "argocd-user-groups",
        "argocd-application-name",
        "argocd-target-cluster-name",
    ] {
        assert!(!fields.contains_key(absent), "{absent}");
    }
    assert!(!format!("{outbound:?}").contains("Bearer"));
    assert!(Upstream::may_configure(&HeaderName::from_static("authorization")));
    assert!(Upstream::may_configure(&HeaderName::from_static("x-webauth-user")));
    for name in [
        "argocd-username",
        "host",
        "x-remote-user",
        "transfer-encoding",
        "argocd_user_id",
    ] {
        assert!(!Upstream::may_configure(&HeaderName::from_static(name)), "{name}");
    }
}

#[test]
fn group_lists_are_escaped_unambiguously() {
    let joined = |groups: &[&str]| {
        let groups: Vec<String> = groups.iter().map(|&group| group.to_owned()).collect();
        IdentityHeaders::new(&caller(&groups, &[]))
            .unwrap()
            .groups
            .map(|value| value.to_str().unwrap().to_owned())
    };
    for (groups, expected) in [
        (&[][..], None),
        (&[""], None),
        (&["a", "b c"], Some("a,b c")),
        (&["cn=admins,ou=x", "b"], Some("cn=admins%2Cou=x,b")),
        (&["cn=admins%2Cou=x"], Some("cn=admins%252Cou=x")),
        (&["a", "", "b"], Some("a,b")),
        (&[" admins "], Some("%20admins%20")),
        (&["x\r\nArgocd-Username: root"], Some("x%0D%0AArgocd-Username: root")),
        (&[" "], Some("%20")),
    ] {
        assert_eq!(joined(groups).as_deref(), expected, "{groups:?}");
    }
}

/// LDAP has groups with commas. Argo CD's backends expect them as they are.
#[test]
fn group_lists_of_argo_cd_are_joined_unchanged() {
    let sent = |encoding: GroupEncoding, groups: &[&str]| {
        let groups: Vec<String> = groups.iter().map(|&group| group.to_owned()).collect();
        let identity = IdentityHeaders::new(&caller(&groups, &[])).unwrap();
        let resource = ResourceHeaders::new(&NAMES).unwrap();
        let host_headers = HostHeaders {
            groups: encoding,
            ..host_headers(&identity, &resource)
        };
        let (upstream, path) = (
            upstream(&[], RequestHeader::Absent),
            crate::target::join("/", "", None).unwrap(),
        );
        let outbound = clean(head(&[("argocd-user-groups", "admins")])).unwrap();
        let outbound = outbound.seal(&upstream, path, &host_headers, &client())?;
        let value = outbound.head().headers().get("argocd-user-groups");
        Ok(value.map(|value| String::from_utf8(value.as_bytes().to_vec()).unwrap()))
    };
    for (groups, argocd, escaped) in [
        (&[][..], None, None),
        (
            &["cn=admins,ou=x", "b"],
            Some("cn=admins,ou=x,b"),
            Some("cn=admins%2Cou=x,b"),
        ),
        (&["50%", "ä"], Some("50%,ä"), Some("50%25,ä")),
        (&["a", "", " b "], Some("a,, b"), Some("a,%20b%20")),
        (&[""], Some(""), None),
    ] {
        assert_eq!(
            sent(GroupEncoding::Argocd, groups).unwrap().as_deref(),
            argocd,
            "{groups:?}"
        );
        assert_eq!(
            sent(GroupEncoding::Escaped, groups).unwrap().as_deref(),
            escaped,
            "{groups:?}"
        );
    }
    // No group makes another field.
    let forged = ["x\r\nArgocd-Username: root"];
    assert_eq!(sent(GroupEncoding::Argocd, &forged), Err(Error::Identity("group")));
}

#[test]
fn usernames_that_a_header_would_change_are_refused() {
    for name in ["admin ", " admin", "a\r\nb", "a\0", "a\u{85}b"] {
        let caller = UserInfo {
            user_id: "id",
            username: name,
            groups: &[],
            extra: &[],
        };
        assert_eq!(
            IdentityHeaders::new(&caller).unwrap_err(),
            Error::Identity("username"),
            "{name:?}"
        );
    }
    let caller = UserInfo {
        user_id: "id",
        username: "Zoë",
        groups: &[],
        extra: &[],
    };
    assert_eq!(
        IdentityHeaders::new(&caller).unwrap().username.unwrap().as_bytes(),
        "Zoë".as_bytes()
    );
}

#[test]
fn request_header_identity_is_complete_or_refused() {
    let groups = ["dev".to_owned(), "a,b".to_owned()];
    let extra = [("example.com/Team".to_owned(), vec!["x".to_owned(), "y".to_owned()])];
    let caller = caller(&groups, &extra);
    let upstream = upstream(&[], RequestHeader::Sent);
    let path = || crate::target::join("/", "", None).unwrap();
    let (bare, resource) = (
        IdentityHeaders::new(&caller).unwrap(),
        ResourceHeaders::new(&NAMES).unwrap(),
    );
    let refused = clean(head(&[]))
        .unwrap()
        .seal(&upstream, path(), &host_headers(&bare, &resource), &client());
    assert_eq!(refused.unwrap_err(), Error::Nameless);
    let full = bare.with_request_header(&caller).unwrap();
    let cleaned = clean(head(&[("x-remote-user", "root"), ("x-remote-extra-a", "b")])).unwrap();
    let outbound = cleaned
        .seal(&upstream, path(), &host_headers(&full, &resource), &client())
        .unwrap();
    let all = |name: &str| {
        outbound
            .head()
            .headers()
            .get_all(name)
            .iter()
            .cloned()
            .collect::<Vec<_>>()
    };
    assert_eq!(all("x-remote-user"), ["ada"]);
    assert_eq!(all("x-remote-uid"), ["id-1"]);
    assert_eq!(all("x-remote-group"), ["dev", "a,b"]);
    assert_eq!(all("x-remote-extra-example.com%2fteam"), ["x", "y"]);
    assert!(all("x-remote-extra-a").is_empty());
    let nobody = UserInfo {
        user_id: "",
        username: "",
        groups: &[],
        extra: &[],
    };
    assert_eq!(
        IdentityHeaders::default().with_request_header(&nobody).unwrap_err(),
        Error::Nameless
    );
}

#[test]
fn resource_names_are_checked_too() {
    for project in ["a\nb", " a", "a ", ""] {
        let names = ResourceNames {
            project: Some(project),
            ..NAMES
        };
        let name = HeaderName::from_static("argocd-project-name");
        assert_eq!(
            ResourceHeaders::new(&names).unwrap_err(),
            Error::Value(name),
            "{project:?}"
        );
    }
    assert!(ResourceHeaders::new(&NAMES).is_ok());
}

#[test]
fn lists_are_sorted_for_binary_search() {
    assert!(header_names::CONTENT_NAMES.is_sorted());
    assert!(
        header_names::CONTENT_NAMES
            .iter()
            .all(|name| owner(name) == HeaderOwner::Client)
    );
    for list in [
        header_names::HOST_NAMES.as_slice(),
        header_names::OPERATOR_NAMES.as_slice(),
    ] {
        assert!(list.is_sorted(), "{list:?}");
        assert!(
            list.iter()
                .all(|name| owner(name) != HeaderOwner::Client && name.len() < 32),
            "{list:?}"
        );
    }
}
