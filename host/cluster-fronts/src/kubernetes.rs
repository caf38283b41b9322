//! Runs the stages of requests into an agent's cluster (below `/k8s-proxy/`) in order.
//!
//! Security: a request reaches a cluster only with access to its agent, a permit of the policy and
//! an entry in the audit log. Identity headers of the client are never passed on.

use http::StatusCode;
use std::sync::Arc;

use http::{Response, Uri, request};
use uuid::Uuid;

use crate::cluster_request;
use crate::cluster_request::{ClusterRequest, RequestIdentity, SendOutcome};
use tollgate_cluster::access::ClusterLookup;
use tollgate_config::Config;
use tollgate_core::agent::AgentId;
use tollgate_core::attributes::Attributes;
use tollgate_core::diagnostic::with_causes;
use tollgate_core::session::AccessType;
use tollgate_credential::cache::key::CredentialKey;
use tollgate_front::access_services::AccessServices;
use tollgate_front::denial::AccessEnded;
use tollgate_front::error_format::ErrorFormat;
use tollgate_front::open_exchanges::{Change, NotAdmitted, PtrEqArc, Reauthorize};
use tollgate_front::path::{Captures, Path, Rest};
use tollgate_front::policies::KubernetesPolicies;
use tollgate_front::snapshot::Snapshot;
use tollgate_front::{Arrival, CrossOrigin, Denial, Front, PathRules, RequestContext, Services};
use tollgate_identity::access::{AccessGrant, AccessKey, AccessQuery, CredentialOwner};
use tollgate_identity::audit::{self, AccessEntry};
use tollgate_identity::authenticate::Principal;
use tollgate_identity::authenticate::k8s_proxy::{self, CiTokenSupport, PresentedCredential};
use tollgate_identity::sessions::{NewExchange, SessionHolder};
use tollgate_policy::impersonate::Impersonation;
use tollgate_proxy::forward::{self, Body};
use tollgate_proxy::headers::{self, CleanedRequest, client_impersonates};
use tollgate_proxy::record::Stage;
use tollgate_proxy::server::Client;
use tollgate_proxy::target;
use tollgate_rego as rego;
use tollgate_store::{self as store};

pub(crate) mod permit;
pub(crate) mod route;

pub(crate) use permit::KubernetesPermit;

use permit::KubernetesPolicy;

/// A permitted request, to be authorized again after a change.
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct KubernetesReauthorization {
    front_state: PtrEqArc<AccessServices>,
    access: PtrEqArc<AccessGrant>,
    attributes: Arc<Attributes>,
    impersonation: Arc<Impersonation>,
    connection: CredentialKey,
}

impl Reauthorize for KubernetesReauthorization {
    fn front(&self) -> &'static str {
        "kubernetes"
    }

    fn principal(&self) -> Option<&Principal> {
        // Not a credential of Argo CD: what revokes it ends the session that is registered with the exchange.
        None
    }

    fn inputs_unchanged(&self, change: &Change<'_>) -> bool {
        let front = |snapshot: &Snapshot| {
            let front = snapshot.policies.kubernetes.as_ref()?;
            let bundle = snapshot.policies.bundle(rego::Front::Kubernetes)?;
            let decides = (Arc::as_ptr(&front.agents), Arc::as_ptr(&front.mapping));
            Some((decides, Arc::as_ptr(bundle), Arc::as_ptr(&front.id_tokens)))
        };
        !change.is_narrowed() && change.same_clusters() && front(change.before) == front(change.now)
    }

    /// Whether the same agent gives the same person access, the policy permits the request with
    /// the same identity, and its cluster is reached over the same connection.
    fn is_allowed_by(&self, now: &Snapshot) -> bool {
        let Some(front) = &now.policies.kubernetes else {
            return false;
        };
        let Some(access) = self.front_state.0.authorizer.reauthorize(&front.agents, &self.access.0) else {
            return false;
        };
        let ClusterLookup::One(cluster) = now.clusters.find(&access.agent().cluster) else {
            return false;
        };
        let Some(policy) = KubernetesPolicy::of(&now.policies) else {
            return false;
        };
        let permit = policy.authorize(&access, &self.attributes, None);
        let is_same = permit.is_ok_and(|permit| **permit.impersonation() == *self.impersonation);
        is_same && cluster.is_reached_by(self.connection)
    }
}

/// The front of the clusters of agents.
#[derive(Debug)]
pub struct KubernetesFront(Arc<AccessServices>);

impl Front for KubernetesFront {
    const NAME: &'static str = "kubernetes";
    const PATHS: &'static [Path<()>] = route::PATHS;

    type Endpoint = ();
    type Target = Rest;

    fn open(services: &Services) -> anyhow::Result<Option<Self>> {
        Ok(services.states.of().map(Self))
    }

    fn is_open(config: &Config, (): ()) -> bool {
        config.kubernetes.is_some()
    }

    fn rules(arrival: &Arrival<'_>, now: &Snapshot) -> Option<PathRules> {
        let is_ours = now.policies.kubernetes.is_some() && route::is_kubernetes(arrival.path());
        is_ours.then_some(PathRules {
            error_format: Some(ErrorFormat::Kubernetes),
            cross_origin: CrossOrigin::Checked,
        })
    }

    fn target((): (), captures: &Captures<'_>, uri: &Uri) -> Result<Option<Rest>, target::Error> {
        route::read(captures, uri)
    }

    /// Audits a refusal that comes before anything is known of the caller. The caller gets a response even if the store
    /// fails.
    async fn record_early_refusal(&self, denial: &Denial, client: &Client, decision: Uuid) {
        let Self(front_state) = self;
        let reason = denial.reason;
        let nothing_known = AuditContext::default();
        let entry = nothing_known.refused(reason, client, decision);
        if let Err(error) = front_state.audit.record_access(entry).await {
            tracing::error!(%error, reason, "a refusal could not be written down");
        }
    }

    /// The stages authenticate, authorize, impersonate, audit and forward. The credential names the
    /// agent, so this front authenticates by itself.
    async fn serve(
        self: &Arc<Self>,
        target: Rest,
        mut context: RequestContext<'_>,
        (head, body): (request::Parts, Body),
    ) -> Result<Response<Body>, Denial> {
        let Self(front_state) = &**self;
        context.record.note(|record| record.kubernetes = Some(Box::default()));
        let query = k8s_proxy::strip_query(target.query());
        let request = KubernetesRequest {
            rest: target.path(),
            query: query.as_deref(),
            front: context
                .snapshot
                .policies
                .kubernetes
                .clone()
                .ok_or_else(Denial::not_found)?,
            front_state,
        };
        let mut audit_context = AuditContext::default();
        let permitted = request.admit(head, &mut context, &mut audit_context).await;
        // No request is forwarded that is not in the audit log. A refusal stays a refusal even if
        // it cannot be logged.
        let written = request.write_audit_entry(&context, &audit_context, &permitted).await;
        let permitted = permitted?;
        written?;
        let (client, decision) = (context.client, context.record.id());
        let forwarded = request.forward(permitted, body, context).await;
        if let Err(denial) = &forwarded
            && denial.cause::<AccessEnded>().is_some()
        {
            // The request is refused after all.
            let entry = audit_context.refused(denial.reason, client, decision);
            let audit = &front_state.audit;
            audit
                .record_access(entry)
                .await
                .map_err(|error| audit_unavailable(&error))?;
        }
        forwarded
    }
}

/// A request into an agent's cluster.
struct KubernetesRequest<'a> {
    /// What the cluster is asked for: from `/` on, encoded as the client sent it.
    rest: &'a str,
    /// Without what was for the gateway alone.
    query: Option<&'a str>,
    front: KubernetesPolicies,
    front_state: &'a Arc<AccessServices>,
}

/// What the audit entry of a request contains, as far as the stages determined it.
#[derive(Default)]
struct AuditContext {
    agent: Option<AgentId>,
    access_type: Option<AccessType>,
    bearer: Option<CredentialOwner>,
    access: Option<Arc<AccessGrant>>,
    attributes: Option<Arc<Attributes>>,
}

impl AuditContext {
    /// The holder that the audit log names.
    fn holder(&self) -> Option<SessionHolder<'_>> {
        if let Some(access) = &self.access {
            return Some(SessionHolder::from(&**access));
        }
        let bearer = self.bearer.as_ref()?;
        Some(SessionHolder {
            session: &bearer.session,
            user: &bearer.user,
            names: None,
            agent: self.agent?,
            expires_at: None,
        })
    }

    fn refused(&self, reason: &'static str, client: &Client, decision: uuid::Uuid) -> AccessEntry<'_> {
        AccessEntry {
            holder: self.holder(),
            agent: self.agent,
            access_type: self.access_type,
            attributes: self.attributes.as_deref(),
            outcome: audit::AccessOutcome::Denied,
            reason,
            detail: None,
            client: client.address(),
            audit_id: decision,
            impersonated: None,
        }
    }
}

struct PermittedRequest {
    permit: KubernetesPermit,
    cleaned: CleanedRequest,
    held: forward::LimitPermit,
}

impl KubernetesRequest<'_> {
    /// Every check that can refuse a request.
    async fn admit(
        &self,
        head: request::Parts,
        context: &mut RequestContext<'_>,
        audit_context: &mut AuditContext,
    ) -> Result<PermittedRequest, Denial> {
        let access = self.access(&head, context, audit_context).await;
        context.record.finish_stage(Stage::Authenticate);
        let access = access?;
        if let Some(name) = client_impersonates(&head.headers) {
            return Err(cluster_request::client_impersonates(name));
        }
        let cleaned = headers::clean(head)?;
        let attributes = Attributes::read(cleaned.method(), self.rest, self.query, cleaned.upgrade());
        let attributes = Arc::new(attributes);
        audit_context.attributes = Some(Arc::clone(&attributes));
        let snapshot = Arc::clone(&context.snapshot);
        let policy = KubernetesPolicy::of(&snapshot.policies).ok_or_else(Denial::not_found)?;
        context.record.note(|record| {
            record.policy = Some(Arc::clone(policy.digest()));
            if let Some(note) = &mut record.kubernetes {
                note.attributes = Some(attributes.shortened());
            }
        });
        let permit = policy.authorize(&access, &attributes, Some(&mut *context.record));
        context.record.finish_stage(Stage::Authorize);
        if let Err(permit::Error::Denied(_, notes)) = &permit {
            context.record.note(|record| record.notes.clone_from(notes));
        }
        let permit = permit?;
        context.record.note(|record| {
            record.notes.clone_from(permit.notes());
            if let Some(note) = &mut record.kubernetes {
                note.impersonated = Some(Arc::clone(permit.impersonation()));
            }
        });
        let held = context.services.persons.acquire(access.limit_key())?;
        Ok(PermittedRequest { permit, cleaned, held })
    }

    /// Determines who calls, and whether they may use the agent they name.
    async fn access(
        &self,
        head: &request::Parts,
        context: &mut RequestContext<'_>,
        audit_context: &mut AuditContext,
    ) -> Result<Arc<AccessGrant>, Denial> {
        let ci = match self.front_state.authorizer.is_embedded() {
            // Only a remote authorizer can ask the platform that made the token of a CI job.
            true => CiTokenSupport::Unknown,
            false => CiTokenSupport::Accepted,
        };
        let query = match k8s_proxy::read(head, ci)? {
            PresentedCredential::Query(query) => query,
            PresentedCredential::IdToken(token) => {
                let id_token = self.front.id_tokens.verify(&token).await?;
                AccessQuery {
                    agent: id_token.agent,
                    key: AccessKey::OidcIdToken(id_token),
                }
            }
        };
        audit_context.agent = Some(query.agent);
        audit_context.access_type = Some(query.key.access_type());
        let access = self.front_state.authorizer.authorize(&self.front.agents, &query).await;
        audit_context.bearer = match &access {
            Ok(access) => Some(access.owner()),
            Err(error) => error.credential_owner().cloned(),
        };
        // A login's token has the form of a personal access token; its session says what it is.
        if let Some(owner) = &audit_context.bearer {
            audit_context.access_type = Some(owner.session.access_type());
        }
        audit_context.access = access.as_ref().ok().cloned();
        context.record.note(|record| {
            if let Some(note) = &mut record.kubernetes {
                note.agent = audit_context.agent;
                note.access_type = audit_context.access_type;
                note.user = audit_context.bearer.as_ref().map(|bearer| bearer.user.clone());
                note.issuer = audit_context.bearer.as_ref().and_then(|bearer| bearer.issuer.clone());
                note.session = audit_context.bearer.as_ref().map(|bearer| bearer.session.to_string());
            }
        });
        let access = access?;
        context.client.mark_authenticated();
        Ok(access)
    }

    /// Writes an entry to the audit log, or counts the request in an existing entry.
    async fn write_audit_entry(
        &self,
        context: &RequestContext<'_>,
        audit_context: &AuditContext,
        permitted: &Result<PermittedRequest, Denial>,
    ) -> Result<(), Denial> {
        let (outcome, reason, detail) = match permitted {
            Ok(_) => (audit::AccessOutcome::Allowed, "allowed", None),
            Err(denial) => (audit::AccessOutcome::Denied, denial.reason, Some(denial.detail())),
        };
        let impersonated = match permitted.as_ref().map(|permitted| &**permitted.permit.impersonation()) {
            Ok(Impersonation::As(identity)) => Some(identity.username.as_str()),
            Ok(Impersonation::Nobody) | Err(_) => None,
        };
        let entry = AccessEntry {
            outcome,
            detail: detail.as_deref(),
            impersonated,
            ..audit_context.refused(reason, context.client, context.record.id())
        };
        let audit = &self.front_state.audit;
        audit
            .record_access(entry)
            .await
            .map_err(|error| audit_unavailable(&error))
    }

    async fn forward(
        &self,
        permitted: PermittedRequest,
        body: Body,
        context: RequestContext<'_>,
    ) -> Result<Response<Body>, Denial> {
        let RequestContext {
            services,
            client,
            snapshot,
            record,
            ..
        } = context;
        let PermittedRequest { permit, cleaned, held } = permitted;
        let access = permit.access();
        let cluster = match snapshot.clusters.find(&access.agent().cluster) {
            ClusterLookup::One(cluster) => Arc::clone(cluster),
            ClusterLookup::Several(_) | ClusterLookup::None => return Err(cluster_request::unknown_cluster()),
        };
        record.note(|record| record.destination = Some(Arc::clone(cluster.cluster())));
        let entering = NewExchange::new(Arc::clone(permit.attributes()), record.id(), client.address());
        let entered = self
            .front_state
            .sessions
            .register(&**access, entering)
            .map_err(AccessEnded)?;
        let reauthorization = KubernetesReauthorization {
            front_state: PtrEqArc(Arc::clone(self.front_state)),
            access: PtrEqArc(Arc::clone(access)),
            attributes: Arc::clone(permit.attributes()),
            impersonation: Arc::clone(permit.impersonation()),
            connection: cluster.connection,
        };
        let guard =
            services
                .open
                .register_with_session(reauthorization, &snapshot, record.id(), Some(Arc::new(entered)));
        // A watch is open for hours, and must not keep a whole configuration in memory.
        drop(snapshot);
        let guard = guard.map_err(|NotAdmitted(ending)| AccessEnded(ending))?;
        let cluster_request = ClusterRequest {
            cluster: &cluster,
            rest: self.rest,
            query: self.query,
            attributes: permit.attributes(),
            identity: RequestIdentity::Impersonated(permit.impersonation()),
            client,
            decision: record.id(),
            // Unlike elsewhere, the session ends the exchange when the credential expires.
            expires_at: None,
            ending: guard.ending(),
        };
        let answered = cluster_request
            .send(cleaned, body.without_trailers(), (held, guard), record)
            .await;
        record.finish_stage(Stage::Forward);
        match answered? {
            SendOutcome::ClusterResponse(response) => Ok(response),
            // The cluster rejected the gateway's credential. With its 401, kubectl would discard the person's, which
            // is good.
            SendOutcome::CredentialRejected(_) => Err(cluster_request::cluster_unauthorized()),
        }
    }
}

fn audit_unavailable(error: &store::Error) -> Denial {
    let text = "the request cannot be written down right now, try again later";
    Denial::failed(StatusCode::SERVICE_UNAVAILABLE, "audit_unavailable", text)
        .with_detail(format!("the audit log cannot be written: {}", with_causes(error)))
}
