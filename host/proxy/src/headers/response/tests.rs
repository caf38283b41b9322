use http::{HeaderMap, HeaderName, HeaderValue};

use super::super::upstream::Responder;
use super::{
    CLUSTER_RESPONSE_FIELDS, ORIGIN_WIDE, clean_plugin_response, clean_response, clean_trailers,
    restrict_cluster_response,
};

fn map(fields: &[(&str, &str)]) -> HeaderMap {
    let mut map = HeaderMap::new();
    for (name, value) in fields {
        let name: HeaderName = name.parse().unwrap();
        map.append(name, HeaderValue::from_str(value).unwrap());
    }
    map
}

fn sorted(map: &HeaderMap) -> Vec<(&str, &str)> {
    let mut all: Vec<_> = map
        .iter()
        .map(|(name, value)| (name.as_str(), value.to_str().unwrap()))
        .collect();
    all.sort_unstable();
    all
}

fn extension(name: &str) -> Responder {
    Responder::Extension(name.to_owned())
}

#[test]
fn argocd_server_keeps_its_sessions_and_the_fields_of_its_origin() {
    let kept = [
        ("content-security-policy", "frame-ancestors 'self'"),
        ("set-cookie", "argocd.token-1=b; Path=/; HttpOnly"),
        ("set-cookie", "argocd.token=a; Path=/; HttpOnly"),
        ("strict-transport-security", "max-age=1"),
        ("www-authenticate", "Basic"),
    ];
    let mut fields = map(&kept);
    for name in ["tollgate-decision-id", "keep-alive", "proxy-authenticate", "x-hop"] {
        fields.append(HeaderName::from_static(name), HeaderValue::from_static("x"));
    }
    fields.append("connection", HeaderValue::from_static("x-hop"));
    clean_response(&mut fields, &Responder::Argocd);
    assert_eq!(sorted(&fields), kept);
}

#[test]
fn a_backend_sets_only_its_extensions_cookies_on_its_extensions_paths() {
    for cookie in [
        "metrics=1; Path=/extensions/metrics",
        "metrics=; path=/extensions/metrics/; HttpOnly; Secure",
        "metrics-theme=a=b; PATH = /api/v1/extensions/metrics/ui ; Max-Age=1",
        "metrics_x=1; Path=/extensions/metrics; Path=/api/v1/extensions/metrics",
        "metrics.x=1; Path=/extensions/metrics; SameSite=Lax; Partitioned",
    ] {
        let mut fields = map(&[("set-cookie", cookie), ("set-cookie", "argocd.token=x")]);
        clean_response(&mut fields, &extension("metrics"));
        assert_eq!(sorted(&fields), [("set-cookie", cookie)]);
        let others = ["metric", "metrics-theme-2", "Metrics"].map(extension);
        for other in [Responder::Cluster].iter().chain(&others) {
            let mut fields = map(&[("set-cookie", cookie)]);
            clean_response(&mut fields, other);
            assert!(fields.is_empty(), "{cookie} of {other:?}");
        }
    }
    let long = format!("metrics=1; Path=/extensions/metrics/{}", "a".repeat(1024));
    for cookie in [
        "argocd.token=stolen; Path=/extensions/metrics",
        "_gitlab_kas=x; Path=/extensions/metrics",
        "theme=dark; Path=/extensions/metrics",
        "=metrics=1; Path=/extensions/metrics",
        "metrics; Path=/extensions/metrics",
        "metricsx=1; Path=/extensions/metrics",
        "__Host-metrics=1; Path=/extensions/metrics",
        // Without `Path`, the cookie applies to the folder of the page, which may be `/extensions`.
        "metrics=1",
        "metrics=1; Path",
        "metrics=1; Path=",
        "metrics=1; Path=extensions/metrics",
        "metrics=1; Path=\"/extensions/metrics\"",
        "metrics=1; Path=/",
        "metrics=1; Path=/extensions",
        "metrics=1; Path=/extensions/",
        "metrics=1; Path=/extensions/metrics2",
        "metrics=1; Path=/Extensions/metrics",
        "metrics=1; Path=/extensions/metrics; Path=/",
        "metrics=1; Path=/; Path=/extensions/metrics",
        "metrics=1; Path=/extensions/metrics; Domain=example.com",
        "metrics=1; Path=/extensions/metrics; Domain",
        &long,
    ] {
        let mut fields = map(&[("set-cookie", cookie)]);
        clean_response(&mut fields, &extension("metrics"));
        assert!(fields.is_empty(), "{cookie}");
    }
    // An extension cannot set session cookies, even if their names begin with its own.
    for (name, cookie) in [
        ("argocd", "argocd.token=x; Path=/extensions/argocd"),
        ("argocd", "argocd.token-1=x; Path=/extensions/argocd"),
        ("_gitlab_kas", "_gitlab_kas=x; Path=/extensions/_gitlab_kas"),
    ] {
        let mut fields = map(&[("set-cookie", cookie)]);
        clean_response(&mut fields, &extension(name));
        assert!(fields.is_empty(), "{cookie}");
    }
}

#[test]
fn origin_wide_and_gateway_fields_are_removed_from_responses() {
    let harmless = [
        ("access-control-allow-origin", "*"),
        ("cache-control", "no-store"),
        ("content-security-policy", "default-src 'self'"),
        ("content-type", "text/html"),
        ("location", "https://elsewhere.example/"),
        ("server", "backend"),
        ("trailer", "Digest"),
        ("x-accel-buffering", "no"),
        ("x-total-count", "3"),
    ];
    let mut fields = map(&harmless);
    for name in ORIGIN_WIDE.iter().chain(&[
        "attribution-reporting-register-source",
        "tollgate-decision-id",
        "set-cookie",
        "x-hop",
        "keep-alive",
        "proxy-authenticate",
        "upgrade",
    ]) {
        fields.append(HeaderName::from_static(name), HeaderValue::from_static("x"));
        fields.append(HeaderName::from_static(name), HeaderValue::from_static("y"));
    }
    fields.append("connection", HeaderValue::from_static("x-hop, close"));
    clean_response(&mut fields, &extension("metrics"));
    assert_eq!(sorted(&fields), harmless);
    let mut trailers = map(&[
        ("x-sum", "1"),
        ("set-cookie", "metrics=1; Path=/extensions/metrics"),
        ("nel", "{}"),
    ]);
    clean_trailers(&mut trailers);
    assert_eq!(sorted(&trailers), [("x-sum", "1")]);
}

#[test]
fn a_cluster_response_keeps_only_listed_fields() {
    let mut fields = map(&[
        ("server", "pod/1"),
        ("set-cookie", "a=b"),
        ("set-cookie", "_gitlab_kas=x"),
        ("gitlab-unauthorized", "true"),
        ("www-authenticate", "Basic realm=pod"),
        ("access-control-allow-origin", "*"),
        ("refresh", "0; url=/"),
        ("x-anything", "1"),
        ("audit-id", "1"),
        ("content-security-policy", "script-src *"),
        ("via", "1.1 a"),
        ("via", "1.1 b"),
        ("content-type", "text/html"),
    ]);
    clean_response(&mut fields, &Responder::Cluster);
    restrict_cluster_response(&mut fields);
    let expected = [
        ("audit-id", "1"),
        ("content-security-policy", "sandbox"),
        ("content-type", "text/html"),
        ("via", "1.1 a, 1.1 b, 1.1 tollgate"),
        ("x-content-type-options", "nosniff"),
    ];
    assert_eq!(sorted(&fields), expected);
    let mut none = HeaderMap::new();
    restrict_cluster_response(&mut none);
    let always = [
        ("content-security-policy", "sandbox"),
        ("via", "1.1 tollgate"),
        ("x-content-type-options", "nosniff"),
    ];
    assert_eq!(sorted(&none), always);
}

#[test]
fn a_plugin_sets_no_session_and_nothing_for_the_origin() {
    let harmless = [
        ("connection", "upgrade"),
        ("content-security-policy", "default-src 'self'"),
        ("set-cookie", "metrics.view=1; Path=/extensions/metrics"),
        ("strict-transport-security", "max-age=31536000"),
        ("x-frame-options", "DENY"),
    ];
    let mut fields = map(&harmless);
    for name in ORIGIN_WIDE.iter().filter(|name| **name != "strict-transport-security") {
        fields.append(HeaderName::from_static(name), HeaderValue::from_static("x"));
    }
    for cookie in [
        "argocd.token=stolen; Path=/",
        "argocd.token=; Path=/; Max-Age=0",
        "metrics=1; Path=/",
        "other=1; Path=/extensions/metrics",
    ] {
        fields.append("set-cookie", HeaderValue::from_static(cookie));
    }
    clean_plugin_response(&mut fields, "metrics");
    assert_eq!(sorted(&fields), harmless);
}

#[test]
fn lists_are_sorted_for_binary_search() {
    assert!(ORIGIN_WIDE.is_sorted() && CLUSTER_RESPONSE_FIELDS.is_sorted());
    assert!(
        CLUSTER_RESPONSE_FIELDS
            .iter()
            .all(|name| ORIGIN_WIDE.binary_search(name).is_err())
    );
}
