//! Who may do what, by the rules of docs/admission.md and Argo CD's RBAC: the oracle's own reading of
//! both, which shares no code with the gateway.

use std::collections::BTreeSet;

use serde_json::Value;

use super::objects::{Kind, project_of};
use super::world::{Settings, World};

/// Rows of Argo CD's RBAC: subject, resource, action, project. The name is always `*`.
const ROWS: &[(&str, &str, &str, &str)] = &[
    ("alice", "applications", "*", "shop"),
    ("alice", "applicationsets", "*", "shop"),
    // Everything but operations.
    ("carol", "applications", "get", "shop"),
    ("carol", "applications", "create", "shop"),
    ("carol", "applications", "update", "shop"),
    ("carol", "applications", "delete", "shop"),
    ("carol", "applicationsets", "*", "shop"),
    ("editor", "applications", "get", "shop"),
    ("editor", "applications", "update", "shop"),
    ("syncer", "applications", "get", "shop"),
    ("syncer", "applications", "sync", "shop"),
    // Sets, and none of the Applications that they generate.
    ("storer", "applications", "get", "shop"),
    ("storer", "applicationsets", "*", "shop"),
    // Local manifests.
    ("over", "applications", "get", "shop"),
    ("over", "applications", "sync", "shop"),
    ("over", "applications", "override", "shop"),
    // The objects of Applications, and not the Applications.
    ("patcher", "applications", "get", "shop"),
    ("patcher", "applications", "update/*", "shop"),
    ("patcher", "applications", "delete/*", "shop"),
    ("ann", "applications", "*", "team-a"),
    ("ann", "applicationsets", "*", "team-a"),
    ("ann", "projects", "update", "team-a"),
];

/// Service accounts of the control plane's cluster.
pub(super) const ROOT_ACCOUNT: &str = "system:serviceaccount:argocd:root-sync";
pub(super) const SHOP_ACCOUNT: &str = "system:serviceaccount:argocd:shop-sync";
/// The account of `prod-root`, which is one of another cluster.
pub(super) const PROD_ACCOUNT: &str = "system:serviceaccount:team:deployer";

/// Everybody who writes by kubectl.
pub(super) const USERS: [&str; 14] = [
    "alice",
    "carol",
    "editor",
    "syncer",
    "storer",
    "over",
    "patcher",
    "ann",
    "admin",
    "nobody",
    ROOT_ACCOUNT,
    SHOP_ACCOUNT,
    PROD_ACCOUNT,
    "role:admin",
];

/// Accounts of Argo CD, by which people call argocd-server.
pub(super) const ACCOUNTS: [&str; 9] = [
    "alice", "carol", "editor", "syncer", "storer", "over", "patcher", "ann", "admin",
];

/// `admission.children` of the settings, where they list any.
pub(super) const CHILDREN: (&str, [&str; 3]) = ("platform", ["platform", "shop", "team-*"]);

/// The policy of `argocd-rbac-cm`.
pub(super) fn policy() -> String {
    let rows = ROWS.iter().map(|(subject, resource, action, project)| match *resource {
        "projects" => format!("p, {subject}, projects, {action}, {project}, allow\n"),
        _ => format!("p, {subject}, {resource}, {action}, {project}/*, allow\n"),
    });
    rows.collect::<String>() + "g, system:masters, role:admin\ng, admin, role:admin\n"
}

pub(super) fn groups(user: &str) -> Vec<&'static str> {
    match user {
        "admin" => vec!["system:masters", "system:authenticated"],
        _ if user.starts_with("system:serviceaccount:") => vec!["system:serviceaccounts", "system:authenticated"],
        _ => vec!["system:authenticated"],
    }
}

/// One right in Argo CD.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Right {
    pub(super) resource: &'static str,
    pub(super) action: &'static str,
    pub(super) project: String,
}

impl Right {
    pub(super) fn new(kind: Kind, action: &'static str, project: impl Into<String>) -> Self {
        Self {
            resource: kind.plural_in_rbac(),
            action,
            project: project.into(),
        }
    }
}

/// Who answers for what is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Entity {
    /// By username.
    Person(&'static str),
    /// The source that decides the manifests of this Application: its Git repository, or local ones.
    Parent(String),
    /// A component of the control plane, about what it found out, or what nobody else decided.
    System,
}

/// Entities of which each must have a right by itself, or together with its alternatives.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Responsible(pub(super) Vec<Vec<Entity>>);

impl Responsible {
    pub(super) fn person(user: &'static str) -> Self {
        Self(vec![vec![Entity::Person(user)]])
    }

    pub(super) fn parent(name: &str) -> Self {
        Self(vec![vec![Entity::Parent(name.to_owned())]])
    }

    pub(super) fn system() -> Self {
        Self(vec![vec![Entity::System]])
    }

    pub(super) fn is_system(&self) -> bool {
        self.0.iter().flatten().all(|entity| *entity == Entity::System)
    }

    /// All of both.
    pub(super) fn and(&self, other: &Self) -> Self {
        let mut all = self.0.clone();
        all.extend(other.0.iter().filter(|party| !self.0.contains(party)).cloned());
        Self(all)
    }
}

/// What somebody has done without the right to it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Excess {
    pub(super) who: String,
    /// The rights that are missing.
    pub(super) missing: String,
    /// The same, with the projects.
    pub(super) in_projects: String,
}

/// Whether everybody responsible has every right.
pub(super) fn check(world: &World, responsible: &Responsible, rights: &[Right]) -> Result<(), Excess> {
    for party in &responsible.0 {
        let has_all = |entity: &Entity| rights.iter().all(|right| may(world, entity, right));
        if !party.iter().any(has_all) {
            let missing = rights
                .iter()
                .filter(|right| !party.iter().any(|entity| may(world, entity, right)));
            let missing: Vec<&Right> = missing.collect();
            let kinds: BTreeSet<String> = missing
                .iter()
                .map(|right| format!("{}, {}", right.resource, right.action))
                .collect();
            return Err(Excess {
                who: format!("{party:?}"),
                missing: kinds.into_iter().collect::<Vec<_>>().join("; "),
                in_projects: format!("{missing:?}"),
            });
        }
    }
    Ok(())
}

pub(super) fn may(world: &World, entity: &Entity, right: &Right) -> bool {
    match entity {
        Entity::System => true,
        Entity::Person(user) => has_row(user, right) || is_account_of_parent(world, user, right),
        Entity::Parent(name) => parent_may(world, name, right),
    }
}

pub(super) fn has_row(user: &str, right: &Right) -> bool {
    let is_admin = groups(user).contains(&"system:masters");
    is_admin
        || ROWS.iter().any(|(subject, resource, action, project)| {
            (*subject, *resource, *project) == (user, right.resource, &*right.project)
                && (*action == "*" || *action == right.action)
        })
}

/// Whether an Application may deploy this: in its own project, or as `admission.children` says.
fn parent_may(world: &World, name: &str, right: &Right) -> bool {
    let Some(parent) = world.object(Kind::Application, name) else {
        return false;
    };
    let project = project_of(parent);
    match world.settings.children && project == CHILDREN.0 {
        true => CHILDREN.1.iter().any(|pattern| matches(pattern, &right.project)),
        false => right.resource != "projects" && right.project == project,
    }
}

fn matches(pattern: &str, text: &str) -> bool {
    match pattern.strip_suffix('*') {
        Some(start) => text.starts_with(start),
        None => pattern == text,
    }
}

/// A service account is an Application's while impersonation is on, in the cluster that the
/// Application deploys to.
pub(super) fn is_account_of_parent(world: &World, user: &str, right: &Right) -> bool {
    if !user.starts_with("system:serviceaccount:") {
        return false;
    }
    let parents = world.objects_of(Kind::Application);
    parents
        .into_iter()
        .any(|(name, object)| account_of(&world.settings, object) == Some(user) && parent_may(world, name, right))
}

/// The account in the control plane's own cluster by which an Application deploys.
pub(super) fn account_of(settings: &Settings, application: &Value) -> Option<&'static str> {
    let is_here = application["spec"]["destination"]["server"] == super::objects::IN_CLUSTER;
    match project_of(application) {
        _ if !settings.impersonation || !is_here => None,
        "platform" => Some(ROOT_ACCOUNT),
        "shop" => Some(SHOP_ACCOUNT),
        _ => None,
    }
}
