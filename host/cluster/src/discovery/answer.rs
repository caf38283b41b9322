//! Fetches a cluster's discovery documents and parses them into [`DiscoveryContent`]. Documents
//! over the limits, and those that are no discovery documents, are refused.
//!
//! Invariant: every entry has a kind and a scope, and the kind of a subresource is ignored.

use std::collections::{HashMap, HashSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{APIGroup, APIGroupList, APIResourceList, APIVersions};
use kube::core::discovery::v2::{ACCEPT_AGGREGATED_DISCOVERY_V2, APIGroupDiscoveryList, APIResourceDiscovery};
use percent_encoding::{NON_ALPHANUMERIC, utf8_percent_encode};
use rustc_hash::FxBuildHasher;
use serde::Deserialize;
use tokio::time::timeout;

use super::cluster_discovery::GroupVersionResource;
use super::{Limits, ResourceKind, ResourceScope};
use crate::access::ClusterAccess;
use crate::query::{self, ClusterClient, ClusterQuery};

type Map<K, V> = HashMap<K, V, FxBuildHasher>;

/// Why an endpoint of a cluster could not be fetched.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum EndpointError {
    #[error(transparent)]
    Request(#[from] query::Error),
    #[error("its answer is not a list of resources")]
    Answer,
    #[error("it serves {observed} resources, at most {allowed} are remembered")]
    TooMany { observed: usize, allowed: usize },
    #[error("it did not answer within {} s", .0.as_secs())]
    Time(Duration),
}

/// A discovery endpoint: a path of the API server that is fetched and cached by itself.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(super) enum DiscoveryEndpoint {
    Core,
    Groups,
    /// One version of one group, for a cluster without aggregated discovery.
    Version {
        group: String,
        version: String,
    },
}

#[derive(Debug)]
pub(super) enum DiscoveryContent {
    Kinds(Kinds),
    Versions(Versions),
}

/// Kinds by group, version and resource.
#[derive(Debug, Default)]
pub(super) struct Kinds(Map<String, Map<String, Map<String, ResourceKind>>>);

#[derive(Debug, Default)]
pub(super) struct Versions(Map<String, HashSet<String, FxBuildHasher>>);

impl DiscoveryEndpoint {
    pub(super) fn of_group(group: &str) -> Self {
        if group.is_empty() { Self::Core } else { Self::Groups }
    }

    pub(super) fn of_version(group: &str, version: &str) -> Self {
        Self::Version {
            group: group.to_owned(),
            version: version.to_owned(),
        }
    }

    fn path(&self) -> String {
        let segment = |text| utf8_percent_encode(text, ESCAPED);
        match self {
            Self::Core => "/api".to_owned(),
            Self::Groups => "/apis".to_owned(),
            Self::Version { group, version } if group.is_empty() => format!("/api/{}", segment(version)),
            Self::Version { group, version } => format!("/apis/{}/{}", segment(group), segment(version)),
        }
    }
}

const ESCAPED: &percent_encoding::AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.');

impl DiscoveryContent {
    pub(super) fn kind(&self, gvr: GroupVersionResource<'_>) -> Option<ResourceKind> {
        match self {
            Self::Kinds(kinds) => kinds.get(gvr),
            Self::Versions(_) => None,
        }
    }

    pub(super) fn len(&self) -> usize {
        match self {
            Self::Kinds(Kinds(groups)) => groups.values().flat_map(HashMap::values).map(HashMap::len).sum(),
            Self::Versions(Versions(groups)) => groups.values().map(HashSet::len).sum(),
        }
    }
}

impl Kinds {
    pub(super) fn get(&self, gvr: GroupVersionResource<'_>) -> Option<ResourceKind> {
        let versions = self.0.get(gvr.group)?;
        versions.get(gvr.version)?.get(gvr.resource).cloned()
    }

    fn add(&mut self, group: &str, version: &str, found: Vec<(String, String, ResourceScope)>) {
        let name: Arc<str> = Arc::from(group);
        let kinds = found.into_iter().map(|(resource, kind, scope)| {
            let group = Arc::clone(&name);
            let kind = Arc::from(kind);
            (resource, ResourceKind { group, kind, scope })
        });
        let versions = self.0.entry(group.to_owned()).or_default();
        versions.entry(version.to_owned()).or_default().extend(kinds);
    }
}

impl Versions {
    pub(super) fn contains(&self, group: &str, version: &str) -> bool {
        self.0.get(group).is_some_and(|versions| versions.contains(version))
    }

    /// Whether `endpoint` is still served if this is the content of `parent`.
    pub(super) fn still_lists(&self, endpoint: &DiscoveryEndpoint, parent: &DiscoveryEndpoint) -> bool {
        match endpoint {
            DiscoveryEndpoint::Core | DiscoveryEndpoint::Groups => true,
            DiscoveryEndpoint::Version { group, version } => {
                DiscoveryEndpoint::of_group(group) != *parent || self.contains(group, version)
            }
        }
    }
}

/// Fetches an endpoint within `limits`. Cancel safe.
pub(super) async fn fetch(
    access: &ClusterAccess,
    endpoint: &DiscoveryEndpoint,
    limits: Limits,
) -> Result<DiscoveryContent, EndpointError> {
    let fetching = async {
        let path = endpoint.path();
        let query = ClusterQuery {
            path: &path,
            accept: match endpoint {
                DiscoveryEndpoint::Core | DiscoveryEndpoint::Groups => ACCEPT_AGGREGATED_DISCOVERY_V2,
                DiscoveryEndpoint::Version { .. } => "application/json",
            },
            content: None,
            max_response_bytes: limits.bytes,
        };
        let content = ClusterClient::acquire(access).await?.send(&query).await?;
        let endpoint = endpoint.clone();
        // Parsing some megabytes would block other requests on this thread for too long.
        let reading = tokio::task::spawn_blocking(move || read(&endpoint, &content, limits));
        reading.await.map_err(|_| EndpointError::Answer)?
    };
    let answered = timeout(limits.timeout, fetching).await;
    answered.unwrap_or(Err(EndpointError::Time(limits.timeout)))
}

#[derive(Deserialize)]
struct Head {
    kind: String,
}

pub(super) fn read(
    endpoint: &DiscoveryEndpoint,
    content: &Bytes,
    limits: Limits,
) -> Result<DiscoveryContent, EndpointError> {
    let head: Head = parse(content)?;
    let (answer, count) = match (endpoint, head.kind.as_str()) {
        (DiscoveryEndpoint::Core | DiscoveryEndpoint::Groups, "APIGroupDiscoveryList") => {
            aggregated(endpoint, parse(content)?)
        }
        (DiscoveryEndpoint::Core, "APIVersions") => {
            let served: APIVersions = parse(content)?;
            listed(served.versions.iter().map(|version| ("", version.as_str())))
        }
        (DiscoveryEndpoint::Groups, "APIGroupList") => group_versions(&parse(content)?),
        (DiscoveryEndpoint::Version { group, version }, "APIResourceList") => {
            resources(group, version, parse(content)?)
        }
        (_, _) => return Err(EndpointError::Answer),
    };
    let (observed, allowed) = (count, limits.kinds);
    if observed > allowed {
        return Err(EndpointError::TooMany { observed, allowed });
    }
    Ok(answer)
}

fn parse<'a, T: Deserialize<'a>>(content: &'a Bytes) -> Result<T, EndpointError> {
    serde_json::from_slice(content).map_err(|_| EndpointError::Answer)
}

fn aggregated(endpoint: &DiscoveryEndpoint, list: APIGroupDiscoveryList) -> (DiscoveryContent, usize) {
    let mut kinds = Kinds::default();
    let mut count = 0_usize;
    for group in list.items {
        let name = group.metadata.and_then(|metadata| metadata.name).unwrap_or_default();
        // SECURITY: a document is authoritative only for its own groups.
        if DiscoveryEndpoint::of_group(&name) != *endpoint {
            continue;
        }
        for version in group.versions {
            let Some(version_name) = version.version else { continue };
            count = count.saturating_add(version.resources.len());
            let found = version.resources.into_iter().filter_map(parse_resource).collect();
            kinds.add(&name, &version_name, found);
        }
    }
    (DiscoveryContent::Kinds(kinds), count)
}

/// Parses one resource of an aggregated document. `None` for a parent of which only subresources
/// are listed, because it has no kind.
fn parse_resource(resource: APIResourceDiscovery) -> Option<(String, String, ResourceScope)> {
    let scope = match resource.scope.as_deref() {
        Some("Namespaced") => ResourceScope::Namespaced,
        Some("Cluster") => ResourceScope::Cluster,
        Some(_) | None => return None,
    };
    let kind = resource.response_kind?.kind.filter(|kind| !kind.is_empty())?;
    let name = resource.resource.filter(|name| !name.is_empty())?;
    Some((name, kind, scope))
}

fn group_versions<'a>(list: &'a APIGroupList) -> (DiscoveryContent, usize) {
    let named = |group: &'a APIGroup| {
        let versions = group.versions.iter();
        versions.map(|version| (group.name.as_str(), version.version.as_str()))
    };
    listed(list.groups.iter().flat_map(named))
}

/// The versions of groups, and how many the document lists.
fn listed<'a>(versions: impl Iterator<Item = (&'a str, &'a str)>) -> (DiscoveryContent, usize) {
    let mut found = Versions::default();
    let mut count = 0_usize;
    for (group, version) in versions {
        count = count.saturating_add(1);
        found.0.entry(group.to_owned()).or_default().insert(version.to_owned());
    }
    (DiscoveryContent::Versions(found), count)
}

fn resources(group: &str, version: &str, list: APIResourceList) -> (DiscoveryContent, usize) {
    let count = list.resources.len();
    let found = list.resources.into_iter().filter_map(|resource| {
        let scope = if resource.namespaced {
            ResourceScope::Namespaced
        } else {
            ResourceScope::Cluster
        };
        let is_parent = !resource.name.is_empty() && !resource.name.contains('/');
        (is_parent && !resource.kind.is_empty()).then_some((resource.name, resource.kind, scope))
    });
    let mut kinds = Kinds::default();
    kinds.add(group, version, found.collect());
    (DiscoveryContent::Kinds(kinds), count)
}
