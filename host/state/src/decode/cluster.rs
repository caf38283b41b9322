//! Decodes the connection settings of cluster Secrets into [`ClusterConfig`]s, each with at most
//! one way of authentication.
//!
//! A mistake here is a warning of the load and makes only its own cluster unusable: many people
//! write cluster Secrets, and one of them must not stop the gateway for all. Unknown keys, programs
//! to run, and several ways of authentication are mistakes. Argo CD accepts several ways: it
//! prefers `awsAuthConfig` to `execProviderConfig` to the static ways, and sends a client
//! certificate along with a token, so that withdrawing the token changes nothing.
//!
//! Security: no finding contains a value of the Secret.

use std::collections::{BTreeMap, BTreeSet};

use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::Object;
use crate::destination::IN_CLUSTER_SERVER;
use crate::fields::Fields;
use crate::{Cluster, ClusterAuth, ClusterConfig, ClusterTls, Secret, TlsVerification};
use tollgate_core::diagnostic::{Diagnostic, Location};

pub(super) mod kubeconfig;
mod raw_object;
mod tls;
mod unsupported_auth;

use raw_object::RawObject;
use tls::Tls;

/// Keys of `config`. The first eight are Argo CD's.
const KEYS: [&str; 10] = [
    "username",
    "password",
    "bearerToken",
    "tlsClientConfig",
    "awsAuthConfig",
    "execProviderConfig",
    "disableCompression",
    "proxyUrl",
    "webAPIProviderConfig",
    "provider",
];

/// Keys of `webAPIProviderConfig`.
const WEB_API_KEYS: [&str; 9] = [
    "method",
    "url",
    "tokenPath",
    "body",
    "headers",
    "form",
    "jsonBody",
    "expiry",
    "ttl",
];

/// Keys of a cluster Secret that are Argo CD's own.
const OWN_VALUES: [&str; 7] = [
    "name",
    "server",
    "config",
    "project",
    "namespaces",
    "clusterResources",
    "shard",
];

/// The annotation in which kubectl keeps what it applied.
const LAST_APPLIED: &str = "kubectl.kubernetes.io/last-applied-configuration";

/// The plugin behind `webAPIProviderConfig`.
const WEB_API_PLUGIN: &str = "webapi";

/// Reads a cluster Secret's settings.
pub(super) fn config(
    object: &Object<'_>,
    secret: &Secret,
    cluster: &Cluster,
    findings: &mut Vec<Diagnostic>,
) -> ClusterConfig {
    let mut mistakes = Vec::new();
    let text = secret.values.get("config").map_or("", |text| text.expose_secret());
    let (auth, tls) = if text.trim().is_empty() {
        (ClusterAuth::Anonymous, ClusterTls::default())
    } else {
        settings(text, &mut mistakes)
    };
    let name = &object.name.name;
    if tls.verification == TlsVerification::Off {
        let message = format!("the cluster of secret `{name}` is not verified: `tlsClientConfig.insecure`");
        findings.push(Diagnostic::warning(secret.location.clone(), message).with_hint("give `caData` instead"));
    }
    for mistake in &mistakes {
        let message = format!("the cluster of secret `{name}` cannot be used: {mistake}");
        findings.push(Diagnostic::warning(secret.location.clone(), message));
    }
    let auth = match (mistakes.is_empty(), auth) {
        (false, _) => ClusterAuth::Unusable {
            reason: mistakes.join("; "),
        },
        (true, ClusterAuth::Anonymous) if cluster.server == IN_CLUSTER_SERVER => ClusterAuth::InCluster,
        (true, auth) => auth,
    };
    let metadata = object.fields.child("metadata", findings);
    ClusterConfig {
        auth,
        tls,
        values: other_values(secret),
        labels: secret.labels.clone(),
        annotations: metadata.as_ref().map(annotations).unwrap_or_default(),
        secret_name: Some(name.clone()),
        resource_version: metadata.and_then(|metadata| metadata.text("resourceVersion", findings)),
        location: Some(secret.location.clone()),
    }
}

/// The settings of the control plane's own cluster when it has no Secret.
pub(super) fn in_cluster() -> ClusterConfig {
    ClusterConfig {
        auth: ClusterAuth::InCluster,
        tls: ClusterTls::default(),
        values: BTreeMap::new(),
        labels: BTreeMap::new(),
        annotations: BTreeMap::new(),
        secret_name: None,
        resource_version: None,
        location: None::<Location>,
    }
}

/// The annotations that are texts. Others are no reason to refuse a Secret.
fn annotations(metadata: &Fields<'_>) -> BTreeMap<String, String> {
    let read = metadata.text_map("annotations", &mut Vec::new()).into_iter();
    // SECURITY: kubectl's annotation contains the Secret's values.
    let shown = read.map(|(key, text)| {
        let text = if key == LAST_APPLIED { "" } else { &text.value };
        (key, text.to_owned())
    });
    shown.collect()
}

fn other_values(secret: &Secret) -> BTreeMap<String, SecretString> {
    let others = secret
        .values
        .iter()
        .filter(|(key, _)| !OWN_VALUES.contains(&key.as_str()));
    others.map(|(key, value)| (key.clone(), value.clone())).collect()
}

fn settings(text: &str, mistakes: &mut Vec<String>) -> (ClusterAuth, ClusterTls) {
    let Some(object) = RawObject::open(text, "", &KEYS, mistakes) else {
        return (ClusterAuth::Anonymous, ClusterTls::default());
    };
    // Bodies are passed unchanged, so either value has the same effect.
    object.boolean("disableCompression", mistakes);
    if object.text("proxyUrl", mistakes).is_some() {
        mistakes.push("`proxyUrl` is not used; clusters are reached directly".to_owned());
    }
    let Tls { server, client } = object
        .raw("tlsClientConfig")
        .map_or_else(Tls::default, |json| tls::tls(json, mistakes));
    let mut methods = Vec::new();
    methods.extend(bearer(&object, mistakes));
    methods.extend(basic(&object, mistakes));
    methods.extend(client.map(|(chain_pem, key_pem)| {
        let certificate = ClusterAuth::ClientCertificate { chain_pem, key_pem };
        ("tlsClientConfig.certData", certificate)
    }));
    methods.extend(web_api(&object, mistakes));
    methods.extend(provider(&object, mistakes));
    let mut names: Vec<&str> = methods.iter().map(|(name, _)| *name).collect();
    for (key, advise) in [
        ("awsAuthConfig", unsupported_auth::aws as fn(&str, &mut Vec<String>)),
        ("execProviderConfig", unsupported_auth::exec),
    ] {
        if let Some(json) = object.raw(key) {
            names.push(key);
            advise(json, mistakes);
        }
    }
    if names.len() > 1 {
        let named = names.join("`, `");
        mistakes.push(format!("`{named}` are several ways of authentication; keep one"));
    }
    let auth = methods.pop().map_or(ClusterAuth::Anonymous, |(_, auth)| auth);
    (auth, server)
}

/// An authentication and the key that selects it.
type KeyedAuth = (&'static str, ClusterAuth);

fn bearer(object: &RawObject<'_>, mistakes: &mut Vec<String>) -> Option<KeyedAuth> {
    let token = SecretString::from(object.text("bearerToken", mistakes)?);
    if !token.expose_secret().bytes().all(|byte| (0x21..=0x7e).contains(&byte)) {
        let message = "`bearerToken` has characters no token has; white space and line breaks count";
        mistakes.push(message.to_owned());
    }
    Some(("bearerToken", ClusterAuth::Bearer(token)))
}

fn basic(object: &RawObject<'_>, mistakes: &mut Vec<String>) -> Option<KeyedAuth> {
    let username = object.text("username", mistakes).map(SecretString::from);
    let password = object.text("password", mistakes).map(SecretString::from);
    let Some(username) = username else {
        if password.is_some() {
            mistakes.push("`password` needs `username`".to_owned());
        }
        return None;
    };
    let password = password.unwrap_or_default();
    let control = |text: &SecretString| text.expose_secret().contains(char::is_control);
    if username.expose_secret().contains(':') || control(&username) {
        mistakes.push("`username` has a colon or a control character".to_owned());
    }
    if control(&password) {
        mistakes.push("`password` has a control character".to_owned());
    }
    Some(("username", ClusterAuth::Basic { username, password }))
}

/// Reads the seed schema of Argo CD's proposal, and what this gateway adds. The plugin checks the
/// values.
fn web_api(object: &RawObject<'_>, mistakes: &mut Vec<String>) -> Option<KeyedAuth> {
    let key = "webAPIProviderConfig";
    let json = object.raw(key)?;
    let inner = RawObject::open(json, key, &WEB_API_KEYS, mistakes)?;
    for required in ["method", "url", "tokenPath"] {
        if inner.raw(required).is_none() {
            mistakes.push(format!("`{}` is missing", inner.name(required)));
        }
    }
    let config = serde_json::from_str(json).unwrap_or_default();
    let name = WEB_API_PLUGIN.to_owned();
    let public = BTreeSet::new();
    Some((key, ClusterAuth::Provider { name, config, public }))
}

fn provider(object: &RawObject<'_>, mistakes: &mut Vec<String>) -> Option<KeyedAuth> {
    let json = object.raw("provider")?;
    let inner = RawObject::open(json, "provider", &["name", "config", "publicValues"], mistakes)?;
    let name = inner.text("name", mistakes).unwrap_or_default();
    let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || name.len() > 63 || !name.bytes().all(letters) {
        let message = "`provider.name` must be a plugin's name: 1 to 63 lower-case letters, digits and hyphens";
        mistakes.push(message.to_owned());
    }
    let config = inner.raw("config").unwrap_or("{}");
    let config: Value = serde_json::from_str(config).unwrap_or_default();
    if !config.is_object() {
        mistakes.push("`provider.config` must be an object".to_owned());
    }
    let public = inner
        .raw("publicValues")
        .map_or(Ok(BTreeSet::new()), serde_json::from_str);
    let public = public.unwrap_or_else(|_| {
        mistakes.push("`provider.publicValues` must be a list of names".to_owned());
        BTreeSet::new()
    });
    Some(("provider", ClusterAuth::Provider { name, config, public }))
}

#[cfg(test)]
mod tests;
