//! Tests of cluster Secrets: each authentication method alone, every pair of methods, and the texts
//! of errors.

use std::sync::Arc;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use crate::decode::load_text;
use crate::{ClusterAuth, ClusterConfig, Resources, TlsVerification};

const SERVER: &str = "https://prod.example.com";

/// A Secret with `config` and other values.
fn manifest(name: &str, server: &str, config: &Value) -> String {
    let object = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name,
            "resourceVersion": "4711",
            "labels": { "argocd.argoproj.io/secret-type": "cluster", "team": "shop" },
        },
        "stringData": {
            "name": name, "server": server, "config": config.to_string(),
            "project": "p", "namespaces": "a,b", "clusterResources": "true", "shard": "1",
            "orgName": "acme", "token": "t0p-s3cr3t",
        },
    });
    format!("{object}\n---\n")
}

fn load(text: &str) -> (Resources, Vec<String>) {
    let cm = "{apiVersion: v1, kind: ConfigMap, metadata: {name: argocd-cm}}\n---\n";
    let loaded = load_text(&format!("{cm}{text}"), "clusters.yaml", "argocd");
    let lines = loaded.diagnostics.iter().map(ToString::to_string).collect();
    (loaded.value.expect("the load is not refused"), lines)
}

fn read(config: &Value) -> (Arc<ClusterConfig>, Vec<String>) {
    let (resources, lines) = load(&manifest("prod", SERVER, config));
    (resources.cluster_configs[SERVER].clone(), lines)
}

/// Decodes a config that must be valid and without findings.
fn good(config: &Value) -> Arc<ClusterConfig> {
    let (read, lines) = read(config);
    assert!(lines.is_empty(), "{config}: {lines:?}");
    read
}

/// The reason why a config cannot be used.
fn bad(config: &Value) -> String {
    let (read, lines) = read(config);
    let ClusterAuth::Unusable { reason } = &read.auth else {
        panic!("{config}: {read:?}");
    };
    let lines = lines.join("\n");
    assert!(lines.starts_with("clusters.yaml:3"), "{lines}");
    assert!(
        lines.contains("the cluster of secret `prod` cannot be used: "),
        "{lines}"
    );
    assert!(reason.split("; ").all(|part| lines.contains(part)), "{reason}: {lines}");
    lines
}

fn certificate() -> (String, String) {
    let key = rcgen::KeyPair::generate().unwrap();
    let params = rcgen::CertificateParams::new(vec!["client".to_owned()]).unwrap();
    (params.self_signed(&key).unwrap().pem(), key.serialize_pem())
}

/// Every authentication method, with the key that selects it.
fn auth_methods() -> Vec<(&'static str, Value)> {
    let (chain, key) = certificate();
    let pair = json!({ "certData": STANDARD.encode(chain), "keyData": STANDARD.encode(key) });
    vec![
        ("bearerToken", json!({ "bearerToken": "b34r3r" })),
        ("username", json!({ "username": "admin", "password": "p4ssw0rd" })),
        ("tlsClientConfig.certData", json!({ "tlsClientConfig": pair })),
        (
            "webAPIProviderConfig",
            json!({ "webAPIProviderConfig": { "method": "GET", "url": "https://x.example", "tokenPath": "$.t" } }),
        ),
        (
            "provider",
            json!({ "provider": { "name": "upbound", "config": { "organization": "acme" } } }),
        ),
        (
            "awsAuthConfig",
            json!({ "awsAuthConfig": { "clusterName": "c", "roleARN": "arn:aws:iam::1:role/r" } }),
        ),
        (
            "execProviderConfig",
            json!({ "execProviderConfig": { "command": "kubelogin" } }),
        ),
    ]
}

#[test]
fn each_authentication_method_alone() {
    let methods: Vec<String> = auth_methods()
        .iter()
        .map(|(_, config)| read(config).0.auth.as_ref().to_owned())
        .collect();
    let expected = [
        "bearer",
        "basic",
        "client-certificate",
        "provider",
        "provider",
        "unusable",
        "unusable",
    ];
    assert_eq!(methods, expected);
    assert_eq!(good(&json!({})).auth.as_ref(), "anonymous");
    assert_eq!(
        good(&json!({ "bearerToken": "", "awsAuthConfig": null })).auth.as_ref(),
        "anonymous"
    );
    let ClusterAuth::Bearer(token) = &good(&auth_methods()[0].1).auth else {
        panic!()
    };
    assert_eq!(token.expose_secret(), "b34r3r");
    let ClusterAuth::Basic { username, password } = &good(&auth_methods()[1].1).auth else {
        panic!()
    };
    assert_eq!(
        (username.expose_secret(), password.expose_secret()),
        ("admin", "p4ssw0rd")
    );
    let ClusterAuth::ClientCertificate { chain_pem, key_pem } = &good(&auth_methods()[2].1).auth else {
        panic!()
    };
    assert!(chain_pem.contains("BEGIN CERTIFICATE") && key_pem.expose_secret().contains("PRIVATE KEY"));
    let ClusterAuth::Provider {
        name,
        config,
        public: _,
    } = &good(&auth_methods()[3].1).auth
    else {
        panic!()
    };
    assert_eq!((name.as_str(), &config["tokenPath"]), ("webapi", &json!("$.t")));
    let ClusterAuth::Provider {
        name,
        config,
        public: _,
    } = &good(&auth_methods()[4].1).auth
    else {
        panic!()
    };
    assert_eq!((name.as_str(), config), ("upbound", &json!({ "organization": "acme" })));
}

#[test]
fn every_pair_of_authentication_methods_is_refused() {
    let auth_methods = auth_methods();
    for (at, (first, one)) in auth_methods.iter().enumerate() {
        for (second, other) in &auth_methods[at + 1..] {
            let mut both = one.as_object().unwrap().clone();
            both.extend(other.as_object().unwrap().clone());
            let message = bad(&Value::Object(both));
            let named = format!("`{first}`, `{second}` are several ways of authentication; keep one");
            assert!(message.contains(&named), "{first} {second}: {message}");
        }
    }
}

#[test]
fn invalid_configs_have_specific_errors_without_secret_values() {
    for (config, expected) in [
        (json!({ "bearertoken": "x" }), "did you mean `bearerToken`?"),
        (json!({ "bearer_token": "x" }), "did you mean `bearerToken`?"),
        (
            json!({ "webApiProviderConfig": {} }),
            "did you mean `webAPIProviderConfig`?",
        ),
        (json!({ "zzz": 1 }), "`zzz` is not known; known are `username`"),
        (
            json!({ "tlsClientConfig": { "cadata": "" } }),
            "`tlsClientConfig.cadata` is not known; did you mean `caData`?",
        ),
        (
            json!({ "provider": { "name": "x", "conf": {} } }),
            "did you mean `config`?",
        ),
        (
            json!({ "webAPIProviderConfig": { "method": "GET", "url": "u", "tokenpath": "$.t" } }),
            "`webAPIProviderConfig.tokenPath` is missing",
        ),
        (
            json!({ "webAPIProviderConfig": { "method": "GET", "url": "u", "tokenPath": "$.t", "header": {} } }),
            "did you mean `headers`?",
        ),
        (json!({ "provider": {} }), "`provider.name` must be"),
        (json!({ "provider": { "name": "../x" } }), "`provider.name` must be"),
        (
            json!({ "provider": { "name": "x", "config": [] } }),
            "`provider.config` must be an object",
        ),
        (json!({ "provider": "x" }), "`provider` is not a JSON object"),
        (json!({ "bearerToken": 1 }), "`bearerToken` must be text"),
        (json!({ "bearerToken": "b34r3r\n" }), "characters no token has"),
        (json!({ "bearerToken": "Bearer b34r3r" }), "characters no token has"),
        (json!({ "password": "p4ssw0rd" }), "`password` needs `username`"),
        (json!({ "username": "a:b" }), "`username` has a colon"),
        (
            json!({ "username": "a", "password": "p4ssw0rd\n" }),
            "`password` has a control character",
        ),
        (
            json!({ "tlsClientConfig": { "insecure": "yes" } }),
            "must be true or false",
        ),
        (
            json!({ "tlsClientConfig": { "serverName": "a b" } }),
            "neither a name nor an address",
        ),
        (json!({ "tlsClientConfig": { "caData": "p4ssw0rd!" } }), "is not base64"),
        (
            json!({ "tlsClientConfig": { "caData": "aGVsbG8=" } }),
            "`tlsClientConfig.caData` holds no PEM certificate",
        ),
        (
            json!({ "tlsClientConfig": { "certData": "aGVsbG8=" } }),
            "needs `keyData`",
        ),
        (
            json!({ "tlsClientConfig": { "keyData": "aGVsbG8=" } }),
            "holds no PEM key",
        ),
        (
            json!({ "tlsClientConfig": { "caData": "aGVsbG8=", "insecure": true } }),
            "`insecure`, which excludes it",
        ),
        (json!([]), "`config` is not a JSON object"),
    ] {
        let lines = bad(&config);
        assert!(lines.contains(expected), "{config}: {lines}");
        for value in ["b34r3r", "p4ssw0rd", "aGVsbG8", "t0p-s3cr3t", "a:b"] {
            assert!(!lines.contains(value), "{lines}");
        }
    }
}

#[test]
fn invalid_json_and_duplicate_keys_are_refused() {
    let secret = |config: &str| manifest("prod", SERVER, &json!(null)).replace("\"null\"", &json!(config).to_string());
    for (config, expected) in [
        ("bearerToken: b34r3r", "`config` is not a JSON object"),
        ("{\"bearerToken\": \"b34r3r\"", "`config` is not a JSON object"),
        (
            r#"{"bearerToken":"a","bearerToken":"b34r3r"}"#,
            "`bearerToken` occurs twice",
        ),
        (r#"{"b34r3r b34r3r":1}"#, "`…` is not known"),
    ] {
        let (resources, lines) = load(&secret(config));
        let lines = lines.join("\n");
        assert!(
            lines.contains(expected) && !lines.contains("b34r3r"),
            "{config}: {lines}"
        );
        assert_eq!(resources.cluster_configs[SERVER].auth.as_ref(), "unusable");
    }
    let (resources, lines) = load(&secret(" \n"));
    assert!(lines.is_empty(), "{lines:?}");
    assert_eq!(resources.cluster_configs[SERVER].auth.as_ref(), "anonymous");
}

#[test]
fn errors_for_exec_and_aws_authentication_suggest_a_provider() {
    let exec = |command: &str, args: &[&str]| {
        bad(&json!({ "execProviderConfig": {
            "command": command, "args": args, "env": { "X": "p4ssw0rd" },
            "apiVersion": "client.authentication.k8s.io/v1beta1", "installHint": "p4ssw0rd",
        } }))
    };
    for (command, args, provider) in [
        ("argocd-k8s-auth", &["aws", "--cluster-name", "p4ssw0rd"][..], "aws-eks"),
        ("argocd-k8s-auth", &["gcp"], "gcp-gke"),
        ("argocd-k8s-auth", &["azure"], "azure-aks"),
        ("/usr/local/bin/aws", &["eks", "get-token"], "aws-eks"),
        ("aws-iam-authenticator", &["token"], "aws-eks"),
        ("gke-gcloud-auth-plugin", &[], "gcp-gke"),
        ("kubelogin", &["get-token"], "azure-aks"),
        ("C:\\bin\\kubelogin.exe", &[], "azure-aks"),
        ("up", &["organization", "token"], "upbound"),
        ("vault", &["read"], "vault"),
        ("kubectl-oidc_login", &[], "oauth2"),
        ("sh", &["-c", "aws eks get-token"], "<plugin>"),
        ("argocd-k8s-auth", &["other"], "<plugin>"),
        ("p4ssw0rd", &[], "<plugin>"),
    ] {
        let lines = exec(command, args);
        let expected = format!("write `\"provider\": {{\"name\": \"{provider}\"");
        assert!(lines.contains(&expected), "{command}: {lines}");
        assert!(!lines.contains("p4ssw0rd"), "{lines}");
    }
    let aws = |config: Value| bad(&json!({ "awsAuthConfig": config }));
    let role = aws(json!({ "clusterName": "prod-eks", "roleARN": "arn:aws:iam::1:role/r" }));
    assert!(
        role.contains("\"aws-eks\"") && role.contains("\"roleArn\"") && !role.contains("arn:aws"),
        "{role}"
    );
    let plain = aws(json!({ "clusterName": "prod-eks" }));
    assert!(plain.contains("\"aws-eks\"") && !plain.contains("roleArn"), "{plain}");
    let profile = aws(json!({ "clusterName": "prod-eks", "profile": "/p4ssw0rd" }));
    assert!(profile.contains("`awsAuthConfig.profile` names a file"), "{profile}");
    assert!(!profile.contains("p4ssw0rd"), "{profile}");
}

/// `execProviderConfig` that runs a program.
fn exec_of(command: &str, args: &[&str]) -> Value {
    json!({
        "command": command, "args": args, "env": { "TOLLGATE_AUTH_TOKEN": "p4ssw0rd" },
        "apiVersion": "client.authentication.k8s.io/v1",
    })
}

#[test]
fn argo_cd_may_get_the_credential_of_a_provider_by_the_gateways_own_helper() {
    let providers = auth_methods()
        .into_iter()
        .filter(|(key, _)| *key == "webAPIProviderConfig" || *key == "provider");
    let providers: Vec<(&str, Value)> = providers.collect();
    for (key, provider) in &providers {
        let alone = good(provider);
        let beside = |exec: Value| {
            let mut config = provider.clone();
            config["execProviderConfig"] = exec;
            config
        };
        for (command, args) in [
            (
                "tollgate",
                &["credential", "exec", "prod", "--server", "https://gate.example"][..],
            ),
            ("/shared/tollgate", &["credential", "exec", SERVER]),
            (
                "/shared/tollgate",
                &["credential", "exec", "--config", "/etc/tollgate.yaml", "prod"],
            ),
        ] {
            // The gateway itself gets the credential as without it.
            let served = good(&beside(exec_of(command, args)));
            assert_eq!(format!("{served:?}"), format!("{alone:?}"), "{key}: {command} {args:?}");
        }
        let several = format!("`{key}`, `execProviderConfig` are several ways of authentication; keep one");
        for (command, args) in [
            ("sh", &["credential", "exec", "prod"][..]),
            ("tollgate-wrapper", &["credential", "exec", "prod"]),
            ("tollgate", &["credential", "get", "prod"]),
            ("tollgate", &["--server", "x", "credential", "exec", "prod"]),
            ("tollgate", &[]),
        ] {
            let lines = bad(&beside(exec_of(command, args)));
            assert!(lines.contains(&several), "{command} {args:?}: {lines}");
            assert!(
                lines.contains("the gateway runs no programs"),
                "{command} {args:?}: {lines}"
            );
        }
        for other in ["staging", "https://staging.example.com"] {
            let lines = bad(&beside(exec_of("tollgate", &["credential", "exec", other])));
            let expected =
                "`execProviderConfig` asks for the credential of another cluster; its third argument must be `prod`";
            assert!(lines.contains(expected) && !lines.contains("staging"), "{lines}");
        }
    }
    let helper = exec_of("tollgate", &["credential", "exec", "prod"]);
    let lines = bad(&json!({ "execProviderConfig": helper }));
    assert!(
        lines.contains("add `webAPIProviderConfig` or `provider` beside it"),
        "{lines}"
    );
    for (key, method) in auth_methods() {
        if matches!(key, "webAPIProviderConfig" | "provider" | "execProviderConfig") {
            continue;
        }
        let mut config = method;
        config["execProviderConfig"] = helper.clone();
        let lines = bad(&config);
        let several = format!("`{key}`, `execProviderConfig` are several ways of authentication; keep one");
        assert!(lines.contains(&several) && !lines.contains("p4ssw0rd"), "{lines}");
    }
}

#[test]
fn tls_settings_are_kept() {
    let (ca, _) = certificate();
    let encoded = STANDARD.encode(&ca);
    let broken: Vec<String> = encoded
        .as_bytes()
        .chunks(64)
        .map(|line| String::from_utf8_lossy(line).into())
        .collect();
    let config = good(&json!({
        "bearerToken": "b34r3r", "disableCompression": true,
        "tlsClientConfig": { "serverName": "kubernetes.example", "caData": broken.join("\n"), "insecure": false },
    }));
    assert_eq!(config.tls.server_name.as_deref(), Some("kubernetes.example"));
    assert_eq!(config.tls.ca_pem.as_deref(), Some(ca.as_str()));
    assert_eq!(config.tls.verification, TlsVerification::On);
    let (config, lines) = read(&json!({ "bearerToken": "b34r3r", "tlsClientConfig": { "insecure": true } }));
    assert_eq!(
        (config.tls.verification, config.auth.as_ref()),
        (TlsVerification::Off, "bearer")
    );
    assert!(
        lines[0].contains("is not verified") && lines[0].contains("`caData`"),
        "{lines:?}"
    );
}

#[test]
fn other_secret_values_are_kept_for_providers() {
    let config = good(&auth_methods()[4].1);
    let names: Vec<&str> = config.values.keys().map(String::as_str).collect();
    assert_eq!(names, ["orgName", "token"]);
    assert_eq!(config.values["token"].expose_secret(), "t0p-s3cr3t");
    assert_eq!(config.secret_name.as_deref(), Some("prod"));
    assert_eq!(config.resource_version.as_deref(), Some("4711"));
    assert_eq!(config.labels["team"], "shop");
}

#[test]
fn one_invalid_secret_does_not_affect_others() {
    let other = "https://other.example.com";
    let text = manifest("prod", SERVER, &json!({ "bearer": 1 })) + &manifest("other", other, &auth_methods()[0].1);
    let (resources, lines) = load(&text);
    assert_eq!(lines.len(), 1, "{lines:?}");
    assert!(lines[0].contains("warning: "), "{lines:?}");
    assert_eq!(resources.cluster_configs[SERVER].auth.as_ref(), "unusable");
    assert_eq!(resources.cluster_configs[other].auth.as_ref(), "bearer");
    assert_eq!(resources.clusters.len(), 3);
}

#[test]
fn in_cluster_has_its_own_identity_unless_configured() {
    let own = "https://kubernetes.default.svc";
    let auth = |text: &str| {
        let resources = load(text).0;
        assert_eq!(resources.cluster_configs.len(), resources.clusters.len());
        <&str>::from(&resources.cluster_configs[own].auth)
    };
    assert_eq!(auth(""), "in-cluster");
    assert_eq!(auth(&manifest("own", own, &json!({}))), "in-cluster");
    assert_eq!(
        auth(&manifest("own", &format!("{own}/"), &auth_methods()[0].1)),
        "bearer"
    );
    assert_eq!(auth(&manifest("own", own, &json!({ "x": 1 }))), "unusable");
    let off = "{apiVersion: v1, kind: ConfigMap, metadata: {name: argocd-cm}, data: {cluster.inClusterEnabled: 'false'}}\n---\n";
    let text = format!("{off}{}", manifest("own", own, &auth_methods()[0].1));
    let resources = load_text(&text, "clusters.yaml", "argocd").value.unwrap();
    assert!(resources.clusters.is_empty() && resources.cluster_configs.is_empty());
}

#[test]
fn debug_output_and_findings_show_no_secret_value() {
    for (method, config) in auth_methods() {
        let (resources, lines) = load(&manifest("prod", SERVER, &config));
        let shown = format!("{resources:?}{lines:?}");
        for value in [
            "b34r3r",
            "p4ssw0rd",
            "PRIVATE",
            "t0p-s3cr3t",
            "organization\"",
            "x.example",
        ] {
            assert!(!shown.contains(value), "{method}: `{value}`");
        }
    }
}

/// How the gateway itself reaches a cluster that is enrolled.
fn credential(name: &str, namespace: &str, config: &Value) -> String {
    let object = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {
            "name": name, "namespace": namespace, "resourceVersion": "7",
            "labels": { "tollgate.dev/secret-type": "cluster" },
        },
        "stringData": { "server": format!("{SERVER}/"), "config": config.to_string() },
    });
    format!("{object}\n---\n")
}

/// What Argo CD reads: a way to the gateway, with its own token for it.
fn enrolled() -> String {
    manifest(
        "prod",
        SERVER,
        &json!({ "proxyUrl": "https://tollgate.argocd.svc", "bearerToken": "f0r-us" }),
    )
}

#[test]
fn an_enrolled_cluster_is_reached_by_the_gateways_own_secret() {
    let own = json!({ "bearerToken": "0wn", "tlsClientConfig": { "serverName": "kube" } });
    let (resources, lines) = load(&format!("{}{}", enrolled(), credential("prod", "tollgate", &own)));
    assert_eq!(lines, [""; 0]);
    let config = &resources.cluster_configs[SERVER];
    let ClusterAuth::Bearer(token) = &config.auth else {
        panic!("{config:?}");
    };
    assert_eq!(token.expose_secret(), "0wn");
    assert!(config.is_enrolled);
    assert_eq!(config.tls.server_name.as_deref(), Some("kube"));
    assert_eq!(
        (config.secret_name.as_deref(), config.resource_version.as_deref()),
        (Some("prod"), Some("7"))
    );
    assert_eq!(
        resources
            .clusters
            .iter()
            .filter(|cluster| cluster.name == "prod")
            .count(),
        1
    );
    // A Secret of Argo CD's own with the same name is another one.
    assert_eq!(resources.secrets["prod"].text("name"), "prod");
}

#[test]
fn what_argo_cd_could_read_or_is_ambiguous_reaches_no_enrolled_cluster() {
    let own = json!({ "bearerToken": "0wn" });
    let proxied = json!({ "proxyUrl": "https://elsewhere", "bearerToken": "0wn" });
    for (secrets, expected) in [
        (String::new(), "which has no secret for it"),
        (credential("prod", "argocd", &own), "Argo CD can read it"),
        (
            credential("prod", "tollgate", &proxied),
            "reaches clusters without `proxyUrl`",
        ),
        (
            format!(
                "{}{}",
                credential("a", "tollgate", &own),
                credential("b", "tollgate", &own)
            ),
            "two secrets say how the gateway reaches",
        ),
    ] {
        let (resources, lines) = load(&format!("{}{secrets}", enrolled()));
        let config = &resources.cluster_configs[SERVER];
        assert!(
            config.is_enrolled && matches!(config.auth, ClusterAuth::Unusable { .. }),
            "{config:?}"
        );
        let lines = lines.join("\n");
        assert!(lines.contains(expected), "{lines}");
        assert!(!lines.contains("0wn") && !lines.contains("f0r-us"), "{lines}");
    }
    // Without enrolment it means nothing.
    let direct = manifest("prod", SERVER, &json!({ "bearerToken": "b34r3r" }));
    let (resources, _) = load(&format!("{direct}{}", credential("prod", "tollgate", &own)));
    let ClusterAuth::Bearer(token) = &resources.cluster_configs[SERVER].auth else {
        panic!("another authentication");
    };
    assert_eq!(token.expose_secret(), "b34r3r");
}

#[test]
fn a_member_of_another_type_is_named_itself() {
    for (exec, expected) in [
        (
            json!({"command": "aws", "args": "eks get-token"}),
            "`execProviderConfig.args` must be a list of texts",
        ),
        (
            json!({"command": "aws", "args": [1]}),
            "`execProviderConfig.args` must be a list of texts",
        ),
        (
            json!({"command": ["aws"], "args": []}),
            "`execProviderConfig.command` must be text",
        ),
        (json!("aws"), "`execProviderConfig` is no object"),
    ] {
        let lines = bad(&json!({ "execProviderConfig": exec }));
        assert!(lines.contains(expected), "{exec}: {lines}");
        let blames_command = lines.contains("`execProviderConfig.command`");
        assert_eq!(blames_command, exec["command"].is_array(), "{exec}: {lines}");
    }
}
