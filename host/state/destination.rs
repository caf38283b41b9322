//! Which cluster an Application goes to, and whether its project may go there.
//!
//! In: destinations as written, the known clusters. Out: one canonical
//! [`Cluster`], a yes or a no. Never: a guess when a name means two clusters.

use super::{Cluster, ConfigMap, Destination, Project};
use crate::glob::Pattern;

/// API server of the cluster the control plane runs in, as Pods reach it.
pub const IN_CLUSTER_SERVER: &str = "https://kubernetes.default.svc";

/// Name of that cluster unless a cluster secret gives it another.
pub const IN_CLUSTER_NAME: &str = "in-cluster";

/// Key of `argocd-cm` that switches that cluster off; only exactly `false` does.
const IN_CLUSTER_KEY: &str = "cluster.inClusterEnabled";

/// Why a destination does not lead to one cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Neither a name nor a server is set.
    #[error("destination has neither a name nor a server")]
    Missing,
    /// A name and a server are set.
    #[error("destination has both the name `{name}` and the server `{server}`, one is allowed")]
    Both {
        /// The name.
        name: String,
        /// The server.
        server: String,
    },
    /// No cluster has this name.
    #[error("no cluster has the name `{0}`")]
    UnknownName(String),
    /// No cluster has this server.
    #[error("no cluster has the server `{0}`")]
    UnknownServer(String),
    /// Several clusters have this name.
    #[error("{} clusters have the name `{name}`: {}", servers.len(), servers.join(", "))]
    Ambiguous {
        /// The name.
        name: String,
        /// Their servers.
        servers: Vec<String>,
    },
    /// The clusters of a project could not be read.
    #[error("could not retrieve project clusters: {0}")]
    ProjectClusters(String),
}

/// Every cluster an Application can go to: those of cluster secrets and the
/// control plane's own, first, unless a secret redefines it or `argocd-cm`
/// switches it off.
///
/// Source: Argo CD, `ListClusters`.
pub fn known_clusters(argocd_cm: &ConfigMap, found: Vec<Cluster>) -> Vec<Cluster> {
    let switched_off = argocd_cm
        .data
        .get(IN_CLUSTER_KEY)
        .is_some_and(|text| &*text.value == "false");
    let (mut own, others): (Vec<Cluster>, Vec<Cluster>) = found
        .into_iter()
        .partition(|cluster| cluster.server == IN_CLUSTER_SERVER);
    if switched_off {
        return others;
    }
    if own.is_empty() {
        own.push(Cluster {
            name: IN_CLUSTER_NAME.to_owned(),
            server: IN_CLUSTER_SERVER.to_owned(),
            project: String::new(),
        });
    }
    own.extend(others);
    own
}

/// The one cluster a destination means.
///
/// Servers are compared without trailing slashes, names exactly.
///
/// # Errors
/// [`Error::Missing`], [`Error::Both`], [`Error::UnknownName`],
/// [`Error::UnknownServer`], [`Error::Ambiguous`]; all deny.
///
/// Source: Argo CD, `GetDestinationCluster`.
pub fn resolve(destination: &Destination, clusters: &[Cluster]) -> Result<Cluster, Error> {
    let Destination {
        name,
        server,
        namespace: _,
    } = destination;
    match (name.is_empty(), server.is_empty()) {
        (true, true) => Err(Error::Missing),
        (false, false) => Err(Error::Both {
            name: name.clone(),
            server: server.clone(),
        }),
        (true, false) => {
            let wanted = server.trim_end_matches('/');
            let found = clusters
                .iter()
                .find(|cluster| cluster.server.trim_end_matches('/') == wanted);
            found.cloned().ok_or_else(|| Error::UnknownServer(server.clone()))
        }
        (false, true) => {
            let found: Vec<&Cluster> = clusters.iter().filter(|cluster| cluster.name == *name).collect();
            match found.as_slice() {
                [] => Err(Error::UnknownName(name.clone())),
                [only] => Ok((*only).clone()),
                several => Err(Error::Ambiguous {
                    name: name.clone(),
                    servers: several.iter().map(|cluster| cluster.server.clone()).collect(),
                }),
            }
        }
    }
}

/// Whether `project` may deploy to `namespace` of `cluster`.
///
/// Rules are read in order. An allowing rule needs the namespace and the name
/// or the server to match. A rule with a leading `!` refuses at once. With
/// `permitOnlyProjectScopedClusters` the cluster must also belong to the
/// project. A pattern that does not compile never allows, and refuses when it
/// is negated.
///
/// Source: Argo CD, `AppProject.IsDestinationPermitted`.
pub fn permitted(project: &Project, cluster: &Cluster, namespace: &str, clusters: &[Cluster]) -> bool {
    let of_project = || {
        let owned = clusters.iter().filter(|candidate| candidate.project == project.name);
        Ok(owned.cloned().collect())
    };
    permitted_with(project, cluster, namespace, of_project).unwrap_or(false)
}

/// [`permitted`], with the project's clusters asked for only when they matter.
///
/// # Errors
/// [`Error::ProjectClusters`] when `project_clusters` fails; it denies.
pub fn permitted_with(
    project: &Project,
    cluster: &Cluster,
    namespace: &str,
    project_clusters: impl FnOnce() -> Result<Vec<Cluster>, String>,
) -> Result<bool, Error> {
    if !is_listed(&project.destinations, cluster, namespace) {
        return Ok(false);
    }
    if !project.permit_only_project_scoped_clusters {
        return Ok(true);
    }
    let owned = project_clusters().map_err(Error::ProjectClusters)?;
    // SECURITY: an empty name or server is "unknown", two of them are not the same cluster.
    let same = |a: &str, b: &str| !a.is_empty() && a == b;
    Ok(owned
        .iter()
        .any(|own| same(&own.name, &cluster.name) || same(&own.server, &cluster.server)))
}

fn is_listed(rules: &[Destination], cluster: &Cluster, namespace: &str) -> bool {
    let mut listed = false;
    for rule in rules {
        let Destination {
            name,
            server,
            namespace: namespaces,
        } = rule;
        let name = Match::known(name, &cluster.name);
        let server = Match::known(server, &cluster.server);
        let namespaces = Match::of(namespaces, namespace);
        let place = name == Match::Yes || server == Match::Yes;
        if place && namespaces == Match::Yes {
            listed = true;
            continue;
        }
        // A negated name refuses in every namespace, a negated server only in
        // the rule's, a negated namespace only on the rule's server.
        let refused = name == Match::Negated
            || (server == Match::Negated && namespaces == Match::Yes)
            || (namespaces == Match::Negated && server == Match::Yes);
        if refused {
            return false;
        }
    }
    listed
}

/// How a pattern that may begin with `!` met a value.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Match {
    Yes,
    No,
    /// Not matched because the part after `!` does match: a refusal.
    Negated,
}

impl Match {
    /// Never `Yes` for a value that is not known.
    fn known(pattern: &str, value: &str) -> Self {
        match (value.is_empty(), pattern.starts_with('!')) {
            (true, true) => Self::Negated,
            (true, false) => Self::No,
            (false, _) => Self::of(pattern, value),
        }
    }

    fn of(pattern: &str, value: &str) -> Self {
        match pattern.strip_prefix('!') {
            // SECURITY: a negated pattern that does not compile refuses.
            Some(negated) => match glob(negated, value) {
                Some(false) => Self::Yes,
                Some(true) | None => Self::Negated,
            },
            None if glob(pattern, value) == Some(true) => Self::Yes,
            None => Self::No,
        }
    }
}

/// Glob without separators; `None` when the pattern does not compile.
fn glob(pattern: &str, value: &str) -> Option<bool> {
    if pattern == "*" {
        return Some(true);
    }
    if !pattern.contains(['*', '?', '[', ']', '{', '}', '\\', '!']) {
        return Some(pattern == value);
    }
    Pattern::compile(pattern, &[])
        .ok()
        .map(|pattern| pattern.matches(value))
}

#[cfg(test)]
mod tests;
