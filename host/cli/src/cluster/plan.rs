//! Makes `config` of both Secrets, and decides what a command changes.
//!
//! Invariant: a moved `config` keeps its bytes, so that it comes back as it was.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD;
use secrecy::{ExposeSecret as _, SecretString};
use serde_json::{Map, Value, json};

use super::PAGE;
use super::find::{ambiguous, gateway_secrets, has_agent};
use super::gateway::Route;
use tollgate_client::failure::Failure;
use tollgate_objects::{ClusterAuth, ClusterConfig, ObjectName};
use tollgate_state::write::cluster_secret::{ClusterSecret, own_secret};

/// Marks a Secret whose credential is only for the gateway: Argo CD could not deploy with it.
const CREDENTIAL_FOR: &str = "tollgate.dev/credential-for";
const GATEWAY: &str = "gateway";

/// `config` by which Argo CD reaches the cluster that it runs in by itself.
const NO_CREDENTIAL: &str = "{}";

/// The program in Argo CD's pods.
///
/// Source: deploy/kubernetes/components/credential-helper.
const HELPER: &str = "/tollgate/tollgate";

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
    /// What becomes of Argo CD's Secret; `None` if an earlier run changed it.
    pub(super) change: Option<ArgocdChange>,
    /// The gateway's Secret.
    pub(super) gateway_secret: &'a ClusterSecret,
}

/// What becomes of Argo CD's Secret.
#[derive(Debug)]
pub(super) enum ArgocdChange {
    /// It gets this `config`.
    Config(SecretString),
    /// It is deleted: without it, Argo CD reaches the cluster by itself.
    Deletion,
}

/// A token of the gateway's own for a cluster.
#[derive(Clone, Copy, Debug)]
pub(super) struct OwnToken<'a> {
    pub(super) token: &'a SecretString,
    /// PEM of the authorities of the cluster, if Argo CD's Secret does not say them.
    pub(super) authority: Option<&'a str>,
}

/// Checks `config` of Argo CD's Secret, and returns how the gateway would reach the cluster.
///
/// - `own`: takes the place of the credential that is there.
/// - `proxy_url`: the gateway, as the option names it.
pub(super) fn gateway_config(
    secret: &ClusterSecret,
    own: Option<OwnToken<'_>>,
    proxy_url: &str,
) -> Result<SecretString, Failure> {
    let object = without_proxy(secret, proxy_url)?;
    let failed = |message: String| {
        let hint = format!("give the gateway a token with `--credential-token-file`, or move it by hand: {PAGE}");
        Err(Failure::new("cluster.credential", message).with_hint(hint))
    };
    let name = &secret.name.name;
    let config = match own {
        None if secret.is_in_cluster() => {
            let message = "Argo CD has the account of its pods where it runs itself, which cannot be moved";
            return failed(message.to_owned());
        }
        None => SecretString::from(secret.config()),
        Some(own) => with_token(object, own),
    };
    match ClusterConfig::parse(config.expose_secret()).auth {
        ClusterAuth::Bearer(_) | ClusterAuth::Basic { .. } | ClusterAuth::ClientCertificate { .. } => Ok(config),
        ClusterAuth::Anonymous | ClusterAuth::InCluster | ClusterAuth::Agent(_) => {
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

/// As [`gateway_config`], for a cluster that an agent serves: the gateway's Secret stays as it is.
///
/// - `joined`: the gateway's Secret.
/// - `has_token`: whether the options have a token of the gateway's own.
pub(super) fn agent_config(
    secret: &ClusterSecret,
    joined: &ClusterSecret,
    has_token: bool,
    proxy_url: &str,
) -> Result<SecretString, Failure> {
    without_proxy(secret, proxy_url)?;
    if has_token {
        let message = "a connector serves this cluster, and the gateway needs no credential of it";
        return Err(Failure::new("cluster.agent", message).with_hint("leave `--credential-token-file` out"));
    }
    Ok(SecretString::from(joined.config()))
}

/// `config` of Argo CD's Secret, which has no `proxyUrl`.
fn without_proxy(secret: &ClusterSecret, proxy_url: &str) -> Result<Map<String, Value>, Failure> {
    let object = object(secret)?;
    let proxy = object.get("proxyUrl").and_then(Value::as_str);
    match proxy.filter(|url| !url.is_empty()) {
        Some(proxy) => Err(has_proxy(secret, proxy, proxy_url)),
        None => Ok(object),
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
fn argocd_config(before: &ClusterSecret, route: &Route) -> Result<SecretString, Failure> {
    let (key, credential) = match &route.projected_token {
        None => ("bearerToken", Value::from(route.token.expose_secret())),
        Some(path) => {
            let helper = json!({
                "apiVersion": "client.authentication.k8s.io/v1",
                "command": HELPER,
                "args": ["credential", "exec", "--token-file", path],
            });
            ("execProviderConfig", helper)
        }
    };
    let mut config = Map::from_iter([
        ("proxyUrl".to_owned(), Value::from(route.url())),
        (key.to_owned(), credential),
    ]);
    // For the cluster that it runs in, Argo CD takes both from its pod.
    if !route.is_in_cluster {
        let tls = json!({"caData": route.authority_base64(), "serverName": route.server_name});
        config.insert("tlsClientConfig".to_owned(), tls);
    }
    // Says nothing about a credential, and is as useful towards the gateway.
    let mut kept = object(before)?;
    kept.retain(|key, _| key == "disableCompression");
    config.extend(kept);
    Ok(SecretString::from(Value::Object(config).to_string()))
}

/// What `enroll` changes, or why it cannot.
///
/// - `namespace`: of the gateway's Secrets.
/// - `of_gateway`: `config` of the gateway's Secret.
pub(super) fn plan_enrollment(
    secret: &ClusterSecret,
    own: &[ClusterSecret],
    namespace: &str,
    of_gateway: &SecretString,
    for_gateway_only: bool,
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
        config: argocd_config(secret, route)?,
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
    if has_agent(gateway_secret) {
        let message = format!("a connector serves `{server}`, and the gateway has no credential to put back");
        let hint =
            "remove the cluster from Argo CD with `argocd cluster rm`; people still reach it through the gateway";
        return Err(Failure::new("cluster.agent", message).with_hint(hint));
    }
    let is_for_gateway = gateway_secret.annotations.get(CREDENTIAL_FOR).map(String::as_str) == Some(GATEWAY);
    let wanted = match token {
        Some(token) => {
            let token = OwnToken { token, authority: None };
            with_token(object(gateway_secret)?, token)
        }
        // Argo CD has the account of its pods again.
        None if secret.is_in_cluster() => SecretString::from(NO_CREDENTIAL),
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
        let change = match token.is_none() && secret.is_dispensable() {
            true => ArgocdChange::Deletion,
            false => ArgocdChange::Config(wanted),
        };
        return Ok(Return {
            change: Some(change),
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
        change: None,
        gateway_secret,
    })
}

/// A `config` with a token, and otherwise only what says how the server is verified.
fn with_token(mut object: Map<String, Value>, own: OwnToken<'_>) -> SecretString {
    let mut config = Map::new();
    config.insert("bearerToken".to_owned(), own.token.expose_secret().into());
    if let Some(authority) = own.authority {
        object.insert(
            "tlsClientConfig".to_owned(),
            json!({"caData": STANDARD.encode(authority)}),
        );
    }
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

fn object(secret: &ClusterSecret) -> Result<Map<String, Value>, Failure> {
    let config = match secret.config() {
        "" if secret.is_in_cluster() => NO_CREDENTIAL,
        config => config,
    };
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
