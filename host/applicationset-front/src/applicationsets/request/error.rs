//! The errors of the API for ApplicationSets. Each has a status, a reason for programs and a
//! message for people.
//!
//! Security: no error tells whether a set exists that the caller may not see, or shows a path of
//! the gateway's machine.

use serde_json::json;
use std::borrow::Cow;
use std::time::Duration;

use http::StatusCode;

use crate::applicationsets::apply;
use crate::applicationsets::request::Code;
use tollgate_applicationset::{Exceeded, decode, generate, schema, selector};
use tollgate_applicationset_rights as permit;
use tollgate_front::{Denial, Refusal, api};
use tollgate_objects::ObjectName;
use tollgate_state::write;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    #[error(transparent)]
    Content(api::Error),
    #[error("the content has a type other than `application/json` and `application/yaml`")]
    ContentType,
    #[error(transparent)]
    Selector(selector::Error),
    #[error(transparent)]
    Decode(decode::Error),
    /// Keys that no field has, and required ones that are missing.
    #[error("{}", .0.iter().map(ToString::to_string).collect::<Vec<_>>().join("; "))]
    Fields(Vec<schema::Error>),
    #[error("`{key}` differs from `{wanted}`")]
    Kind { key: &'static str, wanted: &'static str },
    #[error(
        "`metadata.name` is `{name}`: it must have 1 to 253 characters of `a-z`, `0-9`, `-` and `.`, and start and end with a letter or digit"
    )]
    Name { name: String },
    #[error("the object is `{found}`, and the path names `{named}`: names do not change")]
    Renamed { found: String, named: String },
    #[error(
        "`metadata.resourceVersion` is missing: read the ApplicationSet, and send the version together with what you changed"
    )]
    NoVersion,
    /// The caller may not do this, or there is no such set: the response is the same. (403, 404;
    /// 400 if no permission is missing)
    #[error(transparent)]
    Denied(permit::Error),
    #[error(transparent)]
    Generate(#[from] generate::Error),
    /// Others were generating for longer than this set may take. (503)
    #[error("other ApplicationSets are being generated, and no slot became free within {waited:?}")]
    Busy { waited: Duration },
    /// A watch of one set ended, because no controller wrote the set's status. (504)
    #[error(
        "no ApplicationSet controller wrote the status of `{}/{}` within {waited:?}: check that \
         argocd-applicationset-controller runs and watches namespace `{}`",
        .name.namespace, .name.name, .name.namespace
    )]
    NoController { name: ObjectName, waited: Duration },
    #[error("the work was interrupted")]
    Broken,
    #[error(transparent)]
    Apply(apply::Error),
    #[error(transparent)]
    State(#[from] write::Error),
}

impl From<permit::OperationError> for Error {
    fn from(error: permit::OperationError) -> Self {
        match error {
            permit::OperationError::Generate(error) => Self::Generate(error),
            permit::OperationError::Denied(error) => Self::Denied(error),
        }
    }
}

impl Error {
    /// The error for a set that does not exist or that the caller may not see.
    pub(crate) fn not_found(name: &ObjectName) -> Self {
        Self::Denied(permit::Error::NotVisible(name.clone()))
    }

    pub(crate) fn answer(&self) -> (StatusCode, &'static str) {
        match self {
            Self::Content(error) => error.answer(),
            Self::ContentType => (StatusCode::UNSUPPORTED_MEDIA_TYPE, "bad_content_type"),
            Self::Selector(_) => (StatusCode::BAD_REQUEST, "bad_selector"),
            Self::Decode(_) | Self::Fields(_) | Self::Kind { .. } | Self::Name { .. } | Self::Renamed { .. } => {
                (StatusCode::BAD_REQUEST, "applicationset_invalid")
            }
            Self::NoVersion => (StatusCode::CONFLICT, "version_missing"),
            Self::Denied(error) => error.answer(),
            Self::Generate(error) => match error {
                generate::Error::Denied(_) => (StatusCode::FORBIDDEN, "permission_denied"),
                generate::Error::Exceeded(Exceeded::Time(_)) => (StatusCode::BAD_REQUEST, "too_slow"),
                generate::Error::Exceeded(_) => (StatusCode::BAD_REQUEST, "too_large"),
                generate::Error::Input { .. } => (StatusCode::BAD_GATEWAY, "input_unavailable"),
                generate::Error::Template { .. } => (StatusCode::BAD_REQUEST, "template_failed"),
                generate::Error::Invalid { .. } | generate::Error::Decode(_) => {
                    (StatusCode::BAD_REQUEST, "applicationset_invalid")
                }
            },
            Self::Busy { .. } => (StatusCode::SERVICE_UNAVAILABLE, "busy"),
            Self::NoController { .. } => (StatusCode::GATEWAY_TIMEOUT, "no_controller"),
            Self::Broken => (StatusCode::INTERNAL_SERVER_ERROR, "broken"),
            Self::Apply(error) => match error {
                apply::Error::Problems(_) => (StatusCode::BAD_REQUEST, "applications_invalid"),
                apply::Error::TooManyDeletions { .. } | apply::Error::DeletionsMismatch { .. } => {
                    (StatusCode::CONFLICT, "too_many_deletions")
                }
                apply::Error::Batch(failed) => failed.error.answer(),
            },
            Self::State(error) => error.answer(),
        }
    }

    pub(crate) fn grpc(&self) -> Code {
        match self {
            Self::State(write::Error::AlreadyExists(_)) => Code::AlreadyExists,
            Self::Generate(generate::Error::Exceeded(_)) => Code::ResourceExhausted,
            Self::NoVersion
            | Self::Apply(apply::Error::TooManyDeletions { .. } | apply::Error::DeletionsMismatch { .. }) => {
                Code::FailedPrecondition
            }
            _ => Code::from_http_status(self.answer().0),
        }
    }

    /// Text for the caller, without a path of the gateway's machine.
    pub(crate) fn text(&self) -> Cow<'static, str> {
        match self {
            Self::State(error) => error.public_text(),
            Self::Apply(apply::Error::Batch(failed)) => {
                let why = failed.error.public_text();
                let rollback = apply::rollback(failed, |left| left.key.to_string());
                format!("{} was not written: {why}; {rollback}", failed.key).into()
            }
            _ => self.to_string().into(),
        }
    }

    /// Everything the caller may not do or that is not valid, and how many more there are.
    pub(crate) fn refusals(&self) -> (&[tollgate_applicationset::Denial], usize) {
        match self {
            Self::Denied(permit::Error::Refused(refused)) => (refused.refusals(), refused.more()),
            Self::Generate(generate::Error::Denied(refusals)) => (refusals, 0),
            _ => (&[], 0),
        }
    }

    pub(crate) fn retry_after(&self) -> Option<u64> {
        matches!(self, Self::Busy { .. }).then_some(1)
    }
}

impl From<Error> for Denial {
    fn from(error: Error) -> Self {
        let (status, reason) = error.answer();
        let text = error.text();
        let mut denial = match reason {
            "policy_failed" => Self::failed(status, reason, text),
            _ => Self::of_api(status, reason, text),
        };
        denial.grpc = Some(error.grpc());
        denial.retry_after = error.retry_after();
        let (refusals, more_refusals) = error.refusals();
        denial.refusals = refusals.iter().map(refusal).collect();
        denial.more_refusals = more_refusals;
        denial.caused_by(error)
    }
}

/// A resource that was denied, for people and for programs.
pub(crate) fn refusal(of: &tollgate_applicationset::Denial) -> Refusal {
    Refusal {
        text: of.to_string(),
        object: json!({ "about": of.about.to_string(), "rule": of.rule, "reason": of.reason }),
    }
}
