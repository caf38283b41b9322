//! [`Denial`]: why a front does not answer a request, and what the caller receives.
//!
//! The errors that several fronts share become denials here, in one exhaustive match each. A front has one such
//! match for its own errors.
//!
//! Security: the public text shows no internals, and does not reveal whether something exists that the caller may
//! not see. Everything else about an error goes only to the record.

use std::borrow::Cow;
use std::error::Error as StdError;
use std::ops::{Deref, DerefMut};

use http::StatusCode;
use serde_json::{Map, Value};

use crate::grpc::Code;
use tollgate_core::diagnostic::with_causes;
use tollgate_proxy::record::Outcome;

mod reasons;
mod shared;

pub use reasons::{REASONS, Reason};
pub use shared::AccessEnded;

/// Why a request is not answered. It is boxed, because results are passed on by value.
#[derive(Debug)]
pub struct Denial(Box<Refused>);

/// What a [`Denial`] says.
#[derive(Debug)]
pub struct Refused {
    /// HTTP status.
    pub status: StatusCode,
    /// Stable reason code in snake case, for programs and metric labels.
    pub reason: &'static str,
    /// The public text: one sentence without final period.
    pub message: Cow<'static, str>,
    /// Whole seconds until a retry makes sense.
    pub retry_after: Option<u64>,
    /// The provider's code, if a credential is not there.
    pub code: Option<String>,
    /// The gRPC status code, if the HTTP status does not determine it.
    pub grpc: Option<Code>,
    /// Everything that is refused, if the message does not say it all.
    pub refusals: Vec<Refusal>,
    /// Number of refusals that are left out of `refusals`.
    pub more_refusals: usize,
    /// [`Outcome::Denied`] or [`Outcome::Failed`].
    pub outcome: Outcome,
    /// Status and text of Argo CD's extension handler in this case, if they differ.
    ///
    /// Source: Argo CD, `CallExtension`.
    pub as_argocd: Option<(StatusCode, Cow<'static, str>)>,
    /// Whether the client reads nothing but the format of kube-apiserver, wherever the request failed.
    pub is_for_kubernetes: bool,
    cause: Option<Box<dyn StdError + Send + Sync>>,
}

/// One of several things that are refused.
#[derive(Clone, Debug)]
pub struct Refusal {
    /// For people, in one line.
    pub text: String,
    /// For programs.
    pub object: Value,
}

impl Denial {
    /// Refused by authentication, policy, a plugin or a limit.
    pub fn denied(status: StatusCode, reason: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Outcome::Denied, status, reason, message.into())
    }

    /// A stage could not do its work.
    pub fn failed(status: StatusCode, reason: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        Self::new(Outcome::Failed, status, reason, message.into())
    }

    /// The answer of an API, whose own failures are its statuses from 500 on.
    pub fn of_api(status: StatusCode, reason: &'static str, message: impl Into<Cow<'static, str>>) -> Self {
        match status.is_server_error() {
            true => Self::failed(status, reason, message),
            false => Self::denied(status, reason, message),
        }
    }

    /// 404: nothing is served at this path.
    pub fn not_found() -> Self {
        Self::denied(StatusCode::NOT_FOUND, "not_found", "nothing is served here")
    }

    /// 500: a stage panicked.
    pub fn panicked() -> Self {
        let text = "the gateway could not answer the request";
        Self::failed(StatusCode::INTERNAL_SERVER_ERROR, "panic", text).with_detail("a stage panicked")
    }

    fn new(outcome: Outcome, status: StatusCode, reason: &'static str, message: Cow<'static, str>) -> Self {
        // Not in a release: a reason that is missing in the list must not turn a refusal into a panic.
        debug_assert!(
            reasons::is_listed(reason, status.as_u16()),
            "`{reason}` with {status} is missing in host/front/src/denial/reasons.rs"
        );
        Self(Box::new(Refused {
            status,
            reason,
            message,
            retry_after: None,
            code: None,
            grpc: None,
            refusals: Vec::new(),
            more_refusals: 0,
            outcome,
            as_argocd: None,
            is_for_kubernetes: false,
            cause: None,
        }))
    }

    /// With whole seconds until a retry makes sense.
    #[must_use]
    pub fn retry_after(mut self, seconds: Option<u64>) -> Self {
        self.retry_after = seconds;
        self
    }

    /// With the error that it was made of, for operators.
    #[must_use]
    pub fn caused_by(mut self, cause: impl StdError + Send + Sync + 'static) -> Self {
        self.cause = Some(Box::new(cause));
        self
    }

    /// With a text for operators that differs from the public one.
    #[must_use]
    pub fn with_detail(mut self, text: impl Into<String>) -> Self {
        self.cause = Some(text.into().into());
        self
    }

    /// The error that it was made of, if it is of this type.
    pub fn cause<E: StdError + 'static>(&self) -> Option<&E> {
        self.cause.as_deref()?.downcast_ref()
    }

    /// Text for operators: the whole chain of causes.
    pub fn detail(&self) -> String {
        match &self.cause {
            Some(cause) => with_causes(&**cause),
            None => self.message.clone().into_owned(),
        }
    }
}

impl Refused {
    /// Status and text for the caller: those of this gateway, or of Argo CD's extension handler.
    pub fn public(&self, as_argocd: bool) -> (StatusCode, &str) {
        match &self.as_argocd {
            Some((status, message)) if as_argocd => (*status, message),
            Some(_) | None => (self.status, &self.message),
        }
    }

    /// What a response says of the refusals.
    pub fn refusal_members(&self) -> Map<String, Value> {
        refusal_members(&self.refusals, self.more_refusals)
    }

    /// The gRPC status code.
    pub fn grpc(&self) -> Code {
        self.grpc.unwrap_or_else(|| Code::from_http_status(self.status))
    }
}

impl Deref for Denial {
    type Target = Refused;

    fn deref(&self) -> &Refused {
        &self.0
    }
}

impl DerefMut for Denial {
    fn deref_mut(&mut self) -> &mut Refused {
        &mut self.0
    }
}

/// What a response says of refusals, of which `more` are left out.
pub fn refusal_members(refusals: &[Refusal], more: usize) -> Map<String, Value> {
    let listed = refusals.iter().map(|refusal| refusal.object.clone());
    let mut members = Map::from_iter([("refusals".to_owned(), listed.collect())]);
    if more > 0 {
        members.insert("moreRefusals".to_owned(), more.into());
    }
    members
}
