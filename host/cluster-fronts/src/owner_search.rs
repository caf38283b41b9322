//! Searches an object and its owners, nearest first, for the one that Argo CD tracks.
//!
//! Source: Argo CD, `getAppRecursive` of `controller/cache/cache.go`: an object without owners
//! belongs to the Application that tracks it, another one to that of an owner.

use std::collections::VecDeque;
use std::sync::Arc;
use std::time::Duration;

use http::StatusCode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, OwnerReference};
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Deserialize;
use tokio::time::timeout;

use crate::restriction;
use tollgate_cluster::access::ClusterAccess;
use tollgate_cluster::discovery::{Discovery, ResourceKind, ResourceScope, likely_resource};
use tollgate_cluster::query::{ClusterClient, ClusterQuery, Error};
use tollgate_core::attributes::Attributes;
use tollgate_policy::applications::ResourceKey;
use tollgate_policy::impersonate::Impersonation;

/// Most objects read for one request: a Pod of a CronJob is the fourth below a tracked object.
const MAX_OBJECTS: usize = 8;
/// Longest wait for all of them.
const TIMEOUT: Duration = Duration::from_secs(10);
/// Longest response about one object, in bytes: etcd's limit of an object, and some more.
const MAX_RESPONSE_BYTES: usize = 4 * 1024 * 1024;
/// Requests metadata alone, if the server supports it.
const METADATA: &str = "application/json;as=PartialObjectMetadata;g=meta.k8s.io;v=v1,application/json";
const ESCAPED: &AsciiSet = &NON_ALPHANUMERIC.remove(b'-').remove(b'.').remove(b'_');

/// A search with one identity. The objects are read as it.
pub(crate) struct OwnerSearch<'a> {
    pub(crate) discovery: &'a Discovery,
    pub(crate) cluster: &'a Arc<ClusterAccess>,
    pub(crate) identity: &'a Impersonation,
}

/// An object of the cluster.
#[derive(Clone, Debug)]
pub(crate) struct ObjectRef {
    version: String,
    resource: String,
    kind: ResourceKind,
    namespace: Option<String>,
    name: String,
    uid: Option<String>,
}

/// Why it is not known what an object belongs to.
#[derive(Debug, thiserror::Error)]
pub(crate) enum SearchError {
    /// An object cannot be read.
    #[error(transparent)]
    Query(#[from] Error),
    /// The object has more owners than are read, or one of a kind that the cluster's resources do not show.
    #[error("an owner of the object was not looked up")]
    Incomplete,
}

#[derive(Deserialize)]
struct Object {
    metadata: ObjectMeta,
}

impl OwnerSearch<'_> {
    /// Finds what `tracked` finds for an object without owners, which is `object_ref` or one of its
    /// owners. `None` if it finds nothing for any of them.
    ///
    /// Reads at most 8 objects, and waits at most 10 s. Cancel safe.
    ///
    /// # Errors
    /// [`SearchError`], and no other object is tracked.
    pub(crate) async fn find<T>(
        &self,
        object_ref: ObjectRef,
        tracked: impl Fn(ResourceKey<'_>, &ObjectMeta) -> Option<T>,
    ) -> Result<Option<T>, SearchError> {
        let search = self.search(object_ref, tracked);
        timeout(TIMEOUT, search)
            .await
            .unwrap_or_else(|_| Err(Error::Unreachable(format!("no answer in {TIMEOUT:?}")).into()))
    }

    async fn search<T>(
        &self,
        object_ref: ObjectRef,
        tracked: impl Fn(ResourceKey<'_>, &ObjectMeta) -> Option<T>,
    ) -> Result<Option<T>, SearchError> {
        let mut client = ClusterClient::acquire(self.cluster).await?;
        let mut next = VecDeque::from([object_ref]);
        let (mut failed, mut is_complete) = (None, true);
        // Owner references can form a circle: Kubernetes does not check them.
        for _ in 0..MAX_OBJECTS {
            let Some(object_ref) = next.pop_front() else { break };
            match self.read(&mut client, &object_ref).await {
                Ok(None) => {}
                Ok(Some(live)) => {
                    let owners = live.owner_references.as_deref().unwrap_or_default();
                    let found = owners.is_empty().then(|| tracked(object_ref.key(), &live)).flatten();
                    if found.is_some() {
                        return Ok(found);
                    }
                    // Those who write an object choose how many owners it names.
                    is_complete &= owners.len() <= MAX_OBJECTS;
                    for owner in owners.iter().take(MAX_OBJECTS) {
                        let owner = self.owner(owner, &object_ref).await;
                        is_complete &= owner.is_some();
                        next.extend(owner);
                    }
                }
                // Another owner may still be tracked.
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            Some(error) => Err(SearchError::Query(error)),
            // SECURITY: an owner that was not read may be the one that is tracked.
            None if !is_complete || !next.is_empty() => Err(SearchError::Incomplete),
            None => Ok(None),
        }
    }

    /// Reads the metadata of an object. `None` if it does not exist.
    async fn read(&self, client: &mut ClusterClient<'_>, object_ref: &ObjectRef) -> Result<Option<ObjectMeta>, Error> {
        let path = object_ref.path();
        let query = ClusterQuery {
            path: &path,
            accept: METADATA,
            content: None,
            max_response_bytes: MAX_RESPONSE_BYTES,
        };
        let content = match client.send_as(&query, self.identity).await {
            Ok(content) => content,
            Err(Error::Status(StatusCode::NOT_FOUND)) => return Ok(None),
            Err(error) => return Err(error),
        };
        let object: Object = serde_json::from_slice(&content).map_err(|_| Error::Truncated)?;
        let live = object.metadata;
        // After the owner was deleted, an object that somebody else made may have its name.
        let is_it = object_ref.uid.is_none() || object_ref.uid == live.uid;
        Ok(is_it.then_some(live))
    }

    /// The object an owner reference names, in the namespace of the owned object or in none.
    async fn owner(&self, owner: &OwnerReference, dependent: &ObjectRef) -> Option<ObjectRef> {
        let (group, version) = owner.api_version.split_once('/').unwrap_or(("", &owner.api_version));
        let resource = likely_resource(&owner.kind);
        let found = self.discovery.find(self.cluster, group, version, &resource).await;
        // The resource is guessed, and used only if the cluster confirms it.
        let kind = found.ok().filter(|kind| *kind.kind == *owner.kind)?;
        let namespace = match kind.scope {
            ResourceScope::Cluster => None,
            ResourceScope::Namespaced => Some(dependent.namespace.clone()?),
        };
        Some(ObjectRef {
            version: version.to_owned(),
            resource,
            kind,
            namespace,
            name: owner.name.clone(),
            uid: Some(owner.uid.clone()),
        })
    }
}

impl ObjectRef {
    /// The object that a request names. `None` if it names none.
    pub(crate) fn of(attributes: &Attributes, kind: &ResourceKind) -> Option<Self> {
        let (_, version, resource) = restriction::resource(attributes)?;
        let namespace = attributes.namespace.clone();
        Some(Self {
            version: version.to_owned(),
            resource: resource.to_owned(),
            kind: kind.clone(),
            // kube-apiserver reports a namespace as being in itself.
            namespace: namespace.filter(|_| kind.scope == ResourceScope::Namespaced),
            name: attributes.name.clone()?,
            uid: None,
        })
    }

    fn key(&self) -> ResourceKey<'_> {
        ResourceKey {
            group: &self.kind.group,
            kind: &self.kind.kind,
            namespace: self.namespace.as_deref(),
            name: &self.name,
        }
    }

    fn path(&self) -> String {
        // The texts are of owner references, and a `/` in one would lead to another resource.
        let segment = |text| utf8_percent_encode(text, ESCAPED);
        let (group, version) = (&*self.kind.group, segment(&self.version));
        let mut path = match group.is_empty() {
            true => format!("/api/{version}"),
            false => format!("/apis/{}/{version}", segment(group)),
        };
        if let Some(namespace) = &self.namespace {
            path.push_str(&format!("/namespaces/{}", segment(namespace)));
        }
        path.push_str(&format!("/{}/{}", segment(&self.resource), segment(&self.name)));
        path
    }
}
