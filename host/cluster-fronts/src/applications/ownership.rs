//! Determines whether the object of a request is in the Application's resource tree.
//!
//! Security: the request itself is not trusted. The objects are read with the identity that is
//! about to act, so that nobody learns what the Application's account may not see. An object that
//! does not exist has the same result as one that does not belong to the Application.

use std::sync::Arc;

use http::StatusCode;

use crate::applications::permit::ApplicationAccess;
use crate::owner_search::{ObjectRef, OwnerSearch, SearchError};
use tollgate_cluster::access::ClusterAccess;
use tollgate_cluster::discovery::{Discovery, ResourceKind};
use tollgate_cluster::query::Error;
use tollgate_policy::application_request::{ActingIdentity, OwnershipCheck};
use tollgate_policy::applications::ApplicationIndex;
use tollgate_policy::impersonate::Impersonation;

/// The text for an object that does not belong to the Application, or does not exist.
const NOT_OWNED: &str = "the object is not a resource of this application";

/// - `kind`: kind of the object that the request names.
pub(super) async fn check(
    discovery: &Discovery,
    cluster: &Arc<ClusterAccess>,
    access: &ApplicationAccess,
    index: &ApplicationIndex,
    kind: &ResourceKind,
) -> OwnershipCheck {
    let Some(object_ref) = ObjectRef::of(access.attributes(), kind) else {
        return OwnershipCheck::Refused(NOT_OWNED.to_owned());
    };
    let search = OwnerSearch {
        discovery,
        cluster,
        identity: match access.acting_identity() {
            ActingIdentity::Gateway => &Impersonation::Nobody,
            ActingIdentity::ServiceAccount(account) => account,
        },
    };
    let instance = index.instance_name(&access.indexed().application.name);
    let found = search
        .find(object_ref, |object, live| {
            index.tracking.tracks(&instance, object, live).then_some(())
        })
        .await;
    let unknown = |why: &str| {
        OwnershipCheck::Refused(format!(
            "it cannot be told whether the object is a resource of this application: {why}"
        ))
    };
    match found {
        Ok(Some(())) => OwnershipCheck::Permitted,
        Ok(None) | Err(SearchError::Incomplete) => OwnershipCheck::Refused(NOT_OWNED.to_owned()),
        Err(SearchError::Query(Error::Status(StatusCode::FORBIDDEN))) => {
            unknown("the acting identity may not read it, or an owner")
        }
        Err(error) => {
            tracing::warn!(cluster = %cluster.label, %error, "an object or its owner cannot be read");
            unknown("the cluster does not say")
        }
    }
}
