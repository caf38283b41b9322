//! Decides by the bundle `policies/argocd` whether a request may go on to argocd-server. The result
//! is an [`ArgocdPermit`], which only this file makes, or 403.
//!
//! The bundle can only refuse: argocd-server authorizes every request again by its own rules. What these
//! do not ask about children of Applications, `children.rs` does.

use http::StatusCode;
use std::sync::{Arc, LazyLock};

use http::{HeaderMap, request};
use jiff::Timestamp;

use super::api_request::{self as api, ApiRequest, Operation};
use super::route::{ArgocdRoute, SignIn};
use super::{MethodIndex, RequestError, admits_anonymous, children};
use tollgate_front::caller::Caller;
use tollgate_front::open_exchanges::{Change, PtrEqArc, Reauthorize};
use tollgate_front::policies::Policies;
use tollgate_front::policy_input::json;
use tollgate_front::snapshot::Snapshot;
use tollgate_front::{Denial, Services};
use tollgate_identity::authenticate::Principal;
use tollgate_objects::{Application, ObjectName};
use tollgate_proxy::forward::Body;
use tollgate_proxy::record::{LeftOut, OpenRecord, PolicyInputSource};
use tollgate_rego::{self as rego, ArgocdInput, ArgocdRequest, Decision, Front, PrincipalFacts};

/// Field in which a caller says why.
const REASON: &str = "tollgate-reason";

/// Longest reason, in bytes.
const MAX_REASON_BYTES: usize = 512;

/// Bytes of a question and of the Application that it names, approximately.
const QUESTION_BYTES: usize = 4 * 1_024;

/// What the content of a call says. Whether `request.action` is `override` is one of it.
const NOT_READ: [&str; 5] = [
    "request.project",
    "request.application",
    "request.namespace",
    "request.action",
    "application",
];
const NOT_READ_WHY: &str = "the policy that decided reads nothing of the content, so it was not read";

/// Callers that argocd-server needs no session of.
static ANONYMOUS: LazyLock<PrincipalFacts> = LazyLock::new(|| PrincipalFacts::new("", "", &[], "", "anonymous"));

/// Proof that the policy lets a request pass to argocd-server.
///
/// Its fields are private and only `authorize` makes it:
///
/// ```compile_fail,E0451
/// fn forge() {
///     let _ = tollgate_argocd_fronts::ArgocdPermit { asked: None, ..unreachable!() };
/// }
/// ```
#[derive(Debug)]
pub struct ArgocdPermit {
    sign_in: SignIn,
    /// What the policy was asked. `None` for requests that are not for the API.
    asked: Option<Arc<Question>>,
}

/// What the policy is asked about a request, apart from caller and time.
#[derive(Debug)]
pub(crate) struct Question {
    request: ApiRequest,
    reason: Option<String>,
}

/// What it takes to authorize an open exchange again.
#[derive(Debug)]
pub(crate) struct ArgocdReauthorization {
    principal: Option<Arc<Principal>>,
    permit: ArgocdPermit,
}

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// The policy denied the request. The text is the operator's, for the caller.
    #[error("{0}")]
    Denied(String),
    #[error("the policy could not be evaluated")]
    Policy(#[source] rego::Error),
    #[error(transparent)]
    Request(#[from] api::Error),
    #[error(transparent)]
    Child(#[from] children::Error),
}

impl Error {
    /// Whether the policy refused, and would refuse the same request again.
    pub(crate) fn is_refusal(&self) -> bool {
        match self {
            Self::Denied(_) | Self::Policy(_) => true,
            // No stream changes a child.
            Self::Request(_) | Self::Child(_) => false,
        }
    }
}

/// A call as it was received.
pub(crate) struct ReceivedCall<'a> {
    pub(crate) route: ArgocdRoute,
    pub(crate) head: &'a request::Parts,
    pub(crate) body: &'a mut Body,
}

/// Asks the policy about a request. Reads its content only if the policy reads what is there.
///
/// Returns the snapshot that decided: once the content is there, this is the newest one. Whether the
/// caller still has a session by it is left to check.
///
/// # Errors
/// [`Error`]: the policy denies the request, or it does not fit what the policy reads.
pub(crate) async fn authorize(
    call: ReceivedCall<'_>,
    principal: Option<&Arc<Principal>>,
    services: &Services,
    methods: &MethodIndex,
    mut snapshot: Arc<Snapshot>,
    record: &mut OpenRecord,
) -> Result<(ArgocdPermit, Arc<Snapshot>), Error> {
    let ReceivedCall { route, head, body } = call;
    let Some(operation) = Operation::of(route, head, methods)? else {
        let permit = ArgocdPermit {
            sign_in: route.sign_in,
            asked: None,
        };
        return Ok((permit, snapshot));
    };
    if let Some(resource) = ApiRequest::read_resource(&operation, route, head, body).await? {
        // The content came when the client liked.
        snapshot = services.current.load_full();
        if children::is_judged(&snapshot.policies, &resource) {
            children::authorize(&snapshot.policies, &*services.source, principal, &resource).await?;
        }
    }
    let reads = reads_content(&snapshot.policies);
    let request = match reads || api::is_diff(&operation) {
        true => {
            // A caller who sends content slowly must not keep what was in force when they began.
            drop(snapshot);
            api::check_diff(&operation, route, head, body).await?;
            let request = match reads {
                true => ApiRequest::read(operation, route, head, body).await?,
                false => ApiRequest::without_fields(operation),
            };
            snapshot = services.current.load_full();
            request
        }
        false => ApiRequest::without_fields(operation),
    };
    let policies = &snapshot.policies;
    let question = Arc::new(Question {
        reason: reason(&head.headers),
        request,
    });
    let mut at = Timestamp::UNIX_EPOCH;
    record.note(|record| {
        at = record.at;
        record.api_method = question.request.name();
        record.project.clone_from(&question.request.fields.project);
        record.application = object_name(policies, &question.request);
        record.policy = policies.bundle(Front::Argocd).map(|bundle| Arc::clone(&bundle.digest));
    });
    let (decision, action) = question.decide(policies, principal, at);
    // Also for an evaluation that failed, so that an operator can repeat it.
    keep_input(&question, action, policies, principal, at, record);
    let decision = decision.map_err(Error::Policy)?;
    record.note(|record| record.notes = decision.log);
    match decision.allow {
        true => {
            let permit = ArgocdPermit {
                sign_in: route.sign_in,
                asked: Some(question),
            };
            Ok((permit, snapshot))
        }
        false => Err(Error::Denied(decision.reason)),
    }
}

/// The same request, for [`Reauthorize`].
#[derive(Debug, PartialEq, Eq, Hash)]
pub(crate) struct AskedAgain(PtrEqArc<ArgocdReauthorization>);

impl ArgocdPermit {
    /// What it takes to authorize the exchange again when policies or objects change.
    pub(crate) fn into_reauthorization(self, principal: Option<&Arc<Principal>>) -> AskedAgain {
        AskedAgain(PtrEqArc(Arc::new(ArgocdReauthorization {
            principal: principal.map(Arc::clone),
            permit: self,
        })))
    }
}

impl Reauthorize for AskedAgain {
    fn front(&self) -> &'static str {
        "argocd"
    }

    fn principal(&self) -> Option<&Principal> {
        self.0.0.principal.as_deref()
    }

    fn inputs_unchanged(&self, change: &Change<'_>) -> bool {
        change.same_permissions() && change.same_resources() && change.same_bundle(Front::Argocd)
    }

    /// [`ApiMethod::may_end_own_session`](super::methods::ApiMethod::may_end_own_session).
    fn may_end_own_session(&self) -> bool {
        let asked = self.0.0.permit.asked.as_ref();
        asked.is_some_and(|question| question.request.may_end_own_session())
    }

    fn is_allowed_by(&self, now: &Snapshot) -> bool {
        let ArgocdReauthorization { principal, permit } = &*self.0.0;
        let is_valid = match (principal, permit.sign_in) {
            (Some(principal), _) => now.authenticator.is_still_valid(principal),
            (None, SignIn::NotRequired) => true,
            // Without a session, only the switch in `argocd-cm` let the caller in.
            (None, SignIn::Required) => admits_anonymous(now),
        };
        let permits = |question: &Arc<Question>| {
            // SECURITY: the policy of then did not read what this one may read.
            if reads_content(&now.policies) && !question.request.is_whole {
                return false;
            }
            let (decision, _) = question.decide(&now.policies, principal.as_ref(), Timestamp::now());
            decision.is_ok_and(|decision| decision.allow)
        };
        is_valid && permit.asked.as_ref().is_none_or(permits)
    }
}

/// Which of the actions that argocd-server may check the policy is asked about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum AskedAction {
    /// That of the method.
    OfMethod,
    /// The update of an object that exists.
    Update,
}

impl Question {
    /// The decision, and the action that it is about. A request that creates an object, and updates
    /// one that exists, is decided as both; one denial is enough.
    fn decide(
        &self,
        policies: &Policies,
        principal: Option<&Arc<Principal>>,
        at: Timestamp,
    ) -> (Result<Decision, rego::Error>, AskedAction) {
        let caller = principal.map(|principal| policies.caller(principal));
        let application = application(policies, &self.request);
        let ask = |action| {
            // SECURITY: a front without a bundle is closed.
            let bundle = policies.bundle(Front::Argocd).ok_or(rego::Error::Undefined)?;
            let application = application.map(|application| &**application);
            bundle.decide(self.input(action, caller.as_deref(), at, application))
        };
        let decision = ask(AskedAction::OfMethod);
        let allows = decision.as_ref().is_ok_and(|decision| decision.allow);
        if !(allows && self.request.upserts()) {
            return (decision, AskedAction::OfMethod);
        }
        let updates = ask(AskedAction::Update);
        match updates.as_ref().is_ok_and(|decision| decision.allow) {
            true => (decision, AskedAction::OfMethod),
            false => (updates, AskedAction::Update),
        }
    }

    fn input(
        &self,
        action: AskedAction,
        caller: Option<&Caller>,
        at: Timestamp,
        application: Option<&Application>,
    ) -> tollgate_rego::Value {
        let request = match action {
            AskedAction::OfMethod => self.request.as_input(),
            AskedAction::Update => ArgocdRequest {
                action: Some("update"),
                ..self.request.as_input()
            },
        };
        ArgocdInput {
            principal: caller.map_or(&*ANONYMOUS, |caller| &caller.policy),
            time: &at.to_string(),
            reason: self.reason.as_deref(),
            request,
            application,
        }
        .to_value()
    }
}

/// Keeps what the policy's input was made of.
fn keep_input(
    question: &Arc<Question>,
    action: AskedAction,
    policies: &Policies,
    principal: Option<&Arc<Principal>>,
    at: Timestamp,
    record: &mut OpenRecord,
) {
    let question = Arc::clone(question);
    let caller = principal.map(|principal| policies.caller(principal));
    let application = application(policies, &question.request).map(Arc::clone);
    let shared = caller.as_ref().map_or(0, |caller| caller.size_kib);
    let shared = usize::try_from(shared).unwrap_or(usize::MAX);
    let size = shared.saturating_mul(1_024).saturating_add(QUESTION_BYTES);
    record.keep_input(PolicyInputSource::new(Front::Argocd, size, move || {
        let input = question.input(action, caller.as_deref(), at, application.as_deref());
        let left_out = match question.request.is_whole {
            true => Vec::new(),
            false => NOT_READ
                .map(|field| LeftOut {
                    field,
                    why: NOT_READ_WHY,
                })
                .to_vec(),
        };
        (json(&input), left_out)
    }));
}

/// Whether the policy reads what can be in the content of a request.
fn reads_content(policies: &Policies) -> bool {
    let bundle = policies.bundle(Front::Argocd);
    bundle.is_some_and(|bundle| bundle.dependencies().content)
}

fn object_name(policies: &Policies, request: &ApiRequest) -> Option<ObjectName> {
    let namespace = request.fields.namespace.as_ref();
    Some(ObjectName {
        namespace: namespace.unwrap_or(&policies.config.control_plane_namespace).clone(),
        name: request.fields.application.clone()?,
    })
}

fn application<'a>(policies: &'a Policies, request: &ApiRequest) -> Option<&'a Arc<Application>> {
    let name = object_name(policies, request)?;
    policies.resources.applications.get(&name)
}

fn reason(fields: &HeaderMap) -> Option<String> {
    let mut values = fields.get_all(REASON).iter();
    let (value, other) = (values.next()?, values.next());
    let text = std::str::from_utf8(value.as_bytes()).ok()?.trim();
    let is_printable = !text.is_empty() && text.len() <= MAX_REASON_BYTES && !text.chars().any(char::is_control);
    // Two reasons count as none, so that a policy that demands one refuses.
    (other.is_none() && is_printable).then(|| text.to_owned())
}

impl From<Error> for Denial {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        let denial = match error {
            Error::Denied(reason) => return Self::denied(StatusCode::FORBIDDEN, "permission_denied", reason),
            Error::Request(RequestError::Content(error)) => return error.into(),
            Error::Child(_) => Self::denied(StatusCode::FORBIDDEN, "permission_denied", text),
            Error::Policy(rego::Error::Stuck) => Self::failed(StatusCode::FORBIDDEN, "policy_stuck", text),
            Error::Policy(_) => Self::failed(StatusCode::FORBIDDEN, "policy_failed", text),
            Error::Request(RequestError::ContentType) => {
                Self::denied(StatusCode::UNSUPPORTED_MEDIA_TYPE, "wrong_content_type", text)
            }
            Error::Request(RequestError::Slow) => Self::denied(StatusCode::REQUEST_TIMEOUT, "client_silent", text),
            Error::Request(RequestError::TooLong { .. }) => {
                Self::denied(StatusCode::PAYLOAD_TOO_LARGE, "content_too_large", text)
            }
            Error::Request(
                RequestError::Frame
                | RequestError::Compressed
                | RequestError::Diff(_)
                | RequestError::Name(_)
                | RequestError::Parameter(_)
                | RequestError::Message(_),
            ) => Self::denied(StatusCode::BAD_REQUEST, "bad_message", text),
        };
        denial.caused_by(error)
    }
}
