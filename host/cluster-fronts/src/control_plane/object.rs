//! Finds out what a request writes: the kind of the object, its name, and the Application that it
//! belongs to.
//!
//! An object belongs to the Application that its tracking metadata names. That of the content
//! counts, as Argo CD writes it; else that of the object in the cluster, or of its topmost owner.
//! The content of a subresource does not count: the API server stores no tracking metadata of it.
//!
//! Security: content that another reader could take for something else is refused.

use std::sync::Arc;

use http::StatusCode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;

use crate::object_content::{ContentFormat, Unreadable, read_metadata};
use crate::owner_search::{ObjectRef, OwnerSearch, SearchError};
use crate::restriction::{self, BodyName};
use tollgate_cluster::access::ClusterAccess;
use tollgate_cluster::discovery::{Discovery, ResourceKind};
use tollgate_cluster::query;
use tollgate_core::attributes::Attributes;
use tollgate_front::Denial;
use tollgate_policy::applications::{ApplicationIndex, IndexedApplication, ResourceKey, TrackedBy, Tracking};
use tollgate_policy::impersonate::Impersonation;
use tollgate_proxy::forward::Body;

/// Longest content that is read, in bytes: kube-apiserver's limit of a request.
pub(super) const CONTENT_BYTES: u64 = 3 * 1024 * 1024;
/// Verbs whose content is the object, or a change of it.
const VERBS_WITH_OBJECT: [&str; 3] = ["create", "update", "patch"];

/// What a request writes.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct WrittenObject {
    pub(crate) kind: ResourceKind,
    /// The name in the content, if it has one that is read.
    pub(crate) name: Option<BodyName>,
    owner: Owner,
    /// How the owner was found.
    pub(crate) tracking: Arc<Tracking>,
}

/// The Application that an object belongs to.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Belonging<'i> {
    /// None: nothing tracks the object.
    Nobody,
    /// One that does not exist.
    Unknown,
    /// This one.
    To(&'i Arc<IndexedApplication>),
}

/// What tracks an object.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Owner {
    Nothing,
    /// The Application with this instance name, which may not exist.
    Instance(String),
    /// It cannot be told, for this reason.
    Unknown(&'static str),
}

impl From<TrackedBy<'_>> for Owner {
    fn from(tracked: TrackedBy<'_>) -> Self {
        match tracked {
            TrackedBy::Instance(instance) => Self::Instance(instance.to_owned()),
            TrackedBy::Unknown => Self::Unknown("its tracking id is of another installation, or cannot be read"),
        }
    }
}

impl WrittenObject {
    /// Finds the Application that the object belongs to.
    ///
    /// # Errors
    /// It cannot be told. The text is for the caller.
    pub(crate) fn belonging<'i>(&self, index: Option<&'i ApplicationIndex>) -> Result<Belonging<'i>, String> {
        match &self.owner {
            Owner::Nothing => Ok(Belonging::Nobody),
            Owner::Instance(instance) => {
                let found = index.and_then(|index| index.find_instance(instance));
                Ok(found.map_or(Belonging::Unknown, Belonging::To))
            }
            Owner::Unknown(reason) => Err(format!(
                "it cannot be told which Application the object belongs to: {reason}"
            )),
        }
    }
}

/// Where the object is looked up, and by which identity.
pub(crate) struct ObjectSearch<'a> {
    pub(crate) discovery: &'a Discovery,
    pub(crate) cluster: &'a Arc<ClusterAccess>,
    pub(crate) tracking: &'a Arc<Tracking>,
    /// The reader, and the account that is to write. The second reads what the first may not.
    pub(crate) identities: [Option<&'a Arc<Impersonation>>; 2],
}

impl ObjectSearch<'_> {
    /// Reads the content, at most 3 MiB, and then the cluster if that does not tell enough.
    ///
    /// # Errors
    /// The cluster does not serve the kind or does not answer, the content is too long or does not
    /// arrive.
    pub(crate) async fn find(
        &self,
        attributes: &Attributes,
        format: ContentFormat,
        body: Body,
    ) -> Result<(Option<WrittenObject>, Body), Denial> {
        let Some((group, version, resource)) = restriction::resource(attributes) else {
            return Ok((None, body));
        };
        let kind = self.discovery.find(self.cluster, group, version, resource).await?;
        let (metadata, body) = match sends_object(attributes) {
            false => (Ok(ObjectMeta::default()), body),
            true => {
                let bytes = body.buffer_all(CONTENT_BYTES).await?;
                (read_metadata(format, &bytes), Body::from(bytes))
            }
        };
        let (name, owner) = match metadata {
            Err(Unreadable) => {
                let reason = "the content cannot be read, or has two readings";
                (Some(BodyName::Unreadable), Owner::Unknown(reason))
            }
            Ok(metadata) => {
                let claim = self.tracking.claim(&metadata);
                let owner = match claim.filter(|_| attributes.subresource.is_none()) {
                    Some(tracked) => tracked.into(),
                    // A patch need not repeat the tracking id that the object has.
                    None => self.find_in_cluster(attributes, &kind).await,
                };
                (Some(BodyName::of(metadata.name)), owner)
            }
        };
        let object = WrittenObject {
            kind,
            name,
            owner,
            tracking: Arc::clone(self.tracking),
        };
        Ok((Some(object), body))
    }

    async fn find_in_cluster(&self, attributes: &Attributes, kind: &ResourceKind) -> Owner {
        let Some(object_ref) = ObjectRef::of(attributes, kind) else {
            // A creation has no object yet. What changes a collection is refused by the permit.
            return Owner::Nothing;
        };
        for identity in self.identities.into_iter().flatten() {
            let search = OwnerSearch {
                discovery: self.discovery,
                cluster: self.cluster,
                identity,
            };
            let found = search.find(object_ref.clone(), |object: ResourceKey<'_>, live: &ObjectMeta| {
                self.tracking.tracked_by(object, live).map(Owner::from)
            });
            match found.await {
                Ok(found) => return found.unwrap_or(Owner::Nothing),
                Err(SearchError::Query(query::Error::Status(StatusCode::FORBIDDEN))) => {}
                Err(SearchError::Incomplete) => return Owner::Unknown("an owner of the object was not looked up"),
                Err(error) => {
                    tracing::warn!(cluster = %self.cluster.label, %error, "an object or its owner cannot be read");
                    return Owner::Unknown("the cluster does not say");
                }
            }
        }
        Owner::Unknown("neither the reader nor the account may read the object, or an owner of it")
    }
}

/// Whether the content of a request is an object, or a part of one.
pub(super) fn sends_object(attributes: &Attributes) -> bool {
    // It has the verb `create`, but its content is a terminal.
    let is_exec = attributes.subresource.as_deref() == Some("exec");
    VERBS_WITH_OBJECT.contains(&attributes.verb.as_str()) && !is_exec
}
