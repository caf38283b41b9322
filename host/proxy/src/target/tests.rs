use http::{HeaderMap, HeaderValue, Method};

use super::*;

#[test]
fn unambiguous_paths_pass() {
    for path in [
        "/",
        "/a",
        "/a/",
        "/a/b%2Fc",
        "/a%2F",
        "/a;x=1/b",
        "/a%20b",
        "/...",
        "/.well-known/x",
        "/a..b",
        "/caf%C3%A9",
        "/100%25",
        "/100%25zz",
        "/a~b!$&'()*+,=:@",
    ] {
        assert_eq!(check_path(path), Ok(()), "{path}");
    }
}

#[test]
fn urls_are_segments_of_argocd_servers_paths() {
    for path in [
        "/",
        "/api/v1/clusters/https:%2F%2Fkubernetes.default.svc",
        "/api/v1/repositories/https:%2F%2Fgithub.com%2Fa%2F/refs",
        "/api/v1/repositories/%2Fsrv%2Frepository.git/apps",
        "/assets/caf%C3%A9%20a.svg",
    ] {
        assert_eq!(check_argocd_path(path), Ok(()), "{path}");
    }
    for (path, error) in [
        ("//api/v1/applicationsets", Error::EmptySegment),
        ("/api//v1/applicationsets", Error::EmptySegment),
        ("/api/v1/x/../applicationsets", Error::DotSegment),
        ("/api/v1/x%2F..%2Fapplicationsets", Error::DotSegment),
        ("/api/v1/x%2F%2F..%2Fapplicationsets", Error::DotSegment),
        ("/api/v1/%61pplicationsets", Error::NeedlessEncoding),
        ("/api/v1/application%5fsets", Error::NeedlessEncoding),
        ("/api/v1/%2e/applicationsets", Error::EncodedDot),
        ("/api/v1/%252e", Error::DoubleEncoding),
        ("/api\\v1", Error::Backslash),
        ("/api%5cv1", Error::Backslash),
    ] {
        assert_eq!(check_argocd_path(path), Err(error), "{path}");
    }
}

#[test]
fn ambiguous_paths_are_refused() {
    for (path, error) in [
        ("", Error::Target),
        ("*", Error::Target),
        ("a/b", Error::Target),
        ("/..", Error::DotSegment),
        ("/a/./b", Error::DotSegment),
        ("/a/../b", Error::DotSegment),
        ("/a/..;x/b", Error::DotSegment),
        ("/a/..;/b", Error::DotSegment),
        ("/a/..%3Bx/b", Error::DotSegment),
        ("/a/..%20/b", Error::DotSegment),
        ("/a%2F../b", Error::DotSegment),
        ("/a/..%2Fb", Error::DotSegment),
        ("/%2e%2e/b", Error::EncodedDot),
        ("/a/.%2E/b", Error::EncodedDot),
        ("/a%2eb", Error::EncodedDot),
        ("/a\\b", Error::Backslash),
        ("/a%5Cb", Error::Backslash),
        ("/a%5c..%5cb", Error::Backslash),
        ("/a%252e", Error::DoubleEncoding),
        ("/a%252Fb", Error::DoubleEncoding),
        ("/a%2525", Error::DoubleEncoding),
        ("/a%00", Error::Control),
        ("/a%0d%0aX:y", Error::Control),
        ("/a%7f", Error::Control),
        ("/a b", Error::Control),
        ("//", Error::EmptySegment),
        ("//a", Error::EmptySegment),
        ("/a//b", Error::EmptySegment),
        ("/a%2F/b", Error::EmptySegment),
        ("/a/%2Fb", Error::EmptySegment),
        ("/%2F%2Fa", Error::EmptySegment),
        ("/a%", Error::Encoding),
        ("/a%4", Error::Encoding),
        ("/a%zz", Error::Encoding),
        ("/a%u002e", Error::Encoding),
        ("/caf\u{e9}", Error::NotUtf8),
        ("/a%c0%ae", Error::NotUtf8),
        ("/a%FF", Error::NotUtf8),
    ] {
        assert_eq!(check_path(path), Err(error), "{path}");
    }
}

#[test]
fn base_path_and_rest_are_joined() {
    for (base, rest, query, joined) in [
        ("/", "", None, "/"),
        ("/", "/", None, "/"),
        ("/", "/a", Some("q"), "/a?q"),
        ("/base", "", None, "/base"),
        ("/base/", "", None, "/base/"),
        ("/base", "/", None, "/base/"),
        ("/base/", "/a%2Fb", None, "/base/a%2Fb"),
        ("/base", "/a/", Some(""), "/base/a/?"),
    ] {
        assert_eq!(join(base, rest, query).unwrap().as_str(), joined, "{base} {rest}");
    }
    assert_eq!(
        join("/", &format!("/{}", "a".repeat(70_000)), None),
        Err(Error::TooLong)
    );
}

#[test]
fn exactly_one_valid_authority_is_required() {
    let check = |method: Method, uri: &str, hosts: &[&str]| {
        let mut headers = HeaderMap::new();
        for host in hosts {
            headers.append(HOST, HeaderValue::from_bytes(host.as_bytes()).unwrap());
        }
        authority(&method, &uri.parse().unwrap(), &headers).map(str::to_owned)
    };
    let ok = |text: &str| Ok(text.to_owned());
    assert_eq!(check(Method::GET, "/", &["a.example:8443"]), ok("a.example:8443"));
    assert_eq!(check(Method::GET, "/", &["[::1]:80"]), ok("[::1]:80"));
    assert_eq!(check(Method::GET, "http://a/x", &["A"]), ok("A"));
    assert_eq!(check(Method::GET, "https://a/x", &[]), ok("a"));
    for (method, uri, hosts, error) in [
        (Method::CONNECT, "a:443", &["a:443"][..], Error::Connect),
        (Method::OPTIONS, "*", &["a"], Error::Target),
        (Method::GET, "ftp://a/x", &["a"], Error::Scheme),
        (Method::GET, "/", &[], Error::HostMissing),
        (Method::GET, "/", &["a", "a"], Error::HostAmbiguous),
        (Method::GET, "http://a/x", &["b"], Error::HostAmbiguous),
        (Method::GET, "http://a/x", &["a:80"], Error::HostAmbiguous),
        (Method::GET, "/", &[""], Error::HostInvalid),
        (Method::GET, "/", &["user@a"], Error::HostInvalid),
        (Method::GET, "/", &["a/b"], Error::HostInvalid),
        (Method::GET, "/", &["a:99999"], Error::HostInvalid),
        (Method::GET, "/", &["a:"], Error::HostInvalid),
        (Method::GET, "/", &["a, b"], Error::HostInvalid),
        (Method::GET, "/", &["a\u{e9}"], Error::HostInvalid),
    ] {
        assert_eq!(check(method, uri, hosts), Err(error), "{uri} {hosts:?}");
    }
}
