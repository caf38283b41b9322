//! Runs the stages of requests to the clusters of Applications in order, from the authenticated
//! request and its route to the cluster's response.
//!
//! Security: a request reaches a cluster only with an [`ApplicationPermit`], and never with the
//! account of another Application. For callers that RBAC refuses, the cluster gets no queries.
//! Without the permission `override`, callers reach only objects of the Application.

use std::sync::Arc;

use http::{Method, Response, StatusCode, request};
use jiff::Timestamp;

use crate::applications::permit::restriction::{self, BodyName, RequestObject, RestrictionsCache, name_in_body};
use crate::applications::permit::{
    ApplicationAccess, ApplicationPermit, access_application, authorize_application, reauthorize_application,
};
use crate::applications::route::ApplicationPath;
use crate::cluster_request;
use crate::cluster_request::{ClusterRequest, RequestIdentity, SendOutcome};
use crate::front::{RequestContext, RouteHandler, safety_in_cluster};
use crate::object_content::ContentFormat;
use crate::open_exchanges::{Change, NotAdmitted, PtrEqArc, Reauthorize};
use crate::pipeline::Gateway;
use crate::snapshot::Snapshot;
use tollgate_cluster::access::ClusterAccess;
use tollgate_cluster::discovery::{Discovery, ResourceKind};
use tollgate_cluster::self_check::extras::ExtraGrants;
use tollgate_config::ImpersonationMode;
use tollgate_core::attributes::Attributes;
use tollgate_credential::cache::key::CredentialKey;
use tollgate_front::Denial;
use tollgate_identity::authenticate::{Principal, Safety};
use tollgate_identity::clock::Clock;
use tollgate_identity::sessions::EndReason;
use tollgate_objects::{Cluster, ObjectName};
use tollgate_policy::application_request::{
    ActingIdentity, ObjectChecks, ObjectOperation, OwnershipCheck, ProjectListCheck, ReadOrWrite,
};
use tollgate_policy::applications::Tracking;
use tollgate_proxy::forward::{Body, BufferedBody, LimitPermit};
use tollgate_proxy::headers::{self, CleanedRequest, client_impersonates};
use tollgate_proxy::record::{KubernetesNote, OpenRecord, Stage};

mod audit_mode;
mod identity;
mod ownership;
pub mod permit;
pub(crate) mod route;

/// Longest content from which the name of a new object is read, in bytes: kube-apiserver's limit
/// of a request.
const NAMED_BYTES: u64 = 3 * 1024 * 1024;

const UNKNOWN_KIND: &str = "the kind of the object is not known";

/// State of the Applications front that outlives reloads of the snapshot.
#[derive(Debug)]
pub struct ApplicationsFrontState {
    discovery: Discovery,
    restrictions: RestrictionsCache,
    extras: ExtraGrants,
}

/// A permitted request, to be authorized again after a change.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct ApplicationReauthorization {
    front_state: PtrEqArc<ApplicationsFrontState>,
    principal: PtrEqArc<Principal>,
    name: ObjectName,
    attributes: Arc<Attributes>,
    /// When it came, if sync windows apply to it.
    at: Option<Timestamp>,
    kind: Option<ResourceKind>,
    body_name: Option<BodyName>,
    /// Whether its object belonged to the Application.
    ownership: OwnershipCheck,
    tracking: Arc<Tracking>,
    acting_identity: ActingIdentity,
    cluster: Arc<Cluster>,
    connection: CredentialKey,
}

impl Reauthorize for ApplicationReauthorization {
    fn front(&self) -> &'static str {
        "applications"
    }

    fn principal(&self) -> Option<&Principal> {
        Some(&self.principal.0)
    }

    fn inputs_unchanged(&self, change: &Change<'_>) -> bool {
        same_applications(change)
    }

    /// Whether `now` permits the request, with the same identity and over the same connection.
    fn is_allowed_by(&self, now: &Snapshot) -> bool {
        let PtrEqArc(principal) = &self.principal;
        let cluster = now.clusters.find_by_server(&self.cluster.server);
        let is_same_connection = cluster.is_some_and(|cluster| cluster.is_reached_by(self.connection));
        if !is_same_connection || !now.authenticator.is_still_valid(principal) {
            return false;
        }
        let caller = now.policies.caller(principal);
        let object = (self.kind.as_ref(), self.body_name.as_ref());
        let check_object = |access: &ApplicationAccess| {
            let project_lists = self.front_state.0.check_lists(now, access, object);
            (project_lists, self.recheck_ownership(now, access))
        };
        let request = (&self.name, &self.attributes);
        let permit = reauthorize_application(&now.policies, &caller, request, self.at, check_object);
        permit.is_some_and(|permit| {
            *permit.acting_identity() == self.acting_identity && permit.cluster().server == self.cluster.server
        })
    }
}

/// Whether both snapshots have the same Applications, and permit the same with them.
pub(crate) fn same_applications(change: &Change<'_>) -> bool {
    let front = |snapshot: &Snapshot| {
        let front = snapshot.policies.applications.as_ref()?;
        Some((Arc::as_ptr(&front.index), Arc::as_ptr(&front.policy)))
    };
    change.same_permissions()
        && change.same_clusters()
        && change.same_resources()
        && front(change.before) == front(change.now)
}

impl ApplicationReauthorization {
    /// Checks again whether the object belongs to the Application. The cluster gets no query.
    fn recheck_ownership(&self, now: &Snapshot, access: &ApplicationAccess) -> OwnershipCheck {
        let (Some(front), true) = (&now.policies.applications, access.requires_owned_object()) else {
            return OwnershipCheck::NotChecked;
        };
        if front.index.tracking != self.tracking {
            return OwnershipCheck::Refused("objects are tracked in another way now".to_owned());
        }
        let Some(kind) = &self.kind else {
            return OwnershipCheck::Refused(UNKNOWN_KIND.to_owned());
        };
        match access.check_permission(&now.policies.rbac, front.index.inheritance, kind) {
            Ok(()) => self.ownership.clone(),
            Err(reason) => OwnershipCheck::Refused(reason),
        }
    }
}

/// What a request is about, as far as its head says it.
struct RequestTarget {
    access: ApplicationAccess,
    cluster: Arc<ClusterAccess>,
    /// `None` if it is about no resource.
    kind: Option<ResourceKind>,
}

impl ApplicationsFrontState {
    /// - `extras`: the keys of `extra` that clusters accept with accounts.
    pub(crate) fn new(clock: Clock, extras: ExtraGrants) -> Self {
        Self {
            discovery: Discovery::new(clock),
            restrictions: RestrictionsCache::default(),
            extras,
        }
    }

    pub(crate) fn discovery(&self) -> &Discovery {
        &self.discovery
    }

    pub(crate) fn restrictions(&self) -> &RestrictionsCache {
        &self.restrictions
    }

    /// Returns the snapshot that decided: once content was read, this is the newest one.
    async fn authorize_request(
        self: &Arc<Self>,
        (name, attributes): (ObjectName, Arc<Attributes>),
        (format, mut body): (ContentFormat, Body),
        (gateway, mut snapshot): (&Gateway, Arc<Snapshot>),
        (principal, record): (&Arc<Principal>, &mut OpenRecord),
    ) -> Result<(ApplicationPermit, ApplicationReauthorization, Body, Arc<Snapshot>), Denial> {
        let request = (&name, &attributes);
        let mut target = self.find_target(request, (&snapshot, principal), record).await?;
        let mut body_name = None;
        if self.needs_name(&target) {
            // The content comes when the client likes, and a snapshot is megabytes.
            drop((target, snapshot));
            (body_name, body) = match body.buffer_if_short(NAMED_BYTES).await? {
                BufferedBody::Whole(bytes) => (Some(name_in_body(format, &bytes)), Body::from(bytes)),
                BufferedBody::Stream(body) => (Some(BodyName::Unreadable), body),
            };
            snapshot = gateway.status.current.load_full();
            if !snapshot.authenticator.is_still_valid(principal) {
                return Err(NotAdmitted(EndReason::Withdrawn).into());
            }
            record.note(|record| record.generation = snapshot.generation);
            target = self.find_target(request, (&snapshot, principal), record).await?;
        }
        let RequestTarget { access, cluster, kind } = target;
        let project_lists = self.check_lists(&snapshot, &access, (kind.as_ref(), body_name.as_ref()));
        let ownership = match &project_lists {
            ProjectListCheck::Refused(_) => OwnershipCheck::NotChecked,
            ProjectListCheck::Permitted => {
                self.check_ownership(&snapshot, &access, (&cluster, kind.as_ref()))
                    .await
            }
        };
        let checks = ObjectChecks {
            project_lists: &project_lists,
            ownership: &ownership,
        };
        let permit = authorize_application(&snapshot.policies, access, checks, record);
        record.finish_stage(Stage::Authorize);
        let permit = permit?;
        let front = snapshot.policies.applications.as_ref();
        let tracking = front.map(|front| Arc::clone(&front.index.tracking));
        let reauthorization = ApplicationReauthorization {
            front_state: PtrEqArc(Arc::clone(self)),
            principal: PtrEqArc(Arc::clone(principal)),
            name,
            attributes,
            at: record.at().filter(|_| permit.is_sync()),
            kind,
            body_name,
            ownership,
            tracking: tracking.unwrap_or_default(),
            acting_identity: permit.acting_identity().clone(),
            cluster: Arc::clone(permit.cluster()),
            connection: cluster.connection(),
        };
        Ok((permit, reauthorization, body, snapshot))
    }

    fn check_lists(
        &self,
        snapshot: &Snapshot,
        access: &ApplicationAccess,
        (kind, name): (Option<&ResourceKind>, Option<&BodyName>),
    ) -> ProjectListCheck {
        let restrictions = self.restrictions.get_or_compile(access.project());
        let target = restriction::TargetCluster {
            cluster: access.cluster(),
            clusters: &snapshot.policies.resources.clusters,
        };
        let object = RequestObject {
            attributes: access.attributes(),
            kind,
            name,
        };
        let checked = match access.access_mode() {
            ReadOrWrite::Write => restrictions.check_write(target, object, access.acting_identity()),
            ReadOrWrite::Read => restrictions.check_read(target, object, access.acting_identity()),
        };
        match checked {
            Ok(()) => ProjectListCheck::Permitted,
            Err(refusal) => ProjectListCheck::Refused(refusal.to_string()),
        }
    }

    /// Checks whether the caller may do this to the object, and then whether the object belongs to
    /// the Application. Only the second check queries the cluster.
    async fn check_ownership(
        &self,
        snapshot: &Snapshot,
        access: &ApplicationAccess,
        (cluster, kind): (&Arc<ClusterAccess>, Option<&ResourceKind>),
    ) -> OwnershipCheck {
        let (Some(front), true) = (&snapshot.policies.applications, access.requires_owned_object()) else {
            return OwnershipCheck::NotChecked;
        };
        let Some(kind) = kind else {
            return OwnershipCheck::Refused(UNKNOWN_KIND.to_owned());
        };
        if let Err(reason) = access.check_permission(&snapshot.policies.rbac, front.index.inheritance, kind) {
            return OwnershipCheck::Refused(reason);
        }
        ownership::check((&self.discovery, cluster), access, &front.index, kind).await
    }

    /// Finds the cluster, and the resource's kind there, if the caller may send such a request at all.
    async fn find_target(
        &self,
        request: (&ObjectName, &Arc<Attributes>),
        (snapshot, principal): (&Snapshot, &Arc<Principal>),
        record: &mut OpenRecord,
    ) -> Result<RequestTarget, Denial> {
        let caller = snapshot.policies.caller(principal);
        let access = access_application(&snapshot.policies, &caller, request, record);
        record.finish_stage(Stage::Authorize);
        let access = access?;
        let cluster = snapshot.clusters.find_by_server(&access.cluster().server);
        let cluster = Arc::clone(cluster.ok_or_else(cluster_request::unknown_cluster)?);
        let requested = restriction::resource(access.attributes());
        let requested = requested.filter(|_| access.operation() != ObjectOperation::Discover);
        let kind = match requested {
            Some((group, version, resource)) => Some(self.discovery.find(&cluster, group, version, resource).await?),
            None => None,
        };
        Ok(RequestTarget { access, cluster, kind })
    }

    /// Whether the project's lists depend on the object's name, which is in the content.
    fn needs_name(&self, RequestTarget { access, kind, .. }: &RequestTarget) -> bool {
        let restrictions = self.restrictions.get_or_compile(access.project());
        kind.as_ref()
            .is_some_and(|kind| restrictions.needs_name(access.attributes(), kind))
    }
}

impl RouteHandler for ApplicationPath<'_> {
    fn safety(&self, method: &Method) -> Safety {
        safety_in_cluster(method, self.rest, self.query)
    }

    async fn serve(
        &self,
        mut context: RequestContext<'_>,
        (head, body): (request::Parts, Body),
    ) -> Result<Response<Body>, Denial> {
        let (gateway, principal) = (context.gateway, context.principal);
        let applications = &context.snapshot.policies.applications;
        let (Some(front_state), Some(_)) = (&gateway.applications_state, applications) else {
            return Err(Denial::not_found());
        };
        let name = ObjectName {
            namespace: self.namespace.to_owned(),
            name: self.name.to_owned(),
        };
        let rest = if self.rest.is_empty() { "/" } else { self.rest };
        context.record.note(|record| {
            record.front = "applications";
            record.application = Some(name.clone());
        });
        if let Some(name) = client_impersonates(&head.headers) {
            return Err(cluster_request::client_impersonates(name));
        }
        let cleaned = headers::clean(head)?;
        // SECURITY: this is the format the cluster will read, after fields that `Connection` names
        // are removed.
        let format = ContentFormat::of(cleaned.fields());
        let attributes = Arc::new(Attributes::read(cleaned.method(), rest, self.query, cleaned.upgrade()));
        context.record.note(|record| {
            record.kubernetes = Some(Box::new(KubernetesNote {
                attributes: Some(attributes.shortened()),
                ..KubernetesNote::default()
            }));
        });
        let held = gateway.persons.acquire(principal.limit_key())?;
        let (permit, reauthorization, body, snapshot) = front_state
            .authorize_request(
                (name, attributes),
                (format, body),
                (gateway, context.snapshot),
                (principal, context.record),
            )
            .await?;
        context.snapshot = snapshot;
        let path = ApplicationPath { rest, ..*self };
        let request = (cleaned, body.without_trailers());
        context
            .send(front_state, path, (&permit, reauthorization), request, held)
            .await
    }
}

impl RequestContext<'_> {
    /// Runs the stages impersonate, credential, headers and forward. In mode audit it determines
    /// in parallel why mode enforce would refuse the request.
    async fn send(
        self,
        front_state: &ApplicationsFrontState,
        path: ApplicationPath<'_>,
        (permit, reauthorization): (&ApplicationPermit, ApplicationReauthorization),
        request: (CleanedRequest, Body),
        held: LimitPermit,
    ) -> Result<Response<Body>, Denial> {
        let Self {
            gateway,
            client,
            snapshot,
            principal,
            record,
        } = self;
        let cluster = snapshot.clusters.find_by_server(&permit.cluster().server);
        let cluster = Arc::clone(cluster.ok_or_else(cluster_request::unknown_cluster)?);
        let guard = gateway.open.register(reauthorization, (&snapshot, record.id()))?;
        let front = snapshot.policies.applications.as_ref();
        let audits = front.is_some_and(|front| front.index.mode == ImpersonationMode::Audit);
        drop(snapshot);
        let cluster_identity = front_state.cluster_identity(permit);
        record.note(|record| {
            if let Some(note) = &mut record.kubernetes {
                note.impersonated = Some(Arc::clone(&cluster_identity.impersonation));
            }
        });
        let cluster_request = ClusterRequest {
            cluster: &cluster,
            rest: path.rest,
            query: path.query,
            attributes: permit.attributes(),
            identity: RequestIdentity::Impersonated(&cluster_identity.impersonation),
            client,
            decision: record.id(),
            expires_at: principal.expires_at(),
            ending: guard.ending(),
        };
        let held = (held, guard);
        let answered = match audits {
            false => cluster_request.send(request, held, record).await,
            true => {
                let deny_reason = audit_mode::enforce_deny_reason(permit.indexed(), permit.attributes(), &cluster);
                let (answered, deny_reason) = tokio::join!(cluster_request.send(request, held, record), deny_reason);
                if let Some(deny_reason) = deny_reason {
                    gateway.would_refuse(permit, deny_reason, record);
                }
                answered
            }
        };
        record.finish_stage(Stage::Forward);
        let SendOutcome::ClusterResponse(response) = answered? else {
            return Err(cluster_request::cluster_unauthorized());
        };
        if let (StatusCode::FORBIDDEN, Some(account)) = (response.status(), &cluster_identity.account_with_extra) {
            // The cluster may have refused because of the `extra` sent along.
            front_state.extras.report_forbidden(&permit.cluster().server, account);
        }
        Ok(response)
    }
}

impl Gateway {
    fn would_refuse(&self, permit: &ApplicationPermit, enforce_deny_reason: String, record: &mut OpenRecord) {
        let name = &permit.indexed().application.name;
        let attributes = permit.attributes().shortened();
        tracing::warn!(
            namespace = %name.namespace, application = %name.name, verb = %attributes.verb, path = %attributes.path,
            decision = %record.id(), "with impersonation enforced this would be refused: {enforce_deny_reason}"
        );
        self.status.metrics.would_refuse.inc();
        record.note(|record| drop(record.notes.insert("would_refuse".to_owned(), enforce_deny_reason)));
    }
}
