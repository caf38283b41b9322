//! What is judged of a plan.
//!
//! In: a plan of what was cleared. Out: everything that refuses it. Never: a change
//! that is not judged; an Application taken over.
//!
//! An Application that is made needs what making it directly needs; one that is there
//! already, changed or not, needs that the caller may make, change and delete it; one
//! that goes needs the right to delete it. What is there afterwards is judged by its
//! project as well.

use std::collections::BTreeSet;

use rustc_hash::FxHashMap;
use serde_json::Value;

use super::application::{Wanted, duplicate, is_valid_name, project_of, read, unnamed};
use super::error::{Collected, Error, Lacks};
use super::judge::{Finding, note};
use super::known::{Judged, Known};
use super::rights::{Need, is_templated, needs, project_text};
use super::{Cleared, Desk, Operation};
use crate::applicationset::About;
use crate::applicationset::plan::{Action, Change, Owner, Plan, Problem};
use crate::authorize::facts::why;
use crate::authorize::rbac::{RuleId, Verdict};
use crate::authorize::rego::{ApplicationPart, CheckFact, Fact, RbacVerdict, SetInput, Subject};
use crate::config::SetChecks;
use crate::record::Check;

/// Rights on Applications that are looked up.
const ACTIONS: [&str; 3] = ["create", "update", "delete"];
const RESOURCE: &str = "applications";

/// What a plan came to.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// What refuses the operation itself.
    pub(super) set: Collected,
    /// What refuses to carry the plan out, the former among it.
    pub(super) refused: Collected,
    /// Projects its Applications are in afterwards.
    pub(super) projects: Vec<String>,
}

/// A right on one Application, and what RBAC says.
#[derive(Debug)]
struct Right {
    action: &'static str,
    /// Whether it is about where the Application shall be.
    is_new: bool,
    verdict: Option<Verdict>,
}

/// A change, read.
#[derive(Debug)]
struct Step<'a> {
    change: &'a Change,
    /// What is there afterwards, or what is wrong with it.
    wanted: Option<Result<Wanted<'a>, String>>,
    old: Option<String>,
    new: Option<String>,
    rights: Vec<Right>,
}

/// What all changes are judged with.
struct Bench<'a> {
    known: Known<'a>,
    owner: Option<Owner>,
    rules: FxHashMap<RuleId, String>,
    yes: Fact,
}

impl Desk<'_> {
    /// Judges a plan of what was cleared.
    pub(super) fn judge_plan(&self, cleared: &Cleared, plan: &Plan, checks: &mut Vec<Check>) -> Result<Outcome, Error> {
        is_of(cleared, plan)?;
        let mut outcome = Outcome::default();
        match self.settings.checks {
            SetChecks::Generated => {}
            SetChecks::Argocd if plan.changes.is_empty() && plan.problems.is_empty() => return Ok(outcome),
            SetChecks::Argocd => return Err(Error::Unplanned),
        }
        let steps: Vec<Step<'_>> = plan.changes.iter().map(|change| self.step(cleared, change)).collect();
        let projects: BTreeSet<String> = steps.iter().filter_map(Step::project).map(str::to_owned).collect();
        if is_templated(&cleared.project) {
            self.rendered_rights((cleared, &projects), checks, &mut outcome)?;
        }
        for problem in &plan.problems {
            self.problem(cleared, problem, &mut outcome.refused);
        }
        let mut bench = Bench {
            known: Known::new(self.resources, &cleared.name.namespace),
            owner: plan
                .set
                .before
                .as_ref()
                .map(|stored| Owner::of(&cleared.name.name, stored)),
            rules: FxHashMap::default(),
            yes: Fact::new(None),
        };
        let steps = self.look_up(steps);
        for step in &steps {
            self.judge_step((cleared, step), &mut bench, checks, &mut outcome.refused)?;
        }
        outcome.projects = projects.into_iter().collect();
        Ok(outcome)
    }

    /// Judges a plan that is only looked at. Argo CD judges what a set generates not at
    /// all.
    pub(super) fn judge_preview(
        &self,
        cleared: &Cleared,
        plan: &Plan,
        checks: &mut Vec<Check>,
    ) -> Result<Outcome, Error> {
        match self.settings.checks {
            SetChecks::Generated => self.judge_plan(cleared, plan, checks),
            SetChecks::Argocd => is_of(cleared, plan).map(|()| Outcome::default()),
        }
    }

    /// The rights on a set whose projects are known only now.
    fn rendered_rights(
        &self,
        (cleared, projects): (&Cleared, &BTreeSet<String>),
        checks: &mut Vec<Check>,
        outcome: &mut Outcome,
    ) -> Result<(), Error> {
        let mut projects = projects.clone();
        if projects.is_empty() {
            // As Argo CD, which knows only the text.
            projects.insert(cleared.project.clone());
        }
        let judged = needs(cleared.operation, &projects, &cleared.stored_projects);
        // Those on the stored set alone were judged before.
        let judged: Vec<Need> = judged.into_iter().filter(|need| !need.stored).collect();
        let mut twice = Collected::default();
        let about = (&cleared.name, &cleared.facts, false);
        self.judge_set(about, &judged, checks, &mut outcome.set)?;
        self.judge_set(about, &judged, &mut Vec::new(), &mut twice)?;
        outcome.refused = twice;
        Ok(())
    }

    fn step<'b>(&self, cleared: &Cleared, change: &'b Change) -> Step<'b> {
        let is_deletion = cleared.operation == Operation::Delete;
        let target = match (change.action, is_deletion) {
            (Action::Delete, _) | (_, true) => None,
            (Action::Create | Action::Update, false) => change.after.as_ref(),
            (Action::Keep, false) => change.before.as_ref(),
        };
        let wanted = target.map(|object| checked(change, object));
        let object = |project: &str| self.object(project, &change.name);
        let old = change.before.as_ref().map(|before| object(project_of(before)));
        let new = target.map(|after| object(project_of(after)));
        let rights = rights(is_deletion, (old.as_deref(), new.as_deref()));
        Step {
            change,
            wanted,
            old,
            new,
            rights,
        }
    }

    /// What RBAC says of every right: rows are narrowed down once an action.
    fn look_up<'b>(&self, mut steps: Vec<Step<'b>>) -> Vec<Step<'b>> {
        for action in ACTIONS {
            let objects = steps.iter().flat_map(|step| step.objects(action));
            let verdicts = self.rbac.decide_each(&self.caller.roles, RESOURCE, action, objects);
            let asked = steps.iter_mut().flat_map(|step| step.rights.iter_mut());
            let asked = asked.filter(|right| right.action == action);
            for (right, verdict) in asked.zip(verdicts) {
                right.verdict = Some(verdict);
            }
        }
        steps
    }

    fn judge_step(
        &self,
        (cleared, step): (&Cleared, &Step<'_>),
        bench: &mut Bench<'_>,
        checks: &mut Vec<Check>,
        refused: &mut Collected,
    ) -> Result<(), Error> {
        for right in &step.rights {
            if let Some(id) = right.verdict.and_then(|verdict| verdict.rule) {
                bench.rules.entry(id).or_insert_with(|| self.rule_text(id));
            }
        }
        let looked: Vec<CheckFact<'_>> = step.checks(&bench.rules);
        let missing: Vec<Finding> = looked
            .iter()
            .filter(|check| !check.verdict.allow)
            .map(|check| Finding::missing(*check))
            .collect();
        let wrong = step.wrong(cleared);
        let owned = self.ownership(step.change, bench.owner.as_ref());
        let judged = match &step.wanted {
            Some(Ok(wanted)) => Some(bench.known.judge(wanted)),
            Some(Err(_)) | None => None,
        };
        let reason = missing.first().map(|finding| finding.reason().to_owned());
        let part = ApplicationPart {
            namespace: &step.change.name.namespace,
            name: &step.change.name.name,
            project: step.project().unwrap_or_else(|| step.old_project()),
            action: match (cleared.operation, step.change.action) {
                (Operation::Delete, _) => Action::Delete.as_str(),
                (_, action) => action.as_str(),
            },
            object: bench.fact(wrong.as_ref()),
            ownership: bench.fact(owned.as_ref()),
            placed: judged.as_ref().map(|judged| judged.placed.clone()),
        };
        let input = SetInput {
            facts: &cleared.facts,
            subject: Subject::Application(part),
            checks: &looked,
            refused: reason.as_deref(),
        };
        for check in looked.iter().filter(|check| !check.verdict.allow) {
            note(checks, || recorded(check));
        }
        let findings = listed(missing, (wrong, owned), judged);
        self.put(step, (&input, findings), refused)
    }

    fn put(
        &self,
        step: &Step<'_>,
        (input, mut findings): (&SetInput<'_>, Vec<Finding>),
        refused: &mut Collected,
    ) -> Result<(), Error> {
        self.ask(input, &mut findings)?;
        for finding in findings {
            let object = step.new.as_deref().or(step.old.as_deref());
            let object = object.unwrap_or(&step.change.name.name);
            finding.put(About::Application(object.to_owned()), refused);
        }
        Ok(())
    }

    /// `file:line: text` of a row.
    fn rule_text(&self, id: RuleId) -> String {
        let rule = self.rbac.rule(id);
        rule.map(|rule| format!("{}: {}", rule.location, rule.text))
            .unwrap_or_default()
    }

    /// Whether what is there is the set's, and nothing is there that is not.
    fn ownership(&self, change: &Change, owner: Option<&Owner>) -> Option<Finding> {
        let is_own = match &change.before {
            Some(before) => owner.is_some_and(|owner| owner.owns(before)),
            None => !self.resources.applications.contains_key(&change.name),
        };
        (!is_own).then(|| taken(&change.name.name))
    }

    fn problem(&self, cleared: &Cleared, problem: &Problem, refused: &mut Collected) {
        let set = || About::Set(self.object(&cleared.project, &cleared.name));
        let application = |name: &str| About::Application(name.to_owned());
        let sense = |reason: String| Finding::new(Lacks::Sense, None, reason);
        let (about, finding) = match problem {
            Problem::Unnamed { .. } => (set(), sense(unnamed(&cleared.name.name))),
            Problem::Duplicate { name } => (application(name), sense(duplicate(&cleared.name.name, name))),
            Problem::Taken { name, .. } => (application(name), taken(name)),
            Problem::Ignore { .. } => (set(), sense(problem.to_string())),
        };
        finding.put(about, refused);
    }

    /// For each change, whether the caller may see what is stored.
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

impl Bench<'_> {
    fn fact(&self, finding: Option<&Finding>) -> Fact {
        match finding {
            None => self.yes.clone(),
            Some(finding) => Fact::new(Some(finding.reason())),
        }
    }
}

impl Step<'_> {
    /// Why the object cannot be written.
    fn wrong(&self, cleared: &Cleared) -> Option<Finding> {
        let wrong = match &self.wanted {
            Some(Err(wrong)) => Some(wrong.clone()),
            Some(Ok(_)) => None,
            None => unlinked_only(cleared, self.change),
        };
        wrong.map(|wrong| Finding::new(Lacks::Sense, None, wrong))
    }

    /// The project the Application is in afterwards.
    fn project(&self) -> Option<&str> {
        match &self.wanted {
            Some(Ok(wanted)) => Some(wanted.project),
            Some(Err(_)) | None => None,
        }
    }

    fn old_project(&self) -> &str {
        self.change.before.as_ref().map_or("", project_of)
    }

    fn object(&self, right: &Right) -> &str {
        let object = if right.is_new { &self.new } else { &self.old };
        object.as_deref().unwrap_or_default()
    }

    fn objects(&self, action: &'static str) -> impl Iterator<Item = &str> {
        let rights = self.rights.iter().filter(move |right| right.action == action);
        rights.map(|right| self.object(right))
    }

    fn checks<'b>(&'b self, rules: &'b FxHashMap<RuleId, String>) -> Vec<CheckFact<'b>> {
        let check = |right: &'b Right| CheckFact {
            resource: RESOURCE,
            action: right.action,
            object: self.object(right),
            verdict: match right.verdict {
                Some(verdict) => RbacVerdict {
                    allow: verdict.is_allowed(),
                    rule: verdict.rule.and_then(|id| rules.get(&id)).map(String::as_str),
                    why: why(verdict.why),
                },
                // Not looked up is not allowed.
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

/// The rights a change needs.
fn rights(is_deletion: bool, (old, new): (Option<&str>, Option<&str>)) -> Vec<Right> {
    let right = |action, is_new| Right {
        action,
        is_new,
        verdict: None,
    };
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

/// Whether a plan is of what was cleared.
fn is_of(cleared: &Cleared, plan: &Plan) -> Result<(), Error> {
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
        Problem::Taken { name, .. } | Problem::Duplicate { name } => Some(name.as_str()),
        Problem::Unnamed { .. } | Problem::Ignore { .. } => None,
    }));
    let whole =
        cleared.operation == Operation::Preview || cleared.owned.iter().all(|name| names.contains(name.as_str()));
    if same_set && same_project && within && whole {
        Ok(())
    } else {
        Err(Error::Unplanned)
    }
}

/// Reads what is there afterwards.
fn checked<'a>(change: &'a Change, object: &'a Value) -> Result<Wanted<'a>, String> {
    let wanted = read(object)?;
    let namespace = object.pointer("/metadata/namespace").and_then(Value::as_str);
    if wanted.name != change.name.name || namespace.is_some_and(|found| found != change.name.namespace) {
        return Err("the object has another name or namespace than the change".to_owned());
    }
    if !is_valid_name(wanted.name) {
        return Err(format!(
            "`{}` is no name for an object: lower-case letters, digits, `-` and `.` are allowed",
            wanted.name
        ));
    }
    // Who writes an Application may not start anything by it: that is a right of its own.
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

/// Of an Application that stays when its set goes, nothing but the reference to the set
/// may change.
fn unlinked_only(cleared: &Cleared, change: &Change) -> Option<String> {
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

fn taken(name: &str) -> Finding {
    let reason = format!("application `{name}` exists and does not belong to the set");
    Finding::new(Lacks::Permission, Some("ownership".to_owned()), reason)
}

/// What a caller reads. Without the rights, nothing of what is stored.
fn listed(
    missing: Vec<Finding>,
    (wrong, owned): (Option<Finding>, Option<Finding>),
    judged: Option<Judged>,
) -> Vec<Finding> {
    let has_rights = missing.is_empty();
    let mut findings: Vec<Finding> = missing.into_iter().chain(wrong).collect();
    // SECURITY: projects, clusters and other Applications are told of to those alone who
    // could write this one.
    if has_rights {
        findings.extend(owned);
        let judged = judged.into_iter().flat_map(|judged| judged.findings);
        findings.extend(judged.map(|finding| (*finding).clone()));
    }
    findings
}

fn recorded(check: &CheckFact<'_>) -> Check {
    let find = |action: &str| ACTIONS.into_iter().find(|known| *known == action);
    Check {
        resource: RESOURCE,
        action: find(check.action).unwrap_or_default(),
        object: check.object.to_owned(),
        allowed: check.verdict.allow,
        rule: check.verdict.rule.map(str::to_owned),
    }
}
