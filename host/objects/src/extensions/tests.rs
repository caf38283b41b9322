use std::num::NonZeroU32;
use std::time::Duration;

use secrecy::{ExposeSecret, SecretString};

use super::{ErrorClass, ExtensionSpec, Parsed, Scope, parse, parse_with};
use crate::{Cluster, ConfigMap, Resources, Secret, Text};
use tollgate_config::Compatibility;
use tollgate_core::diagnostic::{Loaded, Location};

mod mistakes;
mod objects;
mod services;

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
                )
                .into(),
            ),
            (
                "tls".to_owned(),
                secret(&labelled, &[("key", &key_pem()), ("broken", "hunter3")]).into(),
            ),
            ("private".to_owned(), secret(&[], &[("key", "hunter4")]).into()),
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
    let Parsed { specs, classes } = parse_with(&resources(keys), Compatibility::Argocd);
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
    assert_ne!(spec.tls, good(&text).0.tls, "each call generates another key");
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
fn secret_references_are_resolved_or_refused_by_name() {
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
        Compatibility::Argocd,
    )
    .specs;
    assert_eq!(kept.diagnostics.len(), 1);
    assert_eq!(kept.value.unwrap()[0].services[0].headers[0].1, "$nothing");
    let (spec, _) = good("services: [{url: $url}]");
    assert_eq!(spec.services[0].url.as_str(), "http://u/");
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
