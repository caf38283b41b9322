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
    // The UI encodes names of clusters once more, and repositories may have encodings in their URLs.
    for path in [
        "/api/v1/clusters/https%253A%252F%252Fkubernetes.default.svc/invalidate-cache",
        "/api/v1/clusters/a%2520b",
        "/api/v1/repositories/https%3A%2F%2Fdev.azure.com%2Fa%2FMy%2520Project%2F_git%2Fb/refs",
        "/api/v1/repositories/https%3A%2F%2Fa.example%2F100%252525",
        "/api/v1/repositories/https%3A%2F%2Fcharts.example%2F",
        "/api/v1/repositories/https%3A%2F%2Fa.example%2Fcaf%25C3%25A9",
    ] {
        assert_eq!(check_argocd_path(path), Ok(()), "{path}");
    }
    for path in [
        "/api/v1/%252e%252e/applicationsets",
        "/api/v1/clusters/x%252F%252e%252e%252Fy",
        "/api/v1/clusters/x%25252e",
        "/api/v1/clusters/x%255Cy",
        "/api/v1/clusters/x%2500",
        "/api/v1/clusters/x%250d%250a",
        "/api/v1/clusters/x%25250a",
    ] {
        assert_eq!(check_argocd_path(path), Err(Error::DoubleEncoding), "{path}");
    }
    for path in [
        "/api/v1/clusters/x%252F..%252Fy",
        "/api/v1/clusters/x%25252F..",
        "/api/v1/clusters/..%252Fy",
    ] {
        assert_eq!(check_argocd_path(path), Err(Error::DotSegment), "{path}");
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
fn an_encoded_slash_may_be_a_segment_of_a_backend() {
    for path in [
        "/api/queues/%2F/orders",
        "/api/vhosts/%2f",
        "/a/%2F/%2F/b",
        "/a/%2F/",
        "/a/b%2Fc",
    ] {
        assert_eq!(check_backend_path(path), Ok(()), "{path}");
    }
    for (path, error) in [
        ("/%2F/a", Error::EmptySegment),
        ("/%2F", Error::EmptySegment),
        ("/a/%2Fb", Error::EmptySegment),
        ("/a/b%2F/c", Error::EmptySegment),
        ("/a/%2F%2F/c", Error::EmptySegment),
        ("/a//%2F/c", Error::EmptySegment),
        ("/a/%252F/c", Error::DoubleEncoding),
        ("/a/../%2F/c", Error::DotSegment),
        ("/a/%2F/../c", Error::DotSegment),
        ("/a/%2F/%2e%2e/c", Error::EncodedDot),
        ("/a/%5C/c", Error::Backslash),
    ] {
        assert_eq!(check_backend_path(path), Err(error), "{path}");
    }
}

#[test]
fn only_behind_proxy_is_a_path_a_backends() {
    let of_service = "/api/v1/namespaces/shop/services/broker:15672/proxy";
    for path in [
        format!("{of_service}/api/queues/%2F/orders"),
        format!("{of_service}/api/vhosts/%2F"),
        "/api/v1/namespaces/shop/pods/broker-0/proxy/api/queues/%2F".to_owned(),
        "/api/v1/nodes/a/proxy/x/%2F".to_owned(),
        of_service.to_owned(),
    ] {
        assert_eq!(check_cluster_path(&path), Ok(()), "{path}");
        assert_eq!(check_path(&path).is_ok(), !path.contains("%2F"), "{path}");
    }
    for path in [
        format!("{of_service}/%2F/x"),
        "/api/v1/namespaces/%2F/pods".to_owned(),
        "/api/v1/namespaces/shop/%2F/pods".to_owned(),
        "/api/v1/namespaces/shop/services/%2F/proxy/x/%2F".to_owned(),
        "/api/v1/namespaces/%2F/services/a/proxy/x/%2F".to_owned(),
        "/api/v1/proxy/namespaces/shop/services/a/x/%2F".to_owned(),
        "/apis/proxy/v1/a/b/%2F".to_owned(),
        "/proxy/x/%2F/y".to_owned(),
    ] {
        assert_eq!(check_cluster_path(&path), Err(Error::EmptySegment), "{path}");
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

#[test]
fn a_connect_names_a_host_and_a_port() {
    let check = |target: &str, fields: &[(&'static str, &str)]| {
        let fields = fields
            .iter()
            .map(|(name, value)| (name.parse().unwrap(), value.parse().unwrap()));
        let headers: HeaderMap = fields.collect();
        connect_authority(&target.parse().unwrap(), &headers).map(|authority| authority.to_string())
    };
    for (target, authority) in [
        ("prod.example:6443", "prod.example:6443"),
        ("PROD.Example:1", "prod.example:1"),
        ("kubernetes.default.svc:443", "kubernetes.default.svc:443"),
        ("a_b-c.example.:65535", "a_b-c.example.:65535"),
        ("192.0.2.1:443", "192.0.2.1:443"),
        ("[2001:DB8::1]:443", "[2001:db8::1]:443"),
        ("[::ffff:192.0.2.1]:443", "[::ffff:192.0.2.1]:443"),
    ] {
        let host = target.rsplit_once(':').unwrap().0;
        for host in [target, host, &target.to_ascii_uppercase(), &host.to_ascii_lowercase()] {
            assert_eq!(
                check(target, &[("host", host)]),
                Ok(authority.to_owned()),
                "{target} {host}"
            );
        }
    }
    // The longest one, and one byte more.
    let of_length = |last: usize| format!("{0}.{0}.{0}.{1}:65535", "a".repeat(62), "a".repeat(last));
    let (longest, too_long) = (of_length(60), of_length(61));
    assert_eq!(check(&longest, &[("host", &longest)]), Ok(longest.clone()));
    for target in [
        "prod.example",
        "prod.example:0",
        "prod.example:0443",
        "prod.example:65536",
        "user@prod.example:443",
        "user:secret@prod.example:443",
        "http://prod.example:443",
        "https://prod.example:443/",
        "/prod.example:443",
        "*",
        "prod..example:443",
        ".example:443",
        "-a.example:443",
        "a,b:443",
        "127.1:443",
        "192.0.2.256:443",
        "[::1]",
        "[192.0.2.1]:443",
        "[v1.a]:443",
        "[]:443",
        &too_long,
    ] {
        assert_eq!(
            check(target, &[("host", target)]),
            Err(Error::ConnectTarget),
            "{target}"
        );
    }
    for (fields, error) in [
        (&[][..], Error::HostMissing),
        (&[("host", "a:1"), ("host", "a:1")], Error::HostAmbiguous),
        (&[("host", "b:1")], Error::HostAmbiguous),
        (&[("host", "a:2")], Error::HostAmbiguous),
        (&[("host", "a:")], Error::HostAmbiguous),
        (&[("host", "")], Error::HostAmbiguous),
        (&[("host", "a:1"), ("content-length", "1")], Error::ConnectContent),
        (&[("host", "a:1"), ("content-length", "00")], Error::ConnectContent),
        (
            &[("host", "a:1"), ("transfer-encoding", "chunked")],
            Error::ConnectContent,
        ),
    ] {
        assert_eq!(check("a:1", fields), Err(error), "{fields:?}");
    }
    assert_eq!(
        check("a:1", &[("host", "a:1"), ("content-length", "0")]),
        Ok("a:1".to_owned())
    );
}
