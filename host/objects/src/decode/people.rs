//! Decodes `UserDirectory` objects and combines them into one [`UserDirectory`].
//!
//! Security: every mistake here, such as an unknown key or a duplicate id, name or path,
//! refuses the load, so nobody whose entry has a mistake becomes active.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::sync::Arc;

use super::Object;
use crate::fields::Fields;
use crate::people::{GitLabNamespace, Members, Person, PersonState, UserDirectory};
use strum::VariantArray;
use tollgate_core::diagnostic::{Diagnostic, Location};
use tollgate_core::user::{Role, User};

/// The entries of one object, or of all, before usernames are resolved.
#[derive(Clone, Debug, Default)]
pub struct Unresolved {
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
        let people = other.people.iter().map(|(person, _)| person);
        let blocked = people.filter(|person| person.state == PersonState::Blocked);
        let blocked: Vec<&User> = blocked.map(|person| &person.user).collect();
        let mut copy = self.clone();
        for (person, _) in &mut copy.people {
            // By either of them, as the other one may be the mistake.
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
        let mut seen = SeenValues::new();
        for (person, location) in &self.people {
            let number = person.user.id.to_string();
            check_unique(&mut seen, "user number", number, location, findings);
            // GitLab's names are unique regardless of case.
            let username = person.user.username.to_lowercase();
            check_unique(&mut seen, "username", username, location, findings);
        }
        for (kind, spaces) in [("group number", &self.groups), ("project number", &self.projects)] {
            for space in spaces {
                check_unique(&mut seen, kind, space.id.to_string(), &space.location, findings);
                // Groups and projects share the paths, as in GitLab.
                check_unique(&mut seen, "path", space.path.to_string(), &space.location, findings);
            }
        }
        let numbered = |(person, _): &(Person, Location)| (person.user.username.clone(), person.user.id);
        let known: BTreeMap<String, i64> = self.people.iter().map(numbered).collect();
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
        let mut seen = SeenValues::new();
        for (username, role, location) in self.members {
            let Some(id) = known.get(&username) else {
                let path = &self.path;
                let message = format!("`{username}` is a member of `{path}` and no user of any directory");
                findings.push(Diagnostic::warning(location, message));
                continue;
            };
            check_unique(&mut seen, "member", username, &location, findings);
            members.insert(*id, role);
        }
        GitLabNamespace {
            id: self.id,
            path: self.path,
            members: Arc::new(members),
        }
    }
}

/// What was read so far: kinds and values, and where each is first.
type SeenValues = BTreeMap<(&'static str, String), Location>;

fn check_unique(
    seen: &mut SeenValues,
    what: &'static str,
    value: String,
    location: &Location,
    findings: &mut Vec<Diagnostic>,
) {
    match seen.entry((what, value)) {
        Entry::Vacant(entry) => drop(entry.insert(location.clone())),
        Entry::Occupied(first) => {
            let ((_, value), first) = (first.key(), first.get());
            let message = format!("the {what} `{value}` occurs twice, first at {first}");
            findings.push(Diagnostic::error(location.clone(), message));
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
            // A block counts even of an object with mistakes, see `with_blocks_of`.
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
        let role = Role::VARIANTS.iter().copied().find(|role| role.as_ref() == text);
        if role.is_none() {
            let (path, allowed) = (
                fields.path_of("role"),
                Role::VARIANTS
                    .iter()
                    .map(AsRef::as_ref)
                    .collect::<Vec<&str>>()
                    .join("`, `"),
            );
            fields.error(format!("`{path}` is `{text}`, allowed are `{allowed}`"));
        }
        role
    });
    Some((username?, role?, fields.location()))
}

#[cfg(test)]
mod tests;
