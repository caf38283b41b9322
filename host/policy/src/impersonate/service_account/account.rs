//! Parses the service account of an entry, `name` or `namespace:name`, under either semantics.
//!
//! Invariant: a name is never changed to make it fit.

use tollgate_config::{ReaderAccount, ServiceAccountSemantics};
use tollgate_core::dns::{is_label, is_subdomain};

const USERNAME_PREFIX: &str = "system:serviceaccount:";
/// Characters that Argo CD refuses anywhere in an account.
const REFUSED: [char; 8] = ['!', '*', '[', ']', '{', '}', '\\', '/'];

/// Namespaces of Kubernetes itself. An account in one of them may do nearly everything.
pub const RESERVED_NAMESPACES: [&str; 3] = ["kube-system", "kube-public", "kube-node-lease"];

/// The namespace and name of a service account.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, serde::Serialize)]
pub struct ServiceAccountName {
    /// Its namespace.
    pub namespace: String,
    /// Its name.
    pub name: String,
}

impl From<&ReaderAccount> for ServiceAccountName {
    fn from(reader: &ReaderAccount) -> Self {
        Self {
            namespace: reader.namespace.clone(),
            name: reader.name.clone(),
        }
    }
}

impl ServiceAccountName {
    /// Its username: `system:serviceaccount:<namespace>:<name>`.
    ///
    /// Source: Kubernetes, `serviceaccount.MakeUsername`.
    pub fn username(&self) -> String {
        format!("{USERNAME_PREFIX}{}:{}", self.namespace, self.name)
    }

    /// Whether a cluster can have a service account of this name. Kubernetes treats any other name
    /// as a user whose name happens to begin with `system:serviceaccount:`, and to whom no role for
    /// service accounts applies.
    ///
    /// Source: Kubernetes, `serviceaccount.SplitUsername`.
    pub fn is_valid(&self) -> bool {
        is_label(&self.namespace) && is_subdomain(&self.name)
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum AccountName {
    /// An account of the destination namespace, or else of the Application's.
    Unqualified(String),
    /// An account with its namespace.
    Qualified(ServiceAccountName),
    Invalid,
}

impl AccountName {
    pub(super) fn read(text: &str, semantics: ServiceAccountSemantics) -> Self {
        let account = match text.split_once(':') {
            Some((namespace, name)) => Self::Qualified(ServiceAccountName {
                namespace: namespace.to_owned(),
                name: name.to_owned(),
            }),
            None => Self::Unqualified(text.to_owned()),
        };
        let is_valid = match (semantics, &account) {
            // Argo CD accepts several colons, an empty namespace, and blanks around a name. Control
            // characters, which no HTTP header carries, are refused.
            (ServiceAccountSemantics::Argocd, _) => {
                let refused = |c: char| REFUSED.contains(&c) || c.is_control();
                !text.trim_matches(' ').is_empty() && !text.contains(refused)
            }
            (ServiceAccountSemantics::Strict, Self::Qualified(account)) => account.is_valid(),
            (ServiceAccountSemantics::Strict, Self::Unqualified(_) | Self::Invalid) => is_subdomain(text),
        };
        if is_valid { account } else { Self::Invalid }
    }
}

/// Whether an account in the control plane's namespace belongs to Argo CD or to the gateway.
///
/// Source: Argo CD's manifests, `argocd-server` and its like.
pub(super) fn is_control_plane_account(name: &str) -> bool {
    name.starts_with("argocd-") || name == "tollgate" || name.starts_with("tollgate-")
}
