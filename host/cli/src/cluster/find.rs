//! Finds the Secrets of one cluster, and what keeps that cluster from being enrolled.

use std::borrow::Cow;

use url::Url;

use tollgate_client::failure::Failure;
use tollgate_cluster::access::authority_and_path;
use tollgate_objects::destination::{IN_CLUSTER_NAME, IN_CLUSTER_SERVER};
use tollgate_objects::{ClusterAuth, ClusterConfig};
use tollgate_state::write::cluster_secret::{self, ClusterSecret, in_cluster_secret};

/// The annotation by which Argo CD marks what an Application deploys.
const TRACKING: &str = "argocd.argoproj.io/tracking-id";

/// Argo CD's one Secret of the cluster with this name, or with this server if `text` is a URL. The cluster
/// that Argo CD runs in and those with an agent can be without one, and have then one that is not stored.
///
/// - `secrets`: Argo CD's.
/// - `own`: the gateway's.
/// - `namespace`: Argo CD's.
///
/// # Errors
/// There is none, or several clusters have the name, or another Secret leads to the same server.
pub(super) fn argocd_secret<'a>(
    secrets: &'a [ClusterSecret],
    own: &[ClusterSecret],
    text: &str,
    namespace: &str,
) -> Result<Cow<'a, ClusterSecret>, Failure> {
    let is_meant = |secret: &&ClusterSecret| match text.contains("://") {
        true => secret.server() == text.trim_end_matches('/'),
        false => secret.cluster_name() == text,
    };
    let meant: Vec<&ClusterSecret> = secrets.iter().filter(is_meant).collect();
    let [first, others @ ..] = meant.as_slice() else {
        let joined: Vec<&ClusterSecret> = own.iter().filter(is_meant).filter(|own| has_agent(own)).collect();
        match joined.as_slice() {
            [] => {}
            [joined] => return Ok(Cow::Owned(cluster_secret::argocd_secret(joined, namespace))),
            several => return Err(ambiguous(several)),
        }
        let is_in_cluster = [IN_CLUSTER_SERVER, IN_CLUSTER_NAME].contains(&text.trim_end_matches('/'));
        // With another name, the cluster has a Secret.
        if is_in_cluster && !secrets.iter().any(ClusterSecret::is_in_cluster) {
            return Ok(Cow::Owned(in_cluster_secret(namespace)));
        }
        return Err(not_found(secrets, text));
    };
    if others.iter().any(|other| other.server() != first.server()) {
        let servers: Vec<&str> = meant.iter().map(|secret| secret.server()).collect();
        let message = format!("{} clusters have the name `{text}`", meant.len());
        let hint = format!("name one by its server: {}", servers.join(", "));
        return Err(Failure::new("cluster_ambiguous", message).with_hint(hint));
    }
    // Spelled differently, two servers can still be the same for the gateway.
    let endpoint = authority_and_path(first.server());
    let is_same = |other: &&ClusterSecret| {
        other.server() == first.server() || (endpoint.is_some() && authority_and_path(other.server()) == endpoint)
    };
    let names: Vec<&str> = secrets
        .iter()
        .filter(is_same)
        .map(|same| same.name.name.as_str())
        .collect();
    if names.len() > 1 {
        let message = format!(
            "{} secrets of Argo CD lead to the server `{}`: `{}`",
            names.len(),
            first.server(),
            names.join("`, `")
        );
        return Err(Failure::new("cluster.duplicate", message).with_hint("delete all but one"));
    }
    Ok(Cow::Borrowed(*first))
}

fn not_found(secrets: &[ClusterSecret], text: &str) -> Failure {
    let shown = |secret: &ClusterSecret| match secret.cluster_name() {
        "" => secret.server().to_owned(),
        name => name.to_owned(),
    };
    let names: Vec<String> = secrets.iter().map(shown).collect();
    let failure = Failure::new(
        "cluster_not_found",
        format_args!("Argo CD has no secret of a cluster `{text}`"),
    );
    match names.is_empty() {
        true => failure.with_hint("add the cluster first, with `argocd cluster add`"),
        false => failure.with_hint(format!("there are {}", names.join(", "))),
    }
}

/// The gateway's own Secrets for a server.
pub(super) fn gateway_secrets<'a>(secrets: &'a [ClusterSecret], server: &str) -> Vec<&'a ClusterSecret> {
    secrets.iter().filter(|secret| secret.server() == server).collect()
}

/// Whether a Secret of the gateway is of a cluster that an agent serves.
pub(super) fn has_agent(secret: &ClusterSecret) -> bool {
    matches!(ClusterConfig::parse(secret.config()).auth, ClusterAuth::Agent(_))
}

/// Several Secrets of the gateway are for what one can be for.
pub(super) fn ambiguous(several: &[&ClusterSecret]) -> Failure {
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

/// What about a cluster's server makes it impossible to enroll.
///
/// - `proxy_url`: the gateway, if the option could be read.
pub(super) fn check_server(server: &str, proxy_url: Option<&Url>) -> Vec<Failure> {
    if !server.starts_with("https://") {
        let message = format!("the server `{server}` is not https, and Argo CD opens a tunnel only for https");
        return vec![Failure::new("cluster.server", message).with_hint("change the cluster's `server` first")];
    }
    let Some((authority, _)) = authority_and_path(server) else {
        return vec![Failure::new(
            "cluster.server",
            format_args!("the server `{server}` is not a URL"),
        )];
    };
    let of_gateway = proxy_url.and_then(|url| authority_and_path(url.as_str()));
    if of_gateway.is_some_and(|(gateway, _)| gateway == authority) {
        let message = format!("the server `{server}` is the gateway itself, which would then reach itself");
        return vec![Failure::new("cluster.loop", message).with_hint("name the API server's own address")];
    }
    Vec::new()
}

/// Fails if a manager would write the old `config` again right after a change.
pub(super) fn check_managers(secret: &ClusterSecret) -> Option<Failure> {
    if secret.managers.is_empty() {
        return None;
    }
    let message = format!(
        "the secret `{}` is managed by {}, which would undo the change",
        secret.name.name,
        secret.managers.join(", ")
    );
    Some(Failure::new("cluster.managed", message).with_hint("make the change there"))
}

/// What may undo a change later.
pub(super) fn management_warnings(secret: &ClusterSecret) -> Vec<String> {
    let name = &secret.name.name;
    let mut warnings = Vec::new();
    if let Some(tracked) = secret.annotations.get(TRACKING) {
        let application = tracked.split(':').next().unwrap_or_default();
        warnings.push(format!(
            "the Application `{application}` deploys the secret `{name}`: change its source too, or its next sync \
             undoes this"
        ));
    }
    if secret.repeats_values {
        warnings.push(format!(
            "the secret `{name}` was made with `kubectl apply`, which keeps a copy of its values in an annotation: \
             the annotation is removed; apply the old file no more"
        ));
    }
    warnings
}
