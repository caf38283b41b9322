//! Decides whether an identity may make a request, and names the row that decided.
//!
//! Invariant: [`Rbac::decide`] allocates nothing and takes no lock.
//!
//! Security: an allow always has a row.

use rustc_hash::FxHashMap;

use super::identity::{Eligibility, PlanStep, RbacIdentity};
use super::index::{Leaf, Objects};
use super::{Outcome, Rbac, RbacRequest, RuleId, Verdict, VerdictReason};
use tollgate_config::RbacSemantics;

#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FirstMatches {
    allow: Option<u32>,
    deny: Option<u32>,
    broken: Option<u32>,
}

fn first(left: Option<u32>, right: Option<u32>) -> Option<u32> {
    match (left, right) {
        (Some(left), Some(right)) => Some(left.min(right)),
        (left, right) => left.or(right),
    }
}

impl FirstMatches {
    pub(super) fn leaf(&mut self, leaf: &Leaf) {
        self.allow = first(self.allow, leaf.allow);
        self.deny = first(self.deny, leaf.deny);
    }

    pub(super) fn broken(&mut self, row: Option<u32>) {
        self.broken = first(self.broken, row);
    }

    /// A deny takes precedence over an error, and an error over an allow.
    pub(super) fn verdict(self) -> Verdict {
        let (outcome, rule, why) = match self {
            Self { deny: Some(row), .. } => (Outcome::Deny, Some(row), VerdictReason::DeniedByRule),
            Self { broken: Some(row), .. } => (Outcome::Deny, Some(row), VerdictReason::EvaluationError),
            Self { allow: Some(row), .. } => (Outcome::Allow, Some(row), VerdictReason::Allowed),
            Self {
                allow: None,
                deny: None,
                broken: None,
            } => (Outcome::Deny, None, VerdictReason::NoRule),
        };
        Verdict {
            outcome,
            rule: rule.map(RuleId),
            why,
        }
    }
}

const NO_RULE: Verdict = Verdict {
    outcome: Outcome::Deny,
    rule: None,
    why: VerdictReason::NoRule,
};

/// The steps of a plan, evaluated as far as resource and action determine them.
type PartialPlan<'a> = Vec<(FirstMatches, Vec<&'a Objects>)>;

impl Rbac {
    /// Whether the caller may do this. An identity of another policy may do nothing.
    pub fn decide(&self, who: &RbacIdentity, request: RbacRequest<'_>) -> Verdict {
        let steps = self.plan(who, request).iter();
        let founds = steps
            .filter(|step| step.eligibility == Eligibility::Eligible)
            .map(|step| self.search(step, request));
        self.narrow(combine(self.semantics, founds), who, |narrower, who| {
            narrower.decide(who, request)
        })
    }

    /// Denies what the policy that narrows this one does not allow.
    pub(super) fn narrow(
        &self,
        verdict: Verdict,
        who: &RbacIdentity,
        decide: impl FnOnce(&Self, &RbacIdentity) -> Verdict,
    ) -> Verdict {
        let Some(narrower) = self.narrowed_by.as_ref().filter(|_| verdict.is_allowed()) else {
            return verdict;
        };
        // SECURITY: a caller without an identity there may do nothing.
        let passes = who
            .narrowed
            .as_ref()
            .is_some_and(|who| decide(narrower, who).is_allowed());
        if passes { verdict } else { NO_RULE }
    }

    /// [`Rbac::decide`] for many objects of one resource and action, for which the rows are
    /// narrowed down once.
    pub fn decide_each<'a>(
        &self,
        who: &RbacIdentity,
        resource: &str,
        action: &str,
        objects: impl Iterator<Item = &'a str>,
    ) -> Vec<Verdict> {
        // Plans are borrowed from `who`, so their addresses tell them apart.
        let mut plans: FxHashMap<*const PlanStep, PartialPlan<'_>> = FxHashMap::default();
        let decide = |object: &str| {
            let request = RbacRequest {
                resource,
                action,
                object,
            };
            let steps = self.plan(who, request);
            let plan = plans
                .entry(steps.as_ptr())
                .or_insert_with(|| self.prepare(steps, request));
            let founds = plan.iter().map(|(found, indexes)| self.finish(*found, indexes, object));
            self.narrow(combine(self.semantics, founds), who, |narrower, who| {
                narrower.decide(who, request)
            })
        };
        objects.map(decide).collect()
    }

    fn prepare<'a>(&'a self, steps: &[PlanStep], request: RbacRequest<'_>) -> PartialPlan<'a> {
        let counting = steps.iter().filter(|step| step.eligibility == Eligibility::Eligible);
        let prepare = |step: &PlanStep| {
            let (mut found, mut indexes) = (FirstMatches::default(), Vec::new());
            for table in step.tables.iter().filter_map(|table| self.tables.get(*table as usize)) {
                let mut at_action = None;
                let row = table.visit(request.resource, &self.pool, &mut |actions| {
                    let row = actions.visit(request.action, &self.pool, &mut |objects| indexes.push(objects));
                    at_action = first(at_action, row);
                });
                found.broken(first(row, at_action));
            }
            (found, indexes)
        };
        counting.map(prepare).collect()
    }

    fn finish(&self, mut found: FirstMatches, indexes: &[&Objects], object: &str) -> FirstMatches {
        for index in indexes {
            let broken = index.visit(object, &self.pool, &mut |leaf| found.leaf(leaf));
            found.broken(broken);
        }
        found
    }

    /// Rows that match the request for any of the caller's principals, in the order they were read.
    /// If there are more than `most`, denies are kept before others.
    pub fn candidates(&self, who: &RbacIdentity, request: RbacRequest<'_>, most: usize) -> Vec<RuleId> {
        let mut rows = Vec::new();
        let steps = self.plan(who, request).iter();
        for step in steps.filter(|step| step.eligibility == Eligibility::Eligible) {
            let mut add = |leaf: &Leaf| rows.extend(leaf.rows.iter().copied().map(RuleId));
            self.visit(step, request, &mut add);
        }
        rows.sort_unstable();
        rows.dedup();
        self.shorten(&mut rows, most);
        rows
    }

    /// Keeps at most `most` rows, denies before others, in the order they were read.
    pub(super) fn shorten(&self, rows: &mut Vec<RuleId>, most: usize) {
        if rows.len() > most {
            let is_deny = |id: &RuleId| self.rule(*id).is_some_and(|rule| rule.effect == super::Effect::Deny);
            rows.sort_by_key(|id| (!is_deny(id), *id));
            rows.truncate(most);
            rows.sort_unstable();
        }
    }

    /// The steps for a request. An identity of another policy has none, so it may do nothing.
    pub(super) fn plan<'a>(&self, who: &'a RbacIdentity, request: RbacRequest<'_>) -> &'a [PlanStep] {
        if !who.belongs_to(self) {
            return &[];
        }
        // Saves most callers the lookup of the project.
        if who.has_single_plan() {
            return who.plan(None);
        }
        who.plan(self.project_of(request))
    }

    pub(super) fn search(&self, step: &PlanStep, request: RbacRequest<'_>) -> FirstMatches {
        let mut found = FirstMatches::default();
        let broken = self.visit(step, request, &mut |leaf| found.leaf(leaf));
        found.broken(broken);
        found
    }

    pub(super) fn visit(
        &self,
        step: &PlanStep,
        request: RbacRequest<'_>,
        found: &mut impl FnMut(&Leaf),
    ) -> Option<u32> {
        let pool = &self.pool;
        let mut broken = None;
        for table in step.tables.iter().filter_map(|table| self.tables.get(*table as usize)) {
            let (mut at_action, mut at_object) = (None, None);
            let at_resource = table.visit(request.resource, pool, &mut |actions| {
                let row = actions.visit(request.action, pool, &mut |objects| {
                    let row = objects.visit(request.object, pool, &mut |leaf| found(leaf));
                    at_object = first(at_object, row);
                });
                at_action = first(at_action, row);
            });
            broken = first(broken, first(at_resource, first(at_action, at_object)));
        }
        broken
    }
}

/// Combines what the principals' rows say, in the order of the principals, into one verdict.
pub(super) fn combine(semantics: RbacSemantics, founds: impl Iterator<Item = FirstMatches>) -> Verdict {
    let mut refusal = NO_RULE;
    let mut all = FirstMatches::default();
    for found in founds {
        match semantics {
            RbacSemantics::Strict => {
                all = FirstMatches {
                    allow: first(all.allow, found.allow),
                    deny: first(all.deny, found.deny),
                    broken: first(all.broken, found.broken),
                };
            }
            RbacSemantics::Argocd => {
                let verdict = found.verdict();
                // Any of them denies. The most telling one is reported: a deny, else an error.
                match (verdict.why, refusal.why) {
                    (VerdictReason::Allowed, _) => return verdict,
                    (VerdictReason::NoRule, _) | (_, VerdictReason::DeniedByRule) => {}
                    (VerdictReason::DeniedByRule, _) | (VerdictReason::EvaluationError, _) => refusal = verdict,
                }
            }
        }
    }
    match semantics {
        RbacSemantics::Strict => all.verdict(),
        RbacSemantics::Argocd => refusal,
    }
}
