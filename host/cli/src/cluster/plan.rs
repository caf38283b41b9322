//! Makes `config` of both Secrets, and decides what a command changes.
//!
//! Invariant: a moved `config` keeps its bytes, so that it comes back as it was.

use std::collections::BTreeMap;

use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value, json};

use super::PAGE;
use super::find::gateway_secrets;
use super::gateway::Route;
use crate::client::Failure;
use tollgate_state::write::cluster_secret::{ClusterSecret, own_secret};
use tollgate_state::{ClusterAuth, ClusterConfig, ObjectName};

/// Marks a Secret whose credential is only for the gateway: Argo CD could not deploy with it.
const CREDENTIAL_FOR: &str = "tollgate.dev/credential-for";
const GATEWAY: &str = "gateway";

/// The keys of `tlsClientConfig` that are a credential.
const CERTIFICATE_KEYS: [&str; 2] = ["certData", "keyData"];

/// What `enroll` changes.
#[derive(Debug)]
pub(super) struct Enrollment {
    /// The gateway's Secret; `None` if an earlier run created it.
    pub(super) created: Option<ClusterSecret>,
    /// New `config` of Argo CD's Secret.
    pub(super) config: SecretString,
}

/// What `release` changes.
#[derive(Debug)]
pub(super) struct Return<'a> {
    /// New `config` of Argo CD's Secret; `None` if an earlier run wrote it.
    pub(super) config: Option<SecretString>,
    /// The gateway's Secret.
    pub(super) gateway_secret: &'a ClusterSecret,
}

/// Checks `config` of Argo CD's Secret, and returns how the gateway would reach the cluster.
///
/// - `token`: the gateway's own token for the cluster, in place of the credential that is there.
/// - `proxy_url`: the gateway, as the option names it.
pub(super) fn gateway_config(
    secret: &ClusterSecret,
    token: Option<&SecretString>,
    proxy_url: &str,
) -> Result<SecretString, Failure> {
    let object = object(secret.config())?;
    if let Some(proxy) = object
        .get("proxyUrl")
        .and_then(Value::as_str)
        .filter(|url| !url.is_empty())
    {
        return Err(has_proxy(secret, proxy, proxy_url));
    }
    let config = match token {
        None => SecretString::from(secret.config()),
        Some(token) => with_token(object, token),
    };
    let failed = |message: String| {
        let hint = format!("give the gateway a token with `--credential-token-file`, or move it by hand: {PAGE}");
        Err(Failure::new("cluster.credential", message).with_hint(hint))
    };
    let name = &secret.name.name;
    match ClusterConfig::parse(config.expose_secret()).auth {
        ClusterAuth::Bearer(_) | ClusterAuth::Basic { .. } | ClusterAuth::ClientCertificate { .. } => Ok(config),
        ClusterAuth::Anonymous | ClusterAuth::InCluster => {
            failed(format!("`config` of the secret `{name}` has no credential to move"))
        }
        ClusterAuth::Provider { name: plugin, .. } => failed(format!(
            "the credential of the secret `{name}` is made by the plugin `{plugin}` and cannot be moved"
        )),
        ClusterAuth::Unusable { reason } => failed(format!(
            "the credential of the secret `{name}` cannot be moved: {reason}"
        )),
    }
}

fn has_proxy(secret: &ClusterSecret, proxy: &str, wanted: &str) -> Failure {
    let shown = if proxy.contains('@') { "…" } else { proxy };
    if proxy.trim_end_matches('/') == wanted.trim_end_matches('/') {
        let message = format!("Argo CD reaches `{}` through the gateway already", secret.server());
        return Failure::new("cluster.enrolled", message).with_hint("`tollgate cluster release` takes it back");
    }
    let message = format!(
        "`config` of the secret `{}` has another `proxyUrl` already: {shown}",
        secret.name.name
    );
    Failure::new("cluster.proxy", message)
        .with_hint("if that is a gateway, run `tollgate cluster release` first; the gateway itself uses no proxy")
}

/// `config` of Argo CD's Secret, with the gateway in the place of the cluster.
pub(super) fn argocd_config(before: &str, route: &Route) -> Result<SecretString, Failure> {
    let mut config = json!({
        "proxyUrl": route.url(),
        "bearerToken": route.token.expose_secret(),
        "tlsClientConfig": {"caData": route.authority_base64(), "serverName": route.server_name},
    });
    // Says nothing about a credential, and is as useful towards the gateway.
    if let (Some(value), Some(members)) = (object(before)?.remove("disableCompression"), config.as_object_mut()) {
        members.insert("disableCompression".to_owned(), value);
    }
    Ok(SecretString::from(config.to_string()))
}

/// What `enroll` changes, or why it cannot.
///
/// - `namespace`: of the gateway's Secrets.
/// - `of_gateway`: `config` of the gateway's Secret.
pub(super) fn plan_enrollment(
    secret: &ClusterSecret,
    (own, namespace): (&[ClusterSecret], &str),
    (of_gateway, for_gateway_only): (&SecretString, bool),
    route: &Route,
) -> Result<Enrollment, Failure> {
    let created = match gateway_secrets(own, secret.server()).as_slice() {
        [] => Some(new_secret(secret, namespace, of_gateway, for_gateway_only)),
        [there] if is_same_json(there.config(), of_gateway.expose_secret()) => None,
        [there] => {
            let ObjectName { namespace, name } = &there.name;
            let message = format!("the secret `{namespace}/{name}` is for this server and has another credential");
            let hint = "delete it, or give its credential with `--credential-token-file`";
            return Err(Failure::new("cluster.credential_exists", message).with_hint(hint));
        }
        several => return Err(ambiguous(several)),
    };
    Ok(Enrollment {
        created,
        config: argocd_config(secret.config(), route)?,
    })
}

fn new_secret(secret: &ClusterSecret, namespace: &str, config: &SecretString, for_gateway_only: bool) -> ClusterSecret {
    let mut values = BTreeMap::from([("config".to_owned(), config.clone())]);
    for key in ["name", "server"] {
        if let Some(value) = secret.values.get(key) {
            values.insert(key.to_owned(), value.clone());
        }
    }
    let annotations = match for_gateway_only {
        true => BTreeMap::from([(CREDENTIAL_FOR.to_owned(), GATEWAY.to_owned())]),
        false => BTreeMap::new(),
    };
    let name = ObjectName {
        namespace: namespace.to_owned(),
        name: secret.name.name.clone(),
    };
    own_secret(name, values, annotations)
}

/// What `release` changes, or why it cannot.
///
/// - `token`: Argo CD's new token for the cluster, in place of the gateway's credential.
pub(super) fn plan_return<'a>(
    secret: &ClusterSecret,
    own: &'a [ClusterSecret],
    token: Option<&SecretString>,
) -> Result<Return<'a>, Failure> {
    let server = secret.server();
    let is_enrolled = ClusterConfig::parse(secret.config()).is_enrolled;
    let gateway_secret = match (gateway_secrets(own, server).as_slice(), is_enrolled) {
        ([one], _) => *one,
        ([], true) => {
            let message = format!("the gateway has no secret for `{server}`, so there is no credential to put back");
            let hint = "give Argo CD a new credential with `argocd cluster add --upsert`";
            return Err(Failure::new("cluster.no_credential", message).with_hint(hint));
        }
        ([], false) => {
            let message = format!("Argo CD does not reach `{server}` through the gateway");
            return Err(Failure::new("cluster.not_enrolled", message).with_hint("nothing is left to do"));
        }
        (several, _) => return Err(ambiguous(several)),
    };
    let is_for_gateway = gateway_secret.annotations.get(CREDENTIAL_FOR).map(String::as_str) == Some(GATEWAY);
    let wanted = match token {
        Some(token) => with_token(object(gateway_secret.config())?, token),
        // A run that broke off has written another credential before.
        None if is_for_gateway && is_enrolled => {
            let message =
                "the credential that the gateway has is for the gateway only: Argo CD could not deploy with it";
            let hint = "give Argo CD a token for the cluster with `--credential-token-file`";
            return Err(Failure::new("cluster.gateway_only", message).with_hint(hint));
        }
        None => SecretString::from(gateway_secret.config()),
    };
    if is_enrolled {
        return Ok(Return {
            config: Some(wanted),
            gateway_secret,
        });
    }
    // SECURITY: the gateway's Secret may be the only copy of its credential.
    if !is_for_gateway && !is_same_json(secret.config(), wanted.expose_secret()) {
        let ObjectName { namespace, name } = &gateway_secret.name;
        let message = format!(
            "Argo CD reaches `{server}` by itself, and the secret `{namespace}/{name}` has another credential for it"
        );
        let hint = "if nothing needs that one any more, delete it with kubectl";
        return Err(Failure::new("cluster.credential_exists", message).with_hint(hint));
    }
    Ok(Return {
        config: None,
        gateway_secret,
    })
}

fn ambiguous(several: &[&ClusterSecret]) -> Failure {
    let names: Vec<String> = several
        .iter()
        .map(|secret| format!("`{}/{}`", secret.name.namespace, secret.name.name))
        .collect();
    let message = format!(
        "several secrets of the gateway are for this server: {}",
        names.join(", ")
    );
    Failure::new("cluster.duplicate", message).with_hint("delete all but one")
}

/// A `config` with a token, and otherwise only what says how the server is verified.
fn with_token(mut object: Map<String, Value>, token: &SecretString) -> SecretString {
    let mut config = Map::new();
    config.insert("bearerToken".to_owned(), token.expose_secret().into());
    for key in ["tlsClientConfig", "disableCompression"] {
        if let Some(value) = object.remove(key) {
            config.insert(key.to_owned(), value);
        }
    }
    if let Some(tls) = config.get_mut("tlsClientConfig").and_then(Value::as_object_mut) {
        for key in CERTIFICATE_KEYS {
            tls.remove(key);
        }
    }
    SecretString::from(Value::Object(config).to_string())
}

fn object(config: &str) -> Result<Map<String, Value>, Failure> {
    match serde_json::from_str(config) {
        Ok(Value::Object(object)) => Ok(object),
        Ok(_) | Err(_) => {
            let message = "`config` of the cluster's secret is missing or is not a JSON object";
            Err(Failure::new("cluster.config", message)
                .with_hint("add the cluster again, with `argocd cluster add --upsert`"))
        }
    }
}

fn is_same_json(one: &str, other: &str) -> bool {
    let parse = |text: &str| serde_json::from_str::<Value>(text).ok();
    one == other || matches!((parse(one), parse(other)), (Some(one), Some(other)) if one == other)
}
