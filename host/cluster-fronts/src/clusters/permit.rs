//! Decides whether the caller may do something with a cluster. The result is a [`ClusterPermit`],
//! which only this file can make, or 403, 404 or 409.
//!
//! Argo CD's RBAC decides alone: resource `clusters`, with the server's URL as the object,
//! preceded by the cluster's project if it has one. `get` shows a cluster. Reading inside the
//! cluster also needs `connect`, an action of the gateway's own; it reaches as far as the
//! gateway's credential does, Secrets included. Everything else needs `update` on top. Handing
//! out the credential itself needs `get` of the gateway's own resource `credentials`. No built-in
//! role has `connect` or `credentials`.
//!
//! Security: a caller who may not see a cluster gets the same response whether it exists or not.

use http::StatusCode;
use std::sync::Arc;

use http::Method;

use tollgate_cluster::access::{ClusterAccess, ClusterLookup, Clusters};
use tollgate_core::attributes::Attributes;
use tollgate_front::Denial;
use tollgate_front::caller::Caller;
use tollgate_front::policies::Policies;
use tollgate_front::rbac::RbacLookup;
use tollgate_policy::rbac::url_object_name;
use tollgate_proxy::record::{CheckRecord, OpenRecord};

#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The caller may not do this with the cluster, or may not learn that it does not exist.
    /// `resource` and `action` are RBAC's.
    #[error("not permitted: `{resource}, {action}` of cluster `{name}`")]
    Denied {
        resource: &'static str,
        action: &'static str,
        name: String,
    },
    /// The caller may see clusters of this name, but there is none.
    #[error("there is no cluster `{name}`")]
    Unknown { name: String },
    /// Several clusters have this name, and the caller may see all of them.
    #[error("{count} clusters have the name `{name}`; say which by its server, percent-encoded")]
    Ambiguous { name: String, count: usize },
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum ClusterOperation {
    /// Send its API server a request that changes nothing and runs nothing.
    Read,
    /// Send anything else. That includes some `GET` requests: responses of a pod, service or node
    /// through `proxy`, and connections that become tunnels.
    Write,
    Credential,
    /// See its agents.
    Agents,
    /// Revoke a key of its agent.
    RevokeKey,
}

impl ClusterOperation {
    /// The operation of a request to a cluster's API server.
    pub(crate) fn of(method: &Method, attributes: &Attributes) -> Self {
        match attributes.is_plain_read(method) {
            true => Self::Read,
            false => Self::Write,
        }
    }

    /// RBAC resources and actions that are required in addition to `clusters, get`.
    fn additional_permissions(self) -> &'static [[&'static str; 2]] {
        match self {
            Self::Read => &[["clusters", "connect"]],
            Self::Write => &[["clusters", "connect"], ["clusters", "update"]],
            Self::Credential => &[["credentials", "get"]],
            Self::Agents => &[],
            Self::RevokeKey => &[["clusters", "update"]],
        }
    }
}

/// Proof that RBAC allowed one use of one cluster.
///
/// Its fields are private and only `authorize_cluster` makes it:
///
/// ```compile_fail,E0451
/// fn forge(access: std::sync::Arc<tollgate_cluster::access::ClusterAccess>) {
///     let _ = tollgate_cluster_fronts::ClusterPermit { access };
/// }
/// ```
#[derive(Debug)]
pub struct ClusterPermit {
    access: Arc<ClusterAccess>,
}

impl ClusterPermit {
    pub(crate) fn access(&self) -> &Arc<ClusterAccess> {
        &self.access
    }
}

/// Authorizes an operation on the cluster that `name` identifies by its name or server.
/// Permissions that were looked up go into `record`, if there is one.
///
/// # Errors
/// [`Error::Denied`]; [`Error::Unknown`] and [`Error::Ambiguous`]
/// for those who may see such clusters.
pub(crate) fn authorize_cluster(
    policies: &Policies,
    clusters: &Clusters,
    caller: &Caller,
    name: &str,
    operation: ClusterOperation,
    record: Option<&mut OpenRecord>,
) -> Result<ClusterPermit, Error> {
    let mut checks = Vec::new();
    let found = judge(policies, clusters, caller, name, operation, &mut checks);
    let access = found.as_ref().ok();
    if let Some(record) = record {
        record.note(|record| {
            record.checks = checks.into();
            record.destination = access.map(|access| Arc::clone(access.cluster()));
        });
    }
    found.map(|access| ClusterPermit { access })
}

/// The clusters the caller may see, in the order of servers.
pub(crate) fn visible(policies: &Policies, clusters: &Clusters, caller: &Caller) -> Vec<Arc<ClusterAccess>> {
    let all: Vec<_> = clusters.iter().collect();
    let objects: Vec<String> = all.iter().map(|access| object(access)).collect();
    let texts = objects.iter().map(String::as_str);
    let verdicts = policies.rbac.decide_each(&caller.roles, "clusters", "get", texts);
    let seen = all.into_iter().zip(verdicts);
    let seen = seen.filter(|(_, verdict)| verdict.is_allowed());
    seen.map(|(access, _)| Arc::clone(access)).collect()
}

fn judge(
    policies: &Policies,
    clusters: &Clusters,
    caller: &Caller,
    name: &str,
    operation: ClusterOperation,
    checks: &mut Vec<CheckRecord>,
) -> Result<Arc<ClusterAccess>, Error> {
    let mut require = |[resource, action]: [&'static str; 2], object: String| {
        let check = RbacLookup::of(&policies.rbac, caller, [resource, action], object).into_check();
        let allowed = check.allowed;
        checks.push(check);
        if allowed {
            return Ok(());
        }
        Err(Error::Denied {
            resource,
            action,
            name: name.to_owned(),
        })
    };
    let get = ["clusters", "get"];
    match clusters.find(name) {
        ClusterLookup::One(access) => {
            require(get, object(access))?;
            for permission in operation.additional_permissions() {
                require(*permission, object(access))?;
            }
            Ok(Arc::clone(access))
        }
        ClusterLookup::Several(several) => {
            // A caller who may not see one of them must not learn from the count that it exists.
            for access in several {
                require(get, object(access))?;
            }
            Err(Error::Ambiguous {
                name: name.to_owned(),
                count: several.len(),
            })
        }
        ClusterLookup::None => {
            // A caller who may see every cluster of this name may learn that none exists.
            require(get, name.to_owned())?;
            Err(Error::Unknown { name: name.to_owned() })
        }
    }
}

fn object(access: &ClusterAccess) -> String {
    let cluster = access.cluster();
    url_object_name(&cluster.project, &cluster.server)
}

impl From<Error> for Denial {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        let denial = match &error {
            Error::Denied { .. } => Self::denied(StatusCode::FORBIDDEN, "permission_denied", text),
            Error::Unknown { .. } => Self::denied(StatusCode::NOT_FOUND, "cluster_not_found", text),
            Error::Ambiguous { .. } => Self::denied(StatusCode::CONFLICT, "cluster_ambiguous", text),
        };
        denial.caused_by(error)
    }
}
