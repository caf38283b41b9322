//! Maps the errors of the Kubernetes front's stages to responses.
//!
//! Security: every 401 has the same text, so that it does not reveal which agents or tokens exist.

use http::StatusCode;

use super::{ErrorResponse, denied, failed};
use crate::{applications, control_plane, kubernetes};
use tollgate_cluster::discovery;
use tollgate_identity::access;
use tollgate_identity::authenticate::k8s_proxy;
use tollgate_identity::sessions::EndReason;

/// The text of every 401.
const UNAUTHORIZED: &str = "Unauthorized";

pub(super) fn agent_credential_error(error: &k8s_proxy::Error) -> ErrorResponse {
    use k8s_proxy::Error;
    match error {
        Error::NoCredential => denied(StatusCode::UNAUTHORIZED, "no_credential", UNAUTHORIZED),
        Error::UnknownKind => denied(StatusCode::UNAUTHORIZED, "unknown_credential", UNAUTHORIZED),
        Error::Malformed(_) => denied(StatusCode::BAD_REQUEST, "malformed_credential", error.to_string()),
    }
}

pub(super) fn access_error(error: &access::Error) -> ErrorResponse {
    use access::Error;
    match error {
        Error::Refused { .. } => denied(StatusCode::UNAUTHORIZED, "access_refused", UNAUTHORIZED),
        Error::JobNotAllowed => denied(StatusCode::FORBIDDEN, "job_not_allowed", error.to_string()),
        Error::Unavailable { .. } => {
            let text = "failed to authorize the user session";
            failed(StatusCode::INTERNAL_SERVER_ERROR, "access_unavailable", text)
        }
    }
}

pub(super) fn kubernetes_error(error: &kubernetes::permit::Error) -> ErrorResponse {
    use kubernetes::permit::Error;
    let text = error.to_string();
    match error {
        Error::Denied(..) => denied(StatusCode::FORBIDDEN, "permission_denied", text),
        Error::Identity(..) => denied(StatusCode::FORBIDDEN, "unusable_identity", text),
        Error::Policy(..) => failed(StatusCode::FORBIDDEN, "policy_failed", text),
    }
}

pub(super) fn application_error(error: &applications::permit::Error) -> ErrorResponse {
    use applications::permit::Error;
    let text = error.to_string();
    match error {
        // Only the record says whether the Application exists.
        Error::NotVisible { .. } | Error::SyncDenied { .. } | Error::PermissionDenied { .. } | Error::Denied { .. } => {
            denied(StatusCode::FORBIDDEN, "permission_denied", text)
        }
        Error::Project { .. } => denied(StatusCode::FORBIDDEN, "project_refused", text),
        Error::Destination { .. } => denied(StatusCode::FORBIDDEN, "unusable_destination", text),
        Error::Source { .. } => denied(StatusCode::FORBIDDEN, "source_refused", text),
        Error::SyncWindow { .. } => denied(StatusCode::FORBIDDEN, "sync_window_closed", text),
        Error::Identity { .. } | Error::Extra { .. } | Error::GatewayIdentityRefused { .. } => {
            denied(StatusCode::FORBIDDEN, "unusable_identity", text)
        }
        Error::Policy { .. } => failed(StatusCode::FORBIDDEN, "policy_failed", text),
    }
}

pub(super) fn control_plane_error(error: &control_plane::permit::Error) -> ErrorResponse {
    use control_plane::permit::Error;
    let respond = match error {
        Error::Policy(..) => failed,
        Error::NotVisible(_)
        | Error::Impersonation(_)
        | Error::NoApplication(_)
        | Error::WithoutAccount(_)
        | Error::Object(_)
        | Error::UnknownObject(_)
        | Error::Project(_)
        | Error::Subresource(_)
        | Error::NoReader(_)
        | Error::Denied(..) => denied,
    };
    respond(StatusCode::FORBIDDEN, control_plane_reason(error), error.to_string())
}

/// The reason code of a refusal.
pub(crate) fn control_plane_reason(error: &control_plane::permit::Error) -> &'static str {
    use control_plane::permit::Error;
    match error {
        Error::NotVisible(_) | Error::Denied(..) => "permission_denied",
        Error::Impersonation(_) => "client_impersonates",
        Error::NoApplication(_) => "account_of_no_application",
        Error::WithoutAccount(_) => "write_without_account",
        Error::Object(_) => "object_of_another_application",
        Error::UnknownObject(_) => "object_unknown",
        Error::Project(_) => "project_refused",
        Error::Subresource(_) => "subresource_refused",
        Error::NoReader(_) => "unusable_identity",
        Error::Policy(..) => "policy_failed",
    }
}

pub(super) fn discovery_error(error: &discovery::Error) -> ErrorResponse {
    use discovery::Error;
    match error {
        Error::Unknown { .. } => denied(StatusCode::NOT_FOUND, "resource_unknown", error.to_string()),
        Error::Unavailable { .. } => {
            failed(StatusCode::SERVICE_UNAVAILABLE, "discovery_failed", error.to_string()).retry_after(Some(1))
        }
    }
}

/// The response when it cannot be determined whether the caller was revoked. Another replica may
/// know.
pub(super) fn store_unavailable() -> ErrorResponse {
    let text = "the store is unavailable, try again later";
    failed(StatusCode::SERVICE_UNAVAILABLE, "store_unavailable", text).retry_after(Some(1))
}

/// The response when it cannot be determined whether Argo CD revoked the caller's token.
pub(super) fn revocations_unavailable() -> ErrorResponse {
    let text = "Argo CD's list of revoked tokens is unavailable, try again later";
    let code = EndReason::RevocationsUnavailable.code();
    failed(StatusCode::SERVICE_UNAVAILABLE, code, text).retry_after(Some(1))
}

/// The response to a request that was not answered when the gateway stopped. Another replica answers it.
pub(super) fn stopping() -> ErrorResponse {
    let text = "the gateway is stopping, try again";
    failed(StatusCode::SERVICE_UNAVAILABLE, EndReason::Stopping.code(), text).retry_after(Some(1))
}

pub(super) fn ended(ending: EndReason) -> ErrorResponse {
    match ending {
        EndReason::Revoked | EndReason::Expired | EndReason::Withdrawn => {
            denied(StatusCode::UNAUTHORIZED, ending.code(), UNAUTHORIZED)
        }
        EndReason::StoreUnavailable => store_unavailable(),
        EndReason::RevocationsUnavailable => revocations_unavailable(),
        EndReason::Stopping => stopping(),
    }
}
