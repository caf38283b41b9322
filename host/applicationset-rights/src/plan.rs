//! Authorizes a plan after generation and collects every reason to refuse it.
//!
//! An Application that is created needs the permissions that creating it directly needs. For one
//! that exists already, changed or not, the caller must be allowed to create, change and delete
//! it. One that is deleted needs the permission to delete it. Every Application that exists
//! afterwards must be permitted by its project. Applications that the set generates but does not
//! write are checked as if they were written, because the policy that holds them back today may
//! change.
//!
//! Security: every change is checked, and no Application is taken over from another owner.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::application::{duplicate, unnamed};
use crate::error::{Error, RefusalList};
use crate::finding::{Finding, record_check};
use tollgate_front::set_list::{OwnedApplication, is_templated, project_of, project_text};

use crate::permissions::{JudgedSet, RequiredPermission, required_permissions};
use crate::placement::{PlacementChecker, PlacementVerdict};
use crate::{Operation, SetAuthorizer, SetPermit};
use tollgate_applicationset::DeniedResource;
use tollgate_applicationset::plan::{Owner, Plan, PlanProblem};
use tollgate_config::{ApplicationSetChecks, ApplicationSetPermissions};
use tollgate_policy::rbac::RuleId;
use tollgate_proxy::record::CheckRecord;
use tollgate_rego::{ApplicationChange, ApplicationSetInput, ApplicationSetStage, CheckedFact, RbacCheck};

mod change_check;

use change_check::{ACTIONS, ChangeCheck, Side, recorded};

const RESOURCE: &str = "applications";

#[derive(Debug, Default)]
pub(super) struct PlanVerdict {
    pub(super) set: RefusalList,
    /// Reasons to refuse the plan, including those for the operation.
    pub refused: RefusalList,
    pub(super) applications: BTreeSet<OwnedApplication>,
}

struct PlanContext<'a> {
    placement: PlacementChecker<'a>,
    owner: Option<Owner>,
    rules: FxHashMap<RuleId, String>,
    yes: CheckedFact,
}

impl SetAuthorizer<'_> {
    pub(super) fn judge_plan(
        &self,
        permit: &SetPermit,
        plan: &Plan,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<PlanVerdict, Error> {
        check_plan_matches(permit, plan)?;
        let mut outcome = PlanVerdict::default();
        match self.settings.checks {
            ApplicationSetChecks::Generated => {}
            ApplicationSetChecks::Argocd if plan.changes.is_empty() && plan.problems.is_empty() => return Ok(outcome),
            ApplicationSetChecks::Argocd => return Err(Error::PlanMismatch),
        }
        let change_checks = self.change_checks(permit, plan);
        if self.settings.permissions == ApplicationSetPermissions::Inherited {
            self.judge_empty_set(permit, &change_checks, checks, &mut outcome.refused);
        } else if is_templated(&permit.project) {
            self.judge_rendered_projects(permit, &change_checks, checks, &mut outcome)?;
        }
        // Only the permit of a preview has any: for a write, they refused the permit.
        for finding in &permit.nondeterminism {
            self.put_about_set(permit, finding.clone(), &mut outcome.refused);
        }
        for problem in &plan.problems {
            self.problem(permit, problem, &mut outcome.refused);
        }
        let stored = plan.set.before.as_ref();
        let mut context = PlanContext {
            placement: PlacementChecker::new(self.resources, self.projects, &permit.name.namespace),
            owner: stored.map(|stored| Owner::of(&permit.name.name, stored)),
            rules: FxHashMap::default(),
            yes: CheckedFact::new(None),
        };
        let change_checks = self.look_up(change_checks);
        for change_check in &change_checks {
            self.judge_change(permit, change_check, &mut context, checks, &mut outcome.refused)?;
        }
        let written = change_checks
            .iter()
            .filter(|change_check| change_check.side == Side::Written);
        outcome.applications = written.filter_map(ChangeCheck::owned_application).collect();
        Ok(outcome)
    }

    /// Checks the permissions on a set whose projects are known only after rendering.
    fn judge_rendered_projects(
        &self,
        permit: &SetPermit,
        change_checks: &[ChangeCheck<'_>],
        checks: &mut Vec<CheckRecord>,
        outcome: &mut PlanVerdict,
    ) -> Result<(), Error> {
        let projects = change_checks.iter().filter_map(ChangeCheck::project);
        let mut projects: BTreeSet<String> = projects.map(str::to_owned).collect();
        if projects.is_empty() {
            // Argo CD uses this text unrendered, so it counts too.
            projects.insert(permit.project.clone());
        }
        let required = required_permissions(permit.operation, &projects, &permit.stored_projects);
        // The permissions on the stored set alone were checked before.
        let required: Vec<RequiredPermission> = required.into_iter().filter(|required| !required.stored).collect();
        let set = JudgedSet {
            name: &permit.name,
            facts: &permit.facts,
            hidden: false,
        };
        self.judge_set(set, &required, checks, &mut outcome.set)?;
        outcome.refused.clone_from(&outcome.set);
        Ok(())
    }

    /// A set with inherited permissions that generates nothing needs the permission to create all
    /// Applications that it could have.
    fn judge_empty_set(
        &self,
        permit: &SetPermit,
        change_checks: &[ChangeCheck<'_>],
        checks: &mut Vec<CheckRecord>,
        refused: &mut RefusalList,
    ) {
        let is_empty = change_checks
            .iter()
            .all(|change_check| change_check.application.is_none());
        if permit.operation == Operation::Delete || !is_empty {
            return;
        }
        if let Some(object) = self.denied_objects("create", &permit.possible_applications).first() {
            let lookup = self.lookup_permission(RESOURCE, "create", (*object).to_owned());
            record_check(checks, || lookup.into_check());
            let reason =
                format!("it generates no Application, and `applications, create` is not permitted on `{object}`");
            self.put_about_set(permit, Finding::denied(&reason), refused);
        }
    }

    fn look_up<'b>(&self, mut change_checks: Vec<ChangeCheck<'b>>) -> Vec<ChangeCheck<'b>> {
        for action in ACTIONS {
            let objects = change_checks
                .iter()
                .flat_map(|change_check| change_check.objects(action));
            let verdicts = self.rbac.decide_each(&self.caller.roles, RESOURCE, action, objects);
            let permission_checks = change_checks
                .iter_mut()
                .flat_map(|change_check| change_check.permissions.iter_mut());
            // The same order as in `objects`, so that each verdict meets its permission.
            let permission_checks = permission_checks.filter(|permission| permission.action == action);
            for (permission, verdict) in permission_checks.zip(verdicts) {
                permission.verdict = Some(verdict);
            }
        }
        change_checks
    }

    fn judge_change(
        &self,
        permit: &SetPermit,
        change_check: &ChangeCheck<'_>,
        context: &mut PlanContext<'_>,
        checks: &mut Vec<CheckRecord>,
        refused: &mut RefusalList,
    ) -> Result<(), Error> {
        for permission in &change_check.permissions {
            if let Some(id) = permission.verdict.and_then(|verdict| verdict.rule) {
                context.rules.entry(id).or_insert_with(|| self.rule_text(id));
            }
        }
        let rbac_checks: Vec<RbacCheck<'_>> = change_check.checks(&context.rules);
        let denied = || rbac_checks.iter().filter(|check| !check.verdict.allow);
        let missing: Vec<Finding> = denied().map(|check| Finding::missing(*check)).collect();
        let wrong = change_check.wrong(permit);
        let owned = self.ownership(permit, change_check, context.owner.as_ref());
        let verdict = match &change_check.application {
            Some(Ok(application)) => Some(context.placement.judge(application)),
            Some(Err(_)) | None => None,
        };
        let reason = missing.first().map(|finding| finding.reason().to_owned());
        let part = ApplicationChange {
            namespace: &change_check.change.name.namespace,
            name: &change_check.change.name.name,
            project: change_check.project().unwrap_or_else(|| change_check.old_project()),
            action: change_check.action(permit.operation).into(),
            labels: change_check.labels(),
            object: context.fact(wrong.as_ref()),
            ownership: context.fact(owned.as_ref()),
            placement: verdict.as_ref().map(|verdict| verdict.placement.clone()),
        };
        let input = ApplicationSetInput {
            facts: &permit.facts,
            subject: ApplicationSetStage::Application(part),
            checks: &rbac_checks,
            refused: reason.as_deref(),
        };
        for check in denied() {
            record_check(checks, || recorded(check));
        }
        let mut findings = listed(missing, wrong, owned, verdict);
        self.add_policy_denial(&input, &mut findings)?;
        for finding in findings {
            finding.put(DeniedResource::Application(change_check.about().to_owned()), refused);
        }
        Ok(())
    }

    fn rule_text(&self, id: RuleId) -> String {
        let rule = self.rbac.rule(id);
        rule.map(|rule| format!("{}: {}", rule.location, rule.text))
            .unwrap_or_default()
    }

    /// The finding if an existing Application does not belong to the set and is not deleted with
    /// it, or if an Application exists that the plan would create.
    fn ownership(&self, permit: &SetPermit, change_check: &ChangeCheck<'_>, owner: Option<&Owner>) -> Option<Finding> {
        let change = change_check.change;
        let is_deletion = permit.operation == Operation::Delete;
        let is_own = match (change_check.side, &change.before) {
            (Side::NameTaken, _) => false,
            // Kubernetes also deletes what merely refers to the deleted set, so a deletion may have such Applications.
            (Side::Written | Side::Generated, Some(before)) => owner
                .is_some_and(|owner| owner.is_controller_of(before) || (is_deletion && owner.garbage_collects(before))),
            (Side::Written | Side::Generated, None) => !self.resources.applications.contains_key(&change.name),
        };
        (!is_own).then(|| not_owned(&change.name.name))
    }

    fn problem(&self, permit: &SetPermit, problem: &PlanProblem, refused: &mut RefusalList) {
        let about_set = |reason: &str, refused: &mut RefusalList| {
            self.put_about_set(permit, Finding::invalid(reason), refused);
        };
        match problem {
            PlanProblem::Unnamed(_) => about_set(&unnamed(&permit.name.name), refused),
            PlanProblem::InvalidIgnoreRule { .. } => about_set(&problem.to_string(), refused),
            PlanProblem::Duplicate(name) => {
                let finding = Finding::invalid(&duplicate(&permit.name.name, name));
                finding.put(DeniedResource::Application(name.clone()), refused);
            }
            // SECURITY: this is checked like an Application that is created. Only callers who
            // could create it learn that one of this name exists, because it may be in a project
            // that they must not learn of.
            PlanProblem::NameConflict(_) => {}
        }
    }

    fn put_about_set(&self, permit: &SetPermit, finding: Finding, refused: &mut RefusalList) {
        let set = DeniedResource::Set(self.object(&permit.project, &permit.name));
        finding.put(set, refused);
    }

    /// For each change, whether the caller may see the stored Application.
    pub(super) fn visible_changes(&self, plan: &Plan) -> Vec<bool> {
        let objects = plan.changes.iter().map(|change| {
            let before = change.before.as_ref()?;
            Some(self.object(project_of(before), &change.name))
        });
        let objects: Vec<Option<String>> = objects.collect();
        let texts = objects.iter().flatten().map(String::as_str);
        let verdicts = self.rbac.decide_each(&self.caller.roles, RESOURCE, "get", texts);
        let mut verdicts = verdicts.into_iter().map(|verdict| verdict.is_allowed());
        let seen = objects.iter().map(|object| match object {
            // Nothing is stored that could be hidden.
            None => true,
            Some(_) => verdicts.next().unwrap_or(false),
        });
        seen.collect()
    }
}

impl PlanContext<'_> {
    fn fact(&self, finding: Option<&Finding>) -> CheckedFact {
        match finding {
            None => self.yes.clone(),
            Some(finding) => CheckedFact::new(Some(finding.reason())),
        }
    }
}

/// Checks whether a plan was made of the permitted request.
pub(super) fn check_plan_matches(permit: &SetPermit, plan: &Plan) -> Result<(), Error> {
    let same_set = plan.set.name == permit.name;
    let same_project = match (permit.operation, &plan.set.after) {
        (Operation::Delete, _) | (_, None) => true,
        (_, Some(after)) => project_text(after) == permit.project,
    };
    let mut names = BTreeSet::new();
    let mut within = true;
    for change in &plan.changes {
        within &= change.name.namespace == permit.name.namespace;
        within &= names.insert(change.name.name.as_str());
    }
    names.extend(plan.problems.iter().filter_map(|problem| match problem {
        PlanProblem::NameConflict(change) => Some(change.name.name.as_str()),
        PlanProblem::Duplicate(name) => Some(name.as_str()),
        PlanProblem::Unnamed(_) | PlanProblem::InvalidIgnoreRule { .. } => None,
    }));
    // An Application that the set owns and the plan leaves out would be judged by nobody.
    let whole = permit.operation == Operation::Preview || permit.owned.iter().all(|name| names.contains(name.as_str()));
    if same_set && same_project && within && whole {
        Ok(())
    } else {
        Err(Error::PlanMismatch)
    }
}

fn not_owned(name: &str) -> Finding {
    let reason = format!("application `{name}` exists and does not belong to the set");
    Finding::denied(&reason).by("ownership")
}

/// The findings that the caller may see. A caller without the permissions sees nothing of the
/// stored objects.
fn listed(
    missing: Vec<Finding>,
    wrong: Option<Finding>,
    owned: Option<Finding>,
    verdict: Option<PlacementVerdict>,
) -> Vec<Finding> {
    let has_rights = missing.is_empty();
    let mut findings: Vec<Finding> = missing.into_iter().chain(wrong).collect();
    // SECURITY: only callers who could write this Application see findings about projects,
    // clusters and other Applications.
    if has_rights {
        findings.extend(owned);
        let verdict = verdict.into_iter().flat_map(|verdict| verdict.findings);
        findings.extend(verdict.map(|finding| (*finding).clone()));
    }
    findings
}
