//! Clusters and their credentials as the API shows them. It decides nothing.
//!
//! Security: responses contain no secret.

use jiff::Timestamp;
use serde::Serialize;

use tollgate_cluster::access::ClusterAccess;
use tollgate_credential::cache::health::Health;
use tollgate_plugin::credential_source::CredentialSource;

/// A cluster as the API shows it to those who may see it.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub struct ClusterView {
    pub(crate) name: String,
    /// URL of its API server.
    pub(crate) server: String,
    /// Project it belongs to; empty for all.
    #[serde(skip_serializing_if = "String::is_empty")]
    pub(crate) project: String,
    /// The provider of its credential.
    pub(crate) provider: String,
    pub(crate) credential: CredentialView,
}

/// State of a credential, without what only operators may know.
#[derive(Clone, Debug, Default, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct CredentialView {
    /// `fixed`, `unusable`, or the state of a minted credential.
    pub(crate) standing: &'static str,
    /// How many credentials were minted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) generation: Option<u64>,
    /// When the current one was minted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) minted_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) expires_at: Option<Timestamp>,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) last_error: Option<ErrorView>,
    /// When the next mint may run, if a failure forbids it now.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) next_attempt: Option<Timestamp>,
}

/// The last failure of a mint.
#[derive(Clone, Debug, Serialize)]
#[serde(rename_all = "camelCase")]
pub(crate) struct ErrorView {
    pub(crate) class: &'static str,
    pub(crate) code: String,
    #[serde(skip_serializing_if = "Option::is_none")]
    pub(crate) at: Option<Timestamp>,
}

impl ClusterView {
    /// The cluster, without its credential.
    pub fn of(access: &ClusterAccess) -> Self {
        let cluster = access.cluster();
        Self {
            name: cluster.name.clone(),
            server: cluster.server.clone(),
            project: cluster.project.clone(),
            provider: access.provider.to_string(),
            credential: CredentialView::of(access),
        }
    }
}

impl CredentialView {
    fn of(access: &ClusterAccess) -> Self {
        match access.credential_source() {
            CredentialSource::Minted(minted) => Self::minted(minted.slot.health()),
            CredentialSource::Static(_) => Self {
                standing: "fixed",
                ..Self::default()
            },
            CredentialSource::Unusable(error) => Self {
                standing: "unusable",
                last_error: Some(ErrorView {
                    class: error.class.into(),
                    code: error.code.clone(),
                    at: None,
                }),
                ..Self::default()
            },
        }
    }

    fn minted(health: Health) -> Self {
        Self {
            standing: health.standing.into(),
            generation: Some(health.generation),
            minted_at: health.minted_at,
            expires_at: health.expires_at,
            last_error: health.last_error.map(|last| ErrorView {
                class: last.error.class.into(),
                code: last.error.code,
                at: Some(last.at),
            }),
            next_attempt: health.next_attempt,
        }
    }
}
