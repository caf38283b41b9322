//! What a cluster must let the gateway's identity do, so that people act there
//! under their own names.
//!
//! In: agents, the names of the mapping policy, the issuers' claim mappings. Out:
//! [`Grants`]. Never: a grant that no configured agent can use; service accounts.
//!
//! Source: kube-apiserver, `endpoints/filters/impersonation` (one check for each
//! user, group, uid and value of `extra`) and KEP-5284.

use std::borrow::Cow;
use std::collections::BTreeSet;
use std::fmt;

use tollgate_config::Authorizer;
use tollgate_policy::impersonate::Mapping;
use tollgate_state::agent::{AgentObject, ShareAs, Sharing};

/// One kind of name that may be impersonated.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Grant {
    /// Users.
    Users,
    /// Groups.
    Groups,
    /// Unique ids of users.
    Uids,
    /// Values of one key of `extra`, in lower case.
    Extra(String),
}

/// How a cluster lets somebody impersonate.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Mode {
    /// `impersonate`: whatever those who are impersonated may do.
    Classic,
    /// KEP-5284: that, as far as the verb is granted besides. Kubernetes 1.36.
    Constrained,
}

impl Mode {
    /// The word of options and reports.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Classic => "classic",
            Self::Constrained => "constrained",
        }
    }

    /// The verb that lets somebody take a name.
    pub fn verb(self) -> &'static str {
        match self {
            Self::Classic => "impersonate",
            Self::Constrained => "impersonate:user-info",
        }
    }
}

/// The group of all that is impersonated, but for users and groups of old.
pub const AUTHENTICATION: &str = "authentication.k8s.io";

impl Grant {
    /// The API group a cluster looks the grant up in.
    pub fn api_group(&self, mode: Mode) -> &'static str {
        match (self, mode) {
            (Self::Users | Self::Groups, Mode::Classic) => "",
            (Self::Users | Self::Groups, Mode::Constrained) | (Self::Uids | Self::Extra(_), _) => AUTHENTICATION,
        }
    }

    /// Resource and subresource.
    pub fn resource(&self) -> (&'static str, Option<&str>) {
        match self {
            Self::Users => ("users", None),
            Self::Groups => ("groups", None),
            Self::Uids => ("uids", None),
            Self::Extra(key) => ("userextras", Some(key)),
        }
    }
}

/// As rules of roles have it, such as `userextras/agent.gitlab.com/id`.
impl fmt::Display for Grant {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.resource() {
            (resource, None) => f.write_str(resource),
            (resource, Some(subresource)) => write!(f, "{resource}/{subresource}"),
        }
    }
}

/// All of them, in a fixed order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Grants(BTreeSet<Grant>);

/// Where the names come from that agents can use.
#[derive(Clone, Copy, Debug)]
pub struct Names<'a> {
    /// Who says which agent acts as whom, and the issuers with claim mappings.
    pub settings: &'a tollgate_config::Kubernetes,
    /// Names of people and jobs.
    pub mapping: &'a Mapping,
}

impl Grants {
    /// What one agent can use. None for agents that act in their own name, and
    /// for those that are shared with nobody.
    ///
    /// An agent whose configuration has mistakes may run on its last good one,
    /// which is taken to need all that people do.
    pub fn of(agent: &AgentObject, names: Names<'_>) -> Self {
        match (&names.settings.authorizer, &agent.sharing) {
            // What the agent's configuration says there is not known here.
            (Authorizer::Remote { .. }, _) => Self::of_people(&names.mapping.names()),
            (Authorizer::Embedded, Sharing::Nobody) => Self::default(),
            (Authorizer::Embedded, Sharing::Broken) => Self::of_people(&names.mapping.names_of_people()),
            (Authorizer::Embedded, Sharing::People(access)) => match access.share_as {
                ShareAs::Agent => Self::default(),
                ShareAs::User => Self::of_people(&names.mapping.names_of_people()),
                ShareAs::Mapped(_) => Self::of_issuers(&names.settings.issuers),
            },
        }
    }

    fn of_people(names: &tollgate_policy::impersonate::Names) -> Self {
        let mut grants = Self([Grant::Users, Grant::Groups].into());
        if names.uid {
            grants.0.insert(Grant::Uids);
        }
        grants.0.extend(names.extra_keys.iter().cloned().map(Grant::Extra));
        grants
    }

    fn of_issuers(issuers: &[tollgate_config::PersonIssuer]) -> Self {
        let mut grants = Self::default();
        for person in issuers.iter().filter(|person| person.is_mapped) {
            grants.0.insert(Grant::Users);
            if person.issuer.groups.is_some() {
                grants.0.insert(Grant::Groups);
            }
            if person.issuer.uid.is_some() {
                grants.0.insert(Grant::Uids);
            }
            let keys = person.issuer.extra.iter().map(|(key, _)| key.clone());
            grants.0.extend(keys.map(Grant::Extra));
        }
        grants
    }

    /// These and those of `other`.
    #[must_use]
    pub fn and(mut self, other: Self) -> Self {
        self.0.extend(other.0);
        self
    }

    /// Whether nobody is impersonated.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// In order.
    pub fn iter(&self) -> impl Iterator<Item = &Grant> {
        self.0.iter()
    }

    /// The resources of a role's rule in one API group.
    pub(super) fn resources(&self, group: &str, mode: Mode) -> Vec<String> {
        let within = self.0.iter().filter(|grant| grant.api_group(mode) == group);
        within.map(Grant::to_string).collect()
    }

    /// Keys of `extra` that constrained impersonation refuses: those without a
    /// domain and a path.
    pub fn unconstrainable(&self) -> impl Iterator<Item = &str> {
        self.0.iter().filter_map(|grant| match grant {
            Grant::Extra(key) if !key.contains('/') => Some(key.as_str()),
            Grant::Users | Grant::Groups | Grant::Uids | Grant::Extra(_) => None,
        })
    }
}

/// How a command names agents.
pub(super) fn command<'a>(agents: impl Iterator<Item = &'a str>) -> String {
    let mut command = Cow::Borrowed("tollgate rbac manifest");
    for agent in agents {
        command.to_mut().push_str(&format!(" --agent {agent}"));
    }
    command.into_owned()
}

#[cfg(test)]
impl FromIterator<Grant> for Grants {
    fn from_iter<I: IntoIterator<Item = Grant>>(grants: I) -> Self {
        Self(grants.into_iter().collect())
    }
}
