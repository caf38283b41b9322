//! Impersonation of Applications: whether, and how projects' lists are read.

/// Whether Applications act as their service accounts, for all of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ImpersonationMode {
    /// They do not: the gateway's own identity acts.
    #[default]
    Off,
    /// They do not, and what [`ImpersonationMode::Enforce`] would refuse is written down.
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum ServiceAccountSemantics {
    /// Servers are compared without trailing slashes and by cluster name too;
    /// accounts must be names Kubernetes can have, and those of Kubernetes' own
    /// namespaces, as those of the control plane itself, must be spelled out.
    #[default]
    Strict,
    /// As Argo CD reads them, to the letter.
    Argocd,
}
