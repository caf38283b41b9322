//! Reads one Application of a plan: what of it is judged, and the rights it needs.
//!
//! Security: what a set generates is judged even if the stored Application stays different.

use rustc_hash::FxHashMap;
use serde_json::Value;

use crate::applicationsets::permit::after::RESOURCE;
use crate::applicationsets::permit::application::{ApplicationFields, project_of, read};
use crate::applicationsets::permit::error::FindingKind;
use crate::applicationsets::permit::judge::Finding;
use crate::applicationsets::permit::{Desk, Operation, SetPermit};
use crate::extensions::facts::why;
use tollgate_applicationset::plan::{Action, Plan, PlannedChange};
use tollgate_core::dns::is_subdomain;
use tollgate_policy::rbac::{RuleId, Verdict};
use tollgate_policy::rego::{RbacCheck, RbacVerdict};
use tollgate_proxy::record::CheckRecord;

/// Rights on Applications that are looked up.
pub(super) const ACTIONS: [&str; 3] = ["create", "update", "delete"];

/// Which side of a change a step judges.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Side {
    /// The Application that exists after the plan.
    Written,
    /// The Application that the set generates and that is not written. Argo CD's controller writes
    /// it when the stored Application is gone, or when the set lets it change.
    Generated,
    /// The Application that would be created if none of the name existed.
    NameTaken,
}

/// A right on one Application, and RBAC's verdict.
#[derive(Debug)]
pub(super) struct PermissionCheck {
    pub(super) action: &'static str,
    /// Whether it is for the Application's new project, not the stored one.
    is_new: bool,
    pub(super) verdict: Option<Verdict>,
}

/// One side of a change, decoded.
#[derive(Debug)]
pub(super) struct ChangeCheck<'a> {
    pub(super) change: &'a PlannedChange,
    pub(super) side: Side,
    /// The Application afterwards, or what is wrong with it.
    pub(super) wanted: Option<Result<ApplicationFields<'a>, String>>,
    old: Option<String>,
    new: Option<String>,
    pub(super) rights: Vec<PermissionCheck>,
}

impl Desk<'_> {
    /// All steps of a plan: each change, what else is generated, and what cannot be created.
    pub(super) fn steps<'b>(&self, cleared: &SetPermit, plan: &'b Plan) -> Vec<ChangeCheck<'b>> {
        let changes = plan.changes.iter().flat_map(|change| {
            let generated = change.generated.as_ref();
            let generated = generated.map(|object| self.finish_stage(cleared, (change, Side::Generated), Some(object)));
            std::iter::once(self.written(cleared, change)).chain(generated)
        });
        let taken = plan
            .name_conflicts()
            .map(|change| self.finish_stage(cleared, (change, Side::NameTaken), change.after.as_ref()));
        changes.chain(taken).collect()
    }

    fn written<'b>(&self, cleared: &SetPermit, change: &'b PlannedChange) -> ChangeCheck<'b> {
        let target = match (change.action, cleared.operation) {
            (Action::Delete, _) | (_, Operation::Delete) => None,
            (Action::Create | Action::Update, _) => change.after.as_ref(),
            (Action::Keep, _) => change.before.as_ref(),
        };
        self.finish_stage(cleared, (change, Side::Written), target)
    }

    fn finish_stage<'b>(
        &self,
        cleared: &SetPermit,
        (change, side): (&'b PlannedChange, Side),
        target: Option<&'b Value>,
    ) -> ChangeCheck<'b> {
        let wanted = target.map(|object| checked(change, object));
        let object = |project: &str| self.object(project, &change.name);
        let old = change.before.as_ref().map(|before| object(project_of(before)));
        let new = target.map(|after| object(project_of(after)));
        let rights = match side {
            Side::Written | Side::NameTaken => {
                let is_deletion = cleared.operation == Operation::Delete;
                rights(is_deletion, (old.as_deref(), new.as_deref()))
            }
            Side::Generated => vec![right("create", true), right("update", true)],
        };
        ChangeCheck {
            change,
            side,
            wanted,
            old,
            new,
            rights,
        }
    }
}

impl ChangeCheck<'_> {
    /// What happens to the Application, in the form policies see.
    pub(super) fn action(&self, operation: Operation) -> Action {
        match (operation, self.side) {
            (Operation::Delete, _) => Action::Delete,
            (_, Side::Written | Side::NameTaken) => self.change.action,
            (_, Side::Generated) => Action::Update,
        }
    }

    /// Why the object cannot be written.
    pub(super) fn wrong(&self, cleared: &SetPermit) -> Option<Finding> {
        let wrong = match &self.wanted {
            Some(Err(wrong)) => Some(wrong.clone()),
            Some(Ok(_)) => None,
            None => unlinked_only(cleared, self.change),
        };
        wrong.map(|wrong| Finding::new(FindingKind::Validity, None, wrong))
    }

    /// The project of the Application afterwards.
    pub(super) fn project(&self) -> Option<&str> {
        match &self.wanted {
            Some(Ok(wanted)) => Some(wanted.project),
            Some(Err(_)) | None => None,
        }
    }

    pub(super) fn old_project(&self) -> &str {
        self.change.before.as_ref().map_or("", project_of)
    }

    /// The name that refusals give.
    pub(super) fn about(&self) -> &str {
        let object = self.new.as_deref().or(self.old.as_deref());
        object.unwrap_or(&self.change.name.name)
    }

    pub(super) fn object(&self, right: &PermissionCheck) -> &str {
        let object = if right.is_new { &self.new } else { &self.old };
        object.as_deref().unwrap_or_default()
    }

    pub(super) fn objects(&self, action: &'static str) -> impl Iterator<Item = &str> {
        let rights = self.rights.iter().filter(move |right| right.action == action);
        rights.map(|right| self.object(right))
    }

    pub(super) fn checks<'b>(&'b self, rules: &'b FxHashMap<RuleId, String>) -> Vec<RbacCheck<'b>> {
        let check = |right: &'b PermissionCheck| RbacCheck {
            resource: RESOURCE,
            action: right.action,
            object: self.object(right),
            verdict: match right.verdict {
                Some(verdict) => RbacVerdict {
                    allow: verdict.is_allowed(),
                    rule: verdict.rule.and_then(|id| rules.get(&id)).map(String::as_str),
                    why: why(verdict.why),
                },
                // A right that was not looked up is not allowed.
                None => RbacVerdict {
                    allow: false,
                    rule: None,
                    why: "no-rule",
                },
            },
        };
        self.rights.iter().map(check).collect()
    }
}

fn right(action: &'static str, is_new: bool) -> PermissionCheck {
    PermissionCheck {
        action,
        is_new,
        verdict: None,
    }
}

/// The rights a change needs.
fn rights(is_deletion: bool, (old, new): (Option<&str>, Option<&str>)) -> Vec<PermissionCheck> {
    let [create, update, delete] = ACTIONS;
    let mut rights = match (old, is_deletion) {
        (Some(_), true) => vec![right(delete, false)],
        (Some(_), false) => vec![right(create, false), right(update, false), right(delete, false)],
        (None, _) => vec![right(create, true)],
    };
    if let (Some(old), Some(new)) = (old, new)
        && old != new
    {
        rights.extend([right(create, true), right(update, true)]);
    }
    rights
}

/// Decodes the Application as it is afterwards.
fn checked<'a>(change: &'a PlannedChange, object: &'a Value) -> Result<ApplicationFields<'a>, String> {
    let wanted = read(object)?;
    let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
    if wanted.name != change.name.name || namespace.is_some_and(|found| found != change.name.namespace) {
        return Err("the object has another name or namespace than the change".to_owned());
    }
    if !is_subdomain(wanted.name) {
        return Err(format!(
            "`{}` is no name for an object: lower-case letters, digits, `-` and `.` are allowed",
            wanted.name
        ));
    }
    // Writing an Application must not start an operation: that needs a right of its own.
    let operation = |object: Option<&'a Value>| {
        let operation = object.and_then(|object| object.get("operation"));
        operation.filter(|operation| !operation.is_null())
    };
    let started = operation(Some(object));
    if started.is_some() && started != operation(change.before.as_ref()) {
        return Err("`operation` cannot be set by writing an application".to_owned());
    }
    Ok(wanted)
}

/// If an Application stays when its set is deleted, only its reference to the set may change.
fn unlinked_only(cleared: &SetPermit, change: &PlannedChange) -> Option<String> {
    let (Operation::Delete, Some(after)) = (cleared.operation, &change.after) else {
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

/// A check in the form of records.
pub(super) fn recorded(check: &RbacCheck<'_>) -> CheckRecord {
    let find = |action: &str| ACTIONS.into_iter().find(|known| *known == action);
    CheckRecord {
        resource: RESOURCE,
        action: find(check.action).unwrap_or_default(),
        object: check.object.to_owned(),
        allowed: check.verdict.allow,
        rule: check.verdict.rule.map(str::to_owned),
    }
}
