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
pub(super) fn repository(
    secret: &Secret,
    (name, kind): (&str, RepositoryKind),
    object: &Object<'_>,
) -> Option<Repository> {
    let fields = SecretValues(secret);
    if !matches!(fields.text("type"), "" | "git") {
        return None;
    }
    let mut mistakes = Vec::new();
    let url = fields.text("url").trim();
    if url.is_empty() {
        mistakes.push("it has no `url`".to_owned());
    }
    if url.chars().any(char::is_control) {
        mistakes.push("`url` has a control character".to_owned());
    }
    if url.split_once("://").is_some_and(|(scheme, rest)| {
        let authority = rest.split('/').next().unwrap_or_default();
        scheme.starts_with("http") && authority.contains('@')
    }) {
        mistakes.push("`url` names a user; put it under `username` and `password`".to_owned());
    }
    let verification = match fields.flag("insecure", &mut mistakes) {
        true => TlsVerification::Off,
        false => TlsVerification::On,
    };
    let auth = auth(&fields, &mut mistakes);
    let client_certificate = client_certificate(&fields, &mut mistakes);
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
        project: fields.text("project").to_owned(),
        auth,
        client_certificate,
        verification,
        location: secret.location.clone(),
    })
}

struct SecretValues<'s>(&'s Secret);

impl SecretValues<'_> {
    fn text(&self, key: &str) -> &str {
        self.0.values.get(key).map_or("", |value| value.expose_secret())
    }

    fn secret(&self, key: &str) -> Option<SecretString> {
        let value = self.text(key);
        (!value.is_empty()).then(|| SecretString::from(value))
    }

    /// Source: Go's `strconv.ParseBool`.
    fn flag(&self, key: &str, mistakes: &mut Vec<String>) -> bool {
        match self.text(key) {
            "1" | "t" | "T" | "true" | "TRUE" | "True" => true,
            "" | "0" | "f" | "F" | "false" | "FALSE" | "False" => false,
            _ => {
                mistakes.push(format!("`{key}` must be `true` or `false`"));
                false
            }
        }
    }
}

/// Argo CD uses the first of: password or token, SSH key, GitHub App. Here, too, a Secret with
/// several of them is used by its password or token.
fn auth(fields: &SecretValues<'_>, mistakes: &mut Vec<String>) -> RepositoryAuth {
    if !fields.text("proxy").is_empty() {
        let reason = "its secret has `proxy`, and the gateway reads repositories directly".to_owned();
        return RepositoryAuth::Unusable { reason };
    }
    if let Some(token) = fields.secret("bearerToken") {
        if !is_token(&token) {
            mistakes.push(NO_TOKEN.to_owned());
        }
        return RepositoryAuth::Bearer(token);
    }
    let (username, password) = (fields.text("username"), fields.text("password"));
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
    let other = UNSUPPORTED_AUTH
        .iter()
        .find(|(key, _)| !matches!(fields.text(key), "" | "false"));
    match other {
        Some((key, way)) => RepositoryAuth::Unusable {
            reason: format!(
                "its secret has `{key}`, and the gateway does not read by {way}; give `password` or `bearerToken`"
            ),
        },
        None => RepositoryAuth::Anonymous,
    }
}

fn client_certificate(fields: &SecretValues<'_>, mistakes: &mut Vec<String>) -> Option<(SecretString, SecretString)> {
    match (fields.secret("tlsClientCertData"), fields.secret("tlsClientCertKey")) {
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
