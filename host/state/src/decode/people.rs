//! Decodes `UserDirectory` objects and combines them into one [`UserDirectory`].
//!
//! Security: every mistake here, such as an unknown key or a duplicate id, name or path,
//! refuses the load, so nobody whose entry has a mistake becomes active.

use std::collections::BTreeMap;
use std::sync::Arc;

use super::Object;
use crate::fields::Fields;
use crate::people::{GitLabNamespace, Members, Person, PersonState, UserDirectory};
use tollgate_core::diagnostic::{Diagnostic, Location};
use tollgate_core::user::{Role, User};

/// The entries of one object, or of all, before usernames are resolved.
#[derive(Clone, Debug, Default)]
pub(crate) struct Unresolved {
    people: Vec<(Person, Location)>,
    groups: Vec<UnresolvedNamespace>,
    projects: Vec<UnresolvedNamespace>,
}

/// The directory of the last load, reused while its objects stay the same.
#[derive(Clone, Debug, Default)]
pub(super) struct LoadMemo {
    parts: Vec<Arc<Unresolved>>,
    directory: Arc<UserDirectory>,
    findings: Vec<Diagnostic>,
}

impl LoadMemo {
    pub(super) fn directory(
        &mut self,
        parts: Vec<Arc<Unresolved>>,
        findings: &mut Vec<Diagnostic>,
    ) -> Arc<UserDirectory> {
        let same = parts.len() == self.parts.len() && parts.iter().zip(&self.parts).all(|(a, b)| Arc::ptr_eq(a, b));
        if !same {
            self.findings.clear();
            let mut all = Unresolved::default();
            for part in &parts {
                all.people.extend_from_slice(&part.people);
                all.groups.extend_from_slice(&part.groups);
                all.projects.extend_from_slice(&part.projects);
            }
            self.directory = Arc::new(all.finish(&mut self.findings));
            self.parts = parts;
        }
        findings.extend_from_slice(&self.findings);
        Arc::clone(&self.directory)
    }
}

#[derive(Clone, Debug)]
struct UnresolvedNamespace {
    id: i64,
    path: Arc<str>,
    members: Vec<(String, Role, Location)>,
    location: Location,
}

impl Unresolved {
    /// A copy in which everybody is blocked whom `other` blocks.
    pub(super) fn with_blocks_of(&self, other: &Self) -> Self {
        let blocked = other
            .people
            .iter()
            .filter(|(person, _)| person.state == PersonState::Blocked);
        let blocked: Vec<&User> = blocked.map(|(person, _)| &person.user).collect();
        let mut copy = self.clone();
        for (person, _) in &mut copy.people {
            let is_meant = |user: &&User| user.id == person.user.id || user.username == person.user.username;
            if blocked.iter().any(is_meant) {
                person.state = PersonState::Blocked;
            }
        }
        copy
    }

    pub(super) fn read(object: &Object<'_>) -> Self {
        let Some(spec) = object.fields.child("spec") else {
            let message = format!("UserDirectory `{}` has no `spec`", object.name.name);
            object.fields.error(message);
            return Self::default();
        };
        spec.reject_unknown_keys(&["users", "groups", "projects"]);
        Self {
            people: spec.children("users").iter().filter_map(person).collect(),
            groups: spec.children("groups").iter().filter_map(namespace).collect(),
            projects: spec.children("projects").iter().filter_map(namespace).collect(),
        }
    }

    fn finish(self, findings: &mut Vec<Diagnostic>) -> UserDirectory {
        let mut ids = UniqueCheck::new("user number");
        // GitLab's names are unique regardless of case.
        let mut names = UniqueCheck::new("username");
        for (person, location) in &self.people {
            ids.check(person.user.id.to_string(), location, findings);
            names.check(person.user.username.to_lowercase(), location, findings);
        }
        let mut paths = UniqueCheck::new("path");
        for (kind, spaces) in [("group number", &self.groups), ("project number", &self.projects)] {
            let mut ids = UniqueCheck::new(kind);
            for space in spaces {
                ids.check(space.id.to_string(), &space.location, findings);
                paths.check(space.path.as_ref().to_owned(), &space.location, findings);
            }
        }
        let known: BTreeMap<String, i64> = self
            .people
            .iter()
            .map(|(person, _)| (person.user.username.clone(), person.user.id))
            .collect();
        let mut resolve = |spaces: Vec<UnresolvedNamespace>| {
            let resolved = spaces.into_iter().map(|space| space.resolve(&known, findings));
            resolved.collect::<Vec<_>>()
        };
        let (groups, projects) = (resolve(self.groups), resolve(self.projects));
        let people = self.people.into_iter().map(|(person, _)| person).collect();
        UserDirectory::new(people, groups, projects)
    }
}

impl UnresolvedNamespace {
    fn resolve(self, known: &BTreeMap<String, i64>, findings: &mut Vec<Diagnostic>) -> GitLabNamespace {
        let mut members = Members::new();
        let mut usernames = UniqueCheck::new("member");
        for (username, role, location) in self.members {
            let Some(id) = known.get(&username) else {
                let message = format!(
                    "`{username}` is a member of `{}` and no user of any directory",
                    self.path
                );
                findings.push(Diagnostic::warning(location, message));
                continue;
            };
            usernames.check(username, &location, findings);
            members.insert(*id, role);
        }
        GitLabNamespace {
            id: self.id,
            path: self.path,
            members: Arc::new(members),
        }
    }
}

struct UniqueCheck {
    what: &'static str,
    seen: BTreeMap<String, Location>,
}

impl UniqueCheck {
    fn new(what: &'static str) -> Self {
        Self {
            what,
            seen: BTreeMap::new(),
        }
    }

    fn check(&mut self, value: String, location: &Location, findings: &mut Vec<Diagnostic>) {
        if let Some(first) = self.seen.get(&value) {
            let message = format!("the {} `{value}` is there twice, first at {first}", self.what);
            findings.push(Diagnostic::error(location.clone(), message));
        } else {
            self.seen.insert(value, location.clone());
        }
    }
}

fn person(fields: &Fields<'_>) -> Option<(Person, Location)> {
    fields.reject_unknown_keys(&["id", "username", "state"]);
    let id = fields.positive_integer("id");
    let username = fields.required("username");
    let state = match fields.text("state").as_deref() {
        None | Some("active") => PersonState::Active,
        Some("blocked") => PersonState::Blocked,
        Some(other) => {
            let path = fields.path_of("state");
            fields.error(format!("`{path}` is `{other}`, allowed are `active` and `blocked`"));
            PersonState::Blocked
        }
    };
    let user = User {
        id: id?,
        username: username?,
    };
    // Control characters would reach logs and header fields.
    if user.username.chars().any(|letter| letter.is_control()) {
        fields.error(format!("`{}` has control characters", fields.path_of("username")));
        return None;
    }
    Some((Person { user, state }, fields.location()))
}

fn namespace(fields: &Fields<'_>) -> Option<UnresolvedNamespace> {
    fields.reject_unknown_keys(&["id", "path", "members"]);
    let id = fields.positive_integer("id");
    let path = fields.required("path").and_then(|text| {
        let path = super::agent::path(&text);
        if path.is_none() {
            let message = format!("`{}` is `{text}`, which is no path", fields.path_of("path"));
            fields.error_with_hint(message, "such as `group/subgroup/project`");
        }
        path
    });
    let members = fields.children("members").iter().filter_map(member).collect();
    Some(UnresolvedNamespace {
        id: id?,
        path: path?,
        members,
        location: fields.location(),
    })
}

fn member(fields: &Fields<'_>) -> Option<(String, Role, Location)> {
    fields.reject_unknown_keys(&["username", "role"]);
    let username = fields.required("username");
    let role = fields.required("role").and_then(|text| {
        let role = Role::ALL.into_iter().find(|role| role.as_str() == text);
        if role.is_none() {
            let (path, allowed) = (fields.path_of("role"), Role::ALL.map(Role::as_str).join("`, `"));
            fields.error(format!("`{path}` is `{text}`, allowed are `{allowed}`"));
        }
        role
    });
    Some((username?, role?, fields.location()))
}

#[cfg(test)]
mod tests;
