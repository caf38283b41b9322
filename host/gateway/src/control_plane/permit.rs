//! Decides whether a component of Argo CD may send a request to a cluster, and as whom. The result
//! is a [`ControlPlanePermit`], which only this file can make, or 403 or 404.
//!
//! - Without impersonation it reads as the reader account of the settings, and asks what that
//!   account may do. It writes nothing.
//! - With `Impersonate-User` it acts as that service account, if an Application whose destination is
//!   the cluster has the account by its project, and the project permits the destination.
//!
//! Security: what the caller writes into `Impersonate-User` only selects an identity of the index,
//! and that is sent. Groups, UIDs and extra are refused, and so is whatever would give more than the
//! account's own rights: tokens of accounts, and tunnels into pods, services and nodes.

use std::sync::Arc;

use http::{HeaderMap, HeaderName, Method};

use crate::control_plane::route::ControlPlanePath;
use crate::kubernetes::permit::status_message;
use crate::policies::Policies;
use tollgate_cluster::access::{ClusterAccess, Clusters};
use tollgate_config::ControlPlaneCaller;
use tollgate_core::attributes::Attributes;
use tollgate_core::header_names::is_impersonation;
use tollgate_identity::authenticate::Principal;
use tollgate_policy::impersonate::Impersonation;
use tollgate_proxy::record::OpenRecord;

const USER: HeaderName = HeaderName::from_static("impersonate-user");

/// API group of the requests by which a caller learns what it may do itself.
const REVIEWS_GROUP: &str = "authorization.k8s.io";
const REVIEWS: [&str; 2] = ["selfsubjectaccessreviews", "selfsubjectrulesreviews"];

/// Subresources that hand out credentials, or lead past the API server.
const REFUSED_SUBRESOURCES: [&str; 5] = ["attach", "exec", "portforward", "proxy", "token"];

/// Why a component of Argo CD may not send a request. Each text is a `Status` message.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The caller is no component of Argo CD, or no cluster of that server is enrolled. The two have
    /// the same answer, so that nobody else learns which clusters there are.
    #[error("{0}")]
    NotVisible(String),
    /// A field that only the gateway may write, or a user that is named twice.
    #[error("{0}")]
    Impersonation(String),
    /// No Application of this cluster acts as the account.
    #[error("{0}")]
    NoApplication(String),
    /// It would change something, and names no account.
    #[error("{0}")]
    WithoutAccount(String),
    /// It would get a credential or a tunnel.
    #[error("{0}")]
    Subresource(String),
    /// The settings name no reader.
    #[error("{0}")]
    NoReader(String),
}

/// Who a request is to act as, by its fields.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) enum RequestedUser {
    /// It names nobody.
    Reader,
    /// The value of `Impersonate-User`.
    User(String),
    /// It has a field that is refused: this one.
    Refused(String),
}

impl RequestedUser {
    /// Reads the fields as a client sent them.
    pub(crate) fn read(fields: &HeaderMap) -> Self {
        let mut others = fields.keys().filter(|name| is_impersonation(name.as_str()));
        if let Some(other) = others.find(|name| **name != USER) {
            return Self::Refused(format!("`{other}` is not allowed: only `{USER}` is"));
        }
        let mut users = fields.get_all(USER).iter();
        match (users.next(), users.next()) {
            (None, _) => Self::Reader,
            (Some(_), Some(_)) => Self::Refused(format!("`{USER}` is there twice")),
            (Some(user), None) => match user.to_str() {
                Ok(user) if !user.is_empty() => Self::User(user.to_owned()),
                Ok(_) | Err(_) => Self::Refused(format!("`{USER}` is empty, or is not ASCII text")),
            },
        }
    }
}

/// What a component of Argo CD asks for.
#[derive(Debug)]
pub(crate) struct ControlPlaneRequest<'a> {
    pub(crate) path: ControlPlanePath<'a>,
    pub(crate) method: &'a Method,
    /// Whether the connection is to become a tunnel.
    pub(crate) is_upgrade: bool,
    pub(crate) user: &'a RequestedUser,
}

/// Proof that a component of Argo CD may send one request to one cluster.
///
/// Its fields are private and only `authorize` makes it:
///
/// ```compile_fail,E0451
/// fn forge(access: std::sync::Arc<tollgate_cluster::access::ClusterAccess>) {
///     let _ = tollgate_gateway::control_plane::permit::ControlPlanePermit { access, ..unreachable!() };
/// }
/// ```
#[derive(Debug)]
pub struct ControlPlanePermit {
    access: Arc<ClusterAccess>,
    identity: Arc<Impersonation>,
}

impl ControlPlanePermit {
    pub(crate) fn access(&self) -> &Arc<ClusterAccess> {
        &self.access
    }

    pub(crate) fn identity(&self) -> &Arc<Impersonation> {
        &self.identity
    }
}

/// Authorizes a request. The cluster goes into `record`.
pub(crate) fn authorize<'a>(
    (policies, clusters): (&Policies, &Clusters),
    principal: &Principal,
    request: &ControlPlaneRequest<'a>,
    record: &mut OpenRecord,
) -> Result<(ControlPlanePermit, Target<'a>), Error> {
    let target = find((policies, clusters), principal, request)?;
    record.note(|record| record.destination = Some(Arc::clone(target.access.cluster())));
    let permit = target.judge(policies, principal, request)?;
    Ok((permit, target))
}

/// Same as [`authorize`], for a request that another snapshot permitted before.
pub(crate) fn reauthorize(
    from: (&Policies, &Clusters),
    principal: &Principal,
    request: &ControlPlaneRequest<'_>,
) -> Result<ControlPlanePermit, Error> {
    let (policies, _) = from;
    find(from, principal, request)?.judge(policies, principal, request)
}

/// The cluster of a request of a component, and what the request asks of it.
#[derive(Debug)]
pub(crate) struct Target<'a> {
    access: Arc<ClusterAccess>,
    /// The path below the cluster's server, encoded as the client sent it.
    pub(crate) rest: &'a str,
    /// What that path means there.
    pub(crate) attributes: Arc<Attributes>,
}

fn find<'a>(
    (policies, clusters): (&Policies, &Clusters),
    principal: &Principal,
    request: &ControlPlaneRequest<'a>,
) -> Result<Target<'a>, Error> {
    let path = request.path;
    let is_component =
        |caller: &ControlPlaneCaller| caller.issuer == principal.issuer() && caller.user == principal.username();
    let settings = policies.config.control_plane.as_ref();
    let is_known = settings.is_some_and(|settings| settings.callers.iter().any(is_component));
    let found = clusters
        .find_enrolled(path.authority.as_str(), path.path)
        .filter(|_| is_known);
    let Some((access, rest)) = found else {
        let attributes = Attributes::read(request.method, path.path, path.query, None);
        let reason = "this is for Argo CD's own components, and for clusters that they reach through the gateway";
        return Err(Error::NotVisible(status_message::forbidden(
            principal.username(),
            &attributes,
            reason,
        )));
    };
    Ok(Target {
        access: Arc::clone(access),
        rest,
        attributes: Arc::new(Attributes::read(request.method, rest, path.query, None)),
    })
}

impl Target<'_> {
    fn judge(
        &self,
        policies: &Policies,
        principal: &Principal,
        request: &ControlPlaneRequest<'_>,
    ) -> Result<ControlPlanePermit, Error> {
        let attributes = &self.attributes;
        let text = |reason: &str| status_message::forbidden(principal.username(), attributes, reason);
        let subresource = attributes.subresource.as_deref().unwrap_or_default();
        if request.is_upgrade || attributes.is_proxied() || REFUSED_SUBRESOURCES.contains(&subresource) {
            let reason = "Argo CD's own components get no tokens of accounts and no tunnels";
            return Err(Error::Subresource(text(reason)));
        }
        let identity = match request.user {
            RequestedUser::Refused(reason) => return Err(Error::Impersonation(text(reason))),
            RequestedUser::User(user) => {
                let server = &self.access.cluster().server;
                let index = policies.applications.as_ref().map(|front| &front.index);
                index.and_then(|index| index.acting_in(server, user)).ok_or_else(|| {
                    let reason = "no Application in this cluster has that account by its project";
                    Error::NoApplication(text(&format!("{reason}: {user}")))
                })?
            }
            RequestedUser::Reader if attributes.is_plain_read(request.method) || is_review(attributes) => {
                let reader = policies.reader.as_ref().map(Arc::clone);
                reader.ok_or_else(|| Error::NoReader(text("the settings name no reader")))?
            }
            RequestedUser::Reader => {
                let reason = "without impersonation Argo CD's own components only read: \
                              set `application.sync.impersonation.enabled` in argocd-cm";
                return Err(Error::WithoutAccount(text(reason)));
            }
        };
        Ok(ControlPlanePermit {
            access: Arc::clone(&self.access),
            identity,
        })
    }
}

/// Whether the caller asks what it may do itself.
fn is_review(attributes: &Attributes) -> bool {
    attributes.verb == "create"
        && attributes.api_group == REVIEWS_GROUP
        && attributes.subresource.is_none()
        && attributes
            .resource
            .as_deref()
            .is_some_and(|resource| REVIEWS.contains(&resource))
}

#[cfg(test)]
mod tests {
    use http::{HeaderMap, HeaderName, HeaderValue};

    use super::RequestedUser;

    fn read(fields: &[(&str, &str)]) -> RequestedUser {
        let mut map = HeaderMap::new();
        for (name, value) in fields {
            let name = HeaderName::try_from(*name).unwrap();
            map.append(name, HeaderValue::from_bytes(value.as_bytes()).unwrap());
        }
        RequestedUser::read(&map)
    }

    #[test]
    fn only_one_user_can_be_named() {
        let account = "system:serviceaccount:shop:deployer";
        assert_eq!(read(&[]), RequestedUser::Reader);
        assert_eq!(
            read(&[("impersonate-user", account)]),
            RequestedUser::User(account.to_owned())
        );
        for fields in [
            &[("impersonate-user", account), ("impersonate-user", "admin")][..],
            &[("impersonate-user", "")],
            &[("impersonate-user", "ädmin")],
            &[("impersonate-user", account), ("impersonate-group", "system:masters")],
            &[("impersonate-group", "system:masters")],
            &[("impersonate-uid", "1")],
            &[("impersonate-extra-scopes", "x")],
            &[("impersonate_user", account)],
            &[("impersonate.group", "system:masters")],
        ] {
            assert!(matches!(read(fields), RequestedUser::Refused(_)), "{fields:?}");
        }
    }
}
