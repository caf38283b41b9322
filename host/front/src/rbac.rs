//! A permission that a front asks of RBAC, and the verdict.

use crate::caller::Caller;
use tollgate_policy::rbac::{self, RbacRequest, Verdict, VerdictReason};
use tollgate_proxy::record::CheckRecord;
use tollgate_rego::{RbacCheck, RbacVerdict};

/// A permission and RBAC's verdict.
#[derive(Debug)]
pub struct RbacLookup {
    check: CheckRecord,
    why: VerdictReason,
}

impl RbacLookup {
    /// Asks for a resource and an action on an object.
    pub fn of(rbac: &rbac::Rbac, caller: &Caller, [resource, action]: [&'static str; 2], object: String) -> Self {
        let request = RbacRequest {
            resource,
            action,
            object: &object,
        };
        let verdict = rbac.decide(&caller.roles, request);
        Self::new(rbac, verdict, resource, action, object)
    }

    /// Whether the caller may invoke an extension, by rows about the extension and by rows about it
    /// in `project`.
    pub fn of_invoke(rbac: &rbac::Rbac, caller: &Caller, extension: &str, project: &str) -> Self {
        let [resource, action] = ["extensions", "invoke"];
        let request = RbacRequest {
            resource,
            action,
            object: extension,
        };
        let verdict = rbac.decide_in_project(&caller.roles, request, project);
        Self::new(rbac, verdict, resource, action, extension.to_owned())
    }

    /// Asks for an action on an AppProject.
    // SECURITY: the verdict does not depend on whether the project exists, so a caller who may not see it learns
    // nothing.
    pub fn of_project(rbac: &rbac::Rbac, caller: &Caller, action: &'static str, name: &str) -> Self {
        Self::of(rbac, caller, ["projects", action], name.to_owned())
    }

    fn new(rbac: &rbac::Rbac, verdict: Verdict, resource: &'static str, action: &'static str, object: String) -> Self {
        let rule = verdict.rule.and_then(|id| rbac.rule(id));
        let check = CheckRecord {
            resource,
            action,
            allowed: verdict.is_allowed(),
            rule: rule.map(|rule| format!("{}: {}", rule.location, rule.text)),
            object,
        };
        Self {
            check,
            why: verdict.why,
        }
    }

    /// The permission, as RBAC is asked.
    pub fn request(&self) -> RbacRequest<'_> {
        RbacRequest {
            resource: self.check.resource,
            action: self.check.action,
            object: &self.check.object,
        }
    }

    /// Whether a row allows it and none denies it.
    pub fn is_allowed(&self) -> bool {
        self.check.allowed
    }

    /// Whether a row denies it, or a row that had to be evaluated is invalid. That no row allows
    /// it is not enough.
    pub fn is_denied_by_row(&self) -> bool {
        match self.why {
            VerdictReason::DeniedByRule | VerdictReason::EvaluationError => true,
            VerdictReason::Allowed | VerdictReason::NoRule => false,
        }
    }

    /// The verdict in the form policies see.
    pub fn verdict(&self) -> RbacVerdict<'_> {
        RbacVerdict {
            allow: self.check.allowed,
            rule: self.check.rule.as_deref(),
            why: why(self.why),
        }
    }

    /// The lookup in the form the ApplicationSet policy sees.
    pub fn fact(&self) -> RbacCheck<'_> {
        RbacCheck {
            resource: self.check.resource,
            action: self.check.action,
            object: &self.check.object,
            verdict: self.verdict(),
        }
    }

    /// The question and the verdict, for the record.
    pub fn into_check(self) -> CheckRecord {
        self.check
    }
}

/// The reason for a verdict, in the form policies see.
pub fn why(why: VerdictReason) -> &'static str {
    match why {
        VerdictReason::Allowed => "allowed",
        VerdictReason::DeniedByRule => "denied-by-rule",
        VerdictReason::NoRule => "no-rule",
        VerdictReason::EvaluationError => "evaluation-error",
    }
}
