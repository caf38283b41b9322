//! Decodes the content of a PUT of the API for AppProjects, and maps each refusal to a status, a
//! reason and a message.
//!
//! Security: no message shows a path of the gateway's machine.

use std::borrow::Cow;

use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use tollgate_config::ServiceAccountSemantics;
use tollgate_front::Denial;
use tollgate_front::api;
use tollgate_state::write::resource_version;
use tollgate_state::write::{self, ResourceVersion, StoredObject};

pub mod change;

/// Longest content of a PUT, in bytes: about the longest object a cluster stores (etcd's request
/// limit is 1.5 MiB).
pub(crate) const CONTENT_BYTES: u64 = 1024 * 1024;

#[derive(Debug, thiserror::Error)]
pub(crate) enum Error {
    /// RBAC does not let the caller do this. It was not checked whether the project exists.
    #[error("not permitted: `projects, {action}` of `{name}`")]
    NotPermitted {
        action: &'static str,
        /// As the caller named it.
        name: String,
    },
    #[error(transparent)]
    Content(#[from] api::Error),
    #[error(
        "`project.metadata.resourceVersion` is missing: read the project, and send the version together with what you changed"
    )]
    NoVersion,
    #[error("the gateway's settings have no `applications`, so no service account acts for anything")]
    NoApplications,
    #[error("there is no project `{0}`")]
    UnknownProject(String),
    #[error(transparent)]
    Change(#[from] change::Error),
    #[error(transparent)]
    State(#[from] write::Error),
}

/// The content of a PUT, in the shape of Argo CD's API.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(crate) struct Update {
    project: Value,
}

impl Update {
    pub(crate) fn base_version(&self) -> Result<ResourceVersion, Error> {
        resource_version(&self.project).ok_or(Error::NoVersion)
    }

    /// The object to store in place of `stored`.
    ///
    /// # Errors
    /// [`Error::State`] when another version is stored, then [`Error::Change`].
    pub(crate) fn apply_to(
        &self,
        stored: &StoredObject,
        key: &write::ObjectKey,
        expected_version: &ResourceVersion,
        semantics: ServiceAccountSemantics,
    ) -> Result<Value, Error> {
        if *expected_version != stored.version {
            return Err(Error::State(write::Error::Conflict {
                key: key.clone(),
                expected_version: expected_version.as_str().to_owned(),
                found: stored.version.as_str().to_owned(),
            }));
        }
        let updated = change::with_replaced_entries(&stored.object, &self.project)?;
        change::validate(&updated, semantics)?;
        Ok(updated)
    }
}

impl Error {
    /// HTTP status, and the stable reason for programs.
    pub(crate) fn answer(&self) -> (StatusCode, &'static str) {
        match self {
            Self::NotPermitted { .. } => (StatusCode::FORBIDDEN, "permission_denied"),
            Self::Content(error) => error.answer(),
            Self::NoVersion => (StatusCode::CONFLICT, "version_missing"),
            Self::NoApplications => (StatusCode::CONFLICT, "applications_off"),
            Self::UnknownProject(_) => (StatusCode::NOT_FOUND, "project_not_found"),
            Self::Change(_) => (StatusCode::BAD_REQUEST, "project_invalid"),
            Self::State(error) => state_answer(error),
        }
    }

    /// Text for the caller, who may see the project but not paths of the machine.
    pub(crate) fn text(&self) -> Cow<'static, str> {
        match self {
            Self::NotPermitted { .. }
            | Self::Content(_)
            | Self::NoVersion
            | Self::NoApplications
            | Self::UnknownProject(_)
            | Self::Change(_) => self.to_string().into(),
            Self::State(error) => state_text(error),
        }
    }
}

/// HTTP status of an error of the state, and the stable reason for programs.
pub fn state_answer(error: &write::Error) -> (StatusCode, &'static str) {
    match error {
        write::Error::NotFound(_) => (StatusCode::NOT_FOUND, "project_not_found"),
        write::Error::AlreadyExists(_) => (StatusCode::CONFLICT, "exists"),
        write::Error::Conflict { .. } => (StatusCode::CONFLICT, "conflict"),
        write::Error::ManagedElsewhere { .. } => (StatusCode::CONFLICT, "managed_elsewhere"),
        write::Error::DefinedTwice { .. } | write::Error::SymbolicLink(_) | write::Error::UnsupportedLayout { .. } => {
            (StatusCode::CONFLICT, "not_editable")
        }
        write::Error::InvalidState(_)
        | write::Error::Cluster {
            status: 400 | 413 | 422,
            ..
        } => (StatusCode::BAD_REQUEST, "state_refused"),
        write::Error::Cluster { .. } => (StatusCode::BAD_GATEWAY, "state_unavailable"),
        write::Error::Busy | write::Error::Io { .. } | write::Error::NotConnected | write::Error::Interrupted => {
            (StatusCode::SERVICE_UNAVAILABLE, "state_unavailable")
        }
    }
}

/// Text of an error of the state for the caller, who may see the object but not paths of the
/// machine.
pub(crate) fn state_text(error: &write::Error) -> Cow<'static, str> {
    match error {
        write::Error::NotFound(_) | write::Error::AlreadyExists(_) | write::Error::ManagedElsewhere { .. } => {
            error.to_string().into()
        }
        write::Error::Conflict { key, .. } => {
            format!("{key} has changed since it was read: read it again and repeat the change").into()
        }
        write::Error::DefinedTwice { key, .. } => format!("{key} is defined twice in the state folder").into(),
        write::Error::SymbolicLink(_) => {
            "the state folder is behind a symbolic link, as Kubernetes mounts ConfigMaps and git-sync keeps \
             checkouts: change the object at its source"
                .into()
        }
        write::Error::UnsupportedLayout { line, why, .. } => {
            format!("the object's file has to be edited by hand: line {line}: {why}").into()
        }
        write::Error::InvalidState(findings) => {
            let finding = findings.first().map(|finding| finding.message.as_str());
            let finding = finding.unwrap_or("it has mistakes");
            format!("the state would not load with this change: {finding}").into()
        }
        // The caller may read the cluster's message about the object they sent.
        write::Error::Cluster {
            status: 400 | 413 | 422,
            message,
        } => format!("the control plane's cluster refuses the change: {message}").into(),
        write::Error::Cluster { .. } => "the control plane's cluster does not take the change".into(),
        write::Error::Busy => "another writer is at work, try again".into(),
        write::Error::Io { .. } | write::Error::NotConnected | write::Error::Interrupted => {
            "the state cannot be read or written right now".into()
        }
    }
}

impl From<Error> for Denial {
    fn from(error: Error) -> Self {
        let (status, reason) = error.answer();
        Self::of_api(status, reason, error.text()).caused_by(error)
    }
}
