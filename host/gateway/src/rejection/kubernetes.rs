//! Maps the errors of the Kubernetes front's stages to responses.
//!
//! Security: every 401 has the same text, so that it does not reveal which agents or tokens exist.

use http::StatusCode;

use super::ErrorResponse;
use crate::{applications, kubernetes};
use tollgate_cluster::discovery;
use tollgate_identity::access;
use tollgate_identity::authenticate::k8s_proxy;
use tollgate_identity::sessions::EndReason;

/// The text of every 401.
const UNAUTHORIZED: &str = "Unauthorized";

pub(super) fn agent_credential_error(error: &k8s_proxy::Error) -> ErrorResponse {
    use k8s_proxy::Error;
    match error {
        Error::NoCredential => ErrorResponse::denied(StatusCode::UNAUTHORIZED, "no_credential", UNAUTHORIZED),
        Error::UnknownKind => ErrorResponse::denied(StatusCode::UNAUTHORIZED, "unknown_credential", UNAUTHORIZED),
        Error::Malformed(_) => {
            ErrorResponse::denied(StatusCode::BAD_REQUEST, "malformed_credential", error.to_string())
        }
    }
}

pub(super) fn access_error(error: &access::Error) -> ErrorResponse {
    use access::Error;
    match error {
        Error::Refused { .. } => ErrorResponse::denied(StatusCode::UNAUTHORIZED, "access_refused", UNAUTHORIZED),
        Error::JobNotAllowed => ErrorResponse::denied(StatusCode::FORBIDDEN, "job_not_allowed", error.to_string()),
        Error::Unavailable { .. } => ErrorResponse::failed(
            StatusCode::INTERNAL_SERVER_ERROR,
            "access_unavailable",
            "failed to authorize the user session",
        ),
    }
}

pub(super) fn kubernetes_error(error: &kubernetes::permit::Error) -> ErrorResponse {
    use kubernetes::permit::Error;
    let text = error.to_string();
    match error {
        Error::Denied { .. } => ErrorResponse::denied(StatusCode::FORBIDDEN, "permission_denied", text),
        Error::Identity { .. } => ErrorResponse::denied(StatusCode::FORBIDDEN, "unusable_identity", text),
        Error::Policy { .. } => ErrorResponse::failed(StatusCode::FORBIDDEN, "policy_failed", text),
    }
}

pub(super) fn application_error(error: &applications::permit::Error) -> ErrorResponse {
    use applications::permit::Error;
    let text = error.to_string();
    match error {
        // Only the record says whether the Application exists.
        Error::NotVisible { .. } | Error::SyncDenied { .. } | Error::PermissionDenied { .. } | Error::Denied { .. } => {
            ErrorResponse::denied(StatusCode::FORBIDDEN, "permission_denied", text)
        }
        Error::Project { .. } => ErrorResponse::denied(StatusCode::FORBIDDEN, "project_refused", text),
        Error::Destination { .. } => ErrorResponse::denied(StatusCode::FORBIDDEN, "unusable_destination", text),
        Error::Identity { .. } | Error::Extra { .. } | Error::GatewayIdentityRefused { .. } => {
            ErrorResponse::denied(StatusCode::FORBIDDEN, "unusable_identity", text)
        }
        Error::Policy { .. } => ErrorResponse::failed(StatusCode::FORBIDDEN, "policy_failed", text),
    }
}

pub(super) fn discovery_error(error: &discovery::Error) -> ErrorResponse {
    use discovery::Error;
    match error {
        Error::Unknown { .. } => ErrorResponse::denied(StatusCode::NOT_FOUND, "resource_unknown", error.to_string()),
        Error::Unavailable { .. } => ErrorResponse {
            retry_after: Some(1),
            ..ErrorResponse::failed(StatusCode::SERVICE_UNAVAILABLE, "discovery_failed", error.to_string())
        },
    }
}

/// The response when it cannot be determined whether the caller was revoked. Another replica may
/// know.
pub(super) fn store_unavailable() -> ErrorResponse {
    ErrorResponse {
        retry_after: Some(1),
        ..ErrorResponse::failed(
            StatusCode::SERVICE_UNAVAILABLE,
            "store_unavailable",
            "the store is unavailable, try again later",
        )
    }
}

pub(super) fn ended(ending: EndReason) -> ErrorResponse {
    match ending {
        EndReason::Revoked | EndReason::Expired | EndReason::Withdrawn => {
            ErrorResponse::denied(StatusCode::UNAUTHORIZED, ending.code(), UNAUTHORIZED)
        }
        EndReason::StoreUnavailable => store_unavailable(),
    }
}
