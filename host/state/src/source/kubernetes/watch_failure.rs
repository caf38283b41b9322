//! Tells operators why a watch does not work, and which rule or definition fixes it.
//!
//! Security: no text contains a value of an object.

use kube::core::Status;
use kube::runtime::watcher;

use super::kinds::WatchSpec;
use crate::kubernetes::{describe_client_error, short};
use tollgate_core::diagnostic::{Diagnostic, Severity};

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct WatchFailure {
    pub(super) class: FailureClass,
    message: String,
    hint: Option<String>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum FailureClass {
    /// 404: the kind does not exist.
    MissingKind,
    /// 403.
    Forbidden,
    Other,
}

impl WatchFailure {
    pub(super) fn of(spec: &WatchSpec, error: &watcher::Error) -> Self {
        let what = spec.resource();
        let Some(status) = status(error) else {
            return Self::other(format!("{what} cannot be watched: {}", short(&causes(error))));
        };
        let message = short(&status.message);
        match status.code {
            404 => Self {
                class: FailureClass::MissingKind,
                message: format!("there are no {what}: their definition is not installed"),
                hint: Some(format!("install the CustomResourceDefinition `{what}`")),
            },
            403 => Self {
                class: FailureClass::Forbidden,
                message: format!("{what} may not be watched: {message}"),
                hint: Some(rbac_rule(spec)),
            },
            code => Self::other(format!(
                "{what} cannot be watched, the API server answers {code}: {message}"
            )),
        }
    }

    /// Whether an error only means that the watch ended and must be restarted, because the server
    /// forgot its version.
    pub(super) fn is_expired(error: &watcher::Error) -> bool {
        // A list that ends while it is read means that the server cannot give it.
        let is_list = matches!(error, watcher::Error::InitialListFailed(_));
        !is_list && status(error).is_some_and(|status| status.code == 410)
    }

    /// Whether another client might not fail: no answer was read, or the credential is refused.
    pub(super) fn is_of_client(error: &watcher::Error) -> bool {
        status(error).is_none_or(|status| status.code == 401)
    }

    /// A watch that ended by a bug of the gateway.
    pub(super) fn broken(spec: &WatchSpec) -> Self {
        let message = format!(
            "the watch of {} ended by an error in the gateway and begins anew",
            spec.resource()
        );
        Self::other(message)
    }

    pub(super) fn other(message: String) -> Self {
        Self {
            class: FailureClass::Other,
            message,
            hint: None,
        }
    }

    /// The failure as an error, preceded by `before`, which names the consequence.
    pub(super) fn error(&self, before: &str) -> Diagnostic {
        Diagnostic {
            severity: Severity::Error,
            location: None,
            message: format!("{before}{}", self.message),
            hint: self.hint.clone(),
        }
    }

    /// The failure as a warning, about a kind that the gateway can do without.
    pub(super) fn warning(&self) -> Diagnostic {
        Diagnostic {
            severity: Severity::Warning,
            ..self.error("")
        }
    }
}

fn status(error: &watcher::Error) -> Option<&Status> {
    match error {
        watcher::Error::WatchError(status)
        | watcher::Error::InitialListFailed(kube::Error::Api(status))
        | watcher::Error::WatchStartFailed(kube::Error::Api(status))
        | watcher::Error::WatchFailed(kube::Error::Api(status)) => Some(status),
        watcher::Error::InitialListFailed(_)
        | watcher::Error::WatchStartFailed(_)
        | watcher::Error::WatchFailed(_)
        | watcher::Error::NoResourceVersion => None,
    }
}

/// SECURITY: the library's message may quote what it read.
fn causes(error: &watcher::Error) -> String {
    match error {
        watcher::Error::InitialListFailed(error)
        | watcher::Error::WatchStartFailed(error)
        | watcher::Error::WatchFailed(error) => describe_client_error(error),
        watcher::Error::WatchError(_) | watcher::Error::NoResourceVersion => error.to_string(),
    }
}

fn rbac_rule(spec: &WatchSpec) -> String {
    let names = spec.name.map(|name| format!(", resourceNames: [{name}]"));
    let role = match &spec.namespace {
        Some(namespace) => format!("a Role in namespace `{namespace}`"),
        None => "a ClusterRole".to_owned(),
    };
    format!(
        "grant it by {role} with the rule `{{apiGroups: [{:?}], resources: [{}]{}, verbs: [list, watch]}}`",
        spec.group(),
        spec.kind.plural(),
        names.unwrap_or_default(),
    )
}
