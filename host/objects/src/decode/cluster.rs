//! Decodes the connection settings of cluster Secrets into [`ClusterConfig`]s, each with at most
//! one way of authentication.
//!
//! A mistake here is a warning of the load and makes only its own cluster unusable: many people
//! write cluster Secrets, and one of them must not stop the gateway for all. Unknown keys, programs
//! to run, and several ways of authentication are mistakes. Argo CD accepts several ways: it
//! prefers `awsAuthConfig` to `execProviderConfig` to the static ways, and sends a client
//! certificate along with a token, so that withdrawing the token changes nothing.
//!
//! One program may be named beside a provider: `tollgate credential exec`, by which Argo CD gets the
//! credential that the provider mints.
//!
//! Security: no finding contains a value of the Secret.
//!
//! Security: a Secret with `proxyUrl` gives the gateway no credential; that is in a Secret of another namespace.

use std::collections::{BTreeMap, BTreeSet};

use secrecy::{ExposeSecret, SecretString};
use serde_json::Value;

use super::{LAST_APPLIED, Object};
use crate::destination::IN_CLUSTER_SERVER;
use crate::fields::{Fields, Findings};
use crate::{Cluster, ClusterAuth, ClusterConfig, ClusterTls, Secret, TlsVerification};
use tollgate_core::agent::{AgentKey, ClusterAgent, JoinToken, parse_hex};
use tollgate_core::diagnostic::Diagnostic;

pub(super) mod kubeconfig;
mod raw_object;
mod tls;
mod unsupported_auth;

use raw_object::{Mistakes, RawObject};
use unsupported_auth::ExecProgram;

/// Keys of `config`. The first eight are Argo CD's.
const KEYS: [&str; 11] = [
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
    "agent",
];

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

/// Label of the Secrets that hold how the gateway itself reaches a cluster that is enrolled. They have
/// the shape of Argo CD's cluster Secrets.
pub const CREDENTIAL_LABEL: &str = "tollgate.dev/secret-type";

/// Its value.
pub const CREDENTIAL_TYPE: &str = "cluster";

/// The plugin behind `webAPIProviderConfig`.
const WEB_API_PLUGIN: &str = "webapi";

pub(super) fn config(object: &Object<'_>, secret: &Secret, cluster: &Cluster) -> ClusterConfig {
    let mistakes = Mistakes::default();
    let Settings { auth, tls, is_enrolled } = match secret.text("config").trim() {
        "" => Settings::default(),
        text => settings(text, Some(cluster), &mistakes),
    };
    let name = &object.name.name;
    if tls.verification == TlsVerification::Off {
        let message = format!("the cluster of secret `{name}` is not verified: `tlsClientConfig.insecure`");
        let finding = Diagnostic::warning(secret.location.clone(), message);
        object.fields.report(finding.with_hint("give `caData` instead"));
    }
    let mistakes = mistakes.take();
    for mistake in &mistakes {
        object.warn(format!("the cluster of secret `{name}` cannot be used: {mistake}"));
    }
    let auth = match (mistakes.is_empty(), auth) {
        (false, _) => ClusterAuth::Unusable {
            reason: mistakes.join("; "),
        },
        // Argo CD uses the account of its pods there, and the gateway that of its pod.
        (true, ClusterAuth::Anonymous) if cluster.server == IN_CLUSTER_SERVER => ClusterAuth::InCluster,
        (true, auth) => auth,
    };
    let metadata = object.fields.child("metadata");
    ClusterConfig {
        auth,
        tls,
        values: other_values(secret),
        labels: secret.labels.clone(),
        annotations: metadata.as_ref().map(annotations).unwrap_or_default(),
        secret_name: Some(name.clone()),
        resource_version: metadata.and_then(|metadata| metadata.text("resourceVersion")),
        location: Some(secret.location.clone()),
        is_enrolled,
        has_own_secret: false,
    }
}

impl ClusterConfig {
    /// Reads `config` of a cluster Secret: only authentication, TLS and whether it is enrolled.
    pub fn parse(config: &str) -> Self {
        let mistakes = Mistakes::default();
        let Settings { auth, tls, is_enrolled } = settings(config, None, &mistakes);
        let mistakes = mistakes.take();
        let auth = match mistakes.is_empty() {
            true => auth,
            false => ClusterAuth::Unusable {
                reason: mistakes.join("; "),
            },
        };
        Self {
            auth,
            tls,
            is_enrolled,
            ..Self::default()
        }
    }
}

/// How a cluster is reached that Argo CD reaches through the gateway.
///
/// - `own`: the Secret of the gateway's for the cluster's server, if there is one.
pub(super) fn with_own_credential(enrolled: &ClusterConfig, own: Option<&ClusterConfig>) -> ClusterConfig {
    let Some(own) = own else {
        return ClusterConfig {
            auth: ClusterAuth::Unusable {
                reason: format!("no Secret with the label `{CREDENTIAL_LABEL}: {CREDENTIAL_TYPE}` is for its server"),
            },
            ..enrolled.clone()
        };
    };
    ClusterConfig {
        auth: own.auth.clone(),
        tls: own.tls.clone(),
        values: own.values.clone(),
        resource_version: own.resource_version.clone(),
        location: own.location.clone(),
        has_own_secret: true,
        ..enrolled.clone()
    }
}

/// The settings of the control plane's own cluster when it has no Secret.
pub(super) fn in_cluster() -> ClusterConfig {
    ClusterConfig {
        auth: ClusterAuth::InCluster,
        ..ClusterConfig::default()
    }
}

/// The annotations that are texts. Others are no reason to refuse a Secret.
fn annotations(metadata: &Fields<'_>) -> BTreeMap<String, String> {
    let read = metadata.collecting(&Findings::default()).text_map("annotations");
    // SECURITY: kubectl's annotation contains the Secret's values.
    let shown = read.into_iter().map(|(key, text)| {
        let text = if key == LAST_APPLIED { "" } else { &text.value };
        (key, text.to_owned())
    });
    shown.collect()
}

fn other_values(secret: &Secret) -> BTreeMap<String, SecretString> {
    let mut others = secret.values.clone();
    others.retain(|key, _| !OWN_VALUES.contains(&key.as_str()));
    others
}

/// What `config` says.
#[derive(Default)]
struct Settings {
    auth: ClusterAuth,
    tls: ClusterTls,
    is_enrolled: bool,
}

fn settings(text: &str, cluster: Option<&Cluster>, mistakes: &Mistakes) -> Settings {
    let Some(object) = RawObject::open(text, "", &KEYS, mistakes) else {
        return Settings::default();
    };
    // Bodies are passed unchanged, so either value has the same effect.
    object.boolean("disableCompression");
    // SECURITY: everything else in it is how Argo CD comes to the gateway, and no cluster gets that.
    if object.text("proxyUrl").is_some() {
        return Settings {
            is_enrolled: true,
            ..Settings::default()
        };
    }
    let (server, client) = tls::tls(&object);
    let client = client.map(|(chain_pem, key_pem)| {
        let certificate = ClusterAuth::ClientCertificate { chain_pem, key_pem };
        ("tlsClientConfig.certData", certificate)
    });
    let (bearer, basic) = (bearer(&object), basic(&object));
    let methods = [
        bearer,
        basic,
        client,
        web_api(&object),
        provider(&object),
        agent(&object),
    ];
    let mut methods: Vec<KeyedAuth> = methods.into_iter().flatten().collect();
    let is_minted = matches!(methods.as_slice(), [(_, ClusterAuth::Provider { .. })]);
    let mut names: Vec<&str> = methods.iter().map(|(name, _)| *name).collect();
    if unsupported_auth::aws(&object) {
        names.push("awsAuthConfig");
    }
    match unsupported_auth::exec(&object, cluster) {
        None => {}
        // Argo CD asks the gateway for what the provider mints.
        Some(ExecProgram::OwnHelper) if is_minted => {}
        Some(ExecProgram::OwnHelper) if names.is_empty() => object.mistake(HELPER_ALONE),
        Some(ExecProgram::OwnHelper | ExecProgram::Other) => names.push("execProviderConfig"),
    }
    if names.len() > 1 {
        let named = names.join("`, `");
        object.mistake(format!("`{named}` are several ways of authentication; keep one"));
    }
    Settings {
        // Of several, none is used: the mistake makes the cluster unusable.
        auth: methods.pop().map_or(ClusterAuth::Anonymous, |(_, auth)| auth),
        tls: server,
        is_enrolled: false,
    }
}

/// The gateway runs no programs, so it never asks itself.
const HELPER_ALONE: &str = "`execProviderConfig` gets the credential from the gateway, which has no way to get it; \
                            add `webAPIProviderConfig` or `provider` beside it";

/// An authentication and the key that selects it.
type KeyedAuth = (&'static str, ClusterAuth);

fn bearer(object: &RawObject<'_>) -> Option<KeyedAuth> {
    let token = SecretString::from(object.text("bearerToken")?);
    if !is_token(&token) {
        object.mistake(NO_TOKEN);
    }
    Some(("bearerToken", ClusterAuth::Bearer(token)))
}

fn basic(object: &RawObject<'_>) -> Option<KeyedAuth> {
    let username = object.text("username").map(SecretString::from);
    let password = object.text("password").map(SecretString::from);
    let Some(username) = username else {
        if password.is_some() {
            object.mistake("`password` needs `username`");
        }
        return None;
    };
    let password = password.unwrap_or_default();
    if !is_username(username.expose_secret()) {
        object.mistake(NO_USERNAME);
    }
    if password.expose_secret().contains(char::is_control) {
        object.mistake("`password` has a control character");
    }
    Some(("username", ClusterAuth::Basic { username, password }))
}

pub(super) const NO_TOKEN: &str = "`bearerToken` has characters no token has; white space and line breaks count";

pub(super) fn is_token(token: &SecretString) -> bool {
    token.expose_secret().bytes().all(|byte| byte.is_ascii_graphic())
}

pub(super) const NO_USERNAME: &str = "`username` has a colon or a control character";

/// Whether a text can be the username of basic authentication (RFC 7617).
pub(super) fn is_username(text: &str) -> bool {
    !text.contains(|letter: char| letter == ':' || letter.is_control())
}

/// Reads the seed schema of Argo CD's proposal, and what this gateway adds. The plugin checks the
/// values.
fn web_api(object: &RawObject<'_>) -> Option<KeyedAuth> {
    let key = "webAPIProviderConfig";
    let inner = object.child(key, &WEB_API_KEYS)?;
    for required in ["method", "url", "tokenPath"] {
        if inner.raw(required).is_none() {
            inner.mistake(format!("`{}` is missing", inner.name(required)));
        }
    }
    let auth = ClusterAuth::Provider {
        name: WEB_API_PLUGIN.to_owned(),
        config: serde_json::from_str(object.raw(key)?).unwrap_or_default(),
        public: BTreeSet::new(),
    };
    Some((key, auth))
}

fn provider(object: &RawObject<'_>) -> Option<KeyedAuth> {
    let inner = object.child("provider", &["name", "config", "publicValues"])?;
    let name = inner.text("name").unwrap_or_default();
    let letters = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
    if name.is_empty() || name.len() > 63 || !name.bytes().all(letters) {
        let message = "`provider.name` must be a plugin's name: 1 to 63 lower-case letters, digits and hyphens";
        inner.mistake(message);
    }
    let config: Value = serde_json::from_str(inner.raw("config").unwrap_or("{}")).unwrap_or_default();
    if !config.is_object() {
        inner.mistake("`provider.config` must be an object");
    }
    let public = inner.raw("publicValues").unwrap_or("[]");
    let public = serde_json::from_str(public).unwrap_or_else(|_| {
        inner.mistake("`provider.publicValues` must be a list of names");
        BTreeSet::new()
    });
    Some(("provider", ClusterAuth::Provider { name, config, public }))
}

const AGENT_KEYS: usize = 2;
const AGENT_PROCESSES: usize = 8;

fn agent(object: &RawObject<'_>) -> Option<KeyedAuth> {
    let inner = object.child("agent", &["publicKeys", "processes", "joinToken"])?;
    let texts = serde_json::from_str::<Vec<String>>(inner.raw("publicKeys").unwrap_or("[]"));
    let parse = |texts: Vec<String>| texts.iter().map(|text| AgentKey::parse(text)).collect();
    let keys: Option<Vec<AgentKey>> = texts.ok().and_then(parse);
    let keys = keys.filter(|keys| keys.len() <= AGENT_KEYS);
    if keys.is_none() {
        inner.mistake("`agent.publicKeys` must be a list of at most two keys, as `tollgate connector key` prints them");
    }
    // 0 is out of range, so what is no number is a mistake, too.
    let processes = serde_json::from_str(inner.raw("processes").unwrap_or("1")).unwrap_or(0);
    if !(1..=AGENT_PROCESSES).contains(&processes) {
        inner.mistake("`agent.processes` must be a number from 1 to 8");
    }
    let join_token = inner.child("joinToken", &["sha256", "expiresAt"]).and_then(|token| {
        let sha256 = token.text("sha256").and_then(|text| parse_hex(&text));
        let expires_at = token.text("expiresAt").and_then(|text| text.parse().ok());
        let read = sha256.zip(expires_at);
        if read.is_none() {
            token.mistake(
                "`agent.joinToken` must have `sha256` and `expiresAt`, as `tollgate cluster join` writes them",
            );
        }
        read.map(|(sha256, expires_at)| JoinToken { sha256, expires_at })
    });
    let agent = ClusterAgent {
        keys: keys.unwrap_or_default(),
        processes,
        join_token,
    };
    Some(("agent", ClusterAuth::Agent(agent)))
}

#[cfg(test)]
mod tests;
