//! Computes the roles a person has in the groups and projects of an agent's `user_access`.
//!
//! [`ListedNamespaces`] holds the members of every listed group or project, including those inherited
//! from its ancestors.
//!
//! Invariant: a group below a listed group gives no role, and neither does a role under developer.

use std::sync::Arc;

use strum::VariantArray;
use tollgate_core::diagnostic::Diagnostic;
use tollgate_core::user::{Membership, Role};
use tollgate_state::agent::UserAccess;
use tollgate_state::people::{GitLabNamespace, Members, UserDirectory};

/// The projects and groups of one `user_access` that exist in the directory.
#[derive(Debug)]
pub(super) struct ListedNamespaces {
    projects: Vec<ListedNamespace>,
    groups: Vec<ListedNamespace>,
}

#[derive(Debug)]
struct ListedNamespace {
    id: i64,
    path: Arc<str>,
    /// Its own members, then those of each group above it.
    members: Vec<Arc<Members>>,
}

impl ListedNamespaces {
    /// Resolves the lists; entries missing from the directory grant nothing.
    pub(super) fn resolve(
        access: &UserAccess,
        (agent, people): (&str, &UserDirectory),
        findings: &mut Vec<Diagnostic>,
    ) -> Self {
        let mut listed = |kind: &str, path: &str, found: Option<&GitLabNamespace>| {
            // A remote platform has a directory of its own.
            if found.is_none() && !people.is_empty() {
                let message = format!("agent `{agent}` is shared with the {kind} `{path}`, which no directory has");
                findings.push(Diagnostic::warning(access.location.clone(), message));
            }
            found.map(|space| ListedNamespace::new(space, people))
        };
        let (projects, groups) = (access.projects.iter(), access.groups.iter());
        Self {
            projects: projects
                .filter_map(|path| listed("project", path, people.project(path)))
                .collect(),
            groups: groups
                .filter_map(|path| listed("group", path, people.group(path)))
                .collect(),
        }
    }

    pub(super) fn memberships_of(&self, user: i64) -> (Vec<Membership>, Vec<Membership>) {
        let of = |listed: &[ListedNamespace]| listed.iter().filter_map(|listed| listed.membership(user)).collect();
        (of(&self.projects), of(&self.groups))
    }
}

impl ListedNamespace {
    fn new(space: &GitLabNamespace, people: &UserDirectory) -> Self {
        let above = people.ancestor_groups(&space.path);
        let members = std::iter::once(space).chain(above);
        Self {
            id: space.id,
            path: Arc::clone(&space.path),
            members: members.map(|space| Arc::clone(&space.members)).collect(),
        }
    }

    /// The roles from reporter up to the highest one, if that is at least developer.
    fn membership(&self, user: i64) -> Option<Membership> {
        let roles = self.members.iter().filter_map(|members| members.get(&user));
        let effective = roles.max().copied().filter(|role| *role >= Role::Developer)?;
        let is_reported = |role: &Role| (Role::Reporter..=effective).contains(role);
        Some(Membership {
            id: self.id,
            path: self.path.as_ref().to_owned(),
            roles: Role::VARIANTS.iter().copied().filter(is_reported).collect(),
        })
    }
}
