//! Computes the roles a person has in the groups and projects of an agent's `user_access`.
//!
//! [`ListedNamespaces`] holds the members of every listed group or project, including those inherited
//! from its ancestors.
//!
//! Invariant: a group below a listed group gives no role, and neither does a role under developer.

use std::sync::Arc;

use strum::VariantArray;
use tollgate_config::{GroupMembership, NamespaceKind};
use tollgate_core::diagnostic::Diagnostic;
use tollgate_core::user::{Membership, Role};
use tollgate_objects::agent::UserAccess;
use tollgate_objects::people::{GitLabNamespace, Members, UserDirectory};

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
    /// Roles in it and in each group above it by groups of issuers.
    group_roles: Vec<GroupRole>,
}

#[derive(Debug)]
struct GroupRole {
    issuer: String,
    oidc_group: String,
    role: Role,
}

/// Somebody who may have roles: a person of the directory, or one whom an issuer vouches for.
#[derive(Clone, Copy, Debug)]
pub struct Member<'a> {
    /// Number in the directory, if they are in it.
    pub user_id: Option<i64>,
    /// Issuer and groups of their token or login.
    pub groups: Option<(&'a str, &'a [String])>,
}

impl ListedNamespaces {
    /// Resolves the lists; entries that neither the directory nor `memberships` has grant nothing.
    pub(super) fn resolve(
        access: &UserAccess,
        agent: &str,
        people: &UserDirectory,
        memberships: &[GroupMembership],
        findings: &mut Vec<Diagnostic>,
    ) -> Self {
        let mut listed = |kind: NamespaceKind, path: &Arc<str>, found: Option<&GitLabNamespace>| {
            let named = || memberships.iter().filter(|one| one.kind == kind && *one.path == **path);
            let id = found.map(|space| space.id).or_else(|| named().find_map(|one| one.id));
            // A remote platform has its own directory.
            if id.is_none() && !(people.is_empty() && memberships.is_empty()) {
                let kind = match kind {
                    NamespaceKind::Project => "project",
                    NamespaceKind::Group => "group",
                };
                let message = format!(
                    "agent `{agent}` is shared with the {kind} `{path}`, which no directory has, nor \
                     `kubernetes.memberships` with an `id`"
                );
                findings.push(Diagnostic::warning(access.location.clone(), message));
            }
            Some(ListedNamespace::new(id?, kind, path, found, people, memberships))
        };
        let (projects, groups) = (access.projects.iter(), access.groups.iter());
        Self {
            projects: projects
                .filter_map(|path| listed(NamespaceKind::Project, path, people.project(path)))
                .collect(),
            groups: groups
                .filter_map(|path| listed(NamespaceKind::Group, path, people.group(path)))
                .collect(),
        }
    }

    pub(super) fn memberships_of(&self, member: Member<'_>) -> (Vec<Membership>, Vec<Membership>) {
        let of = |listed: &[ListedNamespace]| listed.iter().filter_map(|listed| listed.membership(member)).collect();
        (of(&self.projects), of(&self.groups))
    }
}

impl ListedNamespace {
    fn new(
        id: i64,
        kind: NamespaceKind,
        path: &Arc<str>,
        space: Option<&GitLabNamespace>,
        people: &UserDirectory,
        memberships: &[GroupMembership],
    ) -> Self {
        let above = people.ancestor_groups(path);
        let members = space.into_iter().chain(above);
        // Whole segments are compared: `a` is above `a/b`, and not above `ab/c`.
        let is_above = |group: &str| path.strip_prefix(group).is_some_and(|rest| rest.starts_with('/'));
        let applies = |one: &&GroupMembership| {
            let is_here = one.kind == kind && *one.path == **path;
            is_here || (one.kind == NamespaceKind::Group && is_above(&one.path))
        };
        let group_roles = memberships.iter().filter(applies).map(|one| GroupRole {
            issuer: one.issuer.clone(),
            oidc_group: one.oidc_group.clone(),
            role: one.role,
        });
        Self {
            id,
            path: Arc::clone(path),
            members: members.map(|space| Arc::clone(&space.members)).collect(),
            group_roles: group_roles.collect(),
        }
    }

    /// The roles from reporter up to the highest one, if that is at least developer.
    fn membership(&self, member: Member<'_>) -> Option<Membership> {
        let user = member.user_id;
        let direct = self.members.iter().filter_map(|members| members.get(&user?));
        let by_group = self.group_roles.iter().filter_map(|one| {
            let (issuer, groups) = member.groups?;
            (one.issuer == issuer && groups.contains(&one.oidc_group)).then_some(&one.role)
        });
        let roles = direct.chain(by_group);
        let effective = roles.max().copied().filter(|role| *role >= Role::Developer)?;
        let is_reported = |role: &Role| (Role::Reporter..=effective).contains(role);
        Some(Membership {
            id: self.id,
            path: self.path.as_ref().to_owned(),
            roles: Role::VARIANTS.iter().copied().filter(is_reported).collect(),
        })
    }
}
