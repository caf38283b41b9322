//! Settings of the Applications front: whether Applications are impersonated, and how the
//! service account lists of projects are read.

/// Whether Applications act as their service accounts. Applies to all Applications.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ImpersonationMode {
    /// They do not; the gateway's own identity acts.
    #[default]
    Off,
    /// They do not, but what [`ImpersonationMode::Enforce`] would refuse is recorded.
    Audit,
    /// They do.
    Enforce,
}

impl ImpersonationMode {
    /// A stable name.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Off => "off",
            Self::Audit => "audit",
            Self::Enforce => "enforce",
        }
    }
}

/// How `destinationServiceAccounts` are read where Argo CD is surprising.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, serde::Deserialize)]
#[serde(rename_all = "camelCase")]
pub enum ServiceAccountSemantics {
    /// Servers are compared without trailing slashes, and by cluster name too. Accounts must be
    /// names that Kubernetes can have. Accounts of Kubernetes' own namespaces and of the control
    /// plane's must be spelled out.
    #[default]
    #[serde(skip)]
    Strict,
    /// Exactly as Argo CD reads them.
    Argocd,
}
