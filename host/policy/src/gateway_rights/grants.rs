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

use crate::impersonate::ImpersonationMapping;
use tollgate_config::Authorizer;
use tollgate_objects::agent::{AccessMode, AgentObject, Sharing};

/// A kind of name that may be impersonated.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ImpersonationGrant {
    /// Users.
    Users,
    /// Groups.
    Groups,
    /// UIDs of users.
    Uids,
    /// Values of one key of `extra`, in lower case.
    Extra(String),
}

/// How Kubernetes authorizes an impersonation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, strum::IntoStaticStr)]
#[strum(serialize_all = "lowercase")]
pub enum ImpersonationKind {
    /// `impersonate`: everything that the impersonated identity may do.
    Classic,
    /// KEP-5284: only the verbs that are granted in addition. Kubernetes 1.36.
    Constrained,
}

impl ImpersonationKind {
    /// The verb that roles name, for people.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Classic => "impersonate",
            Self::Constrained => "impersonate:user-info",
        }
    }
}

/// API group of everything impersonated, except users and groups in classic mode.
pub const AUTHENTICATION_GROUP: &str = "authentication.k8s.io";

impl ImpersonationGrant {
    /// The API group that roles name.
    pub fn api_group(&self, mode: ImpersonationKind) -> &'static str {
        match (self, mode) {
            (Self::Users | Self::Groups, ImpersonationKind::Classic) => "",
            (Self::Users | Self::Groups, ImpersonationKind::Constrained) | (Self::Uids | Self::Extra(_), _) => {
                AUTHENTICATION_GROUP
            }
        }
    }

    /// The resource that roles name, and its subresource.
    pub fn resource(&self) -> (&'static str, Option<&str>) {
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

    fn of_people(names: &crate::impersonate::PossibleNames) -> Self {
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

    /// The grants, in order.
    pub fn iter(&self) -> impl Iterator<Item = &ImpersonationGrant> {
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

impl FromIterator<ImpersonationGrant> for ImpersonationGrants {
    fn from_iter<I: IntoIterator<Item = ImpersonationGrant>>(grants: I) -> Self {
        Self(grants.into_iter().collect())
    }
}

/// A right the gateway's identity may have on service accounts.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum AccountRight {
    /// To act as them.
    Impersonate(ImpersonationKind),
    /// To read them.
    Get,
}

impl AccountRight {
    /// The verb that roles name.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Impersonate(ImpersonationKind::Classic) => "impersonate",
            Self::Impersonate(ImpersonationKind::Constrained) => "impersonate:serviceaccount",
            Self::Get => "get",
        }
    }

    /// The API group that roles name.
    pub fn api_group(self) -> &'static str {
        match self {
            Self::Impersonate(ImpersonationKind::Classic) | Self::Get => "",
            Self::Impersonate(ImpersonationKind::Constrained) => AUTHENTICATION_GROUP,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{ImpersonationGrant, ImpersonationKind};

    #[test]
    fn each_impersonation_mode_has_its_own_verbs_and_api_groups() {
        let permissions = |grant: &ImpersonationGrant| {
            [ImpersonationKind::Classic, ImpersonationKind::Constrained]
                .map(|mode| format!("{} {grant} {}", mode.verb(), grant.api_group(mode)))
        };
        let constrained = |resource: &str| format!("impersonate:user-info {resource} authentication.k8s.io");
        let cases = [
            (ImpersonationGrant::Users, "users", ""),
            (ImpersonationGrant::Groups, "groups", ""),
            (ImpersonationGrant::Uids, "uids", "authentication.k8s.io"),
            (
                ImpersonationGrant::Extra("a.b/c".to_owned()),
                "userextras/a.b/c",
                "authentication.k8s.io",
            ),
        ];
        for (grant, resource, classic) in cases {
            let expected = [format!("impersonate {resource} {classic}"), constrained(resource)];
            assert_eq!(permissions(&grant), expected);
        }
    }
}
