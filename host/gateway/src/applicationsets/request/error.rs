//! The errors of the API for ApplicationSets. Each has a status, a reason for programs and a
//! message for people.
//!
//! Security: no error tells whether a set exists that the caller may not see, or shows a path of
//! the gateway's machine.

use std::borrow::Cow;
use std::time::Duration;

use http::StatusCode;

use crate::applicationsets::apply;
use crate::applicationsets::permit;
use crate::applicationsets::permit::RefusalClass;
use crate::applicationsets::request::Code;
use crate::platform::api;
use crate::projects::update;
use tollgate_applicationset::{Denial, Exceeded, decode, generate, selector};
use tollgate_state::write::WritableKind;
use tollgate_state::write::batch::BatchError;
use tollgate_state::{ObjectName, write};

/// Most objects that an error lists.
const MAX_LISTED_OBJECTS: usize = 5;

/// Why the API refuses a request.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The content cannot be read. (400, 413)
    #[error(transparent)]
    Content(api::Error),
    /// The content type is not accepted. (415)
    #[error("the content has a type other than `application/json` and `application/yaml`")]
    ContentType,
    /// The query cannot be understood. (400)
    #[error("the query {why}")]
    Query {
        /// What is wrong with it.
        why: String,
    },
    /// `?selector=` is not a valid selector. (400)
    #[error(transparent)]
    Selector(selector::Error),
    /// The object is not an ApplicationSet. (400)
    #[error(transparent)]
    Decode(decode::Error),
    /// The object has another `apiVersion` or `kind`. (400)
    #[error("`{key}` is another one than `{wanted}`")]
    Kind {
        /// Which key.
        key: &'static str,
        /// What it has to be.
        wanted: &'static str,
    },
    /// The object's name is not valid in Kubernetes. (400)
    #[error(
        "`metadata.name` is `{name}`: 1 to 253 of `a-z`, `0-9`, `-` and `.` are wanted, the first and the last a letter or digit"
    )]
    Name {
        /// As it was sent.
        name: String,
    },
    /// A `PUT` whose object has another name than its path. (400)
    #[error("the object is `{found}`, and the path names `{named}`: names do not change")]
    Renamed {
        /// As the object has it.
        found: String,
        /// As the path has it.
        named: String,
    },
    /// The content does not name the version that it changes. (409)
    #[error(
        "`metadata.resourceVersion` is missing: read the ApplicationSet, and send the version together with what you changed"
    )]
    NoVersion,
    /// The caller may not do this, or there is no such set: the response is the same. (403, 404;
    /// 400 if no permission is missing)
    #[error(transparent)]
    Denied(permit::Error),
    /// The set cannot be generated. (400; 403; 502 if an input cannot be read)
    #[error(transparent)]
    Generate(#[from] generate::Error),
    /// Others were generating for longer than this set may take. (503)
    #[error("other ApplicationSets are being generated, and no place was free within {waited:?}")]
    Busy {
        /// How long the request waited.
        waited: Duration,
    },
    /// The work ended unexpectedly. (500)
    #[error("the work broke off")]
    Broken,
    /// The plan was not carried out. (409, 502, 503)
    #[error(transparent)]
    Apply(apply::Error),
    /// The store of the state refused.
    #[error(transparent)]
    State(#[from] write::Error),
}

impl Error {
    /// The error for a set that does not exist or that the caller may not see.
    pub fn not_found(name: &ObjectName) -> Self {
        Self::Denied(permit::Error::NotVisible { name: name.clone() })
    }

    /// HTTP status.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::Content(error) => error.status(),
            Self::ContentType => StatusCode::UNSUPPORTED_MEDIA_TYPE,
            Self::Query { .. }
            | Self::Selector(_)
            | Self::Decode(_)
            | Self::Kind { .. }
            | Self::Name { .. }
            | Self::Renamed { .. } => StatusCode::BAD_REQUEST,
            Self::NoVersion | Self::Denied(permit::Error::PlanMismatch) => StatusCode::CONFLICT,
            Self::Denied(error) => match error.class() {
                RefusalClass::PermissionDenied | RefusalClass::Undecided => StatusCode::FORBIDDEN,
                RefusalClass::InvalidArgument => StatusCode::BAD_REQUEST,
                RefusalClass::NotFound => StatusCode::NOT_FOUND,
            },
            Self::Generate(error) => match error {
                generate::Error::Denied(_) => StatusCode::FORBIDDEN,
                generate::Error::Input { .. } => StatusCode::BAD_GATEWAY,
                generate::Error::Exceeded(_)
                | generate::Error::Template { .. }
                | generate::Error::Invalid { .. }
                | generate::Error::Decode(_) => StatusCode::BAD_REQUEST,
            },
            Self::Busy { .. } => StatusCode::SERVICE_UNAVAILABLE,
            Self::Broken => StatusCode::INTERNAL_SERVER_ERROR,
            Self::Apply(error) => match error {
                apply::Error::Problems(_) => StatusCode::BAD_REQUEST,
                apply::Error::TooManyDeletions { .. } | apply::Error::DeletionsMismatch { .. } => StatusCode::CONFLICT,
                apply::Error::BatchError(failed) => update::state_status(&failed.error),
            },
            Self::State(error) => update::state_status(error),
        }
    }

    /// The gRPC status code.
    pub fn grpc(&self) -> Code {
        match self {
            Self::State(write::Error::AlreadyExists(_)) => Code::AlreadyExists,
            Self::Generate(generate::Error::Exceeded(_)) => Code::ResourceExhausted,
            Self::NoVersion
            | Self::Apply(apply::Error::TooManyDeletions { .. } | apply::Error::DeletionsMismatch { .. }) => {
                Code::FailedPrecondition
            }
            _ => Code::from_http_status(self.status()),
        }
    }

    /// Stable reason for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::Content(error) => error.code(),
            Self::ContentType => "bad_content_type",
            Self::Query { .. } => "bad_query",
            Self::Selector(_) => "bad_selector",
            Self::Decode(_) | Self::Kind { .. } | Self::Name { .. } | Self::Renamed { .. } => "applicationset_invalid",
            Self::NoVersion => "version_missing",
            Self::Denied(error) => denied_code(error),
            Self::Generate(error) => match error {
                generate::Error::Denied(_) => "permission_denied",
                generate::Error::Exceeded(Exceeded::Time { .. }) => "too_slow",
                generate::Error::Exceeded(_) => "too_large",
                generate::Error::Input { .. } => "input_unavailable",
                generate::Error::Template { .. } => "template_failed",
                generate::Error::Invalid { .. } | generate::Error::Decode(_) => "applicationset_invalid",
            },
            Self::Busy { .. } => "busy",
            Self::Broken => "broken",
            Self::Apply(error) => match error {
                apply::Error::Problems(_) => "applications_invalid",
                apply::Error::TooManyDeletions { .. } | apply::Error::DeletionsMismatch { .. } => "too_many_deletions",
                apply::Error::BatchError(failed) => state_code(&failed.error),
            },
            Self::State(error) => state_code(error),
        }
    }

    /// Text for the caller.
    pub fn text(&self) -> Cow<'static, str> {
        match self {
            Self::State(error) => update::state_text(error),
            Self::Apply(apply::Error::BatchError(failed)) => rollback_text(failed).into(),
            Self::Apply(error) => error.to_string().into(),
            Self::Content(_)
            | Self::ContentType
            | Self::Query { .. }
            | Self::Selector(_)
            | Self::Decode(_)
            | Self::Kind { .. }
            | Self::Name { .. }
            | Self::Renamed { .. }
            | Self::NoVersion
            | Self::Denied(_)
            | Self::Generate(_)
            | Self::Busy { .. }
            | Self::Broken => self.to_string().into(),
        }
    }

    /// Everything the caller may not do or that is not valid, and how many more there are.
    pub fn refusals(&self) -> (&[Denial], usize) {
        match self {
            Self::Denied(permit::Error::Refused(refused)) => (refused.refusals(), refused.more()),
            Self::Generate(generate::Error::Denied(refusals)) => (refusals, 0),
            _ => (&[], 0),
        }
    }

    /// Whole seconds until a retry makes sense.
    pub fn retry_after(&self) -> Option<u64> {
        matches!(self, Self::Busy { .. }).then_some(1)
    }
}

/// The text about a failed change and its rollback, without a path of the gateway's machine.
fn rollback_text(failed: &BatchError) -> String {
    let why = update::state_text(&failed.error);
    let rest = match (failed.undone.len(), failed.not_undone.as_slice()) {
        (0, []) => "nothing was changed".to_owned(),
        (undone, []) => format!("all {undone} objects written before it are again as they were"),
        (undone, left) => {
            let named: Vec<String> = left
                .iter()
                .take(MAX_LISTED_OBJECTS)
                .map(|left| left.key.to_string())
                .collect();
            let (named, left) = (named.join(", "), left.len());
            format!("of those written before it, {undone} are again as they were, and {left} are not, such as {named}")
        }
    };
    format!("{} was not written: {why}; {rest}", failed.key)
}

/// The stable reason of a store error. For an object that does not exist it names the kind.
fn state_code(error: &write::Error) -> &'static str {
    match error {
        write::Error::NotFound(key) => match key.kind {
            WritableKind::ApplicationSet => "applicationset_not_found",
            WritableKind::Application => "application_not_found",
            WritableKind::AppProject => update::state_code(error),
        },
        other => update::state_code(other),
    }
}

fn denied_code(error: &permit::Error) -> &'static str {
    use permit::Error;
    match error {
        Error::Namespace { .. } => "namespace_not_permitted",
        Error::NotVisible { .. } => "applicationset_not_found",
        Error::Refused(refused) if refused.class() == RefusalClass::InvalidArgument => "applications_invalid",
        Error::Refused(_) | Error::Denied { .. } => "permission_denied",
        Error::Templated => "project_templated",
        Error::UnknownProject { .. } => "project_not_found",
        Error::Exists => "exists_differently",
        Error::Policy(_) => "policy_failed",
        Error::PlanMismatch => "conflict",
    }
}
