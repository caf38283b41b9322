//! Runs the stages of requests to the clusters of Applications in order, from the authenticated
//! request and its route to the cluster's response.
//!
//! Security: a request reaches a cluster only with an [`ApplicationPermit`], and never with the
//! account of another Application. For callers that RBAC refuses, the cluster gets no queries.
//! Without the permission `override`, callers reach only objects of the Application.

use std::sync::Arc;

use http::{Method, Response, StatusCode, Uri, request};
use jiff::Timestamp;

use crate::applications::permit::{ApplicationAccess, ApplicationPermit, access_application, authorize_application};
use crate::applications::route::ApplicationPath;
use crate::cluster_request;
use crate::cluster_request::{ClusterRequest, RequestIdentity, SendOutcome};
use crate::object_content::ContentFormat;
use crate::restriction::{self, BodyName, RequestObject, RestrictionsCache, name_in_body};
use tollgate_cluster::access::ClusterAccess;
use tollgate_cluster::discovery::{Discovery, ResourceKind};
use tollgate_cluster::self_check::extras::ExtraGrants;
use tollgate_config::{Config, ImpersonationMode};
use tollgate_core::attributes::Attributes;
use tollgate_credential::cache::key::CredentialKey;
use tollgate_front::error_format::ErrorFormat;
use tollgate_front::open_exchanges::Change;
use tollgate_front::path::{self, Answerer, Captures, Path};
use tollgate_front::snapshot::Snapshot;
use tollgate_front::{
    Arrival, DecisionInputs, Denial, Front, Lookup, PathRules, Permitted, RequestContext, Services, Steps,
    safety_in_cluster, serve_steps,
};
use tollgate_identity::authenticate::Safety;
use tollgate_objects::ObjectName;
use tollgate_policy::application_request::{
    ActingIdentity, ObjectChecks, ObjectOperation, OwnershipCheck, ProjectListCheck, ReadOrWrite,
};
use tollgate_policy::applications::Tracking;
use tollgate_proxy::forward::{Body, BufferedBody};
use tollgate_proxy::headers::{self, CleanedRequest, client_impersonates};
use tollgate_proxy::metrics::Metrics;
use tollgate_proxy::record::{KubernetesNote, OpenRecord, Stage};
use tollgate_proxy::target;

mod audit_mode;
mod identity;
mod ownership;
pub(crate) mod permit;
pub(crate) mod route;

/// Longest content from which the name of a new object is read, in bytes: kube-apiserver's limit
/// of a request.
const NAMED_BYTES: u64 = 3 * 1024 * 1024;

const UNKNOWN_KIND: &str = "the kind of the object is not known";

/// State of the Applications front that outlives reloads of the snapshot.
#[derive(Debug)]
pub struct ApplicationsFront {
    discovery: Arc<Discovery>,
    restrictions: RestrictionsCache,
    /// The keys of `extra` that clusters accept with accounts.
    extras: ExtraGrants,
    metrics: Arc<Metrics>,
}

/// A request that RBAC permits, without its content.
#[derive(Debug)]
pub struct ApplicationHead {
    path: ApplicationPath,
    attributes: Arc<Attributes>,
    cleaned: CleanedRequest,
    access: ApplicationAccess,
}

/// A request to the cluster.
#[derive(Debug)]
pub struct Forwarded {
    path: ApplicationPath,
    cleaned: CleanedRequest,
    body: Body,
}

#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Question {
    name: ObjectName,
    attributes: Arc<Attributes>,
    /// When the request came. Sync windows may close while it is open.
    at: Option<Timestamp>,
    kind: Option<ResourceKind>,
    body_name: Option<BodyName>,
    /// Whether its object belonged to the Application.
    ownership: OwnershipCheck,
    /// How that was found out.
    tracking: Arc<Tracking>,
}

#[derive(Debug)]
pub struct Permit {
    application: ApplicationPermit,
    cluster: Arc<ClusterAccess>,
    mode: ImpersonationMode,
}

/// Who acts, and the connection over which the cluster is reached.
#[derive(Debug, PartialEq, Eq, Hash)]
pub struct Terms {
    acting_identity: ActingIdentity,
    server: String,
    connection: Option<CredentialKey>,
}

impl Front for ApplicationsFront {
    const NAME: &'static str = "applications";
    const PATHS: &'static [Path<()>] = route::PATHS;

    type Endpoint = ();
    type Target = ApplicationPath;

    fn open(services: &Services) -> anyhow::Result<Option<Self>> {
        Ok(Self::is_open(&services.config, ()).then(|| Self {
            discovery: Arc::clone(&services.discovery),
            restrictions: services.caches.of::<RestrictionsCache>().clone(),
            extras: services.extras.clone(),
            metrics: Arc::clone(&services.metrics),
        }))
    }

    fn is_open(config: &Config, (): ()) -> bool {
        config.applications.is_some()
    }

    fn rules(arrival: &Arrival<'_>, _: &Snapshot) -> Option<PathRules> {
        let is_ours = Self::is_open(arrival.config, ()) && path::is_in(Self::PATHS, arrival.path(), Answerer::ALL);
        is_ours.then(|| PathRules::errors(ErrorFormat::Kubernetes))
    }

    fn target((): (), captures: &Captures<'_>, uri: &Uri) -> Result<Option<ApplicationPath>, target::Error> {
        ApplicationPath::read(captures, uri).map(Some)
    }

    async fn serve(
        self: &Arc<Self>,
        target: ApplicationPath,
        context: RequestContext<'_>,
        (head, body): (request::Parts, Body),
    ) -> Result<Response<Body>, Denial> {
        serve_steps(self, target, context, head, body).await
    }
}

impl Steps for ApplicationsFront {
    type Admitted = ApplicationHead;
    type Question = Question;
    type Request = Forwarded;
    type Permit = Permit;
    type Terms = Terms;

    fn safety(target: &ApplicationPath, method: &Method) -> Safety {
        safety_in_cluster(method, target.path(), target.query())
    }

    fn admit(
        &self,
        DecisionInputs { now, caller }: DecisionInputs<'_>,
        path: ApplicationPath,
        head: request::Parts,
        record: &mut OpenRecord,
    ) -> Result<ApplicationHead, Denial> {
        record.note(|record| record.application = Some(path.name.clone()));
        if let Some(name) = client_impersonates(&head.headers) {
            return Err(cluster_request::client_impersonates(name));
        }
        let cleaned = headers::clean(head)?;
        let attributes = Attributes::read(cleaned.method(), path.path(), path.query(), cleaned.upgrade());
        let attributes = Arc::new(attributes);
        record.note(|record| {
            record.kubernetes = Some(Box::new(KubernetesNote {
                attributes: Some(attributes.shortened()),
                ..KubernetesNote::default()
            }));
        });
        let at = record.at();
        let access = access_application(&now.policies, caller, &path.name, &attributes, at, Some(record))?;
        Ok(ApplicationHead {
            path,
            attributes,
            cleaned,
            access,
        })
    }

    async fn read(
        &self,
        lookup: &mut Lookup<'_>,
        admitted: ApplicationHead,
        body: Body,
    ) -> Result<(Question, Forwarded), Denial> {
        let ApplicationHead {
            path,
            attributes,
            cleaned,
            mut access,
        } = admitted;
        let mut body = body.without_trailers();
        let mut now = lookup.now();
        let mut cluster = find_cluster(&now, &access)?;
        let mut kind = self.find_kind(&access, &cluster).await?;
        let mut body_name = None;
        if self.needs_name(&access, kind.as_ref()) {
            // Each keeps megabytes alive, and the client may send its content slowly.
            drop((access, cluster, now));
            // SECURITY: this is the format the cluster will read, after fields that `Connection` names
            // are removed.
            let format = ContentFormat::of(cleaned.fields());
            (body_name, body) = match lookup.content(body.buffer_if_short(NAMED_BYTES)).await? {
                BufferedBody::Whole(bytes) => (Some(name_in_body(format, &bytes)), Body::from(bytes)),
                // Too long, or of unknown length. The lists then permit only what they permit for every name.
                BufferedBody::Stream(body) => (Some(BodyName::Unreadable), body),
            };
            now = lookup.now();
            let caller = lookup.caller(&now);
            let at = lookup.record.at();
            let record = Some(&mut *lookup.record);
            access = access_application(&now.policies, &caller, &path.name, &attributes, at, record)?;
            cluster = find_cluster(&now, &access)?;
            kind = self.find_kind(&access, &cluster).await?;
        }
        let ownership = match self.check_lists(&now, &access, kind.as_ref(), body_name.as_ref()) {
            ProjectListCheck::Refused(_) => OwnershipCheck::NotChecked,
            // Last, because only this makes the cluster work.
            ProjectListCheck::Permitted => self.check_ownership(&now, &access, &cluster, kind.as_ref()).await,
        };
        let front = now.policies.applications.as_ref();
        let tracking = front.map(|front| Arc::clone(&front.index.tracking));
        let question = Question {
            // Without a time, the questions of many requests are equal, and a change asks them once.
            at: lookup.record.at().filter(|_| access.is_sync()),
            tracking: tracking.unwrap_or_default(),
            name: path.name.clone(),
            attributes,
            kind,
            body_name,
            ownership,
        };
        Ok((question, Forwarded { path, cleaned, body }))
    }

    fn authorize(
        &self,
        DecisionInputs { now, caller }: DecisionInputs<'_>,
        question: &Question,
        record: Option<&mut OpenRecord>,
    ) -> Result<Permit, Denial> {
        let (name, attributes) = (&question.name, &question.attributes);
        let access = access_application(&now.policies, caller, name, attributes, question.at, None)?;
        let cluster = find_cluster(now, &access)?;
        let (kind, body_name) = (question.kind.as_ref(), question.body_name.as_ref());
        // Again, because the project in force may have other lists than the one that `read` saw.
        let project_lists = self.check_lists(now, &access, kind, body_name);
        let ownership = match &project_lists {
            ProjectListCheck::Refused(_) => OwnershipCheck::NotChecked,
            ProjectListCheck::Permitted => question.ownership_now(now, &access),
        };
        let checks = ObjectChecks {
            project_lists: &project_lists,
            ownership: &ownership,
        };
        let application = authorize_application(&now.policies, access, checks, record)?;
        let front = now.policies.applications.as_ref().ok_or_else(Denial::not_found)?;
        Ok(Permit {
            application,
            cluster,
            mode: front.index.mode,
        })
    }

    fn terms(permit: &Permit) -> Terms {
        Terms {
            acting_identity: permit.application.acting_identity().clone(),
            server: permit.application.cluster().server.clone(),
            connection: permit.cluster.usable_connection(),
        }
    }

    fn inputs_unchanged(change: &Change<'_>) -> bool {
        change.same_applications()
    }

    /// The stages impersonate, credential, headers and forward. In mode audit it determines in parallel why mode
    /// enforce would refuse the request.
    async fn answer(
        &self,
        permitted: Permitted<'_>,
        permit: Permit,
        Forwarded { path, cleaned, body }: Forwarded,
    ) -> Result<Response<Body>, Denial> {
        let Permit {
            application: permit,
            cluster,
            mode,
        } = permit;
        let Permitted {
            client,
            principal,
            record,
            snapshot,
            guard,
            held,
        } = permitted;
        drop(snapshot);
        let cluster_identity = self.cluster_identity(&permit);
        record.note(|record| {
            if let Some(note) = &mut record.kubernetes {
                note.impersonated = Some(Arc::clone(&cluster_identity.impersonation));
            }
        });
        let cluster_request = ClusterRequest {
            cluster: &cluster,
            rest: path.path(),
            query: path.query(),
            attributes: permit.attributes(),
            identity: RequestIdentity::Impersonated(&cluster_identity.impersonation),
            client,
            decision: record.id(),
            expires_at: principal.expires_at(),
            ending: guard.ending(),
        };
        // Until the content of the response has ended, and not only its head.
        let held = (held, guard);
        let answered = match mode {
            ImpersonationMode::Off | ImpersonationMode::Enforce => {
                cluster_request.send(cleaned, body, held, record).await
            }
            ImpersonationMode::Audit => {
                let deny_reason = audit_mode::enforce_deny_reason(permit.indexed(), permit.attributes(), &cluster);
                let answered = cluster_request.send(cleaned, body, held, record);
                let (answered, deny_reason) = tokio::join!(answered, deny_reason);
                if let Some(deny_reason) = deny_reason {
                    self.would_refuse(&permit, deny_reason, record);
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
            self.extras.report_forbidden(&permit.cluster().server, account);
        }
        Ok(response)
    }
}

impl Question {
    /// Whether the object belongs to the Application, as far as `now` says. The cluster gets no query.
    fn ownership_now(&self, now: &Snapshot, access: &ApplicationAccess) -> OwnershipCheck {
        let (Some(front), true) = (&now.policies.applications, access.requires_owned_object()) else {
            return OwnershipCheck::NotChecked;
        };
        if front.index.tracking != self.tracking {
            // By the new settings the object may belong to another Application, and only the cluster could tell.
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

fn find_cluster(now: &Snapshot, access: &ApplicationAccess) -> Result<Arc<ClusterAccess>, Denial> {
    let cluster = now.clusters.find_by_server(&access.cluster().server);
    cluster.cloned().ok_or_else(cluster_request::unknown_cluster)
}

impl ApplicationsFront {
    fn check_lists(
        &self,
        snapshot: &Snapshot,
        access: &ApplicationAccess,
        kind: Option<&ResourceKind>,
        name: Option<&BodyName>,
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
        cluster: &Arc<ClusterAccess>,
        kind: Option<&ResourceKind>,
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
        ownership::check(&self.discovery, cluster, access, &front.index, kind).await
    }

    /// The kind of the resource in the cluster; `None` if the request is about none.
    async fn find_kind(
        &self,
        access: &ApplicationAccess,
        cluster: &Arc<ClusterAccess>,
    ) -> Result<Option<ResourceKind>, Denial> {
        let requested = restriction::resource(access.attributes());
        // Discovery documents and reviews are about no object of the cluster.
        let requested = requested.filter(|_| access.operation() != ObjectOperation::Discover);
        Ok(match requested {
            Some((group, version, resource)) => Some(self.discovery.find(cluster, group, version, resource).await?),
            None => None,
        })
    }

    /// Whether the project's lists depend on the object's name, which is in the content.
    fn needs_name(&self, access: &ApplicationAccess, kind: Option<&ResourceKind>) -> bool {
        let restrictions = self.restrictions.get_or_compile(access.project());
        kind.is_some_and(|kind| restrictions.needs_name(access.attributes(), kind))
    }

    fn would_refuse(&self, permit: &ApplicationPermit, enforce_deny_reason: String, record: &mut OpenRecord) {
        let name = &permit.indexed().application.name;
        let attributes = permit.attributes().shortened();
        tracing::warn!(
            namespace = %name.namespace, application = %name.name, verb = %attributes.verb, path = %attributes.path,
            decision = %record.id(), "with impersonation enforced this would be refused: {enforce_deny_reason}"
        );
        self.metrics.would_refuse.inc();
        record.note(|record| drop(record.notes.insert("would_refuse".to_owned(), enforce_deny_reason)));
    }
}
