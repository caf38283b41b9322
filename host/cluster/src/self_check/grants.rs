//! Determines the [`ImpersonationGrants`] that the gateway's identity needs in a cluster to
//! impersonate people there. They follow from the agents, the names of the mapping policy and the
//! issuers' claim mappings.
//!
//! Security: only grants that a configured agent can use are included, and none for service
//! accounts.
//!
//! Source: kube-apiserver, `endpoints/filters/impersonation` (one check for each
//! user, group, uid and value of `extra`) and KEP-5284.

use std::collections::BTreeSet;
use std::fmt;

use tollgate_config::Authorizer;
use tollgate_objects::agent::{AccessMode, AgentObject, Sharing};
use tollgate_policy::impersonate::ImpersonationMapping;

/// A kind of name that may be impersonated.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum ImpersonationGrant {
    Users,
    Groups,
    Uids,
    /// Values of one key of `extra`, in lower case.
    Extra(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub(crate) enum ImpersonationKind {
    /// `impersonate`: everything that the impersonated identity may do.
    Classic,
    /// KEP-5284: only the verbs that are granted in addition. Kubernetes 1.36.
    Constrained,
}

impl ImpersonationKind {
    pub(crate) fn verb(self) -> &'static str {
        match self {
            Self::Classic => "impersonate",
            Self::Constrained => "impersonate:user-info",
        }
    }
}

/// API group of everything impersonated, except users and groups in classic mode.
pub(crate) const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";

impl ImpersonationGrant {
    pub(crate) fn api_group(&self, mode: ImpersonationKind) -> &'static str {
        match (self, mode) {
            (Self::Users | Self::Groups, ImpersonationKind::Classic) => "",
            (Self::Users | Self::Groups, ImpersonationKind::Constrained) | (Self::Uids | Self::Extra(_), _) => {
                AUTHENTICATION_GROUP
            }
        }
    }

    pub(crate) fn resource(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Users => ("users", None),
            Self::Groups => ("groups", None),
            Self::Uids => ("uids", None),
            Self::Extra(key) => ("userextras", Some(key)),
        }
    }
}

/// The form in rules of roles, such as `userextras/agent.gitlab.com/id`.
impl fmt::Display for ImpersonationGrant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.resource() {
            (resource, None) => f.write_str(resource),
            (resource, Some(subresource)) => write!(f, "{resource}/{subresource}"),
        }
    }
}

/// A set of grants, in a fixed order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ImpersonationGrants(BTreeSet<ImpersonationGrant>);

/// Sources of the names that agents can use.
#[derive(Clone, Copy, Debug)]
pub struct NameSources<'a> {
    /// Settings of the Kubernetes front, with the issuers and their claim mappings.
    pub settings: &'a tollgate_config::Kubernetes,
    /// The mapping policy, with the names of people and jobs.
    pub mapping: &'a ImpersonationMapping,
}

impl ImpersonationGrants {
    /// The grants that one agent can use. Empty for agents that act as themselves, and for those
    /// that are shared with nobody.
    ///
    /// An agent whose configuration has mistakes may run on its last valid one, which is assumed
    /// to need everything that people need.
    pub fn of(agent: &AgentObject, names: NameSources<'_>) -> Self {
        match (&names.settings.authorizer, &agent.sharing) {
            // The agent's configuration on the remote platform is not known here.
            (Authorizer::Remote { .. }, _) => Self::of_people(&names.mapping.names()),
            (Authorizer::Embedded, Sharing::Nobody) => Self::default(),
            (Authorizer::Embedded, Sharing::Invalid) => Self::of_people(&names.mapping.names_for_users()),
            (Authorizer::Embedded, Sharing::People(access)) => match access.access_mode {
                AccessMode::Agent => Self::default(),
                AccessMode::User => Self::of_people(&names.mapping.names_for_users()),
                AccessMode::Mapped(_) => Self::of_issuers(&names.settings.issuers),
            },
        }
    }

    fn of_people(names: &tollgate_policy::impersonate::PossibleNames) -> Self {
        let mut grants = Self([ImpersonationGrant::Users, ImpersonationGrant::Groups].into());
        if names.uid {
            grants.0.insert(ImpersonationGrant::Uids);
        }
        grants
            .0
            .extend(names.extra_keys.iter().cloned().map(ImpersonationGrant::Extra));
        grants
    }

    fn of_issuers(issuers: &[tollgate_config::KubernetesIssuer]) -> Self {
        let mut grants = Self::default();
        for person in issuers.iter().filter(|person| person.is_mapped) {
            grants.0.insert(ImpersonationGrant::Users);
            if person.issuer.groups.is_some() {
                grants.0.insert(ImpersonationGrant::Groups);
            }
            if person.issuer.uid.is_some() {
                grants.0.insert(ImpersonationGrant::Uids);
            }
            let keys = person.issuer.extra.iter().map(|(key, _)| key.clone());
            grants.0.extend(keys.map(ImpersonationGrant::Extra));
        }
        grants
    }

    /// The union with `other`.
    #[must_use]
    pub fn union(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Whether there are no grants, because nobody is impersonated.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &ImpersonationGrant> {
        self.0.iter()
    }

    /// The resources of a role's rule in one API group.
    pub(super) fn resources(&self, group: &str, mode: ImpersonationKind) -> Vec<String> {
        let within = self.0.iter().filter(|grant| grant.api_group(mode) == group);
        within.map(ImpersonationGrant::to_string).collect()
    }

    /// Keys of `extra` that constrained impersonation refuses: those without a
    /// domain and a path.
    pub fn unconstrainable(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|grant| match grant {
            ImpersonationGrant::Extra(key) if !key.contains('/') => Some(key.as_str()),
            ImpersonationGrant::Users
            | ImpersonationGrant::Groups
            | ImpersonationGrant::Uids
            | ImpersonationGrant::Extra(_) => None,
        })
    }
}

/// The command that prints the roles of these agents.
pub(super) fn command<'a>(agents: impl Iterator<Item = &'a str>) -> String {
    let command = "tollgate rbac manifest".to_owned();
    agents.fold(command, |command, agent| command + " --agent " + agent)
}

#[cfg(test)]
impl FromIterator<ImpersonationGrant> for ImpersonationGrants {
    fn from_iter<I: IntoIterator<Item = ImpersonationGrant>>(grants: I) -> Self {
        Self(grants.into_iter().collect())
    }
}
