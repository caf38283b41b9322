//! Reads one Application of a plan: the fields that are checked, and the permissions that it
//! needs.
//!
//! Security: a generated Application is checked even if the stored one stays different.

use rustc_hash::FxHashMap;
use serde_json::Value;

use crate::application::{ApplicationFields, read};
use crate::finding::Finding;
use tollgate_front::set_list::{OwnedApplication, project_of};

use crate::plan::RESOURCE;
use crate::{Operation, SetAuthorizer, SetPermit};
use tollgate_applicationset::plan::{Action, Plan, PlannedChange};
use tollgate_core::dns::is_subdomain;
use tollgate_front::rbac::why;
use tollgate_policy::rbac::{RuleId, Verdict};
use tollgate_proxy::record::CheckRecord;
use tollgate_rego::{RbacCheck, RbacVerdict};

pub(super) const ACTIONS: [&str; 3] = ["create", "update", "delete"];

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    Written,
    /// The Application that the set generates and that is not written. Argo CD's controller writes
    /// it when the stored Application is gone, or when the set lets it change.
    Generated,
    /// The Application that would be created if none of the name existed.
    NameTaken,
}

#[derive(Debug)]
pub(super) struct PermissionCheck {
    pub(super) action: &'static str,
    /// Whether it is for the Application's new project, not the stored one.
    is_new: bool,
    pub(super) verdict: Option<Verdict>,
}

#[derive(Debug)]
pub(super) struct ChangeCheck<'a> {
    pub(super) change: &'a PlannedChange,
    pub(super) side: Side,
    /// The object afterwards.
    target: Option<&'a Value>,
    /// The Application afterwards, or what is wrong with it.
    pub(super) application: Option<Result<ApplicationFields<'a>, String>>,
    old: Option<String>,
    new: Option<String>,
    pub(super) permissions: Vec<PermissionCheck>,
}

impl SetAuthorizer<'_> {
    /// All checks of a plan: each change, what else is generated, and what cannot be created.
    pub(super) fn change_checks<'b>(&self, permit: &SetPermit, plan: &'b Plan) -> Vec<ChangeCheck<'b>> {
        let changes = plan.changes.iter().flat_map(|change| {
            let generated = change.generated.as_ref();
            let generated = generated.map(|object| self.change_check(permit, change, Side::Generated, Some(object)));
            std::iter::once(self.written(permit, change)).chain(generated)
        });
        let conflicts = plan
            .name_conflicts()
            .map(|change| self.change_check(permit, change, Side::NameTaken, change.after.as_ref()));
        changes.chain(conflicts).collect()
    }

    fn written<'b>(&self, permit: &SetPermit, change: &'b PlannedChange) -> ChangeCheck<'b> {
        // A deleted set's Application counts as deleted even if it stays (`orphan`), which needs the same right.
        let target = match (change.action, permit.operation) {
            (Action::Delete, _) | (_, Operation::Delete) => None,
            (Action::Create | Action::Update, _) => change.after.as_ref(),
            (Action::Keep, _) => change.before.as_ref(),
        };
        self.change_check(permit, change, Side::Written, target)
    }

    fn change_check<'b>(
        &self,
        permit: &SetPermit,
        change: &'b PlannedChange,
        side: Side,
        target: Option<&'b Value>,
    ) -> ChangeCheck<'b> {
        let application = target.map(|object| checked(change, object));
        let object = |project: &str| self.object(project, &change.name);
        let old = change.before.as_ref().map(|before| object(project_of(before)));
        let new = target.map(|after| object(project_of(after)));
        let permissions = match side {
            Side::Written | Side::NameTaken => {
                let is_deletion = permit.operation == Operation::Delete;
                permission_checks(is_deletion, old.as_deref(), new.as_deref())
            }
            Side::Generated => vec![permission_check("create", true), permission_check("update", true)],
        };
        ChangeCheck {
            change,
            side,
            target,
            application,
            old,
            new,
            permissions,
        }
    }
}

impl ChangeCheck<'_> {
    pub(super) fn action(&self, operation: Operation) -> Action {
        match (operation, self.side) {
            (Operation::Delete, _) => Action::Delete,
            (_, Side::Written | Side::NameTaken) => self.change.action,
            (_, Side::Generated) => Action::Update,
        }
    }

    pub(super) fn wrong(&self, permit: &SetPermit) -> Option<Finding> {
        let wrong = match &self.application {
            Some(Err(wrong)) => Some(wrong.clone()),
            Some(Ok(_)) => None,
            None => unlinked_only(permit, self.change),
        };
        wrong.as_deref().map(Finding::invalid)
    }

    pub(crate) fn project(&self) -> Option<&str> {
        match &self.application {
            Some(Ok(application)) => Some(application.project),
            Some(Err(_)) | None => None,
        }
    }

    /// The labels afterwards; of an Application that is deleted, those that it has.
    pub(super) fn labels(&self) -> Vec<(&str, &str)> {
        let object = self.target.or(self.change.before.as_ref());
        let labels = object.and_then(|object| object.pointer("/metadata/labels")?.as_object());
        let pairs = labels.into_iter().flatten();
        pairs
            .filter_map(|(key, value)| Some((key.as_str(), value.as_str()?)))
            .collect()
    }

    /// The Application afterwards.
    pub(super) fn owned_application(&self) -> Option<OwnedApplication> {
        Some(OwnedApplication {
            project: self.project()?.to_owned(),
            name: self.change.name.name.clone(),
        })
    }

    pub(super) fn old_project(&self) -> &str {
        self.change.before.as_ref().map_or("", project_of)
    }

    pub(super) fn about(&self) -> &str {
        let object = self.new.as_deref().or(self.old.as_deref());
        object.unwrap_or(&self.change.name.name)
    }

    pub(super) fn object(&self, permission: &PermissionCheck) -> &str {
        let object = if permission.is_new { &self.new } else { &self.old };
        object.as_deref().unwrap_or_default()
    }

    pub(super) fn objects(&self, action: &'static str) -> impl Iterator<Item = &str> {
        let permissions = self.permissions.iter();
        let permissions = permissions.filter(move |permission| permission.action == action);
        permissions.map(|permission| self.object(permission))
    }

    pub(super) fn checks<'b>(&'b self, rules: &'b FxHashMap<RuleId, String>) -> Vec<RbacCheck<'b>> {
        let check = |permission: &'b PermissionCheck| RbacCheck {
            resource: RESOURCE,
            action: permission.action,
            object: self.object(permission),
            // A permission that was not looked up is not allowed.
            verdict: RbacVerdict {
                allow: permission.verdict.is_some_and(|verdict| verdict.is_allowed()),
                rule: permission
                    .verdict
                    .and_then(|verdict| rules.get(&verdict.rule?))
                    .map(String::as_str),
                why: permission.verdict.map_or("no-rule", |verdict| why(verdict.why)),
            },
        };
        self.permissions.iter().map(check).collect()
    }
}

fn permission_check(action: &'static str, is_new: bool) -> PermissionCheck {
    PermissionCheck {
        action,
        is_new,
        verdict: None,
    }
}

fn permission_checks(is_deletion: bool, old: Option<&str>, new: Option<&str>) -> Vec<PermissionCheck> {
    let mut permissions = match (old, is_deletion) {
        (Some(_), true) => vec![permission_check("delete", false)],
        (Some(_), false) => Vec::from(ACTIONS.map(|action| permission_check(action, false))),
        (None, _) => vec![permission_check("create", true)],
    };
    if let (Some(old), Some(new)) = (old, new)
        && old != new
    {
        permissions.extend([permission_check("create", true), permission_check("update", true)]);
    }
    permissions
}

fn checked<'a>(change: &'a PlannedChange, object: &'a Value) -> Result<ApplicationFields<'a>, String> {
    let application = read(object)?;
    let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
    if application.name != change.name.name || namespace.is_some_and(|found| found != change.name.namespace) {
        return Err("the object has another name or namespace than the change".to_owned());
    }
    if !is_subdomain(application.name) {
        return Err(format!(
            "`{}` is no name for an object: lower-case letters, digits, `-` and `.` are allowed",
            application.name
        ));
    }
    // Writing an Application must not start an operation: that needs a separate permission.
    let operation = |object: Option<&'a Value>| {
        let operation = object.and_then(|object| object.get("operation"));
        operation.filter(|operation| !operation.is_null())
    };
    let started = operation(Some(object));
    if started.is_some() && started != operation(change.before.as_ref()) {
        return Err("`operation` cannot be set by writing an application".to_owned());
    }
    Ok(application)
}

/// If an Application stays when its set is deleted, only its reference to the set may change.
fn unlinked_only(permit: &SetPermit, change: &PlannedChange) -> Option<String> {
    let (Operation::Delete, Some(after)) = (permit.operation, &change.after) else {
        return None;
    };
    let bare = |object: &Value| {
        let mut object = object.clone();
        if let Some(metadata) = object.get_mut("metadata").and_then(Value::as_object_mut) {
            metadata.remove("ownerReferences");
        }
        object
    };
    let same = change.before.as_ref().is_some_and(|before| bare(before) == bare(after));
    (!same).then(|| "more than the reference to the set would change".to_owned())
}

pub(super) fn recorded(check: &RbacCheck<'_>) -> CheckRecord {
    // `CheckRecord` keeps static texts, and the action is always one of these.
    let find = |action: &str| ACTIONS.into_iter().find(|known| *known == action);
    CheckRecord {
        resource: RESOURCE,
        action: find(check.action).unwrap_or_default(),
        object: check.object.to_owned(),
        allowed: check.verdict.allow,
        rule: check.verdict.rule.map(str::to_owned),
    }
}
