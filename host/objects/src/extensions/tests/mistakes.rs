//! Errors in settings: their class, their location, and what Argo CD accepts.

use super::*;

#[test]
fn invalid_settings_are_refused_with_their_line() {
    for (setting, message) in [
        (
            "connectionTimeout: 10",
            "cm.yaml:11: error: `connectionTimeout`: a duration needs a unit: ns, us, ms, s, m or h",
        ),
        (
            "connectionTimeout: 1h",
            "cm.yaml:11: error: `connectionTimeout` is 3600s, allowed is 1ms to 300s",
        ),
        (
            "keepAlive: -1s",
            "cm.yaml:11: error: `keepAlive`: a duration must not be negative",
        ),
        (
            "maxIdleConnections: 10001",
            "cm.yaml:11: error: `maxIdleConnections` must be a whole number from 0 to 10000",
        ),
        (
            "idleConnTimeout: 0s",
            "cm.yaml:11: error: `idleConnTimeout` must not be 0 (leave it out for no bound)",
        ),
        (
            "scope: cluster",
            "cm.yaml:11: error: `scope` must be application, project or global",
        ),
        (
            "timeouts: {idle: 1s}\nidleConnTimeout: 1s",
            "cm.yaml:11: error: `timeouts.idle` and `idleConnTimeout` are both set, one is allowed",
        ),
        (
            "timeouts: {idel: 1s}",
            "cm.yaml:11: error: unknown key `idel` in `timeouts` (known keys: idle, total, upgradeLifetime)",
        ),
        (
            "limits: {concurrency: 0}",
            "cm.yaml:11: error: `concurrency` must be a whole number from 1 to 1000000",
        ),
        (
            "limits: {burst: 3}",
            "cm.yaml:11: error: `burst` needs `requestsPerSecond`",
        ),
        (
            "limits: {perPerson: 3}",
            "cm.yaml:11: error: `perPerson` must be a mapping, found a number",
        ),
        (
            "enabled: perhaps",
            "cm.yaml:11: error: `enabled` must be true or false, found text",
        ),
        (
            "identity: {requestHeader: true}",
            "cm.yaml:11: error: `requestHeader` needs `tls.clientCertificate`, the service could not tell the gateway from anyone else",
        ),
        (
            "identity: {assertion: {audience: 'a b'}}",
            "cm.yaml:11: error: `audience` must be 1 to 256 visible ASCII characters",
        ),
        (
            "identity: {assertion: {audience: a, lifetime: 6m}}",
            "cm.yaml:11: error: `lifetime` is 360s, allowed is 1s to 300s",
        ),
        (
            "tls: {ca: nonsense}",
            "cm.yaml:11: error: `ca` is not PEM text of the kind that belongs here",
        ),
        (
            "tls: {serverName: 'a b'}",
            "cm.yaml:11: error: `serverName` is neither a host name nor an IP address",
        ),
    ] {
        assert_eq!(refused(&with(setting)), [message], "{setting}");
    }
    assert_eq!(
        refused(&with("identity: {assertion: {lifetime: 1m}}")).len(),
        1,
        "an assertion needs an audience"
    );
}

#[test]
fn settings_argo_cd_does_not_check_have_no_error_class() {
    for setting in [
        "connectionTimeout: 10",
        "scope: cluster",
        "limits: {concurrency: 0}",
        "timeouts: {x: 1}",
        "tls: {ca: x}",
    ] {
        assert_eq!(refused(&with(setting)).len(), 1, "{setting}");
        assert_eq!(class(&[("extension.config.e", &with(setting))]), None, "{setting}");
    }
    let text = "services: [{url: 'http://me:hunter2@backend', headers: [{name: a b, value: c}]}]";
    let parsed = parse_with(&resources(&[("extension.config.e", text)]), Compatibility::Argocd);
    let spec = parsed.specs.value.unwrap().remove(0);
    assert_eq!(
        (spec.services[0].url.as_str(), spec.services[0].headers.len()),
        ("http://backend/", 0)
    );
}

#[test]
fn error_classes_follow_the_order_of_argo_cds_checks() {
    use ErrorClass as C;
    let main = "extension.config";
    let twice = "services: [{url: 'http://a', cluster: {name: c}}, {url: 'http://b', cluster: {server: s, name: c}}]";
    for (key, text, expected) in [
        (main, "extensions: [{name: a, backend: {services: [{url: x}]}}]", None),
        (main, "", None),
        (main, "extensions:", None),
        (main, "test", Some(C::DecodeError)),
        (main, "- a", Some(C::DecodeError)),
        (main, "a: [", Some(C::DecodeError)),
        (main, "extensions: {}", Some(C::DecodeError)),
        (main, "extensions: [a]", Some(C::DecodeError)),
        (main, "extensions: [{backend: {services: text}}]", Some(C::DecodeError)),
        (main, "extensions: [{name: [a], backend: {}}]", Some(C::DecodeError)),
        (
            main,
            "extensions: [{name: 12, backend: {services: [{url: true}]}}]",
            None,
        ),
        (main, "extensions: [null]", Some(C::MissingExtensionName)),
        (
            main,
            "extensions: [{name: '', backend: {}}]",
            Some(C::MissingExtensionName),
        ),
        (main, "extensions: [{name: a b}]", Some(C::InvalidExtensionName)),
        (main, "extensions: [{name: a}]", Some(C::MissingServices)),
        (
            main,
            "extensions: [{name: a, backend: {services: []}}, {name: a}]",
            Some(C::MissingServices),
        ),
        (
            main,
            "extensions: [{name: a, backend: {services: [{url: x}]}}, {name: a}]",
            Some(C::DuplicateExtensionName),
        ),
        ("extension.config.a", "", Some(C::MissingServices)),
        ("extension.config.a/b", SERVICE, Some(C::InvalidExtensionName)),
        ("extension.configfoo", SERVICE, None),
        ("extension.config.a", "services: [null]", Some(C::MissingServiceUrl)),
        (
            "extension.config.a",
            "services: [{url: ''}, {url: b}]",
            Some(C::MissingServiceUrl),
        ),
        (
            "extension.config.a",
            "services: [{url: a}, {url: b}]",
            Some(C::MissingClusterForMultipleServices),
        ),
        ("extension.config.a", "services: [{url: a, cluster: null}]", None),
        (
            "extension.config.a",
            "services: [{url: a, cluster: {}}]",
            Some(C::EmptyCluster),
        ),
        (
            "extension.config.a",
            "services: [{url: a, cluster: {name: ''}, headers: [{}]}]",
            Some(C::EmptyCluster),
        ),
        (
            "extension.config.a",
            "services: [{url: a, cluster: c}]",
            Some(C::DecodeError),
        ),
        (
            "extension.config.a",
            "services: [{url: a, headers: [{}]}]",
            Some(C::MissingHeaderName),
        ),
        (
            "extension.config.a",
            "services: [{url: a, headers: [{name: n, value: ''}, {}]}]",
            Some(C::MissingHeaderValue),
        ),
        ("extension.config.a", twice, Some(C::DuplicateClusterKey)),
        (
            "extension.config.a",
            "services: [{url: a, cluster: {name: c}}, {url: b, cluster: {name: c}, headers: [{}]}]",
            Some(C::MissingHeaderName),
        ),
        (
            "extension.config.a",
            "services: [{url: a, timeout: 3s}]\nconnectionTimeout: 1s\nother: 1",
            None,
        ),
    ] {
        assert_eq!(class(&[(key, text)]), expected, "{key}: {text}");
    }
    let both = [
        (main, "extensions: [{name: b, backend: {services: [{url: x}]}}]"),
        ("extension.config.b", SERVICE),
    ];
    assert_eq!(class(&both), Some(C::DuplicateExtensionName));
}

#[test]
fn unknown_keys_and_a_missing_dot_are_refused_but_accepted_by_argo_cd() {
    let keys = [(
        "extension.configfoo",
        "services: [{url: 'http://a', timeout: 3s}]\nconnectTimeout: 1s\n",
    )];
    let found = parse(&resources(&keys));
    let lines: Vec<String> = found.diagnostics.iter().map(ToString::to_string).collect();
    assert!(found.value.is_none());
    assert_eq!(lines.len(), 3, "{lines:?}");
    assert!(
        lines[0].contains("error") && lines[0].contains("(write `extension.config.foo`)"),
        "{lines:?}"
    );
    assert!(
        lines
            .iter()
            .any(|line| line.contains("error: unknown key `timeout` in a service")),
        "{lines:?}"
    );
    let argocd = parse_with(&resources(&keys), Compatibility::Argocd).specs;
    assert_eq!(argocd.value.unwrap()[0].name, "foo");
    assert!(!argocd.diagnostics.iter().any(|finding| finding.is_error()));
    assert_eq!(argocd.diagnostics.len(), 3);
}

#[test]
fn all_mistakes_are_reported_at_once() {
    let found = refused(
        "connectionTimeout: x\nservices:\n- headers: [{value: v}]\n- url: http://b\n  cluster: {}\nlimits: {x: 1}\n",
    );
    let lines: Vec<&str> = found.iter().filter_map(|line| line.split(": error").next()).collect();
    assert_eq!(
        lines,
        [
            "cm.yaml:12",
            "cm.yaml:12",
            "cm.yaml:12",
            "cm.yaml:14",
            "cm.yaml:10",
            "cm.yaml:15"
        ],
        "{found:#?}"
    );
}
