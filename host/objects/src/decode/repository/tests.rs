//! Tests of repository Secrets: each way of authentication, and what is left out with a warning.

use secrecy::ExposeSecret as _;
use serde_json::{Value, json};

use crate::decode::load_text;
use crate::{RepositoryAuth, RepositoryKind, Resources, TlsVerification};

fn load(secret_type: &str, values: &Value) -> (Resources, Vec<String>) {
    let object = json!({
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": { "name": "repo", "labels": { "argocd.argoproj.io/secret-type": secret_type } },
        "stringData": values,
    });
    let cm = "{apiVersion: v1, kind: ConfigMap, metadata: {name: argocd-cm}}\n---\n";
    let loaded = load_text(&format!("{cm}{object}"), "repositories.yaml", "argocd");
    let lines = loaded.diagnostics.iter().map(ToString::to_string).collect();
    (loaded.value.expect("a bad Secret does not stop the load"), lines)
}

#[test]
fn a_password_and_a_project_are_read() {
    let (resources, lines) = load(
        "repository",
        &json!({ "url": "https://git.example/a.git", "username": "u", "password": "s3cr3t", "project": "shop" }),
    );
    assert!(lines.is_empty(), "{lines:?}");
    let read = &resources.repositories["repo"];
    assert_eq!(read.kind, RepositoryKind::Repository);
    assert_eq!(
        (read.url.as_str(), read.project.as_str()),
        ("https://git.example/a.git", "shop")
    );
    let RepositoryAuth::Basic { username, password } = &read.auth else {
        panic!("{read:?}");
    };
    assert_eq!((username.expose_secret(), password.expose_secret()), ("u", "s3cr3t"));
    assert!(!format!("{read:?}").contains("s3cr3t"), "a secret in Debug");
}

#[test]
fn repo_creds_secrets_are_credential_templates() {
    let (resources, lines) = load(
        "repo-creds",
        &json!({ "url": "https://git.example/team", "bearerToken": "t0k3n" }),
    );
    assert!(lines.is_empty(), "{lines:?}");
    let read = &resources.repositories["repo"];
    assert_eq!(read.kind, RepositoryKind::Credentials);
    assert!(matches!(&read.auth, RepositoryAuth::Bearer(token) if token.expose_secret() == "t0k3n"));
}

#[test]
fn a_repository_without_credentials_is_anonymous() {
    let (resources, _) = load("repository", &json!({ "url": "https://git.example/a" }));
    assert!(matches!(resources.repositories["repo"].auth, RepositoryAuth::Anonymous));
}

#[test]
fn secrets_of_other_types_are_ignored() {
    for other in ["helm", "oci"] {
        let (resources, lines) = load("repository", &json!({ "url": "https://charts.example", "type": other }));
        assert!(
            resources.repositories.is_empty() && lines.is_empty(),
            "{other}: {lines:?}"
        );
    }
    let (resources, _) = load("cluster-ish", &json!({ "url": "https://git.example/a" }));
    assert!(resources.repositories.is_empty());
}

#[test]
fn an_invalid_secret_is_left_out_with_a_warning() {
    for (values, reason) in [
        (json!({ "username": "u" }), "it has no `url`"),
        (
            json!({ "url": "https://git.example/a", "insecure": "perhaps" }),
            "`insecure` must be",
        ),
        (
            json!({ "url": "https://git.example/a", "bearerToken": "a b" }),
            "`bearerToken` has characters",
        ),
        (
            json!({ "url": "https://git.example/a", "username": "u", "password": "v4lue\n" }),
            "`password` has a control",
        ),
        (
            json!({ "url": "https://git.example/a", "tlsClientCertData": "x" }),
            "need each other",
        ),
        (json!({ "url": "https://u:v4lue@git.example/a" }), "`url` names a user"),
        (json!({ "url": "HTTPS://u:v4lue@git.example/a" }), "`url` names a user"),
    ] {
        let (resources, lines) = load("repository", &values);
        assert!(resources.repositories.is_empty(), "{values}");
        let lines = lines.join("\n");
        assert!(lines.contains(reason) && lines.contains("warning"), "{values}: {lines}");
        assert!(!lines.contains("v4lue"), "a value in a finding: {lines}");
    }
}

#[test]
fn unsupported_authentication_methods_are_kept_as_unusable() {
    for key in ["sshPrivateKey", "githubAppPrivateKey", "proxy"] {
        let (resources, _) = load("repository", &json!({ "url": "https://git.example/a", key: "v4lue" }));
        let RepositoryAuth::Unusable { reason } = &resources.repositories["repo"].auth else {
            panic!("{key} is usable");
        };
        assert!(reason.contains(key) && !reason.contains("v4lue"), "{reason}");
    }
}

#[test]
fn disabled_tls_verification_is_warned_about() {
    let (resources, lines) = load(
        "repository",
        &json!({ "url": "https://git.example/a", "insecure": "true" }),
    );
    assert_eq!(resources.repositories["repo"].verification, TlsVerification::Off);
    assert!(lines.join("\n").contains("is not verified"), "{lines:?}");
}
