//! Determines which service account acts for an Application, from the `destinationServiceAccounts`
//! of its project, its destination and the rules of `policies/applications`. The result,
//! [`DerivedAccount`], names the entry that decided.
//!
//! Invariant: the first entry that matches decides, even if its account is invalid. The cluster is
//! not asked, and no pattern is compiled per request.
//!
//! Source: Argo CD, `DeriveServiceAccountToImpersonate`.

use std::sync::Arc;

use super::Impersonation;
use tollgate_core::diagnostic::Location;
use tollgate_objects::destination;

mod account;
mod lint;
mod list;
mod rules;
#[cfg(test)]
mod tests;
mod validate;

pub use account::{RESERVED_NAMESPACES, ServiceAccountName};
pub use list::{DeployTarget, DestinationServiceAccounts, EvaluatedEntry, PatternMatch};
pub use rules::{ImpersonationRules, PrincipalInfo};
pub use validate::validate;

/// Who acts when no entry matches.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Deserialize, serde::Serialize, strum::AsRefStr)]
#[strum(serialize_all = "kebab-case")]
#[serde(rename_all = "kebab-case")]
pub enum Fallback {
    /// The account `default` of the destination namespace, as in the design of sync impersonation.
    #[default]
    DefaultServiceAccount,
    /// Nobody: the request is refused, as in Argo CD.
    Deny,
    /// The gateway's own identity in that cluster, as in Argo CD if
    /// `application.sync.impersonation.enforced` is `false`.
    Controller,
}

/// The source of a derived account. The text is its name in policies.
#[derive(Clone, Debug, PartialEq, Eq, serde::Serialize, strum::AsRefStr, strum::VariantNames)]
#[serde(rename_all = "lowercase")]
#[strum(serialize_all = "lowercase")]
pub enum AccountSource {
    /// The entry with this index. The list is that of the project, followed by those of its global
    /// projects.
    Entry {
        /// Its index, from 0.
        index: usize,
        /// Where it stands.
        location: Location,
    },
    /// No entry matched.
    Fallback(Fallback),
}

/// The account that acts for an Application, and why.
#[derive(Clone, Debug)]
pub struct DerivedAccount {
    /// The account; `None` if the gateway acts in its own name.
    pub account: Option<ServiceAccountName>,
    /// The identity to impersonate: the account's username, no group, no uid, no extra.
    pub impersonation: Arc<Impersonation>,
    /// What decided it.
    pub by: AccountSource,
}

/// Why nobody acts for an Application. Each error denies.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum Error {
    /// A server pattern of the list does not compile.
    #[error("invalid glob pattern for destination server `{pattern}` at {location}")]
    ServerPattern {
        /// The pattern.
        pattern: String,
        /// Where its entry stands.
        location: Location,
    },
    /// A namespace pattern of the list does not compile.
    #[error("invalid glob pattern for destination namespace `{pattern}` at {location}")]
    NamespacePattern {
        /// The pattern.
        pattern: String,
        /// Where its entry stands.
        location: Location,
    },
    /// The entry that matched names no service account.
    #[error("default service account contains invalid chars '{account}' at {location}")]
    InvalidAccount {
        /// As it is written.
        account: String,
        /// Where its entry stands.
        location: Location,
    },
    /// The account's namespace is taken from the destination or the Application, and is not a name
    /// that a Kubernetes namespace can have.
    #[error("`{0}` is not a valid namespace for a service account")]
    InvalidNamespace(String),
    /// The account would be one of Kubernetes' own or of the control plane's, and no entry names
    /// it with its namespace.
    #[error("accounts of the namespace `{0}` act only where an entry names them as `{0}:NAME`")]
    Reserved(String),
    /// No entry matched, and the fallback is to deny.
    #[error("no matching service account found for destination server {server} and namespace {namespace}")]
    NoMatch {
        /// The cluster's API server.
        server: String,
        /// The Application's destination namespace.
        namespace: String,
    },
    /// The project does not exist, or does not take Applications of that namespace.
    #[error("there is no project `{project}` that takes applications from namespace `{namespace}`")]
    Project {
        /// The project's name.
        project: String,
        /// The Application's namespace.
        namespace: String,
    },
    /// The destination resolves to no cluster.
    #[error("the destination leads to no cluster")]
    Destination(#[source] destination::Error),
}

impl Error {
    /// The message in Argo CD's words, without locations, for callers who may see the Application.
    pub fn public_message(&self) -> String {
        let text = self.to_string();
        let what = match self {
            Self::ServerPattern { location, .. }
            | Self::NamespacePattern { location, .. }
            | Self::InvalidAccount { location, .. } => {
                text.strip_suffix(&format!(" at {location}")).unwrap_or_default()
            }
            Self::InvalidNamespace(_) | Self::Reserved(_) => &text,
            Self::NoMatch { .. } | Self::Project { .. } | Self::Destination(_) => return text,
        };
        format!("error deriving service account to impersonate: {what}")
    }

    /// A stable name of the error.
    pub fn code(&self) -> &'static str {
        match self {
            Self::ServerPattern { .. } => "invalid-server-pattern",
            Self::NamespacePattern { .. } => "invalid-namespace-pattern",
            Self::InvalidAccount { .. } => "invalid-service-account",
            Self::InvalidNamespace(_) => "invalid-namespace",
            Self::Reserved(_) => "reserved-namespace",
            Self::NoMatch { .. } => "no-service-account",
            Self::Project { .. } => "no-project",
            Self::Destination(_) => "no-destination",
        }
    }
}
