//! Services: URLs, header fields, and the cluster of each.

use super::*;

#[test]
fn service_urls_must_be_http_or_https_with_a_host() {
    for url in [
        "backend",
        "backend:8080",
        "//backend",
        "ftp://backend",
        "unix:/run/x",
        "http://",
    ] {
        let text = format!("services: [{{url: '{url}'}}]");
        let found = refused(&text);
        assert_eq!(found.len(), 1, "{url}: {found:?}");
        assert!(
            found[0].starts_with("cm.yaml:10: error: `url` must be an http or https URL with a host"),
            "{found:?}"
        );
        assert_eq!(class(&[("extension.config.e", &text)]), None, "{url}");
    }
    let found = refused("services: [{url: 'http://me:hunter2@backend'}]");
    assert!(found[0].contains("`url` contains a user or password"), "{found:?}");
    let (spec, lines) = good("services: [{url: 'https://backend:8443/base/api?x=1#y'}]");
    assert_eq!(spec.services[0].url.as_str(), "https://backend:8443/base/api");
    assert_eq!(lines.len(), 1);
}

#[test]
fn the_gateways_own_headers_are_not_configurable() {
    let text = |name: &str| format!("services: [{{url: 'http://a', headers: [{{name: {name}, value: v}}]}}]");
    for name in [
        "Argocd-Username",
        "Host",
        "Content-Length",
        "Connection",
        "X-Forwarded-For",
        "X-Remote-User",
        "Impersonate-User",
        "TE",
    ] {
        let (spec, lines) = good(&text(name));
        assert!(spec.services[0].headers.is_empty(), "{name}");
        assert!(lines[0].contains("is set by the gateway alone"), "{lines:?}");
    }
    for name in ["Authorization", "Cookie", "X-Api-Key", "Tenant"] {
        assert_eq!(good(&text(name)).0.services[0].headers.len(), 1, "{name}");
    }
    assert_eq!(refused(&text("'a b'")).len(), 1);
    let twice = "services: [{url: 'http://a', headers: [{name: A, value: x}, {name: a, value: y}]}]";
    let (spec, lines) = good(twice);
    assert_eq!(
        (spec.services[0].headers.len(), spec.services[0].headers[0].1.as_bytes()),
        (1, b"y".as_slice())
    );
    assert_eq!(lines.len(), 1);
}

#[test]
fn services_are_chosen_by_the_canonical_cluster() {
    let (spec, _) = good(
        "services:\n- {url: 'http://1', cluster: {name: one}}\n- {url: 'http://2', cluster: {server: 'https://two/'}}\n\
         - {url: 'http://3', clusterName: three}\n- {url: 'http://4', cluster: {name: four, server: 'https://four'}}\n",
    );
    let chosen = |name: &str, server: &str| {
        let cluster = Cluster {
            name: name.into(),
            server: server.into(),
            project: String::new(),
        };
        spec.service_for(&cluster)
            .map(|service| service.url.host_str().unwrap().to_owned())
    };
    let expect = |host: &str| Some(format!("0.0.0.{host}"));
    assert_eq!(chosen("one", "https://one"), expect("1"));
    assert_eq!(chosen("two", "https://two"), expect("2"));
    assert_eq!(chosen("three", ""), expect("3"));
    assert_eq!(chosen("four", "https://four"), expect("4"));
    assert_eq!(chosen("", "https://four"), expect("4"));
    assert_eq!(chosen("four", "https://moved"), None);
    assert_eq!(
        chosen("one", "https://two"),
        expect("2"),
        "the server takes precedence over the name"
    );
    assert_eq!(chosen("five", "https://five"), None);
    assert_eq!(chosen("", ""), None);
    let (only, _) = good("services: [{url: 'http://a', cluster: {name: one}}]");
    let any = Cluster {
        name: "other".into(),
        server: String::new(),
        project: String::new(),
    };
    assert!(only.service_for(&any).is_some());
}

#[test]
fn services_of_unknown_or_repeated_clusters_are_warned_about() {
    let text = "services:\n- {url: 'http://1', cluster: {name: in-cluster}}\n- {url: 'http://2', cluster: {server: 'https://kubernetes.default.svc'}}\n- {url: 'http://3', cluster: {name: prod}}\n";
    let mut resources = resources(&[("extension.config.e", text)]);
    assert!(parse(&resources).diagnostics.is_empty());
    resources.clusters = crate::destination::known_clusters(&ConfigMap::default(), Vec::new());
    let found: Vec<String> = parse(&resources).diagnostics.iter().map(ToString::to_string).collect();
    assert_eq!(found.len(), 2, "{found:#?}");
    assert!(
        found[0].starts_with("cm.yaml:13: warning: no known cluster is the one of this service"),
        "{found:#?}"
    );
    assert!(
        found[1].starts_with("cm.yaml:12: warning: cluster `https://kubernetes.default.svc` is also"),
        "{found:#?}"
    );
    assert!(found[1].contains("at cm.yaml:11"), "{found:#?}");
}
