//! Decides whether an Application's project, merged with global ones, permits a request in its
//! cluster. It refuses what the lists of resources or the destinations do not permit, and
//! everything in doubt.
//!
//! Source: Argo CD, `AppProject.IsResourcePermitted`, which checks every object of a sync. A
//! request contains less than a manifest, so these are decided here:
//!
//! - The kind of a subresource is its parent's: a caller who may not write a `Deployment`
//!   may not scale one. Core `bindings` write pods too, so they need `Pod` as well.
//! - The group is that of the path, as it is that of a manifest.
//! - A namespaced write must name its namespace: nothing is written in all of them at once.
//! - Where the name decides and is not known, the request is refused.
//!
//! Security: a refusal does not mention other projects, lists that the request did not match, or
//! the path of a file.

use std::sync::Arc;

use tollgate_cluster::discovery::{ResourceKind, ResourceScope};
use tollgate_core::attributes::Attributes;
use tollgate_core::diagnostic::one_line;
use tollgate_objects::{Cluster, Project, destination};
use tollgate_policy::application_request::{ActingIdentity, ReadOrWrite};

mod cache;
mod lists;
mod name;
mod pattern;
#[cfg(test)]
mod tests;

pub(crate) use cache::RestrictionsCache;
pub(crate) use lists::ResourceList;
pub(crate) use name::{BodyName, name_in_body};

use lists::{GroupKind, Lists};

const WRITES: [&str; 5] = ["create", "update", "patch", "delete", "deletecollection"];
const READS: [&str; 3] = ["get", "list", "watch"];
/// First path segments of documents that describe what a cluster serves.
const DISCOVERY_PREFIXES: [&str; 3] = ["api", "apis", "openapi"];
/// Most bytes of each text chosen by the caller that a refusal repeats.
const SHOWN_BYTES: usize = 256;

/// Why a request is not permitted. The text is for the caller.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Violation {
    #[error("requests of this method and path are not permitted; a watch is `?watch=true`")]
    Verb,
    #[error("path {path} is not a resource, and project {project} permits writes of resources only")]
    NoResource { path: String, project: String },
    #[error("path {path} is not permitted in project {project}")]
    Path { path: String, project: String },
    #[error("the kind of resource {resource} is not known")]
    UnknownKind { resource: String },
    #[error("resource {resource} is not permitted in project {project}: {list}")]
    DeniedByList {
        resource: String,
        project: String,
        list: ResourceList,
    },
    #[error(
        "resource {resource} is permitted by name in project {project}, and the request has none that can be read: \
         {list}"
    )]
    NameRequired {
        resource: String,
        project: String,
        list: ResourceList,
    },
    #[error("resource {resource} is namespaced, and project {project} permits requests for one namespace at a time")]
    AllNamespaces { resource: String, project: String },
    #[error("resource {0} is not namespaced")]
    NotNamespaced(String),
    #[error("namespace {namespace} is not permitted in project {project}: destinations")]
    Namespace { namespace: String, project: String },
    #[error(
        "without impersonation of the Application's service account, a review would report the gateway's own permissions"
    )]
    Review,
    #[error("secrets are not shown without impersonation of the Application's service account")]
    Secret,
    #[error(
        "without impersonation of the Application's service account, secrets can only be created: other writes are \
         answered with what is stored; turn impersonation on to change or delete them"
    )]
    StoredSecret,
    #[error(
        "tokens of service accounts are not issued without impersonation of the Application's service account; turn impersonation on"
    )]
    Token,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct TargetCluster<'a> {
    pub(crate) cluster: &'a Cluster,
    /// All known clusters: a project may permit only its own.
    pub(crate) clusters: &'a [Cluster],
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct RequestObject<'a> {
    pub(crate) attributes: &'a Attributes,
    /// The result of [`tollgate_cluster::discovery::Discovery::find`] for [`resource`]. `None` if there is
    /// none.
    pub(crate) kind: Option<&'a ResourceKind>,
    /// The name in its body. `None` unless [`Restrictions::needs_name`].
    pub(crate) name: Option<&'a BodyName>,
}

#[derive(Debug)]
pub(crate) struct Restrictions {
    project: Arc<Project>,
    lists: Lists,
    destinations: destination::CompiledDestinations,
}

/// Group, version and resource of a request. `None` if it is not about a resource.
pub(crate) fn resource(attributes: &Attributes) -> Option<(&str, &str, &str)> {
    let resource = attributes.resource.as_deref()?;
    let resource = Some(resource).filter(|_| attributes.resource_request)?;
    Some((&attributes.api_group, &attributes.api_version, resource))
}

impl Restrictions {
    /// Compiles the lists and destinations of `project`, merged with global projects. Takes some
    /// microseconds for tens of rules; [`RestrictionsCache`] caches it.
    pub(crate) fn of(project: &Arc<Project>) -> Self {
        Self {
            lists: Lists::compile(&project.resources),
            destinations: destination::CompiledDestinations::of(project),
            project: Arc::clone(project),
        }
    }

    /// Whether the decision depends on the name in a request's body, so that it has to be read
    /// with [`name_in_body`] before [`Self::check_write`].
    pub(crate) fn needs_name(&self, attributes: &Attributes, kind: &ResourceKind) -> bool {
        let creates = attributes.verb == "create" && attributes.name.is_none();
        creates && self.lists.needs_name(kind.scope, GroupKind::of(kind))
    }

    /// Whether a request that is [`ReadOrWrite::Write`] is permitted.
    ///
    /// - `acting_identity`: the identity that would write. The gateway's own identity has more
    ///   permissions than the caller should have, so it returns no stored Secret and no token.
    pub(crate) fn check_write(
        &self,
        target: TargetCluster<'_>,
        object: RequestObject<'_>,
        acting_identity: &ActingIdentity,
    ) -> Result<(), Violation> {
        let attributes = object.attributes;
        if resource(attributes).is_none() {
            return Err(Violation::NoResource {
                path: shortened(&attributes.path),
                project: self.project.name.clone(),
            });
        }
        // A verb in the path says nothing about what the method does.
        if !WRITES.contains(&attributes.verb.as_str()) || attributes.has_verb_in_path() {
            return Err(Violation::Verb);
        }
        match acting_identity {
            ActingIdentity::Gateway => check_disclosure(attributes)?,
            ActingIdentity::ServiceAccount(_) => {}
        }
        self.check_object(target, object)
    }

    /// Whether a request that is [`ReadOrWrite::Read`] is permitted: objects as in
    /// [`Self::check_write`], because Argo CD's resource tree has no others, and documents that
    /// describe what the cluster serves.
    ///
    /// - `acting_identity`: the identity that would read. The gateway's own identity reads no
    ///   Secrets, and makes no reviews about itself.
    pub(crate) fn check_read(
        &self,
        target: TargetCluster<'_>,
        object: RequestObject<'_>,
        acting_identity: &ActingIdentity,
    ) -> Result<(), Violation> {
        let attributes = object.attributes;
        if !attributes.resource_request {
            return match is_discovery_path(attributes) {
                true => Ok(()),
                false => Err(Violation::Path {
                    path: shortened(&attributes.path),
                    project: self.project.name.clone(),
                }),
            };
        }
        // A review is created but changes nothing, and says only what the acting identity may do itself.
        if ReadOrWrite::classify(attributes) == ReadOrWrite::Read && attributes.verb == "create" {
            return match acting_identity {
                ActingIdentity::Gateway => Err(Violation::Review),
                ActingIdentity::ServiceAccount(_) => Ok(()),
            };
        }
        if !READS.contains(&attributes.verb.as_str()) || ReadOrWrite::classify(attributes) != ReadOrWrite::Read {
            return Err(Violation::Verb);
        }
        // SECURITY: Argo CD shows nobody the content of a Secret.
        match acting_identity {
            ActingIdentity::Gateway if is_of_core(attributes, "secrets") => return Err(Violation::Secret),
            ActingIdentity::Gateway | ActingIdentity::ServiceAccount(_) => {}
        }
        self.check_object(target, object)
    }

    fn check_object(&self, target: TargetCluster<'_>, object: RequestObject<'_>) -> Result<(), Violation> {
        let attributes = object.attributes;
        let kind = kind_of(object)?;
        let group_kind = GroupKind::of(kind);
        match kind.scope {
            ResourceScope::Cluster => {
                let name = self.name_in_cluster(object, group_kind)?;
                self.check_lists(ResourceScope::Cluster, group_kind, name)
            }
            ResourceScope::Namespaced => {
                let namespace = attributes.namespace.as_deref();
                let namespace = namespace.ok_or_else(|| Violation::AllNamespaces {
                    resource: group_kind.to_string(),
                    project: self.project.name.clone(),
                })?;
                self.check_lists(ResourceScope::Namespaced, group_kind, None)?;
                if let Some(also) = also_written(group_kind) {
                    self.check_lists(ResourceScope::Namespaced, also, None)?;
                }
                self.check_namespace(target, namespace)
            }
        }
    }

    fn name_in_cluster<'a>(
        &self,
        object: RequestObject<'a>,
        group_kind: GroupKind<'_>,
    ) -> Result<Option<&'a str>, Violation> {
        let attributes = object.attributes;
        let is_namespace = group_kind.group.is_empty() && attributes.resource.as_deref() == Some("namespaces");
        match (&attributes.namespace, &attributes.name) {
            (None, Some(name)) => Ok(Some(name)),
            (None, None) if attributes.verb == "create" => Ok(object.name.and_then(BodyName::known)),
            (None, None) => Ok(None),
            // kube-apiserver reports a namespace as being in itself.
            (Some(namespace), Some(name)) if is_namespace && namespace == name => Ok(Some(name)),
            (Some(_), _) => Err(Violation::NotNamespaced(group_kind.to_string())),
        }
    }

    fn check_lists(
        &self,
        scope: ResourceScope,
        group_kind: GroupKind<'_>,
        name: Option<&str>,
    ) -> Result<(), Violation> {
        let Some(list) = self.lists.refusing(scope, group_kind, name) else {
            return Ok(());
        };
        let (resource, project) = (group_kind.to_string(), self.project.name.clone());
        // With a name, the lists might permit the same request, so the text asks for one.
        let unnamed = name.is_none() && self.lists.needs_name(scope, group_kind);
        Err(match unnamed {
            true => Violation::NameRequired {
                resource,
                project,
                list,
            },
            false => Violation::DeniedByList {
                resource,
                project,
                list,
            },
        })
    }

    fn check_namespace(&self, target: TargetCluster<'_>, namespace: &str) -> Result<(), Violation> {
        if self.destinations.permit(target.cluster, namespace, target.clusters) {
            return Ok(());
        }
        Err(Violation::Namespace {
            namespace: shortened(namespace),
            project: self.project.name.clone(),
        })
    }
}

impl<'a> GroupKind<'a> {
    fn of(kind: &'a ResourceKind) -> Self {
        Self {
            group: &kind.group,
            kind: &kind.kind,
        }
    }
}

impl std::fmt::Display for GroupKind<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self.group.is_empty() {
            true => f.write_str(self.kind),
            false => write!(f, "{}/{}", self.group, self.kind),
        }
    }
}

fn kind_of(object: RequestObject<'_>) -> Result<&ResourceKind, Violation> {
    let requested = resource(object.attributes);
    let same = |kind: &&ResourceKind| requested.is_some_and(|(group, _, _)| *kind.group == *group);
    // A kind that was looked up for another request would select the wrong rules.
    object.kind.filter(same).ok_or_else(|| Violation::UnknownKind {
        resource: requested.map_or_else(String::new, |(group, _, resource)| {
            shortened(&format!("{resource}.{group}"))
                // The core group has no name.
                .trim_end_matches('.')
                .to_owned()
        }),
    })
}

/// The other kind that a write of a kind also writes: a binding assigns a pod to a node.
fn also_written(group_kind: GroupKind<'_>) -> Option<GroupKind<'static>> {
    (group_kind.group.is_empty() && group_kind.kind == "Binding").then_some(GroupKind { group: "", kind: "Pod" })
}

fn is_of_core(attributes: &Attributes, resource: &str) -> bool {
    attributes.api_group.is_empty() && attributes.resource.as_deref() == Some(resource)
}

/// Refuses writes whose response contains what the caller did not send.
// SECURITY: the response to a patch, its dry run or a deletion contains the stored Secret. The
// response to a creation contains what was sent.
fn check_disclosure(attributes: &Attributes) -> Result<(), Violation> {
    let subresource = attributes.subresource.as_deref();
    if is_of_core(attributes, "serviceaccounts") && subresource == Some("token") {
        return Err(Violation::Token);
    }
    let creates = attributes.verb == "create" && attributes.name.is_none() && subresource.is_none();
    match is_of_core(attributes, "secrets") && !creates {
        true => Err(Violation::StoredSecret),
        false => Ok(()),
    }
}

fn is_discovery_path(attributes: &Attributes) -> bool {
    if ReadOrWrite::classify(attributes) != ReadOrWrite::Read {
        return false;
    }
    let path = attributes.path.trim_start_matches('/');
    let path = path.strip_suffix('/').unwrap_or(path);
    if path == "version" {
        return true;
    }
    let mut segments = path.split('/');
    // A server that cleans paths would take one with such segments for another.
    let plain = |segment: &str| !matches!(segment, "" | "." | "..");
    segments.clone().all(plain) && segments.next().is_some_and(|first| DISCOVERY_PREFIXES.contains(&first))
}

fn shortened(text: &str) -> String {
    one_line(text, SHOWN_BYTES)
}
