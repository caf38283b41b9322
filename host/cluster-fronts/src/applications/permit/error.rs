//! Why nobody, or not this caller, gets into the cluster of an Application, and the texts for it.

use crate::applications::permit::evaluator::DenyReason;
use http::StatusCode;
use tollgate_core::diagnostic::one_line;
use tollgate_front::Denial;
use tollgate_objects::destination;
use tollgate_policy::impersonate;
use tollgate_policy::impersonate::service_account;
use tollgate_rego as rego;

const GATEWAY_REFUSED: &str = "no service account acts for the application, and the gateway does not act in its own \
                               name (`applications.gatewayIdentity`)";
const NO_PROJECT: &str = "there is no such project for the application, or it takes none of its namespace";
/// Most bytes of a repository that a refusal repeats.
const SHOWN_BYTES: usize = 256;

/// Why a request is refused. The text is for the caller, in kube-apiserver's style.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Error {
    /// The Application does not exist, or the caller may not see it: the text is the same.
    #[error("{0}")]
    NotVisible(String),
    #[error("{0}")]
    SyncDenied(String),
    /// The caller may see the Application but lacks another permission that the request needs.
    #[error("{0}")]
    PermissionDenied(String),
    /// No account acts, and the settings do not let the gateway's own identity act.
    #[error("{0}")]
    GatewayIdentityRefused(String),
    /// The project does not exist, or it accepts no Applications of that namespace.
    #[error("{0}")]
    Project(String),
    /// The Application's destination does not identify exactly one cluster.
    #[error("{0}")]
    Destination(String, #[source] destination::Error),
    /// The project does not permit a source of the Application.
    #[error("{0}")]
    Source(String),
    /// The project's sync windows do not permit changes now.
    #[error("{0}")]
    SyncWindow(String),
    /// Applications act as accounts, and this one has none.
    #[error("{0}")]
    Identity(String, #[source] service_account::Error),
    /// The `extra` about the caller cannot be expressed.
    #[error("{0}")]
    Extra(String, #[source] impersonate::Error),
    /// The policy denied the request, or a check did that the policy cannot overrule.
    #[error("{0}")]
    Denied(String),
    #[error("{0}")]
    Policy(String, #[source] rego::Error),
}

impl DenyReason {
    /// - `status_message`: makes the text for the caller out of a reason.
    pub(super) fn to_error(&self, status_message: impl Fn(&str) -> String) -> Error {
        match self {
            Self::GatewayRefused => Error::GatewayIdentityRefused(status_message(GATEWAY_REFUSED)),
            Self::Project => Error::Project(status_message(NO_PROJECT)),
            Self::Destination(source) => {
                let message = status_message(&source.to_string());
                Error::Destination(message, source.clone())
            }
            Self::Source(repository) => {
                let repository = one_line(repository, SHOWN_BYTES);
                let reason = format!(
                    "the project does not permit the application's source repository `{repository}`: sourceRepos"
                );
                Error::Source(status_message(&reason))
            }
            Self::Identity(source) => {
                let message = status_message(&source.public_message());
                Error::Identity(message, source.clone())
            }
            Self::Extra(source) => {
                let message = status_message("the caller's identity cannot be told to the cluster");
                Error::Extra(message, source.clone())
            }
        }
    }
}

impl From<Error> for Denial {
    fn from(error: Error) -> Self {
        let text = error.to_string();
        let denied = |reason| Self::denied(StatusCode::FORBIDDEN, reason, text.clone());
        let denial = match &error {
            // Only the record says whether the Application exists.
            Error::NotVisible { .. }
            | Error::SyncDenied { .. }
            | Error::PermissionDenied { .. }
            | Error::Denied { .. } => denied("permission_denied"),
            Error::Project { .. } => denied("project_refused"),
            Error::Destination { .. } => denied("unusable_destination"),
            Error::Source { .. } => denied("source_refused"),
            Error::SyncWindow { .. } => denied("sync_window_closed"),
            Error::Identity { .. } | Error::Extra { .. } | Error::GatewayIdentityRefused { .. } => {
                denied("unusable_identity")
            }
            Error::Policy { .. } => Self::failed(StatusCode::FORBIDDEN, "policy_failed", text),
        };
        denial.caused_by(error)
    }
}
