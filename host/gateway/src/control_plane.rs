//! Runs the stages of requests of Argo CD's own components to clusters in order, from the
//! authenticated request inside a tunnel to the cluster's response.
//!
//! An unmodified Argo CD comes here if a cluster's Secret has the gateway as `proxyUrl`: it opens a
//! tunnel (`CONNECT`) for the cluster's server, which ends in the gateway.
//!
//! Security: a request reaches a cluster only with a [`ControlPlanePermit`], as an account that the
//! permit names, and nothing else of the gateway can be reached in a tunnel.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use http::uri::Authority;
use http::{Method, Response, request};

use crate::cluster_request::{ClusterRequest, RequestIdentity, SendOutcome};
use crate::control_plane::permit::{ControlPlanePermit, ControlPlaneRequest, RequestedUser, authorize, reauthorize};
use crate::control_plane::route::ControlPlanePath;
use crate::front::{RequestContext, RouteHandler};
use crate::open_exchanges::{PtrEqArc, Reauthorization};
use crate::rejection::Rejection;
use crate::snapshot::Snapshot;
use tollgate_identity::authenticate::{Principal, Safety};
use tollgate_plugin::credential::cache::key::CredentialKey;
use tollgate_policy::impersonate::Impersonation;
use tollgate_proxy::forward::Body;
use tollgate_proxy::headers;
use tollgate_proxy::record::{KubernetesNote, Stage};

pub mod permit;
pub(crate) mod route;

/// A permitted request, to be authorized again after a change.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct ControlPlaneReauthorization {
    principal: PtrEqArc<Principal>,
    authority: Authority,
    path: String,
    query: Option<String>,
    method: Method,
    user: RequestedUser,
    identity: Arc<Impersonation>,
    server: String,
    connection: CredentialKey,
}

impl ControlPlaneReauthorization {
    fn new(principal: &Arc<Principal>, request: &ControlPlaneRequest<'_>, permit: &ControlPlanePermit) -> Self {
        let access = permit.access();
        Self {
            principal: PtrEqArc(Arc::clone(principal)),
            authority: request.path.authority.clone(),
            path: request.path.path.to_owned(),
            query: request.path.query.map(str::to_owned),
            method: request.method.clone(),
            user: request.user.clone(),
            identity: Arc::clone(permit.identity()),
            server: access.cluster().server.clone(),
            connection: access.connection(),
        }
    }

    /// Who sent the request.
    pub(crate) fn principal(&self) -> &Principal {
        &self.principal.0
    }

    /// Whether `now` permits the request, as the same account and to the same cluster over the same
    /// connection.
    pub(crate) fn is_still_allowed(&self, now: &Snapshot) -> bool {
        let PtrEqArc(principal) = &self.principal;
        if !now.authenticator.is_still_valid(principal) {
            return false;
        }
        let request = ControlPlaneRequest {
            path: ControlPlanePath {
                authority: &self.authority,
                path: &self.path,
                query: self.query.as_deref(),
            },
            method: &self.method,
            is_upgrade: false,
            user: &self.user,
        };
        let permit = reauthorize((&now.policies, &now.clusters), principal, &request);
        permit.is_ok_and(|permit| {
            let access = permit.access();
            let is_same_cluster = access.cluster().server == self.server && access.is_reached_by(self.connection);
            is_same_cluster && *permit.identity() == self.identity
        })
    }
}

impl Hash for ControlPlaneReauthorization {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.principal.hash(state);
        self.path.hash(state);
        self.user.hash(state);
    }
}

impl RouteHandler for ControlPlanePath<'_> {
    // SECURITY: no page opens a tunnel. Everything else is judged as if it changed something.
    fn safety(&self, _method: &Method) -> Safety {
        Safety::Unsafe
    }

    async fn serve(
        &self,
        context: RequestContext<'_>,
        (head, body): (request::Parts, Body),
    ) -> Result<Response<Body>, Rejection> {
        let (gateway, snapshot, principal) = (context.gateway, context.snapshot, context.principal);
        let record = context.record;
        record.note(|record| record.front = "control-plane");
        let user = RequestedUser::read(&head.headers);
        let cleaned = headers::clean(head)?;
        let method = cleaned.method().clone();
        let request = ControlPlaneRequest {
            path: *self,
            method: &method,
            is_upgrade: cleaned.upgrade().is_some(),
            user: &user,
        };
        let from = (&snapshot.policies, &*snapshot.clusters);
        let permitted = authorize(from, principal, &request, record);
        record.finish_stage(Stage::Authorize);
        let (permit, target) = permitted?;
        record.note(|record| {
            record.kubernetes = Some(Box::new(KubernetesNote {
                attributes: Some(target.attributes.shortened()),
                impersonated: Some(Arc::clone(permit.identity())),
                ..KubernetesNote::default()
            }));
        });
        let reauthorization = ControlPlaneReauthorization::new(principal, &request, &permit);
        let reauthorization = Reauthorization::ControlPlane(reauthorization);
        let guard = gateway.open.register(reauthorization, (snapshot, record.id()))?;
        let cluster_request = ClusterRequest {
            cluster: permit.access(),
            rest: target.rest,
            query: self.query,
            attributes: &target.attributes,
            identity: RequestIdentity::Impersonated(permit.identity()),
            client: context.client,
            decision: record.id(),
            expires_at: principal.expires_at(),
            ending: guard.ending(),
        };
        let answered = cluster_request
            .send((cleaned, body.without_trailers()), guard, record)
            .await;
        record.finish_stage(Stage::Forward);
        match answered? {
            SendOutcome::ClusterResponse(response) => Ok(response),
            // SECURITY: Argo CD would take a 401 for one about its own credential.
            SendOutcome::CredentialRejected(_) => Err(Rejection::ClusterUnauthorized),
        }
    }
}
