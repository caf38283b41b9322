//! Determines and checks the permissions that a set itself needs.
//!
//! The RBAC object is `<project>/<name>`, or `<project>/<namespace>/<name>` outside the control
//! plane's namespace. A set whose project is a template has one object for each project its
//! Applications are in.
//!
//! Security: a refusal does not name the project of a stored set to a caller who may not see the
//! set.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::error::{Error, RefusalList};
use crate::finding::{Finding, record_check};
use tollgate_front::set_list::{OwnedApplication, is_templated, or_default, project_text};

use crate::{Operation, SetAuthorizer};
use tollgate_applicationset::DeniedResource;
use tollgate_applicationset::plan::PROJECTS_ANNOTATION;
use tollgate_config::{ApplicationSetChecks, ApplicationSetPermissions};
use tollgate_front::rbac::RbacLookup;
use tollgate_objects::ObjectName;
use tollgate_policy::rbac::object_name;
use tollgate_proxy::record::CheckRecord;
use tollgate_rego::{ApplicationSetFacts, ApplicationSetInput, ApplicationSetStage, RbacCheck};

/// The text for a caller who uses the name of a stored set they may not see.
pub(super) const HIDDEN_SET: &str = "there is an applicationset of this name that you may not see";

/// A required permission: any of these actions, in one project.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct RequiredPermission {
    pub(super) actions: &'static [&'static str],
    pub(super) project: String,
    /// Whether only the stored set has this project.
    pub(super) stored: bool,
}

/// The projects that the gateway wrote to a set's annotation.
pub fn annotated_projects(set: &Value) -> impl Iterator<Item = &str> {
    let annotations = set.pointer("/metadata/annotations");
    let listed = annotations.and_then(|annotations| annotations.get(PROJECTS_ANNOTATION)?.as_str());
    let listed = listed.unwrap_or_default().split(',').map(str::trim);
    listed.filter(|project| !project.is_empty())
}

/// The projects in which a stored set needs permissions.
///
/// - `owned`: projects of the Applications it owns.
pub(super) fn stored_projects<'a>(stored: &Value, owned: impl Iterator<Item = &'a str>) -> BTreeSet<String> {
    let text = project_text(stored);
    if !is_templated(text) {
        return BTreeSet::from([or_default(text).to_owned()]);
    }
    let mut projects: BTreeSet<String> = annotated_projects(stored).map(str::to_owned).collect();
    projects.extend(owned.map(|project| or_default(project).to_owned()));
    // An empty result would require no permission at all.
    if projects.is_empty() {
        projects.insert(text.to_owned());
    }
    projects
}

/// The permissions that an operation needs.
///
/// - `sent`: projects of the set that was sent. Empty if none was, or if they are not known yet.
/// - `stored`: projects of the stored set. Empty if none is stored.
pub(super) fn required_permissions(
    operation: Operation,
    sent: &BTreeSet<String>,
    stored: &BTreeSet<String>,
) -> Vec<RequiredPermission> {
    let mut required = Vec::new();
    let mut require = |actions: &'static [&'static str], projects: &mut dyn Iterator<Item = &String>| {
        for project in projects {
            required.push(RequiredPermission {
                actions,
                project: project.clone(),
                stored: !sent.contains(project),
            });
        }
    };
    let new = || sent.iter();
    let old = || stored.iter();
    let moved = || sent.difference(stored);
    let left = || stored.difference(sent);
    match operation {
        Operation::Get => require(&["get"], &mut old()),
        Operation::Delete => require(&["delete"], &mut old()),
        Operation::Create => require(&["create"], &mut new()),
        Operation::Preview => {
            require(&["preview", "create"], &mut new());
            require(&["get"], &mut old());
        }
        Operation::CreateUnchanged => {
            require(&["create"], &mut new());
            require(&["get"], &mut old());
        }
        Operation::Upsert => {
            // An upsert is a create of Argo CD's API, so it needs `create` even where it only updates.
            require(&["create"], &mut new());
            require(&["update"], &mut new());
            require(&["update"], &mut left());
        }
        Operation::Update => {
            require(&["create"], &mut moved());
            require(&["update"], &mut new());
            require(&["update"], &mut left());
        }
    }
    required
}

/// A set on which permissions are checked.
#[derive(Clone, Copy)]
pub(super) struct JudgedSet<'a> {
    pub name: &'a ObjectName,
    pub(super) facts: &'a ApplicationSetFacts,
    /// Whether the caller may not see the stored set.
    pub(super) hidden: bool,
}

impl SetAuthorizer<'_> {
    /// The RBAC object of a set or Application of this namespace.
    pub(super) fn object(&self, project: &str, name: &ObjectName) -> String {
        object_name(self.control_plane_namespace, project, &name.namespace, &name.name)
    }

    pub(super) fn lookup_permission(&self, resource: &'static str, action: &'static str, object: String) -> RbacLookup {
        RbacLookup::of(self.rbac, self.caller, [resource, action], object)
    }

    /// The lookup of a required permission: that of the first action that is allowed, or else of
    /// the first action.
    fn verdict(&self, permission: &RequiredPermission, name: &ObjectName) -> Option<RbacLookup> {
        let object = self.object(&permission.project, name);
        let lookups = permission.actions.iter();
        let mut lookups = lookups.map(|action| self.lookup_permission("applicationsets", action, object.clone()));
        let first = lookups.next()?;
        if first.is_allowed() {
            return Some(first);
        }
        Some(lookups.find(RbacLookup::is_allowed).unwrap_or(first))
    }

    /// Checks the permissions on a set, by RBAC and by the policy.
    pub(super) fn judge_set(
        &self,
        set: JudgedSet<'_>,
        required: &[RequiredPermission],
        checks: &mut Vec<CheckRecord>,
        collector: &mut RefusalList,
    ) -> Result<(), Error> {
        // The projects of a templated set are known after generation: `judge_plan` checks them then.
        if required.is_empty() {
            return Ok(());
        }
        let JudgedSet { name, facts, hidden } = set;
        let lookups: Vec<(&RequiredPermission, RbacLookup)> = required
            .iter()
            .filter_map(|permission| Some((permission, self.verdict(permission, name)?)))
            .collect();
        let mut findings = Vec::new();
        for (permission, lookup) in lookups.iter().filter(|(_, lookup)| !lookup.is_allowed()) {
            let (object, shown) = match hidden && permission.stored {
                true => (name.name.as_str(), Finding::denied(HIDDEN_SET)),
                false => (lookup.fact().object, Finding::missing(lookup.fact())),
            };
            findings.push((DeniedResource::Set(object.to_owned()), shown));
        }
        let facts_of: Vec<RbacCheck<'_>> = lookups.iter().map(|(_, lookup)| lookup.fact()).collect();
        let input = ApplicationSetInput {
            facts,
            subject: ApplicationSetStage::Set,
            checks: &facts_of,
            refused: findings.first().map(|(_, finding)| finding.reason()),
        };
        let denied = self.policy_denial(&input)?;
        if let Some(reason) = denied.filter(|reason| findings.iter().all(|(_, finding)| finding.reason() != reason)) {
            let about = lookups.first().map_or("", |(_, lookup)| lookup.fact().object);
            findings.push((DeniedResource::Set(about.to_owned()), Finding::of_policy(reason)));
        }
        for (about, finding) in findings {
            finding.put(about, collector);
        }
        for (_, lookup) in lookups {
            record_check(checks, || lookup.into_check());
        }
        Ok(())
    }

    /// Whether the caller may see a stored set, regardless of its namespace.
    pub(super) fn sees(&self, name: &ObjectName, stored: &Value, owned: &BTreeSet<OwnedApplication>) -> bool {
        if self.settings.permissions == ApplicationSetPermissions::Inherited {
            return self.sees_inherited(name, stored, owned);
        }
        let projects = match self.settings.checks {
            ApplicationSetChecks::Generated => stored_projects(stored, owned.iter().map(|one| one.project.as_str())),
            ApplicationSetChecks::Argocd => {
                let object = self.object(project_text(stored), name);
                return self.lookup_permission("applicationsets", "get", object).is_allowed();
            }
        };
        let required = required_permissions(Operation::Get, &BTreeSet::new(), &projects);
        let facts = self.facts(Operation::Get, name, stored, &projects);
        let mut collector = RefusalList::default();
        let set = JudgedSet {
            name,
            facts: &facts,
            hidden: false,
        };
        let outcome = self.judge_set(set, &required, &mut Vec::new(), &mut collector);
        outcome.is_ok() && collector.is_empty()
    }
}
