//! Runs the stages of the API for ApplicationSets after authentication, for every transport.
//!
//! The stages are, in order: check the namespace, authorize by what the snapshot knows, read the
//! stored objects, authorize the operation and the inputs of generators, generate, plan, authorize
//! the plan, write, record.
//!
//! Security: a caller who may not see a set learns nothing about it. A request that the snapshot
//! alone refuses causes no read from the API server, because the Applications of a namespace can
//! fill memory.

use std::sync::Arc;
use std::time::Duration;

use http::request::Parts;
use http::{Response, Uri};
use serde_json::Value;
use tokio::sync::watch::Receiver;

use crate::admission_probe;
use crate::applicationsets::grpc::MessageCodec;
use crate::applicationsets::request::{ApiResponse, Error, Query, Request, RequestKind};
use crate::applicationsets::route::ApplicationSetRoute;
use tollgate_applicationset::plan::StoredState;
use tollgate_applicationset::{ApplicationSet, schema};
use tollgate_applicationset_rights::{
    self as permit, LaterApplications, Operation, SetOperation, SetPermit, application_of, authorize_set, owned_by,
};
use tollgate_config::{AdmissionMode, ApplicationNamespaces, ApplicationSetChecks, Config, StateSource, UnknownFields};
use tollgate_core::dns;
use tollgate_front::caller::Caller;
use tollgate_front::error_format::ErrorFormat;
use tollgate_front::grpc::Transport;
use tollgate_front::open_exchanges::OpenExchanges;
use tollgate_front::path::{self, Answerer, Captures, Path, PathLine};
use tollgate_front::policies::Policies;
use tollgate_front::set_list::OwnedApplication;
use tollgate_front::snapshot::{CurrentSnapshot, Snapshot};
use tollgate_front::{Arrival, Denial, Front, Pass, PathRules, RequestContext, Services, find_in_paths};
use tollgate_identity::authenticate::{Principal, Safety};
use tollgate_objects::{Application, ApplicationSetStatuses, ObjectName};
use tollgate_proxy::forward::{Body, LimitPermit};
use tollgate_proxy::record::{CheckRecord, OpenRecord, Stage};
use tollgate_proxy::target;
use tollgate_state::write::{self, ObjectKey, WritableKind, Writer};

pub(crate) mod answer;
pub(crate) mod apply;
mod change;
mod events;
mod front_state;
pub(crate) mod grpc;
mod plugin_generators;
mod read;
pub(crate) mod request;
mod rest;
pub(crate) mod route;
pub(crate) mod summary;
mod watch;

pub use front_state::ApplicationSetsFrontState;
use front_state::recent_writes::CachedSet;
pub use summary::SetSummariesFront;

struct ApplicationSetHandler<'a, 'b> {
    snapshot: &'a Arc<Snapshot>,
    principal: &'a Arc<Principal>,
    caller: Arc<Caller>,
    record: &'b mut OpenRecord,
    front_state: &'b Arc<ApplicationSetsFrontState>,
    current: &'b CurrentSnapshot,
    open: &'b Arc<OpenExchanges>,
    writer: Writer,
    /// For a watch.
    statuses: Option<Receiver<Arc<ApplicationSetStatuses>>>,
    /// Permissions looked up so far, for the record.
    checks: Vec<CheckRecord>,
    /// The person's slot for reading and writing, once something was read.
    reader: Option<LimitPermit>,
    /// What happens to what the set generates later, once that matters and is known.
    later: LaterApplications,
    /// What is doubtful about the set that was sent.
    warnings: Vec<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum ReadScope {
    Projects,
    /// Its Applications.
    Owned,
    /// Its Applications, and the names of all others of its namespace.
    Namespace,
}

/// The front of ApplicationSets.
#[derive(Debug)]
pub struct ApplicationSetsFront {
    /// `None` while the settings close it.
    state: Option<Arc<ApplicationSetsFrontState>>,
    grpc: Arc<MessageCodec>,
}

/// What a request is for.
#[derive(Clone, Debug, PartialEq)]
pub enum SetTarget {
    Rest(ApplicationSetRoute),
    /// A call, whose path is read when it is served: one that nothing serves has its own answer.
    Call(Transport),
}

impl Front for ApplicationSetsFront {
    const NAME: &'static str = "applicationsets";
    const PATHS: &'static [Path<RequestKind>] = route::PATHS;

    type Endpoint = RequestKind;
    type Target = SetTarget;

    fn open(services: &Services) -> anyhow::Result<Option<Self>> {
        Ok(Some(Self {
            state: services.states.of(),
            grpc: Arc::new(MessageCodec::try_new()?),
        }))
    }

    fn is_open(config: &Config, _: RequestKind) -> bool {
        config.application_sets.is_some()
    }

    fn lines(config: &Config) -> Vec<PathLine> {
        let calls = PathLine {
            methods: "POST".to_owned(),
            path: "/applicationset.ApplicationSetService/{method}".to_owned(),
            answerer: Answerer::Gateway,
            is_open: config.application_sets.is_some(),
        };
        let mut lines = path::lines(Self::PATHS, |kind| Self::is_open(config, kind));
        lines.insert(0, calls);
        lines
    }

    fn rules(arrival: &Arrival<'_>, _: &Snapshot) -> Option<PathRules> {
        arrival.config.application_sets.as_ref()?;
        let format = match arrival.transport() {
            Some(transport) => ErrorFormat::Grpc(transport),
            None if route::is_application_sets(arrival.path()) => ErrorFormat::ApplicationSets,
            None => return None,
        };
        Some(PathRules::errors(format))
    }

    fn find(arrival: &Arrival<'_>, pass: Pass) -> Result<Option<(SetTarget, Answerer)>, target::Error> {
        match arrival.transport().filter(|_| pass == Pass::AfterArgocd) {
            Some(transport) => Ok(Some((SetTarget::Call(transport), Answerer::Gateway))),
            None => find_in_paths::<Self>(arrival.method(), arrival.uri, pass.answerers()),
        }
    }

    fn check(path: &str) -> Result<(), target::Error> {
        route::check(path)
    }

    fn target(kind: RequestKind, captures: &Captures<'_>, _: &Uri) -> Result<Option<SetTarget>, target::Error> {
        Ok(ApplicationSetRoute::read(kind, captures)?.map(SetTarget::Rest))
    }

    async fn serve(
        self: &Arc<Self>,
        target: SetTarget,
        mut context: RequestContext<'_>,
        (head, body): (Parts, Body),
    ) -> Result<Response<Body>, Denial> {
        let route = match target {
            SetTarget::Rest(route) => route,
            SetTarget::Call(transport) => return self.serve_call(transport, context, head, body).await,
        };
        let principal = context.authenticate(&head, Safety::ByMethod).await?;
        // A closed front responds as if it did not exist.
        let state = self.state.as_ref().ok_or_else(Denial::not_found)?;
        // Before the content is read: the slots of a person bound how many bodies are in memory.
        let held = context.services.persons.acquire(principal.limit_key())?;
        let decision = context.record.id();
        let encoder = rest::EventEncoder::of(&head);
        let request = rest::read(&route, head, body).await?;
        let answer = Self::handle(context, state, &principal, request).await?;
        Ok(rest::answer(answer, encoder, principal.expires_at(), decision, held))
    }
}

impl ApplicationSetsFront {
    /// Handles a request of any transport. The transport counts the person's requests.
    async fn handle(
        context: RequestContext<'_>,
        front_state: &Arc<ApplicationSetsFrontState>,
        principal: &Arc<Principal>,
        request: Request,
    ) -> Result<ApiResponse, Denial> {
        let RequestContext {
            services,
            snapshot,
            record,
            ..
        } = context;
        let Request { kind, query, set } = request;
        record.note(|record| {
            record.notes.insert("operation".to_owned(), kind.as_ref().to_owned());
        });
        let mut handler = ApplicationSetHandler {
            caller: snapshot.policies.caller(principal),
            writer: services.source.writer().map_err(Error::State)?,
            statuses: services.source.application_set_statuses(),
            checks: Vec::new(),
            reader: None,
            later: LaterApplications::Unjudged,
            warnings: Vec::new(),
            snapshot: &snapshot,
            principal,
            record,
            front_state,
            current: &services.current,
            open: &services.open,
        };
        let done = match kind {
            RequestKind::List => handler.list(&query).await.map(ApiResponse::Document),
            RequestKind::Get => handler.get(&query).await.map(ApiResponse::Document),
            RequestKind::Create => handler.create(&query, set).await.map(ApiResponse::Document),
            RequestKind::Update => handler.update(&query, set).await.map(ApiResponse::Document),
            RequestKind::Generate => handler.generate(set).await.map(ApiResponse::Document),
            RequestKind::Delete => handler.delete(&query).await.map(ApiResponse::Document),
            RequestKind::ResourceTree => handler.tree(&query).await.map(ApiResponse::Document),
            RequestKind::Events => handler.events(&query).await.map(ApiResponse::Document),
            RequestKind::Watch => handler.watch(query).await.map(ApiResponse::Events),
        };
        // Before the result is looked at: the record of a refusal has its checks, too.
        let checks = std::mem::take(&mut handler.checks);
        handler.record.note(|record| record.checks = checks.into());
        let warnings = std::mem::take(&mut handler.warnings);
        done.map(|answer| answer.with_warnings(warnings))
    }
}

impl ApplicationSetHandler<'_, '_> {
    fn authorizer(&self) -> Result<permit::SetAuthorizer<'_>, Denial> {
        permit::SetAuthorizer::new(&self.snapshot.policies, &self.caller).ok_or_else(Denial::not_found)
    }

    fn checks(&self) -> ApplicationSetChecks {
        checks(&self.snapshot.policies)
    }

    /// The name of the target set, in the control plane's namespace if the request gives none.
    /// Records it.
    fn object_name(&mut self, query: &Query) -> ObjectName {
        let namespace = match query.namespace.as_str() {
            "" => self.snapshot.policies.config.control_plane_namespace.clone(),
            namespace => namespace.to_owned(),
        };
        let name = ObjectName {
            namespace,
            name: query.name.clone(),
        };
        self.note_name(&name);
        name
    }

    fn note_name(&mut self, name: &ObjectName) {
        let text = format!("{}/{}", name.namespace, name.name);
        self.record.note(|record| {
            record.notes.insert("applicationset".to_owned(), text);
        });
    }

    /// Decodes the set that was sent. Its namespace is the control plane's if it names none.
    fn decode_sent(&mut self, mut object: Value) -> Result<ApplicationSet, Denial> {
        let control_plane = &self.snapshot.policies.config.control_plane_namespace;
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            let namespace = metadata.get("namespace").and_then(Value::as_str).unwrap_or_default();
            if namespace.is_empty() {
                metadata.insert("namespace".to_owned(), control_plane.as_str().into());
            }
            // SECURITY: only Argo CD's controller says which Application an object belongs to. The
            // annotation that tracks is never taken from the sender either.
            let front = self.snapshot.policies.applications.as_ref();
            let label = front.and_then(|front| front.index.tracking.label());
            if let (Some(label), Some(labels)) = (label, metadata.get_mut("labels").and_then(Value::as_object_mut)) {
                labels.remove(label);
            }
        }
        let set = read(object)?;
        self.check_fields(&set)?;
        let name = &set.name.name;
        if !dns::is_subdomain(name) {
            return Err(Error::Name { name: name.clone() }.into());
        }
        for (key, found, wanted) in [
            ("kind", set.object.get("kind"), WritableKind::ApplicationSet.as_str()),
            (
                "apiVersion",
                set.object.get("apiVersion"),
                WritableKind::ApplicationSet.api_version(),
            ),
        ] {
            // Argo CD's own clients leave out both.
            if found.is_some_and(|found| found != wanted && found != "") {
                return Err(Error::Kind { key, wanted }.into());
            }
        }
        let name = set.name.clone();
        self.note_name(&name);
        Ok(set)
    }

    /// Refuses a set that lacks required fields, or has keys that no field has, unless the settings
    /// say to warn of those.
    fn check_fields(&mut self, set: &ApplicationSet) -> Result<(), Denial> {
        let settings = self.snapshot.policies.config.application_sets.as_ref();
        let warns = settings.is_some_and(|settings| settings.unknown_fields == UnknownFields::Warn);
        let found = schema::check_application_set(&set.object).into_iter();
        let is_warning = |error: &schema::Error| warns && matches!(error, schema::Error::Unknown { .. });
        let (warnings, errors): (Vec<_>, Vec<_>) = found.partition(is_warning);
        self.warnings = warnings.iter().map(ToString::to_string).collect();
        match errors.is_empty() {
            true => Ok(()),
            false => Err(Error::Fields(errors).into()),
        }
    }

    /// Reads a stored set and its Applications. Before that, it checks the namespace, and
    /// authorizes the request by what the snapshot knows.
    async fn read_existing(
        &mut self,
        set_operation: SetOperation<'_>,
        scope: ReadScope,
    ) -> Result<StoredState, Denial> {
        self.authorizer()?
            .namespace(&set_operation.name.namespace)
            .map_err(Error::Denied)?;
        self.read_stored_objects(set_operation, scope).await
    }

    /// Same as [`Self::read_existing`], for any namespace.
    async fn read_stored_objects(
        &mut self,
        set_operation: SetOperation<'_>,
        scope: ReadScope,
    ) -> Result<StoredState, Denial> {
        self.precheck(set_operation)?;
        let SetOperation { operation, name, sent } = set_operation;
        self.ensure_reader()?;
        // After `precheck`: it asks the API server, and a caller who is refused must not cause that.
        self.later = self.later_applications(name, sent).await;
        let cached = self.cached(name);
        // In Argo CD's mode only a preview compares with stored Applications. The controller writes them.
        let is_argocd = self.checks() == ApplicationSetChecks::Argocd && operation != Operation::Preview;
        // Objects that the snapshot does not have, or not yet, are read from its source.
        let is_unknown = cached.set.is_none() || cached.applications.is_some();
        if !is_argocd && (scope == ReadScope::Namespace || (scope == ReadScope::Owned && is_unknown)) {
            let _permit = self.front_state.acquire_bulk_read(self.patience()).await?;
            return Ok(StoredState::read(&self.writer, name).await.map_err(Error::State)?);
        }
        let set = match self
            .writer
            .read(&ObjectKey::of(WritableKind::ApplicationSet, name))
            .await
        {
            Ok(stored) => Some(stored.object),
            Err(write::Error::NotFound(_)) => return Ok(StoredState::default()),
            Err(other) => return Err(Error::State(other).into()),
        };
        let applications = match scope {
            _ if is_argocd => Vec::new(),
            ReadScope::Projects | ReadScope::Namespace => self.latest_known(name)?.applications,
            ReadScope::Owned => {
                let _permit = self.front_state.acquire_bulk_read(self.patience()).await?;
                let owned = self.owned(name);
                let owned = owned.map(|one| ObjectKey::of(WritableKind::Application, &one.name));
                let owned: Vec<ObjectKey> = owned.collect();
                let read = self.writer.read_each(&owned).await.map_err(Error::State)?;
                read.into_iter().map(|stored| stored.object).collect()
            }
        };
        Ok(StoredState { set, applications })
    }

    /// What happens to Applications that the set generates later. Asks the API server if that matters.
    async fn later_applications(&self, name: &ObjectName, sent: Option<&ApplicationSet>) -> LaterApplications {
        let matters = sent.is_some_and(permit::can_change_later) && self.checks() == ApplicationSetChecks::Generated;
        if !matters || self.expected_later() == LaterApplications::Unjudged {
            return LaterApplications::Unjudged;
        }
        let nonce = self.record.id().to_string();
        match admission_probe::is_enforced(&self.writer, &name.namespace, &nonce).await {
            Ok(()) => LaterApplications::JudgedByAuthor,
            Err(observed) => {
                tracing::warn!(
                    namespace = %name.namespace, decision = %self.record.id(),
                    "the API server does not refuse what the admission webhook refuses ({observed}), so a set whose \
                     projects Git decides needs rights in all projects: register the webhook (docs/admission.md)"
                );
                LaterApplications::Unjudged
            }
        }
    }

    /// What happens to them by the settings.
    fn expected_later(&self) -> LaterApplications {
        let settings = self.snapshot.policies.config.admission.as_ref();
        match settings.map(|settings| settings.mode) {
            Some(AdmissionMode::Enforce) => LaterApplications::JudgedByAuthor,
            Some(AdmissionMode::Audit) | None => LaterApplications::Unjudged,
        }
    }

    /// Authorizes the request by what the snapshot knows.
    ///
    /// SECURITY: a request that is allowed here is authorized again by the stored objects, and by what
    /// the API server does with the admission webhook.
    fn precheck(&mut self, set_operation: SetOperation<'_>) -> Result<(), Denial> {
        let SetOperation { operation, name, sent } = set_operation;
        let mut latest = self.latest_known(name)?;
        // The snapshot has nothing of this namespace, so only what is stored can decide.
        if latest.set.is_none() && !self.is_watched(&name.namespace) {
            return Ok(());
        }
        // As in `existing_for_preview`: a preview treats a hidden set as absent.
        if operation == Operation::Preview && !self.may_see(name, &latest)? {
            latest.set = None;
        }
        let recorded = self.checks.len();
        let expected = self.expected_later();
        // By the settings: whether the webhook really answers is asked only for callers who pass.
        let known = std::mem::replace(&mut self.later, expected);
        let authorized = self.authorize_operation(operation, name, sent, &latest);
        self.later = known;
        match authorized {
            Ok(_) => {}
            // The set may have been deleted since.
            Err(denial) if matches!(denial.cause(), Some(Error::Denied(permit::Error::Exists))) => {}
            Err(refused) => return Err(refused),
        }
        // They are looked up again later.
        self.checks.truncate(recorded);
        Ok(())
    }

    /// A set as it was written here recently, or else as the snapshot has it.
    fn cached(&self, name: &ObjectName) -> CachedSet {
        let has = self.snapshot.policies.resources.application_sets.get(name);
        self.front_state.recent_writes.latest_known(name, has)
    }

    /// The latest state of a set that is known without reading its source. Of its Applications it
    /// only has names and projects, and those only if permissions on the set depend on them.
    fn latest_known(&self, name: &ObjectName) -> Result<StoredState, Denial> {
        let cached = self.cached(name);
        let Some(set) = cached.set else {
            return Ok(StoredState::default());
        };
        let of_owned = |one: &OwnedApplication| application_of(name, &one.name, &one.project);
        let applications = match cached.applications {
            _ if !self.authorizer()?.needs_owned(&set) => Vec::new(),
            Some(applications) => applications.iter().map(of_owned).collect(),
            None => self
                .owned(name)
                .map(|one| of_owned(&OwnedApplication::of(one)))
                .collect(),
        };
        Ok(StoredState {
            set: Some((*set).clone()),
            applications,
        })
    }

    fn owned(&self, name: &ObjectName) -> impl Iterator<Item = &Application> {
        owned_by(&self.snapshot.policies.resources, name)
    }

    fn is_watched(&self, namespace: &str) -> bool {
        let StateSource::Kubernetes(settings) = &self.snapshot.policies.config.state else {
            return true;
        };
        let is_control_plane = namespace == self.snapshot.policies.config.control_plane_namespace;
        match &settings.applications {
            ApplicationNamespaces::All => true,
            ApplicationNamespaces::ControlPlane => is_control_plane,
            ApplicationNamespaces::Listed(names) => is_control_plane || names.contains(namespace),
        }
    }

    fn ensure_reader(&mut self) -> Result<(), Denial> {
        if self.reader.is_none() {
            self.reader = Some(self.front_state.readers.acquire(self.principal.limit_key())?);
        }
        Ok(())
    }

    fn patience(&self) -> Duration {
        let settings = self.snapshot.policies.config.application_sets.as_ref();
        settings.map_or(Duration::ZERO, |settings| settings.limits.time)
    }

    /// Whether the caller may see the stored set. True if none is stored.
    fn may_see(&self, name: &ObjectName, existing: &StoredState) -> Result<bool, Denial> {
        let Some(stored) = &existing.set else { return Ok(true) };
        let owned = existing.owned(name).map(OwnedApplication::of_stored).collect();
        Ok(self.authorizer()?.may_get(name, stored, &owned))
    }

    fn authorize_operation(
        &mut self,
        operation: Operation,
        name: &ObjectName,
        set: Option<&ApplicationSet>,
        existing: &StoredState,
    ) -> Result<SetPermit, Denial> {
        let owned: Vec<&Value> = existing.owned(name).collect();
        let authorizer = permit::SetAuthorizer::new(&self.snapshot.policies, &self.caller);
        let authorizer = authorizer.ok_or_else(Denial::not_found)?.with_later(self.later);
        let resources = &self.snapshot.policies.resources;
        let set_operation = SetOperation {
            operation,
            name,
            sent: set,
        };
        let stored = existing.set.as_ref();
        let set_permit = authorize_set(&authorizer, resources, set_operation, stored, &owned, &mut self.checks);
        self.record.finish_stage(Stage::Authorize);
        Ok(set_permit.map_err(Error::from)?)
    }
}

fn checks(policies: &Policies) -> ApplicationSetChecks {
    let settings = policies.config.application_sets.as_ref();
    settings.map(|settings| settings.checks).unwrap_or_default()
}

fn read(object: Value) -> Result<ApplicationSet, Denial> {
    Ok(ApplicationSet::read(object).map_err(Error::Decode)?)
}
