//! Decides which cluster an Application deploys to, and whether its project may deploy there.
//!
//! Security: a name that means two clusters is an error; neither is picked.

use std::borrow::Borrow;

use rustc_hash::{FxHashMap, FxHashSet};

use super::{Cluster, ConfigMap, Destination, Project};
use tollgate_core::glob::Pattern;

/// API server of the control plane's own cluster, as Pods reach it.
pub const IN_CLUSTER_SERVER: &str = "https://kubernetes.default.svc";

/// Name of that cluster unless a cluster Secret gives it another one.
pub const IN_CLUSTER_NAME: &str = "in-cluster";

/// Key of `argocd-cm` that switches that cluster off; only the exact value `false` does.
const IN_CLUSTER_KEY: &str = "cluster.inClusterEnabled";

/// Why a destination does not lead to one cluster.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// Neither a name nor a server is set.
    #[error("destination has neither a name nor a server")]
    Missing,
    /// A name and a server are set.
    #[error("destination has both the name `{name}` and the server `{server}`, one is allowed")]
    NameAndServer {
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

/// Every cluster an Application can deploy to: those of cluster Secrets and the control plane's
/// own. The latter comes first, unless a Secret redefines it or `argocd-cm` switches it off.
///
/// Source: Argo CD, `ListClusters`.
pub fn known_clusters(argocd_cm: &ConfigMap, found: Vec<Cluster>) -> Vec<Cluster> {
    let switch = argocd_cm.data.get(IN_CLUSTER_KEY);
    let is_own = |cluster: &Cluster| cluster.server == IN_CLUSTER_SERVER;
    let (mut own, others): (Vec<_>, Vec<_>) = found.into_iter().partition(is_own);
    if switch.is_some_and(|text| &*text.value == "false") {
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
/// [`Error::Missing`], [`Error::NameAndServer`], [`Error::UnknownName`],
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
        (false, false) => Err(Error::NameAndServer {
            name: name.clone(),
            server: server.clone(),
        }),
        (true, false) => {
            let wanted = server.trim_end_matches('/');
            let mut known = clusters.iter();
            let found = known.find(|cluster| cluster.server.trim_end_matches('/') == wanted);
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
/// Rules are read in order. To allow, a rule must match the namespace, and the name or the server.
/// A rule with a leading `!` refuses at once. With `permitOnlyProjectScopedClusters` the cluster
/// must also belong to the project. A pattern that does not compile never allows, and refuses when
/// it is negated.
///
/// Source: Argo CD, `AppProject.IsDestinationPermitted`.
pub fn permitted(project: &Project, cluster: &Cluster, namespace: &str, clusters: &[Cluster]) -> bool {
    let of_project = || {
        let owned = clusters.iter().filter(|candidate| candidate.project == project.name);
        Ok(owned.cloned().collect())
    };
    // It cannot fail: the clusters are at hand.
    permitted_with(project, cluster, namespace, of_project).unwrap_or(false)
}

/// Like [`permitted`], but asks for the project's clusters only if they matter.
///
/// # Errors
/// [`Error::ProjectClusters`] if `project_clusters` fails; it denies.
pub fn permitted_with(
    project: &Project,
    cluster: &Cluster,
    namespace: &str,
    project_clusters: impl FnOnce() -> Result<Vec<Cluster>, String>,
) -> Result<bool, Error> {
    if !rules_permit(project.destinations.iter().map(Rule::of), cluster, namespace) {
        return Ok(false);
    }
    if !project.permit_only_project_scoped_clusters {
        return Ok(true);
    }
    let owned = project_clusters().map_err(Error::ProjectClusters)?;
    Ok(owned.iter().any(|own| is_same(own, cluster)))
}

/// The destinations of a project with their patterns compiled, for repeated use.
#[derive(Debug)]
pub struct CompiledDestinations {
    rules: Vec<Rule>,
    /// The project whose clusters are the only ones permitted, if there is such a restriction.
    clusters_of: Option<String>,
}

impl CompiledDestinations {
    /// Compiles the destinations of `project`.
    pub fn of(project: &Project) -> Self {
        let is_scoped = project.permit_only_project_scoped_clusters;
        Self {
            rules: project.destinations.iter().map(Rule::of).collect(),
            clusters_of: is_scoped.then(|| project.name.clone()),
        }
    }

    /// The same as [`permitted`].
    pub fn permit(&self, cluster: &Cluster, namespace: &str, clusters: &[Cluster]) -> bool {
        let is_own = |project: &String| {
            let mut owned = clusters.iter().filter(|candidate| candidate.project == *project);
            owned.any(|own| is_same(own, cluster))
        };
        rules_permit(self.rules.iter(), cluster, namespace) && self.clusters_of.as_ref().is_none_or(is_own)
    }

    /// The same as [`permitted`]. `clusters` is called only if the project permits only its own.
    pub fn permit_among<'c>(
        &self,
        cluster: &Cluster,
        namespace: &str,
        clusters: impl FnOnce() -> &'c ClustersByProject<'c>,
    ) -> bool {
        let is_own = |project: &String| clusters().is_own(project, cluster);
        rules_permit(self.rules.iter(), cluster, namespace) && self.clusters_of.as_ref().is_none_or(is_own)
    }
}

/// The clusters of each project, for repeated use.
#[derive(Debug)]
pub struct ClustersByProject<'a>(FxHashMap<&'a str, OwnClusters<'a>>);

/// Names and servers of a project's clusters, without empty ones.
#[derive(Debug, Default)]
struct OwnClusters<'a> {
    names: FxHashSet<&'a str>,
    servers: FxHashSet<&'a str>,
}

impl<'a> ClustersByProject<'a> {
    /// Groups `clusters`.
    pub fn of(clusters: &'a [Cluster]) -> Self {
        let mut by_project: FxHashMap<&str, OwnClusters<'_>> = FxHashMap::default();
        for cluster in clusters {
            let own = by_project.entry(&cluster.project).or_default();
            // SECURITY: as in `is_same`, an empty name or server is no cluster's.
            own.names
                .extend(Some(cluster.name.as_str()).filter(|name| !name.is_empty()));
            own.servers
                .extend(Some(cluster.server.as_str()).filter(|server| !server.is_empty()));
        }
        Self(by_project)
    }

    fn is_own(&self, project: &str, cluster: &Cluster) -> bool {
        self.0.get(project).is_some_and(|own| {
            own.names.contains(cluster.name.as_str()) || own.servers.contains(cluster.server.as_str())
        })
    }
}

// SECURITY: an empty name or server means "unknown", so two of them are not the same cluster.
fn is_same(one: &Cluster, other: &Cluster) -> bool {
    let same = |a: &str, b: &str| !a.is_empty() && a == b;
    same(&one.name, &other.name) || same(&one.server, &other.server)
}

fn rules_permit(rules: impl Iterator<Item: Borrow<Rule>>, cluster: &Cluster, namespace: &str) -> bool {
    let mut listed = false;
    for rule in rules {
        let rule = rule.borrow();
        let name = rule.name.matches_known(&cluster.name);
        let server = rule.server.matches_known(&cluster.server);
        let namespaces = rule.namespace.matches_value(namespace);
        let is_cluster_match = name == Match::Yes || server == Match::Yes;
        if is_cluster_match && namespaces == Match::Yes {
            // A later rule can still refuse.
            listed = true;
            continue;
        }
        // A negated name refuses in every namespace, a negated server only in the rule's namespace,
        // and a negated namespace only on the rule's server.
        let refused = name == Match::Negated
            || (server == Match::Negated && namespaces == Match::Yes)
            || (namespaces == Match::Negated && server == Match::Yes);
        if refused {
            return false;
        }
    }
    listed
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Match {
    Yes,
    No,
    /// A refusal: the part after `!` matches.
    Negated,
}

#[derive(Debug)]
struct Rule {
    name: Matcher,
    server: Matcher,
    namespace: Matcher,
}

#[derive(Debug)]
struct Matcher {
    negated: bool,
    glob: Glob,
}

#[derive(Debug)]
enum Glob {
    Everything,
    Literal(Box<str>),
    Pattern(Box<Pattern>),
    /// The pattern does not compile.
    Invalid,
}

impl Rule {
    fn of(rule: &Destination) -> Self {
        let Destination {
            name,
            server,
            namespace,
        } = rule;
        Self {
            name: Matcher::of(name),
            server: Matcher::of(server),
            namespace: Matcher::of(namespace),
        }
    }
}

impl Matcher {
    fn of(pattern: &str) -> Self {
        let behind = pattern.strip_prefix('!');
        Self {
            negated: behind.is_some(),
            glob: Glob::of(behind.unwrap_or(pattern)),
        }
    }

    /// Like [`Self::matches_value`], but never `Yes` for an unknown value, which is empty.
    fn matches_known(&self, value: &str) -> Match {
        match (value.is_empty(), self.negated) {
            (true, true) => Match::Negated,
            (true, false) => Match::No,
            (false, _) => self.matches_value(value),
        }
    }

    fn matches_value(&self, value: &str) -> Match {
        match (self.negated, self.glob.matches(value)) {
            (false, Some(true)) | (true, Some(false)) => Match::Yes,
            // SECURITY: a negated pattern that does not compile refuses.
            (true, Some(true) | None) => Match::Negated,
            (false, Some(false) | None) => Match::No,
        }
    }
}

impl Glob {
    fn of(pattern: &str) -> Self {
        if pattern == "*" {
            return Self::Everything;
        }
        if !pattern.contains(['*', '?', '[', ']', '{', '}', '\\', '!']) {
            return Self::Literal(pattern.into());
        }
        Pattern::compile(pattern, &[]).map_or(Self::Invalid, |pattern| Self::Pattern(Box::new(pattern)))
    }

    /// `None` when the pattern does not compile.
    fn matches(&self, value: &str) -> Option<bool> {
        match self {
            Self::Everything => Some(true),
            Self::Literal(text) => Some(&**text == value),
            Self::Pattern(pattern) => Some(pattern.matches(value)),
            Self::Invalid => None,
        }
    }
}

/// Whether a pattern of a project's destinations, with or without `!`, compiles.
pub fn is_valid_pattern(pattern: &str) -> bool {
    Matcher::of(pattern).glob.matches("").is_some()
}

#[cfg(test)]
mod tests;
