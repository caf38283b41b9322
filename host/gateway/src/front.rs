//! What a front is: the trait [`Front`], and [`serve`], which runs the stages of its requests.
//!
//! Invariant: what authorizes a request is what authorizes it again after every change, for as long as its exchange
//! is open. There is no second function that decides.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use http::{Method, Response, Uri, request};

use crate::blocking::BlockingWork;
use crate::error_format::ErrorFormat;
use crate::open_exchanges::{Change, NotAdmitted, OpenExchangeGuard, PtrEqArc, Reauthorize};
use crate::pipeline::Gateway;
use crate::snapshot::{CurrentSnapshot, Snapshot};
use tollgate_agent::Connections;
use tollgate_cluster::self_check::extras::ExtraGrants;
use tollgate_config::Config;
use tollgate_core::attributes::Attributes;
use tollgate_front::Denial;
use tollgate_front::caller::Caller;
use tollgate_front::path::{self, Answerer, Captures, Path};
use tollgate_identity::authenticate::{Principal, Safety};
use tollgate_identity::clock::Clock;
use tollgate_identity::sessions::EndReason;
use tollgate_proxy::assertion::SigningKeys;
use tollgate_proxy::forward::{Body, LimitPermit};
use tollgate_proxy::metrics::Metrics;
use tollgate_proxy::record::{OpenRecord, Stage};
use tollgate_proxy::server::Client;
use tollgate_proxy::target;
use tollgate_state::source::Source;
use tollgate_store::Store;

mod kind;

pub(crate) use kind::{Arrival, FrontKind, set_decision_header};

/// One way into the gateway: its paths, what they ask for, who may, and the answer.
///
/// A request passes the functions in their order here. The value itself is the front's state that outlives
/// snapshots, such as caches; it holds nothing that decides.
pub(crate) trait Front: fmt::Debug + Send + Sync + Sized + 'static {
    /// The front in records, metrics and settings.
    const NAME: &'static str;
    const PATHS: &'static [Path<Self::Endpoint>];

    /// What a row of the paths is for.
    type Endpoint: Copy + Send + Sync + 'static;
    /// What a path names.
    type Target: Clone + fmt::Debug + PartialEq + Send + Sync;
    /// What the head asks for, judged as far as the head alone can be.
    type Admitted: Send;
    /// What is asked: all that the decision depends on besides the snapshot.
    type Question: fmt::Debug + Eq + Hash + Send + Sync + 'static;
    /// What is sent on, apart from the permit.
    type Request: Send;
    type Permit: Send;
    /// What must stay the same in a permit for an exchange to stay open: as which identity it acts, and where.
    type Terms: fmt::Debug + Eq + Hash + Send + Sync + 'static;

    /// Makes the front; `None` if the settings close it. Its requests get 404 then.
    fn open(services: &Services<'_>) -> Option<Self>;

    /// Whether the settings open a row of the paths. Otherwise its requests get 404.
    fn is_open(_config: &Config, _endpoint: Self::Endpoint) -> bool {
        true
    }

    /// The format of the errors below the front's paths, if it differs from that of the API.
    fn error_format(_now: &Snapshot) -> Option<ErrorFormat> {
        None
    }

    /// Checks every path below those of the front, also one at which there is nothing.
    ///
    /// # Errors
    /// [`target::Error`] for a path that two readers could read differently.
    fn check(_path: &str) -> Result<(), target::Error> {
        Ok(())
    }

    /// Reads a path. `None` if there is nothing at it.
    ///
    /// # Errors
    /// [`target::Error`] for a path that two readers could read differently.
    fn target(
        endpoint: Self::Endpoint,
        captures: &Captures<'_>,
        uri: &Uri,
    ) -> Result<Option<Self::Target>, target::Error>;

    /// The safety of a request, where its target changes what the method implies.
    fn safety(_target: &Self::Target, _method: &Method) -> Safety {
        Safety::ByMethod
    }

    /// Judges what the head alone can judge. Nothing is asked of anybody else, and no content is read.
    ///
    /// # Errors
    /// Why the request is refused.
    fn admit(
        &self,
        by: DecisionInputs<'_>,
        target: Self::Target,
        head: request::Parts,
        record: &mut OpenRecord,
    ) -> Result<Self::Admitted, Denial>;

    /// Reads the content and looks up what the question needs. It may take as long as the client and other servers
    /// do, within their bounds.
    ///
    /// # Errors
    /// What cannot be read or found.
    async fn read(
        &self,
        lookup: &mut Lookup<'_>,
        admitted: Self::Admitted,
        body: Body,
    ) -> Result<(Self::Question, Self::Request), Denial>;

    /// Decides. It is asked once for the request, and again after each change while the exchange is open.
    ///
    /// - `record`: of the request; `None` if it is asked again.
    ///
    /// # Errors
    /// Why the request is refused.
    fn authorize(
        &self,
        by: DecisionInputs<'_>,
        question: &Self::Question,
        record: Option<&mut OpenRecord>,
    ) -> Result<Self::Permit, Denial>;

    fn terms(permit: &Self::Permit) -> Self::Terms;

    /// Whether everything that [`Front::authorize`] reads is the same in both snapshots, so that it need not be asked
    /// again.
    // SECURITY: what is forgotten here is not withdrawn, so a front that says nothing is always asked.
    fn inputs_unchanged(_change: &Change<'_>) -> bool {
        false
    }

    /// Carries out what is permitted.
    ///
    /// # Errors
    /// What failed.
    async fn answer(
        &self,
        permitted: Permitted<'_>,
        permit: Self::Permit,
        request: Self::Request,
    ) -> Result<Response<Body>, Denial>;
}

/// Finds what a request asks of a front, among the paths that one of `answered_by` answers. `None` if the front has no
/// such path.
///
/// # Errors
/// [`target::Error`] for a path that two readers could read differently.
pub(crate) fn find<F: Front>(
    method: &Method,
    uri: &Uri,
    answered_by: &[Answerer],
) -> Result<Option<(F::Target, Answerer)>, target::Error> {
    if F::PATHS.iter().any(|row| answered_by.contains(&row.answerer)) {
        F::check(uri.path())?;
    }
    let Some((row, captures)) = path::find(F::PATHS, method, uri.path(), answered_by) else {
        return Ok(None);
    };
    let target = F::target(row.operation, &captures, uri)?;
    Ok(target.map(|target| (target, row.answerer)))
}

/// What the process gives its fronts.
pub(crate) struct Services<'a> {
    pub(crate) config: &'a Config,
    pub(crate) clock: &'a Clock,
    pub(crate) metrics: &'a Arc<Metrics>,
    /// Signs what backends are told about callers.
    pub(crate) signer: &'a Arc<SigningKeys>,
    /// The agents that are connected.
    pub(crate) agents: &'a Arc<Connections>,
    /// `None` if the settings name no store.
    pub(crate) store: Option<&'a Arc<Store>>,
    /// The keys of `extra` that clusters accept with accounts.
    pub(crate) extras: &'a ExtraGrants,
    /// Where objects are written.
    pub(crate) source: &'a Arc<dyn Source>,
    pub(crate) blocking: &'a Arc<BlockingWork>,
}

/// What decides: the snapshot in force, and the caller as it knows them.
#[derive(Clone, Copy)]
pub(crate) struct DecisionInputs<'a> {
    pub(crate) now: &'a Snapshot,
    pub(crate) caller: &'a Arc<Caller>,
}

/// What [`Front::read`] may use.
pub(crate) struct Lookup<'a> {
    /// The snapshot that decides; `None` while content is awaited.
    snapshot: Option<Arc<Snapshot>>,
    current: &'a CurrentSnapshot,
    principal: &'a Arc<Principal>,
    pub(crate) record: &'a mut OpenRecord,
}

impl Lookup<'_> {
    pub(crate) fn now(&self) -> Arc<Snapshot> {
        self.snapshot.clone().unwrap_or_else(|| self.current.load_full())
    }

    fn into_snapshot(self) -> Arc<Snapshot> {
        self.snapshot.unwrap_or_else(|| self.current.load_full())
    }

    pub(crate) fn caller(&self, now: &Snapshot) -> Arc<Caller> {
        now.policies.caller(self.principal)
    }

    /// Awaits content. From then on the newest snapshot decides.
    ///
    /// # Errors
    /// That of `content`, or access was withdrawn meanwhile.
    // Content comes when the client likes, and a snapshot is megabytes.
    pub(crate) async fn content<T, E>(&mut self, content: impl Future<Output = Result<T, E>>) -> Result<T, Denial>
    where
        Denial: From<E>,
    {
        self.snapshot = None;
        let content = content.await?;
        // The client's time is not that of the decision.
        self.record.restart_stage();
        let now = self.current.load_full();
        if !now.authenticator.is_still_valid(self.principal) {
            return Err(NotAdmitted(EndReason::Withdrawn).into());
        }
        self.record.note(|record| record.generation = now.generation);
        self.snapshot = Some(now);
        Ok(content)
    }
}

/// A permitted request that is carried out: who asked, and what is held for as long.
pub(crate) struct Permitted<'a> {
    pub(crate) client: &'a Arc<Client>,
    pub(crate) principal: &'a Arc<Principal>,
    pub(crate) record: &'a mut OpenRecord,
    /// The snapshot that decided. Dropped before anything is awaited that may take long: it is megabytes.
    pub(crate) snapshot: Arc<Snapshot>,
    /// The registration of the exchange, held until the content of the response has ended.
    // SECURITY: it only says that access ended. What stays open must end on its `ending`.
    pub(crate) guard: OpenExchangeGuard,
    /// The person's share of the requests at once. Held as long.
    pub(crate) held: LimitPermit,
}

/// A permitted request, to be authorized again after a change.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Asked<F, Q, T> {
    front: F,
    principal: PtrEqArc<Principal>,
    question: Q,
    terms: T,
}

impl<F: Front> Reauthorize for Asked<PtrEqArc<F>, F::Question, F::Terms> {
    fn front(&self) -> &'static str {
        F::NAME
    }

    fn principal(&self) -> Option<&Principal> {
        Some(&self.principal.0)
    }

    fn is_allowed_by(&self, now: &Snapshot) -> bool {
        let PtrEqArc(principal) = &self.principal;
        if !now.authenticator.is_still_valid(principal) {
            return false;
        }
        let caller = now.policies.caller(principal);
        let permit = self
            .front
            .0
            .authorize(DecisionInputs { now, caller: &caller }, &self.question, None);
        permit.is_ok_and(|permit| F::terms(&permit) == self.terms)
    }

    fn inputs_unchanged(&self, change: &Change<'_>) -> bool {
        F::inputs_unchanged(change)
    }
}

/// Runs the stages of a request of a front. `front` is `None` while the settings close it.
///
/// # Errors
/// The denial of the first stage that refuses the request or fails.
pub(crate) async fn serve<F: Front>(
    front: Option<&Arc<F>>,
    target: F::Target,
    context: RequestContext<'_>,
    (head, body): (request::Parts, Body),
) -> Result<Response<Body>, Denial> {
    let front = front.ok_or_else(Denial::not_found)?;
    let RequestContext {
        gateway,
        client,
        snapshot,
        principal,
        record,
    } = context;
    record.note(|record| record.front = F::NAME);
    let held = gateway.persons.acquire(principal.limit_key())?;
    let caller = snapshot.policies.caller(principal);
    let by = DecisionInputs {
        now: &snapshot,
        caller: &caller,
    };
    let admitted = front.admit(by, target, head, record);
    drop(caller);
    let admitted = admitted.inspect_err(|_| record.finish_stage(Stage::Authorize))?;
    let mut lookup = Lookup {
        snapshot: Some(snapshot),
        current: &gateway.status.current,
        principal,
        record: &mut *record,
    };
    let read = front.read(&mut lookup, admitted, body).await;
    let (question, request) = read.inspect_err(|_| lookup.record.finish_stage(Stage::Authorize))?;
    let snapshot = lookup.into_snapshot();
    let caller = snapshot.policies.caller(principal);
    let permit = front.authorize(
        DecisionInputs {
            now: &snapshot,
            caller: &caller,
        },
        &question,
        Some(&mut *record),
    );
    drop(caller);
    record.finish_stage(Stage::Authorize);
    let permit = permit?;
    let asked = Asked {
        front: PtrEqArc(Arc::clone(front)),
        principal: PtrEqArc(Arc::clone(principal)),
        terms: F::terms(&permit),
        question,
    };
    let guard = gateway.open.register(asked, (&snapshot, record.id()))?;
    let permitted = Permitted {
        client,
        principal,
        record,
        snapshot,
        guard,
        held,
    };
    front.answer(permitted, permit, request).await
}

/// What the stages know of a request. `P` is the authenticated caller, or `()` for a front that
/// authenticates by itself.
pub(crate) struct RequestContext<'a, P = &'a Arc<Principal>> {
    pub(crate) gateway: &'a Gateway,
    pub(crate) client: &'a Arc<Client>,
    /// Whoever waits for somebody else's response drops it first: a snapshot is megabytes.
    pub(crate) snapshot: Arc<Snapshot>,
    pub(crate) principal: P,
    pub(crate) record: &'a mut OpenRecord,
}

/// How a front that is not a [`Front`] yet authorizes and answers its requests. Implemented by its variant of
/// [`Route`](crate::route::Route).
///
/// `P` is what the front needs of the caller: a principal that the gateway authenticated, or
/// nothing, if a credential of the front's own says who calls.
pub(crate) trait RouteHandler<P = Arc<Principal>> {
    /// The safety of the request, as far as the route changes what the method implies.
    fn safety(&self, _method: &Method) -> Safety {
        Safety::ByMethod
    }

    /// Runs the stages authorize, impersonate, credential, headers and forward. A front may lack
    /// some of them.
    ///
    /// # Errors
    /// The denial of the first stage that refuses the request or fails.
    fn serve<'a>(
        &self,
        context: RequestContext<'a, &'a P>,
        request: (request::Parts, Body),
    ) -> impl Future<Output = Result<Response<Body>, Denial>> + Send;
}

/// The safety of a request into a cluster.
// SECURITY: it is judged by its Kubernetes verb, because some requests that come by `GET` run
// programs. An upgrade is unsafe by itself.
pub(crate) fn safety_in_cluster(method: &Method, rest: &str, query: Option<&str>) -> Safety {
    match Attributes::read(method, rest, query, None).is_plain_read(method) {
        true => Safety::ByMethod,
        false => Safety::Unsafe,
    }
}
