//! Runs the stages of requests of Argo CD's own components to clusters in order, from the
//! authenticated request inside a tunnel to the cluster's response.
//!
//! An unmodified Argo CD comes here if a cluster's Secret has the gateway as `proxyUrl`: it opens a
//! tunnel (`CONNECT`) for the cluster's server, which ends in the gateway.
//!
//! Security: a request reaches a cluster only with a [`ControlPlanePermit`], as an account that the
//! permit names, and nothing else of the gateway can be reached in a tunnel.

use std::sync::Arc;

use http::{Method, Response, Uri, request};
use jiff::Timestamp;

use crate::cluster_request;
use crate::cluster_request::{ClusterRequest, RequestIdentity, SendOutcome};
use crate::control_plane::object::{ObjectSearch, WrittenObject};
use crate::control_plane::permit::{ControlPlaneAccess, ControlPlanePermit, ControlPlaneRequest, Error, RequestedUser};
use crate::control_plane::route::TunnelTarget;
use crate::object_content::ContentFormat;
use crate::restriction::RestrictionsCache;
use tollgate_cluster::discovery::Discovery;
use tollgate_config::Config;
use tollgate_credential::cache::key::CredentialKey;
use tollgate_front::error_format::ErrorFormat;
use tollgate_front::open_exchanges::{Change, NotAdmitted};
use tollgate_front::path::{Answerer, Captures, Path, PathLine};
use tollgate_front::snapshot::Snapshot;
use tollgate_front::{
    Arrival, DecisionInputs, Denial, Front, Lookup, Pass, PathRules, Permitted, RequestContext, Services, Steps,
    serve_steps,
};
use tollgate_identity::authenticate::Safety;
use tollgate_identity::sessions::EndReason;
use tollgate_objects::ObjectName;
use tollgate_policy::impersonate::Impersonation;
use tollgate_proxy::forward::{Body, Limiter};
use tollgate_proxy::headers::{self, CleanedRequest};
use tollgate_proxy::metrics::Metrics;
use tollgate_proxy::record::{KubernetesNote, OpenRecord, Stage};
use tollgate_proxy::target;
use tollgate_rego as rego;

mod object;
pub(crate) mod permit;
pub(crate) mod route;

/// What is asked of a cluster, and what it writes there.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Question {
    request: ControlPlaneRequest,
    object: Option<WrittenObject>,
}

/// A request whose content is not read yet.
#[derive(Debug)]
pub struct Admitted {
    request: ControlPlaneRequest,
    access: ControlPlaneAccess,
    cleaned: CleanedRequest,
}

/// The identity that a request acts as, the Application it acts for, and the connection to the
/// cluster.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    identity: Arc<Impersonation>,
    application: Option<ObjectName>,
    server: String,
    connection: Option<CredentialKey>,
}

/// A request to the cluster.
#[derive(Debug)]
pub struct Forwarded {
    target: TunnelTarget,
    cleaned: CleanedRequest,
    body: Body,
}

/// The front of Argo CD's own components.
#[derive(Debug)]
pub struct ControlPlaneFront {
    discovery: Arc<Discovery>,
    restrictions: RestrictionsCache,
    metrics: Arc<Metrics>,
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
            restrictions: services.caches.of::<RestrictionsCache>().clone(),
            metrics: Arc::clone(&services.metrics),
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
        context: RequestContext<'_>,
        (head, body): (request::Parts, Body),
    ) -> Result<Response<Body>, Denial> {
        serve_steps(self, target, context, head, body).await
    }
}

impl Steps for ControlPlaneFront {
    type Admitted = Admitted;
    type Question = Question;
    type Request = Forwarded;
    type Permit = ControlPlanePermit;
    type Terms = Terms;

    // SECURITY: no page opens a tunnel. Everything else is judged as if it changed something.
    fn safety(_: &TunnelTarget, _: &Method) -> Safety {
        Safety::Unsafe
    }

    /// A component of Argo CD is one caller with thousands of watches.
    fn limiter(services: &Services) -> &Arc<Limiter> {
        &services.components
    }

    fn admit(
        &self,
        DecisionInputs { now, caller }: DecisionInputs<'_>,
        target: TunnelTarget,
        head: request::Parts,
        record: &mut OpenRecord,
    ) -> Result<Admitted, Denial> {
        // Before cleaning, which removes all fields of impersonation.
        let user = RequestedUser::read(&head.headers);
        let cleaned = headers::clean(head)?;
        let request = ControlPlaneRequest {
            target,
            method: cleaned.method().clone(),
            upgrade: cleaned.upgrade(),
            // SECURITY: this is the format the cluster will read, after fields that `Connection`
            // names are removed.
            format: ContentFormat::of(cleaned.fields()),
            user,
        };
        let access = ControlPlaneAccess::find(
            &now.policies,
            &now.clusters,
            &caller.principal,
            &request,
            Some(&mut *record),
        )?;
        record.note(|record| {
            record.kubernetes = Some(Box::new(KubernetesNote {
                attributes: Some(access.attributes.shortened()),
                ..KubernetesNote::default()
            }));
        });
        Ok(Admitted {
            request,
            access,
            cleaned,
        })
    }

    async fn read(
        &self,
        lookup: &mut Lookup<'_>,
        admitted: Admitted,
        body: Body,
    ) -> Result<(Question, Forwarded), Denial> {
        let Admitted {
            request,
            mut access,
            cleaned,
        } = admitted;
        let mut body = body.without_trailers();
        let mut now = lookup.now();
        if access.needs_object(&now.policies) && object::sends_object(&access.attributes) {
            // A caller who sends content slowly must not keep what was in force when they began.
            drop((access, now));
            body = Body::from(lookup.content(body.buffer_all(object::CONTENT_BYTES)).await?);
            now = lookup.now();
            let caller = lookup.caller(&now);
            access = ControlPlaneAccess::find(&now.policies, &now.clusters, &caller.principal, &request, None)?;
        }
        let (object, body) = find_object(self, &now, &access, request.format, body).await?;
        let forwarded = Forwarded {
            target: request.target.clone(),
            cleaned,
            body,
        };
        Ok((Question { request, object }, forwarded))
    }

    fn authorize(
        &self,
        DecisionInputs { now, caller }: DecisionInputs<'_>,
        Question { request, object }: &Question,
        mut record: Option<&mut OpenRecord>,
    ) -> Result<ControlPlanePermit, Denial> {
        let policies = &now.policies;
        let index = policies.applications.as_ref().map(|applications| &applications.index);
        let is_current = |object: &WrittenObject| index.is_some_and(|index| index.tracking == object.tracking);
        // The owner was found by other settings of tracking, and may be the wrong one by those in force.
        if !object.as_ref().is_none_or(is_current) {
            return Err(NotAdmitted(EndReason::Withdrawn).into());
        }
        let access = ControlPlaneAccess::find(policies, &now.clusters, &caller.principal, request, None)?;
        let at = record.as_ref().and_then(|record| record.at());
        if let Some(record) = record.as_deref_mut() {
            let bundle = policies.bundle(rego::Front::ControlPlane);
            record.note(|record| record.policy = bundle.map(|bundle| Arc::clone(&bundle.digest)));
        }
        let permitted = access.permit(
            policies,
            &self.restrictions,
            caller,
            at.unwrap_or_else(Timestamp::now),
            object.as_ref(),
            record.as_deref_mut(),
        );
        if let Some(record) = record {
            self.note(&permitted, record);
        }
        Ok(permitted?)
    }

    fn terms(permit: &ControlPlanePermit) -> Terms {
        let access = permit.access();
        Terms {
            identity: Arc::clone(permit.identity()),
            application: permit.application().map(|indexed| indexed.application.name.clone()),
            server: access.cluster().server.clone(),
            connection: access.usable_connection(),
        }
    }

    fn inputs_unchanged(change: &Change<'_>) -> bool {
        change.same_applications() && change.same_bundle(rego::Front::ControlPlane)
    }

    async fn answer(
        &self,
        permitted: Permitted<'_>,
        permit: ControlPlanePermit,
        Forwarded { target, cleaned, body }: Forwarded,
    ) -> Result<Response<Body>, Denial> {
        let Permitted {
            client,
            principal,
            record,
            snapshot,
            guard,
            held,
        } = permitted;
        drop(snapshot);
        let cluster_request = ClusterRequest {
            cluster: permit.access(),
            rest: permit.rest(target.path()),
            query: target.query(),
            attributes: permit.attributes(),
            identity: RequestIdentity::Impersonated(permit.identity()),
            client,
            decision: record.id(),
            expires_at: principal.expires_at(),
            ending: guard.ending(),
        };
        let answered = cluster_request.send(cleaned, body, (held, guard), record).await;
        record.finish_stage(Stage::Forward);
        match answered? {
            SendOutcome::ClusterResponse(response) => Ok(response),
            // SECURITY: Argo CD would take a 401 for one about its own credential.
            SendOutcome::CredentialRejected(_) => Err(cluster_request::cluster_unauthorized()),
        }
    }
}

impl ControlPlaneFront {
    fn note(&self, permitted: &Result<ControlPlanePermit, Error>, record: &mut OpenRecord) {
        record.note(|record| match permitted {
            Ok(permit) => {
                record.notes.clone_from(permit.notes());
                if let Some(indexed) = permit.application() {
                    record.application = Some(indexed.application.name.clone());
                    record.project = Some(indexed.application.project.clone());
                }
                if let Some(note) = &mut record.kubernetes {
                    note.impersonated = Some(Arc::clone(permit.identity()));
                }
            }
            Err(Error::Denied(_, notes)) => record.notes.clone_from(notes),
            Err(_) => {}
        });
        if let Some(refusal) = permitted.as_ref().ok().and_then(ControlPlanePermit::would_refuse) {
            self.metrics.control_plane_would_refuse.inc();
            let (reason, text) = (refusal.reason(), refusal.to_string());
            tracing::warn!(%reason, decision = %record.id(), "mode enforce would refuse a write of Argo CD");
            record.note_would_refuse(reason, text);
        }
    }
}

/// Finds out what the request writes, if the decision depends on it.
async fn find_object(
    front: &ControlPlaneFront,
    snapshot: &Snapshot,
    access: &ControlPlaneAccess,
    format: ContentFormat,
    body: Body,
) -> Result<(Option<WrittenObject>, Body), Denial> {
    let applications = snapshot.policies.applications.as_ref();
    let Some(applications) = applications.filter(|_| access.needs_object(&snapshot.policies)) else {
        return Ok((None, body));
    };
    let search = ObjectSearch {
        discovery: &front.discovery,
        cluster: access.cluster(),
        tracking: &applications.index.tracking,
        identities: [snapshot.policies.reader.as_ref(), access.account()],
    };
    search.find(&access.attributes, format, body).await
}
