//! The users, groups and projects of all `UserDirectory` objects, looked up by id, name and path.
//!
//! Security: roles are inherited downwards only: a group's roles apply to the groups and projects
//! below it.

use std::collections::BTreeMap;
use std::sync::Arc;

use tollgate_core::user::{Role, User};

/// Whether a person is active or blocked.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum PersonState {
    /// They may do what their roles allow.
    #[default]
    Active,
    /// They may do nothing, regardless of their roles.
    Blocked,
}

/// A user of the directory.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Person {
    /// Id and name.
    pub user: User,
    /// The state. Blocked people are found too, so every caller must check it.
    pub state: PersonState,
}

/// Direct members: their roles by user id.
pub type Members = BTreeMap<i64, Role>;

/// A GitLab group or project, not a Kubernetes namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GitLabNamespace {
    /// Its id. Groups and projects are numbered separately.
    pub id: i64,
    /// Its path, in lower case.
    pub path: Arc<str>,
    /// Direct members.
    pub members: Arc<Members>,
}

/// All people, groups and projects, and who is a member where.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UserDirectory {
    people: BTreeMap<i64, Person>,
    by_name: BTreeMap<String, i64>,
    groups: BTreeMap<Arc<str>, GitLabNamespace>,
    projects: BTreeMap<Arc<str>, GitLabNamespace>,
}

impl UserDirectory {
    /// Builds a directory from entries with unique ids, names and paths. Of two entries with the
    /// same one the latter stays, and a person who is blocked in either is blocked.
    pub(crate) fn new(people: Vec<Person>, groups: Vec<GitLabNamespace>, projects: Vec<GitLabNamespace>) -> Self {
        let by_path = |namespaces: Vec<GitLabNamespace>| {
            let keyed = |namespace: GitLabNamespace| (Arc::clone(&namespace.path), namespace);
            namespaces.into_iter().map(keyed).collect()
        };
        let numbered = |person: &Person| (person.user.username.clone(), person.user.id);
        let by_name = people.iter().map(numbered).collect();
        let mut by_id: BTreeMap<i64, Person> = BTreeMap::new();
        for person in people {
            // Duplicates refuse a load, but such a directory still narrows the one in force: there, a block wins.
            let before = by_id.get(&person.user.id).map(|person| person.state);
            let state = match before {
                Some(PersonState::Blocked) => PersonState::Blocked,
                Some(PersonState::Active) | None => person.state,
            };
            by_id.insert(person.user.id, Person { state, ..person });
        }
        Self {
            by_name,
            people: by_id,
            groups: by_path(groups),
            projects: by_path(projects),
        }
    }

    /// Whether the directory is empty.
    pub fn is_empty(&self) -> bool {
        self.people.is_empty() && self.groups.is_empty() && self.projects.is_empty()
    }

    /// A person by id.
    pub fn person(&self, id: i64) -> Option<&Person> {
        self.people.get(&id)
    }

    /// A person by username, byte for byte.
    pub fn person_by_username(&self, username: &str) -> Option<&Person> {
        self.person(*self.by_name.get(username)?)
    }

    /// The name of each person.
    pub fn usernames(&self) -> impl Iterator<Item = &str> {
        self.by_name.keys().map(String::as_str)
    }

    /// A group by its path in lower case.
    pub fn group(&self, path: &str) -> Option<&GitLabNamespace> {
        self.groups.get(path)
    }

    /// A project by its path in lower case.
    pub fn project(&self, path: &str) -> Option<&GitLabNamespace> {
        self.projects.get(path)
    }

    /// A group by id.
    pub fn group_by_id(&self, id: i64) -> Option<&GitLabNamespace> {
        self.groups.values().find(|group| group.id == id)
    }

    /// A project by id.
    pub fn project_by_id(&self, id: i64) -> Option<&GitLabNamespace> {
        self.projects.values().find(|project| project.id == id)
    }

    /// The groups above a path, nearest first, without the path itself. A folder that is not a
    /// group is skipped.
    pub fn ancestor_groups<'a>(&'a self, path: &'a str) -> impl Iterator<Item = &'a GitLabNamespace> {
        let parent = |path: &'a str| path.rsplit_once('/').map(|(parent, _)| parent);
        std::iter::successors(parent(path), move |path| parent(path)).filter_map(|path| self.group(path))
    }
}
