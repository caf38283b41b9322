//! Judges a plan after generation and collects every reason to refuse it.
//!
//! An Application that is created needs the rights that creating it directly needs. For one that
//! exists already, changed or not, the caller must be allowed to create, change and delete it.
//! One that is deleted needs the right to delete it. Its project judges every Application that
//! exists afterwards. Applications that the set generates but does not write are judged as if
//! they were written, because the policy that holds them back today may change.
//!
//! Security: every change is judged, and no Application is taken over from another owner.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;

use crate::applicationsets::permit::application::{duplicate, project_of, unnamed};
use crate::applicationsets::permit::error::{Error, FindingKind, RefusalCollector};
use crate::applicationsets::permit::judge::{Finding, record_check};
use crate::applicationsets::permit::placement::{PlacementChecker, PlacementVerdict};
use crate::applicationsets::permit::rights::{RequiredPermission, is_templated, needs, project_text};
use crate::applicationsets::permit::{Desk, Operation, SetPermit};
use tollgate_applicationset::RefusedResource;
use tollgate_applicationset::plan::{Owner, Plan, PlanProblem};
use tollgate_config::ApplicationSetChecks;
use tollgate_policy::rbac::RuleId;
use tollgate_policy::rego::{ApplicationChange, ApplicationSetInput, ApplicationSetStage, CheckedFact, RbacCheck};
use tollgate_proxy::record::CheckRecord;

mod change_check;

use change_check::{ACTIONS, ChangeCheck, Side, recorded};

const RESOURCE: &str = "applications";

/// The result of judging a plan.
#[derive(Debug, Default)]
pub(super) struct PlanVerdict {
    /// Reasons to refuse the operation itself.
    pub(super) set: RefusalCollector,
    /// Reasons to refuse the plan, including those for the operation.
    pub(super) refused: RefusalCollector,
    /// Projects of its Applications after the plan.
    pub(super) projects: Vec<String>,
}

/// What judging a change needs.
struct PlanContext<'a> {
    placement: PlacementChecker<'a>,
    owner: Option<Owner>,
    rules: FxHashMap<RuleId, String>,
    yes: CheckedFact,
}

impl Desk<'_> {
    /// Judges a plan that was generated from a cleared set.
    pub(super) fn judge_plan(
        &self,
        cleared: &SetPermit,
        plan: &Plan,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<PlanVerdict, Error> {
        check_plan_matches(cleared, plan)?;
        let mut outcome = PlanVerdict::default();
        match self.settings.checks {
            ApplicationSetChecks::Generated => {}
            ApplicationSetChecks::Argocd if plan.changes.is_empty() && plan.problems.is_empty() => return Ok(outcome),
            ApplicationSetChecks::Argocd => return Err(Error::PlanMismatch),
        }
        let steps = self.steps(cleared, plan);
        let projects: BTreeSet<String> = steps
            .iter()
            .filter_map(ChangeCheck::project)
            .map(str::to_owned)
            .collect();
        if is_templated(&cleared.project) {
            self.rendered_rights((cleared, &projects), checks, &mut outcome)?;
        }
        for finding in &cleared.nondeterminism {
            self.put_about_set(cleared, finding.clone(), &mut outcome.refused);
        }
        for problem in &plan.problems {
            self.problem(cleared, problem, &mut outcome.refused);
        }
        let mut bench = PlanContext {
            placement: PlacementChecker::new(self.resources, &cleared.name.namespace),
            owner: plan
                .set
                .before
                .as_ref()
                .map(|stored| Owner::of(&cleared.name.name, stored)),
            rules: FxHashMap::default(),
            yes: CheckedFact::new(None),
        };
        let steps = self.look_up(steps);
        for change_check in &steps {
            self.judge_step((cleared, change_check), &mut bench, checks, &mut outcome.refused)?;
        }
        let written = steps.iter().filter(|change_check| change_check.side == Side::Written);
        let written: BTreeSet<&str> = written.filter_map(ChangeCheck::project).collect();
        outcome.projects = written.into_iter().map(str::to_owned).collect();
        Ok(outcome)
    }

    /// Judges a plan that is only previewed. Argo CD does not judge at all what a set generates.
    pub(super) fn judge_preview(
        &self,
        cleared: &SetPermit,
        plan: &Plan,
        checks: &mut Vec<CheckRecord>,
    ) -> Result<PlanVerdict, Error> {
        match self.settings.checks {
            ApplicationSetChecks::Generated => self.judge_plan(cleared, plan, checks),
            ApplicationSetChecks::Argocd => check_plan_matches(cleared, plan).map(|()| PlanVerdict::default()),
        }
    }

    /// The rights on a set whose projects are known only after rendering.
    fn rendered_rights(
        &self,
        (cleared, projects): (&SetPermit, &BTreeSet<String>),
        checks: &mut Vec<CheckRecord>,
        outcome: &mut PlanVerdict,
    ) -> Result<(), Error> {
        let mut projects = projects.clone();
        if projects.is_empty() {
            // Argo CD uses this text unrendered, so it counts too.
            projects.insert(cleared.project.clone());
        }
        let judged = needs(cleared.operation, &projects, &cleared.stored_projects);
        // The rights on the stored set alone were judged before.
        let judged: Vec<RequiredPermission> = judged.into_iter().filter(|need| !need.stored).collect();
        let mut twice = RefusalCollector::default();
        let about = (&cleared.name, &cleared.facts, false);
        self.judge_set(about, &judged, checks, &mut outcome.set)?;
        self.judge_set(about, &judged, &mut Vec::new(), &mut twice)?;
        outcome.refused = twice;
        Ok(())
    }

    /// Looks up every right. The rows are narrowed down once for each action.
    fn look_up<'b>(&self, mut steps: Vec<ChangeCheck<'b>>) -> Vec<ChangeCheck<'b>> {
        for action in ACTIONS {
            let objects = steps.iter().flat_map(|change_check| change_check.objects(action));
            let verdicts = self.rbac.decide_each(&self.caller.roles, RESOURCE, action, objects);
            let asked = steps.iter_mut().flat_map(|change_check| change_check.rights.iter_mut());
            let asked = asked.filter(|right| right.action == action);
            for (right, verdict) in asked.zip(verdicts) {
                right.verdict = Some(verdict);
            }
        }
        steps
    }

    fn judge_step(
        &self,
        (cleared, change_check): (&SetPermit, &ChangeCheck<'_>),
        bench: &mut PlanContext<'_>,
        checks: &mut Vec<CheckRecord>,
        refused: &mut RefusalCollector,
    ) -> Result<(), Error> {
        for right in &change_check.rights {
            if let Some(id) = right.verdict.and_then(|verdict| verdict.rule) {
                bench.rules.entry(id).or_insert_with(|| self.rule_text(id));
            }
        }
        let looked: Vec<RbacCheck<'_>> = change_check.checks(&bench.rules);
        let missing: Vec<Finding> = looked
            .iter()
            .filter(|check| !check.verdict.allow)
            .map(|check| Finding::missing(*check))
            .collect();
        let wrong = change_check.wrong(cleared);
        let owned = self.ownership((cleared, change_check), bench.owner.as_ref());
        let judged = match &change_check.wanted {
            Some(Ok(wanted)) => Some(bench.placement.judge(wanted)),
            Some(Err(_)) | None => None,
        };
        let reason = missing.first().map(|finding| finding.reason().to_owned());
        let part = ApplicationChange {
            namespace: &change_check.change.name.namespace,
            name: &change_check.change.name.name,
            project: change_check.project().unwrap_or_else(|| change_check.old_project()),
            action: change_check.action(cleared.operation).as_str(),
            object: bench.fact(wrong.as_ref()),
            ownership: bench.fact(owned.as_ref()),
            placement: judged.as_ref().map(|judged| judged.placement.clone()),
        };
        let input = ApplicationSetInput {
            facts: &cleared.facts,
            subject: ApplicationSetStage::Application(part),
            checks: &looked,
            refused: reason.as_deref(),
        };
        for check in looked.iter().filter(|check| !check.verdict.allow) {
            record_check(checks, || recorded(check));
        }
        let findings = listed(missing, (wrong, owned), judged);
        self.put(change_check, (&input, findings), refused)
    }

    fn put(
        &self,
        change_check: &ChangeCheck<'_>,
        (input, mut findings): (&ApplicationSetInput<'_>, Vec<Finding>),
        refused: &mut RefusalCollector,
    ) -> Result<(), Error> {
        self.add_policy_denial(input, &mut findings)?;
        for finding in findings {
            finding.put(RefusedResource::Application(change_check.about().to_owned()), refused);
        }
        Ok(())
    }

    /// A row as `file:line: text`.
    fn rule_text(&self, id: RuleId) -> String {
        let rule = self.rbac.rule(id);
        rule.map(|rule| format!("{}: {}", rule.location, rule.text))
            .unwrap_or_default()
    }

    /// Whether each existing object belongs to the set, or is deleted with it, and no object is
    /// expected that does not exist.
    fn ownership(
        &self,
        (cleared, change_check): (&SetPermit, &ChangeCheck<'_>),
        owner: Option<&Owner>,
    ) -> Option<Finding> {
        let change = change_check.change;
        let is_deletion = cleared.operation == Operation::Delete;
        let is_own = match (change_check.side, &change.before) {
            (Side::NameTaken, _) => false,
            (Side::Written | Side::Generated, Some(before)) => owner
                .is_some_and(|owner| owner.is_controller_of(before) || (is_deletion && owner.garbage_collects(before))),
            (Side::Written | Side::Generated, None) => !self.resources.applications.contains_key(&change.name),
        };
        (!is_own).then(|| taken(&change.name.name))
    }

    fn problem(&self, cleared: &SetPermit, problem: &PlanProblem, refused: &mut RefusalCollector) {
        let sense = |reason: String| Finding::new(FindingKind::Validity, None, reason);
        match problem {
            PlanProblem::Unnamed { .. } => self.put_about_set(cleared, sense(unnamed(&cleared.name.name)), refused),
            PlanProblem::InvalidIgnoreRule { .. } => self.put_about_set(cleared, sense(problem.to_string()), refused),
            PlanProblem::Duplicate { name } => {
                sense(duplicate(&cleared.name.name, name)).put(RefusedResource::Application(name.clone()), refused);
            }
            // SECURITY: this is judged like an Application that is created. Only callers who could
            // create it learn that one of this name exists: it may be in a project they know
            // nothing of.
            PlanProblem::NameConflict(_) => {}
        }
    }

    fn put_about_set(&self, cleared: &SetPermit, finding: Finding, refused: &mut RefusalCollector) {
        let set = RefusedResource::Set(self.object(&cleared.project, &cleared.name));
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

/// Whether a plan was made from what was cleared.
fn check_plan_matches(cleared: &SetPermit, plan: &Plan) -> Result<(), Error> {
    let same_set = plan.set.name == cleared.name;
    let same_project = match (cleared.operation, &plan.set.after) {
        (Operation::Delete, _) | (_, None) => true,
        (_, Some(after)) => project_text(after) == cleared.project,
    };
    let mut names = BTreeSet::new();
    let mut within = true;
    for change in &plan.changes {
        within &= change.name.namespace == cleared.name.namespace;
        within &= names.insert(change.name.name.as_str());
    }
    names.extend(plan.problems.iter().filter_map(|problem| match problem {
        PlanProblem::NameConflict(change) => Some(change.name.name.as_str()),
        PlanProblem::Duplicate { name } => Some(name.as_str()),
        PlanProblem::Unnamed { .. } | PlanProblem::InvalidIgnoreRule { .. } => None,
    }));
    let whole =
        cleared.operation == Operation::Preview || cleared.owned.iter().all(|name| names.contains(name.as_str()));
    if same_set && same_project && within && whole {
        Ok(())
    } else {
        Err(Error::PlanMismatch)
    }
}

fn taken(name: &str) -> Finding {
    let reason = format!("application `{name}` exists and does not belong to the set");
    Finding::new(FindingKind::Permission, Some("ownership".to_owned()), reason)
}

/// The reasons the caller is shown. Without the rights, nothing of what is stored.
fn listed(
    missing: Vec<Finding>,
    (wrong, owned): (Option<Finding>, Option<Finding>),
    judged: Option<PlacementVerdict>,
) -> Vec<Finding> {
    let has_rights = missing.is_empty();
    let mut findings: Vec<Finding> = missing.into_iter().chain(wrong).collect();
    // SECURITY: only callers who could write this Application are told about projects, clusters
    // and other Applications.
    if has_rights {
        findings.extend(owned);
        let judged = judged.into_iter().flat_map(|judged| judged.findings);
        findings.extend(judged.map(|finding| (*finding).clone()));
    }
    findings
}
