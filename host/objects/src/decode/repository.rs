//! Decodes Secrets of repositories and of repository credentials into [`Repository`]. A Secret that
//! cannot be used is left out with a warning.
//!
//! Security: no finding contains a value of the Secret, and no way of authentication starts a
//! program.

use secrecy::{ExposeSecret, SecretString};

use super::Object;
use super::cluster::{NO_TOKEN, NO_USERNAME, is_token, is_username};
use crate::{Repository, RepositoryAuth, RepositoryKind, Secret, TlsVerification};

/// Keys of ways of authentication that the gateway does not support, and their names.
const UNSUPPORTED_AUTH: [(&str, &str); 5] = [
    ("sshPrivateKey", "SSH"),
    ("githubAppPrivateKey", "a GitHub App"),
    ("gcpServiceAccountKey", "a Google service account"),
    ("azureServicePrincipalClientSecret", "an Azure service principal"),
    ("useAzureWorkloadIdentity", "Azure's workload identity"),
];

/// What a Secret with this `secret-type` is for; `None` if not for repositories.
pub(super) fn kind(secret_type: &str) -> Option<RepositoryKind> {
    match secret_type {
        "repository" => Some(RepositoryKind::Repository),
        "repo-creds" => Some(RepositoryKind::Credentials),
        _ => None,
    }
}

/// Reads the Secret `name`; `None` if it is not for git or cannot be used at all.
///
/// Source: Argo CD's `type`, `git` when empty; generators cannot use Helm and OCI registries.
pub(super) fn repository(secret: &Secret, name: &str, kind: RepositoryKind, object: &Object<'_>) -> Option<Repository> {
    if !matches!(secret.text("type"), "" | "git") {
        return None;
    }
    let mut mistakes = Vec::new();
    let url = secret.text("url").trim();
    if url.is_empty() {
        mistakes.push("it has no `url`".to_owned());
    }
    if url.chars().any(char::is_control) {
        mistakes.push("`url` has a control character".to_owned());
    }
    if url.split_once("://").is_some_and(|(scheme, rest)| {
        let authority = rest.split('/').next().unwrap_or_default();
        let is_http = ["http", "https"].iter().any(|http| scheme.eq_ignore_ascii_case(http));
        is_http && authority.contains('@')
    }) {
        mistakes.push("`url` names a user; put it under `username` and `password`".to_owned());
    }
    // Source: Go's `strconv.ParseBool`.
    let verification = match secret.text("insecure") {
        "1" | "t" | "T" | "true" | "TRUE" | "True" => TlsVerification::Off,
        "" | "0" | "f" | "F" | "false" | "FALSE" | "False" => TlsVerification::On,
        _ => {
            mistakes.push("`insecure` must be `true` or `false`".to_owned());
            TlsVerification::On
        }
    };
    let auth = auth(secret, &mut mistakes);
    let client_certificate = client_certificate(secret, &mut mistakes);
    let about = format!("the repository of secret `{name}`");
    if !mistakes.is_empty() {
        object.warn(format!("{about} is left out: {}", mistakes.join("; ")));
        return None;
    }
    if verification == TlsVerification::Off {
        object.warn(format!("{about} is not verified: `insecure`"));
    }
    Some(Repository {
        secret: name.to_owned(),
        kind,
        url: url.to_owned(),
        project: secret.text("project").to_owned(),
        auth,
        client_certificate,
        verification,
        location: secret.location.clone(),
    })
}

/// A value, unless it is absent or empty.
fn value(secret: &Secret, key: &str) -> Option<SecretString> {
    let value = secret.values.get(key)?;
    (!value.expose_secret().is_empty()).then(|| value.clone())
}

/// Argo CD uses the first of: password or token, SSH key, GitHub App. Here, too, a Secret with
/// several of them is used by its password or token.
fn auth(secret: &Secret, mistakes: &mut Vec<String>) -> RepositoryAuth {
    if !secret.text("proxy").is_empty() {
        let reason = "its secret has `proxy`, and the gateway reads repositories directly".to_owned();
        return RepositoryAuth::Unusable { reason };
    }
    if let Some(token) = value(secret, "bearerToken") {
        if !is_token(&token) {
            mistakes.push(NO_TOKEN.to_owned());
        }
        return RepositoryAuth::Bearer(token);
    }
    let (username, password) = (secret.text("username"), secret.text("password"));
    if !username.is_empty() || !password.is_empty() {
        if !is_username(username) {
            mistakes.push(NO_USERNAME.to_owned());
        }
        if password.contains(char::is_control) {
            mistakes.push("`password` has a control character; line breaks count".to_owned());
        }
        return RepositoryAuth::Basic {
            username: SecretString::from(username),
            password: SecretString::from(password),
        };
    }
    let mut others = UNSUPPORTED_AUTH.iter();
    // `useAzureWorkloadIdentity` is a boolean. No key of the others is `false`.
    let Some((key, way)) = others.find(|(key, _)| !matches!(secret.text(key), "" | "false")) else {
        return RepositoryAuth::Anonymous;
    };
    let reason =
        format!("its secret has `{key}`, and the gateway does not read by {way}; give `password` or `bearerToken`");
    RepositoryAuth::Unusable { reason }
}

fn client_certificate(secret: &Secret, mistakes: &mut Vec<String>) -> Option<(SecretString, SecretString)> {
    match (value(secret, "tlsClientCertData"), value(secret, "tlsClientCertKey")) {
        (None, None) => None,
        (Some(chain), Some(key)) => Some((chain, key)),
        (Some(_), None) | (None, Some(_)) => {
            mistakes.push("`tlsClientCertData` and `tlsClientCertKey` need each other".to_owned());
            None
        }
    }
}

#[cfg(test)]
mod tests;
