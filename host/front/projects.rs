//! The API for AppProjects: what is special about it.
//!
//! In: content of a PUT; errors of the state. Out: what shall be stored; a status,
//! a word and a sentence for each refusal. Never: a path of the gateway's machine
//! in a sentence.

use std::borrow::Cow;

use http::StatusCode;
use serde::Deserialize;
use serde_json::Value;

use crate::front::platform;
use tollgate_config::ServiceAccountSemantics;
use tollgate_state::write::{self, Stored, Version};

pub mod change;

/// Longest content of a PUT, in bytes: an object is at most so long in a cluster
/// (etcd's request limit is 1.5 MiB).
pub const CONTENT_BYTES: u64 = 1024 * 1024;

/// Why a project is not shown or changed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// RBAC does not let the caller do this. Whether there is such a project is not
    /// looked at. (403)
    #[error("not permitted: `projects, {action}` of `{name}`")]
    NotPermitted {
        /// RBAC action.
        action: &'static str,
        /// As the caller named it.
        name: String,
    },
    /// The content cannot be read. (400, 413, 415)
    #[error(transparent)]
    Content(#[from] platform::Error),
    /// The content does not say which version was changed. (409)
    #[error(
        "`project.metadata.resourceVersion` is missing: read the project, and send the version together with what you changed"
    )]
    NoVersion,
    /// What is sent cannot be stored. (400)
    #[error(transparent)]
    Change(#[from] change::Error),
    /// The state says no.
    #[error(transparent)]
    State(#[from] write::Error),
}

/// What a PUT sends, in the shape of Argo CD's API.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Update {
    /// The AppProject.
    pub project: Value,
}

impl Update {
    /// The version the sender looked at.
    ///
    /// # Errors
    /// [`Error::NoVersion`].
    pub fn based_on(&self) -> Result<Version, Error> {
        let version = self
            .project
            .pointer("/metadata/resourceVersion")
            .and_then(Value::as_str);
        let version = version.filter(|version| !version.is_empty());
        version.map(Version::new).ok_or(Error::NoVersion)
    }

    /// What shall be stored where `stored` is.
    ///
    /// # Errors
    /// [`Error::State`] when another version is stored, then [`Error::Change`].
    pub fn onto(&self, stored: &Stored, key: &write::Key, semantics: ServiceAccountSemantics) -> Result<Value, Error> {
        let based_on = self.based_on()?;
        if based_on != stored.version {
            return Err(Error::State(write::Error::Conflict {
                key: key.clone(),
                based_on: based_on.as_str().to_owned(),
                found: stored.version.as_str().to_owned(),
            }));
        }
        let wanted = change::with_entries_of(&stored.object, &self.project)?;
        change::validate(&wanted, semantics)?;
        Ok(wanted)
    }
}

impl Error {
    /// HTTP status.
    pub fn status(&self) -> StatusCode {
        match self {
            Self::NotPermitted { .. } => StatusCode::FORBIDDEN,
            Self::Content(error) => error.status(),
            Self::NoVersion => StatusCode::CONFLICT,
            Self::Change(_) => StatusCode::BAD_REQUEST,
            Self::State(error) => state_status(error),
        }
    }

    /// Stable word for programs.
    pub fn code(&self) -> &'static str {
        match self {
            Self::NotPermitted { .. } => "permission_denied",
            Self::Content(error) => error.code(),
            Self::NoVersion => "version_missing",
            Self::Change(_) => "project_invalid",
            Self::State(error) => state_code(error),
        }
    }

    /// What the caller is told: they may see the project, not the machine.
    pub fn text(&self) -> Cow<'static, str> {
        match self {
            Self::NotPermitted { .. } | Self::Content(_) | Self::NoVersion | Self::Change(_) => self.to_string().into(),
            Self::State(error) => state_text(error),
        }
    }
}

/// HTTP status for what the state says.
pub fn state_status(error: &write::Error) -> StatusCode {
    match error {
        write::Error::NotFound(_) => StatusCode::NOT_FOUND,
        write::Error::Exists(_)
        | write::Error::Conflict { .. }
        | write::Error::Managed { .. }
        | write::Error::Twice { .. }
        | write::Error::Link { .. }
        | write::Error::Layout { .. } => StatusCode::CONFLICT,
        write::Error::Refused(_)
        | write::Error::Cluster {
            status: 400 | 413 | 422,
            ..
        } => StatusCode::BAD_REQUEST,
        write::Error::Cluster { .. } => StatusCode::BAD_GATEWAY,
        write::Error::Busy | write::Error::Io { .. } | write::Error::Source(_) | write::Error::Broken => {
            StatusCode::SERVICE_UNAVAILABLE
        }
    }
}

/// What the caller is told of what the state says: they may see the object, not the
/// machine.
pub fn state_text(error: &write::Error) -> Cow<'static, str> {
    match error {
        write::Error::NotFound(_) | write::Error::Exists(_) | write::Error::Managed { .. } => error.to_string().into(),
        write::Error::Conflict { key, .. } => {
            format!("{key} has changed since it was read: read it again and repeat the change").into()
        }
        write::Error::Twice { key, .. } => format!("{key} is defined twice in the state folder").into(),
        write::Error::Link { .. } => {
            "the state folder is behind a symbolic link, as Kubernetes mounts ConfigMaps and git-sync keeps \
             checkouts: change the object at its source"
                .into()
        }
        write::Error::Layout { line, why, .. } => {
            format!("the object's file has to be edited by hand: line {line}: {why}").into()
        }
        write::Error::Refused(findings) => {
            let finding = findings.first().map(|finding| finding.message.as_str());
            let finding = finding.unwrap_or("it has mistakes");
            format!("the state would not load with this change: {finding}").into()
        }
        // The cluster's words about what the caller sent are the caller's.
        write::Error::Cluster {
            status: 400 | 413 | 422,
            message,
        } => format!("the control plane's cluster refuses the change: {message}").into(),
        write::Error::Cluster { .. } => "the control plane's cluster does not take the change".into(),
        write::Error::Busy => "another writer is at work, try again".into(),
        write::Error::Io { .. } | write::Error::Source(_) | write::Error::Broken => {
            "the state cannot be read or written right now".into()
        }
    }
}

/// Stable word for programs, for what the state says.
pub fn state_code(error: &write::Error) -> &'static str {
    match error {
        write::Error::NotFound(_) => "project_not_found",
        write::Error::Exists(_) => "exists",
        write::Error::Conflict { .. } => "conflict",
        write::Error::Managed { .. } => "managed_elsewhere",
        write::Error::Twice { .. } | write::Error::Link { .. } | write::Error::Layout { .. } => "not_editable",
        write::Error::Refused(_)
        | write::Error::Cluster {
            status: 400 | 413 | 422,
            ..
        } => "state_refused",
        write::Error::Busy
        | write::Error::Io { .. }
        | write::Error::Cluster { .. }
        | write::Error::Source(_)
        | write::Error::Broken => "state_unavailable",
    }
}
