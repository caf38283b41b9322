//! Expands a Secret that has `kubeconfig` into the same Secret with `server` and `config`.
//!
//! Security: a kubeconfig that runs programs, names files of the gateway's machine or impersonates
//! somebody is refused. No error contains a value of it.

use kube::config::{AuthInfo, Cluster, Kubeconfig};
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Value, json};

use crate::Secret;

pub(in crate::decode) const KUBECONFIG: &str = "kubeconfig";
pub(in crate::decode) const CONTEXT: &str = "context";

/// Replaces `kubeconfig` by `server` and `config`, if the Secret has one. The context is the one
/// named by `context`, else its `current-context`. The error is what in it cannot be used, and what
/// to do instead.
pub(in crate::decode) fn expand(secret: &mut Secret) -> Result<(), Vec<String>> {
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
    let kubeconfig =
        Kubeconfig::from_yaml(text.expose_secret()).map_err(|_| vec![format!("`{KUBECONFIG}` is not a kubeconfig")])?;
    let wanted = context.as_ref().map(|name| name.expose_secret());
    let wanted = wanted.or(kubeconfig.current_context.as_deref()).unwrap_or_default();
    let (cluster, user) = find(&kubeconfig, wanted).map_err(|mistake| vec![mistake])?;
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

fn find<'a>(kubeconfig: &'a Kubeconfig, wanted: &str) -> Result<(&'a Cluster, Option<&'a AuthInfo>), String> {
    let context = kubeconfig.contexts.iter().find(|context| context.name == wanted);
    let context = context
        .and_then(|context| context.context.as_ref())
        .ok_or_else(|| format!("`{KUBECONFIG}` has no context `{wanted}`; name one in `{CONTEXT}`"))?;
    let mut clusters = kubeconfig.clusters.iter();
    let cluster = clusters
        .find(|cluster| cluster.name == context.cluster)
        .and_then(|cluster| cluster.cluster.as_ref())
        .ok_or_else(|| format!("the cluster of context `{wanted}` is not in `{KUBECONFIG}`"))?;
    let Some(name) = context.user.as_deref().filter(|name| !name.is_empty()) else {
        return Ok((cluster, None));
    };
    let user = kubeconfig.auth_infos.iter().find(|user| user.name == name);
    let user = user
        .and_then(|user| user.auth_info.as_ref())
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
    let impersonates = user.impersonate.is_some()
        || user.impersonate_uid.is_some()
        || user.impersonate_groups.is_some()
        || user.impersonate_user_extra.is_some();
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
