//! Finds the kinds of a cluster that Argo CD watches there, and that the account which reads for it may
//! not list. Unless `resource.respectRBAC` is set, one such kind keeps Argo CD from reading the cluster.
//! Finds also who may read the Secrets of a namespace.
//!
//! Source: Argo CD, gitops-engine `cluster.go` (kinds with the verbs `list` and `watch`) and
//! `settings/resources_filter.go`.

use std::collections::BTreeSet;
use std::time::Duration;

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use kube::core::discovery::v2::{ACCEPT_AGGREGATED_DISCOVERY_V2, APIGroupDiscoveryList};
use serde::Deserialize;
use serde_json::{Value, json};
use tokio::time::timeout;

use super::review::{CheckError, parse_allowed};
use crate::access::ClusterAccess;
use crate::query::{ClusterClient, ClusterQuery};
use tollgate_core::glob::Pattern;
use tollgate_core::user::Identity;
use tollgate_objects::ConfigMap;
use tollgate_policy::impersonate::Impersonation;
use tollgate_policy::impersonate::service_account::ServiceAccountName;
use tollgate_state::write::documents;

const TIMEOUT: Duration = Duration::from_secs(60);
const MAX_DISCOVERY_BYTES: usize = 16 << 20;
const MAX_IN_FLIGHT: usize = 8;

/// Kinds that Argo CD never watches.
const NEVER_WATCHED: [(&str, &str); 3] = [("events.k8s.io", "*"), ("metrics.k8s.io", "*"), ("", "Event")];

const VERBS: [&str; 2] = ["list", "watch"];

/// Which kinds Argo CD watches in a cluster, by `argocd-cm`.
#[derive(Clone, Debug, Default)]
pub struct WatchFilter {
    /// Without one, everything is included.
    inclusions: Vec<FilterRule>,
    exclusions: Vec<FilterRule>,
}

/// An empty list matches everything.
#[derive(Clone, Debug, Default, Deserialize)]
#[serde(rename_all = "camelCase", default)]
struct FilterRule {
    api_groups: Vec<String>,
    kinds: Vec<String>,
    clusters: Vec<String>,
}

/// A kind of a cluster whose objects can be watched.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
struct WatchableKind {
    group: String,
    resource: String,
    kind: String,
    is_namespaced: bool,
}

impl WatchFilter {
    /// Reads `resource.inclusions` and `resource.exclusions`. One that cannot be read has no rules.
    pub fn of(argocd_cm: &ConfigMap) -> Self {
        let rules = |key: &str| {
            let text = argocd_cm.data.get(key);
            let parsed = text.and_then(|text| documents(&text.value).ok());
            let first = parsed.and_then(|documents| documents.into_iter().next());
            first.and_then(|rules| serde_json::from_value(rules).ok())
        };
        Self {
            inclusions: rules("resource.inclusions").unwrap_or_default(),
            exclusions: rules("resource.exclusions").unwrap_or_default(),
        }
    }

    fn watches(&self, kind: &WatchableKind, server: &str) -> bool {
        let is_never = NEVER_WATCHED
            .iter()
            .any(|(group, name)| *group == kind.group && ["*", kind.kind.as_str()].contains(name));
        let matches = |rules: &[FilterRule]| rules.iter().any(|rule| rule.matches(kind, server));
        let is_included = self.inclusions.is_empty() || matches(&self.inclusions);
        is_included && !is_never && !matches(&self.exclusions)
    }
}

impl FilterRule {
    fn matches(&self, kind: &WatchableKind, server: &str) -> bool {
        let any = |patterns: &[String], text: &str| {
            let matches = |pattern: &String| Pattern::compile(pattern, &[]).is_ok_and(|pattern| pattern.matches(text));
            patterns.is_empty() || patterns.iter().any(matches)
        };
        any(&self.api_groups, &kind.group) && any(&self.kinds, &kind.kind) && any(&self.clusters, server)
    }
}

/// The kinds that Argo CD watches in a cluster and that `reader` may not list and watch, such as
/// `deployments.apps`, in order. Waits at most 60 s. Cancel safe.
///
/// - `namespaces`: those that Argo CD is limited to; empty for the whole cluster.
///
/// # Errors
/// Why the cluster does not answer.
pub async fn unreadable_kinds(
    access: &ClusterAccess,
    reader: &ServiceAccountName,
    filter: &WatchFilter,
    namespaces: &[String],
) -> Result<Vec<String>, String> {
    let asking = find(access, reader, filter, namespaces);
    let found = timeout(TIMEOUT, asking).await.unwrap_or(Err(CheckError::Time(TIMEOUT)));
    found.map_err(|problem| problem.to_string())
}

async fn find(
    access: &ClusterAccess,
    reader: &ServiceAccountName,
    filter: &WatchFilter,
    namespaces: &[String],
) -> Result<Vec<String>, CheckError> {
    let identity = identity_of(reader);
    let scopes = if namespaces.is_empty() {
        vec![String::new()]
    } else {
        namespaces.to_vec()
    };
    let mut narrow = Vec::new();
    for scope in scopes {
        if !may_read(access, &identity, "*", "*", &scope).await? {
            narrow.push(scope);
        }
    }
    if narrow.is_empty() {
        return Ok(Vec::new());
    }
    let mut kinds = Vec::new();
    for path in ["/api", "/apis"] {
        let query = ClusterQuery {
            path,
            accept: ACCEPT_AGGREGATED_DISCOVERY_V2,
            content: None,
            max_response_bytes: MAX_DISCOVERY_BYTES,
        };
        let mut client = ClusterClient::acquire(access).await?;
        kinds.extend(watchable(&client.send_as(&query, &identity).await?)?);
    }
    let server = &access.cluster().server;
    // Limited to namespaces, Argo CD watches nothing beside them.
    kinds.retain(|kind| (namespaces.is_empty() || kind.is_namespaced) && filter.watches(kind, server));
    let questions = kinds
        .iter()
        .flat_map(|kind| narrow.iter().map(move |scope| (kind, scope)));
    let identity = &identity;
    let asked = questions.map(|(kind, scope)| async move {
        let allowed = may_read(access, identity, &kind.group, &kind.resource, scope).await?;
        Ok((!allowed).then_some(kind))
    });
    let mut answers = futures_util::stream::iter(asked.collect::<Vec<_>>()).buffer_unordered(MAX_IN_FLIGHT);
    let mut unreadable = BTreeSet::new();
    while let Some(answer) = answers.next().await {
        let answer: Result<_, CheckError> = answer;
        unreadable.extend(answer?);
    }
    Ok(unreadable.into_iter().map(WatchableKind::resource_name).collect())
}

/// Whether an account may list and watch a resource, in one namespace or, if that is empty, in all.
async fn may_read(
    access: &ClusterAccess,
    identity: &Impersonation,
    group: &str,
    resource: &str,
    namespace: &str,
) -> Result<bool, CheckError> {
    for verb in VERBS {
        if !may(access, identity, verb, group, resource, namespace).await? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Whether an account may do something with a resource, in one namespace or, if that is empty, in all.
async fn may(
    access: &ClusterAccess,
    identity: &Impersonation,
    verb: &str,
    group: &str,
    resource: &str,
    namespace: &str,
) -> Result<bool, CheckError> {
    let spec: Value = json!({"resourceAttributes": {
        "group": group, "resource": resource, "verb": verb, "namespace": namespace,
    }});
    let mut client = ClusterClient::acquire(access).await?;
    let answer = client.send_as(&ClusterQuery::review(&spec), identity).await?;
    parse_allowed(&answer)
}

/// The accounts of these that may read Secrets of one of the namespaces, in order. Waits at most 60 s.
/// Cancel safe.
///
/// # Errors
/// Why the cluster does not answer.
pub async fn readers_of_secrets(
    access: &ClusterAccess,
    accounts: &[ServiceAccountName],
    namespaces: &[String],
) -> Result<Vec<ServiceAccountName>, String> {
    let asked = accounts.iter().map(|account| async move {
        let reads = reads_secrets(access, account, namespaces).await?;
        Ok::<_, CheckError>(reads.then(|| account.clone()))
    });
    let answers = futures_util::stream::iter(asked.collect::<Vec<_>>()).buffered(MAX_IN_FLIGHT);
    let found = timeout(TIMEOUT, answers.try_collect::<Vec<_>>()).await;
    let found = found.unwrap_or(Err(CheckError::Time(TIMEOUT)));
    found
        .map(|found| found.into_iter().flatten().collect())
        .map_err(|problem| problem.to_string())
}

async fn reads_secrets(
    access: &ClusterAccess,
    account: &ServiceAccountName,
    namespaces: &[String],
) -> Result<bool, CheckError> {
    let identity = identity_of(account);
    for namespace in namespaces {
        for verb in ["get", "list", "watch"] {
            if may(access, &identity, verb, "", "secrets", namespace).await? {
                return Ok(true);
            }
        }
    }
    Ok(false)
}

fn identity_of(account: &ServiceAccountName) -> Impersonation {
    Impersonation::As(Identity {
        username: account.username(),
        ..Identity::default()
    })
}

impl WatchableKind {
    /// The name that RBAC rules and kubectl use, such as `deployments.apps`.
    fn resource_name(&self) -> String {
        match self.group.as_str() {
            "" => self.resource.clone(),
            group => format!("{}.{group}", self.resource),
        }
    }
}

fn watchable(content: &Bytes) -> Result<BTreeSet<WatchableKind>, CheckError> {
    let list: APIGroupDiscoveryList = serde_json::from_slice(content).map_err(|_| CheckError::Discovery)?;
    let mut kinds = BTreeSet::new();
    for group in list.items {
        let name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
        for resource in group.versions.into_iter().flat_map(|version| version.resources) {
            let kind = resource.response_kind.and_then(|response| response.kind);
            let has_verb = |verb: &&str| resource.verbs.iter().any(|other| other == verb);
            if let (Some(resource_name), Some(kind), true) = (&resource.resource, kind, VERBS.iter().all(has_verb)) {
                kinds.insert(WatchableKind {
                    group: name.clone(),
                    resource: resource_name.clone(),
                    kind,
                    is_namespaced: resource.scope.as_deref() == Some("Namespaced"),
                });
            }
        }
    }
    if kinds.is_empty() {
        // Clusters before Kubernetes 1.26 send another document, which has no resources.
        return Err(CheckError::Discovery);
    }
    Ok(kinds)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use serde_json::json;

    use super::{WatchFilter, WatchableKind, watchable};
    use tollgate_core::diagnostic::Location;
    use tollgate_objects::{ConfigMap, Text};

    const SERVER: &str = "https://a";

    fn filter(settings: &[(&str, &str)]) -> WatchFilter {
        let data = settings.iter().map(|(key, text)| {
            let text = Text {
                value: Arc::from(*text),
                location: Location::new("a.yaml", 1),
            };
            ((*key).to_owned(), text)
        });
        WatchFilter::of(&ConfigMap { data: data.collect() })
    }

    fn kind(group: &str, resource: &str, kind: &str) -> WatchableKind {
        WatchableKind {
            group: group.to_owned(),
            resource: resource.to_owned(),
            kind: kind.to_owned(),
            is_namespaced: true,
        }
    }

    #[test]
    fn kinds_are_filtered_as_argo_cd_does() {
        let secret = kind("", "secrets", "Secret");
        let deployment = kind("apps", "deployments", "Deployment");
        let exclusions = "- apiGroups: ['*']\n  kinds: [Sec*]\n  clusters: ['https://a']\n";
        let inclusions = "- apiGroups: [apps]\n";
        for (settings, secrets, deployments) in [
            (vec![], true, true),
            (vec![("resource.exclusions", exclusions)], false, true),
            (vec![("resource.exclusions", "- clusters: ['https://b']\n")], true, true),
            (vec![("resource.exclusions", "- kinds: []\n")], false, false),
            (vec![("resource.inclusions", inclusions)], false, true),
            (
                vec![("resource.inclusions", inclusions), ("resource.exclusions", inclusions)],
                false,
                false,
            ),
            (vec![("resource.exclusions", "no list")], true, true),
        ] {
            let filter = filter(&settings);
            let watched = (filter.watches(&secret, SERVER), filter.watches(&deployment, SERVER));
            assert_eq!(watched, (secrets, deployments), "{settings:?}");
        }
        for never in [
            kind("", "events", "Event"),
            kind("events.k8s.io", "events", "Event"),
            kind("metrics.k8s.io", "pods", "PodMetrics"),
        ] {
            assert!(!filter(&[]).watches(&never, SERVER), "{never:?}");
        }
    }

    #[test]
    fn kinds_that_cannot_be_watched_are_left_out() {
        let resource = |name: &str, verbs: &[&str]| json!({"resource": name, "responseKind": {"kind": "Any"}, "scope": "Namespaced", "verbs": verbs});
        let list = json!({"items": [{"metadata": {"name": "apps"}, "versions": [
            {"version": "v1", "resources": [resource("deployments", &["list", "watch"]), resource("reviews", &["create"])]},
            {"version": "v1beta1", "resources": [resource("deployments", &["list", "watch"])]},
        ]}]});
        let kinds = watchable(&Bytes::from(list.to_string())).unwrap();
        let names: Vec<_> = kinds.iter().map(WatchableKind::resource_name).collect();
        assert_eq!(names, ["deployments.apps"]);
        assert!(watchable(&Bytes::from_static(br#"{"kind": "APIVersions", "versions": ["v1"]}"#)).is_err());
    }
}
