//! What a front is: the traits [`Front`] and [`Steps`], and [`serve_steps`], which runs the steps of a request.
//!
//! Invariant: what authorizes a request is what authorizes it again after every change, for as long as its exchange
//! is open. There is no second function that decides.

use std::fmt;
use std::hash::Hash;
use std::sync::Arc;

use http::{Method, Response, StatusCode, Uri, request};

use crate::Denial;
use crate::caller::Caller;
use crate::console::ApiHandler;
use crate::open_exchanges::{Change, NotAdmitted, OpenExchangeGuard, PtrEqArc, Reauthorize};
use crate::path::{self, Answerer, Captures, Path, PathLine};
use crate::snapshot::{CurrentSnapshot, Snapshot};
use tollgate_config::Config;
use tollgate_core::attributes::Attributes;
use tollgate_identity::authenticate::k8s_proxy::{self, CiTokenSupport, PresentedCredential};
use tollgate_identity::authenticate::{self, CredentialTransport, Principal, Safety};
use tollgate_identity::logins::LoginScope;
use tollgate_identity::sessions::EndReason;
use tollgate_proxy::forward::{self, Body, LimitPermit, Limiter};
use tollgate_proxy::record::{OpenRecord, Outcome, Stage};
use tollgate_proxy::server::Client;
use tollgate_proxy::target;
use uuid::Uuid;

mod arrival;
mod fallback;
mod services;

pub use arrival::{Arrival, CrossOrigin, Pass, PathRules};
pub use fallback::{ApplicationSetsServer, Fallback};
pub use services::{Services, States, System};

/// One way into the gateway: its paths, and who serves them.
///
/// The value itself is the front's state that outlives snapshots, such as caches; it holds nothing that decides. A
/// front whose requests ask one question implements [`Steps`] as well, and serves by [`serve_steps`].
#[expect(
    async_fn_in_trait,
    reason = "the list of fronts calls each by its type, so the compiler sees whether its futures are `Send`"
)]
pub trait Front: fmt::Debug + Send + Sync + Sized + 'static {
    /// The front in records, metrics and settings.
    const NAME: &'static str;
    /// The table of paths. Empty if the front finds its requests by [`Front::find`] alone.
    const PATHS: &'static [Path<Self::Endpoint>];

    /// What a row of the paths is for.
    type Endpoint: Copy + Send + Sync + 'static;
    /// What a request names.
    type Target: Clone + fmt::Debug + PartialEq + Send + Sync;

    /// Makes the front; `None` if the settings close it. Its requests get 404 then.
    ///
    /// # Errors
    /// What the settings name cannot be read or used.
    fn open(services: &Services) -> anyhow::Result<Option<Self>>;

    /// Whether the settings open a row of the paths. Otherwise its requests get 404.
    fn is_open(_config: &Config, _endpoint: Self::Endpoint) -> bool {
        true
    }

    /// The paths as people read them.
    fn lines(config: &Config) -> Vec<PathLine> {
        path::lines(Self::PATHS, |endpoint| Self::is_open(config, endpoint))
    }

    /// What differs for a request from the rest of the API, even if its path is malformed. `None` if nothing does, or
    /// the request is not for this front.
    fn rules(_arrival: &Arrival<'_>, _now: &Snapshot) -> Option<PathRules> {
        None
    }

    /// Finds what a request asks for, and who answers that. `None` if it is not for this front, or not in this pass.
    ///
    /// # Errors
    /// [`target::Error`] for a path that two readers could read differently.
    fn find(arrival: &Arrival<'_>, pass: Pass) -> Result<Option<(Self::Target, Answerer)>, target::Error> {
        find_in_paths::<Self>(arrival.method(), arrival.uri, pass.answerers())
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

    /// Records a request that was refused before it was served, if the front keeps a record besides the decisions.
    async fn record_early_refusal(&self, _denial: &Denial, _client: &Client, _decision: Uuid) {}

    /// Serves a request. Nobody has authenticated its caller yet.
    ///
    /// # Errors
    /// Why it was refused, or what failed.
    async fn serve(
        self: &Arc<Self>,
        target: Self::Target,
        context: RequestContext<'_>,
        request: (request::Parts, Body),
    ) -> Result<Response<Body>, Denial>;
}

/// The steps of a front whose requests ask one question: what the head asks for, what else the decision needs, who may,
/// and the answer. A request passes the functions in their order here.
#[expect(async_fn_in_trait, reason = "as for `Front`")]
pub trait Steps: Front {
    /// What the head asks for, judged as far as the head alone can be.
    type Admitted: Send;
    /// What is asked: all that the decision depends on besides the snapshot.
    type Question: fmt::Debug + Eq + Hash + Send + Sync + 'static;
    /// What is sent on, apart from the permit.
    type Request: Send;
    /// What is permitted. Only [`Steps::authorize`] makes one.
    type Permit: Send;
    /// What must stay the same in a permit for an exchange to stay open: as which identity it acts, and where.
    type Terms: fmt::Debug + Eq + Hash + Send + Sync + 'static;

    /// The safety of a request, where its target changes what the method implies.
    fn safety(_target: &Self::Target, _method: &Method) -> Safety {
        Safety::ByMethod
    }

    /// What counts the person's requests at once.
    fn limiter(services: &Services) -> &Arc<Limiter> {
        &services.persons
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

    /// The terms of a permit.
    fn terms(permit: &Self::Permit) -> Self::Terms;

    /// Whether everything that [`Steps::authorize`] reads is the same in both snapshots, so that it need not be asked
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

/// Finds what a request asks of a front in its table, among the paths that one of `answered_by` answers. `None` if the
/// front has no such path.
///
/// # Errors
/// [`target::Error`] for a path that two readers could read differently.
pub fn find_in_paths<F: Front>(
    method: &Method,
    uri: &Uri,
    answered_by: &[Answerer],
) -> Result<Option<(F::Target, Answerer)>, target::Error> {
    // Before the check, which would refuse a malformed path that another front serves in this pass.
    if !F::PATHS.iter().any(|row| answered_by.contains(&row.answerer)) {
        return Ok(None);
    }
    // Before the rows, so that a malformed path gets 400 even where nothing is served.
    F::check(uri.path())?;
    let Some((row, captures)) = path::find(F::PATHS, method, uri.path(), answered_by) else {
        return Ok(None);
    };
    let target = F::target(row.operation, &captures, uri)?;
    Ok(target.map(|target| (target, row.answerer)))
}

/// What decides: the snapshot in force, and the caller as it knows them.
#[derive(Clone, Copy, Debug)]
pub struct DecisionInputs<'a> {
    /// The snapshot in force.
    pub now: &'a Snapshot,
    /// The caller, with their roles in `now`.
    pub caller: &'a Arc<Caller>,
}

/// What [`Steps::read`] may use.
#[derive(Debug)]
pub struct Lookup<'a> {
    /// The snapshot that decides; `None` while content is awaited.
    snapshot: Option<Arc<Snapshot>>,
    current: &'a CurrentSnapshot,
    principal: &'a Arc<Principal>,
    /// The record of the request.
    pub record: &'a mut OpenRecord,
}

impl Lookup<'_> {
    /// The snapshot that decides.
    pub fn now(&self) -> Arc<Snapshot> {
        self.snapshot.clone().unwrap_or_else(|| self.current.load_full())
    }

    fn into_snapshot(self) -> Arc<Snapshot> {
        self.snapshot.unwrap_or_else(|| self.current.load_full())
    }

    /// The caller, with their roles in `now`.
    pub fn caller(&self, now: &Snapshot) -> Arc<Caller> {
        now.policies.caller(self.principal)
    }

    /// Awaits content. From then on the newest snapshot decides.
    ///
    /// # Errors
    /// That of `content`, or access was withdrawn meanwhile.
    // Content comes when the client likes, and a snapshot is megabytes.
    pub async fn content<T, E>(&mut self, content: impl Future<Output = Result<T, E>>) -> Result<T, Denial>
    where
        Denial: From<E>,
    {
        self.snapshot = None;
        let content = content.await?;
        // The client's time is not that of the decision.
        self.record.restart_stage();
        let now = self.current.load_full();
        // The caller may have been locked while the content came.
        if !now.authenticator.is_still_valid(self.principal) {
            return Err(NotAdmitted(EndReason::Withdrawn).into());
        }
        // The record names the snapshot that decides, not the one under which the request arrived.
        self.record.note(|record| record.generation = now.generation);
        self.snapshot = Some(now);
        Ok(content)
    }
}

/// A permitted request that is carried out: who asked, and what is held for as long.
#[derive(Debug)]
pub struct Permitted<'a> {
    /// Who sent the request.
    pub client: &'a Arc<Client>,
    /// The caller.
    pub principal: &'a Arc<Principal>,
    /// The record of the request.
    pub record: &'a mut OpenRecord,
    /// The snapshot that decided. Dropped before anything is awaited that may take long: it is megabytes.
    pub snapshot: Arc<Snapshot>,
    /// The registration of the exchange, held until the content of the response has ended.
    // SECURITY: it only says that access ended. What stays open must end on its `ending`.
    pub guard: OpenExchangeGuard,
    /// The person's share of the requests at once. Held as long.
    pub held: LimitPermit,
}

/// A permitted request, to be authorized again after a change.
#[derive(Debug, PartialEq, Eq, Hash)]
struct Asked<F, Q, T> {
    front: F,
    principal: PtrEqArc<Principal>,
    question: Q,
    terms: T,
}

impl<F: Steps> Reauthorize for Asked<PtrEqArc<F>, F::Question, F::Terms> {
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
        // What is open was sent with the old terms, which a permit for another identity or server does not cover.
        permit.is_ok_and(|permit| F::terms(&permit) == self.terms)
    }

    fn inputs_unchanged(&self, change: &Change<'_>) -> bool {
        F::inputs_unchanged(change)
    }
}

/// Runs the steps of a request, from the authentication of its caller to the answer.
///
/// # Errors
/// The denial of the first step that refuses the request or fails.
pub async fn serve_steps<F: Steps>(
    front: &Arc<F>,
    target: F::Target,
    mut context: RequestContext<'_>,
    head: request::Parts,
    body: Body,
) -> Result<Response<Body>, Denial> {
    let safety = F::safety(&target, &head.method);
    let principal = &context.authenticate(&head, safety).await?;
    let RequestContext {
        services,
        client,
        snapshot,
        record,
        ..
    } = context;
    // Before anything is judged or looked up, so that one person cannot make the gateway work for all others' time.
    let held = F::limiter(services).acquire(principal.limit_key())?;
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
        current: &services.current,
        principal,
        record: &mut *record,
    };
    let read = front.read(&mut lookup, admitted, body).await;
    let (question, request) = read.inspect_err(|_| lookup.record.finish_stage(Stage::Authorize))?;
    // A front that waited for others in `read` let go of the snapshot, and is judged by the one in force now. The
    // caller's rights are compiled again, because they are those of that snapshot.
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
    // Before anything is sent: a change between the decision and the sending then ends this exchange, too.
    let guard = services.open.register(asked, &snapshot, record.id())?;
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

/// A request that a front serves.
#[derive(Debug)]
pub struct RequestContext<'a> {
    /// What the process gives its fronts.
    pub services: &'a Services,
    /// Serves what pages of the console ask.
    pub api: &'a dyn ApiHandler,
    /// Who sent the request.
    pub client: &'a Arc<Client>,
    /// Code that waits for somebody else's response drops it first: a snapshot is megabytes.
    pub snapshot: Arc<Snapshot>,
    /// The record of the request.
    pub record: &'a mut OpenRecord,
    /// Who answers the request.
    pub answerer: Answerer,
}

impl RequestContext<'_> {
    /// Authenticates the caller by any credential that is for what answers the request.
    ///
    /// # Errors
    /// There is no such credential, or access was withdrawn.
    pub async fn authenticate(&mut self, head: &request::Parts, safety: Safety) -> Result<Arc<Principal>, Denial> {
        let principal = self.snapshot.authenticator.authenticate(head, safety).await;
        let principal = self.accept(principal)?;
        check_scope(&principal, self.answerer)?;
        Ok(principal)
    }

    /// As [`RequestContext::authenticate`], for requests to argocd-server, which knows no login of the gateway.
    ///
    /// # Errors
    /// As [`RequestContext::authenticate`].
    pub async fn authenticate_by_token(&mut self, head: &request::Parts) -> Result<Arc<Principal>, Denial> {
        let principal = self.snapshot.authenticator.authenticate_by_token(head).await;
        self.accept(principal)
    }

    /// Notes a caller who was verified, unless a refused load took their access away.
    fn accept(&mut self, principal: Result<Arc<Principal>, authenticate::Error>) -> Result<Arc<Principal>, Denial> {
        self.record.finish_stage(Stage::Authenticate);
        let principal = principal?;
        if let Some(narrower) = &self.snapshot.narrowed_by
            // A refused load is not in force, but it withdraws: a caller whom it would not accept is refused.
            && !narrower.authenticator.is_still_valid(&principal)
        {
            return Err(forward::Error::Ended(EndReason::Withdrawn).into());
        }
        // At the limit, connections without an authenticated caller are closed first.
        self.client.mark_authenticated();
        self.record
            .note(|record| record.principal = Some(Arc::clone(&principal)));
        Ok(principal)
    }

    /// Refuses a request that no front has.
    pub async fn refuse_unknown(self, head: &request::Parts) -> Denial {
        // First, because authentication knows no tokens of agents and would answer 401 without the reason.
        match refuse_credential_of_agent(&self.snapshot, head) {
            Ok(()) => self.refuse_unserved(head).await,
            Err(denial) => denial,
        }
    }

    /// Refuses a request whose front is closed.
    // SECURITY: strangers get 401, and do not learn what the settings open.
    pub async fn refuse_unserved(mut self, head: &request::Parts) -> Denial {
        match self.authenticate(head, Safety::ByMethod).await {
            Ok(_) => Denial::not_found(),
            Err(denial) => denial,
        }
    }
}

/// Prefix under which people reach the API servers of agents. The credential names the agent.
pub const KUBERNETES_PREFIX: &str = "/k8s-proxy/";

/// Refuses a token of an agent that was sent without the prefix of the Kubernetes front.
///
/// # Errors
/// It was.
// Such a token is for nothing else, and kubectl shows the text.
pub fn refuse_credential_of_agent(now: &Snapshot, head: &request::Parts) -> Result<(), Denial> {
    let read = |head| k8s_proxy::read(head, CiTokenSupport::Accepted);
    // Without the front there are no such tokens, and the text would name a prefix that is not served.
    if now.policies.kubernetes.is_none() || !matches!(read(head), Ok(PresentedCredential::Query(_))) {
        return Ok(());
    }
    let text = format!(
        "the URL does not start with the expected prefix `{KUBERNETES_PREFIX}`; `kubectl proxy` keeps it with \
         `--append-server-path`"
    );
    let mut denial = Denial::denied(StatusCode::BAD_REQUEST, "wrong_prefix", text);
    denial.is_for_kubernetes = true;
    Err(denial)
}

/// Checks that a credential of a login is for requests that `answerer` answers.
// SECURITY: what comes from clusters and backends can be a page, so the console's cookie never leads
// there; and what kubectl holds is for clusters alone.
fn check_scope(principal: &Principal, answerer: Answerer) -> Result<(), authenticate::Error> {
    let Some(login) = principal.login() else { return Ok(()) };
    let is_into_cluster = answerer == Answerer::Cluster;
    let is_forwarded = is_into_cluster || answerer == Answerer::Backend;
    match (login.scope, principal.transport()) {
        (LoginScope::Clusters, _) if !is_into_cluster => Err(authenticate::Error::Scope(
            "it is kubectl's, for clusters by name and of Applications",
        )),
        (LoginScope::Everything, CredentialTransport::Cookie) if is_forwarded => Err(authenticate::Error::Scope(
            "the console's cookie is for the console and the API; use `tollgate login`",
        )),
        (_, _) => Ok(()),
    }
}

/// What the record of a response says instead of `allowed`, such as of a page that says that something was refused.
#[derive(Clone, Copy, Debug)]
pub struct RecordedAs(pub Outcome, pub &'static str);

/// The safety of a request into a cluster.
// SECURITY: it is judged by its Kubernetes verb, because some requests that come by `GET` run
// programs. An upgrade is unsafe by itself.
pub fn safety_in_cluster(method: &Method, rest: &str, query: Option<&str>) -> Safety {
    match Attributes::read(method, rest, query, None).is_plain_read(method) {
        true => Safety::ByMethod,
        false => Safety::Unsafe,
    }
}
