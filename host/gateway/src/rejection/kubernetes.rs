//! Maps the errors of the Kubernetes front's stages to answers.
//!
//! Security: every 401 has the same text, so that nobody learns which agents or tokens exist.

use http::StatusCode;

use super::Answer;
use crate::discovery;
use crate::{applications, kubernetes};
use tollgate_identity::access;
use tollgate_identity::authenticate::agent;
use tollgate_identity::sessions::Ending;

/// The text of every 401.
const UNAUTHORIZED: &str = "Unauthorized";

pub(super) fn unpresented(error: &agent::Error) -> Answer {
    use agent::Error;
    match error {
        Error::None => Answer::denied(StatusCode::UNAUTHORIZED, "no_credential", UNAUTHORIZED),
        Error::Unknown => Answer::denied(StatusCode::UNAUTHORIZED, "unknown_credential", UNAUTHORIZED),
        Error::Malformed(_) => Answer::denied(StatusCode::BAD_REQUEST, "malformed_credential", error.to_string()),
    }
}

pub(super) fn no_access(error: &access::Error) -> Answer {
    use access::Error;
    match error {
        Error::Refused { .. } => Answer::denied(StatusCode::UNAUTHORIZED, "access_refused", UNAUTHORIZED),
        Error::JobNotAllowed => Answer::denied(StatusCode::FORBIDDEN, "job_not_allowed", error.to_string()),
        Error::Unavailable { .. } => Answer::failed(
            StatusCode::INTERNAL_SERVER_ERROR,
            "access_unavailable",
            "failed to authorize the user session",
        ),
    }
}

pub(super) fn unpermitted(error: &kubernetes::permit::Error) -> Answer {
    use kubernetes::permit::Error;
    let text = error.to_string();
    match error {
        Error::Denied { .. } => Answer::denied(StatusCode::FORBIDDEN, "permission_denied", text),
        Error::Identity { .. } => Answer::denied(StatusCode::FORBIDDEN, "unusable_identity", text),
        Error::Policy { .. } => Answer::failed(StatusCode::FORBIDDEN, "policy_failed", text),
    }
}

pub(super) fn unpermitted_application(error: &applications::permit::Error) -> Answer {
    use applications::permit::Error;
    let text = error.to_string();
    match error {
        // Only the record says whether the Application exists.
        Error::NotYours { .. } | Error::NoSync { .. } | Error::NoRight { .. } | Error::Denied { .. } => {
            Answer::denied(StatusCode::FORBIDDEN, "permission_denied", text)
        }
        Error::Project { .. } => Answer::denied(StatusCode::FORBIDDEN, "project_refused", text),
        Error::Destination { .. } => Answer::denied(StatusCode::FORBIDDEN, "unusable_destination", text),
        Error::Identity { .. } | Error::Extra { .. } | Error::Gateway { .. } => {
            Answer::denied(StatusCode::FORBIDDEN, "unusable_identity", text)
        }
        Error::Policy { .. } => Answer::failed(StatusCode::FORBIDDEN, "policy_failed", text),
    }
}

pub(super) fn undiscovered(error: &discovery::Error) -> Answer {
    use discovery::Error;
    match error {
        Error::Unknown { .. } => Answer::denied(StatusCode::NOT_FOUND, "resource_unknown", error.to_string()),
        Error::Unavailable { .. } => Answer {
            retry_after: Some(1),
            ..Answer::failed(StatusCode::SERVICE_UNAVAILABLE, "discovery_failed", error.to_string())
        },
    }
}

/// It cannot be determined whether the caller was revoked. Another replica may know.
pub(super) fn store_unavailable() -> Answer {
    Answer {
        retry_after: Some(1),
        ..Answer::failed(
            StatusCode::SERVICE_UNAVAILABLE,
            "store_unavailable",
            "the store is unavailable, try again later",
        )
    }
}

pub(super) fn ended(ending: Ending) -> Answer {
    match ending {
        Ending::Revoked | Ending::Expired | Ending::Withdrawn => {
            Answer::denied(StatusCode::UNAUTHORIZED, ending.code(), UNAUTHORIZED)
        }
        Ending::StoreUnavailable => store_unavailable(),
    }
}
