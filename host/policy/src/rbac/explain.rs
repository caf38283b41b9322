//! Explains a verdict: every principal in order with its outcome and row, the rows that would match
//! if one field were different, and what is unknown.
//!
//! Invariant: the verdict is that of [`Rbac::decide`].

use std::collections::HashSet;

use serde::Serialize;

use super::identity::{Eligibility, PlanStep, PrincipalKind, RbacIdentity};
use super::{Effect, Rbac, RbacRequest, Rule, RuleId, Verdict, VerdictReason};
use tollgate_config::RbacSemantics;

const MAX_NEAR_MISSES: usize = 5;

/// A row as it is reported.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct MatchedRule {
    /// Its number.
    pub id: RuleId,
    /// The line as written.
    pub text: String,
    /// `file:line`.
    pub location: String,
    /// Its effect.
    pub effect: Effect,
}

/// The outcome for one principal.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum PrincipalOutcome {
    Allow,
    Deny,
    NoRule,
    /// A row holds an invalid expression.
    EvaluationError,
    /// Not judged: an identity provider may not give a caller this name.
    ReservedName,
    /// Not judged: a group without a `g` line.
    GroupWithoutGrant,
    /// Not judged: the token of a project, and an object of another project.
    ForeignProject,
    /// Not judged: in its own project, a project token counts by its role alone.
    TokenOnly,
}

/// One principal, as it was judged.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct EvaluatedPrincipal {
    /// Why it is one of the principals.
    pub kind: PrincipalKind,
    /// Its name; empty for the principal that everyone has.
    pub name: String,
    /// Whether some row or grant names it.
    pub known: bool,
    /// Roles that it inherits, without itself.
    pub roles: Vec<String>,
    pub outcome: PrincipalOutcome,
    /// The row that decided.
    pub rule: Option<MatchedRule>,
}

/// A field of a row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Field {
    /// The effect is neither `allow` nor `deny`.
    Effect,
    /// The object does not match.
    Object,
    /// The action does not match.
    Action,
    /// The resource does not match.
    Resource,
    /// The caller neither is nor inherits the subject, or the subject does not count.
    Subject,
}

/// A row that would allow if one field were different.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct NearMiss {
    pub field: Field,
    /// What the row requires there.
    pub wanted: String,
    /// What the request has there.
    pub observed: String,
    pub rule: MatchedRule,
}

/// The explanation of one decision.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Explanation {
    /// The verdict.
    pub verdict: Verdict,
    /// The row that decided.
    pub rule: Option<MatchedRule>,
    /// Principals in the order they were judged.
    pub principals: Vec<EvaluatedPrincipal>,
    /// For a denial that no row caused: rows that nearly allow, nearest first.
    pub near_misses: Vec<NearMiss>,
    /// What is unknown or surprising, one sentence each.
    pub notes: Vec<String>,
}

impl Rbac {
    /// Explains a decision. Evaluates every row, so do not call it for each request.
    pub fn explain(&self, who: &RbacIdentity, request: RbacRequest<'_>) -> Explanation {
        let verdict = self.decide(who, request);
        let steps = self.plan(who, request);
        let evaluate = |step| self.evaluate_principal(who, step, request);
        let principals: Vec<EvaluatedPrincipal> = steps.iter().filter_map(evaluate).collect();
        let near_misses = match verdict.why {
            VerdictReason::NoRule => self.near_misses(steps, request),
            VerdictReason::Allowed | VerdictReason::DeniedByRule | VerdictReason::EvaluationError => Vec::new(),
        };
        let notes = self.notes(&principals, request);
        Explanation {
            verdict,
            rule: verdict.rule.and_then(|id| self.matched_rule(id)),
            principals,
            near_misses,
            notes,
        }
    }

    /// The row with this number, as it is reported.
    pub fn matched_rule(&self, id: RuleId) -> Option<MatchedRule> {
        self.rule(id).map(|rule| MatchedRule {
            id,
            text: rule.text.to_string(),
            location: rule.location.to_string(),
            effect: rule.effect,
        })
    }

    fn evaluate_principal(
        &self,
        who: &RbacIdentity,
        step: &PlanStep,
        request: RbacRequest<'_>,
    ) -> Option<EvaluatedPrincipal> {
        let principal = who.principals.get(step.principal)?;
        let (outcome, rule) = match step.eligibility {
            Eligibility::Reserved => (PrincipalOutcome::ReservedName, None),
            Eligibility::Ungranted => (PrincipalOutcome::GroupWithoutGrant, None),
            Eligibility::ForeignProject => (PrincipalOutcome::ForeignProject, None),
            Eligibility::TokenOnly => (PrincipalOutcome::TokenOnly, None),
            Eligibility::Eligible => {
                let verdict = self.search(step, request).verdict();
                let outcome = match verdict.why {
                    VerdictReason::Allowed => PrincipalOutcome::Allow,
                    VerdictReason::DeniedByRule => PrincipalOutcome::Deny,
                    VerdictReason::NoRule => PrincipalOutcome::NoRule,
                    VerdictReason::EvaluationError => PrincipalOutcome::EvaluationError,
                };
                (outcome, verdict.rule)
            }
        };
        let names = step.roles.iter().filter_map(|id| self.names.get(id.0 as usize));
        Some(EvaluatedPrincipal {
            kind: principal.kind,
            known: self.has_subject(&principal.name),
            // The first one is the principal itself.
            roles: names.skip(1).map(|name| name.to_string()).collect(),
            name: principal.name.clone(),
            outcome,
            rule: rule.and_then(|id| self.matched_rule(id)),
        })
    }

    fn near_misses(&self, steps: &[PlanStep], request: RbacRequest<'_>) -> Vec<NearMiss> {
        let counting = steps.iter().filter(|step| step.eligibility == Eligibility::Eligible);
        let held: HashSet<&str> = counting
            .flat_map(|step| &step.roles)
            .filter_map(|id| self.names.get(id.0 as usize).map(|name| &**name))
            .collect();
        let project = self.project_of(request);
        let mut misses: Vec<(Field, RuleId)> = Vec::new();
        for (id, rule) in self.rules() {
            let own = rule.project.as_ref().and_then(|name| self.projects.get(&**name));
            if rule.effect != Effect::Deny
                && (own.is_none() || own == project.as_ref())
                && let Some(field) = self.only_miss(rule, request, &held)
                && misses.iter().filter(|(known, _)| *known == field).count() < MAX_NEAR_MISSES
            {
                misses.push((field, id));
            }
        }
        misses.sort_unstable();
        let near = |(field, id): (Field, RuleId)| {
            let rule = self.rule(id)?;
            let (wanted, observed) = match field {
                Field::Effect => ("allow", rule.text.rsplit(',').next().unwrap_or_default().trim()),
                Field::Object => (&*rule.object, request.object),
                Field::Action => (&*rule.action, request.action),
                Field::Resource => (&*rule.resource, request.resource),
                Field::Subject => (&*rule.subject, ""),
            };
            Some(NearMiss {
                field,
                wanted: wanted.to_owned(),
                observed: observed.to_owned(),
                rule: self.matched_rule(id)?,
            })
        };
        misses.into_iter().filter_map(near).collect()
    }

    /// The field that keeps a row from allowing, if it is exactly one.
    fn only_miss(&self, rule: &Rule, request: RbacRequest<'_>, held: &HashSet<&str>) -> Option<Field> {
        let [resource, action, object] = rule.patterns;
        let fails = [
            (Field::Effect, rule.effect == Effect::Inert),
            (Field::Object, !self.pool.matches(object, request.object)),
            (Field::Action, !self.pool.matches(action, request.action)),
            (Field::Resource, !self.pool.matches(resource, request.resource)),
            (Field::Subject, !held.contains(&*rule.subject)),
        ];
        let mut failing = fails.into_iter().filter(|(_, fails)| *fails);
        match (failing.next(), failing.next()) {
            (Some((field, _)), None) => Some(field),
            _ => None,
        }
    }

    fn notes(&self, principals: &[EvaluatedPrincipal], request: RbacRequest<'_>) -> Vec<String> {
        let mut notes = Vec::new();
        let (mut denied, mut noted) = (None, HashSet::new());
        for principal in principals {
            let name = &principal.name;
            if !principal.known && principal.kind != PrincipalKind::Everyone && noted.insert(name) {
                notes.push(format!("no row or grant names `{name}`"));
            }
            match principal.outcome {
                PrincipalOutcome::GroupWithoutGrant if principal.known => notes.push(format!(
                    "rows of group `{name}` do not count, since no `g, {name}, role:...` line names it"
                )),
                PrincipalOutcome::ReservedName => notes.push(format!(
                    "`{name}` does not count: the name belongs to a role, a project or a local account, and an \
                     identity provider may not speak for it"
                )),
                PrincipalOutcome::Deny => denied = denied.or(Some(name)),
                PrincipalOutcome::Allow => {
                    if let (Some(denied), RbacSemantics::Argocd) = (denied, self.semantics) {
                        notes.push(format!(
                            "the deny on `{denied}` does not count, since `{name}` is allowed"
                        ));
                    }
                }
                _ => {}
            }
        }
        if let Err(error) = super::validate_request(request.resource, request.action) {
            notes.push(error.to_string());
        }
        notes
    }
}
