//! Clusters and their credentials as the API shows them. It decides nothing.
//!
//! Security: responses contain no secret.

use serde::Serialize;

use tollgate_cluster::access::ClusterAccess;
use tollgate_plugin::credential::cache::health::{Health, SlotStatus};
use tollgate_plugin::credential::source::CredentialSource;

/// A cluster as the API shows it to those who may see it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterView {
    /// Its name.
    pub name: String,
    /// URL of its API server.
    pub server: String,
    /// Project it belongs to; empty for all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub project: String,
    /// The provider of its credential.
    pub provider: String,
    /// State of that credential.
    pub credential: CredentialView,
}

/// State of a credential, without what only operators may know.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct CredentialView {
    /// `fixed`, `unusable`, or the state of a minted credential.
    pub standing: &'static str,
    /// How many credentials were minted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub generation: Option<u64>,
    /// When the current one was minted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub minted_at: Option<String>,
    /// When it expires.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<String>,
    /// The last failure.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_error: Option<ErrorView>,
    /// When the next mint may run, if a failure forbids it now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub next_attempt: Option<String>,
}

/// The last failure of a mint.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ErrorView {
    /// The kind of failure.
    pub class: &'static str,
    /// Stable code for programs.
    pub code: String,
    /// When it happened.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub at: Option<String>,
}

impl ClusterView {
    /// What callers see of a cluster.
    pub fn of(access: &ClusterAccess) -> Self {
        let cluster = access.cluster();
        Self {
            name: cluster.name.clone(),
            server: cluster.server.clone(),
            project: cluster.project.clone(),
            provider: access.provider().to_string(),
            credential: CredentialView::of(access),
        }
    }
}

impl CredentialView {
    fn of(access: &ClusterAccess) -> Self {
        match access.credential_source() {
            CredentialSource::Minted(minted) => Self::minted(minted.slot.health()),
            CredentialSource::Static(_) => Self::plain("fixed", None),
            CredentialSource::Unusable(error) => Self::plain(
                "unusable",
                Some(ErrorView {
                    class: error.class.as_str(),
                    code: error.code.clone(),
                    at: None,
                }),
            ),
        }
    }

    fn plain(standing: &'static str, last_error: Option<ErrorView>) -> Self {
        Self {
            standing,
            generation: None,
            minted_at: None,
            expires_at: None,
            last_error,
            next_attempt: None,
        }
    }

    fn minted(health: Health) -> Self {
        let text = |at: Option<jiff::Timestamp>| at.map(|at| at.to_string());
        Self {
            standing: SlotStatus::as_str(health.standing),
            generation: Some(health.generation),
            minted_at: text(health.minted_at),
            expires_at: text(health.expires_at),
            last_error: health.last_error.map(|last| ErrorView {
                class: last.error.class.as_str(),
                code: last.error.code,
                at: Some(last.at.to_string()),
            }),
            next_attempt: text(health.next_attempt),
        }
    }
}
