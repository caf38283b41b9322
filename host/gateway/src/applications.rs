//! Runs the stages of requests into the clusters of Applications in order, from the authenticated
//! request and its route to the cluster's answer.
//!
//! Security: a request reaches a cluster only with an [`ApplicationPermit`], and never with the
//! account of another Application. A cluster is asked nothing for callers RBAC refuses. Without
//! the right `override`, callers reach only objects of the Application.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use http::{Method, Response, StatusCode, request};

use crate::applications::permit::restriction;
use crate::applications::permit::restriction::{BodyFormat, BodyName, RequestObject, RestrictionsCache, name_in_body};
use crate::applications::permit::{
    ApplicationAccess, ApplicationPermit, access_application, authorize_application, reauthorize_application,
};
use crate::applications::route::ApplicationPath;
use crate::cluster_access::ClusterAccess;
use crate::cluster_request::{ClusterRequest, RequestIdentity, SendOutcome};
use crate::discovery::{Discovery, ResourceKind};
use crate::front::{Front, RequestContext, safety_in_cluster};
use crate::open_exchanges::{PtrEqArc, Question};
use crate::pipeline::Gateway;
use crate::rejection::Rejection;
use crate::self_check::extras::ExtraGrants;
use crate::snapshot::Snapshot;
use tollgate_config::ImpersonationMode;
use tollgate_core::attributes::Attributes;
use tollgate_identity::authenticate::{Principal, Safety};
use tollgate_identity::clock::Clock;
use tollgate_identity::sessions::EndSignal;
use tollgate_plugin::credential::cache::key::CredentialKey;
use tollgate_policy::application_request::{
    ActingIdentity, ObjectChecks, ObjectOperation, OwnershipCheck, ProjectListCheck, ReadOrWrite,
};
use tollgate_policy::applications::Tracking;
use tollgate_proxy::forward::{Body, BufferedBody};
use tollgate_proxy::headers::{self, CleanedRequest, client_impersonates};
use tollgate_proxy::record::{KubernetesNote, Open, Step};
use tollgate_state::{Cluster, ObjectName};

mod audit_mode;
mod identity;
mod ownership;
pub mod permit;
pub mod route;

/// Longest content in which the name of a new object is looked for, in bytes: kube-apiserver's
/// limit of a request.
const NAMED_BYTES: u64 = 3 * 1024 * 1024;

/// State of the Applications front that outlives reloads of the snapshot.
#[derive(Debug)]
pub struct Desk {
    discovery: Discovery,
    restrictions: RestrictionsCache,
    extras: ExtraGrants,
}

/// A permitted request, to be judged again after a change, and the desk that judges it.
#[derive(Debug)]
pub(crate) struct ApplicationReauthorization {
    desk: Arc<Desk>,
    admitted: PermittedRequest,
}

impl ApplicationReauthorization {
    /// Whether it would be let in, as the same identity and in the same way.
    pub(crate) fn is_still_allowed(&self, now: &Snapshot) -> bool {
        self.desk.still(now, &self.admitted)
    }
}

impl PartialEq for ApplicationReauthorization {
    fn eq(&self, other: &Self) -> bool {
        self.admitted == other.admitted
    }
}

impl Eq for ApplicationReauthorization {}

impl Hash for ApplicationReauthorization {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.admitted.principal.hash(state);
        self.admitted.name.hash(state);
        self.admitted.attributes.path.hash(state);
    }
}

/// A permitted request.
#[derive(Debug, PartialEq)]
struct PermittedRequest {
    principal: PtrEqArc<Principal>,
    name: ObjectName,
    attributes: Arc<Attributes>,
    kind: Option<ResourceKind>,
    named: Option<BodyName>,
    /// Whether its object was the Application's, and how that was determined.
    owned: OwnershipCheck,
    tracking: Arc<Tracking>,
    whom: ActingIdentity,
    cluster: Arc<Cluster>,
    connection: CredentialKey,
}

impl Desk {
    /// - `extras`: which keys of `extra` clusters accept with accounts.
    pub fn new(clock: Clock, extras: ExtraGrants) -> Self {
        Self {
            discovery: Discovery::new(clock),
            restrictions: RestrictionsCache::default(),
            extras,
        }
    }

    /// Whether it would be let in as it was, in the same way.
    fn still(&self, snapshot: &Snapshot, admitted: &PermittedRequest) -> bool {
        let way = snapshot.clusters.find_by_server(&admitted.cluster.server);
        let same_way = way.is_some_and(|way| way.is_reached_by(admitted.connection));
        if !same_way || !snapshot.authenticator.still(&admitted.principal.0) {
            return false;
        }
        let caller = snapshot.callers.of(&admitted.principal.0, &snapshot.rbac);
        let known = (admitted.kind.as_ref(), admitted.named.as_ref());
        let found = |access: &ApplicationAccess| {
            let listed = self.check_lists(snapshot, access, known);
            (listed, still_owned(snapshot, access, admitted))
        };
        let now = reauthorize_application(snapshot, &caller, (&admitted.name, &admitted.attributes), found);
        now.is_some_and(|(whom, cluster)| whom == admitted.whom && cluster.server == admitted.cluster.server)
    }

    /// Judges a request by RBAC, the project and the policy.
    async fn authorize_request(
        &self,
        (name, attributes): (ObjectName, Arc<Attributes>),
        content: (BodyFormat, Body),
        (snapshot, principal, record): (&Snapshot, &Arc<Principal>, &mut Open),
    ) -> Result<(ApplicationPermit, PermittedRequest, Body), Rejection> {
        let caller = snapshot.callers.of(principal, &snapshot.rbac);
        let access = access_application(snapshot, &caller, (&name, &attributes), record);
        record.finish_stage(Step::Authorize);
        let access = access?;
        let cluster = snapshot.clusters.find_by_server(&access.cluster().server);
        let cluster = cluster.ok_or(Rejection::UnknownCluster)?;
        let (kind, named, body) = self.discover_object(&access, cluster, content).await?;
        let listed = self.check_lists(snapshot, &access, (kind.as_ref(), named.as_ref()));
        let owned = match &listed {
            ProjectListCheck::Refused(_) => OwnershipCheck::NotChecked,
            ProjectListCheck::Permitted => self.owned(snapshot, &access, (cluster, kind.as_ref())).await,
        };
        let found = ObjectChecks {
            listed: &listed,
            owned: &owned,
        };
        let permit = authorize_application(snapshot, access, found, record);
        record.finish_stage(Step::Authorize);
        let permit = permit?;
        let admitted = PermittedRequest {
            principal: PtrEqArc(Arc::clone(principal)),
            name,
            attributes,
            kind,
            named,
            owned,
            tracking: tracking(snapshot),
            whom: permit.acting_identity().clone(),
            cluster: Arc::clone(permit.cluster()),
            connection: cluster.connection(),
        };
        Ok((permit, admitted, body))
    }

    /// What the project's lists say, once the resource's kind is known.
    fn check_lists(
        &self,
        snapshot: &Snapshot,
        access: &ApplicationAccess,
        (kind, name): (Option<&ResourceKind>, Option<&BodyName>),
    ) -> ProjectListCheck {
        let restrictions = self.restrictions.of(access.project());
        let place = restriction::TargetCluster {
            cluster: access.cluster(),
            clusters: &snapshot.resources.clusters,
        };
        let about = RequestObject {
            attributes: access.attributes(),
            kind,
            name,
        };
        let checked = match access.access_mode() {
            ReadOrWrite::Write => restrictions.check_write(place, about, access.acting_identity()),
            ReadOrWrite::Read => restrictions.check_read(place, about, access.acting_identity()),
        };
        match checked {
            Ok(()) => ProjectListCheck::Permitted,
            Err(refusal) => ProjectListCheck::Refused(refusal.to_string()),
        }
    }

    /// Whether the object is the Application's, and the caller may do this to it. The cluster is
    /// asked only if the caller may.
    async fn owned(
        &self,
        snapshot: &Snapshot,
        access: &ApplicationAccess,
        (cluster, kind): (&Arc<ClusterAccess>, Option<&ResourceKind>),
    ) -> OwnershipCheck {
        let (Some(front), true) = (&snapshot.applications, access.requires_owned_object()) else {
            return OwnershipCheck::NotChecked;
        };
        let Some(kind) = kind else {
            return OwnershipCheck::Refused("it is not known what kind the object is".to_owned());
        };
        if let Err(reason) = access.check_permission(&snapshot.rbac, front.index.inheritance, kind) {
            return OwnershipCheck::Refused(reason);
        }
        let search = ownership::OwnerSearch {
            discovery: &self.discovery,
            cluster,
            access,
            tracking: &front.index.tracking,
            instance: &front.index.instance_name(&access.governed().application.name),
        };
        search.owned(kind).await
    }

    /// Determines the resource's kind, and the name in the content if it matters.
    async fn discover_object(
        &self,
        access: &ApplicationAccess,
        cluster: &Arc<ClusterAccess>,
        (format, body): (BodyFormat, Body),
    ) -> Result<(Option<ResourceKind>, Option<BodyName>, Body), Rejection> {
        let asked = restriction::resource(access.attributes());
        let asked = asked.filter(|_| access.operation() != ObjectOperation::Discover);
        let Some((group, version, resource)) = asked else {
            return Ok((None, None, body));
        };
        let kind = self.discovery.find(cluster, group, version, resource).await?;
        let restrictions = self.restrictions.of(access.project());
        if !restrictions.needs_name(access.attributes(), &kind) {
            return Ok((Some(kind), None, body));
        }
        let (name, body) = match body.gather(NAMED_BYTES).await? {
            BufferedBody::Whole(bytes) => (name_in_body(format, &bytes), Body::from(bytes)),
            BufferedBody::Stream(body) => (BodyName::Unreadable, body),
        };
        Ok((Some(kind), Some(name), body))
    }
}

impl Front for ApplicationPath<'_> {
    fn safety(&self, method: &Method) -> Safety {
        safety_in_cluster(method, self.rest, self.query)
    }

    async fn serve(
        &self,
        context: RequestContext<'_>,
        (head, body): (request::Parts, Body),
    ) -> Result<Response<Body>, Rejection> {
        let RequestContext {
            gateway,
            peer,
            snapshot,
            principal,
            record,
        } = context;
        let (Some(desk), Some(_)) = (&gateway.applications, &snapshot.applications) else {
            return Err(Rejection::NotFound);
        };
        let name = ObjectName {
            namespace: self.namespace.to_owned(),
            name: self.name.to_owned(),
        };
        let rest = if self.rest.is_empty() { "/" } else { self.rest };
        record.note(|record| {
            record.front = "applications";
            record.application = Some(name.clone());
        });
        if let Some(name) = client_impersonates(&head.headers) {
            return Err(Rejection::ClientImpersonates(name.clone()));
        }
        let cleaned = headers::clean(head)?;
        // SECURITY: this is the format the cluster will read, after fields that `Connection` names
        // are removed.
        let format = BodyFormat::of(cleaned.fields());
        let attributes = Arc::new(Attributes::read(cleaned.method(), rest, self.query, cleaned.upgrade()));
        record.note(|record| {
            record.kubernetes = Some(Box::new(KubernetesNote {
                attributes: Some(attributes.shortened()),
                ..KubernetesNote::default()
            }));
        });
        let held = gateway.persons.acquire(principal.key())?;
        let (permit, admitted, body) = desk
            .authorize_request((name, attributes), (format, body), (snapshot, principal, record))
            .await?;
        let cluster = snapshot.clusters.find_by_server(&permit.cluster().server);
        let cluster = cluster.ok_or(Rejection::UnknownCluster)?;
        let question = Question::Application(ApplicationReauthorization {
            desk: Arc::clone(desk),
            admitted,
        });
        let place = gateway.open.register(question, (snapshot, record.id()))?;
        let sending = OutgoingRequest {
            desk,
            path: ApplicationPath { rest, ..*self },
            cluster,
            permit: &permit,
        };
        let ending = place.ending();
        let context = RequestContext {
            gateway,
            peer,
            snapshot,
            principal,
            record,
        };
        let request = (cleaned, body.without_trailers());
        context.send(sending, request, (ending, (held, place))).await
    }
}

impl RequestContext<'_> {
    /// The stages impersonate, credential, headers and forward, and in parallel what mode enforce
    /// would say.
    async fn send<H: Send + Sync + 'static>(
        self,
        sending: OutgoingRequest<'_>,
        request: (CleanedRequest, Body),
        (ending, held): (EndSignal, H),
    ) -> Result<Response<Body>, Rejection> {
        let OutgoingRequest {
            desk,
            path,
            cluster,
            permit,
        } = sending;
        let Self {
            gateway,
            peer,
            snapshot,
            principal,
            record,
        } = self;
        let told = desk.cluster_identity(permit);
        record.note(|record| {
            if let Some(note) = &mut record.kubernetes {
                note.impersonated = Some(Arc::clone(&told.impersonation));
            }
        });
        let cluster_request = ClusterRequest {
            cluster,
            rest: path.rest,
            query: path.query,
            attributes: permit.attributes(),
            told: RequestIdentity::Impersonated(&told.impersonation),
            peer,
            decision: record.id(),
            until: principal.expires_at(),
            ending,
        };
        let audits = snapshot
            .applications
            .as_ref()
            .is_some_and(|front| front.index.mode == ImpersonationMode::Audit);
        let answered = match audits {
            false => cluster_request.send(request, held, record).await,
            true => {
                let enforce_deny_reason =
                    audit_mode::enforce_deny_reason(permit.governed(), permit.attributes(), cluster);
                let (answered, enforce_deny_reason) =
                    tokio::join!(cluster_request.send(request, held, record), enforce_deny_reason);
                if let Some(enforce_deny_reason) = enforce_deny_reason {
                    gateway.would_refuse(permit, enforce_deny_reason, record);
                }
                answered
            }
        };
        record.finish_stage(Step::Forward);
        let SendOutcome::ClusterResponse(response) = answered? else {
            return Err(Rejection::ClusterUnauthorized);
        };
        if let (StatusCode::FORBIDDEN, Some(account)) = (response.status(), &told.account_with_extra) {
            // The cluster may have refused because of the `extra` sent along.
            desk.extras.report_forbidden(&permit.cluster().server, account);
        }
        Ok(response)
    }
}

impl Gateway {
    /// Records what mode enforce would have refused.
    fn would_refuse(&self, permit: &ApplicationPermit, enforce_deny_reason: String, record: &mut Open) {
        let name = &permit.governed().application.name;
        let asked = permit.attributes().shortened();
        tracing::warn!(
            namespace = %name.namespace, application = %name.name, verb = %asked.verb, path = %asked.path,
            decision = %record.id(), "with impersonation enforced this would be refused: {enforce_deny_reason}"
        );
        self.metrics.would_refuse.inc();
        record.note(|record| drop(record.notes.insert("would_refuse".to_owned(), enforce_deny_reason)));
    }
}

/// How live objects name their Application.
fn tracking(snapshot: &Snapshot) -> Arc<Tracking> {
    let front = snapshot.applications.as_ref();
    front.map(|front| Arc::clone(&front.index.tracking)).unwrap_or_default()
}

/// What is known of the object of a request that was let in before. The cluster is not asked
/// again.
fn still_owned(snapshot: &Snapshot, access: &ApplicationAccess, admitted: &PermittedRequest) -> OwnershipCheck {
    let inheritance = snapshot.applications.as_ref().map(|front| front.index.inheritance);
    let (Some(inheritance), true) = (inheritance, access.requires_owned_object()) else {
        return OwnershipCheck::NotChecked;
    };
    if tracking(snapshot) != admitted.tracking {
        return OwnershipCheck::Refused("objects are tracked in another way now".to_owned());
    }
    let right = admitted
        .kind
        .as_ref()
        .map(|kind| access.check_permission(&snapshot.rbac, inheritance, kind));
    match right {
        Some(Ok(())) => admitted.owned.clone(),
        Some(Err(reason)) => OwnershipCheck::Refused(reason),
        None => OwnershipCheck::Refused("it is not known what kind the object is".to_owned()),
    }
}

/// A permitted request about to be sent.
struct OutgoingRequest<'a> {
    desk: &'a Desk,
    path: ApplicationPath<'a>,
    cluster: &'a Arc<ClusterAccess>,
    permit: &'a ApplicationPermit,
}
