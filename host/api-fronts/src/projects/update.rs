//! Decodes the content of a PUT of the API for AppProjects, and maps each refusal to a status, a
//! reason and a message.
//!
//! Security: no message shows a path of the gateway's machine.

use std::borrow::Cow;

use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use tollgate_config::ServiceAccountSemantics;
use tollgate_front::{Denial, api};
use tollgate_policy::account_entries as change;
use tollgate_state::write::{self, ResourceVersion, StoredObject, resource_version};

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
pub struct Update {
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
        // First, because a difference in another version would be reported as the caller's change.
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
            Self::State(error) => error.answer(),
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
            Self::State(error) => error.public_text(),
        }
    }
}

impl From<Error> for Denial {
    fn from(error: Error) -> Self {
        let (status, reason) = error.answer();
        Self::of_api(status, reason, error.text()).caused_by(error)
    }
}
