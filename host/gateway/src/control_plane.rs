//! Runs the stages of requests of Argo CD's own components to clusters in order, from the
//! authenticated request inside a tunnel to the cluster's response.
//!
//! An unmodified Argo CD comes here if a cluster's Secret has the gateway as `proxyUrl`: it opens a
//! tunnel (`CONNECT`) for the cluster's server, which ends in the gateway.
//!
//! Security: a request reaches a cluster only with a [`ControlPlanePermit`], as an account that the
//! permit names, and nothing else of the gateway can be reached in a tunnel.

use std::sync::Arc;

use http::uri::Authority;
use http::{Method, Response, Uri, request};
use jiff::Timestamp;

use crate::cluster_request;
use crate::cluster_request::{ClusterRequest, RequestIdentity, SendOutcome};
use crate::control_plane::object::{ObjectSearch, WrittenObject};
use crate::control_plane::permit::{
    ControlPlaneAccess, ControlPlanePermit, ControlPlaneRequest, Error, RequestedUser, access_again, access_cluster,
};
use crate::control_plane::route::{ControlPlanePath, TunnelTarget};
use crate::error_format::ErrorFormat;
use crate::front::{Arrival, Front, Pass, PathRules, RequestContext, Services};
use crate::object_content::ContentFormat;
use crate::open_exchanges::{Change, NotAdmitted, PtrEqArc, Reauthorize};
use crate::restriction::RestrictionsCache;
use crate::snapshot::Snapshot;
use tollgate_cluster::discovery::Discovery;
use tollgate_config::Config;
use tollgate_core::upgrade::Protocol;
use tollgate_credential::cache::key::CredentialKey;
use tollgate_front::Denial;
use tollgate_front::path::{Answerer, Captures, Path, PathLine};
use tollgate_identity::authenticate::{Principal, Safety};
use tollgate_identity::sessions::EndReason;
use tollgate_objects::ObjectName;
use tollgate_policy::impersonate::Impersonation;
use tollgate_policy::rego;
use tollgate_proxy::forward::Body;
use tollgate_proxy::headers;
use tollgate_proxy::record::{KubernetesNote, Stage};
use tollgate_proxy::target;

mod object;
pub mod permit;
pub(crate) mod route;

/// A permitted request, to be authorized again after a change.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct ControlPlaneReauthorization {
    front: PtrEqArc<ControlPlaneFront>,
    principal: PtrEqArc<Principal>,
    authority: Authority,
    path: String,
    query: Option<String>,
    method: Method,
    upgrade: Option<Protocol>,
    format: ContentFormat,
    user: RequestedUser,
    object: Option<WrittenObject>,
    identity: Arc<Impersonation>,
    application: Option<ObjectName>,
    server: String,
    connection: CredentialKey,
}

impl ControlPlaneReauthorization {
    fn new(
        front: &Arc<ControlPlaneFront>,
        principal: &Arc<Principal>,
        request: &ControlPlaneRequest<'_>,
        (object, permit): (Option<WrittenObject>, &ControlPlanePermit),
    ) -> Self {
        let access = permit.access();
        Self {
            front: PtrEqArc(Arc::clone(front)),
            principal: PtrEqArc(Arc::clone(principal)),
            authority: request.path.authority.clone(),
            path: request.path.path.to_owned(),
            query: request.path.query.map(str::to_owned),
            method: request.method.clone(),
            upgrade: request.upgrade,
            format: request.format,
            user: request.user.clone(),
            object,
            identity: Arc::clone(permit.identity()),
            application: permit.application().map(|indexed| indexed.application.name.clone()),
            server: access.cluster().server.clone(),
            connection: access.connection(),
        }
    }
}

impl Reauthorize for ControlPlaneReauthorization {
    fn front(&self) -> &'static str {
        "control-plane"
    }

    fn principal(&self) -> Option<&Principal> {
        Some(&self.principal.0)
    }

    fn inputs_unchanged(&self, change: &Change<'_>) -> bool {
        change.same_applications() && change.same_bundle(rego::Front::ControlPlane)
    }

    /// Whether `now` permits the request, for the same Application, as the same account, and to the
    /// same cluster over the same connection. The cluster gets no query.
    fn is_allowed_by(&self, now: &Snapshot) -> bool {
        let PtrEqArc(principal) = &self.principal;
        if !now.authenticator.is_still_valid(principal) {
            return false;
        }
        let Some(front) = &now.policies.applications else {
            return false;
        };
        if self
            .object
            .as_ref()
            .is_some_and(|object| object.tracking != front.index.tracking)
        {
            return false;
        }
        let request = ControlPlaneRequest {
            path: ControlPlanePath {
                authority: &self.authority,
                path: &self.path,
                query: self.query.as_deref(),
            },
            method: &self.method,
            upgrade: self.upgrade,
            format: self.format,
            user: &self.user,
        };
        let from = (&now.policies, &*self.front.0.restrictions);
        let access = access_again((&now.policies, &now.clusters), principal, &request);
        let caller = (principal, Timestamp::now());
        let permit = access.and_then(|access| access.permit(from, caller, self.object.as_ref(), None));
        permit.is_ok_and(|permit| {
            let access = permit.access();
            let is_same_cluster = access.cluster().server == self.server && access.is_reached_by(self.connection);
            let name = permit.application().map(|indexed| &indexed.application.name);
            is_same_cluster && *permit.identity() == self.identity && name == self.application.as_ref()
        })
    }
}

/// The front of Argo CD's own components.
#[derive(Debug)]
pub(crate) struct ControlPlaneFront {
    discovery: Arc<Discovery>,
    restrictions: Arc<RestrictionsCache>,
}

impl Front for ControlPlaneFront {
    const NAME: &'static str = "control-plane";
    /// Everything in a tunnel.
    const PATHS: &'static [Path<()>] = &[];

    type Endpoint = ();
    type Target = TunnelTarget;

    fn open(services: &Services) -> anyhow::Result<Option<Self>> {
        Ok(services.config.applications.map(|_| Self {
            discovery: Arc::clone(&services.discovery),
            restrictions: Arc::clone(&services.restrictions),
        }))
    }

    fn lines(config: &Config) -> Vec<PathLine> {
        vec![PathLine {
            methods: "CONNECT".to_owned(),
            path: "{host}:{port}".to_owned(),
            answerer: Answerer::Cluster,
            is_open: config.control_plane.is_some(),
        }]
    }

    fn rules(arrival: &Arrival<'_>, _: &Snapshot) -> Option<PathRules> {
        arrival.tunnel.map(|_| PathRules::errors(ErrorFormat::Kubernetes))
    }

    // SECURITY: nothing else of the gateway can be reached in a tunnel, so this front is asked first.
    fn find(arrival: &Arrival<'_>, _: Pass) -> Result<Option<(TunnelTarget, Answerer)>, target::Error> {
        let Some(authority) = arrival.tunnel else {
            return Ok(None);
        };
        Ok(Some((TunnelTarget::read(authority, arrival.uri)?, Answerer::Cluster)))
    }

    fn target((): (), _: &Captures<'_>, _: &Uri) -> Result<Option<TunnelTarget>, target::Error> {
        Ok(None)
    }

    async fn serve(
        self: &Arc<Self>,
        target: TunnelTarget,
        mut context: RequestContext<'_>,
        (head, body): (request::Parts, Body),
    ) -> Result<Response<Body>, Denial> {
        // SECURITY: no page opens a tunnel. Everything else is judged as if it changed something.
        let principal = &context.authenticate(&head, Safety::Unsafe).await?;
        let path = target.path();
        let RequestContext {
            services,
            client,
            mut snapshot,
            record,
            ..
        } = context;
        let user = RequestedUser::read(&head.headers);
        let cleaned = headers::clean(head)?;
        let method = cleaned.method().clone();
        let request = ControlPlaneRequest {
            path,
            method: &method,
            upgrade: cleaned.upgrade(),
            // SECURITY: this is the format the cluster will read, after fields that `Connection`
            // names are removed.
            format: ContentFormat::of(cleaned.fields()),
            user: &user,
        };
        let from = (&snapshot.policies, &*snapshot.clusters);
        let accessed = access_cluster(from, principal, &request, record);
        record.finish_stage(Stage::Authorize);
        let mut access = accessed?;
        record.note(|record| {
            record.kubernetes = Some(Box::new(KubernetesNote {
                attributes: Some(access.attributes.shortened()),
                ..KubernetesNote::default()
            }));
        });
        let mut body = body.without_trailers();
        if access.needs_object(&snapshot.policies) && object::sends_object(&access.attributes) {
            // Whoever sends content slowly must not keep what was in force when they began.
            drop((access, snapshot));
            body = Body::from(body.buffer_all(object::CONTENT_BYTES).await?);
            snapshot = services.current.load_full();
            record.note(|record| record.generation = snapshot.generation);
            if !snapshot.authenticator.is_still_valid(principal) {
                return Err(NotAdmitted(EndReason::Withdrawn).into());
            }
            access = access_again((&snapshot.policies, &snapshot.clusters), principal, &request)?;
        }
        let (object, body) = find_object(self, &snapshot, &access, (request.format, body)).await?;
        let from = (&snapshot.policies, &*self.restrictions);
        let mut at = Timestamp::UNIX_EPOCH;
        record.note(|record| {
            at = record.at;
            let bundle = snapshot.policies.bundle(rego::Front::ControlPlane);
            record.policy = bundle.map(|bundle| Arc::clone(&bundle.digest));
        });
        let permitted = access.permit(from, (principal, at), object.as_ref(), Some(&mut *record));
        record.finish_stage(Stage::Authorize);
        record.note(|record| match &permitted {
            Ok(permit) => record.notes.clone_from(permit.notes()),
            Err(Error::Denied(_, notes)) => record.notes.clone_from(notes),
            Err(_) => {}
        });
        let permit = permitted?;
        record.note(|record| {
            if let Some(indexed) = permit.application() {
                record.application = Some(indexed.application.name.clone());
                record.project = Some(indexed.application.project.clone());
            }
            if let Some(note) = &mut record.kubernetes {
                note.impersonated = Some(Arc::clone(permit.identity()));
            }
        });
        if let Some(refusal) = permit.would_refuse() {
            services.metrics.control_plane_would_refuse.inc();
            let (reason, text) = (refusal.reason(), refusal.to_string());
            tracing::warn!(%reason, decision = %record.id(), "mode enforce would refuse a write of Argo CD");
            record.note_would_refuse(reason, text);
        }
        let reauthorization = ControlPlaneReauthorization::new(self, principal, &request, (object, &permit));
        let guard = services.open.register(reauthorization, (&snapshot, record.id()))?;
        drop(snapshot);
        let (rest, attributes) = access.into_request();
        let cluster_request = ClusterRequest {
            cluster: permit.access(),
            rest,
            query: path.query,
            attributes: &attributes,
            identity: RequestIdentity::Impersonated(permit.identity()),
            client,
            decision: record.id(),
            expires_at: principal.expires_at(),
            ending: guard.ending(),
        };
        let answered = cluster_request.send((cleaned, body), guard, record).await;
        record.finish_stage(Stage::Forward);
        match answered? {
            SendOutcome::ClusterResponse(response) => Ok(response),
            // SECURITY: Argo CD would take a 401 for one about its own credential.
            SendOutcome::CredentialRejected(_) => Err(cluster_request::cluster_unauthorized()),
        }
    }
}

/// Finds out what the request writes, if the decision depends on it.
async fn find_object(
    front: &ControlPlaneFront,
    snapshot: &Snapshot,
    access: &ControlPlaneAccess<'_>,
    content: (ContentFormat, Body),
) -> Result<(Option<WrittenObject>, Body), Denial> {
    let applications = snapshot.policies.applications.as_ref();
    let Some(applications) = applications.filter(|_| access.needs_object(&snapshot.policies)) else {
        let (_, body) = content;
        return Ok((None, body));
    };
    let search = ObjectSearch {
        discovery: &front.discovery,
        cluster: access.cluster(),
        tracking: &applications.index.tracking,
        identities: [snapshot.policies.reader.as_ref(), access.account()],
    };
    search.find(&access.attributes, content).await
}
