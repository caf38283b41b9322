//! Expands a Secret that has `kubeconfig` into the same Secret with `server` and `config`.
//!
//! Security: a kubeconfig that runs programs, names files of the gateway's machine or impersonates
//! somebody is refused. No error contains a value of it.

use secrecy::{ExposeSecret as _, SecretString};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value, json};

use crate::Secret;

pub(in crate::decode) const KUBECONFIG: &str = "kubeconfig";
pub(in crate::decode) const CONTEXT: &str = "context";

/// What is read of a kubeconfig.
///
/// Source: `k8s.io/client-go/tools/clientcmd/api/v1`.
#[derive(Deserialize)]
struct Kubeconfig {
    clusters: Option<Vec<NamedCluster>>,
    users: Option<Vec<NamedUser>>,
    contexts: Option<Vec<NamedContext>>,
    #[serde(rename = "current-context")]
    current_context: Option<String>,
}

// SECURITY: each kind of entry has its own key. What stands below another key is not read, and the entry that is
// named is then missing: it must not become a user without a credential.
#[derive(Deserialize)]
struct NamedCluster {
    name: String,
    cluster: Option<Cluster>,
}

#[derive(Deserialize)]
struct NamedUser {
    name: String,
    user: Option<AuthInfo>,
}

#[derive(Deserialize)]
struct NamedContext {
    name: String,
    context: Option<Context>,
}

#[derive(Deserialize)]
struct Context {
    cluster: String,
    user: Option<String>,
}

#[derive(Deserialize)]
#[serde(rename_all = "kebab-case")]
struct Cluster {
    server: Option<String>,
    insecure_skip_tls_verify: Option<bool>,
    certificate_authority: Option<String>,
    certificate_authority_data: Option<String>,
    proxy_url: Option<String>,
    tls_server_name: Option<String>,
}

#[derive(Default, Deserialize)]
#[serde(rename_all = "kebab-case", default)]
struct AuthInfo {
    username: Option<String>,
    password: Option<SecretString>,
    token: Option<SecretString>,
    #[serde(rename = "tokenFile")]
    token_file: Option<String>,
    client_certificate: Option<String>,
    client_certificate_data: Option<String>,
    client_key: Option<String>,
    client_key_data: Option<SecretString>,
    r#as: Option<IgnoredAny>,
    as_uid: Option<IgnoredAny>,
    as_groups: Option<IgnoredAny>,
    as_user_extra: Option<IgnoredAny>,
    auth_provider: Option<IgnoredAny>,
    exec: Option<IgnoredAny>,
}

/// Replaces `kubeconfig` by `server` and `config`, if the Secret has one. The context is the one
/// named by `context`, else its `current-context`. The error is what in it cannot be used, and what
/// to do instead.
pub(in crate::decode) fn expand(secret: &mut Secret) -> Result<(), Vec<String>> {
    // Taken out, so that it is not among the values that a provider may be granted.
    let Some(text) = secret.values.remove(KUBECONFIG) else {
        return Ok(());
    };
    let context = secret.values.remove(CONTEXT);
    for key in ["server", "config"] {
        if secret.values.contains_key(key) {
            return Err(vec![format!("it has `{KUBECONFIG}` and `{key}`; keep one")]);
        }
    }
    // The parser's message could quote the kubeconfig.
    let documents: Vec<Kubeconfig> = serde_saphyr::from_multiple(text.expose_secret())
        .map_err(|_| vec![format!("`{KUBECONFIG}` is not a kubeconfig")])?;
    let current = documents
        .iter()
        .find_map(|document| document.current_context.as_deref());
    let wanted = context.as_ref().map(|name| name.expose_secret());
    let wanted = wanted.or(current).unwrap_or_default();
    let (cluster, user) = find(&documents, wanted).map_err(|mistake| vec![mistake])?;
    let mut mistakes = Vec::new();
    let config = config(cluster, user.unwrap_or(&AuthInfo::default()), &mut mistakes);
    let server = cluster.server.clone().unwrap_or_default();
    if server.is_empty() {
        mistakes.push(format!("the cluster of context `{wanted}` has no `server`"));
    }
    if !mistakes.is_empty() {
        return Err(mistakes);
    }
    let mut put = |key: &str, value: String| secret.values.insert(key.to_owned(), SecretString::from(value));
    put("server", server);
    put("config", config.to_string());
    Ok(())
}

/// The first of all documents counts, as in kubectl.
fn find<'a>(documents: &'a [Kubeconfig], wanted: &str) -> Result<(&'a Cluster, Option<&'a AuthInfo>), String> {
    let mut contexts = documents.iter().flat_map(|document| document.contexts.iter().flatten());
    let context = contexts.find(|entry| entry.name == wanted);
    let context = context
        .and_then(|entry| entry.context.as_ref())
        .ok_or_else(|| format!("`{KUBECONFIG}` has no context `{wanted}`; name one in `{CONTEXT}`"))?;
    let mut clusters = documents.iter().flat_map(|document| document.clusters.iter().flatten());
    let cluster = clusters
        .find(|entry| entry.name == context.cluster)
        .and_then(|entry| entry.cluster.as_ref())
        .ok_or_else(|| format!("the cluster of context `{wanted}` is not in `{KUBECONFIG}`"))?;
    let Some(name) = context.user.as_deref().filter(|name| !name.is_empty()) else {
        return Ok((cluster, None));
    };
    let mut users = documents.iter().flat_map(|document| document.users.iter().flatten());
    let user = users
        .find(|entry| entry.name == name)
        .and_then(|entry| entry.user.as_ref())
        .ok_or_else(|| format!("the user of context `{wanted}` is not in `{KUBECONFIG}`"))?;
    Ok((cluster, Some(user)))
}

/// The `config` of a cluster Secret with the same meaning. Null stands for an absent value.
fn config(cluster: &Cluster, user: &AuthInfo, mistakes: &mut Vec<String>) -> Value {
    for (key, path) in [
        ("certificate-authority", &cluster.certificate_authority),
        ("tokenFile", &user.token_file),
        ("client-certificate", &user.client_certificate),
        ("client-key", &user.client_key),
    ] {
        if path.as_ref().is_some_and(|path| !path.is_empty()) {
            let hint = "embed it: `kubectl config view --raw --flatten`";
            mistakes.push(format!("`{key}` of `{KUBECONFIG}` names a file; {hint}"));
        }
    }
    if user.exec.is_some() || user.auth_provider.is_some() {
        let hint = "no program is run here; use `config` with a `provider`";
        mistakes.push(format!("`{KUBECONFIG}` has `exec` or `auth-provider`; {hint}"));
    }
    let impersonates =
        user.r#as.is_some() || user.as_uid.is_some() || user.as_groups.is_some() || user.as_user_extra.is_some();
    if impersonates {
        let why = "the gateway does that itself";
        mistakes.push(format!("`{KUBECONFIG}` impersonates somebody; {why}"));
    }
    let secret = |value: &Option<SecretString>| value.as_ref().map(|value| value.expose_secret().to_owned());
    json!({
        "proxyUrl": cluster.proxy_url,
        "bearerToken": secret(&user.token),
        "username": user.username,
        "password": secret(&user.password),
        "tlsClientConfig": {
            "insecure": cluster.insecure_skip_tls_verify,
            "serverName": cluster.tls_server_name,
            "caData": cluster.certificate_authority_data,
            "certData": user.client_certificate_data,
            "keyData": secret(&user.client_key_data),
        },
    })
}

#[cfg(test)]
mod tests;
