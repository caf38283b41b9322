use std::num::NonZeroU32;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

use super::{ErrorClass, ExtensionSpec, Options, Parsed, Scope, parse, parse_with};
use crate::diagnostic::{Loaded, Location};
use crate::state::{Cluster, ConfigMap, Resources, Secret, Text};

fn resources(keys: &[(&str, &str)]) -> Resources {
    let text = |(key, value): &(&str, &str)| {
        let location = Location::new("cm.yaml", 10);
        (
            String::from(*key),
            Text {
                value: (*value).into(),
                location,
            },
        )
    };
    let secret = |labels: &[(&str, &str)], values: &[(&str, &str)]| Secret {
        labels: labels
            .iter()
            .map(|(key, value)| (String::from(*key), String::from(*value)))
            .collect(),
        values: values
            .iter()
            .map(|(key, value)| (String::from(*key), SecretString::from(*value)))
            .collect(),
        location: Location::new("secret.yaml", 1),
    };
    let labelled = [("app.kubernetes.io/part-of", "argocd")];
    Resources {
        argocd_cm: ConfigMap {
            data: keys.iter().map(text).collect(),
        },
        secrets: [
            (
                "argocd-secret".to_owned(),
                secret(
                    &[],
                    &[("token", " Bearer hunter2\n"), ("empty", " "), ("url", "http://u")],
                ),
            ),
            (
                "tls".to_owned(),
                secret(&labelled, &[("key", &key_pem()), ("broken", "hunter3")]),
            ),
            ("private".to_owned(), secret(&[], &[("key", "hunter4")])),
        ]
        .into(),
        ..Resources::default()
    }
}

fn key_pem() -> String {
    rcgen::KeyPair::generate().unwrap().serialize_pem()
}

fn one(text: &str) -> Loaded<Vec<ExtensionSpec>> {
    parse(&resources(&[("extension.config.e", text)]))
}

fn good(text: &str) -> (ExtensionSpec, Vec<String>) {
    let Loaded { value, diagnostics } = one(text);
    let lines: Vec<String> = diagnostics.iter().map(ToString::to_string).collect();
    let mut specs = value.unwrap_or_else(|| panic!("{lines:#?}"));
    assert_eq!(specs.len(), 1);
    (specs.remove(0), lines)
}

fn refused(text: &str) -> Vec<String> {
    let Loaded { value, diagnostics } = one(text);
    assert!(value.is_none(), "{text}");
    let lines: Vec<String> = diagnostics
        .iter()
        .filter(|finding| finding.is_error())
        .map(ToString::to_string)
        .collect();
    assert!(!lines.iter().any(|line| line.contains("hunter")), "{lines:?}");
    lines
}

const SERVICE: &str = "services: [{url: 'http://a'}]\n";

fn with(text: &str) -> String {
    format!("{SERVICE}{text}")
}

fn class(keys: &[(&str, &str)]) -> Option<ErrorClass> {
    let Parsed { specs, classes } = parse_with(&resources(keys), Options::ARGOCD);
    let parsed = Parsed { specs, classes };
    assert_eq!(parsed.class().is_none(), parsed.specs.value.is_some());
    parsed.class()
}

#[test]
fn defaults_are_argo_cds() {
    let (spec, lines) = good(SERVICE);
    assert_eq!(lines, [""; 0]);
    assert_eq!(spec.scope, Scope::Application);
    assert_eq!(spec.connection.connect_timeout, Duration::from_secs(2));
    assert_eq!(spec.connection.keep_alive, Duration::from_secs(15));
    assert_eq!(spec.connection.idle_connection_timeout, Duration::from_secs(60));
    assert_eq!(spec.connection.max_idle_connections, 30);
    assert_eq!((spec.timeouts.idle, spec.timeouts.total), (None, None));
    let zero = with("connectionTimeout: 0s\nkeepAlive: 0\nidleConnectionTimeout: 0\nmaxIdleConnections: 0\n");
    assert_eq!(good(&zero).0.connection, spec.connection);
}

#[test]
fn every_setting_is_read() {
    let (spec, lines) = good(&with(
        "connectionTimeout: 1500ms\nkeepAlive: 10s\nidleConnectionTimeout: 2m\nmaxIdleConnections: 7\nscope: project\n\
         timeouts: {idle: 10s, total: 1m, upgradeLifetime: 1h}\n\
         limits:\n  concurrency: 5\n  requestsPerSecond: 10\n  burst: 20\n  perPerson: {concurrency: 2}\n\
         identity: {assertion: {audience: metrics, lifetime: 30s}}\n",
    ));
    assert_eq!(lines, [""; 0]);
    assert_eq!(spec.connection.connect_timeout, Duration::from_millis(1500));
    assert_eq!(spec.connection.max_idle_connections, 7);
    assert_eq!(spec.scope, Scope::Project);
    assert_eq!(spec.timeouts.idle, Some(Duration::from_secs(10)));
    assert_eq!(spec.timeouts.upgrade_lifetime, Some(Duration::from_secs(3600)));
    assert_eq!(spec.limits.burst, NonZeroU32::new(20));
    assert_eq!(spec.limits.per_person.concurrency, NonZeroU32::new(2));
    assert_eq!(spec.limits.per_person.burst, None);
    let assertion = spec.identity.assertion.unwrap();
    assert_eq!(
        (assertion.audience.as_str(), assertion.lifetime),
        ("metrics", Duration::from_secs(30))
    );
    let (spec, _) = good(&with("proxyconfig: {connectionTimeout: 3s}\nidleConnTimeout: 4s\n"));
    assert_eq!(spec.connection.connect_timeout, Duration::from_secs(3));
    assert_eq!(spec.timeouts.idle, Some(Duration::from_secs(4)));
}

#[test]
fn settings_out_of_bounds_are_refused_where_they_stand() {
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
fn tls_material_comes_from_secrets_and_stays_hidden() {
    let certified = rcgen::generate_simple_self_signed(vec!["a".to_owned()]).unwrap();
    let certificate = certified.cert.pem().replace('\n', "\n    ");
    let text = format!(
        "services: [{{url: 'https://a'}}]\ntls:\n  clientCertificate: |\n    {certificate}\n  clientKey: $tls:key\n  serverName: b\nidentity: {{requestHeader: true}}\n"
    );
    let (spec, lines) = good(&text);
    assert_eq!(lines, [""; 0]);
    assert!(
        spec.tls
            .client_key_pem
            .as_ref()
            .unwrap()
            .expose_secret()
            .contains("PRIVATE KEY")
    );
    assert!(spec.identity.request_header);
    assert!(!format!("{spec:?}").contains("PRIVATE"), "{spec:?}");
    assert_ne!(spec.tls, good(&text).0.tls, "each load makes another key");
    let alone = refused(&text.replace("  clientKey: $tls:key\n", ""));
    assert_eq!(
        alone,
        ["cm.yaml:12: error: `clientCertificate` and `clientKey` belong together, one is missing"]
    );
    assert_eq!(refused(&text.replace("$tls:key", "$tls:broken")).len(), 1);
    let (_, lines) = good(&text.replace("https://a", "http://a"));
    assert_eq!(lines.len(), 1, "TLS settings without https: {lines:?}");
}

#[test]
fn references_lead_to_secrets_or_are_refused_by_name() {
    let text =
        |value: &str| format!("services:\n- url: http://a\n  headers:\n  - name: Authorization\n    value: {value}\n");
    let (spec, _) = good(&text("$token"));
    let (name, value) = &spec.services[0].headers[0];
    assert_eq!(
        (name.as_str(), value.to_str().unwrap()),
        ("authorization", "Bearer hunter2")
    );
    assert!(value.is_sensitive());
    assert!(!format!("{spec:?}").contains("hunter2"));
    assert!(!good(&text("plain")).0.services[0].headers[0].1.is_sensitive());
    for (value, message) in [
        (
            "$nothing",
            "`$nothing` names a key that Secret `argocd-secret` does not have",
        ),
        (
            "$tls:nothing",
            "`$tls:nothing` names a key that Secret `tls` does not have",
        ),
        ("$gone:key", "`$gone:key` names Secret `gone`, which does not exist"),
        (
            "$private:key",
            "`$private:key` names Secret `private`, which lacks the label `app.kubernetes.io/part-of: argocd`",
        ),
        (
            "'$2a$10$hunter5'",
            "a value that begins with `$` is not a reference to a key of a Secret",
        ),
    ] {
        let expected =
            format!("cm.yaml:14: error: {message} (add the key to the Secret, or write the value without `$`)");
        assert_eq!(refused(&text(value)), [expected]);
    }
    assert_eq!(refused(&text("$empty")), ["cm.yaml:13: error: a header has no `value`"]);
    let kept = parse_with(
        &resources(&[("extension.config.e", &text("$nothing"))]),
        Options::ARGOCD,
    )
    .specs;
    assert_eq!(kept.diagnostics.len(), 1);
    assert_eq!(kept.value.unwrap()[0].services[0].headers[0].1, "$nothing");
    let (spec, _) = good("services: [{url: $url}]");
    assert_eq!(spec.services[0].url.as_str(), "http://u/");
}

#[test]
fn urls_must_lead_somewhere() {
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
fn what_argo_cd_does_not_check_is_a_warning_when_compared_with_it() {
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
    let parsed = parse_with(&resources(&[("extension.config.e", text)]), Options::ARGOCD);
    let spec = parsed.specs.value.unwrap().remove(0);
    assert_eq!(
        (spec.services[0].url.as_str(), spec.services[0].headers.len()),
        ("http://backend/", 0)
    );
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
fn classes_follow_argo_cds_order() {
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
fn unknown_keys_and_a_missing_dot_are_refused_and_argo_cd_takes_them() {
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
    let argocd = parse_with(&resources(&keys), Options::ARGOCD).specs;
    assert_eq!(argocd.value.unwrap()[0].name, "foo");
    assert!(!argocd.diagnostics.iter().any(|finding| finding.is_error()));
    assert_eq!(argocd.diagnostics.len(), 3);
}

#[test]
fn disabled_extensions_are_checked_and_left_out() {
    let main =
        |url: &str| format!("extensions: [{{name: a, enabled: false, backend: {{services: [{{url: '{url}'}}]}}}}]");
    let parsed = |url: &str| parse(&resources(&[("extension.config", &main(url))])).value;
    assert!(parsed("http://a").unwrap().is_empty());
    assert!(parsed("a").is_none());
    assert!(one(&with("enabled: false")).value.unwrap().is_empty());
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
        "the server is the better key"
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
fn services_are_compared_with_the_known_clusters() {
    let text = "services:\n- {url: 'http://1', cluster: {name: in-cluster}}\n- {url: 'http://2', cluster: {server: 'https://kubernetes.default.svc'}}\n- {url: 'http://3', cluster: {name: prod}}\n";
    let mut resources = resources(&[("extension.config.e", text)]);
    assert!(parse(&resources).diagnostics.is_empty());
    resources.clusters = crate::state::destination::known_clusters(&ConfigMap::default(), Vec::new());
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

#[test]
fn the_sample_folder_configures_two_extensions_without_findings() {
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/data/state/good");
    let resources = crate::state::directory::load(&folder, "argocd").value.unwrap();
    let Loaded { value, diagnostics } = parse(&resources);
    assert!(diagnostics.is_empty(), "{diagnostics:#?}");
    let specs = value.unwrap();
    let names: Vec<&str> = specs.iter().map(|spec| spec.name.as_str()).collect();
    assert_eq!(names, ["metrics", "rollouts"]);
    assert_eq!(specs[0].services[0].headers[0].1, "s3cret");
    assert_eq!(specs[0].services[0].url.path(), "/api");
    assert!(specs[0].location.file.ends_with("argocd-cm.yaml"));
    assert_eq!(specs[0].location.line, 12);
    assert_eq!(specs[1].services[1].location.line, 35);
    let prod = resources
        .clusters
        .iter()
        .find(|cluster| cluster.name == "prod")
        .unwrap();
    assert_eq!(
        specs[1].service_for(prod).unwrap().url.host_str(),
        Some("rollouts.prod.example.com")
    );
}
