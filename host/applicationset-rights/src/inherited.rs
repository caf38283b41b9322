//! Permissions on a set that are those on its Applications: the setting `permissions: inherited`.
//!
//! Who may do something with all Applications of a set may do it with the set; `applicationsets` of
//! RBAC does not count.
//!
//! Security: a set without Applications inherits no permission. Such a set, one whose project is a
//! template, and one whose Applications depend on more than the set itself, need the permission on
//! every Application that it could have. So does one that owns an Application outside its project:
//! a user who creates an Application chooses which set it names as its owner.
//!
//! Source: `argo-cd/docs/proposals/backend-support-appset.md`.

use std::collections::BTreeSet;

use serde_json::Value;

use crate::error::{Error, RefusalList};
use crate::finding::{Finding, generator_kinds_of, record_check};
use crate::permissions::{HIDDEN_SET, JudgedSet};
use crate::{LaterApplications, MAX_RECORDED_CHECKS, Operation, SetAuthorizer};
use tollgate_applicationset::DeniedResource;
use tollgate_front::rbac::RbacLookup;
use tollgate_front::set_list::{OwnedApplication, is_templated, or_default, project_text};
use tollgate_objects::ObjectName;
use tollgate_proxy::record::CheckRecord;
use tollgate_rego::{ApplicationSetInput, ApplicationSetStage, RbacCheck};

const RESOURCE: &str = "applications";
/// Stands for every project and every name.
const ANY: &str = "*";

/// Kinds of generators whose Applications depend on nothing but the set.
pub(super) const SELF_CONTAINED: [&str; 3] = ["list", "matrix", "merge"];

/// The RBAC objects that a set inherits its permissions from.
enum Inheritance {
    /// Its Applications.
    Applications(Vec<String>),
    /// Those that stand for all Applications it could have.
    Possible(Vec<String>),
}

impl Inheritance {
    fn objects(&self) -> &[String] {
        match self {
            Self::Applications(objects) | Self::Possible(objects) => objects,
        }
    }

    fn finding(&self, lookup: &RbacLookup) -> (DeniedResource, Finding) {
        let fact = lookup.fact();
        match self {
            Self::Applications(_) => {
                let about = DeniedResource::Application(fact.object.to_owned());
                (about, Finding::missing(fact))
            }
            Self::Possible(_) => {
                let reason = format!(
                    "its Applications do not decide alone, and `applications, {}` is not permitted on all that it could \
                     have",
                    fact.action
                );
                let about = DeniedResource::Application(fact.object.to_owned());
                (about, Finding::denied(&reason))
            }
        }
    }
}

/// The actions that an operation needs on all Applications of the stored set.
fn inherited_actions(operation: Operation) -> &'static [&'static str] {
    match operation {
        // What it generates is checked once it is generated.
        Operation::Create => &[],
        Operation::Get | Operation::Preview => &["get"],
        Operation::CreateUnchanged => &["get", "create"],
        Operation::Upsert | Operation::Update => &["create", "update", "delete"],
        Operation::Delete => &["delete"],
    }
}

impl SetAuthorizer<'_> {
    /// Checks the permissions on a stored set that it inherits, and asks the policy.
    ///
    /// - `stored`: the stored set and what it owns, if there is one.
    pub(super) fn judge_inherited(
        &self,
        operation: Operation,
        set: JudgedSet<'_>,
        stored: Option<(&Value, &BTreeSet<OwnedApplication>)>,
        checks: &mut Vec<CheckRecord>,
        collector: &mut RefusalList,
    ) -> Result<(), Error> {
        let JudgedSet { name, facts, hidden } = set;
        let mut denied: Vec<(DeniedResource, Finding)> = Vec::new();
        let mut lookups: Vec<RbacLookup> = Vec::new();
        if let Some((stored, owned)) = stored {
            let inheritance = self.inheritance(name, stored, owned);
            for action in inherited_actions(operation) {
                let missing = self.denied_objects(action, inheritance.objects());
                // The answer to a read names none of them.
                let listed = if operation == Operation::Get { 1 } else { missing.len() };
                for object in missing.into_iter().take(listed) {
                    let lookup = self.lookup_permission(RESOURCE, action, object.to_owned());
                    denied.push(inheritance.finding(&lookup));
                    lookups.push(lookup);
                }
                // The policy and the record get at least one lookup, also if nothing is missing.
                if lookups.is_empty() {
                    let first = inheritance.objects().first();
                    lookups.extend(first.map(|object| self.lookup_permission(RESOURCE, action, object.clone())));
                }
            }
        }
        if hidden && !denied.is_empty() {
            // SECURITY: the caller does not learn which Applications the set has.
            denied = vec![(DeniedResource::Set(name.name.clone()), Finding::denied(HIDDEN_SET))];
        }
        let rbac_checks: Vec<RbacCheck<'_>> = lookups.iter().take(MAX_RECORDED_CHECKS).map(RbacLookup::fact).collect();
        let input = ApplicationSetInput {
            facts,
            subject: ApplicationSetStage::Set,
            checks: &rbac_checks,
            refused: denied.first().map(|(_, finding)| finding.reason()),
        };
        let of_policy = self.policy_denial(&input)?;
        let of_policy = of_policy.filter(|reason| denied.iter().all(|(_, finding)| finding.reason() != reason));
        if let Some(reason) = of_policy {
            denied.push((DeniedResource::Set(name.name.clone()), Finding::of_policy(reason)));
        }
        for (about, finding) in denied {
            finding.put(about, collector);
        }
        for lookup in lookups {
            record_check(checks, || lookup.into_check());
        }
        Ok(())
    }

    /// Whether the caller may see a stored set by the permissions that it inherits.
    pub(super) fn sees_inherited(&self, name: &ObjectName, stored: &Value, owned: &BTreeSet<OwnedApplication>) -> bool {
        let projects = owned.iter().map(|one| or_default(&one.project).to_owned()).collect();
        let facts = self.facts(Operation::Get, name, stored, &projects);
        let mut collector = RefusalList::default();
        let set = JudgedSet {
            name,
            facts: &facts,
            hidden: false,
        };
        let stored = Some((stored, owned));
        let judged = self.judge_inherited(Operation::Get, set, stored, &mut Vec::new(), &mut collector);
        judged.is_ok() && collector.is_empty()
    }

    fn inheritance(&self, name: &ObjectName, stored: &Value, owned: &BTreeSet<OwnedApplication>) -> Inheritance {
        let project = project_text(stored);
        let is_fixed = !is_templated(project) && !has_own_templates(stored);
        let is_own = |one: &OwnedApplication| is_fixed && or_default(&one.project) == or_default(project);
        let object = |one: &OwnedApplication| {
            let name = ObjectName {
                namespace: name.namespace.clone(),
                name: one.name.clone(),
            };
            self.object(or_default(&one.project), &name)
        };
        let mut objects: Vec<String> = owned.iter().map(object).collect();
        if !owned.is_empty() && owned.iter().all(is_own) {
            return Inheritance::Applications(objects);
        }
        // The Applications that it owns stay in the list: a row that denies one of them does not deny `*`.
        objects.extend(self.possible_applications(name, stored));
        Inheritance::Possible(objects)
    }

    /// RBAC objects that stand for all Applications that a set could have: those of its project, or
    /// of all projects if its own is not the only one.
    pub(super) fn possible_applications(&self, name: &ObjectName, set: &Value) -> Vec<String> {
        let project = project_text(set);
        if is_templated(project) || has_own_templates(set) {
            return self.applications_everywhere(name);
        }
        vec![self.object(or_default(project), &any_of(name))]
    }

    /// The same for a set whose project can be any.
    pub(super) fn applications_everywhere(&self, name: &ObjectName) -> Vec<String> {
        let any = any_of(name);
        // A row may deny one of the existing projects.
        let projects = self.resources.projects.keys().map(String::as_str);
        std::iter::once(ANY)
            .chain(projects)
            .map(|project| self.object(project, &any))
            .collect()
    }

    pub(super) fn denied_objects<'b>(&self, action: &str, objects: &'b [String]) -> Vec<&'b str> {
        let texts = objects.iter().map(String::as_str);
        let verdicts = self.rbac.decide_each(&self.caller.roles, RESOURCE, action, texts);
        let checked = objects.iter().zip(verdicts);
        let denied = checked.filter(|(_, verdict)| !verdict.is_allowed());
        denied.map(|(object, _)| object.as_str()).collect()
    }

    /// The finding for a set whose Applications can become others without a write of the set, unless
    /// the caller may create all that it could have, or the admission webhook judges them.
    pub(super) fn changing_applications(&self, name: &ObjectName, set: &Value) -> Option<Finding> {
        if self.later == LaterApplications::JudgedByAuthor {
            return None;
        }
        let kinds = generator_kinds_of(set);
        let kind = kinds.into_iter().find(|kind| !SELF_CONTAINED.contains(kind))?;
        let possible = self.possible_applications(name, set);
        let missing = self.denied_objects("create", &possible);
        let object = missing.first()?;
        let reason = format!(
            "what the generator `{kind}` reads decides which Applications it has, and `applications, create` is not \
             permitted on `{object}`"
        );
        Some(Finding::denied(&reason).by("spec.generators"))
    }
}

fn any_of(set: &ObjectName) -> ObjectName {
    ObjectName {
        namespace: set.namespace.clone(),
        name: ANY.to_owned(),
    }
}

/// Whether a generator has its own template, which may name another project.
pub(super) fn has_own_templates(set: &Value) -> bool {
    let mut left: Vec<&Value> = set.pointer("/spec/generators").into_iter().collect();
    // Generators nest two deep: list, entry, settings, three times.
    for _ in 0..9 {
        let mut below = Vec::new();
        for value in left {
            match value {
                Value::Array(items) => below.extend(items),
                Value::Object(fields) => {
                    if fields.contains_key("template") {
                        return true;
                    }
                    below.extend(fields.values());
                }
                Value::Null | Value::Bool(_) | Value::Number(_) | Value::String(_) => {}
            }
        }
        left = below;
    }
    false
}
